"""The payment service: `python -m evals.chaos.payments PORT BOOK TROUBLES`, a process on loopback, and its book."""

import json
import socket
import sqlite3
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

PATIENCE = 4.0
"""Seconds that the bank's tools wait for an answer: their `timeout`."""
SETTLE = 4.0
"""Seconds after which the tools trust that a call which is not found never came: their `settle`."""
TOO_LONG = PATIENCE + 2
"""Seconds after which no caller waits for an answer any more."""
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which a close resets the connection."""
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
    """Nothing is done, and the connection is reset."""
    BUSY = "429"
    DOWN = "503"
    DENIED = "401"
    DROP = "drop"
    """The call is done, and the answer is lost."""
    KILL = "kill"
    """The call is done, and the worker must be killed before the answer comes."""
    SLOW = "slow"
    """The call is done, and the answer comes too late for the caller."""
    LATE = "late"
    """The call is done too late for the caller."""


class Endpoint(StrEnum):
    """What a call asks for."""

    KEYED = "keyed"
    """Charge once for each key."""
    STRICT = "strict"
    """Charge once for each key, and reject a key that was used."""
    PLAIN = "plain"
    """Charge, whatever came before."""
    LIMIT = "limit"
    """Set a limit, as PUT does."""
    RATE = "rate"
    """Read."""
    FIND = "find"
    """Look up a charge by its reference or its key."""


class Call(NamedTuple):
    """A request."""

    endpoint: Endpoint
    reference: str
    key: str | None
    amount: int
    worker: int
    """The process that sent it."""


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    body: Mapping[str, Any]
    applied: bool = False
    """Whether the call changed something."""


class Book:
    """What the service did, and every call of it, in one SQLite file. Each method is one transaction."""

    def __init__(self, file: Path, troubles: Mapping[str, Sequence[str]] | None = None) -> None:
        """Keep it in `file`; the n-th call about a reference meets the n-th of its `troubles`."""
        self._file = file
        self._troubles = troubles or {}
        with closing(sqlite3.connect(file)) as db:
            db.executescript(f"PRAGMA journal_mode=WAL; {SCHEMA}")

    def record_call(self, call: Call) -> tuple[int, Trouble]:
        """Write a call down before it is done; its number, and what goes wrong with it."""
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

    def apply(self, number: int, call: Call) -> Answer:
        """Do what a call asks for, and write that down."""
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

    def trouble_counts(self) -> dict[str, int]:
        """How often each trouble was met."""
        return self._counted("SELECT trouble, count(*) FROM calls WHERE trouble != '' GROUP BY trouble")

    def workers_to_kill(self, after: int) -> list[tuple[int, int]]:
        """Number and worker of each call after the one numbered `after` whose worker must be killed now."""
        query = "SELECT id, worker FROM calls WHERE trouble = 'kill' AND applied AND id > ? ORDER BY id"
        with self._writing() as db:
            return [(number, worker) for number, worker in db.execute(query, (after,))]

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
    query = f"SELECT id, reference, amount FROM charges WHERE {where} ORDER BY id LIMIT 1"  # noqa: S608  # constant texts
    row = db.execute(query, {"it": it}).fetchone()
    return dict(zip(("id", "reference", "amount"), row, strict=True)) if row else None


REFUSALS = {
    Trouble.BUSY: Answer(429, {}),
    Trouble.DOWN: Answer(503, {}),
    Trouble.DENIED: Answer(401, {}),
}


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: "Service"

    def do_GET(self) -> None:
        """Read a rate, or look a charge up."""
        self._handle(0)

    def do_POST(self) -> None:
        """Charge."""
        self._handle(self._amount())

    def do_PUT(self) -> None:
        """Set a limit."""
        self._handle(self._amount())

    def _amount(self) -> int:
        """Raises ConnectionError if the client went away in the middle of its request."""
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError("half a request")
        return int(json.loads(body)["amount"])

    def _handle(self, amount: int) -> None:
        url = urlsplit(self.path)
        call = Call(
            endpoint=Endpoint(url.path.strip("/")),
            reference=parse_qs(url.query)["reference"][0],
            key=self.headers.get("idempotency-key"),
            amount=amount,
            worker=int(self.headers.get("x-worker", 0)),
        )
        number, trouble = self.server.book.record_call(call)
        answer = self._meet(trouble, number, call)
        if answer is None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.connection.close()
            return
        self._send(answer)

    def _meet(self, trouble: Trouble, number: int, call: Call) -> Answer | None:
        """The answer; None to reset the connection."""
        if trouble in REFUSALS:
            return REFUSALS[trouble]
        if trouble is Trouble.RESET:
            return None
        if trouble is Trouble.LATE:
            time.sleep(self.server.too_long)
        answer = self.server.book.apply(number, call)
        if trouble in (Trouble.SLOW, Trouble.KILL):
            time.sleep(self.server.too_long)
        return answer if trouble is Trouble.NONE else None

    def _send(self, answer: Answer) -> None:
        body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("content-length", str(len(body)))
        if answer.status == REFUSALS[Trouble.BUSY].status:
            self.send_header("retry-after", "1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the book has every call."""


class Service(ThreadingHTTPServer):
    """Serves one book."""

    request_queue_size = 100

    def __init__(self, port: int, book: Book, too_long: float = TOO_LONG) -> None:
        """Listen on loopback; after `too_long` seconds no caller waits for an answer any more."""
        super().__init__(("127.0.0.1", port), Handler)
        self.book = book
        self.too_long = too_long

    def handle_error(self, request: object, client_address: object) -> None:
        """Print all errors but those of callers that were killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # only printed


def main(port: str, book: str, troubles: str) -> None:
    """Serve until killed."""
    with Service(int(port), Book(Path(book), json.loads(Path(troubles).read_text()))) as service:
        service.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
