"""The arms of the experiment: who repeats what, and how often."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel

MAX_COUNTER, MAX_STEPS = 6, 10
"""Of a ReAct loop: it fails when its counter of retries is above this; how many turns it has."""
REPEATS = 3
"""How often the loop itself makes a call that fails."""


class Arm(BaseModel, frozen=True):
    """One way to carry out an order."""

    name: str
    title: str
    how: Literal["react", "plan", "replan"]
    repeats: int = 1
    """React: how often a call is made before its error is fed back."""
    attempts: int = 0
    """Plan: `maximum_attempts` of each step; 0 for no limit, as is Temporal's default."""
    replans: int | None = None
    """Replan: the limit of the task; None for the default."""
    has_breaker: bool = True
    has_fallback: bool = True


ARMS: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm(name="react", title="(a) ReAct, one counter, errors fed back", how="react"),
        Arm(name="react-repeat", title="(a2) ReAct, one counter, calls repeated", how="react", repeats=REPEATS),
        Arm(name="default", title="(b) plan, Temporal's default policy", how="plan"),
        Arm(name="three", title="(b3) plan, 3 attempts", how="plan", attempts=3),
        Arm(name="replan", title="(c) Replan", how="replan"),
        Arm(name="no-replan", title="(c) without replanning", how="replan", replans=0),
        Arm(name="no-breaker", title="(c) without breaker", how="replan", has_breaker=False),
        Arm(name="no-fallback", title="(c) without fallback", how="replan", has_fallback=False),
    )
}
