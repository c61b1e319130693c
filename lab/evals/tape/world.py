"""The world's state and the journal of its calls, in one SQLite file."""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, TypeAdapter

from evals.tape.tape import Call, Point, Trouble
from workflows.json_values import canonical

SCHEMA = """
CREATE TABLE IF NOT EXISTS states (task TEXT PRIMARY KEY, version INTEGER NOT NULL, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS results (task TEXT, key TEXT, body TEXT NOT NULL, PRIMARY KEY (task, key));
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, tool TEXT NOT NULL, args TEXT NOT NULL, number INTEGER NOT NULL,
    entry TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_call ON calls (task, tool, args);
"""
ARGS = TypeAdapter(dict[str, Any])
STATUS: Mapping[Trouble, int] = {
    **{Trouble.BLIP: 503, Trouble.OUTAGE: 503, Trouble.LIMIT: 429, Trouble.LOCKED: 423},
    **{Trouble.DENIED: 401, Trouble.WITHDRAWN: 403},
}
SUCCESS, ABSENT = 200, 404
FIND = "find_result"
LIE_OF_TRANSIENT, LIE_OF_PERSISTENT = 422, 503

S = TypeVar("S", bound=BaseModel)


class Reply(NamedTuple):
    """What a tool answers when nothing goes wrong with the call itself."""

    status: int
    body: Mapping[str, Any]


class WorldTool(NamedTuple, Generic[S]):
    """A tool of a world."""

    run: Callable[[S, Mapping[str, Any]], Reply]
    """Answers, and changes the state, only if its status is 200."""
    is_effect: bool = False


class Plot(Protocol[S]):
    """What a world plays: its states, its tools, and what goes wrong, as pure functions of a call."""

    @property
    def state(self) -> type[S]:
        """The model of a task's state."""

    def opening(self, task: str) -> S:
        """The state before the first call."""

    def change(self, call: Call, state: S) -> bool:
        """Let other actors act before a call; whether they did."""

    def tool(self, name: str, state: S) -> WorldTool[S] | None:
        """The tool with this name; None if there is none."""

    def trouble(self, call: Call, *, is_effect: bool) -> Trouble:
        """What goes wrong with a call apart from the state."""

    def point(self, call: Call) -> Point:
        """Where the call of an effect is cut that nothing else goes wrong with."""

    def retry_after(self, call: Call) -> float | None:
        """Seconds after which a call is to be made again that meets a limit."""

    def lies(self, call: Call) -> bool:
        """Whether the status of an error says the opposite."""


