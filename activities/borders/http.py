"""HTTP (`httpx2` and `httpcore2` below it): exceptions, and what a status means to a tool (RFC 9110, RFC 6585)."""

import email.utils
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime

import httpcore2
import httpx2
from pydantic import JsonValue
from pydantic_core import from_json

from activities.borders.table import Entry, Table, always
from workflows.faults import QUADRANT, Code, Fault, Quadrant

STATUS: Mapping[int, tuple[Code, str]] = {
    400: (Code.INVALID_INPUT, "says that the request is wrong (400): change the arguments"),
    401: (Code.UNAUTHORIZED, "does not accept our credentials (401): mend the key"),
    402: (Code.QUOTA_EXHAUSTED, "wants to be paid first (402)"),
    403: (Code.FORBIDDEN, "forbids it to us (403): ask for the permission"),
    404: (Code.NOT_FOUND, "has no such thing (404): look for it under another name"),
    405: (Code.MALFORMED_SCHEMA, "does not know this method (405): mend the tool"),
    406: (Code.MALFORMED_SCHEMA, "cannot answer in the form that was asked for (406): mend the tool"),
    407: (Code.UNAUTHORIZED, "is behind a proxy that does not accept us (407): mend its credentials"),
    408: (Code.TIMEOUT, "gave up waiting for the request (408)"),
    409: (Code.CONFLICT, "refused it because of what is there now (409): look again and choose anew"),
    410: (Code.GONE, "says that it is gone for good (410): do without it"),
    411: (Code.MALFORMED_SCHEMA, "wants a length (411): mend the tool"),
    412: (Code.PRECONDITION_FAILED, "has changed since it was read (412): look again and choose anew"),
    413: (Code.INVALID_INPUT, "finds the request too large (413): send less"),
    414: (Code.INVALID_INPUT, "finds the address too long (414): ask for less"),
    415: (Code.MALFORMED_SCHEMA, "does not know this media type (415): mend the tool"),
    422: (Code.INVALID_INPUT, "cannot work with these values (422): change the arguments"),
    423: (Code.BUSY, "is locked by somebody else (423)"),
    425: (Code.BUSY, "does not want it yet (425)"),
    426: (Code.MALFORMED_SCHEMA, "wants another protocol (426): mend the tool"),
    428: (Code.PRECONDITION_FAILED, "wants to know which version is changed (428): read it first"),
    429: (Code.RATE_LIMITED, "wants fewer requests (429)"),
    431: (Code.INVALID_INPUT, "finds the headers too large (431): send less"),
    451: (Code.FORBIDDEN, "may not show it for legal reasons (451)"),
    501: (Code.MALFORMED_SCHEMA, "does not implement it (501): mend the tool"),
    505: (Code.MALFORMED_SCHEMA, "wants another HTTP version (505): mend the tool"),
    529: (Code.OVERLOADED, "is overloaded (529)"),
}
"""What a status means; other 4xx are `refused`, other 5xx `server_error`, 3xx `unexpected_result`."""

MAX_BODY = 4 * 1024
"""Bytes of a refusal's body that are kept as what was observed."""


def _status(error: httpx2.HTTPStatusError) -> Fault:
    status, host = error.response.status_code, error.request.url.host
    code, says = STATUS.get(status) or _by_class(status)
    transient = QUADRANT[code].is_transient
    observed = _body(error.response) if QUADRANT[code] is Quadrant.PERSISTENT_SEMANTIC else None
    retry_after = seconds(error.response.headers.get("retry-after")) if transient else None
    return Fault.of(code, f"{host} {says}.", observed=observed, retry_after=retry_after)


def _by_class(status: int) -> tuple[Code, str]:
    if 400 <= status < 500:
        return Code.REFUSED, f"refused it ({status}): choose anew"
    if status >= 500:
        return Code.SERVER_ERROR, f"had an error of its own ({status})"
    return Code.UNEXPECTED_RESULT, f"answered {status}, which is no result: follow or avoid the redirect"


def seconds(retry_after: str | None) -> float | None:
    """Read a Retry-After header: seconds, or an HTTP date; None when there is none or it cannot be read."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after) if math.isfinite(float(retry_after)) else None
    try:
        when = email.utils.parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _body(response: httpx2.Response) -> JsonValue:
    """A refusal's JSON body, which often says what would be possible; None when it is long or something else.

    Strict JSON of bounded depth: the standard library's reader takes NaN and half characters, which histories do not,
    and overflows the stack on a thousand brackets.
    """
    try:
        if len(response.content) > MAX_BODY:
            return None
        body: JsonValue = from_json(response.content, allow_inf_nan=False)
    except (ValueError, httpx2.StreamError):
        return None
    return body


def _cut(reason: str) -> Entry:
    return always(Code.UNREACHABLE, reason)


_BUG = "The tool uses its HTTP client wrongly: mend the tool."

_HTTPX: Table = {
    httpx2.HTTPStatusError: _status,
    httpx2.HTTPError: _cut("The HTTP request failed on its way."),
    httpx2.TimeoutException: always(Code.TIMEOUT, "The HTTP request took too long."),
    httpx2.ConnectTimeout: _cut("No connection was made in time; nothing was sent."),
    httpx2.PoolTimeout: always(Code.BUSY, "All connections of the worker are in use; nothing was sent."),
    httpx2.ConnectError: _cut("No connection could be made; nothing was sent."),
    httpx2.NetworkError: _cut("The connection broke."),
    httpx2.ProxyError: _cut("The proxy did not let the request through."),
    httpx2.RemoteProtocolError: _cut("The server broke off or did not speak HTTP."),
    httpx2.LocalProtocolError: always(Code.BUG, _BUG),
    httpx2.UnsupportedProtocol: always(Code.INVALID_INPUT, "The address must begin with http:// or https://."),
    httpx2.InvalidURL: always(Code.INVALID_INPUT, "This is no address: give a whole URL."),
    httpx2.TooManyRedirects: always(Code.UNEXPECTED_RESULT, "The address redirects without end: use another."),
    httpx2.DecodingError: always(Code.UNEXPECTED_RESULT, "The answer's encoding is broken."),
    json.JSONDecodeError: always(Code.UNEXPECTED_RESULT, "What came back is no JSON."),
    httpx2.SSEError: always(Code.UNEXPECTED_RESULT, "The answer is no event stream."),
    httpx2.StreamError: always(Code.BUG, _BUG),
    httpx2.CookieConflict: always(Code.BUG, _BUG),
}

TABLE: Table = {
    **_HTTPX,
    **{getattr(httpcore2, name): entry for one, entry in _HTTPX.items() if hasattr(httpcore2, name := one.__name__)},
    httpcore2.ProtocolError: _HTTPX[httpx2.RemoteProtocolError],
    httpcore2.ConnectionNotAvailable: _HTTPX[httpx2.PoolTimeout],
}
"""An exception of `httpcore2`, which `Web` uses without `httpx2`, means what its namesake does."""

_NOTHING_SENT = (
    *(httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol, httpx2.InvalidURL),
    *(httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.PoolTimeout, httpcore2.UnsupportedProtocol),
)


def had_no_effect(error: BaseException) -> bool:
    """Whether an exception proves that the request changed nothing: it was not sent, or the server refused it (4xx)."""
    if isinstance(error, httpx2.HTTPStatusError):
        return 400 <= error.response.status_code < 500
    return is_unsent(error)


def is_unsent(error: BaseException | None) -> bool:
    """Whether an exception proves that the request never left."""
    return isinstance(error, _NOTHING_SENT)
