"""Turns each call of an agent that has an effect into a durable task, once."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import structlog
from pydantic import JsonValue
from temporalio.service import RPCError, RPCStatusCode

from client.client import Client, TaskHandle, TaskNotCompleted
from client.events import Working
from client.listing import Waiting
from client.problem import Problem
from server.gateway import attending, results
from server.gateway.attending import Person, Question
from server.gateway.journal import Entry, Journal
from server.gateway.matching import Caller, Delivery, Earlier, Verdict, is_live_twin, match
from server.gateway.offers import Offer
from server.gateway.request import AgentGone, Report, Request
from server.gateway.results import Do
from server.gateway.sessions import Doubt, Session
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.faults.fault import Applied, Quadrant
from workflows.json_values import canonical, digest
from workflows.limits.budget import Limits
from workflows.people.requests import MAX_NAME
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import Step

MAX_TEXT = 300
"""The most characters of a task's text, which shows the call."""
TICK = 5.0
"""Seconds between two reports to the agent that its call is still under way."""
POLL = 1.0
"""Seconds between two queries for the tasks that wait for a person."""
GRACE = 0.25
"""Seconds that a call waits while an equal call is under way: a broken connection is noticed in less time."""
GUARD = 30.0
"""Seconds after a persistent failure in which the same call gets the same answer, and is not made again."""
LATER_PATIENCE = 2.0
"""Seconds that a query for the result of an earlier call waits for a person."""
START_WITHIN = 60.0
"""Seconds for which a call waits for a Temporal server that does not answer."""

log = structlog.get_logger("replan.gateway")


