"""The rows of calls without a task: recognised and claimed in one transaction, recorded, settled.

A row is `open` from its claim until its result is recorded: then `applied`. A call that failed is `void` if it is
proven that nothing was applied, else `unknown`. A `doubtful` row is a call that was not made; `same` and `another` are
what a person has answered about it. `undone`: applied, and undone by another call.
"""

import json
import os
import secrets
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import JsonValue
from sqlalchemy import (
    Column,
    Connection,
    String,
    Table,
    and_,
    bindparam,
    exists,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)

from activities.effects.ledger import LEDGER
from activities.effects.owner import OWNERS, Evidence, Life, evidence
from activities.effects.recognition import CallStanding, Earlier, Identity, Recognised, Relation, recognise
from activities.storage.store import REPLAN_TABLES, StoreUnavailable, insert_new
from workflows.faults import retries
from workflows.plans.catalogue import Effect

SESSIONS = Table("replan_sessions", REPLAN_TABLES, Column("id", String(1000), primary_key=True))
"""A row for each session; a call locks it while it is recognised and claimed."""

GRACE = retries.GRACE.total_seconds()

# Statements are made once: to make one takes longer than SQLite needs to execute it.
_NEWEST = select(func.coalesce(func.max(LEDGER.c.seq), 0))
_ROW = select(LEDGER).where(LEDGER.c.key == bindparam("key"))
_INSERT = insert(LEDGER)
_UPDATE = update(LEDGER).where(LEDGER.c.key == bindparam("of_key"))
_OWNER = select(OWNERS).where(OWNERS.c.id == bindparam("owner"))
_CLAIMED = (LEDGER.c.key == bindparam("of_key"), LEDGER.c.claim == bindparam("of_claim"))
_UPDATE_CLAIMED = update(LEDGER).where(*_CLAIMED)
_MINE = (*_CLAIMED, LEDGER.c.owner == bindparam("of_owner"), LEDGER.c.state == "open")
_UPDATE_MINE = update(LEDGER).where(*_MINE)
_IS_MINE = select(LEDGER.c.key).where(*_MINE)
_SETTLE = _UPDATE_CLAIMED.where(LEDGER.c.state.in_(["open", "unknown"]))
_ABANDON_OPEN = _UPDATE.where(LEDGER.c.asker == bindparam("of_reader"), LEDGER.c.state == "open").values(is_abandoned=1)
_ABANDON_READ = _UPDATE.where(LEDGER.c.reader == bindparam("of_reader"), LEDGER.c.state == "applied").values(
    reader=None
)
_GO_ON = (
    update(LEDGER)
    .where(
        LEDGER.c.key == bindparam("of_key"),
        LEDGER.c.reader == bindparam("of_reader"),
        LEDGER.c.state == "applied",
        LEDGER.c.read_seq >= 0,
    )
    .values(is_abandoned=0, read_seq=-1)
)
_ENDED = select(OWNERS.c.id).where(OWNERS.c.ended_at.is_not(None))
_LATER = LEDGER.alias()
_IS_LAST = ~exists().where(
    _LATER.c.asker == LEDGER.c.reader, _LATER.c.seq > LEDGER.c.read_seq, _LATER.c.session == LEDGER.c.session
)
_IS_READ = or_(LEDGER.c.reader.in_(bindparam("readers", expanding=True)), LEDGER.c.reader.in_(_ENDED))
_ROWS = (
    select(LEDGER)
    .where(
        LEDGER.c.session == bindparam("session"),
        LEDGER.c.kind == bindparam("function"),
        or_(
            LEDGER.c.state.in_(["open", "unknown", "doubtful", "same", "another"]),
            and_(
                LEDGER.c.state == "applied",
                or_(
                    LEDGER.c.reader.is_(None),
                    LEDGER.c.is_abandoned == 1,
                    # Of the answers whose reader has gone on, only those to equal calls count, unless it restarts.
                    and_(
                        not_(_IS_READ),
                        or_(LEDGER.c.digest == bindparam("digest"), bindparam("restarts") == 1, _IS_LAST),
                    ),
                ),
            ),
            # A value that is not known is NULL, and equals nothing.
            LEDGER.c.caller_key == bindparam("caller_key"),
            LEDGER.c.key.in_(bindparam("unread", expanding=True)),
            and_(LEDGER.c.call == bindparam("call"), LEDGER.c.digest == bindparam("digest")),
            and_(LEDGER.c.family == bindparam("family"), LEDGER.c.digest == bindparam("digest")),
        ),
    )
    .order_by(LEDGER.c.seq)
)
"""The rows of a session that may have to do with a call, the oldest first; not those whose answer was surely read."""
_HAS_GONE_ON = (
    select(LEDGER.c.key)
    .where(
        LEDGER.c.session == bindparam("session"),
        LEDGER.c.asker == bindparam("asker"),
        LEDGER.c.seq > bindparam("read_seq"),
    )
    .limit(1)
)


