"""The activity `find_effect`: whether a transactional call happened stands in the ledger."""

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity

from activities.attempt import attempt
from activities.effects import Effects
from activities.ledger import Once, Unanswered, find
from activities.toolbox.errors import NeedsPerson, Refused
from workflows import routing
from workflows.plan import StepReturn


class Finding:
    """Looks effects up."""

    def __init__(self, ledgers: Iterable[AsyncEngine], store: str | None = None) -> None:
        """Look into these, for tasks that work with `store`, the first of them."""
        self._ledgers = tuple(ledgers)
        self._effects = Effects(self._ledgers[0], store, self._ledgers)

    def activities(self) -> list[Callable[..., Any]]:
        """What the worker registers."""
        return [self.find_effect]

    @activity.defn(name=routing.FIND_EFFECT.kind)
    async def find_effect(self, wanted: dict[str, str]) -> StepReturn:
        """What the call with the key `key` came to."""
        async with attempt(routing.FIND_EFFECT) as this:
            self._effects.check_store(this)
            for engine in self._ledgers:
                if found := await self._find(engine, wanted["key"]):
                    return StepReturn(result=found.result, attempt=this.number, replayed=True)
            raise Refused("No ledger of this worker has such an effect.", code="not_found")

    async def _find(self, engine: AsyncEngine, key: str) -> Once | None:
        try:
            return await find(engine, key)
        except Unanswered:
            raise NeedsPerson("The ledger has the call, but not what it came to.") from None
