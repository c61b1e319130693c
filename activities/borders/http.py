"""HTTP: the verdict on each exception and status of its clients (RFC 9110, RFC 6585, RFC 4918, RFC 9457).

The clients are httpx2 and httpx, httpcore2 and httpcore below them, requests, urllib3, aiohttp, urllib and http.client.
The exceptions of ssl are here, too.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from activities import sends
from activities.borders.table import (
    Cases,
    Proof,
    Row,
    Table,
    Verdict,
    as_words,
    attribute,
    carried,
    class_names,
    frames,
    of_module,
)
from activities.borders.waits import wait_of
from activities.errors import bounded
from workflows.faults.fault import Code, Quadrant
from workflows.text import stream_safe

STATUS: Mapping[int, tuple[Code, str]] = {
    400: (Code.INVALID_INPUT, "the request is wrong, change the arguments"),
    401: (Code.UNAUTHORIZED, "the credentials are not accepted, fix the key"),
    # A declined card as often as an unpaid bill: the body says which, and a person or a planner can act on both.
    402: (Code.REFUSED, "the payment was declined, or has to be made first: pay in another way, or do without it"),
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
    416: (Code.INVALID_INPUT, "the requested range does not exist, ask for another"),
    417: (Code.MALFORMED_SCHEMA, "the header `expect` is not supported, fix the tool"),
    # RFC 9110, section 15.5.20: the same request may be sent again over another connection.
    421: (Code.UNREACHABLE, "the request reached a server that does not answer for this host"),
    422: (Code.INVALID_INPUT, "the values cannot be processed, change the arguments"),
    423: (Code.BUSY, "it is locked"),
    424: (Code.CONFLICT, "another action failed that it depends on, observe the state and choose again"),
    425: (Code.BUSY, "it is too early"),
    426: (Code.MALFORMED_SCHEMA, "another protocol is required, fix the tool"),
    428: (Code.PRECONDITION_FAILED, "the version to change is required, read it first"),
    429: (Code.RATE_LIMITED, "there were too many requests"),
    431: (Code.INVALID_INPUT, "the headers are too large, send less"),
    451: (Code.FORBIDDEN, "it may not be shown for legal reasons"),
    499: (Code.UNREACHABLE, "the call was cancelled before it was answered"),
    500: (Code.SERVER_ERROR, "the service failed"),
    501: (Code.MALFORMED_SCHEMA, "the method is not implemented, fix the tool"),
    502: (Code.SERVER_ERROR, "the service behind the gateway failed"),
    503: (Code.SERVER_ERROR, "the service is not available at the moment"),
    504: (Code.SERVER_ERROR, "the service did not answer its gateway in time"),
    505: (Code.MALFORMED_SCHEMA, "the HTTP version is not supported, fix the tool"),
    # RFC 4918, section 11.5: it must not be repeated before a person asks for it.
    507: (Code.QUOTA_EXHAUSTED, "the service has no room left, make room"),
    508: (Code.NEEDS_PERSON, "the service found a loop in what was asked for, repair it there"),
    510: (Code.MALFORMED_SCHEMA, "the request lacks an extension that the service demands, fix the tool"),
    511: (Code.UNAUTHORIZED, "the network of the worker asks for a login, log in there"),
    529: (Code.OVERLOADED, "the service is overloaded"),
}
"""By HTTP status, the code of the Fault and a part of its reason; for any other status, `_by_status_class` decides."""

DOWN = 503
"""The status with which a service says that it takes no requests for now, whatever they ask for."""

MAX_BODY = 4 * 1024
"""The most bytes of a rejection's body that a fault keeps as `observed`; a longer body is left out."""


MAX_WORDS_BODY = 64 * 1024
"""The most bytes of a body in which a message is looked for."""
MAX_MESSAGE_DEPTH, MAX_MESSAGES = 5, 3
"""How deep in a body a message is looked for, and how many messages of a list are read."""


