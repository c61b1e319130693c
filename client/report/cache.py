"""A cache of what was computed from closed runs, so that a second report need not read their histories again.

Read when a report begins, and written whenever the history of a closed run has been reduced to its row.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from platformdirs import user_cache_path

MAX_AGE = "-90 days"
"""Older rows are deleted, since no server keeps a closed run for long."""
CHUNK = 500
"""Rows asked for at once; SQLite takes at most 999 values in older versions."""


def default_file() -> Path:
    """The path of the cache in the user's cache folder; the file may not exist."""
    return user_cache_path("replan", appauthor=False) / "report.sqlite"


class Cache:
    """Texts by run id, in a SQLite file. An unusable file is replaced; if that fails, nothing is cached."""

    def __init__(self, file: Path | None, version: str) -> None:
        """`with` opens or creates `file`; if it is None, nothing is cached. Rows of another `version` are ignored."""
        self._file, self._version = file, version
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        if self._file is not None:
            with suppress(OSError, sqlite3.Error):
                self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._database = self._open_or_replace(self._file)
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    def _open_or_replace(self, file: Path) -> sqlite3.Connection:
        try:
            return _open_database(file)
        except sqlite3.DatabaseError:  # it is no database, or a broken one
            file.unlink(missing_ok=True)
            return _open_database(file)

    def read(self, runs: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield the id and the text of each of these runs that is in the cache."""
        left = list(runs)
        while left and self._database is not None:
            chunk, left = left[:CHUNK], left[CHUNK:]
            marks = ",".join("?" * len(chunk))
            query = f"SELECT run, text FROM rows WHERE version = ? AND run IN ({marks})"  # noqa: S608  # only marks
            try:
                yield from self._database.execute(query, (self._version, *chunk)).fetchall()
            except sqlite3.Error:
                return

    def write(self, run: str, text: str) -> None:
        """Store the text of a run; a database error is ignored."""
        if self._database is not None:
            with suppress(sqlite3.Error):  # a full disk, or a file that another process has broken
                row = (run, self._version, text)
                self._database.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, CURRENT_TIMESTAMP)", row)


def _open_database(file: Path) -> sqlite3.Connection:
    file.touch(mode=0o600)  # it names tasks and tools
    database = sqlite3.connect(file, timeout=0.1, isolation_level=None)  # each row is kept at once, also after Ctrl-C
    try:
        database.execute("PRAGMA synchronous = OFF")  # what is lost is read again
        database.execute("CREATE TABLE IF NOT EXISTS rows (run TEXT PRIMARY KEY, version TEXT, text TEXT, at TEXT)")
        database.execute("DELETE FROM rows WHERE at < datetime('now', ?)", (MAX_AGE,))
    except sqlite3.Error:
        database.close()
        raise
    return database
