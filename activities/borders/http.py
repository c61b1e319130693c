"""HTTP (`httpx2`, and `httpcore2` below it): the Fault of each exception and status (RFC 9110, RFC 6585)."""

import email.utils
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import httpcore2
import httpx2
from pydantic import JsonValue
from pydantic_core import from_json

from activities import deadline
from activities.borders.table import Choice, Proof, Row, Table, Verdict, qualified
from workflows.faults import QUADRANT, Code, Quadrant

STATUS: Mapping[int, tuple[Code, str]] = {
    400: (Code.INVALID_INPUT, "the request is wrong, change the arguments"),
    401: (Code.UNAUTHORIZED, "the credentials are not accepted, fix the key"),
    402: (Code.QUOTA_EXHAUSTED, "it has to be paid first"),
    403: (Code.FORBIDDEN, "it is forbidden, ask for the permission"),
    404: (Code.NOT_FOUND, "there is no such thing, look for it under another name"),
    405: (Code.MALFORMED_SCHEMA, "the method is not supported, fix the tool"),
    406: (Code.MALFORMED_SCHEMA, "the requested format is not supported, fix the tool"),
    407: (Code.UNAUTHORIZED, "the proxy does not accept the credentials, fix them"),
    408: (Code.TIMEOUT, "the request did not arrive in time"),
    409: (Code.CONFLICT, "it contradicts the current state, observe that and choose again"),
    410: (Code.GONE, "it is gone for good, do without it"),
    411: (Code.MALFORMED_SCHEMA, "the request needs a length, fix the tool"),
    412: (Code.PRECONDITION_FAILED, "it has changed since it was read, observe it and choose again"),
    413: (Code.INVALID_INPUT, "the request is too large, send less"),
    414: (Code.INVALID_INPUT, "the address is too long, ask for less"),
    415: (Code.MALFORMED_SCHEMA, "the media type is not supported, fix the tool"),
    422: (Code.INVALID_INPUT, "the values cannot be processed, change the arguments"),
    423: (Code.BUSY, "it is locked"),
    425: (Code.BUSY, "it is too early"),
    426: (Code.MALFORMED_SCHEMA, "another protocol is required, fix the tool"),
    428: (Code.PRECONDITION_FAILED, "the version to change is required, read it first"),
    429: (Code.RATE_LIMITED, "there were too many requests"),
    431: (Code.INVALID_INPUT, "the headers are too large, send less"),
    451: (Code.FORBIDDEN, "it may not be shown for legal reasons"),
    501: (Code.MALFORMED_SCHEMA, "the method is not implemented, fix the tool"),
    505: (Code.MALFORMED_SCHEMA, "the HTTP version is not supported, fix the tool"),
    529: (Code.OVERLOADED, "the service is overloaded"),
}
"""By HTTP status, the code of the Fault and a part of its reason; for any other status, `_by_class` decides."""

MAX_BODY = 4 * 1024
"""The most bytes of a rejection's body that a fault keeps as `observed`; a longer body is left out."""


def by_status(status: int) -> Row:
    """The row of an HTTP status, whose reason is the end of a sentence."""
    code, meaning = STATUS.get(status) or _by_class(status)
    return Row(code, f"{meaning}.", Proof.REFUSED if 400 <= status < 500 else Proof.UNKNOWN)


def _status(error: httpx2.HTTPStatusError) -> Verdict:
    status, request = error.response.status_code, error.request
    row = by_status(status)
    observed = _body(error.response) if QUADRANT[row.code] is Quadrant.PERSISTENT_SEMANTIC else None
    wait = seconds(error.response.headers.get("retry-after")) if QUADRANT[row.code].is_transient else None
    # Without the path: that of a webhook is a secret.
    reason = f"{request.method} {request.url.host} returned {status}: {row.reason}"
    verdict = row.verdict(reason=reason, observed=observed, retry_after=wait)
    return replace(verdict, requests=deadline.counted(request.method))


def _by_class(status: int) -> tuple[Code, str]:
    if 400 <= status < 500:
        return Code.REFUSED, "the request was rejected, choose again"
    if status >= 500:
        return Code.SERVER_ERROR, "the service failed"
    return Code.UNEXPECTED_RESULT, "this is no result, follow or avoid the redirect"


def seconds(retry_after: str | None) -> float | None:
    """Seconds that a Retry-After header (a number or an HTTP date) asks to wait; None if it is missing or invalid."""
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
    """The JSON body of a rejection, which often says what would be accepted; None if it is too long or no JSON."""
    # The standard library's reader accepts NaN and lone surrogates, which no history can hold, and overflows the stack
    # on a thousand brackets.
    try:
        if len(response.content) > MAX_BODY:
            return None
        body: JsonValue = from_json(response.content, allow_inf_nan=False)
    except (ValueError, httpx2.StreamError):
        return None
    return body


_BUG = Row(Code.BUG, "The tool uses its HTTP client wrongly: fix the tool.", Proof.UNKNOWN)


def _cut(reason: str, proves: Proof = Proof.UNKNOWN) -> Row:
    return Row(Code.UNREACHABLE, reason, proves)


_HTTPX: Table = {
    "HTTPStatusError": Choice("its HTTP status", {str(status): by_status(status) for status in STATUS}, _status),
    "HTTPError": _cut("The HTTP request failed."),
    "TimeoutException": Row(Code.TIMEOUT, "The HTTP request took too long.", Proof.UNKNOWN),
    "ConnectTimeout": _cut("No connection was made in time; nothing was sent.", Proof.NOT_SENT),
    "PoolTimeout": Row(Code.BUSY, "All connections of the worker are in use; nothing was sent.", Proof.NOT_SENT),
    "ConnectError": _cut("No connection could be made; nothing was sent.", Proof.NOT_SENT),
    "NetworkError": _cut("The connection broke."),
    "ProxyError": _cut("The proxy did not let the request through."),
    "RemoteProtocolError": _cut("The server closed the connection, or did not speak HTTP."),
    "LocalProtocolError": _BUG,
    "UnsupportedProtocol": Row(Code.INVALID_INPUT, "The address must begin with http:// or https://.", Proof.NOT_SENT),
    "InvalidURL": Row(Code.INVALID_INPUT, "This is no URL: give a complete one.", Proof.NOT_SENT),
    "TooManyRedirects": Row(Code.UNEXPECTED_RESULT, "The address redirects without end: use another.", Proof.UNKNOWN),
    "DecodingError": Row(Code.UNEXPECTED_RESULT, "The response cannot be decoded.", Proof.UNKNOWN),
    "SSEError": Row(Code.UNEXPECTED_RESULT, "The response is no event stream.", Proof.UNKNOWN),
    "StreamError": _BUG,
    "CookieConflict": _BUG,
}

TABLE: Table = {
    **{f"httpx2.{name}": entry for name, entry in _HTTPX.items()},
    **{f"httpcore2.{name}": entry for name, entry in _HTTPX.items() if hasattr(httpcore2, name)},
    "httpcore2.ProtocolError": _HTTPX["RemoteProtocolError"],
    "httpcore2.ConnectionNotAvailable": _HTTPX["PoolTimeout"],
}
"""Entries for `httpx2`, and for `httpcore2`, which the tools' `Web` uses directly: equal names have equal entries."""


def is_unsent(error: BaseException | None) -> bool:
    """Whether an exception of `httpx2` or `httpcore2` proves that its request was not sent."""
    entry = next((TABLE[name] for name in map(qualified, type(error).__mro__) if name in TABLE), None)
    return isinstance(entry, Row) and entry.proves is Proof.NOT_SENT
