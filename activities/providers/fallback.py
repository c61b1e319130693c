"""Several models in an order: where one cannot be used, and time will not change that, the next one answers."""

from collections.abc import Sequence

import structlog

from activities.borders import classify
from activities.providers.messages import LanguageModel, Reply, Request
from workflows.faults import Code, Fault, Quadrant

log = structlog.get_logger("replan.model")


class StandIn:
    """Asks each time the first model first, so that a key which was mended is used at once."""

    def __init__(self, models: Sequence[LanguageModel]) -> None:
        """Ask in this order; there is at least one."""
        self._models = tuple(models)
        self.name = ", ".join(model.name for model in models)

    async def reply(self, request: Request) -> Reply:
        """The answer of the first model that can be used; each that cannot costs a request.

        Raises:
            Exception: what the last one raised, or the first that raised what time or a mended program can cure.
        """
        *others, last = self._models
        for model in others:
            try:
                return await model.reply(request)
            except Exception as error:  # total: whatever the borders call persistent and not ours
                fault = classify(error)
                if not is_unusable(fault):
                    raise
                log.warning("model_unusable", model=model.name, code=fault.code.value, reason=fault.reason)
        return await last.reply(request)


def is_unusable(fault: Fault) -> bool:
    """Whether nobody but a person can make usable what was asked."""
    return fault.quadrant is Quadrant.PERSISTENT_INFRASTRUCTURAL and fault.code is not Code.BUG
