"""What a worker says of itself: versions, the places that it works with, the names of its keys; never a secret."""

import asyncio
import os
import platform
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity, service

from activities.borders import classify
from activities.store import OWN, metadata, spoken
from activities.tuning import file_of
from workflows.faults import Code
from workflows.inspect import Place, WorkerCard

LOOK_SECONDS = 3.0
"""How long a look at one place may take."""
LEDGERS = frozenset({"replan_ledger"})
"""The tables of ours that a datasource has."""
WRITTEN = frozenset({"state", "workspace"})
"""The folders that are written to; the others are read."""


class Host:
    """One worker's process and what it was given."""

    def __init__(
        self,
        engine: AsyncEngine,
        folders: Mapping[str, Path | None],
        keys: Mapping[str, bool],
        version: str,
        datasources: Iterable[AsyncEngine] = (),
    ) -> None:
        """Speak of this store, these folders and these datasources.

        `keys` says by name which keys the environment has; the store may be among the datasources.
        """
        self._engine = engine
        self._brought = tuple(one for one in datasources if one is not engine)
        self._folders = {name: path.absolute() if path else None for name, path in folders.items()}
        self._keys = dict(keys)
        self._version = version

    async def card(self) -> WorkerCard:
        """How the worker stands, in about three seconds at the most."""
        store = _database("store", self._engine, {**OWN.tables, **metadata.tables})
        brought = (_database("datasource", engine, LEDGERS) for engine in self._brought)
        looks = [store, *brought, *(_folder(name, path) for name, path in self._folders.items())]
        return WorkerCard(
            version=self._version,
            python=platform.python_version(),
            sdk=service.__version__,
            places=tuple(await asyncio.gather(*looks)),
            keys=self._keys,
            clock=datetime.now(UTC),
            server_clock=activity.info().started_time,
        )


async def _database(name: str, engine: AsyncEngine, tables: Collection[str]) -> Place:
    return Place(name=name, where=spoken(engine.url), problem=await _wrong_with_database(engine, tables))


async def _wrong_with_database(engine: AsyncEngine, tables: Collection[str]) -> str | None:
    file = file_of(engine)
    try:
        async with asyncio.timeout(LOOK_SECONDS), engine.connect() as connection:
            missing = await connection.run_sync(_missing, tables)
    except TimeoutError:
        return f"it gave no answer within {LOOK_SECONDS:g} s"
    except Exception as error:  # total: what the border's tables say is said, never the driver's own words
        fault = classify(error)
        return f"it cannot be read ({type(error).__name__})" if fault.code is Code.BUG else fault.reason.rstrip(".")
    if missing:
        return f"it lacks the tables {', '.join(missing)}"
    # a file that was deleted stays readable for whoever has it open
    return await asyncio.to_thread(_wrong_with, file, os.path.isfile, os.R_OK | os.W_OK) if file else None


def _missing(connection: Connection, tables: Collection[str]) -> list[str]:
    return sorted(set(tables) - set(sqlalchemy.inspect(connection).get_table_names()))


async def _folder(name: str, path: Path | None) -> Place:
    if path is None:
        return Place(name=name, where=None)
    mode = os.R_OK | os.X_OK | (os.W_OK if name in WRITTEN else 0)
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            problem = await asyncio.to_thread(_wrong_with, path, os.path.isdir, mode)
    except TimeoutError:
        problem = f"it gave no answer within {LOOK_SECONDS:g} s"
    return Place(name=name, where=str(path), problem=problem)


def _wrong_with(path: Path, is_there: Callable[[Path], bool], mode: int) -> str | None:
    if not is_there(path):
        return "it is not there any more"
    return None if os.access(path, mode) else f"the worker may not {'write' if mode & os.W_OK else 'read'} there"
