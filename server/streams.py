"""What happens to tasks, as server-sent events: a task is followed once, however many listen."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from client.events import Events, TaskEvent, event_fields
from client.follow import POLL_SECONDS, Follower
from client.problem import Problem, ProblemKind
from client.task_document import task_document
from client.tasks import Handle
from server.problems import problem_of
from server.remedies import as_request

LINGER_SECONDS = 60.0
"""How long a task is followed after its last listener left: one that comes back until then misses nothing."""
MAX_EVENTS = 20_000
"""The most events that are kept of one task; of more, the oldest are dropped."""
POLLS_PER_SECOND = 100
"""Of all followed tasks together; each poll asks the server, and most of them a worker."""
END = "end"
"""The name of the last event, and the end of its id: whoever has it has all."""

FeedEvent = tuple[str, dict[str, Any]]


class Feed:
    """What happened to one task since it is followed, and who listens."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(4)
        """A new one for each time that the task begins to be followed."""
        self.listeners = 0
        self.is_cut = False
        """Whether the task is not followed any more; if it has not ended, listeners connect again."""
        self._events = list[FeedEvent]()
        self._dropped = 0
        self._news = asyncio.Event()

    def tell(self, name: str, fields: dict[str, Any]) -> None:
        self._events.append((name, fields))
        if len(self._events) > MAX_EVENTS:
            self._dropped += 1
            del self._events[0]
        self._wake()

    def cut(self) -> None:
        self.is_cut = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    @property
    def is_ended(self) -> bool:
        return bool(self._events) and self._events[-1][0] in (END, "error")

    async def after(self, position: int) -> AsyncIterator[tuple[str, FeedEvent]]:
        """The events from `position` on with their ids, future events too, until the last event."""
        while True:
            news = self._news
            position = max(position, self._dropped)
            while position < self._dropped + len(self._events):
                event = self._events[position - self._dropped]
                position += 1
                yield (f"{self.id}-{END}" if event[0] in (END, "error") else f"{self.id}-{position}"), event
            if self.is_ended or self.is_cut:
                return
            await news.wait()


class Streams:
    """The feeds of all tasks that somebody listens to."""

    def __init__(self, client: Client, queue: str, most: int) -> None:
        """`queue` is the queue of the workers; `most` may listen at once."""
        self._client, self._queue, self._most = client, queue, most
        self._feeds = dict[str, Feed]()
        self._following = dict[str, asyncio.Task[None]]()
        self._listeners = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take one of the places of listeners, from the request until its response has ended.

        Raises:
            Problem: all are taken.
        """
        if self._listeners >= self._most:
            remedy = "close some, or try again later"
            raise Problem("unreachable", "Too many event streams are open", remedy, ProblemKind.UNREACHABLE)
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1

    async def listen(self, handle: Handle, last_id: str) -> AsyncIterator[tuple[str, FeedEvent]]:
        """What happens to a task: after the event `last_id` if its feed is still known, else from the start."""
        known, _, number = last_id.partition("-")
        feed = self._feed(handle, known)
        position = int(number) if known == feed.id and number.isdecimal() else 0
        feed.listeners += 1
        try:
            async for event in feed.after(position):
                yield event
        finally:
            feed.listeners -= 1
            if not feed.listeners:
                asyncio.get_running_loop().call_later(LINGER_SECONDS, self._drop, handle.id, feed)

    def close(self) -> None:
        """Follow nothing any more."""
        for following in self._following.values():
            following.cancel()

    def _feed(self, handle: Handle, known: str) -> Feed:
        feed = self._feeds.get(handle.id)
        # A task that has ended may run again, after a reset; who missed only the end still gets it.
        is_stale = feed is not None and feed.is_ended and not feed.listeners and feed.id != known
        if feed is None or is_stale or (feed.is_cut and not feed.is_ended):
            feed = self._feeds[handle.id] = Feed()
            self._following[handle.id] = asyncio.create_task(self._follow(handle, feed))
        return feed

    def _drop(self, id: str, feed: Feed) -> None:
        if not feed.listeners and self._feeds.get(id) is feed:
            del self._feeds[id]
            self._following.pop(id).cancel()

    async def _follow(self, handle: Handle, feed: Feed) -> None:
        def tell(event: TaskEvent) -> None:
            if named_fields := event_fields(event, self._queue, as_request):
                feed.tell(*named_fields)

        def least_pause() -> float:
            return max(POLL_SECONDS, len(self._feeds) / POLLS_PER_SECOND)

        follower = Follower(self._client, handle, Events(tell), least_pause=least_pause)
        try:
            outcome = await follower.to_the_end()
            feed.tell(END, {"document": await task_document(self._client, handle, outcome)})
        except (Problem, RPCError) as error:
            feed.tell("error", problem_of(error).fields(as_request))
        finally:
            feed.cut()
