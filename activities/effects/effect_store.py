"""The store of effects without a task, and this process as the owner of calls in it."""

import asyncio
import atexit
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait as wait_for
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from activities import sends
from activities.effects import remedies
from activities.effects.calls import Calls
from activities.effects.database import Database
from activities.effects.flow import Joined, Running
from activities.effects.owner import OWNERS, Owner, after_fork
from activities.storage.store import StoreUnavailable, adopt, adopt_blocking, clock, file_of

LEASE_SECONDS, RENEW_SECONDS = 15.0, 4.0
"""How long an owner on another machine counts as alive after its last sign, and how often it gives one (PostgreSQL)."""
AGAIN_SECONDS = 0.5
"""Seconds until a result that could not be recorded is tried again."""
CLOSE_SECONDS = 5.0
"""The longest wait, when a process ends, for what is still to be recorded."""

_PARENTS: ContextVar[tuple[Running, ...]] = ContextVar("replan_effects_parents", default=())


class EffectStore:
    """Records the calls of this process; opened by the first one. A forked child begins as another process."""

    def __init__(
        self, database: Database, *, restarts: bool, watch: bool, on_joined: Callable[[Joined], None] | None
    ) -> None:
        self.log = logging.getLogger("replan.effects")
        self.database = database
        self.is_watched, self._restarts = watch, restarts
        self.on_joined = on_joined or self._log_joined
        self.tasks = set[asyncio.Task[Any]]()
        """The calls of event loops, which keep no reference to a task."""
        self._reset()
        after_fork(self, EffectStore._reset)

    def _reset(self) -> None:
        """Begin as a new process, which a forked child is."""
        self._opening = threading.RLock()
        self._owner: Owner | None = None
        self._rows: Calls | None = None
        self._late = list[Callable[[Connection], Any]]()
        self._has_late = threading.Condition()
        self._worker: threading.Thread | None = None
        self._left: Owner | None = None
        """The owner of calls that had not ended when it was closed."""
        self._is_closed = False
        self._adopted = set[Engine | AsyncEngine]()
        self._adopting = threading.Lock()
        self._adopting_here = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]()

    def begin(self) -> None:
        """Open the store; a call does so by itself.

        Raises:
            StoreUnavailable: the store cannot be opened; the message says why, and what to do.
        """
        with self._opening:
            if self._rows is not None:
                return
            engine = self.database.engine
            self._owner = Owner(self.database.folder, is_watched=self.is_watched)
            if self.is_watched:
                sends.start()
            self._rows = Calls(
                self._owner.id, self._owner.row, self.database.now, self.database.is_local, restarts=self._restarts
            )
            self._is_closed = False
            if engine.dialect.name == "postgresql":
                self._start(self._renew, "effects lease")
            reference = weakref.ref(self)
            atexit.register(_close_at_exit, reference)

    def own_calls(self) -> Calls | None:
        """The calls of this process; None if it has not opened the store. Opens nothing."""
        return self._rows

    @property
    def is_open(self) -> bool:
        """Whether the store was opened by this process."""
        return self._rows is not None

    def close(self, *, is_in_order: bool = True) -> None:
        """Wait for what is to be recorded, and end as an owner.

        `is_in_order`: whoever called has the answers. After an exception nobody knows what became of them: then this
        owner counts as killed.
        """
        with self._opening:
            if self._rows is not None and self._owner is not None:
                self._close(self._rows, self._owner, is_in_order=is_in_order)
        self.database.close()  # without the lock, which its threads may take; it may have been asked about calls

    def _close(self, rows: Calls, owner: Owner, *, is_in_order: bool) -> None:
        until = time.monotonic() + CLOSE_SECONDS
        rows.is_closed = True  # before the look at what runs: a call that begins is in `running` before its claim
        wait_for([running.done for running in list(rows.running.values())], CLOSE_SECONDS)
        with self._has_late:
            self._is_closed = True
            self._has_late.notify_all()
        if self._worker is not None:
            self._worker.join(max(0.0, until - time.monotonic()))
        if rows.running or self._late:
            self._left = owner  # its lock is held until the process ends
        else:
            self._end(rows, owner, is_in_order=is_in_order)
        self._rows = self._owner = None

    def _end(self, rows: Calls, owner: Owner, *, is_in_order: bool) -> None:
        ended = update(OWNERS).where(OWNERS.c.id == owner.id).values(ended_at=datetime.now(UTC))
        try:
            if rows.is_registered and is_in_order:
                self.database.write(lambda tx: tx.execute(ended).rowcount)
        except StoreUnavailable:
            is_in_order = False
        owner.close(is_in_order=is_in_order)

    @property
    def rows(self) -> Calls:
        """The rows of the store; opens it."""
        self.begin()
        if self._rows is None:
            raise StoreUnavailable("The store was closed.")
        return self._rows

    @property
    def owner(self) -> Owner:
        """This process as an owner of calls; opens the store."""
        self.begin()
        if self._owner is None:
            raise StoreUnavailable("The store was closed.")
        return self._owner

    def prepare(self, datasource: Engine) -> None:
        """Bring the ledger in the database of a transactional function to the newest revision, once.

        Raises StoreUnavailable if that fails, or if it is the file of the store itself.
        """
        with self._adopting:  # to prepare an engine twice at once breaks the connections of one of the two
            if datasource in self._adopted:
                return
            self._refuse_own_file(datasource)
            adopt_blocking(datasource, self.database.cipher)
            self._adopted.add(datasource)

    async def prepare_async(self, datasource: AsyncEngine) -> None:
        """`prepare` for a database with an event loop; raises as it does."""
        async with self._adopting_here.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if datasource in self._adopted:
                return
            self._refuse_own_file(datasource.sync_engine)
            await adopt(datasource, self.database.cipher)
            self._adopted.add(datasource)

    def _refuse_own_file(self, datasource: Engine) -> None:
        mine, theirs = file_of(self.database.engine), file_of(datasource)
        if mine is not None and theirs is not None and theirs.exists() and mine.samefile(theirs):
            raise StoreUnavailable(
                f"A transactional function writes into {theirs}, which is the store itself: one of the two has to wait"
                " for the other. Give the store a file of its own."
            )

    def remedy(self, key: str, missing: str) -> str:
        """How a person settles the call with this key, in a sentence; `missing` is one of `remedies`."""
        return remedies.to_settle(key, missing, self.database.url)

    @contextmanager
    def nested(self, client: Running) -> Iterator[None]:
        """Know in the block that calls are made by the function of this one."""
        client.parents = _PARENTS.get()
        token = _PARENTS.set((*client.parents, client))
        try:
            yield
        finally:
            _PARENTS.reset(token)

    def wait(self, seconds: float, future: "Future[None] | None") -> None:
        """Let the current thread wait, for a future if one is given."""
        if future is None:
            time.sleep(seconds)
        else:
            wait_for([future], seconds)

    def forget_task(self, task: asyncio.Task[Any]) -> None:
        """Forget a call's task that has ended; its client may have left, and nobody else asks for its exception."""
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def abandoned(self, client: Running) -> None:
        """Write down that the client of a call has given up."""
        if client.key and self._rows is not None:
            self.not_read(client.key, client.asker or self._rows.owner)

    def not_read(self, key: str, reader: str) -> None:
        """Write down, at the latest with the next call, that the answer to a call did not reach who asked for it."""
        if (rows := self._rows) is not None:
            rows.given_up[key] = reader

            def note(tx: Connection) -> None:
                if key in rows.given_up:  # else the next call has written it down, and may have got the answer
                    rows.abandon(tx, key, reader)

            self.later(note)

    def later(self, work: Callable[[Connection], Any]) -> None:
        """Run a transaction in the background, again and again until it succeeds or the process ends."""
        with self._has_late:
            self._late.append(work)
            self._has_late.notify_all()
            if self._worker is None or not self._worker.is_alive():
                self._worker = self._start(self._work_late, "effects late")

    def _work_late(self) -> None:
        while True:
            with self._has_late:
                while not self._late:
                    if self._is_closed:
                        return
                    self._has_late.wait(RENEW_SECONDS)
                work = self._late[0]
            try:
                self.database.write(work)
            except StoreUnavailable as error:
                self.log.warning("A result is not recorded yet: %s", error)
                with self._has_late:
                    if self._is_closed:
                        return
                    self._has_late.wait(AGAIN_SECONDS)
            else:
                with self._has_late:
                    self._late.pop(0)

    def _start(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _renew(self) -> None:
        """Give signs of life to owners on other machines."""
        owner = self._owner
        while owner is not None and owner is self._owner and not self._is_closed:
            with suppress(StoreUnavailable):
                self.database.write(lambda tx: _renew_lease(tx, owner.id))
            time.sleep(RENEW_SECONDS)

    def _log_joined(self, joined: Joined) -> None:
        self.log.warning("%s", joined)


def _renew_lease(tx: Connection, owner: str) -> None:
    now = float(tx.execute(select(clock(tx))).scalar_one())
    tx.execute(update(OWNERS).where(OWNERS.c.id == owner).values(lease=now + LEASE_SECONDS))


def _close_at_exit(reference: "weakref.ref[EffectStore]") -> None:
    # Python keeps the exception that ends it. A program that dies of one has not used its answers.
    has_failed = getattr(sys, "last_value", None) is not None or getattr(sys, "last_exc", None) is not None
    if (store := reference()) is not None:
        store.close(is_in_order=not has_failed)
