"""The events of tasks as server-sent events: a task is followed once, for any number of listeners."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from client.events import Events, Listener, ModelSays, TaskEvent, event_fields
from client.follow import POLL_SECONDS, Follower, Snapshot
from client.problem import Problem, ProblemKind
from client.task_document import task_document
from client.tasks import Handle
from runtime.payloads import NoKey
from server.problems import problem_of
from server.remedies import as_request
from workflows.account.outcome import Outcome
from workflows.unfinished import Unfinished

LINGER_SECONDS = 60.0
"""How long a task is followed after its last listener left: a listener that returns in time misses nothing."""
MAX_EVENTS = 20_000
"""The most events that are kept of one task; beyond them, the oldest events are dropped."""
POLLS_PER_SECOND = 100
"""The most polls of all followed tasks together; each poll asks the server, and most polls also ask a worker."""
END = "end"
"""The name of the last event, and the end of the event's id: a client with this id has received all events."""

FeedEvent = tuple[str, dict[str, Any]]


class Feed:
    """The events of one task since the task is followed, and the number of listeners."""

    def __init__(self, fields: Callable[[TaskEvent], FeedEvent | None]) -> None:
        """`fields` returns the name and the fields of an event; None for the end, which is told with `tell`."""
        self._fields = fields
        self.id = secrets.token_hex(4)
        """A new id for each time that the task begins to be followed."""
        self.listeners = 0
        self.readers = 0
        """How many of the listeners read the words of models, too."""
        self.words: Mapping[str, Unfinished] = {}
        """What has come so far of the replies that models are writing; no events, since nothing keeps these words."""
        self.is_cut = False
        """Whether the task is not followed any more; if it has not ended, listeners connect again."""
        self._events = list[FeedEvent]()
        self._dropped = 0
        self._news = asyncio.Event()

    def happens(self, event: TaskEvent) -> None:
        """Add an event, unless it brings words of models, which are in `words`."""
        if not isinstance(event, ModelSays) and (named := self._fields(event)):
            self.tell(*named)

    def tell(self, name: str, fields: dict[str, Any]) -> None:
        """Add an event by its name and fields, and wake the listeners."""
        self._events.append((name, fields))
        if len(self._events) > MAX_EVENTS:
            self._dropped += 1
            del self._events[0]
        self._wake()

    def say(self, words: Mapping[str, Unfinished]) -> None:
        """Set the words of models at this moment, and wake the listeners if the words have changed."""
        if words != self.words:
            self.words = words
            self._wake()

    def cut(self) -> None:
        """Record that the task is not followed any more, and wake the listeners."""
        self.is_cut = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    @property
    def is_ended(self) -> bool:
        return bool(self._events) and self._events[-1][0] in (END, "error")

    async def after(self, position: int, *, with_words: bool) -> AsyncIterator[tuple[str, FeedEvent]]:
        """Yield the events from `position` on with their ids, future events too, until the last event.

        With `with_words`, the words of models come between the events, without an id.
        """
        listener = Listener()
        while True:
            news = self._news
            for said in listener.news(self.words) if with_words else ():
                if words := self._fields(said):
                    yield "", words
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
        """`queue` is the task queue of the workers; at most `most` listeners are allowed at a time."""
        self._client, self._queue, self._most = client, queue, most
        self._feeds = dict[str, Feed]()
        self._following = dict[str, asyncio.Task[None]]()
        self._listeners = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take one of the places of listeners for as long as a response lasts. Raises Problem if all are taken."""
        if self._listeners >= self._most:
            remedy = "close some, or try again later"
            raise Problem("unreachable", "Too many event streams are open", remedy, ProblemKind.UNREACHABLE)
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1

    async def listen(
        self, handle: Handle, last_id: str, *, with_words: bool = False
    ) -> AsyncIterator[tuple[str, FeedEvent]]:
        """Yield the events of a task with their ids: after the event `last_id` if its feed still exists, else all.

        With `with_words`, the words of models come without an id: a listener that returns gets again what has come so
        far of unfinished replies.
        """
        known, _, number = last_id.partition("-")
        feed = self._feed(handle, known)
        position = int(number) if known == feed.id and number.isdecimal() else 0
        feed.listeners += 1
        feed.readers += with_words
        try:
            async for event in feed.after(position, with_words=with_words):
                yield event
        finally:
            feed.listeners -= 1
            feed.readers -= with_words
            if not feed.listeners:
                asyncio.get_running_loop().call_later(LINGER_SECONDS, self._drop, handle.id, feed)

    def close(self) -> None:
        """Stop following all tasks."""
        for following in self._following.values():
            following.cancel()

    def _feed(self, handle: Handle, known: str) -> Feed:
        """The feed of a task; if none is usable, the task is followed anew. `known` is the feed id of the listener."""
        feed = self._feeds.get(handle.id)
        # A task that has ended may run again, after a reset; who missed only the end still gets it.
        is_stale = feed is not None and feed.is_ended and not feed.listeners and feed.id != known
        if feed is None or is_stale or (feed.is_cut and not feed.is_ended):
            feed = self._feeds[handle.id] = Feed(partial(event_fields, queue=self._queue, door=as_request))
            self._following[handle.id] = asyncio.create_task(self._follow(handle, feed))
        return feed

    def _drop(self, id: str, feed: Feed) -> None:
        if not feed.listeners and self._feeds.get(id) is feed:
            del self._feeds[id]
            self._following.pop(id).cancel()

    async def _follow(self, handle: Handle, feed: Feed) -> None:
        def least_pause() -> float:
            return max(POLL_SECONDS, len(self._feeds) / POLLS_PER_SECOND)

        view = _EventsToFeed(feed)
        follower = Follower(self._client, handle, view, least_pause=least_pause, with_words=lambda: bool(feed.readers))
        try:
            outcome = await follower.to_the_end()
            feed.tell(END, {"document": await task_document(self._client, handle, outcome)})
        except (Problem, NoKey, RPCError) as error:
            feed.tell("error", problem_of(error).fields(as_request))
        finally:
            feed.cut()


class _EventsToFeed(Events):
    def __init__(self, feed: Feed) -> None:
        super().__init__(feed.happens)
        self._feed = feed

    def see(self, snapshot: Snapshot) -> None:
        super().see(snapshot)
        self._feed.say(snapshot.words)

    def end(self, outcome: Outcome) -> None:
        super().end(outcome)
        self._feed.say({})
