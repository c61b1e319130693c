"""What follows each fault, asked of the code that decides; only the words are ours."""

from collections.abc import Mapping
from typing import NamedTuple

from workflows import routing
from workflows.catalogue import Effect, ToolSpec
from workflows.decision import Left, decide
from workflows.faults import Code, Fault


class Course(NamedTuple):
    """What follows a fault without effect, from the first attempt to the last way out."""

    retried: bool
    """By Temporal, within the same scheduling."""
    while_left: str
    """While attempts and patience are left."""
    used_up: str
    """When none are left."""
    no_fallback: str
    """When none are left and the kind has no fallback."""
    no_replan: str
    """When there is no fallback and no new plan is allowed."""


def course(code: Code) -> Course:
    """Ask the code that decides."""
    fault = Fault.of(code, "", uncounted=code is Code.WORKER_LOST)
    bare = ToolSpec(kind="x", effect=Effect.READ)
    covered = bare.model_copy(update={"fallback": "y"})
    some = Left(attempts=1, patience=60, losses=1)
    none = Left(attempts=0, patience=60, waited=60, losses=routing.MAX_LOSSES + 1)
    asked = ((covered, some), (covered, none), (bare, none), (bare, none.model_copy(update={"replans": False})))
    return Course(fault.retryable(), *(decide(fault, spec, left).action for spec, left in asked))


_STANDARD, _PATIENT = routing.PROFILES["standard"].attempts, routing.PROFILES["patient"].attempts
_USED_UP = "When they are used up: the tool's `fallback=`, else a new plan without the tool, else a person."
WORDS: Mapping[Course, str] = {
    Course(True, "wait", "fallback", "replan", "escalate"): f"The same call again, {_STANDARD} attempts in all "
    f'({_PATIENT} with `retry="patient"`), after waits that grow. A Retry-After is honoured; one over '
    f"{routing.LONGEST_RETRY_AFTER:g} s becomes a timer of the task. {_USED_UP}",
    Course(False, "wait", "fallback", "replan", "escalate"): f"A timer of the task, "
    f"{routing.circuit_wait(0):g} s doubling to {routing.circuit_wait(99) / 60:g} min, then the same call; no attempt "
    "is lost.",
    Course(True, "wait", "escalate", "escalate", "escalate"): "A timer of the task, "
    f"{routing.loss_wait(1):g} s doubling, then the same call; it does not count as an attempt. After "
    f"{routing.MAX_LOSSES} of them in one step a person is asked, since the tool itself may be what kills the worker. "
    "An `unkeyed` call is found out with `reconcile=` first, or goes to a person at once.",
    Course(False, "wait", "wait", "wait", "wait"): "The same call at once, on whatever worker there is; it does not "
    "count as an attempt.",
    Course(False, "wait", "escalate", "escalate", "escalate"): f"A timer of the task, again and again for "
    f"{routing.MISSING_TOOL_PATIENCE:g} s, since a worker that knows it may be on its way; then a person.",
    Course(False, "replan", "replan", "replan", "replan"): "No retry. Nothing new starts, running siblings finish, the "
    "world is looked at again, and the planner makes a new plan. Finished steps stay.",
    Course(False, "escalate", "escalate", "escalate", "escalate"): "No retry and no new plan: a person. The task ends "
    "as `escalated`, exit code 3. Mend the cause; `python starter.py reset ID --to STEP` goes on from there.",
}
"""A course that the code takes and that stands not here is a mistake of this page."""
