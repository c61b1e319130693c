"""What the tables of all model providers share: the Fault of a meaning, and the wait before a retry."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import httpx2

from activities.borders.http import is_unsent
from activities.borders.model_errors import STATUS, Meaning, codes, meaning_of
from activities.borders.table import Cases, Entry, Proof, Row, Verdict
from activities.borders.waits import wait_of
from workflows.faults.fault import QUADRANT

OWN_HOSTS: Mapping[str, str] = {"Anthropic's API": "api.anthropic.com", "OpenAI's API": "api.openai.com"}


def always(provider: str, means: Meaning) -> Entry:
    """An entry with the verdict of `means` for any exception."""
    return _by("the address of the server", provider, [], lambda error: verdict(provider, means, error), means)


def by_answer(provider: str) -> Entry:
    """An entry for errors that a provider, or a server in its place, has answered with."""
    rows = (*codes().values(), *STATUS.values())
    what = "its code, its message, its type, then its HTTP status"
    return _by(what, provider, rows, lambda error: verdict(provider, _meaning(error), error), Meaning.BROKEN)


def _by(
    what: str, provider: str, rows: Iterable[Meaning], decide: Callable[[Any], Verdict], otherwise: Meaning
) -> Entry:
    """An entry that chooses between the rows of a provider by `decide`; `what` says for people what decides."""
    named = {means.code.value: _row(provider, means) for means in rows}
    return Cases(what, named, decide, _row(provider, otherwise))


def _row(provider: str, means: Meaning) -> Row:
    # The tool may have had its effect before it asked the model.
    return Row(means.code, f"{provider} {means.says}.", Proof.UNKNOWN)


def _meaning(error: Any) -> Meaning:
    return meaning_of(error.body, getattr(error, "status_code", None))


def offers_no_calls(error: Exception) -> bool:
    """Whether `error` says that the server rejected a request because it offers no tool calls for the model."""
    return hasattr(error, "body") and _meaning(error) is Meaning.NO_TOOLS


def verdict(provider: str, means: Meaning, error: Exception) -> Verdict:
    """The verdict that a meaning describes, with the seconds that the response asks to wait before a retry."""
    # Without the error's message, which may quote keys and prompts.
    response = getattr(error, "response", None) if QUADRANT[means.code].is_transient else None
    wait = wait_of(response.headers) if isinstance(response, httpx2.Response) else None
    found = _row(provider, means).verdict(
        reason=f"{_capitalized_server_name(provider, error)} {means.says}.", retry_after=wait
    )
    return replace(found, fault=found.fault.model_copy(update={"unsent": is_unsent(error.__cause__)}))


def server_name(provider: str, host: str | None) -> str:
    """The server's name for messages: the provider, or the model server at `host` if that is another host."""
    return provider if host in (None, OWN_HOSTS[provider]) else f"the model server at {host}"


def _capitalized_server_name(provider: str, error: Exception) -> str:
    request = getattr(error, "request", None)
    name = server_name(provider, request.url.host if isinstance(request, httpx2.Request) else None)
    return name[:1].upper() + name[1:]
