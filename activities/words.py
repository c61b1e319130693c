"""The last words of model replies that are still coming, for Queries: bounded in size, and not kept.

A Query is answered by the worker that has the workflow, and another worker may ask the model. So a worker that is
queried records in the store for which runs somebody listens; a worker that asks a model for such a run writes the last
words of the reply into the store, and the queried worker reads them. A worker writes no words for a run unless another
worker was queried for it, and a row of a worker that was killed is ignored after `STALE_SECONDS`.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, Float, Integer, String, Table, delete, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from activities.borders.sql import DATABASE_ERRORS
from activities.providers.metering import REPLIES, Arriving
from activities.storage.store import REPLAN_TABLES, SealedText, clock, reading, transaction, write
from workflows.unfinished import MAX_SAID, MAX_TOLD, UNFINISHED, Unfinished

WORDS = Table(
    "replan_words",
    REPLAN_TABLES,
    Column("worker", String(32), primary_key=True),
    Column("run", String(200), primary_key=True),
    Column("activity", String(1000), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("reply", String(32), nullable=False),
    Column("length", Integer, nullable=False),
    Column("text", SealedText, nullable=False),
    Column("at", Float, nullable=False),
)
"""One row for each reply that comes in the process `worker`, and to which another process listens."""
LISTENERS = Table(
    "replan_listeners",
    REPLAN_TABLES,
    Column("worker", String(32), primary_key=True),
    Column("run", String(200), primary_key=True),
    Column("until", Float, nullable=False),
)
"""One row for each run for which `worker` was queried; somebody counts as listening to the run until `until`."""

EXCHANGE_SECONDS = 0.3
"""Seconds between two exchanges with the store while somebody listens; at most one transaction of each writes."""
LOOK_SECONDS = 1.0
"""Seconds between two checks whether somebody listens in another worker, while a model replies."""
LISTEN_SECONDS = 10.0
"""Seconds after a query during which somebody counts as listening."""
RENEW_SECONDS = 2.0
"""Seconds after which the rows of this worker are written again although nothing changed."""
STALE_SECONDS = 3 * RENEW_SECONDS
"""Seconds after which the words of a worker that has stopped writing are no longer returned."""
FORGET_SECONDS = 60.0
"""Seconds after which any worker deletes the rows of a worker that has stopped writing."""
BLIND_SECONDS = 5.0
"""Seconds after which a store that could not be used is tried again."""
UNUSABLE = (TimeoutError, *DATABASE_ERRORS)


class _LastWords(NamedTuple):
    attempt: int
    words: Unfinished


@dataclass(eq=False)
class _Asking:
    """An activity that may ask models."""

    run: str
    id: str
    attempt: int
    replies: list[Arriving] = field(default_factory=list)
    """The replies that come at this moment; another thread adds and removes them."""

    def last_words(self) -> _LastWords | None:
        """The last words of the newest reply; None if no text of it has come."""
        newest = self.replies[-1:]
        length, text = newest[0].words() if newest else (0, "")
        if not text:
            return None
        # No database takes a NUL, and half a character cannot be sent.
        last = text[-MAX_SAID:].replace("\0", "\ufffd").encode(errors="replace").decode()
        return _LastWords(self.attempt, Unfinished(activity=self.id, reply=newest[0].id, length=length, text=last))


class Words(Interceptor):
    """An interceptor that gives workflows the last words of replies for them, from this and other workers."""

    def __init__(self, engine: AsyncEngine) -> None:
        """`engine` connects to the store that the workers share."""
        self._engine = engine
        self._worker = secrets.token_hex(8)
        self._asking = dict[_Asking, None]()
        self._asked = dict[str, float]()
        """For each run that was queried, the time (monotonic seconds) until which somebody counts as listening."""
        self._heard: Mapping[str, Sequence[_LastWords]] = {}
        """By run, the words of other workers that were last read from the store."""
        self._wanted = frozenset[str]()
        """The runs of this worker's calls for which another worker was queried."""
        self._put: Any = ((), ())
        self._put_at = self._looked_at = float("-inf")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._is_idle = False

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        input.unsafe_extern_functions[UNFINISHED] = self.said
        return None

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _WatchedActivity(next, self)

    def said(self, run: str) -> list[Unfinished]:
        """The last words of the replies for a run, which now counts as listened to. Any thread may call this."""
        now = time.monotonic()
        is_new = self._asked.get(run, 0.0) <= now
        self._asked[run] = now + LISTEN_SECONDS
        if is_new and self._loop:
            with suppress(RuntimeError):  # the worker has stopped
                self._loop.call_soon_threadsafe(self._news.set)
        own = [asking.last_words() for asking in [*self._asking] if asking.run == run]
        newest = dict[str, _LastWords]()
        for said in sorted([*filter(None, own), *self._heard.get(run, ())], key=lambda said: said.attempt):
            newest[said.words.activity] = said
        return [said.words.shortened(MAX_TOLD // len(newest)) for said in newest.values()]

    @contextmanager
    def watching(self, run: str, activity: str, attempt: int) -> Iterator[None]:
        """Within the block, which runs this activity, let `said` return the words of the activity's model replies."""
        asking = _Asking(run, activity, attempt)
        REPLIES.set(asking.replies)
        self._asking[asking] = None
        if self._is_idle:
            self._news.set()
        try:
            yield
        finally:
            del self._asking[asking]

    @asynccontextmanager
    async def exchanged(self) -> AsyncIterator[None]:
        """Within the block, exchange words with the other workers of the store."""
        self._loop = asyncio.get_running_loop()
        running = asyncio.create_task(self._exchange())
        try:
            yield
        finally:
            self._loop = None
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            with suppress(*UNUSABLE):
                if self._put != ((), ()):
                    await write(self._engine, lambda tx: self._replace(tx, (), ()))

    async def _exchange(self) -> None:
        """Exchange words through the store until cancelled; while there is nothing to exchange, wait for `_news`."""
        with suppress(*UNUSABLE):
            await self._delete_old()
        while True:
            self._news.clear()
            wait = EXCHANGE_SECONDS
            try:
                await self._exchange_once()
            except UNUSABLE:  # whoever needs the store says so in the log
                self._heard, wait = {}, BLIND_SECONDS
            self._is_idle = not (self._asked or self._asking or self._put != ((), ()))
            if not (self._asked or self._wanted):
                wait = max(wait, LOOK_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._is_idle else wait):
                    await self._news.wait()
            self._is_idle = False

    async def _exchange_once(self) -> None:
        """Write the queried runs and this worker's words, if changed or to be renewed; read other workers' words."""
        now = time.monotonic()
        for run in [run for run, until in [*self._asked.items()] if until <= now]:
            del self._asked[run]
        replies = {asking.run for asking in [*self._asking] if asking.replies}
        if not replies:
            self._wanted = frozenset()
        elif now - self._looked_at >= LOOK_SECONDS:
            self._wanted, self._looked_at = await self._listened_to(replies), now
        said = [(asking.run, asking.last_words()) for asking in [*self._asking] if asking.run in self._wanted]
        rows = (tuple(sorted(self._asked)), tuple((run, words) for run, words in said if words))
        if rows != self._put or (rows != ((), ()) and now - self._put_at >= RENEW_SECONDS):
            await write(self._engine, lambda tx: self._replace(tx, *rows))
            self._put, self._put_at = rows, now
        self._heard = await self._read([*self._asked]) if self._asked else {}

    async def _listened_to(self, runs: set[str]) -> frozenset[str]:
        """The runs among `runs` for which another worker was queried."""
        async with transaction(reading(self._engine)) as tx:
            is_theirs = (LISTENERS.c.run.in_(runs), LISTENERS.c.worker != self._worker, LISTENERS.c.until > clock(tx))
            return frozenset(await tx.scalars(select(LISTENERS.c.run).where(*is_theirs)))

    async def _read(self, runs: Sequence[str]) -> Mapping[str, Sequence[_LastWords]]:
        """By run, the words that other workers have written within STALE_SECONDS."""
        async with transaction(reading(self._engine)) as tx:
            is_fresh = (WORDS.c.worker != self._worker, WORDS.c.at > clock(tx) - STALE_SECONDS)
            rows = (await tx.execute(select(WORDS).where(WORDS.c.run.in_(runs), *is_fresh))).all()
        found = dict[str, list[_LastWords]]()
        for row in rows:
            words = Unfinished(activity=row.activity, reply=row.reply, length=row.length, text=row.text)
            found.setdefault(row.run, []).append(_LastWords(row.attempt, words))
        return found

    def _replace(self, tx: Connection, asked: Sequence[str], said: Sequence[tuple[str, _LastWords]]) -> None:
        """Replace all rows of this worker by the runs `asked` and the words `said`; delete old rows of any worker."""
        now = float(tx.execute(select(clock(tx))).scalar_one())
        old = now - FORGET_SECONDS
        tx.execute(delete(LISTENERS).where(or_(LISTENERS.c.worker == self._worker, LISTENERS.c.until < old)))
        tx.execute(delete(WORDS).where(or_(WORDS.c.worker == self._worker, WORDS.c.at < old)))
        until = now + LISTEN_SECONDS
        if asked:
            tx.execute(insert(LISTENERS), [{"worker": self._worker, "run": run, "until": until} for run in asked])
        rows = [
            {"worker": self._worker, "run": run, "attempt": attempt, "at": now, **words.model_dump()}
            for run, (attempt, words) in said
        ]
        if rows:
            tx.execute(insert(WORDS), rows)

    async def _delete_old(self) -> None:
        """Delete the rows that killed workers have left."""
        async with transaction(reading(self._engine)) as tx:
            old = clock(tx) - FORGET_SECONDS
            is_left = await tx.scalar(select(WORDS.c.run).where(WORDS.c.at < old).limit(1))
        if is_left:
            await write(self._engine, lambda tx: self._replace(tx, (), ()))


class _WatchedActivity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, words: Words) -> None:
        super().__init__(next)
        self._words = words

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if info.is_local or info.workflow_run_id is None:  # a local one asks no models
            return await super().execute_activity(input)
        with self._words.watching(info.workflow_run_id, info.activity_id, info.attempt):
            return await super().execute_activity(input)
