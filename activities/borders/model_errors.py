"""What an error of a model's API means, by the table `model_errors.toml`: runs when a request to a model has failed.

A status of a model's API means something else than a status of a tool's service: 404 is a wrong name of a model, and
409 is transient. Servers that speak the API of another vendor say the cause in a code of their own, or in words alone,
also in a response with status 200 (`error_in`).
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from activities.borders.service_api import field
from activities.borders.table import as_words
from workflows.faults.fault import Code

ERRORS_FILE = Path(__file__).with_name("model_errors.toml")


class Meaning(Enum):
    """The code of a Fault, and the part of its reason that follows the provider's name."""

    QUOTA = Code.QUOTA_EXHAUSTED, "has no credit left for us: pay or raise the limit in its console"
    SPENT = Code.QUOTA_EXHAUSTED, "has reached the limit that was set for spending: raise it in its console"
    KEY = Code.UNAUTHORIZED, "does not accept the worker's key: fix the key in its environment and restart it"
    FORBIDDEN = (
        Code.FORBIDDEN,
        "does not permit this to the worker's key: ask for the permission, or use another key",
    )
    HOLD = Code.FORBIDDEN, "has put the organisation of the key on hold: settle it in its console"
    NO_MODEL = (
        Code.NEEDS_PERSON,
        "has no such model, or the address is wrong: check the worker's --planner and where it sends requests",
    )
    OTHER_WIRE = (
        Code.NEEDS_PERSON,
        "takes this model's requests in Responses, not in Chat Completions: set its wire in the worker's settings file",
    )
    NO_TOOLS = (
        Code.NEEDS_PERSON,
        "offers no tool calls for this model: use a model that has them, or turn them on"
        " (vLLM: --enable-auto-tool-choice and --tool-call-parser)",
    )
    GATEWAY_KEY = (
        Code.UNAUTHORIZED,
        "has a key that its own provider does not accept: fix the key in the settings of that gateway",
    )
    ENCRYPTED = (
        Code.NEEDS_PERSON,
        "cannot read the reasoning that it sent earlier, perhaps to a key of another organisation: set the earlier key",
    )
    THINKING = (
        Code.NEEDS_PERSON,
        "does not accept the thinking that a reply had before: a proxy has changed it, or it is of another model or"
        " key; ask the model without that proxy, and start the task again",
    )
    CUT_OFF = (
        Code.NEEDS_PERSON,
        "could not end its reply within the limit of a reply: raise it with --reply-tokens,"
        " or let the model reason less with --effort low",
    )
    NO_EFFORT = (
        Code.NEEDS_PERSON,
        "does not take this effort from the model: leave out --effort, or choose another one,"
        " also in reasoning_effort of the worker's settings file",
    )
    RESIDENCY = (
        Code.FORBIDDEN,
        "serves this organisation at another address: set OPENAI_BASE_URL to the address of its region",
    )
    OURS = Code.MALFORMED_SCHEMA, "says that Replan's request is malformed: report it, or use another model"
    TOO_LONG = Code.TOO_LARGE, "finds the conversation too long for this model: split the task, or use a larger one"
    SLOW_DOWN = Code.RATE_LIMITED, "wants fewer requests"
    BUSY = Code.BUSY, "was busy with a conflicting request"
    OVERLOADED = Code.OVERLOADED, "is overloaded"
    BROKEN = Code.SERVER_ERROR, "failed"
    LATE = Code.TIMEOUT, "ended the request after a timeout"
    FILTERED = Code.REFUSED, "rejected the request as against its rules: write the task in other words"
    CUT = Code.UNREACHABLE, "could not be reached, or the connection broke"
    SILENT = Code.TIMEOUT, "did not answer in time"
    GARBLED = Code.SERVER_ERROR, "sent an invalid reply, perhaps from a proxy"
    MISUSED = Code.BUG, "is called wrongly by Replan: report it"

    def __init__(self, code: Code, says: str) -> None:
        self.code, self.says = code, says


STATUS: Mapping[int, Meaning] = {
    400: Meaning.OURS,
    401: Meaning.KEY,
    402: Meaning.QUOTA,
    403: Meaning.FORBIDDEN,
    404: Meaning.NO_MODEL,
    408: Meaning.LATE,
    409: Meaning.BUSY,
    413: Meaning.TOO_LONG,
    425: Meaning.BUSY,
    429: Meaning.SLOW_DOWN,
    431: Meaning.TOO_LONG,
    499: Meaning.CUT,
    501: Meaning.OURS,
    503: Meaning.OVERLOADED,
    504: Meaning.LATE,
    529: Meaning.OVERLOADED,
}
"""Meanings of HTTP statuses. Another 5xx is BROKEN; any other status is a mistake in Replan's request."""
INVALID_REQUEST = "invalid_request_error"
"""The type of an error for which an answer has the status 400."""