def by_status(status: int) -> Row:
    """The row of an HTTP status."""
    code, meaning = STATUS.get(status) or _by_status_class(status)
    # A 5xx may come from a gateway whose server goes on, and a 303 answers a POST that was carried out. 499 is none of
    # RFC 9110: proxies, and Google for gRPC's CANCELLED, say by it that somebody did not wait for the answer.
    proves = Proof.REFUSED if 400 <= status < 499 else Proof.UNKNOWN
    return Row(code, f"The service returned {status}: {meaning}.", proves, says_down=status == DOWN)


def _by_status_class(status: int) -> tuple[Code, str]:
    if 400 <= status < 500:
        return Code.REFUSED, "the request was rejected, choose again"
    if status >= 500:
        return Code.SERVER_ERROR, "the service failed"
    if 300 <= status < 400:
        return Code.UNEXPECTED_RESULT, "this is no result, follow or avoid the redirect"
    return Code.UNEXPECTED_RESULT, "the response is not what the tool expects"


def is_unsent(error: BaseException | None) -> bool:
    """Whether an exception of an HTTP client proves that its request was not sent."""
    entry = next((TABLE[name] for name in class_names(type(error)) if name in TABLE), None)
    return error is not None and entry is not None and entry(error).proves is Proof.NOT_SENT


# What an exception carries. Any attribute may be missing or of another type: a tool may have made the exception.


def _first(*values: Any) -> Any:
    """The first value that is not None; not by truth, since a response of requests is false if it reports an error."""
    return next((value for value in values if value is not None), None)


def _is_a(error: BaseException, *classes: str) -> bool:
    return any(name in classes for name in class_names(type(error)))


# Whether the request was sent.

_CONNECTING = (
    "builtins.ConnectionRefusedError",
    "socket.gaierror",
    "urllib3.exceptions.ConnectTimeoutError",  # also the parent of NewConnectionError and NameResolutionError
)
"""Exceptions that are raised only while a client connects."""
_CONNECTS = frozenset(
    ["connect", "create_connection", "create_default_context", "getaddrinfo", "start_tls", "wrap_socket", "_tunnel"]
)
"""Functions of `_WIRE` that connect, and send no part of the request."""
_WIRE = frozenset({"asyncio", "http", "socket", "ssl", "urllib", "urllib3"})

_EARLIER: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], Any]] = {
    ("httpx._client", "_send_handling_redirects"): lambda local: local.get("history"),
    ("httpx2._client", "_send_handling_redirects"): lambda local: local.get("history"),
    ("requests.sessions", "resolve_redirects"): lambda local: local.get("hist"),
    ("aiohttp.client", "_request"): lambda local: local.get("history"),
    ("urllib3.connectionpool", "urlopen"): lambda local: attribute(local.get("retries"), "history"),
    ("urllib.request", "http_error_302"): lambda local: [local.get("fp")],
}
"""The functions that may send several requests, and which of their variables holds the earlier requests.

Nothing else shows earlier requests: the exception of a redirected or repeated request has that request only. The
functions are private: tests/activities/libraries/test_http.py fails if the installed version of a client changed one.
"""


def _was_connecting(error: BaseException) -> bool:
    """Whether an exception was raised before its client had a connection."""
    functions = [frame.f_code.co_name for _, frame in frames(error, *_WIRE)]
    return _is_a(error, *_CONNECTING) or any(name in _CONNECTS or "handshake" in name for name in functions)


def _earlier_requests(error: BaseException, *histories: object) -> list[list[Any] | tuple[Any, ...]]:
    """Lists of the requests that the client sent before the one of `error`: those in its frames, and `histories`.

    A client sends several requests if it follows a redirect, or repeats a request by itself.
    """
    noted = [
        read(frame.f_locals)
        for exception in [error, *carried(error)]
        for module, frame in frames(exception)
        if (read := _EARLIER.get((module, frame.f_code.co_name)))
    ]
    return [some for some in (*noted, *histories) if isinstance(some, list | tuple)]