class State(StrEnum):
    """The state of a row; see the top of this module."""

    OPEN = "open"
    APPLIED = "applied"
    UNKNOWN = "unknown"
    VOID = "void"
    DOUBTFUL = "doubtful"
    SAME = "same"
    ANOTHER = "another"
    UNDONE = "undone"


FOUND = "found"
"""The code of why a call is applied whose effect a look has found."""
UNSETTLED = (State.OPEN, State.UNKNOWN, State.DOUBTFUL, State.SAME, State.ANOTHER)
"""The states of rows that are never deleted."""


@dataclass(frozen=True)
class CallRequest:
    """A call that is to be made once."""

    session: str
    function: str
    effect: Effect
    identity: Identity
    arguments: Mapping[str, JsonValue]
    key: str
    """The key of its row, if it gets a new one."""
    timeout: float
    differs_in_prose: Callable[[Mapping[str, JsonValue]], bool]
    """Whether its arguments differ from these only in words."""
    can_look: bool = False
    """Whether `reconcile=`, or the database of a transactional function, can say whether a call was applied."""
    returns_nothing: bool = False
    """Whether nothing is missing if an applied call has no recorded result."""
    client: Any = None
    """What `Calls.running` has of the call while it runs."""
    asker: str = ""
    """Who asks for the call, if one process makes calls for others: the id of a connection; else empty."""
    unread: Callable[[], frozenset[str]] = frozenset
    """The keys of the rows whose answers were given after the caller had asked: it had not read them."""


class Claim(NamedTuple):
    """The call is to be made now, by this process."""

    key: str
    token: int
    seq: int
    is_unproven: bool = False
    """Whether an earlier attempt of the call may have been applied."""
    begun: datetime | None = None
    """When the call was made for which this one is taken, so that the caller must be told if it gets its result."""
    why: str = ""
    """What is known of that call."""
    is_shared: bool = False
    """Whether the result may be that of two calls: that one was taken over before, or has a key or ids of its own."""


class Recorded(NamedTuple):
    """The call was made before; its recorded result."""

    key: str
    result: str | None
    is_joined: bool
    """Whether it is only taken for the earlier call, so that the caller must be told."""
    at: datetime
    why: str
    caller_key: str | None


class RunningCall(NamedTuple):
    """The call runs, in this process or in another one."""

    key: str
    is_joined: bool
    where: str


class UnresolvedCall(NamedTuple):
    """The outcome of an earlier call has to be found out first."""

    key: str
    token: int
    arguments: Mapping[str, JsonValue]
    what: str
    """What is known of it, in words."""


class Doubt(NamedTuple):
    """The call is not made: it has a row that a person can settle."""

    key: str
    about: str
    what: str


class Conflict(NamedTuple):
    """The key belongs to a call with other arguments."""

    key: str


class UndoneCall(NamedTuple):
    """The call was applied and undone."""

    key: str


Step = Claim | Recorded | RunningCall | UnresolvedCall | Doubt | Conflict | UndoneCall


class Miss(NamedTuple):
    """What follows when a look did not find an effect: settled as void, or another look, or nobody knows."""

    is_void: bool = False
    look_again_in: float | None = None
    """Seconds until a second look can prove it; None if none can."""
    why: str = ""


