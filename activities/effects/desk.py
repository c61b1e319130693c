"""What a person can see of a store of effects, and settle, without the functions of the program.

Each change is one update of a row under the condition that the row is still as it was read: the process that owns the
call reads its claim once more right before it calls, so one of the two wins.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from pydantic import BaseModel, JsonValue
from sqlalchemy import Connection, select, update

from activities.effects.calls import Calls, State
from activities.effects.database import Database
from activities.effects.errors import EffectRefused
from activities.effects.ledger import LEDGER
from activities.effects.owner import OWNERS, Life, evidence
from activities.effects.remedies import to_see
from activities.storage.store import IDENTITY
from workflows.json_values import depth
from workflows.text import nearest

Settlement = Literal["applied", "not-applied", "same", "another"]
"""What a person says of a call: whether it was applied; of a doubtful one, whether it is the earlier one again."""
MAX_RESULT, MAX_DEPTH = 1024 * 1024, 200
"""The most bytes, and levels, of a result."""
MAX_NAMED = 5
MAX_COMPARED = 1000
"""The most keys, the newest, of which one may be meant by a mistyped one."""
_LIVES = (Life.LIVES, Life.SEEN)


class Process(BaseModel, frozen=True):
    """The process that has claimed a call."""

    pid: int
    host: str
    life: Life
    """`lives`, `seen` (on another machine, lately), `ended` (in order), `dead`, or `unknown`."""


class CallRecord(BaseModel, frozen=True):
    """A call, as its row tells of it."""

    key: str
    session: str
    function: str
    effect: str
    state: State
    """`open` if it runs, or if nobody can see whether its process lives; `unknown` if its process is gone."""
    at: datetime
    """When it was claimed."""
    arguments: dict[str, JsonValue] | None
    result: JsonValue
    has_result: bool
    """Whether a result is recorded; it may be null."""
    attempts: int
    joined: int
    """How many later calls were taken for it."""
    about: str | None
    """The key of the earlier call that a doubtful one may be."""
    process: Process | None
    why: Mapping[str, JsonValue] | None
    """Why it is in its state: `code`, `reason`, and more by code; `answer` tells of the newest call that got its
    result."""
    caller_key: str | None
    run: str | None
    call: str | None
    """The ids that a framework gave to the agent's run and to the call."""
    undone_at: datetime | None
    undone_by: str | None
    """The key of the call that undoes it, as soon as that begins."""

    @property
    def is_unsettled(self) -> bool:
        """Whether a person can settle it."""
        return self.state in (State.UNKNOWN, State.DOUBTFUL) or (
            self.state is State.OPEN and self.process is not None and self.process.life is Life.UNKNOWN
        )


@dataclass(frozen=True)
class Unsaid:
    """No result was given; a result may be None."""


UNSAID = Unsaid()


