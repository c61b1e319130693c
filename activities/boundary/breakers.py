"""The circuit breakers of a worker's tools: a tool whose service is down is left alone by all workers at once.

The state of each kind is one row in the store, changed by compare-and-set. A worker reads all rows at most once a
second, and only tools that ever failed have one: while a service answers, a call costs no query. A store that cannot
be used opens no breaker and closes no call: whether the call needs the store is decided by its effect.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import structlog
from pydantic import ValidationError
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    Integer,
    String,
    Table,
    Text,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from temporalio.exceptions import ApplicationError

from activities import deadline, metrics
from activities.borders.sql import DATABASE_ERRORS
from activities.boundary.attempt import Attempt, FaultRaised
from activities.boundary.breaker import Breaker, BreakerState
from activities.storage.store import REPLAN_TABLES, insert_new, write
from activities.toolbox.declare.kind import Kind
from workflows import routing
from workflows.faults import Code, Fault
from workflows.measures import BREAKER_TRANSITIONS, Sample
from workflows.routing import CircuitBreaker

BREAKERS = Table(
    "replan_breakers",
    REPLAN_TABLES,
    Column("kind", String(200), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("state", Text, nullable=False),
)
"""`state` is a Breaker as JSON; each write adds 1 to `version`, and is made only if the version is the one read."""

FAILURES = frozenset({Code.TIMEOUT, Code.UNREACHABLE, Code.SERVER_ERROR, Code.OVERLOADED})
"""Codes of a service that is down: the transient infrastructural codes, without those that are Replan's own."""
ANSWERS = frozenset({Code.UNAUTHORIZED, Code.FORBIDDEN, Code.QUOTA_EXHAUSTED, Code.NEEDS_PERSON})
"""Codes of persistent infrastructural faults with which a service answers; every semantic fault is an answer, too."""
STORE_SECONDS = 2.0
"""The most seconds that a call waits for the store because of its breaker."""
BLIND_SECONDS = 5.0
"""Seconds without breakers after the store could not be used; the next call asks it again."""
POLL_SECONDS = 0.1
"""Seconds between two looks at a trial call that is under way."""
UNUSABLE = (TimeoutError, ValidationError, *DATABASE_ERRORS)
"""Exceptions of a store that cannot be used, or has the rows of a newer version."""

log = structlog.get_logger("replan.breaker")

Move = Callable[[Breaker, float], Breaker]
"""A transition: from a breaker and the time to the next breaker, or to the same one."""


class BreakerRow(NamedTuple):
    breaker: Breaker = Breaker()
    version: int = 0


class BreakerChange(NamedTuple):
    before: Breaker
    after: Breaker


