"""The gateway's journal: which calls came in which session, and what became of their answers.

It holds digests, and no arguments and no results. With a keyring, digests and the keys of agents are encrypted.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Column, Float, Index, MetaData, RowMapping, String, Table, create_engine, event, select, text
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.pool import StaticPool
from sqlalchemy.sql import ColumnElement

from runtime.keys import Keyring
from server.gateway.matching import WINDOW, Caller, Delivery, Earlier

KEPT_DAYS = 90
"""Days for which calls with a key are kept; after that, the ledger and Temporal still know their effects."""
FORMAT, ENCRYPTED_FORMAT = 1, 2
_PLAINTEXT = "replan"
"""A text that each key has encrypted once, so that another key with the same id is noticed."""

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
_KEYS = Table("keys", _METADATA, Column("id", String, primary_key=True), Column("check", String, nullable=False))
"""The keys that have encrypted something here."""


class CannotOpen(Exception):
    """The journal was written by another version, or with a key that is missing; the message says what to do."""


@dataclass(frozen=True)
class Entry:
    """A call in the journal."""

    session: str
    earlier: Earlier
    effect_key: str
    """What the idempotency keys of the call's task begin with."""
    doubts: str
    """The id of the task that this call may repeat; empty if there is no doubt."""


class Journal:
    """The calls of all sessions of one state folder, in a database of its own; one process uses it."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, *, cipher: Keyring | None = None) -> None:
        """Open the journal; answers that were still open when its last process ended are recorded as BROKEN.

        Raises:
            CannotOpen: the journal is of another version, or needs a key that `cipher` lacks.
        """
        self._clock = clock
        self._cipher = cipher
        path.touch(mode=0o600)
        path.chmod(0o600)
        self._engine = _open(path)
        with self._engine.begin() as transaction:
            found = transaction.execute(text("PRAGMA user_version")).scalar_one()
            if found not in (0, FORMAT, ENCRYPTED_FORMAT):
                raise CannotOpen(f"{path} was written by another version of Replan: use that one, or delete the file.")
            # A version without keys would find no call again.
            now_format = ENCRYPTED_FORMAT if cipher else max(found, FORMAT)
            transaction.execute(text(f"PRAGMA user_version = {now_format}"))
            _METADATA.create_all(transaction)
            self._require_keys(path, transaction)
            now = clock()
            open_ones = _CALLS.c.delivery == Delivery.OPEN
            transaction.execute(_CALLS.update().where(open_ones).values(delivery=Delivery.BROKEN, since=now))
            old = (_CALLS.c.since < now - KEPT_DAYS * 86_400) | ((_CALLS.c.key == "") & (_CALLS.c.since < now - WINDOW))
            is_pending = (_CALLS.c.delivery == Delivery.PENDING) & (_CALLS.c.since >= now - KEPT_DAYS * 86_400)
            transaction.execute(_CALLS.delete().where(old & ~is_pending))

    def close(self) -> None:
        self._engine.dispose()

    def _require_keys(self, path: Path, transaction: Connection) -> None:
        """Check that the cipher has the keys of the journal, and record its key. Raises CannotOpen without them."""
        for row in transaction.execute(select(_KEYS)).all():
            try:
                is_read = self._cipher is not None and self._cipher.open(row.check) == _PLAINTEXT
            except Exception:  # ciphers may raise anything
                is_read = False
            if not is_read:
                raise CannotOpen(
                    f"{path} was written with the key {row.id!r}, which is not here: give a keyring that has the key"
                    " (--keys, REPLAN_KEYS)."
                )
        if self._cipher is not None:
            check = self._cipher.seal_equal(_PLAINTEXT)[0]
            transaction.execute(insert(_KEYS).values(id=self._cipher.ids[0], check=check).on_conflict_do_nothing())

    def _forms(self, text: str) -> list[str]:
        """The forms, encrypted and plain, in which the journal may have a text; the first is that for writing."""
        return [*self._cipher.seal_equal(text), text] if self._cipher and text else [text]

    def earlier(self, session: str, call: Caller) -> list[Earlier]:
        """The earlier calls of the session that may be the same call as `call`."""
        recent = (_CALLS.c.since >= self._clock() - WINDOW) | (_CALLS.c.delivery == Delivery.PENDING)
        may_match = recent if not call.key else _CALLS.c.key.in_(self._forms(call.key))
        query = select(_CALLS).where(_CALLS.c.session == session, _CALLS.c.tool == call.tool, may_match)
        with self._engine.connect() as connection:
            return [self._entry(row).earlier for row in connection.execute(query).mappings()]

    def entry(self, task_id: str) -> Entry | None:
        with self._engine.connect() as connection:
            row = connection.execute(select(_CALLS).where(_CALLS.c.task_id == task_id)).mappings().first()
        return self._entry(row) if row is not None else None

    def add(
        self, session: str, task_id: str, call: Caller, *, effect_key: str, request: str, connection: str, doubts: str
    ) -> None:
        """Record a new call before its task starts: the fields of its Entry, and the request that gets the answer."""
        fields = {
            "tool": call.tool,
            "digest": self._forms(call.digest)[0],
            "authority": self._forms(call.authority)[0],
            "key": self._forms(call.key)[0],
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
        """Record that the answer of a call now goes to this request on this connection."""
        fields = {"delivery": Delivery.OPEN, "request": request, "connection": connection, "since": self._clock()}
        self._update(_CALLS.c.task_id == task_id, **fields)

    def note(self, task_id: str, delivery: Delivery, request: str) -> None:
        """Record the delivery of a call's answer, if the answer still goes to this request."""
        chosen = (_CALLS.c.task_id == task_id) & (_CALLS.c.request == request)
        self._update(chosen, delivery=delivery, since=self._clock())

    def note_request(self, request: str, delivery: Delivery) -> None:
        """Record the delivery of the answer to a request; ignored for reads, and while the call is PENDING or VOID."""
        chosen = (_CALLS.c.request == request) & _CALLS.c.delivery.not_in([Delivery.PENDING, Delivery.VOID])
        self._update(chosen, delivery=delivery, since=self._clock())

    def _entry(self, row: RowMapping) -> Entry:
        forms = (row[name] for name in ("digest", "authority", "key"))
        caller = Caller(row["tool"], *(self._cipher.open(form) if self._cipher else form for form in forms))
        earlier = Earlier(row["task_id"], caller, Delivery(row["delivery"]), row["since"], row["request"])
        return Entry(row["session"], earlier, row["effect_key"], row["doubts"])

    def _update(self, chosen: ColumnElement[bool], **values: object) -> None:
        with self._engine.begin() as transaction:
            transaction.execute(_CALLS.update().where(chosen).values(values))

    def went_on(self, connection: str) -> None:
        """Record as DELIVERED all answers that were written to this connection: the agent made a later call on it."""
        chosen = (_CALLS.c.connection == connection) & (_CALLS.c.delivery == Delivery.WRITTEN)
        self._update(chosen, delivery=Delivery.DELIVERED)

    def left(self, connection: str) -> None:
        """Record as BROKEN all answers that were still to come on this connection: it has ended."""
        chosen = (_CALLS.c.connection == connection) & (_CALLS.c.delivery == Delivery.OPEN)
        self._update(chosen, delivery=Delivery.BROKEN, since=self._clock())


def _open(path: Path) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=StaticPool)

    @event.listens_for(engine, "connect")
    def _configure(connection: object, record: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")  # type: ignore[attr-defined]  # a sqlite3 connection
        connection.execute("PRAGMA synchronous = FULL")  # type: ignore[attr-defined]

    return engine