def _was_preceded(error: BaseException, *histories: object) -> bool:
    """Whether an earlier request of the same call may have had an effect; `histories` are those of the response."""
    return any(_may_have_changed(request) for some in _earlier_requests(error, *histories) for request in some)


def _may_have_changed(earlier: object) -> bool:
    """Whether an earlier request, given by its response or by urllib3's note of it, may have had an effect."""
    status, method = _first(attribute(earlier, "status_code"), attribute(earlier, "status")), _method(earlier)
    # urllib3 notes a GET, the method of the next request, for a POST that was answered by 303.
    if status != 303 and isinstance(method, str) and not sends.may_change(method):
        return False
    if isinstance(status, int):
        # 307 and 308 ask to send the same request elsewhere.
        return not (400 <= status < 500 or status in (307, 308))
    failed = attribute(earlier, "error")
    return not (isinstance(failed, BaseException) and any(map(_was_connecting, [failed, *carried(failed)])))


def _method(request: object) -> object:
    return _first(attribute(request, "method"), attribute(request, "request", "method"), attribute(request, "_method"))


def _if_alone(row: Row, error: BaseException) -> Verdict:
    """The verdict of a row, which proves nothing if an earlier request of the same call may have had an effect."""
    return (_after_earlier_request(row) if _was_preceded(error) else row).verdict()


def _after_earlier_request(row: Row) -> Row:
    """`row`, changed to prove nothing, for a call with an earlier request that may have had an effect."""
    reason = f"{row.reason[:-1]}, but an earlier request of the same call may have had an effect."
    return replace(row, reason=reason, proves=Proof.UNKNOWN)


def _unsent_entry(code: Code, reason: str) -> Cases:
    """An entry for an exception that is raised before the request is sent."""
    row = _unsent_row(code, reason)
    after = _after_earlier_request(row)
    by = "what the same call had sent before, as for a redirect"
    return Cases(by, {"nothing": row, "something": after}, lambda error: _if_alone(row, error), otherwise=after)


def _unsent_row(code: Code, reason: str) -> Row:
    return Row(code, f"{reason[:-1]}; the request was not sent.", Proof.NOT_SENT)


_UNREACHED = _unsent_row(Code.UNREACHABLE, "No connection could be made.")
# Neither a retry nor another plan gets a better certificate, and only a person may decide to trust it.
_UNTRUSTED = _unsent_row(
    Code.NEEDS_PERSON,
    "The worker does not accept the server's certificate: renew it, or let the worker trust its issuer.",
)
_CERTIFICATE = (
    "ssl.SSLCertVerificationError",
    "urllib3.util.ssl_match_hostname.CertificateError",
    "aiohttp.client_exceptions.ServerFingerprintMismatch",
)
_TLS = ("ssl.SSLError", "urllib3.exceptions.SSLError", "requests.exceptions.SSLError")
_BROKEN = Row(Code.UNREACHABLE, "The connection broke.", Proof.UNKNOWN)
_SILENT = Row(Code.TIMEOUT, "The HTTP request took too long.", Proof.UNKNOWN)
_FAILING = Row(Code.SERVER_ERROR, "The service failed several times.", Proof.UNKNOWN)


def _connection(error: BaseException) -> Verdict:
    """The verdict on an exception of which only the wrapped exceptions show whether there was a connection."""
    inner = [error, *carried(error)]
    if any(_is_a(exception, *_CERTIFICATE) for exception in inner):
        return _if_alone(_UNTRUSTED, error)
    if any(map(_was_connecting, inner)):
        return _if_alone(_UNREACHED, error)
    # OpenSSL raises one class in the handshake, before the request is sent, and later, while it sends or receives.
    # Without a traceback, as from another process, it is taken for one of the handshake, where nearly all arise.
    is_traced = any(True for exception in inner for _ in frames(exception, *_WIRE))
    if not is_traced and any(_is_a(exception, *_TLS) for exception in inner):
        return _if_alone(_UNREACHED, error)
    if any(_is_a(exception, "urllib3.exceptions.ResponseError") for exception in inner):
        return (_ENDLESS if any(map(_was_redirected, inner)) else _FAILING).verdict()
    if any(_is_a(exception, "builtins.TimeoutError", "urllib3.exceptions.TimeoutError") for exception in inner):
        return _SILENT.verdict()
    return _BROKEN.verdict()


