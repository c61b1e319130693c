"""The store: opened by its URL, migrated under a lock, and itself wherever it goes, on both databases."""

import asyncio
import importlib.util
import shutil
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, event, inspect, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import create_async_engine

import activities.effects.calls
import activities.registration
import activities.words  # noqa: F401 - these three define all tables
from activities.storage import migrations
from activities.storage.migrations import Stream
from activities.storage.store import (
    REPLAN_TABLES,
    StoreUnavailable,
    file_of,
    open_blocking,
    open_store,
    peek,
    sqlite_url,
    store_id,
    write,
    writing,
)
from tests.stores import make_old_store


async def change(url: str, *statements: str) -> None:
    """Change a store behind Replan's back."""
    engine = await open_store(url)
    async with writing(engine).begin() as tx:
        for statement in statements:
            await tx.execute(text(statement))
    await engine.dispose()


async def test_a_store_stays_itself(store_url: str, tmp_path: Path) -> None:
    """Whoever opens it, also at the same moment; another one is another, also where it has the same tables."""
    (tmp_path / "other").mkdir()
    opened = await asyncio.gather(*(open_store(store_url) for _ in range(4)))
    opened += [await open_store(store_url), await open_store(sqlite_url(tmp_path / "other"))]
    *ids, other = [await store_id(engine) for engine in opened]
    for engine in opened:
        await engine.dispose()

    assert (len({*ids}), other in ids) == (1, False)


@pytest.mark.parametrize("statements", [1, 2, 3])
async def test_a_store_that_another_worker_makes_meanwhile_is_no_older_one(store_url: str, statements: int) -> None:
    """All its tables are committed at once, between any two statements of a worker that looks."""
    engine = create_async_engine(store_url, isolation_level="AUTOCOMMIT")
    seen = list[str]()

    def note(*call: object) -> None:
        seen.append(str(call[2]))
        if len(seen) == statements:
            open_blocking(store_url).dispose()

    event.listen(engine.sync_engine, "after_cursor_execute", note)
    async with engine.connect() as connection:
        seen.clear()  # what the dialect asks of each new database
        found = await connection.run_sync(migrations.reached, Stream.STORE)
    await engine.dispose()

    assert found in (None, Stream.STORE.newest)


def differences(connection: Connection) -> list[object]:
    """What Alembic would change to make our tables what the code says they are."""
    ours = MetaData()
    for table in REPLAN_TABLES.tables.values():
        table.to_metadata(ours)
    options = {"include_name": lambda name, what, _parents: what != "table" or name in ours.tables}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), ours))


async def test_migrations_make_the_tables_of_the_code(store_url: str) -> None:
    """Column by column, with types, nulls and indexes: whoever changes one must write a migration."""
    found = list[list[object]]()
    for statements in ((), ("ALTER TABLE replan_ledger ADD COLUMN more VARCHAR(10)",)):
        await change(store_url, *statements)
        engine = await open_store(store_url)
        async with engine.connect() as connection:
            found.append(await connection.run_sync(differences))
        await engine.dispose()

    assert (found[0], len(found[1])) == ([], 1)
    assert "more" in str(found[1][0])  # the comparison sees a difference


ODD_FOLDERS = ["a?b=c", "50%41 %", "a#b", "two words", "Großbäckerei 東京", ":memory:", "file:x", "a&uri=true"]


