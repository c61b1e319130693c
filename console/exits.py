"""The exit codes of every command."""

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

from client.problem import ProblemKind

if TYPE_CHECKING:  # it takes half a second, which a mistake in the usage need not wait for
    from workflows.account.outcome import Outcome


class Exit(IntEnum):
    COMPLETED = 0
    FAILED = 1
    BAD_USAGE = 2
    NEEDS_PERSON = 3
    OVER_BUDGET = 4
    CANCELLED = 5
    UNREACHABLE = 6
    DETACHED = 130


OF_PROBLEM: Mapping[ProblemKind, Exit] = {
    ProblemKind.BAD_REQUEST: Exit.BAD_USAGE,
    ProblemKind.FAILED: Exit.FAILED,
    ProblemKind.NEEDS_PERSON: Exit.NEEDS_PERSON,
    ProblemKind.UNREACHABLE: Exit.UNREACHABLE,
}
OF_STATUS: Mapping[str, Exit] = {
    "running": Exit.COMPLETED,
    "waiting": Exit.NEEDS_PERSON,
    "paused": Exit.COMPLETED,
    "completed": Exit.COMPLETED,
    "escalated": Exit.NEEDS_PERSON,
    "over_budget": Exit.OVER_BUDGET,
    "cancelled": Exit.CANCELLED,
    "failed": Exit.FAILED,
}
"""The exit code by the value of a TaskStatus. The keys are strings because the module of TaskStatus imports slowly."""


def exit_code(outcome: "Outcome") -> Exit:
    """The exit code for an outcome; a plan or a task that Replan did not accept counts as bad usage."""
    return Exit.BAD_USAGE if outcome.code in ("plan_refused", "task_refused") else OF_STATUS[outcome.status]
