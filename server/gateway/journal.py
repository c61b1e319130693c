"""The gateway's journal: which calls came in which session, and what became of their answers.

It holds digests, and no arguments and no results.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Column, Float, Index, MetaData, RowMapping, String, Table, create_engine, event, select, text
from sqlalchemy.engine import Engine
from sqlalchemy.pool import StaticPool

from server.gateway.matching import WINDOW, Caller, Delivery, Earlier

KEPT_DAYS = 90
"""Days for which calls with a key are known; the ledger of the tools and Temporal know their effects beyond it."""
FORMAT = 1

_METADATA = MetaData()
_CALLS = Table(
    "calls",
    _METADATA,
    Column("task_id", String, primary_key=True),
    Column("session", String, nullable=False),
    Column("tool", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("authority", String, nullable=False),
    Column("key", String, nullable=False),
    Column("effect_key", String, nullable=False),
    Column("request", String, nullable=False),
    Column("connection", String, nullable=False),
    Column("delivery", String, nullable=False),
    Column("since", Float, nullable=False),
    Column("doubts", String, nullable=False),
    Index("by_session", "session", "tool", "since"),
    Index("by_request", "request"),
    Index("by_connection", "connection", "delivery"),
)


class OtherFormat(Exception):
    """The journal was written by another version."""


@dataclass(frozen=True)
class Entry:
    """A call in the journal."""

    session: str
    earlier: Earlier
    effect_key: str
    """What the idempotency keys of its task begin with."""
    doubts: str
    """The id of the task of which it may be a repetition; empty if there is no doubt."""


class Journal:
    """The calls of all sessions of one state folder, in a database of its own; one process uses it."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Open it; the answers that were under way when its last process ended were not handed over.

        Raises:
            OtherFormat: it is of another version.
        """
        self._clock = clock
        path.touch(mode=0o600)
        path.chmod(0o600)
        self._engine = _open(path)
        with self._engine.begin() as transaction:
            found = transaction.execute(text("PRAGMA user_version")).scalar_one()
            if found not in (0, FORMAT):
                raise OtherFormat(f"{path} was written by another version of Replan: use that one, or delete the file")
            transaction.execute(text(f"PRAGMA user_version = {FORMAT}"))
            _METADATA.create_all(transaction)
            now = clock()
            open_ones = _CALLS.c.delivery == Delivery.OPEN
            transaction.execute(_CALLS.update().where(open_ones).values(delivery=Delivery.BROKEN, since=now))
            old = (_CALLS.c.since < now - KEPT_DAYS * 86_400) | ((_CALLS.c.key == "") & (_CALLS.c.since < now - WINDOW))
            is_pending = (_CALLS.c.delivery == Delivery.PENDING) & (_CALLS.c.since >= now - KEPT_DAYS * 86_400)
            transaction.execute(_CALLS.delete().where(old & ~is_pending))

    def close(self) -> None:
        self._engine.dispose()

    def earlier(self, session: str, call: Caller) -> list[Earlier]:
        """The earlier calls of the session that may be the same call."""
        recent = (_CALLS.c.since >= self._clock() - WINDOW) | (_CALLS.c.delivery == Delivery.PENDING)
        may_match = recent if not call.key else _CALLS.c.key == call.key
        query = select(_CALLS).where(_CALLS.c.session == session, _CALLS.c.tool == call.tool, may_match)
        with self._engine.connect() as connection:
            return [_entry(row).earlier for row in connection.execute(query).mappings()]

    def entry(self, task_id: str) -> Entry | None:
        with self._engine.connect() as connection:
            row = connection.execute(select(_CALLS).where(_CALLS.c.task_id == task_id)).mappings().first()
        return _entry(row) if row is not None else None

    def add(
        self, session: str, task_id: str, call: Caller, *, effect_key: str, request: str, connection: str, doubts: str
    ) -> None:
        """Note a new call, before its task is started."""
        fields = {
            "tool": call.tool,
            "digest": call.digest,
            "authority": call.authority,
            "key": call.key,
            "effect_key": effect_key,
            "request": request,
            "connection": connection,
            "delivery": Delivery.OPEN,
            "since": self._clock(),
            "doubts": doubts,
        }
        with self._engine.begin() as transaction:
            transaction.execute(_CALLS.insert().values(session=session, task_id=task_id, **fields))

    def attach(self, task_id: str, *, request: str, connection: str) -> None:
        """Note that the answer of a call now goes to another request."""
        self._set(task_id, delivery=Delivery.OPEN, request=request, connection=connection)

    def note(self, task_id: str, delivery: Delivery, request: str) -> None:
        """Note what became of an answer, unless it goes to another request meanwhile."""
        self._set(task_id, request, delivery=delivery)

    def note_request(self, request: str, delivery: Delivery) -> None:
        """Note what became of the answer to a request, unless the answer was no result."""
        chosen = (_CALLS.c.request == request) & _CALLS.c.delivery.not_in([Delivery.PENDING, Delivery.VOID])
        with self._engine.begin() as transaction:
            transaction.execute(_CALLS.update().where(chosen).values(delivery=delivery, since=self._clock()))

    def _set(self, task_id: str, only_of: str | None = None, **values: object) -> None:
        chosen = _CALLS.c.task_id == task_id
        if only_of is not None:
            chosen &= _CALLS.c.request == only_of
        with self._engine.begin() as transaction:
            transaction.execute(_CALLS.update().where(chosen).values(since=self._clock(), **values))

    def went_on(self, connection: str) -> None:
        """The agent made another call on this connection: it has the answers that were written to it before."""
        chosen = (_CALLS.c.connection == connection) & (_CALLS.c.delivery == Delivery.WRITTEN)
        with self._engine.begin() as transaction:
            transaction.execute(_CALLS.update().where(chosen).values(delivery=Delivery.DELIVERED))

    def left(self, connection: str) -> None:
        """The connection has ended: the answers that were still to come on it are not handed over."""
        chosen = (_CALLS.c.connection == connection) & (_CALLS.c.delivery == Delivery.OPEN)
        with self._engine.begin() as transaction:
            transaction.execute(_CALLS.update().where(chosen).values(delivery=Delivery.BROKEN, since=self._clock()))


def _open(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}", poolclass=StaticPool)

    @event.listens_for(engine, "connect")
    def _configure(connection: object, record: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")  # type: ignore[attr-defined]  # a sqlite3 connection
        connection.execute("PRAGMA synchronous = FULL")  # type: ignore[attr-defined]

    return engine


def _entry(row: RowMapping) -> Entry:
    caller = Caller(row["tool"], row["digest"], row["authority"], row["key"])
    earlier = Earlier(row["task_id"], caller, Delivery(row["delivery"]), row["since"], row["request"])
    return Entry(row["session"], earlier, row["effect_key"], row["doubts"])