class Desk:
    """A store of effects, for a person or a program that asks about its calls."""

    def __init__(self, database: Database, own: Callable[[], Calls | None] = lambda: None) -> None:
        """`own` gives the calls of this process, if it makes some."""
        self.database, self._own = database, own

    def calls(
        self, session: str | None = None, *, states: Collection[State] = tuple(State), limit: int | None = None
    ) -> list[CallRecord]:
        """The calls of a session, or of all, the oldest first; with `limit` the newest. Raises StoreUnavailable.

        `states` are those of their rows: of a process that is gone, a row is `open`.
        """
        wanted = LEDGER.c.session.is_not(None) if session is None else LEDGER.c.session == session
        of_states = LEDGER.c.state.in_([state.value for state in states])
        query = select(LEDGER).where(wanted, of_states).order_by(LEDGER.c.seq.desc(), LEDGER.c.at.desc()).limit(limit)
        return self.database.read(lambda tx: self.records(tx, tx.execute(query).all()[::-1]))

    def call(self, key: str) -> CallRecord:
        """The call with this key; raises EffectRefused (`unknown_key`), StoreUnavailable."""
        return self.database.read(lambda tx: self.records(tx, [self.row(tx, key)])[0])

    def find(self, beginning: str) -> CallRecord:
        """The call whose key is, or alone begins with, this text; raises EffectRefused, StoreUnavailable."""

        def work(tx: Connection) -> CallRecord:
            begins = LEDGER.c.key.startswith(beginning, autoescape=True)
            query = select(LEDGER).where(LEDGER.c.session.is_not(None), begins).order_by(LEDGER.c.key)
            found = [row for row in tx.execute(query) if row.key.startswith(beginning)]  # SQLite knows no capitals here
            exact = [row for row in found if row.key == beginning]
            if beginning and len(found) > 1 and not exact:
                some = ", ".join(row.key for row in found[:MAX_NAMED]) + (", ..." if len(found) > MAX_NAMED else "")
                raise EffectRefused(
                    "ambiguous_key", beginning, f"{len(found)} keys begin with {beginning!r} ({some})", "write more"
                )
            row = (exact or found)[0] if beginning and found else self.row(tx, beginning)
            return self.records(tx, [row])[0]

        return self.database.read(work)

    def settle(self, key: str, answer: Settlement, *, result: Any = UNSAID, by: str = "") -> CallRecord:
        """Say what became of a call of which nobody knows it, or whether a doubtful call is the earlier one again.

        Args:
            key: The key of the row.
            answer: `applied` or `not-applied`; of a doubtful call `same` or `another`.
            result: What an applied call returned, as JSON; equal calls get it. Without it, they raise OutcomeUnknown.
            by: Who says so.

        Raises:
            EffectRefused: it is settled already, runs, or has another question; or the result is no JSON.
            StoreUnavailable: the store cannot be reached.
        """
        if answer not in get_args(Settlement):
            raise EffectRefused(
                "other_answer", key, f"{answer!r} is no answer", f"write {_listed(get_args(Settlement))}"
            )
        text = None if isinstance(result, Unsaid) else _as_json(key, result)
        if text is not None and answer != "applied":
            raise EffectRefused("bad_result", key, f"A call that is settled as {answer} has no result", "leave it out")

        def work(tx: Connection) -> CallRecord:
            self.viewer.lock(tx, self.row(tx, key).session)  # no call of the session is recognised meanwhile
            row = self.row(tx, key)
            values = self._settled(tx, row, answer, text)
            why = {"code": "settled", "reason": f"{by or 'Somebody'} settled it as {answer}."}
            why |= {"by": by, "at": datetime.now(UTC).isoformat(), "was": row.state}
            as_read = (LEDGER.c.key == key, LEDGER.c.claim == row.claim, LEDGER.c.state == row.state)
            changed = update(LEDGER).where(*as_read).values({**values, "why": json.dumps(why)})
            if tx.execute(changed).rowcount != 1:
                raise EffectRefused("changed", key, f"The call {key} has changed meanwhile", self._look(key))
            return self.records(tx, [self.row(tx, key)])[0]

        return self.database.write(work)

    def _settled(self, tx: Connection, row: Any, answer: Settlement, result: str | None) -> dict[str, Any]:
        """The new values of a row that may be settled so; raises EffectRefused."""
        key, is_doubt = row.key, answer in ("same", "another")
        if row.state == State.APPLIED and row.result is None and answer == "applied" and result is not None:
            return {"result": result, "reader": None}
        if row.state == State.DOUBTFUL and not is_doubt:
            reason = f"The call {key} was not made: it is doubtful whether it is {row.about} again"
            raise EffectRefused("other_answer", key, reason, "settle it as same or another")
        if row.state not in (State.OPEN, State.UNKNOWN, State.DOUBTFUL):
            state = self.records(tx, [row])[0]
            raise EffectRefused(
                "already_settled", key, f"The call {key} {clause_about(state)}", "there is nothing to settle"
            )
        if row.state != State.DOUBTFUL and is_doubt:
            reason = f"The call {key} is not doubtful: nobody knows whether it was applied"
            raise EffectRefused("other_answer", key, reason, "settle it as applied or not-applied")
        if row.state == State.OPEN and (process := self._process(tx, row)) is not None and process.life in _LIVES:
            reason = f"The call {key} still runs in {place(process)}"
            raise EffectRefused("still_running", key, reason, "wait for it, or end that process")
        if answer == "same":
            self._check_earlier(tx, row)
        if is_doubt:
            return {"state": answer}
        if answer == "applied":
            return {"state": State.APPLIED.value, "result": result, "reader": None, "read_seq": row.seq}
        return {"state": State.VOID.value, "result": None, "is_unproven": 0}

    def _check_earlier(self, tx: Connection, row: Any) -> None:
        """Raise EffectRefused if the earlier call of a doubtful one has no result that the doubtful one could get."""
        about = self.viewer.row(tx, row.about)
        if about is None:
            reason = f"The earlier call {row.about} is not in the store any more"
            raise EffectRefused("earlier_first", row.key, reason, "settle it as another if it is to be made")
        earlier = self.records(tx, [about])[0]
        if earlier.state is State.APPLIED and earlier.undone_by is None:
            if earlier.has_result:
                return
            remedy = (
                f"settle that first, with {to_see(self.database.url, 'settle', earlier.key, 'applied', result='null')}"
            )
            reason = f"The result of the earlier call {earlier.key} is not known"
        elif earlier.state in (State.OPEN, State.UNKNOWN):
            remedy = (
                f"settle that first, with {to_see(self.database.url, 'settle', earlier.key, 'applied')} or not-applied"
            )
            reason = f"The earlier call {earlier.key} {clause_about(earlier)}"
        else:
            reason = f"The earlier call {earlier.key} {clause_about(earlier)}, so it has no result"
            remedy = "settle it as another if it is to be made"
        raise EffectRefused("earlier_first", row.key, reason, remedy)

    def store_id(self) -> str:
        """The id of the store, which it keeps when it is moved or restored."""
        return self.database.read(lambda tx: str(tx.execute(select(IDENTITY.c.id)).scalar_one()))

    def row(self, tx: Connection, key: str) -> Any:
        """The row with this key; raises EffectRefused if there is none."""
        found = self.viewer.row(tx, key)
        if found is not None and found.session is not None:
            return found
        keys = select(LEDGER.c.key).where(LEDGER.c.session.is_not(None)).order_by(LEDGER.c.seq.desc())
        known = tx.execute(keys.limit(MAX_COMPARED)).scalars().all()
        near = nearest(key, known)
        raise EffectRefused("unknown_key", key, f"There is no call with the key {key!r}", near[2:] or self._look())

    def records(self, tx: Connection, rows: Sequence[Any]) -> list[CallRecord]:
        """What rows tell, with what can be seen of their processes."""
        processes = dict[str, Process | None]()
        found = list[CallRecord]()
        for row in rows:
            if row.owner not in processes or row.state == State.OPEN:
                processes[row.owner] = self._process(tx, row)
            found.append(_record(row, processes[row.owner]))
        return found

    def _process(self, tx: Connection, row: Any) -> Process | None:
        """The process that claimed a call; None if its owner is not known any more."""
        owner = tx.execute(select(OWNERS).where(OWNERS.c.id == row.owner)).one_or_none()
        if owner is None:
            return None
        own = self._own()
        if own is not None and own.owner == row.owner and row.state == State.OPEN:
            return Process(pid=owner.pid, host=owner.host, life=Life.LIVES if row.key in own.running else Life.DEAD)
        life = evidence(owner, self.database.now(tx), is_local=self.database.is_local).life
        return Process(pid=owner.pid, host=owner.host, life=life)

    @property
    def viewer(self) -> Calls:
        """The rows as a process sees them that starts now."""
        return Calls("", {}, self.database.now, self.database.is_local, is_registered=True)

    def _look(self, *args: str) -> str:
        return f"{to_see(self.database.url, 'effects', *args)} shows {'it' if args else 'them all'}"


