"""The circuit breakers of a worker's tools: while a service is down or limits its callers, it gets few calls or none.

Runs before each call of a service and after it, when the turns of calls come, and when breakers are shown or reset.

The state of each service is one row in the store, changed by compare-and-set. A worker reads all rows at most once a
second, and only services that ever failed or have a limit have a row: while a service without a limit answers, a call
makes no query of its own. A store that cannot be used opens no breaker and rejects no call: the effect of the call
decides whether the call needs the store.

A call that is turned away gets a ticket, and its workflow waits for a Signal that the call's turn has come. Every
worker signals the workflows of its namespace (`admitting`).
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import structlog
from pydantic import ValidationError
from sqlalchemy import Column, Connection, Integer, String, Table, select, update
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.common import MetricMeter

from activities.borders.sql import DATABASE_ERRORS
from activities.boundary.breakers import tickets
from activities.boundary.breakers.states import CALL_LEASE, LIMIT_PATIENCE, TRIAL_LEASE, Breaker, BreakerState, Instant
from activities.boundary.breakers.tickets import Called, Caller
from activities.storage.store import REPLAN_TABLES, SealedText, clock, insert_new, time_limit, write
from workflows.account import metrics
from workflows.account.metrics import BREAKER_STATE, BREAKER_TRANSITIONS, PATIENCE_USED, WAITING_CALLS, Sample
from workflows.faults import retries

BREAKERS = Table(
    "replan_breakers",
    REPLAN_TABLES,
    Column("kind", String(200), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("state", SealedText, nullable=False),
)
"""`state` is a Breaker as JSON; each write adds 1 to `version`, and is made only if the version is the one read."""

BREAKERS_CACHED = 1.0
"""Seconds for which a worker uses the states of the circuit breakers that it has read from the store."""
ADMISSION_CALLS = 2
"""How often a waiting call has its turn; if it is not made even then, it loses its place in the queue."""
CHECK_SECONDS = 5.0
"""The most seconds between two checks of a worker for calls whose turn has come."""
STORE_SECONDS = 2.0
"""The most seconds that a call waits for the store because of its breaker."""
BLIND_SECONDS = 5.0
"""Seconds without breakers after the store could not be used; the next call asks it again."""
UNUSABLE = (TimeoutError, ValidationError, *DATABASE_ERRORS)
"""Exceptions of a store that cannot be used, or has the rows of a newer version."""

log = structlog.get_logger("replan.breaker")

Move = Callable[[Breaker, Instant], Breaker]
"""A transition: from a breaker and the time to the next breaker, or to the same one."""
Work = Callable[[Connection, Breaker, float], Breaker]
"""A transition with changes of tickets, in the transaction that holds the lock of the breaker's row."""


class _Outrun(Exception):
    """Another worker has changed the row since it was read, and its row decides."""


class BreakerRow(NamedTuple):
    """A breaker, and the version of its row in the store; 0 for a service without a row."""

    breaker: Breaker = Breaker()
    version: int = 0


class BreakerChange(NamedTuple):
    """A breaker before and after a transition."""

    before: Breaker
    after: Breaker


class Entered(NamedTuple):
    """The result of `Breakers.enter`: whether the call is made now, and otherwise how it waits."""

    breaker: Breaker
    generation: int | None = None
    """The generation under which the call is made; None if the call was turned away."""
    wait: float = 0.0
    """Seconds until the service is called next."""
    before: int = 0
    """How many other calls wait before this one."""
    queued: float | None = None
    """Seconds for which the call may wait for its turn; None if its workflow cannot be told of the turn."""


class Left(NamedTuple):
    """The result of `Breakers.leave`: whether a call that has ended waits for its turn."""

    queued: float | None = None
    """Seconds for which the call may wait; None if it has no place in the queue."""
    is_trial: bool = False
    """Whether the call was made as a trial, and no other call of the service has succeeded since it waits."""


class DueCalls(NamedTuple):
    """The calls whose turn has come at a service, and the most seconds until the next check."""

    called: Sequence[Called]
    next_in: float


