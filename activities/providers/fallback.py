"""Asks models or planners in an order of preference: if one is unusable and no retry can help, asks the next one."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import structlog
from temporalio import activity

from activities.borders import classify
from activities.providers.messages import LanguageModel, Reply, Request
from workflows.faults.fault import Code, Fault, Quadrant
from workflows.limits.spending import may_be_billed
from workflows.plans.proposal import PassedOver

log = structlog.get_logger("replan.model")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Candidate = TypeVar("Candidate", bound=_Named)
Result = TypeVar("Result")


async def ask_first_usable(
    candidates: Sequence[Candidate], ask: Callable[[Candidate], Awaitable[Result]], passed_over: list[PassedOver]
) -> Result:
    """Return the answer of the first usable candidate; add the unusable candidates before it to `passed_over`.

    A candidate is unusable if only a person can repair it, if it asks for a longer wait than the wait before a retry,
    or if it fails at the last attempt of the activity with a transient error that is not billed. Each call begins with
    the first candidate again, so that a repaired candidate is used at once.

    Raises:
        Exception: the first error that does not make a candidate unusable, or that is a bug. If all candidates are
            unusable: the transient error with the shortest wait, or the last candidate's error if none is transient.
    """
    errors = list[tuple[float, Exception]]()
    for candidate in candidates:
        try:
            return await ask(candidate)
        except Exception as error:  # total: `classify` knows every exception
            fault = classify(error)
            if not _is_unusable(fault):
                raise
            log.warning("passed_over", model=candidate.name, code=fault.code.value, reason=fault.reason)
            passed_over.append(PassedOver(planner=candidate.name, code=fault.code.value, reason=fault.reason))
            errors.append((fault.retry_after or 0.0 if fault.quadrant.is_transient else math.inf, error))
    chosen = min(reversed(range(len(errors))), key=lambda index: errors[index][0])
    del passed_over[chosen]
    raise errors[chosen][1]


def _is_unusable(fault: Fault) -> bool:
    """Whether to ask the next candidate, because a retry cannot help, would come too late, or is not allowed."""
    if fault.quadrant is Quadrant.PERSISTENT_INFRASTRUCTURAL:
        return fault.code is not Code.BUG
    # A reply that may be billed would not be counted if the next candidate answered.
    is_unbilled = fault.quadrant.is_transient and not may_be_billed(fault)
    return fault.asks_long_wait or (is_unbilled and _is_last_attempt())


def _is_last_attempt() -> bool:
    if not activity.in_activity():
        return False
    info = activity.info()
    return info.retry_policy is not None and 0 < info.retry_policy.maximum_attempts <= info.attempt


class FallbackModel:
    """A model that sends each request to several models in order, until one is usable."""

    def __init__(self, models: Sequence[LanguageModel]) -> None:
        self._models = tuple(models)
        self.name = ", ".join(model.name for model in models)

    async def reply(self, request: Request) -> Reply:
        return await ask_first_usable(self._models, lambda model: model.reply(request), [])
