"""The activity `find_effect`: whether a transactional call happened stands in the ledger."""

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity

from activities.attempt import attempt
from activities.ledger import find
from activities.toolbox.errors import Refused
from workflows import routing
from workflows.plan import StepReturn


class Finding:
    """Looks effects up."""

    def __init__(self, ledgers: Iterable[AsyncEngine]) -> None:
        """Look into these."""
        self._ledgers = tuple(ledgers)

    def activities(self) -> list[Callable[..., Any]]:
        """What the worker registers."""
        return [self.find_effect]

    @activity.defn(name=routing.FIND_EFFECT.kind)
    async def find_effect(self, wanted: dict[str, str]) -> StepReturn:
        """What the call with the key `key` came to."""
        async with attempt(routing.FIND_EFFECT) as this:
            for engine in self._ledgers:
                if found := await find(engine, wanted["key"]):
                    return StepReturn(result=found.result, attempt=this.number, replayed=True)
            raise Refused("No ledger of this worker has such an effect.", code="not_found")