class Breakers:
    """The breakers of all services, as one worker knows them. All methods but `known` belong to one event loop."""

    def __init__(self, engine: AsyncEngine, jitter: Callable[[], float] = random.random) -> None:
        """`engine` is the store, connected for the worker's own event loop, which a tool cannot block."""
        self._engine = engine
        self.jitter = jitter
        """Returns a random number in [0, 1)."""
        self._rows = dict[str, BreakerRow]()
        self._read_at = self._blind_until = float("-inf")
        self._ahead = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self.namespace: str | None = None
        """The namespace whose workflows this worker tells of turns; without one, no call gets a ticket."""
        self.meter = MetricMeter.noop
        """Counts how the breakers change state."""
        self.changed = asyncio.Event()
        """Set when there may be turns of which workflows have to be told."""

    def known(self, service: str) -> Breaker | None:
        """The breaker as this worker last read it; None if the read is older than BREAKERS_CACHED. For any thread."""
        if time.monotonic() - self._read_at > BREAKERS_CACHED:
            return None
        return self._rows.get(service, BreakerRow()).breaker

    async def look(self, service: str) -> Breaker | None:
        """The breaker as `known` returns it, else as read now by a query; None if the store cannot be read."""
        found = self.known(service)
        if found is not None or time.monotonic() < self._blind_until:
            return found
        # Calls that ask at the same time share one query.
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._try_to_read())
        await asyncio.shield(self._reading)
        return None if time.monotonic() < self._blind_until else self._rows.get(service, BreakerRow()).breaker

    async def all(self) -> tuple[Mapping[str, Breaker], float]:
        """The breakers of all services that ever failed or have a limit, read now, and the time by the store's clock.

        Raises:
            DATABASE_ERRORS, TimeoutError: the store cannot be read.
        """
        await self._read()
        return {service: row.breaker for service, row in self._rows.items()}, time.monotonic() + self._ahead

    async def waiting(self) -> Mapping[str, int]:
        """By service, how many calls wait for their turn. Raises as `all`."""
        async with asyncio.timeout(STORE_SECONDS), self._engine.connect() as connection:
            return await connection.run_sync(tickets.count)

    async def samples(self) -> list[Sample]:
        """The gauges of all services that ever failed or have a limit: state and waiting calls. Raises as `all`."""
        states = (BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN)
        (breakers, now), waiting = await self.all(), await self.waiting()
        async with asyncio.timeout(STORE_SECONDS), self._engine.connect() as connection:
            since = await connection.run_sync(tickets.longest_since)
        # A call may have been turned away since the clock of the store was read.
        waits = {service: max(0.0, now - since.get(service, now)) for service in breakers}
        return [
            *(Sample(BREAKER_STATE, (service,), states.index(breaker.state)) for service, breaker in breakers.items()),
            *(Sample(WAITING_CALLS, (service,), waiting.get(service, 0)) for service in breakers),
            *(
                Sample(PATIENCE_USED, (service,), wait / _patience(breakers[service]))
                for service, wait in waits.items()
            ),
        ]

    async def reset(self, service: str) -> BreakerChange:
        """Close a breaker and forget its failures; but if calls wait, only let the next call be made at once.

        Raises as `all`.
        """

        def closed(breaker: Breaker, moment: Instant) -> Breaker:
            if moment.is_awaited:  # all at once would bring the service down again
                return breaker.hurried(moment.now)
            return breaker if breaker.is_clean else breaker.closed(moment.now)

        return await self._moved(service, closed)

    async def reset_all(self) -> None:
        """Reset all breakers, each as `reset` does. Raises as `all`."""
        for service in (await self.all())[0]:
            await self.reset(service)

    async def move(self, service: str, move: Move) -> Breaker | None:
        """Change a breaker by `move`, without a query if it stays as last read; return it, or None without a store."""
        if self._changes_nothing(service, move):
            return self._rows.get(service, BreakerRow()).breaker
        try:
            async with self._lock:  # without a limit: that other calls come first says nothing of the store
                if time.monotonic() < self._blind_until:  # a call that held the lock has found that out
                    return None
                if self._changes_nothing(service, move):  # one of the calls that held the lock has seen to it
                    return self._rows.get(service, BreakerRow()).breaker
                return (await self._moved(service, move)).after
        except UNUSABLE as error:
            self._lose_sight(error)
            return None

    async def enter(self, service: str, key: str, caller: Caller | None, limit: str | None = None) -> Entered | None:
        """Let a call be made or turn it away, with a ticket if `caller` is given; None if the store cannot be used.

        `key` is the call's key, and `limit` is the limit that the tools of the service declare.
        """
        entry: Entered | None = None

        def work(tx: Connection, breaker: Breaker, now: float) -> Breaker:
            nonlocal entry
            breaker = breaker.limited_to(limit)
            is_closed = breaker.state is BreakerState.CLOSED
            if is_closed and (not limit or tickets.was_called(tx, service, key)):
                if breaker.waits_alone(key):
                    tickets.take(tx, service, key, now)  # so that its patience does not begin anew
                else:
                    tickets.drop(tx, service, key)
                entry = Entered(breaker, breaker.generation)
                return breaker.renewed(key, breaker.generation, now)
            if breaker.pause_left(now):  # a call that was called before the pause, and has not begun, waits again
                breaker = breaker.given_back(key)
            before = tickets.count_before(tx, service, caller, breaker.undue(now))
            if is_closed and breaker.room(now) and not before:
                tickets.drop(tx, service, key)
                entry = Entered(breaker, breaker.generation)
                return breaker.taking(now)
            if not is_closed and (key in breaker.live_places(now) or (breaker.room(now) and not before)):
                made = breaker.admitting(now, TRIAL_LEASE, key)
                tickets.take(tx, service, key, now)
                entry = Entered(made, made.places[key].generation)
                return made
            queued = self._queued(tx, service, breaker, caller, now) if caller else None
            entry = Entered(breaker, None, breaker.wait(now), before, queued)
            return breaker

        await self._worked(service, work)
        return entry

    async def leave(self, service: str, key: str, move: Move, caller: Caller | None, *, is_trial: bool) -> Left:
        """Change a breaker by `move` after a call ended; say whether the call waits for its turn.

        It waits, with a ticket, if a `caller` is given and the breaker then holds the call back. `is_trial`: the call
        was made as a trial.
        """
        left = Left()

        def work(tx: Connection, breaker: Breaker, now: float) -> Breaker:
            nonlocal left
            waited = _holds(breaker, key)
            if caller is None or not waited:
                tickets.drop(tx, service, key)
            is_awaited = breaker.state is not BreakerState.CLOSED and tickets.is_awaited(tx, service)
            after = move(breaker, Instant(now, is_awaited))
            if caller is not None and _holds(after, key):
                trial = is_trial and waited
                left = Left(self._queued(tx, service, after, caller, now, trials=int(trial)), trial)
            else:
                left = Left()
            return after

        await self._worked(service, work)
        return left

    async def call_next(self, service: str) -> DueCalls:
        """Give places to the calls whose turn has come, and return these calls. Raises as `all`."""
        due = DueCalls((), CHECK_SECONDS)

        def work(tx: Connection, breaker: Breaker, now: float) -> Breaker:
            nonlocal due
            running, undue = breaker.underway(now), breaker.undue(now)
            tickets.recall(tx, service, list(running), now - CALL_LEASE, ADMISSION_CALLS)
            room, is_trial, namespace = breaker.room(now), int(breaker.window) == 1, self.namespace or ""
            called = tickets.call(tx, service, namespace, room, now, undue, is_trial=is_trial) if room else []
            next_in = breaker.wait(now) or min([*running.values(), *undue.values()], default=CHECK_SECONDS)
            due = DueCalls(called, min(next_in, CHECK_SECONDS))
            if not called or breaker.state is BreakerState.CLOSED:
                return breaker.taking(now, len(called))
            return breaker.admitting(now, CALL_LEASE, *(call.key for call in called))

        async with self._lock:
            await self._transacted(service, work)
        return due

    async def services_awaited(self) -> list[str]:
        """The services for which calls of this worker's namespace have tickets. Raises as `all`."""
        async with asyncio.timeout(STORE_SECONDS), self._engine.connect() as connection:
            return await connection.run_sync(tickets.services, self.namespace or "")

    async def forget(self, service: str, key: str) -> None:
        """Delete the ticket and the place of a call whose workflow is closed. Raises as `all`."""

        def work(tx: Connection, breaker: Breaker, now: float) -> Breaker:
            tickets.drop(tx, service, key)
            return breaker.given_back(key)

        async with self._lock:
            await self._transacted(service, work)

    def _queued(
        self, tx: Connection, service: str, breaker: Breaker, caller: Caller, now: float, *, trials: int = 0
    ) -> float:
        """Give a call a ticket, and return how many seconds it may still wait; if that is 0, the ticket is deleted."""
        since = tickets.issue(tx, service, caller, now, trials=trials)
        # While other calls succeed, the queue advances, and no patience is used up. Who waits alone has no queue.
        begun = since if breaker.waits_alone(caller.key) else max(since, breaker.advanced)
        patience = _patience(breaker) if caller.patience is None else min(caller.patience, _patience(breaker))
        left = patience - (now - begun)
        if left <= 0:
            tickets.drop(tx, service, caller.key)
        return max(0.0, left)

    def _changes_nothing(self, service: str, move: Move) -> bool:
        known = self._rows.get(service, BreakerRow()).breaker
        return move(known, Instant(time.monotonic() + self._ahead)) == known

    async def _try_to_read(self) -> None:
        try:
            await self._read()
        except UNUSABLE as error:
            self._lose_sight(error)

    async def _read(self) -> None:
        at = time.monotonic()
        async with asyncio.timeout(STORE_SECONDS), self._engine.connect() as connection:
            rows = (await connection.execute(select(BREAKERS, clock(connection)))).all()
        for row in rows:
            self._remember(row.kind, BreakerRow(Breaker.model_validate_json(row.state), row.version), row.now)
        self._read_at, self._blind_until = at, float("-inf")

    async def _worked(self, service: str, work: Work) -> None:
        """Do `work` in a transaction, unless the store cannot be used; in both cases, set `changed`."""
        try:
            async with self._lock:  # as in `move`
                if time.monotonic() >= self._blind_until:
                    await self._transacted(service, work)
        except UNUSABLE as error:
            self._lose_sight(error)
        self.changed.set()

    async def _moved(self, service: str, move: Move) -> BreakerChange:
        """Change the breaker of a service by `move` in a transaction, and set `changed`."""

        def work(tx: Connection, breaker: Breaker, now: float) -> Breaker:
            is_awaited = breaker.state is not BreakerState.CLOSED and tickets.is_awaited(tx, service)
            return move(breaker, Instant(now, is_awaited))

        change = await self._transacted(service, work)
        self.changed.set()
        return change

    async def _transacted(self, service: str, work: Work) -> BreakerChange:
        """Do `work` in a transaction, and again as often as another worker has changed the row meanwhile."""

        def transact(tx: Connection) -> tuple[BreakerRow, BreakerRow, float]:
            before, now = _row(tx, service)
            after = BreakerRow(work(tx, before.breaker, now), before.version + 1)
            if after.breaker == before.breaker:
                return before, before, now
            if not _set(tx, service, before, after):
                raise _Outrun  # so that nothing of the work is written, also no ticket
            return before, after, now

        while True:
            with suppress(_Outrun):
                async with time_limit(STORE_SECONDS):
                    before, after, now = await write(self._engine, transact)
                self._remember(service, after, now)
                _report_transition(self.meter, service, before.breaker, after.breaker, now)
                return BreakerChange(before.breaker, after.breaker)

    def _remember(self, service: str, row: BreakerRow, now: float) -> None:
        """Keep `row` in `_rows`, unless a newer one is there; `now` is the time by the store's clock."""
        self._ahead = now - time.monotonic()
        # A query may have begun before our own newest write.
        if row.version >= self._rows.get(service, BreakerRow()).version:
            self._rows[service] = row

    def _lose_sight(self, error: BaseException) -> None:
        """Use no breakers for BLIND_SECONDS, since the store could not be used; log the first such `error`."""
        if time.monotonic() >= self._blind_until:
            log.warning("breakers_unknown", error=type(error).__name__, remedy="check the store of the worker")
        self._blind_until = time.monotonic() + BLIND_SECONDS
        self._read_at = float("-inf")


