"""The store: opened by its URL, migrated under a lock, and itself wherever it goes, on both databases."""

import asyncio
import hashlib
import sqlite3
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, text
from sqlalchemy.engine import Connection
from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriverClaim, StorageDriverRetrieveContext

from activities.boundary.breakers.rows import BREAKERS
from activities.effects.ledger import LEDGER
from activities.planning.transcript import TURNS
from activities.storage.migrations import Stream
from activities.storage.store import (
    REPLAN_TABLES,
    StoreUnavailable,
    file_of,
    open_store,
    sqlite_url,
    store_id,
    write,
    writing,
)
from activities.storage.vault import PAYLOADS, EndedTasks, Vault
from tests.gate import on_sqlite


async def change(url: str, *statements: str) -> None:
    """Change a store behind Replan's back."""
    engine = await open_store(url)
    async with writing(engine).begin() as tx:
        for statement in statements:
            await tx.execute(text(statement))
    await engine.dispose()


@on_sqlite
async def test_a_store_stays_itself(store_url: str) -> None:
    """Whoever opens it, and whenever."""
    first, second = await open_store(store_url), await open_store(store_url)
    ids = {await store_id(first), await store_id(second)}
    await first.dispose()
    await second.dispose()

    assert len(ids) == 1


async def test_another_store_is_another_one(tmp_path: Path) -> None:
    """Also where it has the same tables."""
    ids = list[str]()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        engine = await open_store(sqlite_url(tmp_path / name))
        ids.append(await store_id(engine))
        await engine.dispose()

    assert ids[0] != ids[1]


async def test_workers_may_open_a_new_store_at_the_same_moment(store_url: str) -> None:
    """One of them makes the tables, the others wait for it."""
    opened = await asyncio.gather(*(open_store(store_url) for _ in range(4)))
    ids = {await store_id(engine) for engine in opened}
    for engine in opened:
        await engine.dispose()

    assert len(ids) == 1


def differences(connection: Connection) -> list[object]:
    """What Alembic would change to make our tables what the code says they are."""
    ours = MetaData()
    for table in (BREAKERS, LEDGER, PAYLOADS, TURNS, *REPLAN_TABLES.tables.values()):
        if table.name not in ours.tables:
            table.to_metadata(ours)
    options = {"include_name": lambda name, what, _parents: what != "table" or name in ours.tables}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), ours))


async def test_migrations_make_the_tables_of_the_code(store_url: str) -> None:
    """Column by column, with types, nulls and indexes: whoever changes one must write a migration."""
    engine = await open_store(store_url)
    async with engine.connect() as connection:
        found = await connection.run_sync(differences)
    await engine.dispose()

    assert found == []


@pytest.mark.full
async def test_the_comparison_sees_a_difference(store_url: str) -> None:
    """Else the test above could not fail."""
    await change(store_url, "ALTER TABLE replan_ledger ADD COLUMN more VARCHAR(10)")
    engine = await open_store(store_url)
    async with engine.connect() as connection:
        found = await connection.run_sync(differences)
    await engine.dispose()

    assert len(found) == 1 and "more" in str(found[0])


ODD_FOLDERS = ["a?b=c", "50%41 %", "a#b", "two words", "Großbäckerei 東京", ":memory:", "file:x", "a&uri=true"]


