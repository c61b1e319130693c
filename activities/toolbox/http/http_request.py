"""The kind `http_request`: one request to a service of `--allow-request`, with the idempotency key of the step."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

import httpcore2
import httpx2
from pydantic import BaseModel, Field, JsonValue
from pydantic_core import from_json

from activities.borders import judge
from activities.errors import Refused, ToolError
from activities.toolbox.declare.tool import tool
from activities.toolbox.http.network import MAX_URL, READ_DEADLINE, read_body
from activities.toolbox.http.services import HEADER_NAME, HEADER_VALUE, Services, service_at
from activities.toolbox.injection import Key
from activities.toolbox.texts import encoding_of
from workflows.json_values import canonical, depth
from workflows.plans.proposal import MAX_DEPTH

MAX_READ = 256 * 1024  # bytes of a decompressed answer that are read
MAX_JSON = 36 * 1024  # bytes of an answer that is returned as JSON: the result of an effect may not be larger
MAX_TEXT = 9_000  # characters of an answer that are returned as text; each has at most four bytes
MAX_HEADER = 300  # characters of each header that is returned

RETURNED = ("content-type", "etag", "last-modified", "link", "location", "request-id", "retry-after", "x-request-id")
"""The names of the headers that the result of a call contains, if the service sent them."""

_OURS = frozenset(
    {
        *("accept-encoding", "content-encoding", "content-length", "expect", "host", "idempotency-key"),
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "via"),  # for one connection
    }
)
"""Headers that only Replan sets; a call may not contain them."""
_SECRET = re.compile(r"auth|cookie|credential|password|passwd|secret|session|token|api-?key|^proxy-")
_JSON = re.compile(r"application/(?:[\w.-]{1,80}\+)?json")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

HeaderName = Annotated[str, Field(pattern=HEADER_NAME)]
HeaderValue = Annotated[str, Field(pattern=HEADER_VALUE)]


class HttpRequest(BaseModel):
    """What to send, and where."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    url: str = Field(description="The whole address, e.g. https://api.example/orders", max_length=MAX_URL)
    headers: dict[HeaderName, HeaderValue] = Field(
        default_factory=dict, description="More headers, e.g. If-Match; never secrets", max_length=30
    )
    body: JsonValue = Field(default=None, description="What is sent as JSON; nothing when it is null")


class HttpReply(BaseModel):
    """The answer of the service; a rejection is a fault instead."""

    status: int
    headers: dict[str, str]
    """The headers named in `RETURNED` that the service sent, by their name in small letters."""
    body: JsonValue
    """The parsed JSON if the answer is JSON and small enough, else the text of the answer; None if it is empty."""
    cut: str = ""
    """Why `body` is not the whole answer, e.g. because the answer is too long; empty if `body` is the whole answer."""


@tool.keyed(untrusted=True, service=lambda args: service_at(args.url))
async def http_request(args: HttpRequest, key: Key, services: Services) -> HttpReply:
    """Send one HTTP request with a JSON body to a service that this worker may use; for web pages use fetch_page."""
    headers = _headers(args, key)
    content = None if args.method == "GET" else b"" if args.body is None else canonical(args.body).encode()
    try:
        async with services.send(args.method, args.url, headers, content) as answer:
            return await _read(answer)
    except (httpx2.HTTPError, httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
        if args.method == "GET":
            raise _without_effect(error) from None
        raise


def _headers(args: HttpRequest, key: Key) -> Mapping[str, str]:
    """The headers to send, by name in small letters. Raises Refused for a header or a body that is not allowed."""
    headers = {name.lower(): value for name, value in args.headers.items()}
    for name in headers:
        if name in _OURS:
            raise Refused(f"The header {name!r} is not yours to write: leave it out.", code="invalid_input")
        if _SECRET.search(name):
            reason = f"The header {name!r} may carry a secret, which no plan may hold: leave it out; the worker's "
            raise Refused(f"{reason}--http-header sends such headers.", code="invalid_input")
    media = headers.setdefault("content-type", "application/json")
    if not _JSON.fullmatch(media.partition(";")[0].strip().lower()):
        raise Refused(
            f"The body is sent as JSON, not as {media[:80]}: leave out the content-type header.", code="invalid_input"
        )
    if args.method == "GET":
        if args.body is not None:
            raise Refused("A GET has no body: put what you look for into the address.", code="invalid_input")
        del headers["content-type"]
        return headers
    return {**headers, "idempotency-key": key}


def _without_effect(error: Exception) -> Exception:
    """The exception of a failed GET as a tool error with the same fault, marked as harmless: a GET changes nothing."""
    verdict = judge(error)
    fault = verdict.fault
    for chosen in ToolError.__subclasses__():
        if fault.code in chosen.codes():
            tool_error = chosen(fault.reason, code=fault.code, observed=fault.observed, retry_after=fault.retry_after)
            tool_error.is_harmless, tool_error.words = True, verdict.words
            return tool_error
    return error


async def _read(answer: httpx2.Response) -> HttpReply:
    """Read an answer. Raises httpx2.HTTPStatusError, with the body, if the status is neither a success nor 303."""
    # The effect may have been applied: an error in the body must not hide the status, which tells the outcome.
    content, cut = await read_body(answer, MAX_READ, READ_DEADLINE, keeps_undecodable=True)
    if not (answer.is_success or answer.status_code == httpx2.codes.SEE_OTHER):
        plain = {name: value for name, value in answer.headers.items() if name in RETURNED}
        httpx2.Response(answer.status_code, headers=plain, content=content, request=answer.request).raise_for_status()
    body, shortened = _body(answer, content)
    kept = {name: answer.headers[name][:MAX_HEADER] for name in RETURNED if name in answer.headers}
    return HttpReply(status=answer.status_code, headers=kept, body=body, cut=cut or shortened)


def _body(answer: httpx2.Response, content: bytes) -> tuple[JsonValue, str]:
    """The body as JSON, or else as text; and a note that the text was cut, or an empty note."""
    if not content:
        return None, ""
    media = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if _JSON.fullmatch(media):
        try:
            read: JsonValue = from_json(content, allow_inf_nan=False)
            if depth(read) <= MAX_DEPTH and len(canonical(read).encode()) <= MAX_JSON:
                return read, ""
        except ValueError:
            pass  # no JSON: returned as text
    encoding = encoding_of(content, answer.charset_encoding)
    text = _CONTROL.sub(" ", content[: 4 * (MAX_TEXT + 1)].decode(encoding, errors="replace"))
    return text[:MAX_TEXT], f"cut after {MAX_TEXT:,} characters" if len(text) > MAX_TEXT else ""
