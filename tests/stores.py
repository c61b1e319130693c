"""New stores in SQLite, without the migrations that each of them would run, and one as 0.1.0 made it."""

import uuid
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from activities.storage.store import open_store, sqlite_url, store_id

_NEW = list[tuple[bytes, str]]()
"""The file of a store as `open_store` makes it, which takes longer than most calls, and the id in it."""


async def make_store(folder: Path) -> str:
    """Make a store in `folder` unless there is one, with an id of its own; returns its URL."""
    file, url = folder / "store.db", sqlite_url(folder)
    if not file.exists():
        if not _NEW:
            engine = await open_store(url)
            id = await store_id(engine)
            await engine.dispose()
            _NEW.append((file.read_bytes(), id))
        made, id = _NEW[0]
        folder.mkdir(parents=True, exist_ok=True)
        file.write_bytes(made.replace(id.encode(), str(uuid.uuid4()).encode()))
    return url


async def make_old_store(url: str, *changes: str) -> None:
    """Make the tables of a store of 0.1.0 in an empty database, and change them."""
    tables = Path(__file__).with_name("store_0_1_0.sql").read_text()
    if not url.startswith("sqlite"):
        tables = tables.replace("DATETIME", "TIMESTAMP").replace("BLOB", "BYTEA")
    engine = create_async_engine(url)
    async with engine.begin() as tx:
        for statement in (*tables.strip().split(";\n"), *changes):
            await tx.execute(text(statement))
    await engine.dispose()
