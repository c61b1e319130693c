"""Asks a model server on the user's machine about a model: its window, and whether it makes calls by the API."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx2

from activities.errors import NeedsPerson
from workflows.plans import own_activities

SMALLEST_WINDOW = 4_096
"""The window in tokens with which both servers load a model by default. It is assumed until a server reports the
window; the servers cut a longer prompt without an error."""
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class ModelFacts:
    """What a server reports about a model."""

    window: int | None
    """Tokens of input and reply together; None if unknown."""
    takes_tools: bool | None
    """Whether the model makes calls by the API; None if unknown."""
    is_loaded: bool
    """Whether the model is loaded, so that `window` will not change."""


class NotPulled(Exception):
    """The server does not have the model."""


@dataclass(frozen=True)
class LocalProgram:
    """A program that serves models on the user's own machine, with OpenAI's API."""

    program: str
    url: str
    """The usual address of its OpenAI API."""
    variable: str
    """The environment variable with another address."""
    pull: str
    """The command that downloads a model."""
    read: Callable[[httpx2.AsyncClient, str, str], Any]
    """Asks the server at an address, without `/v1`, for the facts of a model; raises NotPulled if there is no model."""

    def address(self, environment: Mapping[str, str]) -> str:
        """The address of the server's API: that of the environment variable, else the usual address."""
        url = environment.get(self.variable, "").strip().rstrip("/")
        if not url:
            return self.url
        url = url if "://" in url else f"http://{url}"
        host = urlsplit(url).hostname
        if host == "0.0.0.0":  # noqa: S104 - what a server listens on, and no address to ask
            url = url.replace("0.0.0.0", "127.0.0.1", 1)  # noqa: S104
        if urlsplit(url).port is None:
            port = urlsplit(self.url).port
            url = urlunsplit(urlsplit(url)._replace(netloc=f"{urlsplit(url).netloc}:{port}"))
        return url if url.endswith("/v1") else f"{url}/v1"

    async def facts(self, url: str, model: str) -> ModelFacts:
        """Ask the server at `url` for the facts of a model.

        If the server cannot be reached, all facts are unknown: a request to the model then fails for the same reason.

        Raises:
            NeedsPerson: the server does not have the model; the message names the command that downloads the model.
        """
        root = url.rstrip("/").removesuffix("/v1")
        try:
            async with httpx2.AsyncClient(timeout=own_activities.PLAN.timeout) as client:
                found: ModelFacts = await self.read(client, root, model)
                return found
        except NotPulled:
            remedy = f"run `{self.pull} {model}`, or name another model"
            raise NeedsPerson(f"{self.program} at {urlsplit(root).netloc} does not have {model}: {remedy}.") from None
        except httpx2.HTTPError:
            return ModelFacts(None, None, is_loaded=False)


async def _ollama(client: httpx2.AsyncClient, root: str, model: str) -> ModelFacts:
    # https://github.com/ollama/ollama/blob/main/docs/api.md: /api/show and /api/ps
    shown = await client.post(f"{root}/api/show", json={"model": model})
    if shown.status_code == httpx2.codes.NOT_FOUND:
        raise NotPulled
    card = _object(shown)
    running = (_object(await client.get(f"{root}/api/ps")).get("models") if card else None) or []
    names = {model, model if ":" in model else f"{model}:latest"}
    loaded = next((each for each in running if isinstance(each, dict) and each.get("name") in names), {})
    info = card.get("model_info")
    longest = _number(info if isinstance(info, dict) else {}, ".context_length")
    chosen = _NUM_CTX.search(str(card.get("parameters") or ""))
    known = _number(loaded, "context_length") or (int(chosen[1]) if chosen else None)
    capabilities, template = card.get("capabilities"), str(card.get("template") or "")
    takes_tools = "tools" in capabilities if isinstance(capabilities, list) else None
    if takes_tools is None and template:  # versions before 0.6.4
        takes_tools = ".Tools" in template
    return ModelFacts(known or _assumed_window(longest), takes_tools, bool(loaded) or known is not None)


async def _lm_studio(client: httpx2.AsyncClient, root: str, model: str) -> ModelFacts:
    # https://lmstudio.ai/docs/developer/rest/endpoints: /api/v0/models/{model}
    shown = await client.get(f"{root}/api/v0/models/{quote(model, safe='/')}")
    if shown.status_code == httpx2.codes.NOT_FOUND:
        raise NotPulled
    card = _object(shown)
    capabilities = card.get("capabilities")
    takes_tools = "tool_use" in capabilities if isinstance(capabilities, list) else None
    known = _number(card, "loaded_context_length") if card.get("state") == "loaded" else None
    return ModelFacts(known or _assumed_window(_number(card, "max_context_length")), takes_tools, known is not None)


def _object(response: httpx2.Response) -> dict[str, Any]:
    try:
        body = response.json() if response.is_success else {}
    except ValueError:
        body = {}
    return body if isinstance(body, dict) else {}


def _number(card: Mapping[str, Any], ending: str) -> int | None:
    """The first positive whole number in a field whose name ends with `ending`; None if there is none."""
    numbers = (value for name, value in card.items() if name.endswith(ending) and isinstance(value, int) and value > 0)
    return next(numbers, None)


def _assumed_window(longest: int | None) -> int | None:
    """The window to assume for a model whose largest window has `longest` tokens; None if that is unknown."""
    return min(longest, SMALLEST_WINDOW) if longest else None


LOCAL_SERVERS: Mapping[str, LocalProgram] = {
    "ollama": LocalProgram("Ollama", "http://localhost:11434/v1", "OLLAMA_HOST", "ollama pull", _ollama),
    "lmstudio": LocalProgram("LM Studio", "http://localhost:1234/v1", "LMSTUDIO_BASE_URL", "lms get", _lm_studio),
}
"""The servers, by the word with which the names of their models begin."""