def _was_redirected(error: BaseException) -> bool:
    """Whether urllib3 gave up on a redirect; after too many failures it raises the same exception."""
    sent = [frame for _, frame in frames(error, "urllib3") if frame.f_code.co_name == "urlopen"]
    return bool(sent and sent[-1].f_locals.get("redirect_location"))


def _no_connection(error: BaseException) -> Verdict:
    """The verdict on an exception that is raised only while a client connects."""
    is_untrusted = any(_is_a(exception, *_CERTIFICATE) for exception in [error, *carried(error)])
    return _if_alone(_UNTRUSTED if is_untrusted else _UNREACHED, error)


def _url_error(error: BaseException) -> Verdict:
    """The verdict on urllib's URLError, whose reason is an exception, or a text if the address cannot be opened."""
    inner = [error, *carried(error)]
    is_text = len(inner) == 1 and isinstance(attribute(error, "reason"), str)
    return _if_alone(_NO_ADDRESS, error) if is_text else _connection(error)


# What the response says.


def _status(error: BaseException) -> Verdict:
    """The verdict on an exception that has a `response`, or has a response's attributes itself (aiohttp, urllib)."""
    # aiohttp reports a response that is not HTTP as a status 400 of its own.
    if any(_is_a(exception, "aiohttp.http_exceptions.HttpProcessingError") for exception in [error, *carried(error)]):
        return _GARBLED.verdict()
    response = _first(attribute(error, "response"), error)
    status = _first(attribute(response, "status_code"), attribute(response, "status"))
    if not isinstance(status, int) or isinstance(status, bool):
        return _unexpected_result("The service did not accept the request, and its HTTP status is not known.").verdict()
    verdict, method = by_answer(error, status), _method_and_service(error, response)[0]
    known = attribute(response, "history"), attribute(response, "raw", "retries", "history")
    if _was_preceded(error, *known):
        return replace(verdict, proves=Proof.UNKNOWN)
    refused = [
        sum(sends.may_change(str(_method(request))) for request in some) for some in _earlier_requests(error, *known)
    ]
    return replace(verdict, requests=sends.may_change(method) + max(refused, default=0) if method else None)


def by_answer(error: BaseException, status: int) -> Verdict:
    """The verdict on an answer with this status and with the data that `error` carries; it ignores earlier requests."""
    return with_answer(by_status(status).verdict(), error)


def with_answer(verdict: Verdict, error: BaseException) -> Verdict:
    """The verdict with what the answer that `error` carries adds: the name of the service, its body, and a wait."""
    fault, response = verdict.fault, _first(attribute(error, "response"), error)
    headers = attribute(response, "headers"), attribute(error, "headers")
    found: dict[str, Any] = {"reason": fault.reason.replace("The service", _method_and_service(error, response)[1], 1)}
    if fault.quadrant is Quadrant.PERSISTENT_SEMANTIC:
        found["observed"] = _first(_body(response), fault.observed)
    if fault.quadrant.is_transient:
        found["retry_after"] = bounded(_first(fault.retry_after, *map(wait_of, headers)))
    return replace(verdict, fault=fault.model_copy(update=found), words=_words(error, response) or verdict.words)


