"""The last table: an exception whose class no other table has is translated by the HTTP status that it carries.

Clients of HTTP services raise classes of their own, and nearly all of them keep the status of the answer in one of a
few places. What is read there is a guess, and marked as one (`Fault.guessed`): it decides what follows, and proves
nothing about an effect. Nothing is guessed from a text.
"""

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum

from activities.borders import http
from activities.borders.service_api import field
from activities.borders.table import Proof, Verdict, attribute, class_name, is_pythons_own

PLACES = (
    ("status_code",),
    ("status",),
    ("http_status",),
    ("response_code",),
    ("response", "status_code"),
    ("response", "status"),
    ("code",),  # the last: many services have codes of their own
)
"""Where exceptions keep the HTTP status of an answer, as paths of attributes; the first that holds a status counts."""


def guess(error: BaseException) -> Verdict | None:
    """The verdict on an exception by the HTTP status that it carries; None if it carries no status from 400 to 599."""
    for path, status in _statuses(error):
        verdict, where = http.by_answer(error, status), ".".join((class_name(error), *path))
        return replace(verdict, fault=verdict.fault.model_copy(update={"guessed": where}), proves=Proof.UNKNOWN)
    return None


def status_of(error: BaseException) -> int | None:
    """The HTTP status from 400 to 599 that an exception carries; None if it carries none."""
    of_aws = field(attribute(error, "response"), "ResponseMetadata", "HTTPStatusCode")
    return next((status for _, status in _statuses(error)), of_aws if isinstance(of_aws, int) else None)


def _statuses(error: BaseException) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the places where an exception carries an HTTP status, each with the status."""
    for path in () if is_pythons_own(error) else PLACES:  # SystemExit has a `code`
        status = attribute(error, *path)
        status = status.value if isinstance(status, Enum) else status
        if isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600:
            yield path, int(status)
