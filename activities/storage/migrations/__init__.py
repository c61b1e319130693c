"""Replan's own tables, which Alembic creates and changes in two streams of revisions.

The stream `ledger` is for each database with effects of tools, and `store` for the store alone. A new revision is a
file in the folder of its stream, such as `r0002_words.py`, with `revision`, `down_revision` and `upgrade(op)`. There is
no downgrade. A revision that was released is never changed.
"""

import logging
from enum import StrEnum
from pathlib import Path

from sqlalchemy import Column, MetaData, String, Table, inspect, select, text
from sqlalchemy.engine import Connection

LOCK = int.from_bytes(b"replan")
"""The key of PostgreSQL's advisory lock, which lets one worker migrate at a time; SQLite's write lock has no key."""


class Stream(StrEnum):
    """A series of revisions, named like its folder; in a database, the table `table` has the reached revision."""

    LEDGER = "ledger"
    STORE = "store"

    @property
    def table(self) -> str:
        return f"replan_{self}_revision"

    @property
    def folder(self) -> Path:
        return Path(__file__).parent / self

    @property
    def newest(self) -> str:
        """The newest revision: the number in the names of the files."""
        return max(file.name[1:5] for file in self.folder.glob("r????_*.py"))


class Newer(Exception):
    """A database is at a revision that this code does not have; the message names it and the newest known revision."""


def is_newest(connection: Connection, *streams: Stream) -> bool:
    """Whether Replan's tables are at the newest revisions already."""
    return all(_reached(connection, stream) == [stream.newest] for stream in streams)


def migrate(connection: Connection, *streams: Stream) -> None:
    """Bring Replan's tables to the newest revisions.

    The transaction of `connection` must have begun to write: other workers that migrate wait until it ends.

    Raises:
        Newer: the database was migrated by a newer Replan.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
    for stream in streams:
        if _reached(connection, stream) != [stream.newest]:
            _upgrade(connection, stream)


def _reached(connection: Connection, stream: Stream) -> list[str]:
    """The revision of a stream in a database; empty in a new database."""
    if not inspect(connection).has_table(stream.table):
        return []
    table = Table(stream.table, MetaData(), Column("version_num", String))
    return list(connection.execute(select(table.c.version_num)).scalars())


def _upgrade(connection: Connection, stream: Stream) -> None:
    log = logging.getLogger("alembic")
    if log.level == logging.NOTSET:  # at the level info of a program, it says two dozen lines of each new store
        log.setLevel(logging.WARNING)
    # Not at the top: they take 12 MB, which only a new store and an older one need.
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(stream.folder, version_locations=[stream.folder])

    options = {
        "fn": lambda now, _context: script._upgrade_revs("head", now),
        "script": script,
        "version_table": stream.table,
    }
    context = MigrationContext.configure(connection, opts=options)
    now, newest = context.get_current_heads(), tuple(script.get_heads())
    known = {revision.revision for revision in script.walk_revisions()}
    if not known.issuperset(now):
        raise Newer(f"its {stream} is at revision {', '.join(now)}, this one knows up to {', '.join(newest)}")
    if now != newest:
        # Without Alembic's global `op`, which two engines that are opened in one process would share.
        context.run_migrations(op=Operations(context))