@dataclass
class Calls:
    """The rows of one store, as one owner sees them."""

    owner: str
    """The id of the owner."""
    owner_row: Mapping[str, Any]
    clock: Callable[[Connection], float]
    """The time of the store."""
    is_local: bool
    restarts: bool = False
    running: dict[str, Any] = field(default_factory=dict)
    """By key, the calls that run in this process; each says whether its client still waits (`is_abandoned`)."""
    given_up: dict[str, str] = field(default_factory=dict)
    """The calls whose client has given up, and who that was, until the next call or a thread has written it down."""
    read: dict[str, str] = field(default_factory=dict)
    """The calls whose answer a client has, as it has asked for something else since, and who that is; until the next
    call has written it down. If this process dies before, they count as not read."""
    is_registered: bool = False
    is_closed: bool = False
    """Whether the owner ends in order: then no call begins any more."""
    askers: dict[str, None] = field(default_factory=dict)
    """The connections for which this process makes calls, and which are open."""

    def begin(self, tx: Connection, request: CallRequest, follow: str | None, has_looked: bool) -> Step:
        """Recognise a call and claim it, or say what stands in its way.

        `follow` is the key of the call for which this one has waited. `has_looked`: a look left it unknown whether an
        earlier call was applied. A claimed call is in `running` before the claim can be seen.
        """
        if self.is_closed:
            raise StoreUnavailable("The store of effects was closed by this process: the function was not called.")
        self.lock(tx, request.session)
        for key, reader in list(self.given_up.items()):
            self.abandon(tx, key, reader)
            self.given_up.pop(key, None)
        self.go_on(tx)
        unread = request.unread()
        rows = self._rows(tx, request, unread)
        if follow is not None and (row := self.row(tx, follow)) is not None:
            earlier = self._earlier(tx, row)
            if earlier.standing not in (CallStanding.VOID, CallStanding.UNDONE):
                return self._same(tx, request, row, earlier, is_joined=True)
        if answered := self._answered_as_same(tx, request, rows):
            return answered
        # A person answered about what was there when the doubt arose: a call since then may be the same one.
        another = max(_doubts(request, rows, State.ANOTHER), key=lambda row: row.seq, default=None)
        known = [
            self._earlier(tx, row, is_reworded=is_reworded, is_unread=row.key in unread and not is_reworded)
            for row, is_reworded in _related(request, rows)
            if another is None or row.seq > another.seq
        ]
        match = recognise(
            request.identity, known, restarts=self.restarts, is_harmless=request.effect is Effect.IDEMPOTENT
        )
        if match.earlier is None:
            free = another or self._void_with_key(rows, request.identity.key)
            return self._insert(tx, request) if free is None else self._take_over(tx, request, free, is_unproven=False)
        row = _by_key(rows, match.earlier.name)
        return self._follows(tx, request, match, match.earlier, row, rows, has_looked=has_looked)

    def _follows(
        self,
        tx: Connection,
        request: CallRequest,
        match: Recognised,
        earlier: Earlier,
        row: Any,
        rows: Sequence[Any],
        *,
        has_looked: bool,
    ) -> Step:
        if match.verdict is Relation.CONFLICT:
            return Conflict(row.key)
        if match.verdict is not Relation.DOUBTFUL:
            return self._same(tx, request, row, earlier, is_joined=match.verdict is Relation.JOINED)
        if earlier.standing is CallStanding.STOPPED and request.can_look and not has_looked:
            return self._look(tx, row)
        return self._doubt(tx, request, row, rows, self._clause(tx, row, earlier.standing))

    def _same(self, tx: Connection, request: CallRequest, row: Any, earlier: Earlier, *, is_joined: bool) -> Step:
        """What follows if the call is the earlier one."""
        match earlier.standing:
            case CallStanding.RUNNING:
                return RunningCall(row.key, is_joined, self.place_of(tx, row))
            case CallStanding.STOPPED if request.effect is Effect.UNKEYED:
                return self._look(tx, row)
            case CallStanding.STOPPED:
                why, is_shared = self._clause(tx, row, earlier.standing), _is_shared(row, request.identity)
                claim = self._take_over(tx, request, row, is_unproven=True, is_joined=is_joined)
                begun = row.at if is_joined or is_shared else None
                return claim._replace(begun=begun, why=why, is_shared=is_shared)
            case CallStanding.VOID:
                return self._take_over(tx, request, row, is_unproven=False)
            case CallStanding.UNDONE:
                return UndoneCall(row.key)
            case _:
                return self._answer(tx, request, row, earlier.standing, is_joined=is_joined)

    def _answer(
        self, tx: Connection, request: CallRequest, row: Any, standing: CallStanding, *, is_joined: bool
    ) -> Recorded:
        # Whoever got its result may have been killed before it was told so; a connection that is open was told.
        is_taken = _took_key(request, row)
        has_read = standing is CallStanding.READ and not (is_taken and not request.asker)
        was_delivered = has_read or not (_was_joined(row) or is_taken)
        why, is_joined = self._clause(tx, row, standing), is_joined or not was_delivered
        read = {"joined": (row.joined or 0) + 1, "why": _with_answer(row.why, standing, why, is_joined=is_joined)}
        if row.result is not None or request.returns_nothing:  # else the caller gets an error, and calls again
            request.client.key = row.key  # a client that leaves from now on is in `given_up`
            reader = None if request.client.has_left() else request.asker or self.owner
            is_abandoned = int(bool(request.asker) and _was_found(row))
            read |= {"reader": reader, "is_abandoned": is_abandoned, "read_seq": self._newest(tx)}
        tx.execute(_UPDATE, {"of_key": row.key, **read, **_adopted(row, request.identity)})
        self._register(tx)
        return Recorded(row.key, row.result, is_joined, row.at, why, row.caller_key)

    def _insert(self, tx: Connection, request: CallRequest) -> Claim:
        self._register(tx)
        identity, seq = request.identity, self._newest(tx) + 1
        row = {
            "key": request.key,
            "task": "",
            "step": "",
            "kind": request.function,
            "digest": identity.digest,
            "claim": 1,
            "session": request.session,
            "effect": request.effect.value,
            "arguments": json.dumps(dict(request.arguments)),
            **_named(identity),
            "joined": 0,
            **self._claimed(tx, request, seq),
        }
        tx.execute(_INSERT, row)
        self.running[request.key] = request.client
        return Claim(request.key, 1, seq)

    def _void_with_key(self, rows: Sequence[Any], key: str | None) -> Any:
        """The row of a call with this key that was certainly not applied, and had other arguments."""
        return next((row for row in rows if key is not None and row.caller_key == key and row.about is None), None)

    def _take_over(
        self, tx: Connection, request: CallRequest, row: Any, *, is_unproven: bool, is_joined: bool = False
    ) -> Claim:
        """Claim a row again, whose earlier attempt is over."""
        self._register(tx)
        seq, is_unproven = self._newest(tx) + 1, bool(is_unproven or row.is_unproven)
        claim = {
            "claim": row.claim + 1,
            "is_unproven": int(is_unproven),
            "joined": (row.joined or 0) + (1 if is_joined else 0),
            "digest": request.identity.digest,
            "arguments": json.dumps(dict(request.arguments)),
            **self._claimed(tx, request, seq),
            **(_adopted(row, request.identity) if row.about is None else _named(request.identity)),
        }
        tx.execute(_UPDATE, {"of_key": row.key, **claim})
        self.running[row.key] = request.client
        return Claim(row.key, row.claim + 1, seq, is_unproven)

    def _claimed(self, tx: Connection, request: CallRequest, seq: int) -> dict[str, Any]:
        return {
            "state": State.OPEN.value,
            "owner": self.owner,
            "asker": request.asker or self.owner,
            "reader": None,
            "seq": seq,
            "read_seq": None,
            "expires": self.clock(tx) + request.timeout,
            "missed_at": None,
            "is_abandoned": 0,
            "result": None,
            "about": None,
            "why": None,
            "at": datetime.now(UTC),
        }

    def _doubt(self, tx: Connection, request: CallRequest, row: Any, rows: Sequence[Any], what: str) -> Doubt:
        known = next((one for one in _doubts(request, rows) if one.about == row.key), None)
        if known is not None and known.state == State.DOUBTFUL:
            return Doubt(known.key, row.key, what)
        self._register(tx)
        claim = self._insert(tx, replace(request, key=f"doubt-{secrets.token_hex(6)}"))
        mark = {"state": State.DOUBTFUL.value, "about": row.key, "why": _why("doubtful", what), "claim": 0}
        tx.execute(_UPDATE, {"of_key": claim.key, **mark})
        self.running.pop(claim.key, None)
        return Doubt(claim.key, row.key, what)

    def _answered_as_same(self, tx: Connection, request: CallRequest, rows: Sequence[Any]) -> Step | None:
        """What follows if a person has said of this doubtful call that it is the earlier one."""
        for row in _doubts(request, rows, State.SAME):
            if (about := self.row(tx, row.about)) is not None:
                if self._standing(tx, about) is CallStanding.UNDONE:
                    return UndoneCall(about.key)
                tx.execute(_UPDATE, {"of_key": row.key, "state": State.VOID.value})
                return self._answer(tx, request, about, CallStanding.UNREAD, is_joined=True)
        return None

    def _look(self, tx: Connection, row: Any) -> UnresolvedCall:
        arguments = json.loads(row.arguments) if row.arguments else {}
        return UnresolvedCall(row.key, row.claim, arguments, self._clause(tx, row, CallStanding.STOPPED))

    def is_mine(self, tx: Connection, claim: Claim) -> bool:
        """Whether this process still holds its claim: nobody has settled the call meanwhile, or taken it over."""
        return tx.execute(_IS_MINE, self._mine(claim)).first() is not None

    def record(
        self, tx: Connection, claim: Claim, result: str | None, *, reader: str | None, is_late: bool = False
    ) -> bool:
        """Record the result of a call for the `reader` who waits for it, None for nobody. False if the row was taken.

        `is_late`: nobody knows whether the reader still waits.
        """
        done = {"state": State.APPLIED.value, "result": result, "reader": reader, "read_seq": self._newest(tx)}
        return self._change(tx, claim, {**done, "is_abandoned": int(is_late), "why": None})

    def fail(self, tx: Connection, claim: Claim, state: State, why: str, *, is_over: bool = False) -> bool:
        """Record that a call ended without a result, as `void` or `unknown`.

        `is_over`: nothing that the call has started can still send anything, so that a look proves something at once.
        """
        over = {"expires": self.clock(tx) - 2 * GRACE} if is_over else {}
        return self._change(tx, claim, {"state": state.value, "why": why, **over})

    def _change(self, tx: Connection, claim: Claim, values: Mapping[str, Any]) -> bool:
        return tx.execute(_UPDATE_MINE, {**self._mine(claim), **values}).rowcount == 1

    def _mine(self, claim: Claim) -> dict[str, Any]:
        if os.getpid() != self.owner_row["pid"]:
            raise RuntimeError(
                "A process that an effect's function has forked came back from it: end it by os._exit()."
            )
        return {"of_key": claim.key, "of_claim": claim.token, "of_owner": self.owner}

    def release(self, tx: Connection, client: Any) -> None:
        """Give back what a claim has taken whose commit failed, or may have failed: nothing was called."""
        for key in [key for key, running in self.running.items() if running is client]:
            row = self.row(tx, key)
            if row is not None and (row.owner, row.state) == (self.owner, State.OPEN):
                state = State.UNKNOWN if row.is_unproven else State.VOID
                tx.execute(_UPDATE, {"of_key": key, "state": state.value})
            self.running.pop(key, None)

    def abandon(self, tx: Connection, key: str, reader: str) -> None:
        """Note that the client of a call has given up: it has no answer, and will have none."""
        mine = {"of_key": key, "of_reader": reader}
        tx.execute(_ABANDON_OPEN, mine)
        tx.execute(_ABANDON_READ, mine)

    def answer_doubt(self, tx: Connection, key: str, state: State) -> None:
        """Answer whether a doubtful call is the earlier one (`same`) or another one (`another`)."""
        tx.execute(_UPDATE.where(LEDGER.c.state == "doubtful"), {"of_key": key, "state": state.value})

    def go_on(self, tx: Connection) -> None:
        """Write down which answers were read."""
        if read := dict(self.read):
            tx.execute(_GO_ON, [{"of_key": key, "of_reader": reader} for key, reader in read.items()])
            for key in read:
                self.read.pop(key, None)

    def found(self, tx: Connection, look: UnresolvedCall, result: str | None, *, reader: str | None = None) -> bool:
        """Record that a look found the effect; `reader`: who gets the result of the very call, None for nobody."""
        done = {"state": State.APPLIED.value, "result": result, "reader": reader, "read_seq": self._newest(tx)}
        # A client may not take what a look has found for the answer, and call again: it says when it has gone on.
        done["is_abandoned"] = int(reader is not None and reader != self.owner)
        return self._settle(tx, look, {**done, "why": _why(FOUND, "It was found by reconcile=.")})

    def missed(self, tx: Connection, look: UnresolvedCall, settle: float) -> Miss:
        """What follows if a look did not find the effect; `settle` is in seconds.

        That proves something only if nothing can send any more, and only if it is seen twice, `settle` seconds apart.
        """
        row, now = self.row(tx, look.key), self.clock(tx)
        if row is None or row.claim != look.token or row.state not in (State.OPEN, State.UNKNOWN):
            return Miss(is_void=True)  # somebody else has settled it: begin again
        evidence = self.evidence_of(tx, row.owner, now)
        is_over = evidence.life in (Life.DEAD, Life.ENDED) and not evidence.has_started_processes
        if not is_over and not (row.expires is not None and now > row.expires + GRACE):
            left = max(0.0, (row.expires or now) + GRACE - now)
            return Miss(why=f"it was not found, but may still arrive: that proves something in {left:.0f} s")
        if row.missed_at is None or row.missed_at > now:
            tx.execute(_UPDATE_CLAIMED, {"of_key": look.key, "of_claim": look.token, "missed_at": now})
            return Miss(look_again_in=settle)
        if now - row.missed_at < settle:
            return Miss(look_again_in=settle - (now - row.missed_at))
        why = _why("not_found", "It was not found, twice, by reconcile=.")
        self._settle(tx, look, {"state": State.VOID.value, "why": why})
        return Miss(is_void=True)

    def _settle(self, tx: Connection, look: UnresolvedCall, values: Mapping[str, Any]) -> bool:
        return tx.execute(_SETTLE, {"of_key": look.key, "of_claim": look.token, **values}).rowcount == 1

    def row(self, tx: Connection, key: str) -> Any:
        """The row with this key; None if there is none."""
        return tx.execute(_ROW, {"key": key}).one_or_none()

    def is_open(self, tx: Connection, key: str) -> bool:
        """Whether a call has no result yet."""
        row = self.row(tx, key)
        return row is not None and row.state == State.OPEN

    def lock(self, tx: Connection, session: str) -> None:
        """Let one call of the session at a time be recognised; SQLite has one writer anyway."""
        if tx.dialect.name == "postgresql":  # a row that is not there locks nothing
            insert_new(tx, SESSIONS, {"id": session})
            tx.execute(select(SESSIONS.c.id).where(SESSIONS.c.id == session).with_for_update())

    def _register(self, tx: Connection) -> None:
        if not self.is_registered:
            insert_new(tx, OWNERS, self.owner_row)

    def _newest(self, tx: Connection) -> int:
        return int(tx.execute(_NEWEST).scalar_one())

    def _rows(self, tx: Connection, request: CallRequest, unread: Collection[str]) -> Sequence[Any]:
        identity = request.identity
        return tx.execute(
            _ROWS,
            {
                "session": request.session,
                "function": request.function,
                "readers": [self.owner, *self.askers],
                "restarts": int(self.restarts),
                "caller_key": identity.key,
                "unread": list(unread),
                "call": identity.call,
                "family": identity.family,
                "digest": identity.digest,
            },
        ).all()

    def _earlier(self, tx: Connection, row: Any, *, is_reworded: bool = False, is_unread: bool = False) -> Earlier:
        standing, here = self._standing(tx, row), self.running.get(row.key)
        if is_unread and standing is CallStanding.READ:
            standing = CallStanding.UNREAD
        return Earlier(
            row.key,
            Identity(row.digest, row.caller_key, row.run, row.call, row.family),
            standing,
            is_reworded=is_reworded,
            is_waited_for=here is not None and here.tells_when_it_leaves and not here.is_abandoned(),
            is_abandoned=bool(row.is_abandoned) or (here is not None and here.is_abandoned()),
            order=row.seq or 0,
        )

    def _standing(self, tx: Connection, row: Any) -> CallStanding:
        match row.state:
            case State.OPEN if row.owner == self.owner:
                return CallStanding.RUNNING if row.key in self.running else CallStanding.STOPPED
            case State.OPEN:
                lives = self.evidence_of(tx, row.owner, self.clock(tx)).life in (Life.LIVES, Life.SEEN)
                return CallStanding.RUNNING if lives else CallStanding.STOPPED
            case State.UNKNOWN:
                return CallStanding.STOPPED
            case State.UNDONE:
                return CallStanding.UNDONE
            case State.APPLIED if row.undone_by is not None:  # to be undone, and perhaps undone already
                return CallStanding.UNDONE
            case State.APPLIED if row.reader is None:
                return CallStanding.UNREAD
            case State.APPLIED:
                if self._has_reader(tx, row.reader):
                    return CallStanding.UNREAD if row.is_abandoned else CallStanding.READ
                later = {"session": row.session, "asker": row.reader, "read_seq": row.read_seq}
                has_gone_on = tx.execute(_HAS_GONE_ON, later).first() is not None
                return CallStanding.PASSED if has_gone_on else CallStanding.LAST
            case _:
                return CallStanding.VOID

    def _has_reader(self, tx: Connection, reader: str) -> bool:
        """Whether who got an answer lives, or has ended in order.

        Of a connection only the process knows it to which it belongs, and that only while it is open: nothing says of
        an agent that has left whether it has used its answers.
        """
        owner, _, connection = reader.partition(":")
        if connection:
            return reader in self.askers
        return owner == self.owner or self.evidence_of(tx, owner, self.clock(tx)).life in (Life.LIVES, Life.ENDED)

    def evidence_of(self, tx: Connection, owner: str | None, now: float) -> Evidence:
        """What is known of an owner; a proven death is written down, since its file may go."""
        row = tx.execute(_OWNER, {"owner": owner}).one_or_none()
        if row is None:
            return Evidence(Life.UNKNOWN, has_started_processes=True)
        found = evidence(row, now, is_local=self.is_local)
        if found.life is Life.DEAD and row.died_at is None:
            tx.execute(update(OWNERS).where(OWNERS.c.id == owner).values(died_at=datetime.now(UTC)))
        return found

    def place_of(self, tx: Connection, row: Any) -> str:
        """Where a call runs or ran, in words."""
        owner = tx.execute(_OWNER, {"owner": row.owner}).one_or_none()
        if owner is None:
            return "a process that is not known any more"
        here = "" if owner.host == socket.gethostname() else f" on {owner.host}"
        return f"process {owner.pid}{here}"

    def _clause(self, tx: Connection, row: Any, standing: CallStanding) -> str:
        """What is known of an earlier call, in a clause that follows its name and time."""
        where = self.place_of(tx, row)
        match standing:
            case CallStanding.RUNNING:
                return f"runs in {where}, and its client has given up"
            case CallStanding.STOPPED if row.state == State.UNKNOWN:
                return f"ended without a proof of its outcome ({reason_in(row.why)})"
            case CallStanding.STOPPED:
                return f"was begun by {where}, which has recorded no result and is gone"
            case CallStanding.UNREAD if _was_found(row):
                return "was applied, as reconcile= has found"
            case CallStanding.UNREAD if row.reader is not None:
                return "was applied, and its answer may have come too late"
            case CallStanding.UNREAD:
                return "was applied, and its answer reached nobody"
            case CallStanding.LAST | CallStanding.PASSED if ":" in row.reader:
                return "was applied, and answered on a connection that is not open any more"
            case CallStanding.LAST | CallStanding.PASSED:
                return f"was applied, and answered by {where}, which was killed later"
            case _:
                return f"was applied by {where}"


