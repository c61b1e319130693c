"""The databases that tools brought, beside the store: each has a ledger, for the effects that happen there."""

from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack

from sqlalchemy.ext.asyncio import AsyncEngine

from activities.storage.migrations import Stream
from activities.storage.store import is_lasting, opening, prepare
from activities.toolbox.declare.kind import Kind

CHECK = "check its URL in the tools file, and that the worker may make tables there"


async def adopt(engine: AsyncEngine) -> None:
    """Use a database of a tool as the store is used, and bring its ledger to the newest revision.

    Raises:
        StoreUnavailable: it cannot be opened, or is of a newer Replan.
    """
    with opening("The datasource", engine.url, CHECK, "start a newer Replan"):
        await prepare(engine, Stream.LEDGER)


class Datasources:
    """The store and, after it, the other databases of the kinds."""

    def __init__(self, store: AsyncEngine, kinds: Iterable[Kind] = ()) -> None:
        """Know them; nothing is opened yet."""
        self.store = store
        self._brought = tuple(dict.fromkeys(kind.datasource for kind in kinds if kind.datasource is not None))

    def __iter__(self) -> Iterator[AsyncEngine]:
        """Each database with a ledger once, the store first, however many engines lead to it."""
        places = dict[object, AsyncEngine]()
        for engine in (self.store, *self._brought):
            places.setdefault(_place(engine), engine)
        return iter(places.values())

    def engine_of(self, kind: Kind) -> AsyncEngine:
        """Where a kind's transactions happen."""
        return kind.datasource or self.store

    async def open(self, opened: AsyncExitStack) -> None:
        """Adopt all but the store, and let `opened` close them.

        Raises:
            StoreUnavailable: one of them cannot be opened; the message says which.
        """
        for engine in self._brought:
            opened.push_async_callback(engine.dispose)
            await adopt(engine)


def _place(engine: AsyncEngine) -> object:
    """Equal for engines of one database, as far as their URLs tell; each database in memory is one of its own."""
    return engine.url.set(query={}) if is_lasting(engine) else engine