class Breakers:
    """The breakers of all kinds, as one worker knows them. All methods but `known` belong to one event loop."""

    def __init__(self, engine: AsyncEngine, max_waiting: int = 50) -> None:
        """`engine` is the store, connected for the worker's own event loop, which a tool cannot block.

        At most `max_waiting` calls wait for a trial call, since each of them holds a slot of the worker.
        """
        self._engine = engine
        self._rows = dict[str, BreakerRow]()
        self._read_at = self._blind_until = float("-inf")
        self._ahead = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._max_waiting = max_waiting

    @asynccontextmanager
    async def guard(self, kind: Kind) -> AsyncIterator["BreakerGuard"]:
        """Surround an attempt, and record at its end what it says of the service.

        To be entered outside of `attempt_of`, whose ApplicationError has the fault of the attempt. The attempt asks
        `BreakerGuard.admit` before it calls the tool.
        """
        guard = BreakerGuard(self, kind.spec.kind, kind.breaker)
        try:
            yield guard
        except BaseException as error:
            await guard.end(error)
            raise
        await guard.end(None)

    def known(self, kind: str, age: float = routing.BREAKERS_CACHED) -> Breaker | None:
        """What was known of a breaker within the last `age` seconds; None if that is too old. From any thread."""
        if time.monotonic() - self._read_at > age:
            return None
        return self._rows.get(kind, BreakerRow()).breaker

    def wait(self, breaker: Breaker, policy: CircuitBreaker) -> float:
        """Seconds until the next trial call; 0 if a call may be made."""
        return breaker.wait(policy, time.monotonic() + self._ahead)

    async def look(self, kind: str, age: float = routing.BREAKERS_CACHED) -> Breaker | None:
        """A breaker as it was within the last `age` seconds; None if the store cannot be read."""
        found = self.known(kind, age)
        if found is not None or time.monotonic() < self._blind_until:
            return found
        # Calls that ask at the same time share one query.
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._try_to_read())
        await asyncio.shield(self._reading)
        return None if time.monotonic() < self._blind_until else self._rows.get(kind, BreakerRow()).breaker

    async def all(self) -> tuple[Mapping[str, Breaker], float]:
        """The breakers of all tools that ever failed, read now, and the time by the clock of their times.

        Raises:
            DATABASE_ERRORS, TimeoutError: the store cannot be read.
        """
        await self._read()
        return {kind: row.breaker for kind, row in self._rows.items()}, time.monotonic() + self._ahead

    async def states(self) -> Mapping[str, int]:
        """The states of all tools that ever failed, as values of `measures.BREAKER_STATE`; raises as `all`."""
        states = (BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN)
        return {kind: states.index(one.state) for kind, one in (await self.all())[0].items()}

    async def reset(self, kind: str) -> BreakerChange:
        """Close a breaker, and forget the failures that it has counted.

        Raises:
            DATABASE_ERRORS, TimeoutError: the store cannot be used.
        """
        return await self._written(kind, lambda one, now: one if one.is_clean else one.closed(now))

    async def reset_all(self) -> None:
        """Close all breakers.

        Raises:
            DATABASE_ERRORS, TimeoutError: the store cannot be used.
        """
        for kind in (await self.all())[0]:
            await self.reset(kind)

    async def move(self, kind: str, move: Move) -> Breaker | None:
        """Change a breaker, without a query if what is known shows no change; None if the store cannot be used."""
        if self._changes_nothing(kind, move):
            return self._rows.get(kind, BreakerRow()).breaker
        try:
            async with asyncio.timeout(STORE_SECONDS), self._lock:
                if self._changes_nothing(kind, move):  # one of the calls that held the lock has seen to it
                    return self._rows.get(kind, BreakerRow()).breaker
                return (await self._written(kind, move)).after
        except UNUSABLE as error:
            self._lose_sight(error)
            return None

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[bool]:
        """Whether one more call may wait for a trial call; it counts as waiting inside the block."""
        may = self._waiting < self._max_waiting
        self._waiting += may
        try:
            yield may
        finally:
            self._waiting -= may

    def _changes_nothing(self, kind: str, move: Move) -> bool:
        known = self._rows.get(kind, BreakerRow()).breaker
        return move(known, time.monotonic() + self._ahead) == known

    async def _try_to_read(self) -> None:
        try:
            await self._read()
        except UNUSABLE as error:
            self._lose_sight(error)

    async def _read(self) -> None:
        at = time.monotonic()
        async with asyncio.timeout(STORE_SECONDS), self._engine.connect() as connection:
            rows = (await connection.execute(select(BREAKERS, _clock(connection)))).all()
        for row in rows:
            self._remember(row.kind, BreakerRow(Breaker.model_validate_json(row.state), row.version), row.now)
        self._read_at, self._blind_until = at, float("-inf")

    async def _written(self, kind: str, move: Move) -> BreakerChange:
        while True:
            async with asyncio.timeout(STORE_SECONDS):
                before, after, now, is_ours = await write(self._engine, lambda tx: _moved(tx, kind, move))
            if after.breaker == before.breaker:
                self._remember(kind, before, now)
                return BreakerChange(before.breaker, after.breaker)
            if is_ours:  # else another worker was faster, and its row decides
                self._remember(kind, after, now)
                _report(kind, before.breaker, after.breaker, now)
                return BreakerChange(before.breaker, after.breaker)

    def _remember(self, kind: str, row: BreakerRow, now: float) -> None:
        self._ahead = now - time.monotonic()
        if (
            row.version >= self._rows.get(kind, BreakerRow()).version
        ):  # a query may have begun before our own newest write
            self._rows[kind] = row

    def _lose_sight(self, error: BaseException) -> None:
        if time.monotonic() >= self._blind_until:
            log.warning("breakers_unknown", error=type(error).__name__, remedy="check the store of the worker")
        self._blind_until = time.monotonic() + BLIND_SECONDS
        self._read_at = float("-inf")


