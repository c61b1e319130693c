"""Selects the planner and the models of a worker: from `--planner`, the environment, and the name in a task."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path

from pydantic import ValidationError

from activities.offline.planner import OfflinePlanner
from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from activities.planning.planner import Planner, ScriptedPlanner
from activities.planning.text_strategy import TextualModel
from activities.providers.adapter import AdapterOptions
from activities.providers.fallback import FallbackModel
from activities.providers.messages import LanguageModel
from activities.providers.metering import MeteredModel
from activities.providers.openai import OpenAIModel
from activities.providers.prices import PriceList
from activities.providers.registry import PROVIDERS, UnknownPlanner, local_facts, longest_reply, model_named
from activities.providers.strict import StrictModel


class PlannerSelection:
    """Holds the worker's planner and the model that its tools use, and makes the planners that tasks name."""

    def __init__(
        self,
        names: str | None,
        environment: Mapping[str, str],
        base_url: str | None = None,
        prices: PriceList | None = None,
        options: AdapterOptions | None = None,
    ) -> None:
        """Select the planner from `names`, as `planner_named` does; tools that need a model use the same models.

        Raises:
            UnknownPlanner: there is no such planner, its key is missing, or its file or address cannot be used.
        """
        self._environment, self._base_url, self._price_list = environment, base_url, prices or PriceList()
        self._options = options or AdapterOptions()
        self.planner = planner_named(names, environment, base_url, self._price_list, self._options)
        models = models_named(names, environment, base_url, self._options)
        self.prices = {model.name: self._price_list.price_of(model.name) for model in models}
        self._models = models
        metered = [TextualModel(MeteredModel(model, self.prices[model.name]), self._options) for model in models]
        self.step_model: LanguageModel | None = (
            FallbackModel(metered) if len(metered) > 1 else next(iter(metered), None)
        )

    @property
    def described(self) -> str:
        """The planner's name, with the API that is used for each model of OpenAI."""
        models = [model.plain if isinstance(model, StrictModel) else model for model in self._models]
        apis = {model.name: f" ({model.apis})" for model in models if isinstance(model, OpenAIModel)}
        return ", ".join(f"{name}{apis.get(name, '')}" for name in self.planner.name.split(", "))

    @property
    def price_date(self) -> date | None:
        """The oldest day on which a published price of the worker's models was known to be valid; None if none is
        published."""
        return min(filter(None, map(self._price_list.date_of, self.prices)), default=None)

    def for_task(self, names: str) -> Planner:
        """Make the planner that a task names.

        Raises:
            UnknownPlanner: the planner cannot be made, or is a script, which only the worker's own options may name.
        """
        if any(name.startswith("scripted") for name in _listed(names)):
            raise UnknownPlanner("A task cannot name a script: start a worker with --planner scripted:FILE.")
        # The worker's `--base-url` is the address of an `openai` server, not of another provider's.
        is_openai = any(_provider(name) == "openai" for name in _listed(names))
        base_url = self._base_url if is_openai else None
        return planner_named(names, self._environment, base_url, self._price_list, self._options)


def planner_named(
    names: str | None,
    environment: Mapping[str, str],
    base_url: str | None = None,
    prices: PriceList | None = None,
    options: AdapterOptions | None = None,
) -> Planner:
    """Make the planner for `names`, the value of `--planner`.

    It is `scripted:FILE`, or one or more of `offline`, `anthropic:MODEL`, `openai:MODEL`, `ollama:MODEL` and
    `lmstudio:MODEL`, joined by commas; the first usable one plans. `anthropic` and `openai` alone mean the provider's
    default model. If `names` is None, the first provider with a key in the environment plans, or the offline planner
    if there is no key. `base_url` is the address of the server for `openai`.

    Raises:
        UnknownPlanner: there is no such planner, its key is missing, or its file or address cannot be used.
    """
    chosen = names if names is not None else _default(environment, base_url)
    if chosen.startswith("scripted:"):
        return _scripted(chosen)
    if base_url and not any(_provider(name) == "openai" for name in _listed(chosen)):
        raise UnknownPlanner("--base-url is for a server that speaks as OpenAI does: add --planner openai:MODEL.")
    planners = [_planner(name, environment, base_url, prices or PriceList(), options) for name in _listed(chosen)]
    return planners[0] if len(planners) == 1 else FallbackPlanner(planners)


def models_named(
    names: str | None,
    environment: Mapping[str, str],
    base_url: str | None = None,
    options: AdapterOptions | None = None,
) -> list[LanguageModel]:
    """Make the models for `names`, the value of `--planner`; a script and the offline planner have no models.

    Raises:
        UnknownPlanner: there is no such provider, its key is missing, or its address cannot be used.
    """
    chosen = names if names is not None else _default(environment, base_url)
    if chosen.startswith("scripted:"):
        return []
    return [
        model_named(name, environment, base_url, options) for name in _listed(chosen) if name != OfflinePlanner.name
    ]


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def _provider(name: str) -> str:
    return name.partition(":")[0]


def _default(environment: Mapping[str, str], base_url: str | None) -> str:
    # A base URL is the address of a server with the OpenAI protocol.
    if base_url:
        return "openai"
    with_key = (name for name, provider in PROVIDERS.items() if environment.get(provider.key, "").strip())
    return next(with_key, OfflinePlanner.name)


def _planner(
    name: str,
    environment: Mapping[str, str],
    base_url: str | None,
    prices: PriceList,
    options: AdapterOptions | None,
) -> Planner:
    if name == OfflinePlanner.name:
        return OfflinePlanner()
    model = model_named(name, environment, base_url, options)
    price, window = prices.price_of(model.name), prices.window_of(model.name)
    return ModelPlanner(
        model,
        price=price,
        window=window,
        compact_at=prices.compact_at,
        longest_reply=longest_reply(model.name),
        options=options,
        facts=local_facts(name, environment),
    )


def _scripted(name: str) -> ScriptedPlanner:
    file = name.removeprefix("scripted:")
    if not file:
        raise UnknownPlanner(f"There is no planner {name!r}: use offline, or scripted:FILE.")
    try:
        return ScriptedPlanner.read(Path(file))
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no JSON list of proposals"
        raise UnknownPlanner(f"The script {file!r} cannot be used ({reason}): give a file of proposals.") from error
