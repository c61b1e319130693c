"""What the tables of all model providers share: rows, the Fault of a row, and the wait before a retry.

A status of a model's API means something else than a status of a tool's service: 404 is a wrong name of a model, and
409 is transient.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import httpx2

from activities.borders.http import is_unsent
from activities.borders.table import Choice, Entry, Proof, Row, Verdict
from activities.borders.waits import wait_of
from workflows.faults.fault import QUADRANT, Code

ModelRow = tuple[Code, str]
"""The code of a Fault, and the part of its reason that follows the provider's name."""

QUOTA = (Code.QUOTA_EXHAUSTED, "has no credit left for us: pay or raise the limit in its console")
SPENT = (Code.QUOTA_EXHAUSTED, "has reached the limit that was set for spending: raise it in its console")
KEY = (Code.UNAUTHORIZED, "does not accept the worker's key: fix the key in its environment and restart it")
FORBIDDEN = (Code.FORBIDDEN, "does not permit this to the worker's key: ask for the permission, or use another key")
HOLD = (Code.FORBIDDEN, "has put the organisation of the key on hold: settle it in its console")
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
    "does not accept the thinking that a reply had before: a proxy has changed it, or it is of another model or key;"
    " ask the model without that proxy, and start the task again",
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
OURS = (Code.MALFORMED_SCHEMA, "says that Replan's request is malformed: report it, or use another model")
TOO_LONG = (Code.TOO_LARGE, "finds the conversation too long for this model: split the task, or use a larger one")
SLOW_DOWN = (Code.RATE_LIMITED, "wants fewer requests")
BUSY = (Code.BUSY, "was busy with a conflicting request")
OVERLOADED = (Code.OVERLOADED, "is overloaded")
BROKEN = (Code.SERVER_ERROR, "failed")
LATE = (Code.TIMEOUT, "ended the request after a timeout")
FILTERED = (Code.REFUSED, "rejected the request as against its rules: write the task in other words")
CUT = (Code.UNREACHABLE, "could not be reached, or the connection broke")
SILENT = (Code.TIMEOUT, "did not answer in time")
GARBLED = (Code.SERVER_ERROR, "sent an invalid reply, perhaps from a proxy")
MISUSED = (Code.BUG, "is called wrongly by Replan: report it")

BY_WORDS: Mapping[str, ModelRow] = {
    # LiteLLM's proxy, whose code is the status: names of its exceptions, and what providers and its router said.
    "budget has been exceeded": SPENT,
    "crossed budget": SPENT,
    "exceeded your current quota": QUOTA,
    "credit balance": QUOTA,  # Anthropic's API
    "contextwindowexceedederror": TOO_LONG,
    "contentpolicyviolationerror": FILTERED,
    "guardrail policy": FILTERED,
    "invalid model name passed in": NO_MODEL,
    "litellm.authenticationerror": GATEWAY_KEY,
    # vLLM
    "exceeds the max_model_len": TOO_LONG,
    "--enable-auto-tool-choice": NO_TOOLS,
    "does not support tools": NO_TOOLS,  # Ollama
    # OpenRouter
    "support tool use": NO_TOOLS,
    "requires moderation": FILTERED,
    # What Anthropic and OpenAI say of an output, and Azure of both.
    "content filtering policy": FILTERED,
    "content management policy": FILTERED,
    "violating our usage policy": FILTERED,
    "prompt is too long": TOO_LONG,
    "input is too long": TOO_LONG,
    "exceeds the context window": TOO_LONG,
    "maximum context length": TOO_LONG,
    "could not finish the message because": CUT_OFF,
    # Anthropic, also behind a proxy that speaks another API, and proxies that left out or changed what it signed.
    "`signature` in `thinking`": THINKING,
    "signature in thinking block": THINKING,
    "thinking.signature": THINKING,
    "blocks in the latest assistant message cannot be modified": THINKING,
    "must start with a thinking block": THINKING,
}
"""Rows by a part of an error's message, for gateways and the user's own servers, whose codes and types say less."""

OWN_HOSTS: Mapping[str, str] = {"Anthropic's API": "api.anthropic.com", "OpenAI's API": "api.openai.com"}

STATUS: Mapping[int, ModelRow] = {
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


def always(provider: str, row: ModelRow) -> Entry:
    """An entry with the verdict of `row` for any exception."""
    return by("the address of the server", provider, [], lambda error: verdict(provider, row, error), otherwise=row)


def by(
    what: str, provider: str, rows: Iterable[ModelRow], decide: Callable[[Any], Verdict], otherwise: ModelRow = BROKEN
) -> Entry:
    """An entry that chooses between the rows of a provider by `decide`; `what` says for people what decides."""
    named = {code.value: _row(provider, (code, says)) for code, says in rows}
    return Choice(what, named, decide, _row(provider, otherwise))


def _row(provider: str, row: ModelRow) -> Row:
    # The tool may have had its effect before it asked the model.
    return Row(row[0], f"{provider} {row[1]}.", Proof.UNKNOWN)


def by_words(rows: Mapping[str, ModelRow], message: object, status: int) -> ModelRow | None:
    """The row of the first key, in `rows` and then in BY_WORDS, that occurs in `message`, ignoring case; else None.

    Always None for a `status` of 300 to 399, and from 500 on. An error in a stream has the status 200, or 0 if unknown.
    """
    text = str(message or "").lower() if 400 <= status < 500 or status < 300 else ""
    return next((row for words, row in {**rows, **BY_WORDS}.items() if words in text), None)


def offers_no_calls(error: Exception) -> bool:
    """Whether `error` says that the server rejected a request because it offers no tool calls for the model."""
    message, status = getattr(error, "message", ""), getattr(error, "status_code", 0)
    return isinstance(status, int) and by_words({}, message, status) is NO_TOOLS


def by_status(provider: str, row: ModelRow | None, error: Exception, status: int) -> Verdict:
    """The verdict on an error response, made from `row`, or from the HTTP status if `row` is None."""
    if row is None or (row is BROKEN and status >= 500):  # BROKEN says less than a status such as 503
        row = STATUS.get(status) or (BROKEN if status >= 500 else OURS)
    return verdict(provider, row, error)


def verdict(provider: str, row: ModelRow, error: Exception) -> Verdict:
    """The verdict that a row describes, with the seconds that the response asks to wait before a retry."""
    # Without the error's message, which may quote keys and prompts.
    response = getattr(error, "response", None) if QUADRANT[row[0]].is_transient else None
    wait = wait_of(response.headers) if isinstance(response, httpx2.Response) else None
    found = _row(provider, row).verdict(
        reason=f"{_capitalized_server_name(provider, error)} {row[1]}.", retry_after=wait
    )
    return replace(found, fault=found.fault.model_copy(update={"unsent": is_unsent(error.__cause__)}))


def server_name(provider: str, host: str | None) -> str:
    """The server's name for messages: the provider, or the model server at `host` if that is another host."""
    return provider if host in (None, OWN_HOSTS[provider]) else f"the model server at {host}"


def _capitalized_server_name(provider: str, error: Exception) -> str:
    request = getattr(error, "request", None)
    name = server_name(provider, request.url.host if isinstance(request, httpx2.Request) else None)
    return name[:1].upper() + name[1:]
