"""Asks models or planners in an order of preference: if one cannot be used, and no retry can help, the next one."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import structlog

from activities.borders import classify
from activities.providers.messages import LanguageModel, Reply, Request
from workflows.faults import Code, Quadrant
from workflows.plan import PassedOver

log = structlog.get_logger("replan.model")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Candidate = TypeVar("Candidate", bound=_Named)
Result = TypeVar("Result")


async def ask_first_usable(
    candidates: Sequence[Candidate],
    ask: Callable[[Candidate], Awaitable[Result]],
    passed_over: list[PassedOver] | None = None,
) -> Result:
    """The answer of the first usable candidate; each unusable candidate before it is added to `passed_over`.

    Each call begins with the first candidate again, so a repaired key is used at once.

    Raises:
        Exception: the error of the last candidate; or the first error that is a bug or not PERSISTENT_INFRASTRUCTURAL.
    """
    *others, last = candidates
    for candidate in others:
        try:
            return await ask(candidate)
        except Exception as error:  # total: `classify` knows every exception
            fault = classify(error)
            # Ask the next one only for a broken deployment, as with a rejected key: a retry cannot help there.
            if fault.quadrant is not Quadrant.PERSISTENT_INFRASTRUCTURAL or fault.code is Code.BUG:
                raise
            log.warning("passed_over", name=candidate.name, code=fault.code.value, reason=fault.reason)
            if passed_over is not None:
                passed_over.append(PassedOver(planner=candidate.name, code=fault.code.value, reason=fault.reason))
    return await ask(last)


class FallbackModel:
    """A model that asks several models in order until it finds a usable model; each unusable model costs a request."""

    def __init__(self, models: Sequence[LanguageModel]) -> None:
        self._models = tuple(models)
        self.name = ", ".join(model.name for model in models)

    async def reply(self, request: Request) -> Reply:
        return await ask_first_usable(self._models, lambda model: model.reply(request))
