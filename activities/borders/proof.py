"""Decides whether a call that failed certainly changed nothing: by what its exception proves, and what it has sent."""

from collections.abc import Callable
from typing import assert_never

from activities.borders.table import Proof, Verdict, carried
from activities.libraries import is_foreign
from activities.sends import UNCOUNTED, Sends

Libraries = Callable[[], frozenset[str] | None]
"""Gives the packages that the function of a call can use; None if they are not known."""


def proves_no_effect(
    verdict: Verdict,
    error: BaseException,
    sends: Sends,
    libraries: Libraries | None,
    *,
    is_alone: bool = False,
) -> bool:
    """Whether `error`, with its `verdict`, and what the call has sent prove that the call had no effect.

    `libraries` is None if the function of the call did not begin to run. `is_alone`: the function promises to send at
    most one request that may change something.
    """
    match verdict.proves:
        case Proof.UNKNOWN:
            return False
        case Proof.PROMISED:
            return True
        case Proof.NOT_SENT:
            refused = 0
        case Proof.REFUSED:
            refused = int(is_alone or sends.all == 1) if verdict.requests is None else verdict.requests
        case unreachable:
            assert_never(unreachable)
    return sends.changes <= refused and (is_alone or not _may_have_sent_more(verdict, error, sends, libraries))


def _may_have_sent_more(verdict: Verdict, error: BaseException, sends: Sends, libraries: Libraries | None) -> bool:
    """Whether the function may have sent something that `sends` does not count."""
    if libraries is None:
        return False
    # A library has passed a rejection on, of a request that it has sent in a way of its own.
    is_unseen = (
        verdict.proves is Proof.REFUSED
        and not sends.all
        and any(is_foreign(type(exception)) for exception in (error, *carried(error)))
    )
    used = libraries()
    return is_unseen or not sends.is_complete or used is None or bool(used & UNCOUNTED)
