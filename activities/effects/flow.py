"""The life of one call: recognise and claim, send, record; or join, settle, refuse.

It is written once, as a generator that yields what is to be done: transactions of the store, calls of functions, waits.
`function.py` does these things, with an event loop or without one.
"""

import functools
import json
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import JsonValue
from sqlalchemy import Connection

from activities.effects import calls
from activities.effects.calls import (
    GRACE,
    CallRequest,
    Calls,
    Claim,
    Conflict,
    Doubt,
    Recorded,
    RunningCall,
    State,
    UndoneCall,
    UnresolvedCall,
)
from activities.effects.errors import DoubtfulCall, EffectUndone, KeyConflict, OutcomeUnknown, ResultUnknown
from activities.effects.remedies import IDENTITY, OUTCOME, RESULT
from activities.storage.store import StoreUnavailable


@dataclass(frozen=True)
class Transact:
    """Run `work` in a transaction of the store, and return its result."""

    work: Callable[[Connection], Any]
    is_read: bool = False


@dataclass(frozen=True)
class Invoke:
    """Call `function`; it may return an awaitable if the function of the call does. `seconds`: its time limit."""

    function: Callable[[], Any]
    seconds: float | None = None


@dataclass(frozen=True)
class WaitFor:
    """Wait, until the future has a result if one is given; at most so many seconds."""

    seconds: float
    future: "Future[None] | None" = None


Action = Transact | Invoke | WaitFor
Flow = Generator[Action, Any, Any]


class Joined(NamedTuple):
    """A call that was taken for an earlier one, and got its result."""

    key: str
    """The key of the earlier call."""
    function: str
    session: str
    arguments: Mapping[str, JsonValue]
    at: datetime
    """When the earlier call was made."""
    why: str

    def __str__(self) -> str:
        return (
            f"{self.function} was not made as another call: an equal call of the session {self.session!r} {self.why}."
            f" It got that call's result ({self.key}). If it was meant as another call, give it a key of its own:"
            ' effects.scope(key="...").'
        )


@dataclass
class Running:
    """A call that runs in this process."""

    done: "Future[None]" = field(default_factory=Future)
    key: str = ""
    """The key of its row, once it has one."""
    waits_for: str = ""
    """The key of the row of an earlier call whose outcome it waits for."""
    has_given_up: bool = False
    """Whether its client was cancelled."""
    client_has_left: Callable[[], bool] = lambda: False
    is_late: Callable[[], bool] = lambda: False
    """Whether clients that say nothing when they give up may have given up."""
    tells_when_it_leaves: bool = True
    asker: str = ""
    """As in `CallRequest`."""
    joined_by: int = 0
    """How many equal calls have waited for its result."""
    parents: "tuple[Running, ...]" = ()
    """The calls inside whose function it was made, which it cannot wait for."""

    def has_left(self) -> bool:
        """Whether its client certainly does not wait any more."""
        return self.has_given_up or self.client_has_left()

    def is_abandoned(self) -> bool:
        """Whether its client does not wait any more, or may not."""
        return self.has_left() or self.is_late()


@dataclass(frozen=True)
class Work:
    """How a call is made, and how its outcome is found out."""

    make: Callable[[Claim], Callable[[], Any]]
    """Gives the function that makes the call with a claim."""
    encode: Callable[[Any], str | None]
    """The result as JSON; None if it cannot be recorded."""
    decode: Callable[[str | None], Any]
    look: Callable[[UnresolvedCall], Callable[[], Any]] | None
    """Gives the function that looks whether a call was applied: it returns the result, or None."""
    proves_no_effect: Callable[[BaseException], bool]
    raises_unknown: bool
    """Whether a failure without proof raises OutcomeUnknown; else, a repetition is harmless."""
    settle: float
    remedy: Callable[[str, str], str]
    """How a person settles the call with this key; the second argument what is missing, as in `remedies`."""
    is_earlier: Callable[[Claim], bool]
    """Whether the result of a call with a claim may be that of an attempt before it, or is another call's, too."""
    on_joined: Callable[[Joined], None]
    later: Callable[[Callable[[Connection], Any]], None]
    """Runs a transaction in the background until it succeeds."""
    note: Callable[[int], None]
    is_over: Callable[[BaseException], bool] = lambda error: False
    """Whether after a failure nothing can still send anything."""
    name_of: Callable[[BaseException], str] = lambda error: type(error).__name__
    """The name of an exception of the function, for people."""
    key_hint: str = 'effects.scope(key="...")'
    """How a caller gives a key."""


