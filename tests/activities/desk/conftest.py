"""The front desk that these tests share, on both databases."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from activities.storage.store import open_store, sqlite_url
from evals.fakes.postgresql import Cluster
from tests.activities.desk.front import Desk, open_desk


@pytest.fixture(scope="session")
async def world_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store with the demo world in it, made once."""
    folder = tmp_path_factory.mktemp("world")
    made = await open_desk(sqlite_url(folder))
    await made.engine.dispose()
    return folder / "store.db"


@pytest.fixture(scope="session")
async def world_database(postgresql: Cluster) -> str:
    """The name of a database with the demo world in it, made once."""
    name = postgresql.create()
    made = await open_desk(postgresql.url(name))
    await made.engine.dispose()
    return name


@pytest.fixture(scope="session")
def untouched() -> list[str]:
    """The databases with the demo world that tests left as they were, for the next ones."""
    return []


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store of the test's own, with the demo world in it."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("world_file"), tmp_path)
        yield sqlite_url(tmp_path)
        return
    cluster: Cluster = request.getfixturevalue("postgresql")
    template, untouched = request.getfixturevalue("world_database"), request.getfixturevalue("untouched")
    name = untouched.pop() if untouched else cluster.create(template)
    before = cluster.writes()
    yield cluster.url(name)
    if cluster.writes() == before:
        untouched.append(name)
    else:
        cluster.drop(name)


@pytest.fixture
async def desk(world: str) -> AsyncIterator[Desk]:
    own = Desk(await open_store(world))
    yield own
    await own.engine.dispose()
