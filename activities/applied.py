"""Whether a failed call may have changed the world, as far as its kind, and what was raised, can tell."""

import httpx2

from activities.borders import http
from activities.toolbox import deadline
from activities.toolbox.errors import ToolError
from workflows.catalogue import Effect
from workflows.faults import Applied, Fault, Quadrant


def applied(
    effect: Effect, fault: Fault, error: BaseException, *, called: bool, returned: bool, committing: bool
) -> Applied:
    """Say it of a call that ended with `error`.

    `called` is whether the tool was called at all, `returned` whether it came back with a result, `committing` whether
    its transaction may have committed.
    """
    match effect:
        case Effect.READ:
            return Applied.NONE
        case Effect.TRANSACTIONAL:  # what did not commit has not happened
            return Applied.UNKNOWN if committing else Applied.NONE
        case _ if returned:
            return Applied.APPLIED
        case Effect.IDEMPOTENT if fault.quadrant is Quadrant.PERSISTENT_SEMANTIC:  # what was refused is as it was
            return fault.effect
        case _:
            return Applied.UNKNOWN if called and not _is_proven(error) else Applied.NONE


def _is_proven(error: BaseException) -> bool:
    """Whether what was raised proves that nothing happened: the author's word, or the only request that was made."""
    if isinstance(error, ToolError):
        return error.requests is None or deadline.sent() <= error.requests
    return http.had_no_effect(error) and _is_alone(error)


def _is_alone(error: BaseException) -> bool:
    """Whether no request before the one that failed may have changed something."""
    return deadline.is_alone(error.request.method if isinstance(error, httpx2.HTTPStatusError) else None)
