"""The providers, and the model that a name such as `openai:gpt-5.4-mini` means."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from activities.providers import anthropic, openai
from activities.providers.adapter import AdapterOptions, Endpoint
from activities.providers.local import LOCAL_SERVERS, ModelFacts
from activities.providers.messages import LanguageModel
from activities.providers.prices import of_model
from activities.providers.strict import ANTHROPIC, OPENAI, Rules, StrictModel
from workflows.limits.spending import MAX_OUTPUT


class UnknownPlanner(ValueError):
    """No planner or model has this name, or it cannot be used; the message says what to do."""


@dataclass(frozen=True)
class Provider:
    """A provider of models, with the environment variables that its own SDK reads, too."""

    adapter: Callable[[str, Endpoint, AdapterOptions], LanguageModel]
    rules: Rules
    """What the provider supports in strict schemas."""
    takes_strict: Callable[[str], bool]
    """Whether a model takes strict schemas, at the provider's own host."""
    takes_effort: Callable[[str], bool]
    """Whether a model has reasoning efforts, at the provider's own host."""
    host: str
    default: str
    """The model that is used if the name of the planner has no `:MODEL`."""
    key: str
    """The name of the environment variable with the API key."""
    url: str
    """The name of the environment variable with the API's address."""


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(
        lambda model, endpoint, _: anthropic.AnthropicModel(model, endpoint),
        ANTHROPIC,
        anthropic.takes_strict,
        anthropic.takes_effort,
        anthropic.HOST,
        anthropic.DEFAULT_MODEL,
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
    ),
    "openai": Provider(
        openai.OpenAIModel,
        OPENAI,
        lambda _: True,
        openai.takes_effort,
        openai.HOST,
        openai.DEFAULT_MODEL,
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
    ),
}
"""The providers by name; without `--planner`, the first provider whose key is set makes the plans.

docs/architecture.md says what to touch to add a provider.
"""
PLAIN_OUTPUT = 8_000
"""The most tokens of a reply of a model that does not reason, and so needs no tokens for reasoning."""
NO_KEY = "none"
"""The key for the user's own server if no key is set, because the SDK's client needs a key."""


def model_named(name: str, environment: Mapping[str, str], options: AdapterOptions) -> LanguageModel:
    """The model of `PROVIDER:MODEL` or `PROVIDER`. Raises UnknownPlanner."""
    provider_name, _, model = name.partition(":")
    server, provider = LOCAL_SERVERS.get(provider_name), PROVIDERS.get(provider_name)
    if server and model:
        address = server.address(environment)
        at_server = Endpoint(NO_KEY, address, options.idle_timeout, program=provider_name, usual_url=server.url)
        return openai.OpenAIModel(model, at_server, options)
    if provider is None or name.endswith(":"):
        remedy = "use offline, anthropic:MODEL, openai:MODEL, ollama:MODEL, lmstudio:MODEL, or scripted:FILE alone"
        raise UnknownPlanner(f"There is no planner {name!r}: {remedy}.")
    url = environment.get(provider.url, "").strip() or None
    chosen = model or provider.default
    endpoint = Endpoint(_api_key(name, provider, environment, url), _checked_url(url, provider), options.idle_timeout)
    adapter = provider.adapter(chosen, endpoint, options)
    strict = of_model(options.strict, adapter.name)
    is_strict = endpoint.is_at(provider.host) and provider.takes_strict(chosen) if strict is None else strict
    standings = options.standings.setdefault(adapter.name, {})
    return StrictModel(adapter, provider.rules, standings) if is_strict else adapter


def local_facts(name: str, environment: Mapping[str, str]) -> Callable[[], Awaitable[ModelFacts]] | None:
    """A function that asks the server of `ollama:MODEL` or `lmstudio:MODEL` about the model; None for other names."""
    program, _, model = name.partition(":")
    server = LOCAL_SERVERS.get(program)
    return partial(server.facts, server.address(environment), model) if server else None


def takes_effort(name: str) -> bool:
    """Whether the model with this full name takes an effort; True on a user's own server, where nobody knows."""
    provider_name, _, model = name.partition(":")
    provider = PROVIDERS.get(provider_name)
    return provider is None or "@" in model or provider.takes_effort(model)


def longest_reply(name: str) -> int:
    """The most tokens that a reply of the planner's model with this full name may have."""
    provider, _, model = name.partition("@")[0].partition(":")
    row = openai.row_of(model) if provider == "openai" else None
    return PLAIN_OUTPUT if row and not row.is_reasoning else MAX_OUTPUT


def _api_key(name: str, provider: Provider, environment: Mapping[str, str], url: str | None) -> str:
    key = environment.get(provider.key, "").strip()
    if not key and url and provider is PROVIDERS["openai"]:
        return NO_KEY
    if not key:
        raise UnknownPlanner(
            f"The planner {name!r} needs {provider.key} in the environment of the worker: set it, or choose another"
            " planner, e.g. offline."
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UnknownPlanner(f"{provider.key} holds characters that no key has: set it again.")
    return key


def _checked_url(url: str | None, provider: Provider) -> str | None:
    try:
        is_usable = url is None or (urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname))
    except ValueError:
        is_usable = False
    if not is_usable:
        raise UnknownPlanner(f"{provider.url} is no address: give one like http://localhost:11434/v1.")
    return url