def _method_and_service(error: BaseException, response: object) -> tuple[str, str]:
    """The method of a request, and its method and host for people; "" and `The service` if they are not known."""
    request = _first(attribute(error, "request"), attribute(response, "request"), attribute(error, "request_info"))
    found_method = _first(attribute(request, "method"), attribute(error, "fp", "_method"))
    method = found_method if isinstance(found_method, str) and re.fullmatch("[A-Za-z]{1,20}", found_method) else ""
    # Without the path: that of a webhook is a secret.
    url = _first(attribute(request, "url"), attribute(error, "url"))
    try:
        host = urlsplit(stream_safe(url)).hostname if isinstance(url, str) else attribute(url, "host")
    except ValueError:
        host = None
    # A server may redirect to a host whose name is a sentence.
    is_host = isinstance(host, str) and re.fullmatch(r"[\w.:-]{1,253}", host)
    return method, f"{method} {host}".strip() if is_host else "The service"


def _body(response: object) -> JsonValue:
    """The JSON body of a rejection, e.g. a problem of RFC 9457, which often says what would be accepted.

    None if it is too long, or no JSON, or was not read: nothing is received from the server here.
    """
    # Of httpx, httpx2 and requests; their `content` may wait for the server, as may `read` of urllib's HTTPError.
    content = attribute(response, "_content")
    if not isinstance(content, bytes) or len(content) > MAX_BODY:
        return None
    # The standard library's reader accepts NaN and lone surrogates, which no history can hold, and overflows the stack
    # on a thousand brackets.
    try:
        body: JsonValue = from_json(content, allow_inf_nan=False)
    except ValueError:
        return None
    return body


_MESSAGES = (
    *("detail", "message", "errormessage", "error_message", "error_description", "error", "errors", "description"),
    *("details", "reason", "refusalreason", "title", "msg", "text"),
)
"""The names that JSON answers give to their message (RFC 9457, RFC 6749 and usual ones), the best first, in small
letters."""


def _words(error: BaseException, response: object) -> str:
    """The message in the body of an answer, as far as the exception holds the body; empty if there is none."""
    # Beside the responses of `_body`: exceptions of generated clients, which keep the body themselves.
    body = _first(attribute(response, "_content"), attribute(error, "body"), attribute(error, "data"))
    if not isinstance(body, bytes | str):
        return message_in(body)
    if len(body) > MAX_WORDS_BODY:
        return ""
    try:
        return message_in(from_json(body, allow_inf_nan=False))
    except ValueError:
        return as_words(body)


def message_in(body: object) -> str:
    """The message in the JSON of an answer, or the whole JSON if it has none; empty for an empty answer."""
    if not isinstance(body, dict | list | str) or not body:
        return ""
    return _message(body, MAX_MESSAGE_DEPTH) or as_words(to_json(body, fallback=lambda _: None).decode())


def _message(value: object, depth: int) -> str:
    if isinstance(value, str) or depth == 0:
        return as_words(value)
    if isinstance(value, list):
        return "; ".join(filter(None, (_message(item, depth - 1) for item in value[:MAX_MESSAGES])))
    if not isinstance(value, dict):
        return ""
    named = {name.lower(): item for name, item in value.items() if isinstance(name, str)}
    return next(filter(None, (_message(named.get(name), depth - 1) for name in _MESSAGES)), "")


def _by_proxy(error: BaseException) -> Verdict:
    return _if_alone(_BY_PROXY.get(str(attribute(error, "status")), _NO_TUNNEL), error)


def _header(error: BaseException) -> Verdict:
    """The verdict on an invalid header: of the response if urllib3 raised the error, else of the request."""
    is_of_response = any(_is_a(exception, "urllib3.exceptions.InvalidHeader") for exception in [error, *carried(error)])
    return _GARBLED.verdict() if is_of_response else _if_alone(_WRONG_HEADER, error)


def _payload(error: BaseException) -> Verdict | None:
    """The verdict on a response that arrived whole and cannot be decoded; None if the response broke off."""
    is_complete = any(_is_a(exception, "aiohttp.http_exceptions.ContentEncodingError") for exception in carried(error))
    return _UNDECODABLE.verdict() if is_complete else None