def _patience(breaker: Breaker) -> float:
    """The most seconds that a call waits for its turn, while no call succeeds; alone, it waits as for a limit."""
    is_limit = breaker.is_limit or breaker.state is BreakerState.CLOSED
    return LIMIT_PATIENCE if is_limit else retries.STEP_DEADLINE.total_seconds()


def _holds(breaker: Breaker, key: str) -> bool:
    """Whether a call must wait for its turn: the breaker is not closed, or holds back this call alone."""
    return breaker.state is not BreakerState.CLOSED or breaker.waits_alone(key)


def _report_transition(meter: MetricMeter, kind: str, before: Breaker, after: Breaker, now: float) -> None:
    if after.state is not before.state:
        metrics.add(meter, [Sample(BREAKER_TRANSITIONS, (kind, after.state))])
    match after.state:
        case _ if after.generation == before.generation:
            return
        case BreakerState.OPEN:
            left = round(after.until - now, 1)
            log.warning("breaker_opened", kind=kind, failures=after.failures, code=after.code, trial_in=left)
        case BreakerState.HALF_OPEN if before.state is BreakerState.OPEN:
            log.info("breaker_tries", kind=kind)
        case BreakerState.CLOSED if before.state is not BreakerState.CLOSED:
            log.info("breaker_closed", kind=kind, seconds=round(now - before.since, 1))


def _row(tx: Connection, service: str) -> tuple[BreakerRow, float]:
    """The row of a service, locked until the transaction ends, and the time."""
    now = clock(tx)
    query = select(BREAKERS.c.version, BREAKERS.c.state, now).where(BREAKERS.c.kind == service).with_for_update()
    found = tx.execute(query).one_or_none()
    if found is None:
        return BreakerRow(), float(tx.execute(select(now)).scalar_one())
    return BreakerRow(Breaker.model_validate_json(found.state), found.version), float(found.now)


def _set(tx: Connection, kind: str, before: BreakerRow, after: BreakerRow) -> bool:
    """Write `after` if the row is still `before`; return whether `after` was written."""
    values = {"version": after.version, "state": after.breaker.model_dump_json()}
    if not before.version:
        return insert_new(tx, BREAKERS, {"kind": kind, **values})
    same = (BREAKERS.c.kind == kind, BREAKERS.c.version == before.version)
    return tx.execute(update(BREAKERS).where(*same).values(values)).rowcount == 1
