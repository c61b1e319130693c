"""Makes each call of an agent that changes something once, by the store of effects and without a server."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import structlog
from pydantic import BaseModel, JsonValue, ValidationError

from activities import sends
from activities.borders import judge, validation
from activities.borders.proof import proves_no_effect
from activities.borders.table import Verdict
from activities.boundary.attempt import FaultRaised
from activities.effects.arguments import differ_in_prose
from activities.effects.calls import CallRequest, Claim, State, UnresolvedCall
from activities.effects.database import Database
from activities.effects.desk import Desk, Settlement
from activities.effects.driving import drive, in_task
from activities.effects.effect_store import EffectStore
from activities.effects.errors import (
    DoubtfulCall,
    EffectError,
    EffectRefused,
    EffectUndone,
    KeyConflict,
    OutcomeUnknown,
    ResultUnknown,
)
from activities.effects.flow import Joined, Running, Work, calling, new_key
from activities.effects.recognition import Identity
from activities.progress import start_progress
from activities.storage.store import Cipher, StoreUnavailable
from activities.toolbox.declare.kind import Kind
from extras.gateway import results
from extras.gateway.attending import Elicitation, RequestState, reply_of
from extras.gateway.offers import Offer
from extras.gateway.request import AgentRequest, Report
from extras.gateway.results import Do
from extras.gateway.sessions import DoubtPolicy
from workflows.faults import retries
from workflows.faults.fault import Applied, Code, Fault, ProgressReport
from workflows.json_values import canonical, digest
from workflows.plans.catalogue import CompanionSpec, Effect
from workflows.plans.references import Unresolved, pick
from workflows.text import legible

SHORTEST_TIMEOUT = 5.0
"""Seconds after which a client may have given up its call without a word, as some do."""
LONGEST_WAIT = 60.0
"""The longest wait before a call is repeated; if its service asks for a longer one, the agent is told to wait."""
TICK = 5.0
"""Seconds between two reports to the agent that its call is still under way."""
ENDING_SECONDS = 1.0
"""The longest wait for the end of a server whose connection was lost during a call."""
MAX_ANSWERS = 2_000
"""Of how many calls it is known which row each has, the last ones."""
REQUEST = "request"
"""The run of a call whose id is that of the agent's request, which its own process may send again."""
UNREADABLE = "replan_fault"
"""The field of a recorded result that is a fault: the call was applied, and what it returned cannot be passed on."""

APPLIED_OR_NOT = {"applied": "it was done", "not-applied": "it was not done, and is made now"}
SAME_OR_ANOTHER = {"same": "it is the earlier call again", "another": "it is another call, and is made now"}
"""The answers of a person to what nobody knows, and what they mean."""
MAX_SHOWN = 4_000
"""The most characters of a call in a question."""

SHARED = (
    "An equal call came while this one ran, and got the same result: it was done once. If both were meant, make the"
    " second one again, with a key of its own in _meta, replan/key, or after this answer."
)

log = structlog.get_logger("replan.gateway")


def open_store(store: str, cipher: Cipher | None) -> EffectStore:
    """Open the store of effects at the URL or path `store`. Raises StoreUnavailable."""
    opened = EffectStore(Database(store, cipher), restarts=False, watch=True, on_joined=None)
    opened.begin()
    return opened


class Tools(Protocol):
    """The tools of a holder."""

    def kind(self, name: str) -> Any:
        """A tool by its kind; None if there is none any more."""

    def is_over(self, kind: Kind) -> bool:
        """Whether nothing that a call of this tool has started runs any more, as when its server has ended."""

    async def call(self, kind: Kind, args: BaseModel, key: str, called: Callable[[], None]) -> JsonValue:
        """Call a tool, and return its checked result as JSON; `called` is called when it has returned something."""


@dataclass
class _Attempt:
    """What an attempt of a call has done so far."""

    sends: sends.Sends
    is_called: bool = False
    has_returned: bool = False

    def note_return(self) -> None:
        self.has_returned = True


class AppliedCall(NamedTuple):
    """What became of a call: a result, or a fault that says that it was applied all the same."""

    result: JsonValue
    fault: Mapping[str, Any] | None = None


