"""What the tables of clouds and services share: rows, and how to read what an exception carries.

The clients of services retry on their own. If nothing shows the requests before the final one, an exception proves
something about the final request only: a tool whose effect may not be repeated turns these retries off.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from activities.borders import http
from activities.borders.table import MAX_CARRIED, Proof, Row, Verdict, carried
from workflows.faults.fault import QUADRANT, Code, Quadrant

MAX_ITEMS = 200
"""The most items of a list in an answer that are looked at; a transaction of DynamoDB has at most 100."""


def behind(error: BaseException) -> list[BaseException]:
    """The exceptions that an exception wraps or follows, since these libraries raise in an `except` without a cause."""
    found = [error]
    for exception in found:
        more = (*carried(exception), *([exception.__context__] if exception.__context__ else []))
        found += [other for other in more if all(other is not known for known in found)][: MAX_CARRIED - len(found)]
    return found[1:]


def field(value: Any, *names: str) -> Any:
    """The value at a path of keys or attributes; None if one of `names` is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def some(values: Any) -> Iterator[Any]:
    """The first MAX_ITEMS of `values`; empty if `values` cannot be iterated over."""
    return itertools.islice(values if isinstance(values, Iterable) else (), MAX_ITEMS)


def code_in(value: Any) -> str:
    """`value`, if it is a word, as error codes of services are; else empty, since it could be untrusted content."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.:/-]{1,80}", value, re.ASCII) else ""


def answered(who: str, code: str, row: Row, observed: Any = None, wait: float | None = None) -> Verdict:
    """The verdict of `row`; its reason begins with `who` (such as "Slack answered with") and the error code.

    `observed` is kept if a new plan follows, `wait` (in seconds) if a retry follows.
    """
    cell = QUADRANT[row.code]
    return row.verdict(
        reason=f"{who} {code or 'without a code'}. {row.reason[:1].upper()}{row.reason[1:]}",
        observed=observed if cell is Quadrant.PERSISTENT_SEMANTIC else None,
        retry_after=wait if cell.is_transient else None,
    )


def by_status(status: int) -> Row:
    """The row of an HTTP status of a service that takes no payments for its callers: there, 402 is an unpaid bill."""
    return UNPAID if status == 402 else http.by_status(status)


def statuses(row_of: Callable[[int], Row] = by_status) -> dict[str, Row]:
    """The rows of the HTTP statuses, by the status as a text."""
    return {str(status): row_of(status) for status in http.STATUS}


def unsent(code: Code, reason: str) -> Row:
    """A row for an exception that proves that its request was not sent."""
    return Row(code, reason, Proof.NOT_SENT)


def refused(code: Code, reason: str) -> Row:
    """A row for an exception that proves that its request was answered and changed nothing."""
    return Row(code, reason, Proof.REFUSED)


def unknown(code: Code, reason: str) -> Row:
    """A row for an exception that proves nothing about the effect of its request."""
    return Row(code, reason, Proof.UNKNOWN)


CERTIFICATE = unsent(
    Code.NEEDS_PERSON, "The certificate of the service is not trusted: check the address and the worker's certificates."
)
BROKEN = unknown(Code.UNREACHABLE, "The connection to the service broke.")
NO_ANSWER = unknown(Code.TIMEOUT, "The service did not answer in time.")
UNREADABLE = unknown(Code.UNEXPECTED_RESULT, "The answer of the service cannot be read.")
CLIENT_BUG = unknown(Code.BUG, "The tool uses the client of the service wrongly: fix the tool.")
CLIENT_BUG_UNSENT = unsent(Code.BUG, "The tool uses the client of the service wrongly; nothing was sent: fix the tool.")
WARNING = unknown(Code.BUG, "A warning of the service's client was raised as an error: fix the tool.")

THROTTLED = refused(Code.RATE_LIMITED, "There were too many requests.")
OVERLOADED = refused(Code.OVERLOADED, "The service has too little capacity at the moment.")
MISSING = refused(Code.NOT_FOUND, "There is no such thing: look for it under another name.")
FORBIDDEN = refused(Code.FORBIDDEN, "The credentials do not allow it: ask for the permission.")
CREDENTIALS = refused(Code.UNAUTHORIZED, "The credentials are not accepted, or have expired: renew them.")
STALE = refused(Code.PRECONDITION_FAILED, "A condition of the call does not hold: read the state and choose again.")
CONFLICT = refused(Code.CONFLICT, "The call contradicts the current state: observe it and choose again.")
INVALID = refused(Code.INVALID_INPUT, "The service does not accept these values: change the arguments.")
BUSY = refused(Code.BUSY, "Another change is in progress, or the resource is not ready yet.")
QUOTA = refused(Code.QUOTA_EXHAUSTED, "A quota of the account is used up: ask for a larger one, or delete something.")
UNPAID = refused(Code.QUOTA_EXHAUSTED, "A bill of the account is not paid: settle it at the service.")
UNSUPPORTED = refused(Code.MALFORMED_SCHEMA, "The service does not support this operation: fix the tool.")
REJECTED = refused(Code.REFUSED, "The service rejected the request: choose again.")
FAILED = unknown(Code.SERVER_ERROR, "The service failed.")
UNAVAILABLE = replace(FAILED, says_down=True)
WRONG_REGION = refused(Code.BUG, "The client uses the wrong region or endpoint: configure the right one.")
NO_CODE = unknown(Code.BUG, "No table knows this error: add it to `raises=` of the tool.")
