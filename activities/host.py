"""What a worker says of itself: versions, the places that it works with, the names of its keys; never a secret."""

import asyncio
import os
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity, service

from activities.borders import classify
from activities.store import metadata, spoken
from workflows.faults import Code
from workflows.inspect import Place, WorkerCard

LOOK_SECONDS = 3.0
"""How long a look at one place may take."""
WRITTEN = frozenset({"state", "workspace"})
"""The folders that are written to; the others are read."""


class Host:
    """One worker's process and what it was given."""

    def __init__(
        self, engine: AsyncEngine, folders: Mapping[str, Path | None], keys: Mapping[str, bool], version: str
    ) -> None:
        """Speak of this store and these folders; `keys` says by name which keys the environment has."""
        self._engine = engine
        self._folders = {name: path.absolute() if path else None for name, path in folders.items()}
        self._keys = dict(keys)
        self._version = version

    async def card(self) -> WorkerCard:
        """How the worker stands, in about three seconds at the most."""
        looks = [self._store(), *(_folder(name, path) for name, path in self._folders.items())]
        return WorkerCard(
            version=self._version,
            python=platform.python_version(),
            sdk=service.__version__,
            places=tuple(await asyncio.gather(*looks)),
            keys=self._keys,
            clock=datetime.now(UTC),
            server_clock=activity.info().started_time,
        )

    async def _store(self) -> Place:
        return Place(name="store", where=spoken(self._engine.url), problem=await self._wrong_with_store())

    async def _wrong_with_store(self) -> str | None:
        file = self._file()
        try:
            async with asyncio.timeout(LOOK_SECONDS), self._engine.connect() as connection:
                missing = await connection.run_sync(_missing_tables)
        except TimeoutError:
            return f"it gave no answer within {LOOK_SECONDS:g} s"
        except Exception as error:  # total: what the border's tables say is said, never the driver's own words
            fault = classify(error)
            return f"it cannot be read ({type(error).__name__})" if fault.code is Code.BUG else fault.reason.rstrip(".")
        if missing:
            return f"it lacks the tables {', '.join(missing)}"
        # a file that was deleted stays readable for whoever has it open
        return await asyncio.to_thread(_wrong_with, file, os.path.isfile, os.R_OK | os.W_OK) if file else None

    def _file(self) -> Path | None:
        """The file of an embedded store that has one."""
        name = self._engine.url.database or ":memory:"
        embedded = self._engine.dialect.name == "sqlite" and ":memory:" not in name
        return Path(name.removeprefix("file:")) if embedded else None


def _missing_tables(connection: Connection) -> list[str]:
    return sorted(set(metadata.tables) - set(sqlalchemy.inspect(connection).get_table_names()))


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
