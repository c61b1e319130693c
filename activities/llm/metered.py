"""The model that a tool is given: each answer is counted, and waited for no longer than the attempt lasts."""

from dataclasses import dataclass, field

from activities.llm.asking import ask
from activities.llm.language_model import LanguageModel, Request
from activities.llm.prices import usd
from activities.llm.reply import Reply, Usage
from activities.toolbox import deadline
from workflows.catalogue import Price
from workflows.faults import ModelUse


@dataclass
class Meter:
    """What one attempt used of models."""

    price: Price | None = None
    """What the tokens of the worker's model cost; None where nobody said."""
    asked: int = 0
    """Questions, answered or not."""
    answers: list[Usage] = field(default_factory=list)

    @property
    def known(self) -> ModelUse | None:
        """What was used, where every question was answered."""
        return ModelUse(calls=self.asked, tokens=self.tokens, usd=self.usd) if self.asked == len(self.answers) else None

    @property
    def tokens(self) -> int:
        """Of all answers."""
        return sum(usage.tokens for usage in self.answers)

    @property
    def usd(self) -> float | None:
        """US dollars; None where the price is not known, or no model was asked."""
        costs = [usd(usage, self.price) for usage in self.answers]
        return sum(cost for cost in costs if cost is not None) if costs and None not in costs else None


class MeteredModel:
    """A model whose answers are counted."""

    def __init__(self, model: LanguageModel, meter: Meter) -> None:
        """Ask `model`, and tell `meter` what was used."""
        self.name = model.name
        self._model = model
        self._meter = meter

    async def reply(self, request: Request) -> Reply:
        """Ask once.

        Raises:
            Unreachable: the time of the attempt was over before the answer came.
            Exception: what the provider's SDK raises, for the tables of `activities.borders`.
        """
        self._meter.asked += 1
        reply = await ask(self._model, request, deadline.left(), "step")
        self._meter.answers.append(reply.usage)
        return reply
