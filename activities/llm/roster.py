"""Whom a worker may ask: its planner, the planners that tasks name, and the model for steps."""

from collections.abc import Mapping

from activities.llm.language_model import LanguageModel
from activities.llm.planners import models_named, planner_named
from activities.llm.prices import Rates, dearest
from activities.llm.stand_in import StandIn
from activities.planner import Planner, UnknownPlanner
from workflows.catalogue import Price


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
