"""Asks a model with a timeout and a log line, and counts what one attempt of a step used: requests, tokens, dollars."""

import asyncio
import re
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import structlog
from temporalio import activity

from activities import deadline
from activities.errors import Unreachable
from activities.providers.messages import LanguageModel, Reply, Request, Usage
from activities.providers.prices import cost_in_usd
from workflows.catalogue import Price
from workflows.faults import ModelUse
from workflows.spending import MAX_OUTPUT

log = structlog.get_logger("replan.model")

Role = Literal["planner", "compaction", "step"]
"""The purpose of a request to a model."""
IDENTIFIER = re.compile(r"[A-Za-z0-9_]{1,60}")


async def ask_model(model: LanguageModel, request: Request, patience: float | None, role: Role) -> Reply:
    """Ask once, and wait for the reply at most `patience` seconds; with None, only the SDK's own timeout counts.

    Raises:
        Unreachable: there was no reply in time.
        Exception: any exception of the provider's SDK; the tables of `activities.borders` translate it to a Fault.
    """
    about = {"role": role, "model": model.name}
    if activity.in_activity():
        info = activity.info()
        about = {"task": info.workflow_id or "", "step": info.activity_id, **about}
    try:
        # The SDKs' own timeouts start again with each byte.
        async with asyncio.timeout(patience):
            reply = await model.reply(request)
    except Exception as error:
        log.warning("model_failed", **about, error=type(error).__name__, **_identifiers(error))
        if isinstance(error, TimeoutError):
            within = "" if patience is None else f" within {round(patience, 1):g} s"
            raise Unreachable(f"{model.name} gave no answer{within}.", code="timeout") from None
        raise
    log.info("model", **about, stop=reply.stop.value, **asdict(reply.usage))
    return reply


def _identifiers(error: Exception) -> dict[str, str]:
    """The status, codes and request id of an error, for the log."""
    # Not its message, which may quote keys and prompts.
    found = {
        name: str(getattr(error, name, None) or "")
        for name in ("status_code", "type", "code", "error_code", "request_id")
    }
    return {name: value for name, value in found.items() if IDENTIFIER.fullmatch(value)}


@dataclass
class Meter:
    """The requests that one attempt of a step sent to models, and the tokens that they used."""

    price: Price | None = None
    """The price of the worker's model; None if it is unknown."""
    requests: int = 0
    """The number of requests, with or without a reply."""
    replies: list[Usage] = field(default_factory=list)
    """The tokens of each request that got a reply."""

    @property
    def known_use(self) -> ModelUse | None:
        """Requests, tokens and US dollars; None if a request has no reply, so that its tokens are unknown."""
        if self.requests != len(self.replies):
            return None
        return ModelUse(calls=self.requests, tokens=self.tokens, usd=self.usd)

    @property
    def tokens(self) -> int:
        return sum(usage.tokens for usage in self.replies)

    @property
    def usd(self) -> float | None:
        """The cost in US dollars; None if the price is unknown, or there was no reply."""
        costs = [cost_in_usd(usage, self.price) for usage in self.replies]
        return sum(cost for cost in costs if cost is not None) if costs and None not in costs else None


class MeteredModel:
    """The model that a tool is given: its use is counted, and it must answer before the attempt's deadline."""

    def __init__(self, model: LanguageModel, meter: Meter) -> None:
        self.name = model.name
        self._model = model
        self._meter = meter

    async def reply(self, request: Request) -> Reply:
        """Count the request, and ask once; raises what `ask_model` raises."""
        self._meter.requests += 1
        request = replace(request, max_output=request.max_output or MAX_OUTPUT)  # else its step could use any number
        reply = await ask_model(self._model, request, deadline.left(), "step")
        self._meter.replies.append(reply.usage)
        return reply
