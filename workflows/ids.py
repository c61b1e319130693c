"""Ids of activities and workflows, and names of timers, which Temporal shows as the summaries of the timers.

Used when an activity, a workflow or a timer is started, and when `explain` looks for it in a history. Histories and
idempotency keys contain these ids and names, so none of them may change.
"""

from temporalio import workflow

from workflows.people.requests import HumanRequest

CATALOGUE = "catalogue"
INSPECT = "inspect"
PLAN, COMPACT = "plan:", "compact:"
"""Prefixes of activity ids before the number of a turn: to ask for a proposal, to summarise old turns."""
OBSERVATION = ":look"
"""The activity that reads the current state after a step was rejected has the step's id and this suffix as its id."""
RECONCILIATION = ":reconcile"
"""The activity that finds out whether a call was applied has the call's id and this suffix as its id."""
UNDO = "undo:"
"""A step that undoes another step has this prefix and the id of the other step as its id."""


def of_request(turn: int, *, is_compaction: bool = False) -> str:
    """The id of the activity that asks the planner in this turn: for a proposal or, with `is_compaction`, a summary."""
    return f"{COMPACT if is_compaction else PLAN}{turn}"


def of_call(step: str, fallback: str | None = None) -> str:
    """The id of the call of a step, the last part of its idempotency key; it has the kind of a `fallback` in it."""
    return f"{step}:{fallback}" if fallback else step


def of_observation(step: str) -> str:
    return f"{step}{OBSERVATION}"


def of_reconciliation(call: str) -> str:
    return f"{call}{RECONCILIATION}"


def of_undo(step: str) -> str:
    return f"{UNDO}{step}"


def idempotency_key(call: str, prefix: str) -> str:
    """The idempotency key of a call: `prefix` (see `Progress.key_prefix`), a slash, and `call`, the id of the call."""
    return f"{prefix}/{call}"


def rollback_id(task: str) -> str:
    """The id of the workflow that undoes a closed task."""
    return f"undo-{task}"


def reset_rollback_id(task: str) -> str:
    """The id of the workflow that undoes, before a task is reset, the effects that the new run would apply again."""
    return f"undo-before-reset-{task}"


def resolution(cause: str, queue: str) -> str:
    """The id of the workflow that resolves the incident `cause` of a queue; two such workflows cannot run at once."""
    return f"resolve-{queue}-{cause.replace('/', '-')}"


def notification(request: HumanRequest, event: str) -> str:
    """The id of a notification of an event of a request, and of the workflow that delivers the notification.

    Each repetition has the same id. After a reset, the request is opened at another time, which gives a new id.
    """
    opened = f"{request.since:%Y%m%dT%H%M%S%f}"
    return f"notify-{workflow.info().first_execution_run_id}-{request.id}-{opened}-{event}"


DEADLINE_TIMER = "the task's deadline"
RETRY_TIMER = " waits: "
RECONCILE_TIMER = " waits: its last attempt may be under way"


def retry_timer(call: str, code: str) -> str:
    """The name of the timer, after a fault with `code`, before `call`: the id of a step or a read, or an own kind."""
    return f"{call}{RETRY_TIMER}{code}, then again"


def reconcile_timer(step: str) -> str:
    """The name of the timer that waits until no attempt of the step's call can still be running."""
    return f"{step}{RECONCILE_TIMER}"


REQUEST_TIMER = "waiting for a person: "


def request_timer(request: HumanRequest) -> str:
    """The name of the timer that ends the wait for a person."""
    about = f"{request.step} {request.code}" if request.step else request.code
    return f"{REQUEST_TIMER}{about} | {', '.join(choice.value for choice in request.choices)}"


def reminder_timer(request: HumanRequest) -> str:
    """The name of the timer after which a receiver is reminded of a request that is still open."""
    return f"reminder of the request {request.id}"


def escalation_timer(request: HumanRequest) -> str:
    """The name of the timer after which further people may answer a request that is still open."""
    return f"further people may answer the request {request.id}"


def repeat_timer(request: HumanRequest) -> str:
    """The name of the timer after which a task repeats the failed call of a request that is still open."""
    return f"until {request.step} is tried again: {request.code}"


def with_entry(name: str, number: int) -> str:
    """The name of a timer with the number of its entry in the journal: `book waits: busy, then again [12]`."""
    return f"{name} [{number}]"


def without_entry(name: str) -> tuple[str, int]:
    """The name of a timer without the number of its entry, and this number; 0 if the name has none."""
    text, _, number = name.removesuffix("]").rpartition(" [")
    return (text, int(number)) if text and number.isdecimal() else (name, 0)


def is_retry_timer(name: str, *calls: str) -> bool:
    return name.startswith(tuple(f"{call}{RETRY_TIMER}" for call in calls)) and RECONCILE_TIMER not in name


def is_reconcile_timer(name: str, step: str) -> bool:
    return name.startswith(reconcile_timer(step))
