"""One request of an agent to call a tool, as the gateway's transports hand it to what makes the call."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from extras.gateway.attending import Person
from extras.gateway.sessions import Session

MAX_KEY = 500
"""The most characters of an agent's key."""

Report = Callable[[float, float | None, str], Awaitable[None]]
"""Reports the progress of a call to its agent: the amount done, the total (None if unknown), and words."""


@dataclass(frozen=True)
class AgentRequest:
    """One request of an agent to call a tool."""

    session: Session
    id: str
    """Unique in all sessions."""
    connection: str
    key: str = ""
    resent: str = ""
    report: Report | None = None
    attended: Person | None = None
    """The person at the client; None if the client is not attended, or cannot ask."""
    is_gone: Callable[[], bool] = lambda: False
    """Whether the agent can certainly not be reached any more."""
    arrived: float = field(default_factory=time.monotonic)
    """When it came: it cannot follow an answer that was given later."""


class AgentGone(Exception):
    """The agent left before its call was begun. The call is not made, since a repetition may have overtaken it."""