@pytest.mark.parametrize("name", ODD_FOLDERS)
async def test_the_path_of_a_state_folder_is_no_url(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its letters name the folder, and nothing beside it is written; also where it is relative, as `--state` has it."""
    (folder := tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    ids, files = list[str](), list[Path | None]()
    for one in (Path(name), folder):
        engine = await open_store(sqlite_url(one))
        ids.append(await store_id(engine))
        files.append(file_of(engine))
        await engine.dispose()

    assert (len({*ids}), files[1]) == (1, folder / "store.db")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert "store.db" in {path.name for path in folder.iterdir()}


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
def test_the_revisions_are_those_that_alembic_applies(stream: Stream) -> None:
    """A database is judged without Alembic: the name of each file must have the number of its revision."""
    applied = ScriptDirectory(stream.folder, version_locations=[stream.folder]).walk_revisions()

    assert stream.revisions == [revision.revision for revision in applied][::-1]


REVISION = """
from sqlalchemy import Column, Integer

revision = "0101"
down_revision = "0100"


def upgrade(op):
    op.add_column("replan_turns", Column("more", Integer))
"""


def test_a_later_version_migrates_a_store_by_one_more_file(tmp_path: Path) -> None:
    """What is in the store stays; this version, which lacks the revision, then refuses the store."""
    shutil.copytree(Path(migrations.__file__).parent, tmp_path / "later_migrations")
    (tmp_path / "later_migrations" / "store" / "r0101_more.py").write_text(REVISION)
    spec = importlib.util.spec_from_file_location("later_migrations", tmp_path / "later_migrations" / "__init__.py")
    assert spec and spec.loader
    spec.loader.exec_module(later := importlib.util.module_from_spec(spec))
    engine = open_blocking(f"sqlite:///{tmp_path}/store.db")
    with engine.begin() as tx:
        before = tx.execute(text("SELECT id FROM replan_store")).scalar()
        later.migrate(tx, *later.Stream)
        is_newest = later.is_newest(tx, *later.Stream)
        after = tx.execute(text("SELECT id, (SELECT max(more) FROM replan_turns) FROM replan_store")).one()
    engine.dispose()

    assert (is_newest, after) == (True, (before, None))
    with pytest.raises(StoreUnavailable, match="its store is at revision 0101, this one knows up to 0100"):
        open_blocking(f"sqlite:///{tmp_path}/store.db", may_migrate=False)


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


async def test_tables_of_other_names_do_not_disturb(tmp_path: Path) -> None:
    """Tools may have a ledger and payloads of their own in the store."""
    engine = create_async_engine(sqlite_url(tmp_path))
    async with engine.begin() as tx:
        await tx.execute(text("CREATE TABLE ledger (key TEXT)"))
        await tx.execute(text("CREATE TABLE payloads (task TEXT)"))
    await engine.dispose()
    store = await open_store(sqlite_url(tmp_path))
    id = await store_id(store)
    await store.dispose()

    assert id


LEDGER_IS = "UPDATE replan_ledger_revision SET version_num = '{}'"
OLD_FORMS = {
    "of 0.1.0": ([], "its ledger is at revision 0001"),
    "of the last commit before": (
        [LEDGER_IS.format("0002"), "UPDATE replan_store_revision SET version_num = '0011'"],
        "its ledger is at revision 0002",
    ),
    "with a ledger of this version": ([LEDGER_IS.format(Stream.LEDGER.newest)], "its store is at revision 0006"),
    "with a new ledger to be made": (
        ["DROP TABLE replan_ledger", "DROP TABLE replan_ledger_revision"],
        "its store is at revision 0006",
    ),
    "without a revision": (["DELETE FROM replan_ledger_revision"], "its ledger is at revision none"),
    "without a table of revisions": (["DROP TABLE replan_ledger_revision"], "its ledger is at revision none"),
}


@pytest.mark.parametrize("form", OLD_FORMS)
async def test_a_store_of_a_version_before_the_first_release_is_refused(store_url: str, form: str) -> None:
    """By all who open one: with why and what to do, and it is left as it is."""
    changes, known = OLD_FORMS[form]
    await make_old_store(store_url, *changes)
    before = await tables_of(store_url)
    reasons = list[str]()
    for may_migrate in (True, False):
        with pytest.raises(StoreUnavailable) as refused:
            open_blocking(store_url, may_migrate=may_migrate)
        reasons.append(str(refused.value))
    with pytest.raises(StoreUnavailable) as refused:
        await open_store(store_url)
    reasons.append(str(refused.value))
    # before the store is opened, its id would count as that of the queue's store
    with pytest.raises(StoreUnavailable, match=r"before 0\.2\.0.*its store is at revision 00(06|11)"):
        await peek(store_url, "default", "queue", "0.2.0")

    for reason in reasons:
        assert "was made by a version of Replan before 0.2.0, which was never released, and cannot be used" in reason
        assert f"({known}, this version begins with 0100): use another " in reason and "sk-secret" not in reason
    assert reasons[-1].endswith(": use another --store, or delete this one.")
    assert await tables_of(store_url) == before


async def tables_of(url: str) -> dict[str, list[str]]:
    """The columns of all tables of a database."""

    def look(connection: Connection) -> dict[str, list[str]]:
        found = inspect(connection)
        return {name: [str(one["name"]) for one in found.get_columns(name)] for name in found.get_table_names()}

    engine = create_async_engine(url)
    async with engine.connect() as connection:
        columns = await connection.run_sync(look)
    await engine.dispose()
    return columns


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
