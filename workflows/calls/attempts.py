"""The loop of attempts: each is reserved, run and settled; after its fault it is decided whether the call is repeated.

Runs for each call of a step, each read of the workflow, and each activity of Replan's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from temporalio import workflow

from workflows.account import metrics
from workflows.calls.admission import Admissions
from workflows.faults import retries
from workflows.faults.decision import Ask, Decision, Wait
from workflows.faults.fault import Fault

R = TypeVar("R", covariant=True)


class Attempts(Protocol[R]):
    """The attempts of one call: what differs between steps, reads and Replan's own activities."""

    async def make(self) -> R | Fault:
        """Reserve, run and settle an attempt: one execution of the activity, with the retries of its policy."""

    def decide(self, fault: Fault) -> Decision | Ask:
        """Decide what follows a fault, and write it to the journal."""

    async def wait(self, fault: Fault, wait: Wait) -> None:
        """Wait before the next attempt."""


async def until_decided(attempts: Attempts[R], result: R | Fault) -> tuple[R | Fault, Decision | Ask | None]:
    """Repeat a call while a wait follows its fault; `result` is that of its first attempt.

    Returns the result of the call, or its fault and what else follows that.
    """
    while isinstance(result, Fault):
        decision = attempts.decide(result)
        if not isinstance(decision, Wait):
            return result, decision
        await attempts.wait(result, decision)
        result = await attempts.make()
    return result, None


@dataclass(kw_only=True)
class AttemptTally:
    """What the attempts of one call came to until now."""

    used: int = 0
    losses: int = 0
    waits: int = 0
    waited: float = 0.0
    repeated: Fault | None = None
    """What `metrics.last_fault` returns for the newest execution, if the next one repeats it."""
    earlier: Sequence[Fault] = ()
    """The known faults of the newest execution before its last one."""

    def count(self, fault: Fault) -> None:
        self.used += fault.taken
        self.losses += 1 if fault.uncounted else 0
        self.repeated = metrics.last_fault(fault, self.earlier, self.repeated)


async def pause(admissions: Admissions, wait: Wait, key: str, timer: str) -> float:
    """Wait as `wait` says before a call is repeated; return the seconds slept, 0 if the `key` was admitted."""
    if wait.until_admitted:
        return await admissions.wait(key, wait.seconds, timer)
    await workflow.sleep(retries.timer(wait.seconds), summary=timer)
    return wait.seconds
