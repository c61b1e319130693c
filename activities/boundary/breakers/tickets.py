"""The calls that wait for their turn at a service that is down, or that limits its callers: one row for each.

Runs when a call is turned away, when its turn comes, and when it is made. First come, first served, by the start of
the task. Every function for one `service` works within a transaction that holds the lock of the service's breaker.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    Integer,
    String,
    Table,
    delete,
    func,
    select,
    tuple_,
    update,
)

from activities.storage.store import REPLAN_TABLES, insert_new

TICKETS = Table(
    "replan_tickets",
    REPLAN_TABLES,
    Column("service", String(200), primary_key=True),
    Column("key", String(1200), primary_key=True),
    Column("namespace", String(200), nullable=False),
    Column("workflow", String(1000), nullable=False),
    Column("started", Float, nullable=False),
    Column("since", Float, nullable=False),
    Column("called", Float, nullable=False),
    Column("calls", Integer, nullable=False),
    Column("trials", Integer, nullable=False),
)
"""`started` is when the task began, `since` when the call was first turned away.

`called` is when the workflow was told that the turn of its call has come, or when the call was made; 0 while the call
waits. `calls` is how often in a row the workflow was told without a call. `trials` is the number of turns in which the
call was not made, or was made as a trial and found the service still down, or still limiting its callers.
"""
_ORDER = TICKETS.c.started, TICKETS.c.since, TICKETS.c.key


class Caller(NamedTuple):
    """A call that can wait for its turn: its key, its workflow, and when the task began."""

    key: str
    namespace: str
    workflow: str
    started: float
    patience: float | None = None
    """The most seconds that the call waits, if its workflow gives it less time than the service's breaker."""

    @property
    def row(self) -> dict[str, str | float]:
        return {"key": self.key, "namespace": self.namespace, "workflow": self.workflow, "started": self.started}


class Called(NamedTuple):
    """A call whose turn has come, and the workflow to be told."""

    key: str
    workflow: str


def is_awaited(tx: Connection, service: str) -> bool:
    """Whether calls of the service wait for their turn."""
    return tx.execute(select(TICKETS.c.key).where(*_where_waiting(service)).limit(1)).first() is not None


def was_called(tx: Connection, service: str, key: str) -> bool:
    """Whether the turn of a call that waited has come."""
    called = select(TICKETS.c.key).where(*_where_key(service, key), TICKETS.c.called > 0)
    return tx.execute(called).first() is not None


def count_before(tx: Connection, service: str, caller: Caller | None, undue: Collection[str]) -> int:
    """How many calls of the service wait before the call of `caller`; with None, how many wait in all.

    `undue` are the keys of calls that wait alone, and delay no other call.
    """
    before = *_where_waiting(service), TICKETS.c.key.not_in(undue)
    waiting = select(func.count()).select_from(TICKETS).where(*before)
    if caller is not None:
        own = select(TICKETS.c.since).where(*_where_key(service, caller.key)).scalar_subquery()
        since = func.coalesce(own, 1e12)
        position = tuple_(caller.started, since, caller.key)
        waiting = waiting.where(tuple_(*_ORDER) < position)
    return int(tx.execute(waiting).scalar_one())


def issue(tx: Connection, service: str, caller: Caller, now: float, *, trials: int = 0) -> float:
    """Give a call a ticket, or let its ticket wait again; return the ticket's `since`. Adds `trials` to the ticket."""
    row = {"service": service, **caller.row, "since": now, "called": 0.0, "calls": 0, "trials": trials}
    if insert_new(tx, TICKETS, row):
        return now
    again = {"called": 0.0, "calls": 0, "trials": TICKETS.c.trials + trials, "workflow": caller.workflow}
    known = update(TICKETS).where(*_where_key(service, caller.key)).values(again).returning(TICKETS.c.since)
    return float(tx.execute(known).scalar_one())


def take(tx: Connection, service: str, key: str, now: float) -> None:
    """Record in the ticket of a call, if it has one, that the call is made and waits no longer."""
    tx.execute(update(TICKETS).where(*_where_key(service, key)).values(called=now, calls=0))


def drop(tx: Connection, service: str, *keys: str) -> None:
    """Delete the tickets of these calls, if they have any."""
    tx.execute(delete(TICKETS).where(TICKETS.c.service == service, TICKETS.c.key.in_(keys)))


def recall(tx: Connection, service: str, running: Sequence[str], before: float, most: int) -> None:
    """Let calls wait again that were told of their turn, or made, before the time `before` and are not in `running`.

    A call that was told `most` times in a row loses its ticket. `running` are the keys of the calls under way.
    """
    lost = TICKETS.c.service == service, TICKETS.c.called > 0, TICKETS.c.called < before, TICKETS.c.key.not_in(running)
    tx.execute(delete(TICKETS).where(*lost, TICKETS.c.calls >= most))
    tx.execute(update(TICKETS).where(*lost).values(called=0.0, trials=TICKETS.c.trials + 1))


def call(
    tx: Connection, service: str, namespace: str, number: int, now: float, undue: Collection[str], *, is_trial: bool
) -> list[Called]:
    """Give the turn to at most `number` waiting calls of a namespace; `is_trial`: to the least often tried first.

    `undue` are the keys of calls that must wait on.
    """
    # Else the trial call would be the same each time, which may be the only one that fails.
    order = (TICKETS.c.trials, *_ORDER) if is_trial else _ORDER
    due = *_where_waiting(service), TICKETS.c.namespace == namespace, TICKETS.c.key.not_in(undue)
    query = select(TICKETS.c.key, TICKETS.c.workflow).where(*due)
    found = [Called(*row) for row in tx.execute(query.order_by(*order).limit(number))]
    called = TICKETS.c.service == service, TICKETS.c.key.in_([found_call.key for found_call in found])
    tx.execute(update(TICKETS).where(*called).values(called=now, calls=TICKETS.c.calls + 1))
    return found


def services(tx: Connection, namespace: str) -> list[str]:
    """The services for which calls of a namespace have tickets."""
    return list(tx.execute(select(TICKETS.c.service).where(TICKETS.c.namespace == namespace).distinct()).scalars())


def count(tx: Connection) -> dict[str, int]:
    """By service, how many calls wait for their turn."""
    waiting = select(TICKETS.c.service, func.count()).where(TICKETS.c.called == 0).group_by(TICKETS.c.service)
    return {str(service): int(number) for service, number in tx.execute(waiting)}


def longest_since(tx: Connection) -> dict[str, float]:
    """By service, the time since which its longest waiting call waits for its turn."""
    waiting = select(TICKETS.c.service, func.min(TICKETS.c.since)).where(TICKETS.c.called == 0)
    return {str(service): float(since) for service, since in tx.execute(waiting.group_by(TICKETS.c.service))}


def _where_waiting(service: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return TICKETS.c.service == service, TICKETS.c.called == 0


def _where_key(service: str, key: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return TICKETS.c.service == service, TICKETS.c.key == key