class BreakerGuard:
    """The breaker around one attempt."""

    def __init__(self, breakers: Breakers, kind: str, policy: CircuitBreaker | None) -> None:
        self._breakers = breakers
        self._kind = kind
        self._policy = policy
        self._home = asyncio.get_running_loop()
        self._attempt: Attempt | None = None
        self._generation: int | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def admit(self, attempt: Attempt) -> None:
        """Let the call of an attempt through, as a trial if its breaker was open; it may wait for another trial.

        Raises:
            FaultRaised: the breaker is open; nothing was called.
        """
        if self._policy is None or attempt.call.provided is not None:
            return
        self._attempt = attempt
        known = self._breakers.known(self._kind)
        if known is not None and known.state is BreakerState.CLOSED:
            self._generation = known.generation
            return
        began = deadline.clock()
        await self._at_home(self._admit(self._policy))
        deadline.extend(deadline.clock() - began)

    async def end(self, error: BaseException | None) -> None:
        """Record what the end of the attempt says of the service."""
        if self._renewing is not None:
            self._renewing.cancel()
        if self._policy is None or self._attempt is None or self._generation is None:
            return
        policy, generation, caller = self._policy, self._generation, self._attempt.call.key
        match _verdict(self._attempt, error):
            case True:
                await self._breakers.move(self._kind, lambda one, now: one.succeeded(generation, policy, now))
            case Code() as code:
                await self._breakers.move(
                    self._kind, lambda one, now: one.failed(generation, caller, code, policy, now)
                )
            case None:
                await self._breakers.move(self._kind, lambda one, _: one.released(generation))

    async def _at_home(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` on the worker's own event loop: the connections to the store belong to it."""
        if asyncio.get_running_loop() is self._home:
            await work
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

    async def _admit(self, policy: CircuitBreaker) -> None:
        until, age = time.monotonic() + routing.TRIAL_WAIT, routing.BREAKERS_CACHED
        async with self._breakers.waiting() as may_wait:
            while True:
                breaker = await self._breakers.look(self._kind, age)
                if breaker is not None and not self._breakers.wait(breaker, policy):
                    breaker = await self._try(policy)
                if breaker is None or self._renewing is not None:
                    return
                if breaker.state is BreakerState.CLOSED:
                    self._generation = breaker.generation
                    return
                if breaker.state is BreakerState.OPEN or not may_wait or time.monotonic() >= until:
                    raise FaultRaised(_refusal(self._kind, breaker, self._breakers.wait(breaker, policy)))
                age = POLL_SECONDS
                await asyncio.sleep(POLL_SECONDS)

    async def _try(self, policy: CircuitBreaker) -> Breaker | None:
        """Begin a trial call, unless another worker was faster; return the breaker, None without a store."""
        made: Breaker | None = None

        def begin(breaker: Breaker, now: float) -> Breaker:
            nonlocal made
            may = breaker.state is not BreakerState.CLOSED and not breaker.wait(policy, now)
            made = breaker.trying(now) if may else None
            return made or breaker

        found = await self._breakers.move(self._kind, begin)
        if found is not None and found == made:
            self._generation = found.generation
            self._renewing = asyncio.create_task(self._renew(found.generation))
        return found

    async def _renew(self, generation: int) -> None:
        while True:
            await asyncio.sleep(routing.TRIAL_LEASE / 3)
            await self._breakers.move(self._kind, lambda one, now: one.renewed(generation, now))


def _verdict(attempt: Attempt, error: BaseException | None) -> Code | bool | None:
    """What an attempt says of the service: True if it answered, a code if it is down, None if nothing is known."""
    if not attempt.reached or attempt.replayed:
        return None
    if error is None:
        return True
    fault = error.details[0] if isinstance(error, ApplicationError) and error.details else None
    if not isinstance(fault, Fault):  # it was cancelled
        return None
    if fault.code in FAILURES:
        return fault.code
    return True if attempt.ended or fault.quadrant.is_semantic or fault.code in ANSWERS else None


def _refusal(kind: str, breaker: Breaker, left: float) -> Fault:
    trial = f"the next trial call is in {left:.2g} s" if breaker.state is BreakerState.OPEN else "a trial call runs"
    reason = f"{kind} is left alone: {breaker.failures} calls in a row failed ({breaker.code}), {trial}."
    return Fault.of(Code.CIRCUIT_OPEN, reason, retry_after=round(left, 2))


def _report(kind: str, before: Breaker, after: Breaker, now: float) -> None:
    """Write the log line of a change of state, and count it."""
    if after.state is not before.state:
        metrics.count(Sample(BREAKER_TRANSITIONS, (kind, after.state)))
    match after.state:
        case _ if after.generation == before.generation:
            return
        case BreakerState.OPEN:
            left = round(after.until - now, 1)
            log.warning("breaker_opened", kind=kind, failures=after.failures, code=after.code, trial_in=left)
        case BreakerState.HALF_OPEN if after.until:
            log.info("breaker_tries", kind=kind)
        case BreakerState.CLOSED if before.state is not BreakerState.CLOSED:
            log.info("breaker_closed", kind=kind, seconds=round(now - before.since, 1))


def _moved(tx: Connection, kind: str, move: Move) -> tuple[BreakerRow, BreakerRow, float, bool]:
    """Change a row: the row before, the row after, the time, and whether the row was written."""
    before, now = _row(tx, kind)
    after = BreakerRow(move(before.breaker, now), before.version + 1)
    return before, after, now, after.breaker != before.breaker and _set(tx, kind, before, after)


def _row(tx: Connection, kind: str) -> tuple[BreakerRow, float]:
    """The row of a kind, and the time."""
    clock = _clock(tx)
    wanted = select(BREAKERS.c.version, BREAKERS.c.state, clock).where(BREAKERS.c.kind == kind)
    found = tx.execute(wanted).one_or_none()
    if found is None:
        return BreakerRow(), float(tx.execute(select(clock)).scalar_one())
    return BreakerRow(Breaker.model_validate_json(found.state), found.version), float(found.now)


def _set(tx: Connection, kind: str, before: BreakerRow, after: BreakerRow) -> bool:
    """Write a row; return whether it still was the one before."""
    values = {"version": after.version, "state": after.breaker.model_dump_json()}
    if not before.version:
        return insert_new(tx, BREAKERS, {"kind": kind, **values})
    same = (BREAKERS.c.kind == kind, BREAKERS.c.version == before.version)
    return tx.execute(update(BREAKERS).where(*same).values(values)).rowcount == 1


def _clock(connection: Connection | AsyncConnection) -> ColumnElement[float]:
    """The time by which all workers go, as a column `now`: PostgreSQL's, or of the machine with the SQLite file."""
    if connection.dialect.name == "postgresql":
        return func.extract("epoch", func.clock_timestamp()).cast(Float).label("now")
    return literal(time.time(), Float).label("now")
