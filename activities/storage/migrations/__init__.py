"""Replan's own tables, which Alembic creates and changes in two streams of revisions.

The stream `ledger` is for each database with effects of tools, and `store` for the store alone. The first revision of
each creates its tables as 0.2.0 has them. A new revision is a file in the folder of its stream, such as
`r0101_words.py`, with `revision`, `down_revision` and `upgrade(op)`. There is no downgrade. A revision that was
released is never changed.
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
    def revisions(self) -> list[str]:
        """The revisions, the newest last: the numbers in the names of the files."""
        return sorted(file.name[1:5] for file in self.folder.glob("r????_*.py"))

    @property
    def newest(self) -> str:
        return self.revisions[-1]


class Newer(Exception):
    """A database is at a revision that this code does not have; the message names it and the newest known revision."""


class Older(Exception):
    """A version before 0.2.0 made a database, with tables of another form; the message names its revision."""


def is_newest(connection: Connection, *streams: Stream) -> bool:
    """Whether Replan's tables are at the newest revisions already; raises as `reached`."""
    # All are read, also after one that is not: `reached` raises.
    return [reached(connection, stream) for stream in streams] == [stream.newest for stream in streams]


def migrate(connection: Connection, *streams: Stream) -> None:
    """Bring Replan's tables to the newest revisions; raises as `reached`.

    The transaction of `connection` must have begun to write: other workers that migrate wait until it ends.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
    for stream in streams:
        if reached(connection, stream) != stream.newest:
            _upgrade(connection, stream)


def reached(connection: Connection, stream: Stream) -> str | None:
    """The revision of a stream in a database; None in a new database.

    Raises:
        Newer: the database was migrated by a newer Replan.
        Older: the database was made by a version before 0.2.0, or by hand.
    """
    tables = inspect(connection)
    is_made = tables.has_table(f"replan_{stream}")  # first: another worker may commit this table and the next meanwhile
    revision: str | None = None
    if tables.has_table(stream.table):
        table = Table(stream.table, MetaData(), Column("version_num", String))
        revision = connection.execute(select(table.c.version_num)).scalar()
    if revision is None and not is_made:
        return None
    # Numbers below the first one were used before 0.2.0.
    if revision is None or revision < stream.revisions[0]:
        raise Older(f"its {stream} is at revision {revision or 'none'}, this version begins with {stream.revisions[0]}")
    if revision not in stream.revisions:
        raise Newer(f"its {stream} is at revision {revision}, this one knows up to {stream.newest}")
    return revision


def _upgrade(connection: Connection, stream: Stream) -> None:
    log = logging.getLogger("alembic")
    if log.level == logging.NOTSET:  # at the level info of a program, it says two dozen lines of each new store
        log.setLevel(logging.WARNING)
    # Not at the top: they take 12 MB, which only a database that is not at the newest revision needs.
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
    # Without Alembic's global `op`, which two engines that are opened in one process would share.
    context.run_migrations(op=Operations(context))