class Calls:
    """The calls of one state folder, or of one task queue."""

    def __init__(self, journal: Journal, link: Callable[[str], str]) -> None:
        """`link` makes the address, or the command, with which a person answers for the task with an id."""
        self.journal = journal
        self._link = link
        self._watches = dict[Client, _Watch]()
        self._guarded = dict[tuple[str, str, str], tuple[dict[str, Any], float]]()
        """The answers to calls that failed persistently, each with the monotonic time until which it is returned."""
        self.running = 0
        """How many calls are under way."""

    async def call(self, client: Client, offer: Offer, args: dict[str, JsonValue], request: Request) -> dict[str, Any]:
        """Make a call once, and return its CallToolResult; report its delivery to `journal`. Raises AgentGone."""
        is_structured = "outputSchema" in offer.tool
        of_call = digest(args)
        answer, until = self._guarded.get((request.session.name, offer.kind, of_call), ({}, 0.0))
        if until > time.monotonic() and not request.key:
            return answer
        found = await self._find_or_add_entry(offer, args, of_call, request)
        if found is None:
            return _key_conflict(is_structured=is_structured)
        entry, replayed_from = found
        task_id = entry.earlier.task_id
        log.info("gateway_call", session=request.session.name, tool=offer.kind, task=task_id)
        self.running += 1
        try:
            outcome = await self._start_and_wait(client, offer, args, entry, request)
        finally:
            self.running -= 1
        if isinstance(outcome, Outcome):
            answer = results.of_outcome(outcome, is_structured=is_structured)
            self._remember(request.session.name, offer, of_call, outcome, answer)
            self._note_void(outcome, request)
            if replayed_from is not None and outcome.status is TaskStatus.COMPLETED:
                return results.with_note(answer, results.replayed_note(replayed_from))
            return answer
        self.journal.note(task_id, Delivery.PENDING, request.id)
        return outcome

    async def start_task(self, client: Client, text: str, request: Request) -> dict[str, Any]:
        """Start a task once, and return its id. For a call that may be a repetition, that is the earlier task's id."""
        args: dict[str, JsonValue] = {"task": text}
        lenient = replace(request, session=replace(request.session, doubt=Doubt.REPLAY))
        found = await self._find_or_add_entry(_TASKS, args, digest(args), lenient)
        if found is None:
            return _key_conflict(is_structured=False)
        entry, replayed_from = found
        task_id = entry.earlier.task_id
        await client.start(
            text,
            id=task_id,
            key=task_id,
            on_escalation="wait",
            effect_key=entry.effect_key if request.key else None,
            by=_starter(request),
        )
        started = results.success({"id": task_id, "status": "running"}, is_structured=True)
        return results.with_note(started, results.replayed_note(replayed_from)) if replayed_from else started

    async def _find_or_add_entry(
        self, offer: Offer, args: dict[str, JsonValue], of_call: str, request: Request
    ) -> tuple[Entry, datetime | None] | None:
        """The journal's entry for a call: a new entry, or that of an earlier call. The entry of a read is not stored.

        The datetime is the time of the earlier call's last delivery state; None for a new call, and for a certain
        repetition (the same key or request, or PENDING). The whole result is None if the key belongs to a call with
        other arguments.

        Raises:
            AgentGone: the agent left before the call was begun.
        """
        session = request.session
        caller = Caller(offer.kind, of_call, offer.authority_digest(args), request.key, request.resent)
        if offer.effect is Effect.READ:  # whatever became of its answer, it may be made again
            self.journal.went_on(request.connection)
            made = Earlier(self._new_id(request, offer), caller, Delivery.OPEN, time.time(), request.id)
            return Entry(session.name, made, "", ""), None
        known = await self._earlier(session, caller)  # after it nothing waits, so that no other call comes between
        if request.is_gone():
            raise AgentGone
        verdict, earlier = match(caller, known, time.time())
        if verdict is Verdict.CONFLICT:
            return None
        doubts = earlier.task_id if verdict is Verdict.DOUBTFUL and earlier and session.doubt is Doubt.ASK else ""
        if verdict is Verdict.DOUBTFUL:
            verdict = Verdict.SAME if session.doubt is Doubt.REPLAY else Verdict.NEW
        if verdict is Verdict.SAME and earlier is not None and (entry := self.journal.entry(earlier.task_id)):
            self.journal.attach(earlier.task_id, request=request.id, connection=request.connection)
            is_known = bool(request.key or request.resent or earlier.delivery is Delivery.PENDING)
            return entry, None if is_known else datetime.fromtimestamp(earlier.since, UTC)
        if not doubts:
            self.journal.went_on(request.connection)
        # With a key both follow from it, so that also a gateway with another journal starts no second task, and the
        # ledger of the tools knows the effect when Temporal has forgotten the task.
        task_id, is_again = self._new_id(request, offer), any(one.delivery is Delivery.VOID for one in known)
        effect_key = task_id.replace(":", "/")
        if request.key:
            tail = digest(offer.kind, request.key)[:12]
            effect_key = f"{session.prefix}{offer.name}-{tail}".replace(":", "/")
            task_id = f"{task_id}-{tail}" if is_again else f"{session.prefix}{offer.name}-{tail}"
        place = {"request": request.id, "connection": request.connection, "doubts": doubts}
        self.journal.add(session.name, task_id, caller, effect_key=effect_key, **place)
        made = Earlier(task_id, caller, Delivery.OPEN, time.time(), request.id)
        return Entry(session.name, made, effect_key, doubts), None

    async def _earlier(self, session: Session, caller: Caller) -> Sequence[Earlier]:
        """The earlier calls of the session that may be this call; waits GRACE seconds if an equal call is under way."""
        known = self.journal.earlier(session.name, caller)
        twins = {one.task_id for one in known if is_live_twin(caller, one)}
        if not twins:
            return known
        await asyncio.sleep(GRACE)  # the agent of a twin may have left, and the news of that be on its way
        # Any other news of a twin came too late to matter: both calls were under way at the same time, so they are two.
        again = self.journal.earlier(session.name, caller)
        return [one for one in again if one.task_id not in twins or one.delivery is Delivery.BROKEN]

    def _new_id(self, request: Request, offer: Offer) -> str:
        return f"{request.session.prefix}{offer.name}-{secrets.token_hex(5)}"

    async def outcome_of(
        self,
        client: Client,
        task_id: str,
        request: Request,
        *,
        patience: float = LATER_PATIENCE,
        is_structured: bool = False,
    ) -> dict[str, Any]:
        """The result of an earlier call of the session, or that it waits for a person after `patience` seconds."""
        entry = self.journal.entry(task_id)
        if entry is None or entry.session != request.session.name:
            reason = f"This session has no call {task_id[:100]!r}"
            return results.fault(Do.CHANGE, code="not_found", reason=reason, is_structured=False)
        self.journal.attach(task_id, request=request.id, connection=request.connection)
        handle = TaskHandle(client.temporal, task_id)
        found = await self._wait(client, handle, request, entry, patience=patience)
        if isinstance(found, Outcome):
            self._note_void(found, request)
            return results.of_outcome(found, is_structured=is_structured)
        self.journal.note(task_id, Delivery.PENDING, request.id)
        return found

    def _note_void(self, outcome: Outcome, request: Request) -> None:
        """If a call failed and changed nothing, record that, so that the agent may make the call again."""
        if outcome.status is not TaskStatus.COMPLETED and not _may_be_applied(outcome):
            self.journal.note(outcome.task_id, Delivery.VOID, request.id)

    async def _start_and_wait(
        self, client: Client, offer: Offer, args: dict[str, JsonValue], entry: Entry, request: Request
    ) -> Outcome | dict[str, Any]:
        """Start or join the task of a call; returns its Outcome, or the answer that the agent gets without it."""
        shown = " ".join(f"{offer.name} {canonical(args)}".split())
        text = shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 1]}…"
        if entry.doubts:
            text = f"Perhaps a repetition of {entry.doubts}: {text}"[:MAX_TEXT]
        task = Task(
            text=text,
            plan=(Step(id="call", kind=offer.kind, args=args),),
            plan_only=True,
            limits=Limits(replans=0),
            on_escalation="wait",
            approve="all" if entry.doubts else "declared",
            by=_starter(request),
            effect_key=entry.effect_key or None,
        )
        task_id, deadline = entry.earlier.task_id, time.monotonic() + START_WITHIN
        while True:
            try:
                handle = await client.start(task, id=task_id, key=entry.effect_key or task_id)
                break
            except (RPCError, Problem) as error:
                is_away = isinstance(error, RPCError) and error.status in _AWAY
                if not is_away or time.monotonic() > deadline:
                    log.warning("gateway_cannot_start", task=task_id, reason=str(error))
                    if not is_away:
                        self.journal.note(task_id, Delivery.VOID, request.id)
                    return _not_started(error, task_id, is_server_away=is_away)
                await asyncio.sleep(POLL)
        return await self._wait(client, handle, request, entry, patience=request.session.patience)

    async def _wait(
        self, client: Client, handle: TaskHandle, request: Request, entry: Entry, *, patience: float
    ) -> Outcome | dict[str, Any]:
        """Wait for a task's Outcome, at most `patience` seconds for a person; else returns an answer without it."""
        ending = asyncio.create_task(_outcome_of(handle))
        reporting = asyncio.create_task(_report(handle, request.report)) if request.report else None
        asking = _Asking(handle, request.attended, _doubt(entry, "the agent"))
        try:
            await asyncio.wait([ending], timeout=POLL)
            if ending.done():
                return ending.result()
            async with self._watches.setdefault(client, _Watch(client)).watching(handle.id) as watched:
                number, asked_at = 0, None
                while not ending.done():
                    waiting = watched.waiting
                    if waiting is not None and (question := await asking.begin(waiting)):
                        return question.as_result
                    is_alone = waiting is not None and not asking.is_under_way
                    asked_at = (asked_at or time.monotonic()) if is_alone else None
                    if waiting is not None and asked_at is not None and time.monotonic() - asked_at >= patience:
                        return self._pending(waiting, entry)
                    number += 1
                    if request.report and number % TICK == 0:
                        words = f"waits for a person: {self._link(handle.id)}" if waiting else "under way"
                        await request.report(number, None, words)
                    await asyncio.wait([ending], timeout=min(POLL, patience))
            return ending.result()
        finally:
            for task in filter(None, (ending, reporting, asking.task)):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    def _pending(self, waiting: Waiting, entry: Entry) -> dict[str, Any]:
        """The answer that a person is asked, and how the agent gets the result later."""
        why = " ".join(filter(None, [_doubt(entry, "you"), waiting.request.reason]))
        return results.fault(
            Do.PERSON,
            code="waits_for_a_person",
            reason=f"A person is asked: {why}",
            more=f"It is answered at {self._link(waiting.task_id)}. Later, replan_outcome with id"
            f" {waiting.task_id!r} returns the result.",
            task=waiting.task_id,
            is_structured=True,
        )

    def _remember(self, session: str, offer: Offer, of_call: str, outcome: Outcome, answer: dict[str, Any]) -> None:
        """After a persistent failure, keep the answer for GUARD s; after an effect, drop the session's kept answers."""
        now = time.monotonic()
        self._guarded = {call: guarded for call, guarded in self._guarded.items() if guarded[1] > now}
        last = outcome.faults[-1] if outcome.faults else None
        if outcome.status is TaskStatus.COMPLETED and offer.effect is not Effect.READ:
            # It may have changed what other calls met.
            self._guarded = {call: guarded for call, guarded in self._guarded.items() if call[0] != session}
        elif last is not None and last.quadrant is Quadrant.PERSISTENT_SEMANTIC and last.applied is Applied.NONE:
            words = results.with_note(answer, "Answered without a call: the same call failed a moment ago.")
            self._guarded[session, offer.kind, of_call] = words, now + GUARD