class Entry(BaseModel, frozen=True):
    """One call in the journal: what happened, and what the caller was told."""

    id: int = 0
    task: str
    tool: str
    args: str
    """Canonical JSON."""
    number: int
    at: float
    """Seconds of the world's clock."""
    worker: int
    step: str = ""
    """The id of the activity, if the caller says it."""
    trouble: Trouble
    point: Point
    status: int
    """The truth."""
    shown: int | None
    """What the caller was told; None if no answer was sent."""
    applied: bool
    """Whether the call changed the state."""
    replayed: bool
    """Whether it got the result of an earlier call with the same key."""
    version: int
    """Of the task's state, when the call was made: calls with equal arguments and versions meet the same world."""

    @property
    def is_success(self) -> bool:
        """Whether the caller has the result."""
        return self.shown == SUCCESS

    @property
    def is_absence(self) -> bool:
        """Whether a lookup was answered: there is no such call. That is a result, and no failure."""
        return self.tool == FIND and self.shown == self.status == ABSENT

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later although nobody changes the world, whatever the caller was told."""
        return self.trouble.is_transient or (self.status == SUCCESS and self.shown is None)

    @property
    def is_lie(self) -> bool:
        return self.shown is not None and self.shown != self.status


class Answer(NamedTuple):
    """What the world does with a request."""

    reply: Reply | None
    """None to close the connection without an answer."""
    point: Point
    retry_after: float | None = None


class World(Generic[S]):
    """One plot being played, until `close`. Each method is one transaction, from any thread."""

    def __init__(self, file: Path, plot: Plot[S]) -> None:
        """Keep state and journal in `file`."""
        self._plot, self._lock = plot, threading.Lock()
        # One connection: the last one that is closed copies the whole log into the file, and waits for the disk.
        self._db = sqlite3.connect(file, timeout=30, isolation_level=None, check_same_thread=False)
        self._db.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {SCHEMA}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def call(
        self,
        task: str,
        tool: str,
        args: Mapping[str, Any],
        at: float,
        key: str | None = None,
        worker: int = 0,
        step: str = "",
    ) -> Answer:
        """Make a call: find out what it meets, apply it, and write it down."""
        words = canonical(dict(args))
        with self._transaction() as db:
            query = "SELECT count(*), coalesce(sum(args = ?), 0) FROM calls WHERE task = ? AND tool = ?"
            of_tool, equal = db.execute(query, (words, task, tool)).fetchone()
            number = 1 + equal
            call = Call(task, tool, dict(args), number, at, 1 + of_tool)
            version, state = self._state(db, task)
            if self._plot.change(call, state):
                version += 1
                _save(db, task, version, state)
            known = _result(db, task, str(args.get("key")) if tool == FIND else key)
            found = self._plot.tool(tool, state)
            trouble, point, reply = self._met(call, found, state, known)
            applied = reply.status == SUCCESS and known is None and found is not None and found.is_effect
            replayed = known is not None and trouble is Trouble.NONE and tool != FIND
            applied &= point is not Point.KILL_BEFORE
            if applied:
                _save(db, task, version + 1, state)
                if key is not None:
                    db.execute("INSERT INTO results VALUES (?, ?, ?)", (task, key, canonical(dict(reply.body))))
            shown = self._shown(call, reply) if point is Point.NONE else None
            entry = Entry(
                task=task,
                tool=tool,
                args=words,
                number=number,
                at=at,
                worker=worker,
                step=step,
                trouble=trouble,
                point=point,
                status=reply.status,
                shown=None if shown is None else shown.status,
                applied=applied,
                replayed=replayed,
                version=version,
            )
            row = (task, tool, words, number, entry.model_dump_json(exclude={"id"}))
            db.execute("INSERT INTO calls (task, tool, args, number, entry) VALUES (?, ?, ?, ?, ?)", row)
        is_limit = trouble is Trouble.LIMIT and not entry.is_lie
        return Answer(shown, point, self._plot.retry_after(call) if is_limit else None)

    def entries(self, after: int = 0) -> list[Entry]:
        """The journal, the oldest call first; only the calls after the one with this id."""
        with self._transaction() as db:
            rows = db.execute("SELECT id, entry FROM calls WHERE id > ? ORDER BY id", (after,)).fetchall()
        return [Entry.model_validate_json(entry).model_copy(update={"id": id}) for id, entry in rows]

    def state(self, task: str) -> S:
        """What there is about a task now."""
        with self._transaction() as db:
            return self._state(db, task)[1]

    def _met(
        self, call: Call, tool: WorldTool[S] | None, state: S, known: Reply | None
    ) -> tuple[Trouble, Point, Reply]:
        """What a call meets, and the true reply; the state is changed if the tool succeeds."""
        if tool is None:
            return Trouble.NONE, Point.NONE, Reply(ABSENT, {"detail": "there is no such tool"})
        trouble = self._plot.trouble(call, is_effect=tool.is_effect)
        if trouble:
            return trouble, Point.NONE, Reply(STATUS[trouble], {"detail": STATUS[trouble]})
        reply = known or tool.run(state, call.args if isinstance(call.args, dict) else {})
        cut = tool.is_effect and reply.status == SUCCESS and known is None
        return Trouble.NONE, self._plot.point(call) if cut else Point.NONE, reply

    def _shown(self, call: Call, reply: Reply) -> Reply:
        """The reply, or the lie in its place."""
        if reply.status == SUCCESS or not self._plot.lies(call):
            return reply
        is_transient = reply.status in (423, 429, 503)
        return Reply(LIE_OF_TRANSIENT if is_transient else LIE_OF_PERSISTENT, {"detail": "not possible"})

    def _state(self, db: sqlite3.Connection, task: str) -> tuple[int, S]:
        row = db.execute("SELECT version, state FROM states WHERE task = ?", (task,)).fetchone()
        return (row[0], self._plot.state.model_validate_json(row[1])) if row else (0, self._plot.opening(task))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:  # commits, or rolls back
                yield self._db


def _save(db: sqlite3.Connection, task: str, version: int, state: BaseModel) -> None:
    db.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", (task, version, state.model_dump_json()))


def _result(db: sqlite3.Connection, task: str, key: str | None) -> Reply | None:
    """The reply to the call that had this key."""
    row = db.execute("SELECT body FROM results WHERE task = ? AND key = ?", (task, key)).fetchone()
    return Reply(SUCCESS, ARGS.validate_json(row[0])) if row else None