@pytest.mark.parametrize("name", ODD_FOLDERS)
async def test_the_path_of_a_state_folder_is_no_url(tmp_path: Path, name: str) -> None:
    """Its letters name the folder, and nothing beside it is written."""
    (folder := tmp_path / name).mkdir()
    engine = await open_store(sqlite_url(folder))
    id, file = await store_id(engine), file_of(engine)
    await engine.dispose()
    again = await open_store(sqlite_url(folder))

    assert (file, await store_id(again)) == (folder / "store.db", id)
    await again.dispose()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert "store.db" in {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("name", ODD_FOLDERS)
async def test_a_relative_state_folder_is_no_url(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `--state` gives it."""
    monkeypatch.chdir(tmp_path)
    (folder := Path(name)).mkdir()
    engine = await open_store(sqlite_url(folder))
    await engine.dispose()

    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name / "store.db").exists()


async def test_a_url_of_sqlite_names_its_file(tmp_path: Path) -> None:
    """A store with `file:` is the file that SQLite opens, also where a letter is written with %."""
    (folder := tmp_path / "a b").mkdir()
    engine = await open_store(f"sqlite+aiosqlite:///file:{tmp_path}/a%2520b/store.db?uri=true")
    await engine.dispose()

    assert file_of(engine) == folder / "store.db"
    assert (folder / "store.db").exists()


@pytest.mark.parametrize("stream", [Stream.STORE, pytest.param(Stream.LEDGER, marks=pytest.mark.full)])
async def test_a_store_of_a_newer_replan_is_refused(store_url: str, stream: Stream) -> None:
    """With both revisions and the remedy, and without a password."""
    await change(store_url, f"UPDATE {stream.table} SET version_num = '9999'")  # noqa: S608  # our name

    with pytest.raises(StoreUnavailable) as refused:
        await open_store(store_url)
    known = f"its {stream} is at revision 9999, this one knows up to {stream.newest}"
    assert known in str(refused.value)
    assert str(refused.value).endswith("start a newer Replan, or another --store.")
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize("stream", Stream)
def test_the_newest_revision_is_the_one_that_alembic_applies(stream: Stream) -> None:
    """A database with it is opened without Alembic: the name of the file must have the number of the revision."""
    assert [stream.newest] == ScriptDirectory(stream.folder, version_locations=[stream.folder]).get_heads()


@pytest.mark.full
def test_a_worker_opens_a_store_that_exists_without_alembic(tmp_path: Path) -> None:
    """It takes a tenth of the worker's memory."""
    script = "import asyncio, sys; from activities.storage.store import open_store; "
    script += f"asyncio.run(open_store({sqlite_url(tmp_path)!r})); print('alembic' in sys.modules)"
    for newly in (True, False):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert done.stdout == f"{newly}\n"


@pytest.mark.filterwarnings("ignore:Selection of the StaticPool")
@pytest.mark.parametrize("database", ["", "/:memory:", "/file:x?mode=memory&cache=shared&uri=true"])
async def test_a_store_in_memory_is_refused(database: str) -> None:
    """Two event loops of a worker use the store: they would share a connection, or have two databases."""
    with pytest.raises(StoreUnavailable, match=r"is a database in memory: use a file, as in sqlite\+aiosqlite:///"):
        await open_store(f"sqlite+aiosqlite://{database}")


async def test_a_store_from_before_the_migrations_is_adopted(tmp_path: Path) -> None:
    """Tables of other names do not disturb."""
    (tmp_path / "store.db").touch()
    await change(sqlite_url(tmp_path), "CREATE TABLE ledger (key TEXT)", "CREATE TABLE payloads (task TEXT)")
    engine = await open_store(sqlite_url(tmp_path))
    id = await store_id(engine)
    await engine.dispose()

    assert id


async def test_a_store_of_the_version_before_there_were_owners_is_brought_along(store_url: str) -> None:
    """What lies in it is read as before, and is nobody's, so that it is not pruned."""
    data = Payload(data=b"large").SerializeToString(deterministic=True)
    digest = hashlib.sha256(data).hexdigest()
    columns, literal = "task, digest, size, stored, data", _literal(store_url, data)
    values = f"'task', '{digest}', {len(data)}, '2026-01-01 00:00:00', {literal}"
    insert = f"INSERT INTO replan_payloads ({columns}) VALUES ({values})"  # noqa: S608  # our values
    await change(
        store_url,
        "DROP TABLE replan_breakers",
        "DROP TABLE replan_tickets",
        "DROP TABLE replan_ahead",
        "DROP TABLE replan_words",
        "DROP TABLE replan_keys",
        "DROP TABLE replan_catalogues",
        "DROP TABLE replan_sessions",
        "DROP TABLE replan_owners",
        "DROP TABLE replan_listeners",
        "DROP TABLE replan_checked",
        "DROP INDEX replan_payloads_owner",
        "DROP INDEX replan_turns_owner",
        *(f"ALTER TABLE replan_payloads DROP COLUMN {name}" for name in ("namespace", "pruned", "pruned_by")),
        *(f"ALTER TABLE replan_turns DROP COLUMN {name}" for name in ("namespace", "workflow")),
        "UPDATE replan_store_revision SET version_num = '0002'",
        insert,
    )
    engine = await open_store(store_url)
    vault, claim = Vault(engine, "ours"), StorageDriverClaim({"task": "task", "digest": digest})
    [found] = await vault.retrieve(StorageDriverRetrieveContext(), [claim])
    pruned = await vault.prune(EndedTasks(closed=["task"], gone=["task"]), datetime.now(UTC), "me")
    await engine.dispose()

    assert (found, pruned.payloads) == (Payload(data=b"large"), 0)


def _literal(url: str, data: bytes) -> str:
    return f"X'{data.hex()}'" if url.startswith("sqlite") else f"decode('{data.hex()}', 'hex')"


@pytest.mark.parametrize("follows_effect", [True, False])
async def test_a_cancel_while_another_process_writes_loses_no_applied_effect(
    tmp_path: Path, follows_effect: bool
) -> None:
    """What follows an effect is written once the other has ended; all else ends at once, and writes nothing."""
    store = await open_store(sqlite_url(tmp_path))

    def record(tx: Connection) -> None:
        tx.execute(text("INSERT INTO written VALUES (1)"))

    async with store.begin() as tx:
        await tx.execute(text("CREATE TABLE written (number INTEGER)"))
    other = sqlite3.connect(store.url.database or "", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writer = asyncio.create_task(write(store, record, follows_effect=follows_effect))
    await asyncio.sleep(0.3)  # it has tried, and waits for the lock
    writer.cancel()
    await asyncio.sleep(0.3)
    ended_at_once = writer.done()
    other.execute("COMMIT")
    with suppress(asyncio.CancelledError):
        await writer
    written = other.execute("SELECT count(*) FROM written").fetchone()
    other.close()
    await store.dispose()

    assert (ended_at_once, written) == (not follows_effect, (int(follows_effect),))