def _unexpected_result(reason: str) -> Row:
    return Row(Code.UNEXPECTED_RESULT, reason, Proof.UNKNOWN)


_BUG = Row(Code.BUG, "The tool uses its HTTP client wrongly: fix the tool.", Proof.UNKNOWN)
_SERVER = Row(
    Code.BUG,
    "The tool raises an exception that aiohttp has for servers: raise Refused, Busy, Unreachable or NeedsPerson.",
    Proof.UNKNOWN,
)
_FAILED = Row(Code.UNREACHABLE, "The HTTP request failed.", Proof.UNKNOWN)
_GARBLED = Row(Code.UNREACHABLE, "The server closed the connection, or did not speak HTTP.", Proof.UNKNOWN)
_ENDLESS = _unexpected_result("The address redirects without end: use another.")
_REDIRECT = _unexpected_result("The address redirects to one that is no HTTP address: use another.")
_UNDECODABLE = _unexpected_result("The response cannot be decoded.")
_NO_MESSAGE = _unexpected_result("The message of the WebSocket has another type than the tool expects.")
_NO_ADDRESS = _unsent_row(Code.INVALID_INPUT, "This address cannot be opened: give a complete one.")
_WRONG_HEADER = _unsent_row(Code.INVALID_INPUT, "HTTP does not allow a header of the request: change the arguments.")
_NO_TUNNEL = _unsent_row(Code.UNREACHABLE, "The proxy did not let the request through.")
_NO_PROXY_LOGIN = _unsent_row(Code.UNAUTHORIZED, "The proxy does not accept the credentials: fix them.")
_BY_PROXY: Mapping[str, Row] = {
    "401": _NO_PROXY_LOGIN,
    "403": _unsent_row(Code.FORBIDDEN, "The proxy forbids this host: ask for the permission."),
    "407": _NO_PROXY_LOGIN,
}

_BY_STATUS = Cases(
    "its HTTP status",
    {
        **{str(status): by_status(status) for status in STATUS},
        **{
            name: replace(by_status(status), reason=f"The service returned {name}: {_by_status_class(status)[1]}.")
            for name, status in {"another 4xx": 498, "another 5xx": 599, "a 3xx": 399, "another status": 299}.items()
        },
    },
    _status,
    otherwise=by_status(599),
)
_CONNECTION = Cases(
    "the exception that it wraps, and where that was raised",
    {
        "while connecting": _UNREACHED,
        "certificate not accepted": _UNTRUSTED,
        "too many failures": _FAILING,
        "too many redirects": _ENDLESS,
        "timeout": _SILENT,
    },
    _connection,
    otherwise=_BROKEN,
)
_NO_CONNECTION = Cases(
    "the exception that it wraps", {"certificate not accepted": _UNTRUSTED}, _no_connection, otherwise=_UNREACHED
)
_LATE_CONNECTION = _unsent_entry(Code.UNREACHABLE, "No connection was made in time.")
_FULL_POOL = _unsent_entry(Code.BUSY, "All connections of the worker are in use.")
_NO_URL = _unsent_entry(Code.INVALID_INPUT, "This is no URL: give a complete one.")
_SCHEME = _unsent_entry(Code.INVALID_INPUT, "The address must begin with http:// or https://.")
_WRONG_PROXY = _unsent_entry(
    Code.NEEDS_PERSON, "The address of the proxy is wrong: correct the settings of the worker."
)
_URL_ERROR = Cases(
    "its reason: an exception, or a text", {**_CONNECTION.rows, "text": _NO_ADDRESS}, _url_error, otherwise=_BROKEN
)
_HEADER = Cases("whose header it is", {"the request's": _WRONG_HEADER}, _header, otherwise=_GARBLED)

