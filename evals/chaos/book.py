"""The payment service's book: what it did and every call of it, in one SQLite transaction each."""

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

SCHEMA = """
CREATE TABLE IF NOT EXISTS charges (
    id INTEGER PRIMARY KEY, reference TEXT NOT NULL, key TEXT, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS limits (reference TEXT PRIMARY KEY, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, endpoint TEXT NOT NULL, reference TEXT NOT NULL, key TEXT,
    worker INTEGER NOT NULL, trouble TEXT NOT NULL, status INTEGER, applied INTEGER NOT NULL DEFAULT 0);
"""


class Trouble(StrEnum):
    """What goes wrong with a call."""

    NONE = ""
    RESET = "reset"
    """The connection is reset, and nothing was done."""
    BUSY = "429"
    DOWN = "503"
    DENIED = "401"
    DROP = "drop"
    """All is done, and the answer is lost."""
    KILL = "kill"
    """All is done, and the worker is to be killed before the answer comes."""
    SLOW = "slow"
    """All is done, and the answer comes when nobody waits for it any more."""
    LATE = "late"
    """It is done only when nobody waits for the answer any more."""


class Endpoint(StrEnum):
    """What a call wants."""

    KEYED = "keyed"
    """Charge once for each key."""
    STRICT = "strict"
    """The same, and refuse a key that was used."""
    PLAIN = "plain"
    """Charge, whatever came before."""
    LIMIT = "limit"
    """Set a limit, as PUT does."""
    RATE = "rate"
    """Read."""
    FIND = "find"
    """Look up a charge by its reference or its key."""


class Call(NamedTuple):
    """One request that came in."""

    endpoint: Endpoint
    reference: str
    key: str | None
    amount: int
    worker: int
    """The process that sent it."""


class Answer(NamedTuple):
    """What is sent back."""

    status: int
    body: Mapping[str, Any]
    applied: bool = False
    """Whether the call changed something."""


class Book:
    """The book in one file; every method is one transaction."""

    def __init__(self, file: Path, troubles: Mapping[str, Sequence[str]] | None = None) -> None:
        """Keep it in `file`; the n-th call about a reference meets the n-th of its `troubles`."""
        self._file = file
        self._troubles = troubles or {}
        with closing(sqlite3.connect(file)) as db:
            db.executescript(f"PRAGMA journal_mode=WAL; {SCHEMA}")

    def arrived(self, call: Call) -> tuple[int, Trouble]:
        """Write a call down before anything is done; its number, and what goes wrong with it."""
        about = f"find {call.reference}" if call.endpoint is Endpoint.FIND else call.reference
        planned = self._troubles.get(about, ())
        is_find = call.endpoint is Endpoint.FIND
        with self._writing() as db:
            earlier = "SELECT count(*) FROM calls WHERE reference = ? AND (endpoint = 'find') = ?"
            position = db.execute(earlier, (call.reference, is_find)).fetchone()[0]
            trouble = Trouble(planned[position]) if position < len(planned) else Trouble.NONE
            row = (time.time(), call.endpoint, call.reference, call.key, call.worker, trouble)
            insert = "INSERT INTO calls (at, endpoint, reference, key, worker, trouble) VALUES (?, ?, ?, ?, ?, ?)"
            return int(db.execute(insert, row).lastrowid or 0), trouble

    def carry_out(self, number: int, call: Call) -> Answer:
        """Do what a call wants, and write that down with it."""
        with self._writing() as db:
            answer = _done(db, call)
            row = (answer.status, answer.applied, number)
            db.execute("UPDATE calls SET status = ?, applied = ? WHERE id = ?", row)
        return answer

    def charges(self) -> dict[str, int]:
        """How many charges each reference has."""
        return self._counted("SELECT reference, count(*) FROM charges GROUP BY reference")

    def limits(self) -> dict[str, int]:
        """The limit of each reference."""
        return self._counted("SELECT reference, amount FROM limits")

    def met(self) -> dict[str, int]:
        """How often each trouble was met."""
        return self._counted("SELECT trouble, count(*) FROM calls WHERE trouble != '' GROUP BY trouble")

    def condemned(self, after: int) -> list[tuple[int, int]]:
        """Number and worker of the calls after the one numbered `after` whose worker is to be killed now."""
        wanted = "SELECT id, worker FROM calls WHERE trouble = 'kill' AND applied AND id > ? ORDER BY id"
        with self._writing() as db:
            return [(number, worker) for number, worker in db.execute(wanted, (after,))]

    def _counted(self, query: str) -> dict[str, int]:
        with self._writing() as db:
            return dict(db.execute(query).fetchall())

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._file, timeout=30, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            with db:  # commits, or rolls back
                yield db


def _done(db: sqlite3.Connection, call: Call) -> Answer:
    match call.endpoint:
        case Endpoint.RATE:
            return Answer(200, {"percent": len(call.reference)})
        case Endpoint.FIND:
            found = _find(db, "reference = :it OR key = :it", call.reference)
            return Answer(200, found) if found else Answer(404, {})
        case Endpoint.LIMIT:
            db.execute("INSERT OR REPLACE INTO limits VALUES (?, ?)", (call.reference, call.amount))
            return Answer(200, {"reference": call.reference, "amount": call.amount}, applied=True)
        case Endpoint.KEYED if known := _find(db, "key = :it", call.key):
            return Answer(200, known)
        case Endpoint.STRICT if _find(db, "key = :it", call.key):
            return Answer(409, {"detail": "this key was used"})
        case _:
            row = (call.reference, call.key, call.amount)
            id = db.execute("INSERT INTO charges (reference, key, amount) VALUES (?, ?, ?)", row).lastrowid
            return Answer(200, {"id": id, "reference": call.reference, "amount": call.amount}, applied=True)


def _find(db: sqlite3.Connection, where: str, it: str | None) -> dict[str, Any] | None:
    query = f"SELECT id, reference, amount FROM charges WHERE {where} ORDER BY id LIMIT 1"  # noqa: S608  # our own words
    row = db.execute(query, {"it": it}).fetchone()
    return dict(zip(("id", "reference", "amount"), row, strict=True)) if row else None


def troubles_of(file: Path) -> dict[str, list[str]]:
    """The fault plan that the harness wrote down."""
    plan: dict[str, list[str]] = json.loads(file.read_text())
    return plan
