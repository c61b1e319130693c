"""Selects the planner and the models of a worker: from `--planner`, the environment, and the name in a task."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path

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
        prices: PriceList | None = None,
        options: AdapterOptions | None = None,
    ) -> None:
        """Make the planner for `names`, the value of `--planner`; tools that need a model use the same models.

        It is `scripted:FILE`, or one or more of `offline`, `anthropic:MODEL`, `openai:MODEL`, `ollama:MODEL` and
        `lmstudio:MODEL`, joined by commas; the first usable one plans. `anthropic` and `openai` alone mean the
        provider's default model. If `names` is None, the first provider with a key in the environment plans, or the
        offline planner if there is no key.

        Raises:
            UnknownPlanner: there is no such planner, its key is missing, or its file or address cannot be used.
        """
        self._environment = environment
        self._price_list, self._options = prices or PriceList(), options or AdapterOptions()
        chosen = names if names is not None else _default_name(environment)
        self.planner = self._make_planner(chosen)
        of_models = [name for name in _split_names(chosen) if name != OfflinePlanner.name]
        named = [] if chosen.startswith("scripted:") else of_models
        self.models = [model_named(name, environment, self._options) for name in named]
        self.prices = {model.name: self._price_list.price_of(model.name) for model in self.models}
        metered = [TextualModel(MeteredModel(model, self.prices[model.name]), self._options) for model in self.models]
        self.step_model: LanguageModel | None = (
            FallbackModel(metered) if len(metered) > 1 else next(iter(metered), None)
        )

    @property
    def described(self) -> str:
        """The planner's name, with the API that is used for each model of OpenAI."""
        models = [model.plain if isinstance(model, StrictModel) else model for model in self.models]
        apis = {model.name: f" ({model.apis})" for model in models if isinstance(model, OpenAIModel)}
        return ", ".join(f"{name}{apis.get(name, '')}" for name in self.planner.name.split(", "))

    @property
    def price_date(self) -> date | None:
        """The oldest day on which a published price of the worker's models was valid; None if no price is published."""
        return min(filter(None, map(self._price_list.date_of, self.prices)), default=None)

    def for_task(self, names: str) -> Planner:
        """Make the planner that a task names; raises UnknownPlanner, also for a script, which only a worker names."""
        if any(name.startswith("scripted") for name in _split_names(names)):
            raise UnknownPlanner("A task cannot name a script: start a worker with --planner scripted:FILE.")
        return self._make_planner(names)

    def _make_planner(self, names: str) -> Planner:
        if names.startswith("scripted:"):
            return _scripted(names)
        planners = [self._make_single_planner(name) for name in _split_names(names)]
        return planners[0] if len(planners) == 1 else FallbackPlanner(planners)

    def _make_single_planner(self, name: str) -> Planner:
        if name == OfflinePlanner.name:
            return OfflinePlanner()
        model = model_named(name, self._environment, self._options)
        return ModelPlanner(
            model,
            price=self._price_list.price_of(model.name),
            window=self._price_list.window_of(model.name),
            compact_at=self._price_list.compact_at,
            longest_reply=longest_reply(model.name),
            options=self._options,
            facts=local_facts(name, self._environment),
        )


def _split_names(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def _default_name(environment: Mapping[str, str]) -> str:
    with_key = (name for name, provider in PROVIDERS.items() if environment.get(provider.key, "").strip())
    return next(with_key, OfflinePlanner.name)


def _scripted(name: str) -> ScriptedPlanner:
    file = name.removeprefix("scripted:")
    if not file:
        raise UnknownPlanner(f"There is no planner {name!r}: use offline, or scripted:FILE.")
    try:
        return ScriptedPlanner.read(Path(file))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no JSON list of proposals"
        raise UnknownPlanner(f"The script {file!r} cannot be used ({reason}): give a file of proposals.") from error