def calling(request: CallRequest, rows: Calls, work: Work, client: Running) -> Flow:
    """Make a call once, and return its result; `client` says whether somebody waits for it.

    Raises EffectError, StoreUnavailable (nothing was called), or what the function raised.
    """
    follow, has_looked, until = None, False, time.monotonic() + request.timeout + GRACE
    while True:
        step = yield from _begin(request, rows, work, client, follow, has_looked=has_looked)
        match step:
            case Claim():
                return (yield from _make(request, rows, work, client, step))
            case Recorded():
                return _answered(request, rows, work, client, step)
            case RunningCall():
                yield from _wait(request, rows, work, client, step, until)
                follow = step.key
            case UnresolvedCall():
                follow, has_looked = None, (yield from _settle(request, rows, work, client, step))
            case Doubt():
                what = _doubt(request, step)
                raise DoubtfulCall(step.key, _doubtful(step, work, what), step.about, what)
            case Conflict():
                raise KeyConflict(step.key, _conflict(request, step.key))
            case UndoneCall():
                raise EffectUndone(step.key, f"{request.function} was applied and undone: its key is used up.")


def _begin(
    request: CallRequest, rows: Calls, work: Work, client: Running, follow: str | None, *, has_looked: bool
) -> Flow:
    given_up = dict(rows.given_up)

    def begin(tx: Connection) -> calls.Step:
        return rows.begin(tx, request, follow, has_looked)

    try:
        step = yield Transact(begin)
    except BaseException:
        rows.given_up |= given_up
        # The commit may have come through although it failed; the function is not called.
        if any(running is client for running in list(rows.running.values())):
            work.later(lambda tx: rows.release(tx, client))
        raise
    if isinstance(step, Claim | Recorded | Doubt):
        rows.is_registered = True
    if isinstance(step, Claim):
        work.note(step.seq)
    return step


def _make(request: CallRequest, rows: Calls, work: Work, client: Running, claim: Claim) -> Flow:
    client.key = claim.key
    is_written = True
    try:
        if client.has_left() or not (yield Transact(lambda tx: rows.is_mine(tx, claim), is_read=True)):
            yield from _give_back(rows, work, claim)
            raise OutcomeUnknown(claim.key, f"{request.function} was not called: its claim was taken away meanwhile.")
        try:
            value = yield Invoke(work.make(claim), request.timeout)
        except BaseException as error:
            return (yield from _failed(request, rows, work, client, claim, error))
        try:
            # Before the record: a process that is killed in between finds no result that it was not told of.
            if claim.begun is not None and work.is_earlier(claim):
                _tell(request, work, claim.key, claim.begun, claim.why)
        finally:
            is_written = yield from _record(rows, work, client, claim, work.encode(value))
        return value
    finally:
        if is_written:
            _end(rows, claim.key, client)


def _end(rows: Calls, key: str, client: Running) -> None:
    rows.running.pop(key, None)
    if not client.done.done():
        client.done.set_result(None)


def _give_back(rows: Calls, work: Work, claim: Claim) -> Flow:
    state = State.UNKNOWN if claim.is_unproven else State.VOID
    why = json.dumps({"code": "not_called", "reason": "The function was not called."})
    try:
        yield Transact(lambda tx: rows.fail(tx, claim, state, why))
    except StoreUnavailable:
        work.later(lambda tx: rows.fail(tx, claim, state, why))


def _record(rows: Calls, work: Work, client: Running, claim: Claim, result: str | None) -> Flow:
    """Record the result; returns False if that goes on in the background, until it succeeds."""

    def record(tx: Connection) -> None:
        reader = None if client.has_left() else client.asker or rows.owner
        rows.record(tx, claim, result, reader=reader, is_late=client.is_abandoned())

    def record_later(tx: Connection) -> None:
        record(tx)
        _end(rows, claim.key, client)

    try:
        yield Transact(record)
    except StoreUnavailable:
        work.later(record_later)
        return False
    return True


def _failed(request: CallRequest, rows: Calls, work: Work, client: Running, claim: Claim, error: BaseException) -> Flow:
    """Record that the function raised `error`, and raise it, or OutcomeUnknown; or return what a look found."""
    is_void = not claim.is_unproven and work.proves_no_effect(error)
    raised = f"raised {work.name_of(error)}"
    why = json.dumps({"code": "void" if is_void else "unknown", "reason": f"It {raised}."})
    state = State.VOID if is_void else State.UNKNOWN
    is_over = work.is_over(error)
    try:
        yield Transact(lambda tx: rows.fail(tx, claim, state, why, is_over=is_over))
    except StoreUnavailable:
        work.later(lambda tx: rows.fail(tx, claim, state, why, is_over=is_over))
    if is_void or not work.raises_unknown or not isinstance(error, Exception):
        raise error
    look = UnresolvedCall(claim.key, claim.token, request.arguments, raised)
    known = ""
    if work.look is not None:
        try:
            value = yield Invoke(work.look(look), request.timeout)
        except Exception as failed:
            known = f", and reconcile= failed ({type(failed).__name__})"
        else:
            if value is not None:
                result, reader = work.encode(value), None if client.is_abandoned() else client.asker or rows.owner
                yield Transact(lambda tx: rows.found(tx, look, result, reader=reader))
                return value
            known = ", and reconcile= has not found it so far"
    what = f"The outcome of {request.function} is unknown: it {look.what}{known}."
    raise OutcomeUnknown(claim.key, f"{what} {work.remedy(claim.key, OUTCOME)}", what) from error