@dataclass
class _Asking:
    """Asks the person at a client once for each request of a task."""

    handle: TaskHandle
    attended: Person | None
    doubt: str
    """Why nobody can know whether the call should be made; empty if that is clear."""
    task: asyncio.Task[None] | None = None
    asked: set[str] = field(default_factory=set)

    @property
    def is_under_way(self) -> bool:
        """Whether the person at the client has a question now, so that the call does not wait for other people."""
        return self.task is not None and not self.task.done()

    async def begin(self, waiting: Waiting) -> Question | None:
        """Ask the person about the request in `waiting`; returns the question if it has to be the call's result."""
        if self.attended is None or self.is_under_way or waiting.request.id in self.asked:
            return None
        question = None
        with suppress(RPCError, Problem):
            question = await attending.question(self.handle, self.doubt)
        if question is None or question.request in self.asked:
            return None
        self.asked.add(question.request)
        if not self.attended.is_inline:
            return question
        self.task = asyncio.create_task(self.attended.ask(self.handle, question))
        return None


_TASKS = Offer("task", "replan_start_task", Effect.UNKEYED, {})
"""The tool under which the journal records the calls that start tasks."""
_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.UNKNOWN)


@dataclass
class _Watched:
    """The request with which a task now waits for a person; None if it waits for nobody."""

    waiting: Waiting | None = None