class Example(BaseModel):
    """A whole answer: its status, and its body as it was sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: int
    body: str


class MeaningRow(BaseModel):
    """A row of `model_errors.toml`, whose head says when it fits."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    vendor: str
    means: Annotated[Meaning, BeforeValidator(lambda name: Meaning[name])]
    codes: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    source: str = Field(pattern="^https://")
    seen: date | None = None
    """The day when the error was met at the source; None if its wording there was not compared."""
    written: date | None = None
    """The day of a row that is not `seen`."""
    examples: tuple[Example, ...] = Field(min_length=1)

    def fits(self, error: "_Error", status: int) -> bool:
        """Whether the status and the message of an error are as the row says."""
        if self.codes:
            is_at = not self.statuses or status in self.statuses
        else:
            # A server that fails says little, but a proxy passes on with 500 that a conversation is too long.
            usual = range(400, 501 if self.means is Meaning.TOO_LONG else 500)
            is_at = not status or status in (self.statuses or usual)
        return is_at and (not self.texts or any(_holds(error.words, text) for text in self.texts))


@cache
def table() -> tuple[MeaningRow, ...]:
    """The rows of `model_errors.toml`: of two rows that fit, the first one counts."""
    rows = tomllib.loads(ERRORS_FILE.read_text(encoding="utf-8"))["row"]
    return tuple(sorted(map(MeaningRow.model_validate, rows), key=lambda row: (not row.texts, not row.statuses)))


def codes() -> Mapping[str, Meaning]:
    """The meanings of codes that mean the same whatever the status and the message."""
    plain = (row for row in reversed(table()) if not row.texts and not row.statuses)
    return {code: row.means for row in plain for code in row.codes}


def meaning_of(body: object, status: int | None = None) -> Meaning:
    """What an error means, by its body (JSON, a text, or None) and its HTTP status (None, or no error's, if unknown).

    If the body wraps the error of another server, the innermost error that says more than its status decides.
    """
    errors = list(_errors(body))
    status = status if status and status >= 400 else next((error.status for error in errors if error.status), 0)
    found = _in_table(errors, status)
    if found and not (found is Meaning.BROKEN and status >= 500):  # BROKEN says less than a status such as 503
        return found
    if status:
        return STATUS.get(status) or (Meaning.BROKEN if status >= 500 else Meaning.OURS)
    is_ours = any(INVALID_REQUEST in (*error.codes, *error.types) for error in errors)
    return Meaning.OURS if is_ours else Meaning.BROKEN


def meaning_of_words(words: str, status: int = 0) -> Meaning | None:
    """What a message means by its texts alone; None if no row has one of them."""
    return _in_table([_Error((), (), _own_sentences(words), 0)], status)


def error_in(response: Any) -> Any:
    """The error in a body, a chunk or a response of the SDK with status 200; None if it reports none."""
    if isinstance(response, list):
        return error_in(response[0]) if response and not isinstance(response[0], list) else None
    if error := field(response, "error"):
        return error if isinstance(error, Mapping) else _plain(response)
    if field(response, "base_resp", "status_code") or "error" in (field(response, "object"), field(response, "type")):
        return _plain(response)
    choices = field(response, "choices")
    failed = (field(choice, "error") for choice in choices) if isinstance(choices, list) else ()
    return next(filter(None, failed), None)


def _plain(response: Any) -> Any:
    return response if isinstance(response, Mapping) else response.to_dict(warnings=False)


# What an error says of itself.

MAX_WORDS = 1_000
"""Characters of a message that are read: after them come lists and quotations."""
MAX_INNER = 4
"""How many errors are read of which each is wrapped in the one before."""
MAX_LISTED = 8
"""How many items of a list in an error are read."""
_STATUS = re.compile("[45][0-9]{2}")
_QUOTED = re.compile(
    r"""(?<![\w])(["'`“])((?:(?!\1|”)[^\s]){1,80})(?:\1|”)(?!\w)|(?<![\w])["'`“].*(?:["'`”](?!\w)|\Z)""", re.DOTALL
)
"""Finds a quotation: a name, which is one word, or else all from a quotation mark to the last one."""
_WRAPPED = re.compile(
    r"""\{\s*['"](?:error|type|code|object|message)['"].{0,200}?['"]message['"]:\s*b?['"](.*)""", re.DOTALL
)
"""Finds the message of an error in an error's message that is not JSON, such as Python's form of it."""
_MESSAGES = ("message", "msg", "error", "detail", "Message", "status_msg", "error_description", "error_message")
_CODES = ("code", "error_code", "errorCode")
_TYPES = ("type", "status", "error_type", "__type")
_STATUSES = ("code", "http_code", "status", "status_code", "error_code")