def _was_found(row: Any) -> bool:
    """Whether the result of an applied call is what a look has found."""
    return bool(row.why) and json.loads(row.why).get("code") == FOUND


def _took_key(request: CallRequest, row: Any) -> bool:
    """Whether a row was made without the key of a call, and took it when such a call got its result.

    That call may have been killed before it was told so.
    """
    key = request.identity.key
    return key is not None and row.caller_key == key and row.key != request.key and not row.key.startswith("doubt-")


def _was_joined(row: Any) -> bool:
    """Whether the newest call that got the result was only taken for the call of the row: it had to be told so."""
    return bool(row.why and json.loads(row.why).get("answer", {}).get("joined"))


def _is_shared(row: Any, identity: Identity) -> bool:
    """Whether a row without a result belongs to another call, too: one that took it over, or has a key or ids."""
    if row.joined:
        return True
    if row.caller_key is not None:
        return bool(row.caller_key != identity.key)
    return row.call is not None and (row.run, row.call) != (identity.run, identity.call)


def _adopted(row: Any, identity: Identity) -> dict[str, Any]:
    """The key and the ids by which a row without any is found from now on: those of the call that is taken for it."""
    has_ids = row.call is not None or identity.family is not None
    ids = {} if has_ids else {"run": identity.run, "call": identity.call}
    return {"caller_key": row.caller_key or identity.key, **ids}