@dataclass
class EffectCalls:
    """The calls of the agents of one holder."""

    store: EffectStore
    tools: Tools
    make: "MakeCall"
    """Makes the call of a request: an AgentCall, unless the calls are tasks."""
    _keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By request, the connection and the row's key of the last calls."""
    under_way: dict[str, Running] = field(default_factory=dict)
    """By request, the calls without an answer."""
    _answered: dict[str, float] = field(default_factory=dict)
    """By row's key, when the last calls were answered, the newest at the end."""
    _unread: dict[str, dict[str, float]] = field(default_factory=dict)
    """By connection, the answers that its agent may not have read: by row's key, when they were given."""

    @property
    def running(self) -> int:
        """How many calls this process makes, also those whose agent has left."""
        return len(self.store.tasks) if self.make is AgentCall else 0

    def wait_no_longer(self) -> None:
        """Stop waiting for tasks, which go on by themselves."""
        if self.make is not AgentCall:
            for task in self.store.tasks:
                task.cancel()

    async def call(
        self,
        offer: Offer,
        args: dict[str, JsonValue],
        request: AgentRequest,
        *,
        kind: Any = None,
        make: "MakeCall | None" = None,
    ) -> dict[str, Any]:
        """Make a call once, and return its CallToolResult. `kind` and `make` take the place of those of the tools."""
        kind, is_structured = kind or self.tools.kind(offer.kind), "outputSchema" in offer.tool
        fault = partial(results.fault, is_structured=is_structured)
        if kind is None:
            reason = f"{offer.name} is not offered any more"
            return fault(Do.CHANGE, code=Code.MISSING_TOOL.value, reason=reason)
        try:
            model = kind.parse(args)
        except ValidationError as error:
            reason = f"The arguments do not fit {offer.name}: {validation.fields_of(error)}."
            return fault(Do.CHANGE, code=Code.INVALID_INPUT.value, reason=reason)
        call = (make or self.make)(self, offer, kind, model, args, request)
        reporting = asyncio.create_task(call.report()) if request.report else None
        try:
            answer = await call.make()
        except InterimAnswer as unanswered:
            return unanswered.answer
        except (EffectError, StoreUnavailable) as error:
            return call.refused(error, fault)
        except Exception as error:
            return call.failed(error, fault)
        finally:
            self._note_key(request, call.client.key)
            self.under_way.pop(request.id, None)
            if reporting is not None:
                reporting.cancel()
        shown = fault(**answer.fault) if answer.fault else results.success(answer.result, is_structured=is_structured)
        if call.joined:
            return results.with_note(shown, _joined_note(call.joined[-1]))
        return results.with_note(shown, SHARED) if call.client.joined_by else shown

    async def read(self, offer: Offer, args: dict[str, JsonValue]) -> dict[str, Any]:
        """Call a tool that changes nothing, and return its CallToolResult."""
        kind, fault = self.tools.kind(offer.kind), partial(results.fault, is_structured="outputSchema" in offer.tool)
        if kind is None:
            return fault(Do.CHANGE, code=Code.MISSING_TOOL.value, reason=f"{offer.name} is not offered any more")
        try:
            found = await self.tools.call(kind, kind.parse(args), "", lambda: None)
        except ValidationError as error:
            reason = f"The arguments do not fit {offer.name}: {validation.fields_of(error)}."
            return fault(Do.CHANGE, code=Code.INVALID_INPUT.value, reason=reason)
        except Exception as error:
            verdict = judge(error, kind.raises)
            found_fault = error.fault if isinstance(error, FaultRaised) else verdict.fault
            return _of_failure(Failed(found_fault, verdict, error), fault)
        return results.success(found, is_structured="outputSchema" in offer.tool)

    def effect_of(self, kind: str) -> Effect:
        """The effect of a kind; `unkeyed`, the strictest, if there is no such tool."""
        found = self.tools.kind(kind)
        return found.spec.effect if found else Effect.UNKEYED

    # What the holder tells of connections.

    def connection_opened(self, connection: str) -> None:
        """Note that an agent can be answered on this connection."""
        self.store.rows.askers[self.asker(connection)] = None

    def connection_closed(self, connection: str) -> None:
        """Note that the agent has left, or was lost: nobody knows whether it has read its last answers."""
        self._unread.pop(connection, None)
        self.store.rows.askers.pop(self.asker(connection), None)
        if self.store.rows.read:
            self.store.later(self.store.rows.go_on)

    def answer_failed(self, request: str) -> None:
        """Note that the answer to a request could not be written."""
        if found := self._keys.pop(request, None):
            connection, key = found
            self._unread.get(connection, {}).pop(key, None)
            self.store.not_read(key, self.asker(connection))

    def _note_key(self, request: AgentRequest, key: str) -> None:
        if key:
            self._keys[request.id] = request.connection, key
            self._answered.pop(key, None)
            self._answered[key] = self._unread.setdefault(request.connection, {})[key] = time.monotonic()
            for known in (self._keys, self._answered, self._unread, self._unread[request.connection]):
                while len(known) > MAX_ANSWERS:
                    known.pop(next(iter(known)))

    def not_read_by(self, request: AgentRequest) -> frozenset[str]:
        """The keys of the rows whose answers had not been given when this request came, so that it follows none."""
        others = {client.key for id, client in list(self.under_way.items()) if id != request.id and client.key}
        late = itertools.takewhile(lambda item: item[1] > request.arrived, reversed(list(self._answered.items())))
        return frozenset({*others, *(key for key, _ in late)})

    def went_on(self, connection: str, at: float) -> None:
        """Note that the agent has asked for something else on this connection: it has the answers given before `at`."""
        unread = self._unread.get(connection, {})
        for key in [key for key, since in unread.items() if since < at]:
            del unread[key]
            self.store.rows.read[key] = self.asker(connection)

    async def answer(self, asked: RequestState, said: Mapping[str, Any], request: AgentRequest) -> bool:
        """Settle a call as its person has said at the client; returns whether that was accepted."""
        reply = reply_of(said, [*APPLIED_OR_NOT, *SAME_OR_ANOTHER])
        if reply is None or request.attended is None:
            return False
        return await self.settle(request, asked.about, reply.choice, request.attended.name)

    async def settle(self, request: AgentRequest, key: str, answer: str, by: str) -> bool:
        """Settle a call of the session as its person says; returns whether that was accepted."""
        desk = Desk(self.store.database, lambda: self.store.rows)

        def work() -> bool:
            try:
                if desk.call(key).session == request.session.name:
                    desk.settle(key, cast("Settlement", answer), by=by)
                    return True
            except EffectRefused as error:  # another person was faster
                log.warning("gateway_answer_refused", task=key, reason=str(error))
            return False

        return await asyncio.wrap_future(self.store.database.submit(work))

    def asker(self, connection: str) -> str:
        """The name of a connection in the store, which has those of other holders, too."""
        return f"{self.store.owner.id}:{digest(connection)}"


