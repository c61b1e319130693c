"""What the tables of all model providers share: rows, the Fault of a row, and the wait before a retry.

A status of a model's API means something else than a status of a tool's service: 404 is a wrong name of a model, and
409 is transient.
"""

from collections.abc import Mapping

import httpx2

from activities.borders.http import is_unsent, seconds
from activities.borders.table import Entry
from workflows.faults import QUADRANT, Code, Fault

Row = tuple[Code, str]
"""The code of a Fault, and the part of its reason that follows the provider's name."""

QUOTA: Row = (Code.QUOTA_EXHAUSTED, "has no credit left for us: pay or raise the limit in its console")
SPENT: Row = (Code.QUOTA_EXHAUSTED, "has reached the limit that was set for spending: raise it in its console")
KEY: Row = (Code.UNAUTHORIZED, "does not accept the worker's key: fix the key in its environment and restart it")
FORBIDDEN: Row = (
    Code.FORBIDDEN,
    "does not permit this to the worker's key: ask for the permission, or use another key",
)
HOLD: Row = (Code.FORBIDDEN, "has put the organisation of the key on hold: settle it in its console")
NO_MODEL: Row = (
    Code.NEEDS_PERSON,
    "has no such model, or the address is wrong: check the worker's --planner and where it sends requests",
)
NO_TOOLS: Row = (
    Code.NEEDS_PERSON,
    "takes no tools from this model in Chat Completions: choose another one, e.g. openai:gpt-5.4-mini",
)
OURS: Row = (Code.MALFORMED_SCHEMA, "says that Replan's request is malformed: report it, or use another model")
TOO_LONG: Row = (Code.TOO_LARGE, "finds the conversation too long for this model: split the task, or use a larger one")
SLOW_DOWN: Row = (Code.RATE_LIMITED, "wants fewer requests")
BUSY: Row = (Code.BUSY, "was busy with a conflicting request")
OVERLOADED: Row = (Code.OVERLOADED, "is overloaded")
BROKEN: Row = (Code.SERVER_ERROR, "failed")
LATE: Row = (Code.TIMEOUT, "ended the request after a timeout")
FILTERED: Row = (Code.REFUSED, "rejected the request as against its rules: write the task in other words")
CUT: Row = (Code.UNREACHABLE, "could not be reached, or the connection broke")
SILENT: Row = (Code.TIMEOUT, "did not answer in time")
GARBLED: Row = (Code.SERVER_ERROR, "sent an invalid reply, perhaps from a proxy")
MISUSED: Row = (Code.BUG, "is called wrongly by Replan: report it")

OWN_HOSTS: Mapping[str, str] = {"Anthropic's API": "api.anthropic.com", "OpenAI's API": "api.openai.com"}

STATUS: Mapping[int, Row] = {
    400: OURS,
    401: KEY,
    402: QUOTA,
    403: FORBIDDEN,
    404: NO_MODEL,
    408: LATE,
    409: BUSY,
    413: TOO_LONG,
    425: BUSY,
    429: SLOW_DOWN,
    431: TOO_LONG,
    499: CUT,
    501: OURS,
    503: OVERLOADED,
    504: LATE,
    529: OVERLOADED,
}
"""Rows by HTTP status. Another 5xx is `server_error`; any other status is a mistake in Replan's request."""


def always(provider: str, row: Row) -> Entry:
    """An entry that makes the fault of `row` from any exception."""
    return lambda error: fault(provider, row, error)


def by_words(rows: Mapping[str, Row], message: object, status: int) -> Row | None:
    """The row whose key is a part of `message`, in any case of letters; None if no key is, or the status is not 400."""
    said = str(message or "").lower() if status == 400 else ""
    return next((row for words, row in rows.items() if words in said), None)


def by_status(provider: str, row: Row | None, error: Exception, status: int) -> Fault:
    """The fault of an error response, made from `row`, or from the HTTP status if `row` is None."""
    if row is None or (row is BROKEN and status >= 500):  # BROKEN says less than a status such as 503
        row = STATUS.get(status) or (BROKEN if status >= 500 else OURS)
    return fault(provider, row, error)


def fault(provider: str, row: Row, error: Exception) -> Fault:
    """The fault that a row describes, with the seconds that the response asks to wait before a retry."""
    # Without the error's message, which may quote keys and prompts.
    code, says = row
    response = getattr(error, "response", None) if QUADRANT[code].is_transient else None
    wait = _wait(response) if isinstance(response, httpx2.Response) else None
    return Fault.of(code, f"{_who(provider, error)} {says}.", retry_after=wait, unsent=is_unsent(error.__cause__))


def server_name(provider: str, host: str | None) -> str:
    """What answers, for messages: the provider, or the model server at `host` if this is not the provider's host."""
    return provider if host in (None, OWN_HOSTS[provider]) else f"the model server at {host}"


def _who(provider: str, error: Exception) -> str:
    request = getattr(error, "request", None)
    name = server_name(provider, request.url.host if isinstance(request, httpx2.Request) else None)
    return name[:1].upper() + name[1:]


def _wait(response: httpx2.Response) -> float | None:
    """Seconds that a response asks to wait, None if it asks for none; `retry-after-ms` wins over `retry-after`."""
    exact = response.headers.get("retry-after-ms", "")
    if exact.strip().isdecimal():
        return min(float(exact) / 1000, 86_400.0)
    return seconds(response.headers.get("retry-after"))
