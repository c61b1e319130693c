"""Ids of activities and workflows, and names of timers, which are their summaries.

Histories and idempotency keys hold them, and `explain` finds calls and waits by them, so none of them may change.
"""

from temporalio import workflow

CATALOGUE = "catalogue"
INSPECT = "inspect"
PLAN, COMPACT = "plan:", "compact:"
"""Prefixes of the activity id of a request to the planner; the number of the turn follows."""
OBSERVATION = ":look"
"""Suffix, after a step's id, of the activity id of the read that observes the state after the step was rejected."""
RECONCILIATION = ":reconcile"
"""Suffix, after the id of a call, of the activity id of the read that finds out whether the call was applied."""
UNDO = "undo:"
"""Prefix of the id of a step that undoes another step, whose id follows."""


def of_request(turn: int, *, is_compaction: bool = False) -> str:
    return f"{COMPACT if is_compaction else PLAN}{turn}"


def of_call(step: str, fallback: str | None = None) -> str:
    """The id of a step's call, with which its idempotency key ends; a call of a `fallback` kind has its own id."""
    return f"{step}:{fallback}" if fallback else step


def of_observation(step: str) -> str:
    return f"{step}{OBSERVATION}"


def of_reconciliation(call: str) -> str:
    return f"{call}{RECONCILIATION}"


def of_undo(step: str) -> str:
    return f"{UNDO}{step}"


def idempotency_key(call: str, first_run: str | None = None) -> str:
    """The key of a call of the task whose first run has the id `first_run`; None stands for the running workflow."""
    return f"{first_run or workflow.info().first_execution_run_id}/{call}"


def rollback_id(task: str) -> str:
    """The id of the workflow that undoes a closed task."""
    return f"undo-{task}"


def reset_rollback_id(task: str) -> str:
    """The id of the workflow that undoes, before a reset, the effects which the new run would apply again."""
    return f"undo-before-reset-{task}"


DEADLINE_TIMER = "the task's deadline"
RETRY_TIMER = " waits: "
RECONCILE_TIMER = " waits: its last attempt may be under way"


def retry_timer(call: str, code: str) -> str:
    """The name of the timer before a call, or an internal activity, is scheduled again."""
    return f"{call}{RETRY_TIMER}{code}, then again"


def reconcile_timer(step: str) -> str:
    """The name of the timer after which no attempt of a step's call can still be running."""
    return f"{step}{RECONCILE_TIMER}"


def is_retry_timer(name: str, *calls: str) -> bool:
    """Whether a timer with this name stands before one of these calls is scheduled again."""
    return name.startswith(tuple(f"{call}{RETRY_TIMER}" for call in calls)) and RECONCILE_TIMER not in name


def is_reconcile_timer(name: str, step: str) -> bool:
    """Whether a timer with this name waits because a call of this step may still be running."""
    return name.startswith(reconcile_timer(step))