@dataclass
class AgentCall:
    """One call of an agent, which this process makes."""

    calls: EffectCalls
    offer: Offer
    kind: Any
    """The Kind of the tool, or of the tools of a queue a QueueKind."""
    model: Any
    """The checked arguments."""
    args: dict[str, JsonValue]
    request: AgentRequest
    joined: list[Joined] = field(default_factory=list)
    """The earlier call for which it was taken."""
    client: Running = field(default_factory=Running)

    async def make(self) -> AppliedCall:
        """Make the call, again as long as a repetition can help and its agent waits.

        Raises:
            EffectError: it was not made, or nobody knows whether it was applied.
            StoreUnavailable: it was not made.
            Failed: it was made, and certainly not applied.
        """
        spec, number = self.kind.spec, 0
        most = retries.PROFILES[spec.retry].attempts
        while True:
            number += 1
            try:
                return await self._once()
            except DoubtfulCall as doubt:
                if not await self._answer_doubt(doubt) and not await self._asked_person(doubt, SAME_OR_ANOTHER):
                    raise
            except (Failed, OutcomeUnknown, StoreUnavailable) as error:
                least = _least_wait(error, spec.effect)
                if least is None or number >= most:
                    if isinstance(error, OutcomeUnknown) and await self._asked_person(error, APPLIED_OR_NOT):
                        continue
                    raise
                wait = max(least, retries.backoff(spec.retry, number, random.random()))  # noqa: S311  # jitter
                if wait > LONGEST_WAIT or self.request.is_gone():
                    raise
                await asyncio.sleep(wait)

    async def _answer_doubt(self, doubt: DoubtfulCall) -> bool:
        """Answer a doubt as the session was told to; False if a person is to be asked."""
        said = {DoubtPolicy.REPEAT: State.ANOTHER, DoubtPolicy.REPLAY: State.SAME}.get(self.request.session.doubt)
        if said is None:
            return False
        rows = self.calls.store.rows
        work = partial(rows.answer_doubt, key=doubt.key, state=said)
        await asyncio.wrap_future(self.calls.store.database.submit(lambda: self.calls.store.database.write(work)))
        return True

    async def _asked_person(self, error: EffectError, choices: Mapping[str, str]) -> bool:
        """Ask the person at the client, if there is one; returns whether they have settled the call.

        Raises InterimAnswer if the question has to be the call's result.
        """
        person, key = self.request.attended, error.key
        if person is None or isinstance(error, ResultUnknown):
            return False
        lines = [f"{self.offer.name} {canonical(self.args)[:MAX_SHOWN]}", error.what]
        lines += [f"{choice}: {meaning}" for choice, meaning in choices.items()]
        question = Elicitation(key, "", "", "\n".join(map(legible, lines)), [*choices])
        if not person.is_inline:
            raise InterimAnswer(question.as_result(self.request.id))
        reply = reply_of(await person.ask(question), question.choices)
        return reply is not None and await self.calls.settle(self.request, key, reply.choice, person.name)

    async def _once(self) -> AppliedCall:
        """One attempt, which goes on when the agent leaves."""
        client = self.client = self.calls.under_way[self.request.id] = self._client()
        flow = calling(self.call_request(client), self.calls.store.rows, self.work(client), client)
        made = drive(self.calls.store, flow, client)
        return await self.awaited(in_task(self.calls.store, made, client, f"call {self.offer.name}"))

    async def awaited(self, made: Coroutine[Any, Any, AppliedCall]) -> AppliedCall:
        """Wait for the end of an attempt."""
        return await made

    async def report(self) -> None:
        """Report to the agent that its call is under way, as long as it is."""
        number = 0
        while self.request.report is not None:
            await asyncio.sleep(TICK)
            number += 1
            await self.request.report(number, None, self.standing())

    def standing(self) -> str:
        """How the call stands, in words."""
        return "under way"

    def refused(self, error: Exception, fault: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        """The answer to a call that was not made, or whose outcome nobody knows."""
        match error:
            case ResultUnknown():
                code, applied = "unknown_result", Applied.APPLIED.value
                return fault(Do.DO_NOT_REPEAT, code=code, reason=str(error), applied=applied, task=error.key)
            case OutcomeUnknown():
                cause = error.__cause__
                said = {"text": cause.verdict.words} if isinstance(cause, Failed) and cause.verdict.words else None
                unknown = Applied.UNKNOWN.value
                return fault(
                    Do.PERSON, code="unknown_outcome", reason=str(error), observed=said, applied=unknown, task=error.key
                )
            case DoubtfulCall():
                return fault(Do.PERSON, code="doubtful", reason=str(error), task=error.key)
            case KeyConflict():
                return fault(Do.CHANGE, code=Code.CONFLICT.value, reason=str(error), task=error.key)
            case EffectUndone():
                return fault(Do.DO_NOT_REPEAT, code=Code.GONE.value, reason=str(error), task=error.key)
            case _:
                return fault(Do.WAIT, code=Code.STORE_UNAVAILABLE.value, reason=str(error), wait=results.WAIT_SECONDS)

    def failed(self, error: Exception, fault: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        """The answer to a call that was made, and certainly not applied."""
        if isinstance(error, Failed):
            return _of_failure(error, fault)
        raise error

    def _client(self) -> Running:
        began = time.monotonic()
        return Running(
            client_has_left=self.request.is_gone,
            is_late=lambda: time.monotonic() - began > SHORTEST_TIMEOUT,
            tells_when_it_leaves=False,
            asker=self.calls.asker(self.request.connection),
        )

    def call_request(self, client: Running) -> CallRequest:
        session, kind, key = self.request.session.name, self.kind.spec.kind, self.request.key or None
        if key and self.calls.store.database.cipher:  # keys are in clear in the store
            key = digest(key)
        identity = Identity(digest(kind, self.args), key, REQUEST, self.request.resent or self.request.id)
        spec = self.kind.spec
        return CallRequest(
            session=session,
            function=kind,
            effect=spec.effect,
            identity=identity,
            arguments=self.args,
            key=row_key(session, kind, identity, new_key(self.offer.name)),
            timeout=spec.timeout,
            differs_in_prose=lambda earlier: differ_in_prose(self.args, earlier, spec.authority, spec.content),
            can_look=spec.reconcile is not None,
            client=client,
            asker=client.asker,
            unread=partial(self.calls.not_read_by, self.request),
        )

    def work(self, client: Running) -> Work:
        attempt, spec = _Attempt(sends.Sends(on_process=self.calls.store.owner.note_started_process)), self.kind.spec
        return Work(
            make=lambda claim: partial(self._call_tool, claim, attempt),
            encode=_encode,
            decode=_decode,
            look=self._looker if spec.reconcile else None,
            proves_no_effect=lambda error: self._proves_no_effect(error, attempt),
            raises_unknown=spec.effect is not Effect.IDEMPOTENT,
            settle=spec.settle,
            remedy=self.calls.store.remedy,
            is_earlier=lambda claim: spec.effect is Effect.KEYED and claim.is_unproven,
            on_joined=self.joined.append,
            later=self.calls.store.later,
            note=self.calls.store.database.note,
            is_over=lambda error: self.calls.tools.is_over(self.kind),
            name_of=lambda error: type(error.error if isinstance(error, Failed) else error).__name__,
            key_hint="`replan/key` in the `_meta` of the call",
        )

    async def _call_tool(self, claim: Claim, attempt: _Attempt) -> AppliedCall:
        """Call the tool with a claim. Raises Failed for its exception."""
        attempt.is_called = True
        if self.request.report is not None:
            start_progress().heard = partial(self._pass_progress, asyncio.get_running_loop(), self.request.report)
        try:
            with sends.counted(attempt.sends):
                result = await self.calls.tools.call(self.kind, self.model, claim.key, attempt.note_return)
        except Exception as error:
            verdict = judge(error, self.kind.raises)
            fault = error.fault if isinstance(error, FaultRaised) else verdict.fault
            if attempt.has_returned:
                return AppliedCall(None, _applied_fault(fault))
            if fault.code is Code.UNREACHABLE and self.kind.spec.reconcile:
                await self._until_over()
            raise Failed(fault, verdict, error) from error
        return AppliedCall(result)

    def _pass_progress(self, loop: asyncio.AbstractEventLoop, report: Report, progress: ProgressReport) -> None:
        """Report to the agent what the server reports, from whatever thread that is."""

        async def passed() -> None:
            with suppress(Exception):  # the agent may have its answer, or have left
                await report(progress.done, progress.total, progress.words)

        asyncio.run_coroutine_threadsafe(passed(), loop)

    async def _until_over(self) -> None:
        """Wait a moment for the end of a server that has closed its pipes: then a look proves something at once."""
        until = time.monotonic() + ENDING_SECONDS
        while not self.calls.tools.is_over(self.kind) and time.monotonic() < until:  # noqa: ASYNC110  # seldom
            await asyncio.sleep(0.01)

    def _proves_no_effect(self, error: BaseException, attempt: _Attempt) -> bool:
        """Whether it is certain that a call that ended with `error` had no effect."""
        if not attempt.is_called:
            return True
        if not isinstance(error, Failed):
            return False
        if isinstance(error.error, FaultRaised):
            return error.fault.applied is Applied.NONE
        is_alone = self.kind.requests is not None
        return proves_no_effect(
            error.verdict, error.error, attempt.sends, lambda: self.kind.libraries, is_alone=is_alone
        )

    def _looker(self, look: UnresolvedCall) -> Callable[[], Awaitable[AppliedCall | None]]:
        companion = self.kind.spec.reconcile

        async def find() -> AppliedCall | None:
            if companion is None:
                return None
            reader = self.calls.tools.kind(companion.kind)
            if reader is None:
                raise LookupError(f"{companion.kind} is not offered any more")
            args = arguments_of(companion, {"args": dict(look.arguments), "key": look.key})
            try:
                result = await self.calls.tools.call(reader, reader.parse(args), look.key, lambda: None)
            except Exception as error:
                fault = error.fault if isinstance(error, FaultRaised) else judge(error, reader.raises).fault
                if fault.code is Code.NOT_FOUND and not fault.guessed:
                    return None
                raise
            return AppliedCall(result)

        return find


MakeCall = Callable[[EffectCalls, Offer, Any, Any, dict[str, JsonValue], AgentRequest], AgentCall]

MAX_KEY = 250
"""The most characters of a key that is made of session, tool and caller's key; a longer one is a digest."""


def row_key(session: str, kind: str, identity: Identity, new: str) -> str:
    """The key of a call's row: made of the caller's own key if it has one, else `new`."""
    if identity.key is None:
        return new
    own = f"{session}/{kind}/{identity.key}"
    return own if len(own) <= MAX_KEY and own.isprintable() else f"{kind}-{digest(own)}"


class InterimAnswer(Exception):
    """A call goes on, and its agent gets `answer` meanwhile."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__()
        self.answer = answer


class Failed(Exception):
    """A tool's call raised an exception."""

    def __init__(self, fault: Fault, verdict: Verdict, error: Exception) -> None:
        super().__init__(fault.reason)
        self.fault, self.verdict, self.error = fault, verdict, error


def _least_wait(error: Exception, effect: Effect) -> float | None:
    """Seconds after which a call may be made again, since its fault is transient and nothing is done twice; else None.

    Without its store it was not made.
    """
    if isinstance(error, StoreUnavailable):
        return 0.0
    failed = error if isinstance(error, Failed) else error.__cause__
    is_safe = isinstance(error, Failed) or effect is not Effect.UNKEYED
    if not (isinstance(failed, Failed) and is_safe and failed.fault.quadrant.is_transient):
        return None
    return failed.fault.retry_after or 0.0


def arguments_of(companion: CompanionSpec, call: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The arguments for the companion of a call; an argument without a value is left out."""
    found = dict[str, JsonValue]()
    for name, path in companion.args.items():
        with suppress(Unresolved):
            found[name] = pick(dict(call), path, "the call")
    return found


def _encode(answer: AppliedCall) -> str:
    return json.dumps({UNREADABLE: dict(answer.fault)} if answer.fault else answer.result)


def _decode(text: str | None) -> AppliedCall:
    value = json.loads(text) if text is not None else None
    if isinstance(value, dict) and value.keys() == {UNREADABLE}:
        return AppliedCall(None, value[UNREADABLE])
    return AppliedCall(value)


def _applied_fault(fault: Fault) -> dict[str, Any]:
    """The answer to a call that was applied, and whose result cannot be passed on, as arguments of `results.fault`."""
    return {
        "do": Do.DO_NOT_REPEAT.value,
        "code": fault.code.value,
        "quadrant": fault.quadrant.value,
        "reason": fault.reason,
        "applied": Applied.APPLIED.value,
    }


def _of_failure(failed: Failed, fault: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The answer to a call that was certainly not applied."""
    found, do, wait = failed.fault, Do.CHANGE, None
    if found.quadrant.is_transient:
        do, wait = Do.WAIT, found.retry_after or results.WAIT_SECONDS
    elif not found.quadrant.is_semantic:
        do = Do.DO_NOT_REPEAT
    return fault(
        do,
        code=found.code.value,
        quadrant=found.quadrant.value,
        reason=found.reason,
        observed={"text": failed.verdict.words} if found.observed is None and failed.verdict.words else found.observed,
        applied=Applied.NONE.value,
        wait=wait,
    )


def _joined_note(joined: Joined) -> str:
    return (
        f"Not done again: this is the result of an equal call of {joined.at:%Y-%m-%d %H:%M:%S} UTC, which {joined.why}"
        f" ({joined.key}). If it should be done once more, call a tool that only reads, such as replan_effects, and"
        " then this one again, or give it a key of its own in _meta, replan/key."
    )
