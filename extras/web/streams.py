"""The events of tasks as server-sent events: a task is followed once, for any number of listeners."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from client.events import Events, ModelSays, Silence, TaskEvent, WorkerBusy, WorkflowTaskFails, event_fields
from client.follow import POLL_SECONDS, Follower, Silent
from client.problem import Problem, ProblemKind
from client.snapshot import Snapshot
from client.task_document import task_document
from client.tasks import Handle
from console.serving.problems import problem_of
from extras.web.remedies import as_request
from runtime.payloads import NoKey
from workflows.account.journal import AnyEntry, JournalPage
from workflows.account.outcome import Outcome

LINGER_SECONDS = 60.0
"""How long a running task is followed after its last listener left: for one that returns, nothing is read again."""
MAX_ENTRIES = 20_000
"""The most entries that are kept of one task; with more, its listeners must connect again."""
POLLS_PER_SECOND = 100
"""The most polls of all followed tasks together; each poll asks the server, and most polls also ask a worker."""
END = "end"
"""The name of the last event, and the end of the event's id: a client with this id has received all events."""
WELL = (Silence(Silent.WORKER, True), Silence(Silent.SERVER, True), WorkflowTaskFails(None), WorkerBusy(None))
"""What need not be told to a listener that comes later."""

FeedEvent = tuple[str, dict[str, Any]]


class Feed(Events):
    """What a Follower has told of one task, for any number of listeners that come and go."""

    def __init__(self) -> None:
        super().__init__(self._set)
        self.listeners = 0
        self.readers = 0
        """How many of the listeners read the words of models, too."""
        self.last: FeedEvent | None = None
        """The last event of the task, or the error that ends the feed."""
        self.is_over = False
        """Whether the task is not followed any more; if it has not ended, listeners connect again."""
        self._entries = list[AnyEntry]()
        self._page: JournalPage | None = None
        self._outcome: Outcome | None = None
        self._snapshot: Snapshot | None = None
        self._states = dict[object, TaskEvent]()
        """What the server says of worker, server and workflow task at this moment."""
        self._ending: Outcome | None = None
        self._news = asyncio.Event()

    def journal(self, page: JournalPage, outcome: Outcome) -> None:
        self._entries = [] if page.restarted else self._entries
        self._entries += page.entries
        self._page, self._outcome = page, outcome
        self.is_over = self.is_over or len(self._entries) > MAX_ENTRIES
        self._wake()

    def see(self, snapshot: Snapshot) -> None:
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            self._wake()

    def end(self, outcome: Outcome) -> None:
        self._ending = outcome

    def _set(self, event: TaskEvent, cursor: str) -> None:
        self._states[event.who if isinstance(event, Silence) else type(event)] = event
        self._wake()

    def close(self, last: FeedEvent | None = None) -> None:
        """Record that the task is not followed any more, and wake the listeners."""
        self.last, self.is_over = self.last or last, True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def after(self, cursor: str, *, with_words: bool) -> AsyncIterator[tuple[str, TaskEvent]]:
        """Yield the events after that with the cursor, each with its own, future events too, until the feed is over."""
        events = list[tuple[str, TaskEvent]]()
        view = Events(lambda event, cursor: events.append((cursor, event)), cursor)
        states: dict[object, TaskEvent] = {who: event for who, event in self._states.items() if event in WELL}
        entries, number, page = self._entries, 0, None
        while True:
            news, is_over = self._news, self.is_over
            if self._page is not page and self._page and self._outcome:
                is_anew, page = entries is not self._entries, self._page
                entries, number = self._entries, 0 if is_anew else number
                new = {"entries": tuple(entries[number:]), "restarted": is_anew}
                number = len(entries)
                view.journal(page.model_copy(update=new), self._outcome)
            if self._snapshot:
                view.see(self._snapshot)
            events += [("", event) for who, event in self._states.items() if states.get(who) is not event]
            states = dict(self._states)
            if is_over and self._ending:
                view.end(self._ending)
            for event in events:
                if with_words or not isinstance(event[1], ModelSays):
                    yield event
            events.clear()
            if is_over:
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
    def listener_slot(self) -> Iterator[None]:
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
        """Yield the events of a task with their ids: after the event `last_id`, or all if it is no id of an event.

        What no entry of the task's journal tells has no id. With `with_words`, the words of models come, too.
        """
        feed, newest = self._feed(handle), ""
        feed.listeners += 1
        feed.readers += 1 if with_words else 0
        try:
            async for cursor, event in feed.after(last_id, with_words=with_words):
                if fields := event_fields(event, queue=self._queue, door=as_request):
                    newest = cursor or newest
                    yield cursor, fields
            if feed.last:
                yield f"{newest or last_id}-{END}", feed.last
        finally:
            feed.listeners -= 1
            feed.readers -= 1 if with_words else 0
            if not feed.listeners:
                asyncio.get_running_loop().call_later(LINGER_SECONDS, self._drop, handle.id, feed)

    def close(self) -> None:
        """Stop following all tasks."""
        for following in self._following.values():
            following.cancel()

    def _feed(self, handle: Handle) -> Feed:
        """The feed of a task; a task that has ended is followed anew, since it may run again, after a reset."""
        feed = self._feeds.get(handle.id)
        if feed is None or feed.is_over:
            if feed:
                self._following[handle.id].cancel()
            feed = self._feeds[handle.id] = Feed()
            self._following[handle.id] = asyncio.create_task(self._follow(handle, feed))
        return feed

    def _drop(self, id: str, feed: Feed) -> None:
        if not feed.listeners and self._feeds.get(id) is feed:
            del self._feeds[id]
            self._following.pop(id).cancel()

    async def _follow(self, handle: Handle, feed: Feed) -> None:
        def least_pause() -> float:
            return max(POLL_SECONDS, len(self._feeds) / POLLS_PER_SECOND)

        follower = Follower(self._client, handle, feed, least_pause=least_pause, with_words=lambda: bool(feed.readers))
        try:
            outcome = await follower.to_the_end()
            feed.close((END, {"document": await task_document(self._client, handle, outcome)}))
        except (Problem, NoKey, RPCError) as error:
            feed.close(("error", problem_of(error).fields(as_request)))
        finally:
            feed.close()
