"""The front desk that these tests share."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities.store import open_store, sqlite_url
from tests.activities.desk.front import Desk, open_desk


@pytest.fixture(scope="session")
async def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store with the demo world in it, made once."""
    folder = tmp_path_factory.mktemp("world")
    made = await open_desk(folder)
    await made.engine.dispose()
    return folder / "store.db"


@pytest.fixture
async def desk(world: Path, tmp_path: Path) -> AsyncIterator[Desk]:
    """The demo world in a store of the test's own."""
    shutil.copy(world, tmp_path)
    own = Desk(await open_store(sqlite_url(tmp_path)))
    yield own
    await own.engine.dispose()