@dataclass
class _Watch:
    """Finds out which tasks of the calls under way wait for a person: one query a second for all of them."""

    client: Client
    watched: dict[str, list[_Watched]] = field(default_factory=dict)
    polling: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watching(self, task_id: str) -> AsyncIterator[_Watched]:
        one = _Watched()
        self.watched.setdefault(task_id, []).append(one)
        if self.polling is None or self.polling.done():
            self.polling = asyncio.create_task(self._poll())
        try:
            yield one
        finally:
            self.watched[task_id].remove(one)
            if not self.watched[task_id]:
                del self.watched[task_id]

    async def _poll(self) -> None:
        while self.watched:
            with suppress(RPCError, Problem):
                waiting = {one.task_id: one for one in await self.client.waiting()}
                for task_id, watched in self.watched.items():
                    for one in watched:
                        one.waiting = waiting.get(task_id)
            await asyncio.sleep(POLL)


def _doubt(entry: Entry, whom: str) -> str:
    """Why a person is asked about a call that may be a repetition; empty for others. `whom` names the agent."""
    if not entry.doubts:
        return ""
    return (
        f"This call may repeat {entry.doubts}, whose answer may not have reached {whom}, and nobody can know whether it"
        " should be done twice."
    )


def _starter(request: Request) -> str:
    """The agent's session as the starter of a task, in words for a person who is asked about the task."""
    return f"an agent, session {request.session.name}"[:MAX_NAME]


def _not_started(error: Exception, task_id: str, *, is_server_away: bool) -> dict[str, Any]:
    if is_server_away:
        return results.fault(
            Do.WAIT,
            code="unreachable",
            quadrant=Quadrant.TRANSIENT_INFRASTRUCTURAL.value,
            reason="The Temporal server of Replan does not answer",
            more="The call is not lost: calling again goes on with it.",
            wait=results.WAIT_SECONDS,
            task=task_id,
            is_structured=True,
        )
    reason = str(error.reason if isinstance(error, Problem) else error)
    return results.fault(Do.CHANGE, code="refused", reason=reason, task=task_id, is_structured=True)


def _key_conflict(*, is_structured: bool) -> dict[str, Any]:
    return results.fault(
        Do.CHANGE,
        code="conflict",
        quadrant=Quadrant.PERSISTENT_SEMANTIC.value,
        reason="The key of this call belongs to a call with other arguments",
        more="Use a key only for repetitions of one call.",
        is_structured=is_structured,
    )


async def _outcome_of(handle: TaskHandle) -> Outcome:
    """Wait for the Outcome of a task, for any length of time while the server is away."""
    while True:
        try:
            return await handle.result()
        except TaskNotCompleted as ended:
            return ended.outcome
        except RPCError as error:
            if error.status not in _AWAY:
                raise
            await asyncio.sleep(POLL)


def _may_be_applied(outcome: Outcome) -> bool:
    """Whether a call that did not succeed may have changed something."""
    return any(fault.applied is not Applied.NONE for fault in outcome.faults[-1:]) or any(
        step.status is StepStatus.COMPLETED for step in outcome.steps
    )


async def _report(handle: TaskHandle, report: Report) -> None:
    """Report the progress of the called server to the agent, until the task ends."""
    with suppress(RPCError, Problem):
        await asyncio.sleep(POLL)
        async for event in handle.follow():
            if isinstance(event, Working):
                await report(event.done, event.total, event.words)
