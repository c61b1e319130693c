"""Replan's own tables, which Alembic creates and changes in two streams of revisions.

The stream `ledger` is for each database with effects of tools, and `store` for the store alone. A new revision is a
file in the folder of its stream, such as `r0002_words.py`, with `revision`, `down_revision` and `upgrade(op)`. There is
no downgrade. A revision that was released is never changed.
"""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext, RevisionStep
from alembic.script import ScriptDirectory
from sqlalchemy import text
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


class Newer(Exception):
    """A database is at a revision that this code does not have; the message names it and the newest known revision."""


def migrate(connection: Connection, *streams: Stream) -> None:
    """Bring Replan's tables to the newest revisions.

    The transaction of `connection` must have begun to write: other workers that migrate wait until it ends.

    Raises:
        Newer: the database was migrated by a newer Replan.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
    for stream in streams:
        _migrate(connection, stream, ScriptDirectory(_folder(stream), version_locations=[_folder(stream)]))


def _migrate(connection: Connection, stream: Stream, script: ScriptDirectory) -> None:
    def upgrades(now: tuple[str, ...], _context: MigrationContext) -> Iterable[RevisionStep]:
        return script._upgrade_revs("head", now)  # type: ignore[arg-type]  # a tuple, as in Alembic's own commands

    options = {"fn": upgrades, "script": script, "version_table": stream.table}
    context = MigrationContext.configure(connection, opts=options)
    now, newest = context.get_current_heads(), tuple(script.get_heads())
    known = {one.revision for one in script.walk_revisions()}
    if not known.issuperset(now):
        raise Newer(f"its {stream} is at revision {', '.join(now)}, this one knows up to {', '.join(newest)}")
    if now != newest:
        # Without Alembic's global `op`, which two engines that are opened in one process would share.
        context.run_migrations(op=Operations(context))


def _folder(stream: Stream) -> Path:
    return Path(__file__).parent / stream
