"""A call that is cancelled in the middle of a statement: the database is free as soon as the statement is over."""

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from activities.storage.store import open_store, sqlite_url, transaction, writing

SLOW = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3000000) SELECT count(*) FROM n"


async def test_a_cancelled_statement_leaves_no_lock(tmp_path: Path) -> None:
    """SQLite ends no transaction whose connection is only forgotten, and then nobody could write for a long time."""
    engine = await open_store(sqlite_url(tmp_path))

    async def write() -> None:
        async with transaction(writing(engine)) as tx:
            await tx.exec_driver_sql(SLOW)

    writer = asyncio.create_task(write())
    await asyncio.sleep(0.1)
    writer.cancel()
    with suppress(asyncio.CancelledError):
        await writer
    with closing(sqlite3.connect(tmp_path / "store.db", timeout=0.5, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    await engine.dispose()

    assert writer.cancelled()