@dataclass(frozen=True)
class _Error:
    codes: tuple[str, ...]
    types: tuple[str, ...]
    words: str
    """The server's own sentences, in small letters."""
    status: int
    """The HTTP status that the error has as its code; 0 without one."""


def _in_table(errors: Iterable[_Error], status: int) -> Meaning | None:
    """The meaning of the innermost error that a row fits; `status` is the HTTP status, 0 if it is unknown."""
    for depth, error in reversed([*enumerate(errors)]):
        at = (error.status or (status if status < 500 else 0)) if depth else status
        by_code = (row for row in table() if not set(row.codes).isdisjoint(error.codes))
        by_text = (row for row in table() if not row.codes)
        by_type = (row for row in table() if not set(row.codes).isdisjoint(error.types))
        found = next((row for rows in (by_code, by_text, by_type) for row in rows if row.fits(error, at)), None)
        if found:
            return found.means
    return None


def _errors(body: object) -> Iterator[_Error]:
    """Yield the error in a body, then the error that it wraps, and so on."""
    for _ in range(MAX_INNER):
        fields = _fields(body)
        if not fields:
            return
        message = next((text for name in _MESSAGES if isinstance(text := fields.get(name), str) and text), "")
        own, wrapped = _unwrapped(message)
        details = [item for item in _listed(fields.get("details")) if isinstance(item, Mapping)]
        quotas = [field(item, "quotaId") for detail in details for item in _listed(field(detail, "violations"))]
        reasons = [field(item, "reason") for item in details]
        more = [field(fields, *path) for path in (("details", "error_code"), ("innererror", "code"))]
        yield _Error(
            codes=_texts(
                [*(fields.get(name) for name in _CODES), *more, field(fields, "metadata", "error_type"), *reasons]
            ),
            types=_texts(fields.get(name) for name in _TYPES),
            words=_own_sentences(" ".join([own, *_texts(quotas)])),
            status=next((int(code) for code in _texts(map(fields.get, _STATUSES)) if _STATUS.fullmatch(code)), 0),
        )
        body = field(fields, "metadata", "raw") or wrapped


def _fields(body: object) -> Mapping[str, Any]:
    """The fields of the error in a body; none if there is no error in it."""
    if isinstance(body, list):
        return _fields(body[0]) if body and not isinstance(body[0], list) else {}
    if isinstance(body, str):
        own, wrapped = _unwrapped(body)
        return _fields(wrapped) if wrapped and not own else {"message": as_words(body)}
    if not isinstance(body, Mapping):
        return {}
    if isinstance(resp := body.get("base_resp"), Mapping) and resp.get("status_code"):
        return {"code": f"base_resp.{resp['status_code']}", "message": resp.get("status_msg")}
    inner = body.get("error")
    return inner if isinstance(inner, Mapping) and inner else body


def _unwrapped(message: str) -> tuple[str, object]:
    """Split a message: its words before a brace, and the error in the braces, if it is one."""
    message = message[: 4 * MAX_WORDS]
    own, brace, _ = message.partition("{")
    if not brace:
        return message, None
    try:
        value, _ = json.JSONDecoder().raw_decode(message, len(own))
    except (ValueError, RecursionError):
        found = _WRAPPED.match(message, len(own))
        return own.rstrip("[ "), found and {"message": found[1]}
    is_error = isinstance(value, dict) and any(isinstance(value.get(name), str | dict) for name in ("error", "message"))
    return own.rstrip("[ "), value if is_error else None


def _listed(value: object) -> list[Any]:
    return value[:MAX_LISTED] if isinstance(value, list) else []


def _texts(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(str(value)[:200] for value in values if isinstance(value, str | int) and value and value is not True)


def _own_sentences(message: str) -> str:
    """A message in small letters, on one line, without what the server quotes: it may be of a prompt or of a tool."""
    line = message[:MAX_WORDS].replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    own = _QUOTED.sub(lambda found: found[0] if found[2] else " ", line)
    return " ".join(own.casefold().split())


def _holds(words: str, text: str) -> bool:
    """Whether `words` have the parts of `text`, in their order; the parts are divided by `*`."""
    at = 0
    for part in text.split("*"):
        at = words.find(part.strip(), at)
        if at < 0:
            return False
        at += len(part.strip())
    return True