def _answered(request: CallRequest, rows: Calls, work: Work, client: Running, answer: Recorded) -> Any:
    client.key = answer.key
    if client.is_late():
        work.later(lambda tx: rows.abandon(tx, answer.key, client.asker or rows.owner))
    if answer.is_joined:
        _tell(request, work, answer.key, answer.at, answer.why)
    if answer.result is None and not request.returns_nothing:
        what = f"{request.function} was applied, but its result is not known."
        raise ResultUnknown(answer.key, f"{what} {work.remedy(answer.key, RESULT)}", what)
    return work.decode(answer.result)


def _tell(request: CallRequest, work: Work, key: str, at: datetime, why: str) -> None:
    work.on_joined(Joined(key, request.function, request.session, request.arguments, at, why))


def _wait(request: CallRequest, rows: Calls, work: Work, client: Running, step: RunningCall, until: float) -> Flow:
    """Wait until a running call of this or another process ends, as long as a call may last."""
    here, client.waits_for = rows.running.get(step.key), step.key
    if here is not None and any(here is parent for parent in client.parents):
        raise RuntimeError(f"{request.function} was called with equal arguments by its own call: it waits for itself.")
    left = until - time.monotonic()
    if left <= 0:
        raise OutcomeUnknown(
            step.key,
            f"An equal call of {request.function} still runs in {step.where} after {request.timeout:g} s:"
            " wait for it, or end that process.",
        )
    if here is not None:
        here.joined_by += 1
        yield WaitFor(left, here.done)
        return
    for _ in range(POLLS):  # its process may die meanwhile, which only `begin` finds out
        yield WaitFor(min(left, POLL_SECONDS))
        if not (yield Transact(lambda tx: rows.is_open(tx, step.key), is_read=True)):
            return


POLL_SECONDS, POLLS = 0.05, 10
"""Seconds between two looks at the row of a call of another process, and how many before a look at the process."""


def _settle(request: CallRequest, rows: Calls, work: Work, client: Running, step: UnresolvedCall) -> Flow:
    """Find out whether an earlier call was applied; returns True if that stays unknown and the call is reworded."""
    is_equal, client.waits_for = not request.differs_in_prose(step.arguments), step.key
    while work.look is not None:
        try:
            value = yield Invoke(work.look(step), request.timeout)
        except Exception as error:
            return _stays_unknown(request, work, step, f"reconcile= failed ({work.name_of(error)})", is_equal, error)
        if value is not None:
            yield Transact(functools.partial(rows.found, look=step, result=work.encode(value)))
            return False
        miss = yield Transact(lambda tx: rows.missed(tx, step, work.settle))
        if miss.is_void:
            return False
        if miss.look_again_in is None:
            return _stays_unknown(request, work, step, miss.why, is_equal, None)
        yield WaitFor(miss.look_again_in)
    return _stays_unknown(request, work, step, "it has no reconcile= that could find out", is_equal, None)


def _stays_unknown(
    request: CallRequest, work: Work, step: UnresolvedCall, why: str, is_equal: bool, error: Exception | None
) -> bool:
    """Raise OutcomeUnknown for an equal call; a reworded one is doubtful."""
    if not is_equal:
        return True
    what = f"The outcome of {request.function} is unknown: an equal call {step.what}, and {why}."
    raise OutcomeUnknown(step.key, f"{what} {work.remedy(step.key, OUTCOME)}", what) from error


def _doubt(request: CallRequest, step: Doubt) -> str:
    return (
        f"{request.function} was not called: it may be the call {step.about} once more, which {step.what}. Nobody can"
        " know."
    )


def _doubtful(step: Doubt, work: Work, what: str) -> str:
    return f"{what} {work.remedy(step.key, IDENTITY)} Or give it a key of its own: {work.key_hint}."


def _conflict(request: CallRequest, key: str) -> str:
    return (
        f"{request.function} was called before with the key {request.identity.key!r} and other arguments: another call"
        f" needs another key ({key})."
    )


def new_key(function: str) -> str:
    """A key for the row of a call without a caller's key."""
    return f"{function}-{secrets.token_hex(8)}"