_SHARED = (
    (_SILENT, "TimeoutException"),
    (_LATE_CONNECTION, "ConnectTimeout"),
    (_FULL_POOL, "PoolTimeout"),
    (_BROKEN, "NetworkError"),
    (_NO_CONNECTION, "ConnectError"),
    # It is raised only while a tunnel is opened, and the request comes after that.
    (_unsent_entry(Code.UNREACHABLE, "The proxy did not let the request through."), "ProxyError"),
    (_GARBLED, "ProtocolError"),
    (_BUG, "LocalProtocolError"),
    (_SCHEME, "UnsupportedProtocol"),
)
_HTTPCORE = (*_SHARED, (_FULL_POOL, "ConnectionNotAvailable"))
_HTTPX = (
    *_SHARED,
    (_BY_STATUS, "HTTPStatusError"),
    (_FAILED, "HTTPError"),
    (_NO_URL, "InvalidURL"),
    (_ENDLESS, "TooManyRedirects"),
    (_UNDECODABLE, "DecodingError"),
    (_BUG, "StreamError CookieConflict"),
)

TABLE: Table = {
    "urllib.error.HTTPError": _BY_STATUS,
    "urllib.error.URLError": _URL_ERROR,
    "urllib.error.ContentTooShortError": _BROKEN,
    **of_module(
        "http",
        (_GARBLED, "client.HTTPException"),
        (_BROKEN, "client.IncompleteRead"),
        (_GARBLED, "client.RemoteDisconnected"),  # also a ConnectionResetError
        (_NO_URL, "client.InvalidURL"),
        (_BUG, "client.NotConnected client.ImproperConnectionState client.UnimplementedFileMode cookies.CookieError"),
        (
            Row(Code.NEEDS_PERSON, "The file of cookies cannot be read: repair or delete it.", Proof.UNKNOWN),
            "cookiejar.LoadError",
        ),
    ),
    **of_module(
        "ssl",
        (_CONNECTION, "SSLError"),
        # A socket that does not block tells its owner to wait, and the tool does not.
        (_BUG, "SSLWantReadError SSLWantWriteError"),
        # The server ends TLS in order, after the handshake.
        (_BROKEN, "SSLZeroReturnError"),
    ),
    **of_module("httpcore", *_HTTPCORE),
    **of_module("httpcore2", *_HTTPCORE),
    **of_module("httpx", *_HTTPX),
    **of_module("httpx2", *_HTTPX, (_unexpected_result("The response is no event stream."), "SSEError")),
    **of_module(
        "httpx2.websockets",
        (_FAILED, "_exceptions.HTTPXWSException"),
        (_BY_STATUS, "_exceptions.WebSocketUpgradeError"),
        (_BROKEN, "_exceptions.WebSocketDisconnect _exceptions.WebSocketNetworkError"),
        (_NO_MESSAGE, "_exceptions.WebSocketInvalidTypeReceived"),
        (_BROKEN, "_api.QueueShutDown _api.EndOfStream _api.ShouldClose"),
        (_BUG, "_transport.ASGIWebSocketTransportError"),
    ),
    **of_module(
        "requests.exceptions",
        (_FAILED, "RequestException"),
        (_BY_STATUS, "HTTPError"),
        # urllib3 forgets that it had reached the proxy when the connection breaks, so ProxyError, too, may come later.
        (_CONNECTION, "ConnectionError SSLError ProxyError"),
        (_LATE_CONNECTION, "ConnectTimeout"),
        (_SILENT, "Timeout"),
        (_BROKEN, "ChunkedEncodingError"),
        (_UNDECODABLE, "ContentDecodingError"),
        (_FAILING, "RetryError"),
        (_ENDLESS, "TooManyRedirects"),
        (_unexpected_result("The response is no JSON."), "JSONDecodeError"),
        (_unsent_entry(Code.BUG, "The tool sends what cannot be written as JSON: fix the tool."), "InvalidJSONError"),
        (_HEADER, "InvalidHeader"),
        (_NO_URL, "URLRequired"),
        (_SCHEME, "MissingSchema InvalidSchema"),
        (_NO_URL, "InvalidURL"),
        (_WRONG_PROXY, "InvalidProxyURL"),
        # A body that can be read once only is read, or has to be sent, again.
        (_BUG, "StreamConsumedError UnrewindableBodyError"),
    ),
    "requests.cookies.CookieConflictError": _BUG,
    **of_module(
        "urllib3.exceptions",
        (_FAILED, "HTTPError"),
        (_CONNECTION, "MaxRetryError SSLError ProxyError ProtocolError"),
        (_NO_CONNECTION, "NewConnectionError"),
        (_LATE_CONNECTION, "ConnectTimeoutError"),
        (_SILENT, "TimeoutError"),
        (_BROKEN, "IncompleteRead"),
        (_GARBLED, "InvalidChunkLength"),
        (_FAILING, "ResponseError"),
        (_UNDECODABLE, "DecodeError"),
        (_GARBLED, "InvalidHeader HeaderParsingError"),
        (_FULL_POOL, "EmptyPoolError"),
        # A connection is given back to a pool that is full: the response is there.
        (Row(Code.BUSY, "All connections of the worker are in use.", Proof.UNKNOWN), "FullPoolError"),
        (_BUG, "ClosedPoolError HostChangedError TimeoutStateError ResponseNotChunked BodyNotHttplibCompatible"),
        (_BUG, "UnrewindableBodyError"),
        (_NO_URL, "LocationValueError"),
        (_SCHEME, "URLSchemeUnknown"),
        (_WRONG_PROXY, "ProxySchemeUnknown ProxySchemeUnsupported"),
    ),
    "urllib3.util.ssl_match_hostname.CertificateError": _NO_CONNECTION,
    **of_module(
        "aiohttp.client_exceptions",
        (_FAILED, "ClientError"),
        (_BY_STATUS, "ClientResponseError"),
        (_ENDLESS, "TooManyRedirects"),
        # The proxy rejects the tunnel, and the request comes after that. Its statuses say nothing of the service.
        (Cases("the HTTP status of the proxy", _BY_PROXY, _by_proxy, otherwise=_NO_TUNNEL), "ClientHttpProxyError"),
        (_BROKEN, "ClientConnectionError"),
        # The connector alone raises the first, for whatever errno, before it has a connection.
        (_NO_CONNECTION, "ClientConnectorError ServerFingerprintMismatch"),
        (_SILENT, "ServerTimeoutError"),
        (_LATE_CONNECTION, "ConnectionTimeoutError"),
        (
            Cases("the exception that it wraps", {"not decoded": _UNDECODABLE}, _payload, otherwise=_BROKEN),
            "ClientPayloadError",
        ),
        (_BROKEN, "UploadAbortedError"),
        (_NO_URL, "InvalidURL"),
        (_SCHEME, "NonHttpUrlClientError"),
        (_REDIRECT, "RedirectClientError InvalidUrlRedirectClientError NonHttpUrlRedirectClientError"),
        (_NO_MESSAGE, "WSMessageTypeError"),
    ),
    **of_module(
        "aiohttp",
        (_GARBLED, "_websocket.models.WebSocketError _websocket.models.WSHandshakeError"),
        (_GARBLED, "http_exceptions.HttpProcessingError"),
        (_UNDECODABLE, "http_exceptions.ContentEncodingError"),
        (_unexpected_result("The response has a line that is too long for the tool."), "http_exceptions.LineTooLong"),
        (_UNDECODABLE, "compression_utils.TooManyMembersError"),
        (_BROKEN, "streams.EofStream"),
        (_BUG, "payload.LookupError"),
        (_SERVER, "web_exceptions.HTTPException web_app.CleanupError web_protocol.PayloadAccessError"),
        (_SERVER, "web_protocol.RequestPayloadError web_runner.GracefulExit"),
    ),
}
"""Entries for all clients; the tools' `Web` uses httpcore2."""
