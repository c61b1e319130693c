"""The model that a tool is given: each answer is counted, and waited for no longer than the attempt lasts."""

import asyncio
import re
from dataclasses import asdict, dataclass, field
from typing import Literal

import structlog
from temporalio import activity

from activities import deadline
from activities.errors import Unreachable
from activities.providers.messages import LanguageModel, Reply, Request, Usage
from activities.providers.prices import usd
from workflows.catalogue import Price
from workflows.faults import ModelUse

log = structlog.get_logger("replan.model")

Role = Literal["planner", "compaction", "step"]
"""What the answer is for."""
NAME = re.compile(r"[A-Za-z0-9_]{1,60}")


async def ask(model: LanguageModel, request: Request, patience: float | None, role: Role) -> Reply:
    """Ask once, and wait for the answer at most `patience` seconds; without, as long as the SDK's client does.

    Raises:
        Unreachable: there was none in time.
        Exception: what the provider's SDK raises, for the tables of `activities.borders`.
    """
    about = {**_where(), "role": role, "model": model.name}
    try:
        async with asyncio.timeout(patience):  # the SDKs' own timeouts begin anew with each byte
            reply = await model.reply(request)
    except Exception as error:
        log.warning("model_failed", **about, error=type(error).__name__, **_named(error))
        if isinstance(error, TimeoutError):
            within = "" if patience is None else f" within {round(patience, 1):g} s"
            raise Unreachable(f"{model.name} gave no answer{within}.", code="timeout") from None
        raise
    log.info("model", **about, stop=reply.stop.value, **asdict(reply.usage))
    return reply


def _where() -> dict[str, str]:
    """For whom the model is asked."""
    if not activity.in_activity():
        return {}
    info = activity.info()
    return {"task": info.workflow_id or "", "step": info.activity_id}


def _named(error: Exception) -> dict[str, str]:
    """What a provider's support asks for; its words may quote keys and prompts, so only what is a name is kept."""
    found = {
        name: str(getattr(error, name, None) or "")
        for name in ("status_code", "type", "code", "error_code", "request_id")
    }
    return {name: value for name, value in found.items() if NAME.fullmatch(value)}


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