def _named(identity: Identity) -> dict[str, Any]:
    """What a call is found by."""
    return {"caller_key": identity.key, "run": identity.run, "call": identity.call, "family": identity.family}


def _doubts(request: CallRequest, rows: Sequence[Any], state: State | None = None) -> list[Any]:
    """The rows of this call as a doubtful one that are in `state`, the oldest first. Another key is another call."""
    identity = request.identity
    return [
        row
        for row in rows
        if row.about is not None
        and row.digest == identity.digest
        and (None in (row.caller_key, identity.key) or row.caller_key == identity.key)
        and state in (None, row.state)
    ]


def _related(request: CallRequest, rows: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
    """Those rows that may be the call, each with whether the call is a rewording of it; only these are looked into."""
    identity = request.identity
    for row in rows:
        if row.about is not None:
            continue
        is_equal = row.digest == identity.digest
        is_named = identity.key is not None and row.caller_key == identity.key
        is_reworded = not is_equal and request.differs_in_prose(json.loads(row.arguments) if row.arguments else {})
        if is_equal or is_named or is_reworded:
            yield row, is_reworded


def _by_key(rows: Sequence[Any], key: str) -> Any:
    return next((row for row in rows if row.key == key), None)


def _why(code: str, reason: str, **more: JsonValue) -> str:
    """Why a row is in its state, as the JSON of its column."""
    return json.dumps({"code": code, "reason": reason, **more})


def _with_answer(before: str | None, standing: CallStanding, reason: str, *, is_joined: bool) -> str:
    """The column `why` with what is known of the newest call that got the recorded result."""
    answer = {"at": datetime.now(UTC).isoformat(), "standing": standing.value, "joined": is_joined, "reason": reason}
    return json.dumps({**(json.loads(before) if before else {}), "answer": answer})


def reason_in(why: str | None) -> str:
    """The sentence of the column `why`; empty without one."""
    return str(json.loads(why).get("reason", "")).rstrip(".") if why else ""