def _record(row: Any, process: Process | None) -> CallRecord:
    state = State(row.state)
    if state is State.OPEN and (process is None or process.life in (Life.DEAD, Life.ENDED)):
        state = State.UNKNOWN
    return CallRecord(
        key=row.key,
        session=row.session,
        function=row.kind,
        effect=row.effect or "",
        state=state,
        at=row.at,
        arguments=json.loads(row.arguments) if row.arguments else None,
        result=json.loads(row.result) if row.result is not None else None,
        has_result=row.result is not None,
        attempts=row.claim,
        joined=row.joined or 0,
        about=row.about,
        process=process,
        why=json.loads(row.why) if row.why else None,
        caller_key=row.caller_key,
        run=row.run,
        call=row.call,
        undone_at=row.undone_at,
        undone_by=row.undone_by,
    )


def place(process: Process | None) -> str:
    """Where a call runs or ran, in words."""
    return f"process {process.pid} on {process.host}" if process else "a process that is not known any more"


def clause_about(call: CallRecord) -> str:
    """What is known of a call, as a clause that follows its name."""
    where = place(call.process)
    match call.state:
        case State.OPEN if call.process is not None and call.process.life in _LIVES:
            return f"runs in {where}"
        case State.OPEN:
            return f"was begun by {where}, of which nobody can see whether it lives"
        case State.UNKNOWN if call.why is None:
            return f"was begun by {where}, which is gone and has recorded no result"
        case State.UNKNOWN:
            return "ended without a proof of its outcome"
        case State.APPLIED if call.undone_by is not None:
            return f"was applied, and its undo ({call.undone_by}) has begun"
        case State.APPLIED:
            return "was applied"
        case State.VOID:
            return "was not applied"
        case State.DOUBTFUL:
            return f"is doubtful: it may be {call.about} again, and was not made"
        case State.SAME | State.ANOTHER:
            return f"is settled as {call.state.value}"
        case State.UNDONE:
            return "was applied and undone"


def _as_json(key: str, result: Any) -> str:
    try:
        text = json.dumps(result, allow_nan=False)
        text.encode()
        json.dumps(result, ensure_ascii=False).encode()  # a lone surrogate cannot be stored
        if depth(result) > MAX_DEPTH or len(text) > MAX_RESULT:
            raise ValueError
    except (TypeError, ValueError, RecursionError):
        reason = f"The result, a {type(result).__name__}, is no JSON that can be stored"
        raise EffectRefused("bad_result", key, reason, f"give plain data of at most {MAX_RESULT} bytes") from None
    return text


def _listed(items: Sequence[str]) -> str:
    return f"{', '.join(items[:-1])} or {items[-1]}"
