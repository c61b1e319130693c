"""Whom a worker may ask: its planner, the planners that tasks name, and the model for steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from activities.offline.planner import OfflinePlanner
from activities.planning.failover import Failover
from activities.planning.model_planner import ModelPlanner
from activities.planning.planner import Planner, ScriptedPlanner, UnknownPlanner
from activities.providers import anthropic, openai
from activities.providers.fallback import StandIn
from activities.providers.messages import LanguageModel
from activities.providers.prices import Rates, dearest
from activities.providers.wire import Endpoint
from workflows.catalogue import Price


@dataclass(frozen=True)
class Provider:
    """A provider of models, and the names by which its own client finds key and address."""

    model: Callable[[str, Endpoint], LanguageModel]
    default: str
    """The model where none is named."""
    key: str
    url: str


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(anthropic.AnthropicModel, anthropic.DEFAULT, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "openai": Provider(openai.OpenAIModel, openai.DEFAULT, "OPENAI_API_KEY", "OPENAI_BASE_URL"),
}
"""In the order in which they are taken where no planner is named."""
NO_KEY = "none"
"""What is sent to a server of one's own where there is no key: most want none, and the client sends something."""


def planner_named(
    names: str | None, environment: Mapping[str, str], base_url: str | None = None, rates: Rates | None = None
) -> Planner:
    """The planner that `--planner` means: one, or several with commas between them, of which the first that can plans.

    `offline`, `anthropic:MODEL`, `openai:MODEL` (without `:MODEL` the default one), or `scripted:FILE` alone. Where
    none is named, the first provider with a key in the environment plans, else the offline planner. `base_url` is
    where the server for `openai` is, and `rates` what is known of the models' prices.

    Raises:
        UnknownPlanner: there is no such planner, its key is missing, or its file or address cannot be used.
    """
    chosen = names if names is not None else _default(environment, base_url)
    if chosen.startswith("scripted:"):
        return _scripted(chosen)
    listed = [name.strip() for name in chosen.split(",")]
    if base_url and not any(name.partition(":")[0] == "openai" for name in listed):
        raise UnknownPlanner("--base-url is for a server that speaks as OpenAI does: add --planner openai:MODEL.")
    planners = [_planner(name, environment, base_url, rates or Rates()) for name in listed]
    return planners[0] if len(planners) == 1 else Failover(planners)


def models_named(names: str | None, environment: Mapping[str, str], base_url: str | None = None) -> list[LanguageModel]:
    """The models that steps may ask: those of the planner that `--planner` means, in their order.

    Raises:
        UnknownPlanner: there is no such planner, its key is missing, or its address cannot be used.
    """
    chosen = names if names is not None else _default(environment, base_url)
    listed = [] if chosen.startswith("scripted:") else [name.strip() for name in chosen.split(",")]
    return [_model(name, environment, base_url) for name in listed if name != OfflinePlanner.name]


def _default(environment: Mapping[str, str], base_url: str | None) -> str:
    if base_url:
        return "openai"
    return next((name for name, one in PROVIDERS.items() if environment.get(one.key, "").strip()), "offline")


def _planner(name: str, environment: Mapping[str, str], base_url: str | None, rates: Rates) -> Planner:
    if name == OfflinePlanner.name:
        return OfflinePlanner()
    asked = _model(name, environment, base_url)
    price, window = rates.price_of(asked.name), rates.window_of(asked.name)
    return ModelPlanner(asked, price=price, window=window, compact_at=rates.compact_at)


def _model(name: str, environment: Mapping[str, str], base_url: str | None) -> LanguageModel:
    which, _, model = name.partition(":")
    provider = PROVIDERS.get(which)
    if provider is None or name.endswith(":"):
        there = "use offline, anthropic:MODEL, openai:MODEL, or scripted:FILE alone"
        raise UnknownPlanner(f"There is no planner {name!r}: {there}.")
    url = (base_url if which == "openai" else None) or environment.get(provider.url, "").strip() or None
    endpoint = Endpoint(_key(name, provider, environment, url), _checked(url, provider))
    return provider.model(model or provider.default, endpoint)


def _key(name: str, provider: Provider, environment: Mapping[str, str], url: str | None) -> str:
    key = environment.get(provider.key, "").strip()
    if not key and url and provider is PROVIDERS["openai"]:
        return NO_KEY
    if not key:
        raise UnknownPlanner(f"The planner {name!r} needs {provider.key} in the environment of the worker.")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UnknownPlanner(f"{provider.key} holds characters that no key has: set it again.")
    return key


def _checked(url: str | None, provider: Provider) -> str | None:
    try:
        usable = url is None or (urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname))
    except ValueError:
        usable = False
    if not usable:
        option = "--base-url or " if provider is PROVIDERS["openai"] else ""
        raise UnknownPlanner(f"{option}{provider.url} is no address: give one like http://localhost:11434/v1.")
    return url


def _scripted(name: str) -> ScriptedPlanner:
    file = name.removeprefix("scripted:")
    if not file:
        raise UnknownPlanner(f"There is no planner {name!r}: use offline, or scripted:FILE.")
    try:
        return ScriptedPlanner.read(Path(file))
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no JSON list of proposals"
        raise UnknownPlanner(f"The script {file!r} cannot be used ({reason}): give a file of proposals.") from error


class Roster:
    """All of them, by the options and the environment that the worker was started with."""

    def __init__(
        self, names: str | None, environment: Mapping[str, str], base_url: str | None = None, rates: Rates | None = None
    ) -> None:
        """Find the planner that `names` mean, as `planner_named` says; its models are those for steps, too.

        Raises:
            UnknownPlanner: there is no such planner, its key is missing, or its file or address cannot be used.
        """
        self._environment, self._base_url, self._rates = environment, base_url, rates or Rates()
        self.planner = planner_named(names, environment, base_url, self._rates)
        models = models_named(names, environment, base_url)
        self.model: LanguageModel | None = StandIn(models) if len(models) > 1 else next(iter(models), None)
        self.prices = {model.name: self._rates.price_of(model.name) for model in models}

    @property
    def price(self) -> Price | None:
        """What a token of a step costs, at the most; None where that is not known."""
        return dearest(self.prices.values())

    def named(self, names: str) -> Planner:
        """The planner that a task names.

        Raises:
            UnknownPlanner: this worker cannot make it; files are its own business, not that of a task.
        """
        listed = [name.strip() for name in names.split(",")]
        if any(name.startswith("scripted") for name in listed):
            raise UnknownPlanner("A task cannot name a script: start a worker with --planner scripted:FILE.")
        is_here = any(name.partition(":")[0] == "openai" for name in listed)
        return planner_named(names, self._environment, self._base_url if is_here else None, self._rates)
