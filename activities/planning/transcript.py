"""The transcript: what planners were told and said, turn by turn, kept in the store and referred to by number.

A turn that was recorded is never asked for again: not after a crash, nor after a reset that leads to the same turn.
Where a reset leads to another one, it begins a new branch; the old one stays as it is.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue, TypeAdapter
from sqlalchemy import Column, Index, Integer, Row, Select, String, Table, Text, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.planning.planner import Exchange, Past
from activities.storage.store import OWN, Moment, begun, insert_new, reading, writing
from workflows.inspect import CallCard, ResultCard, TurnCard
from workflows.plan import NewSteps, Proposed, digest
from workflows.situation import Situation

TURNS = Table(
    "replan_turns",
    OWN,
    Column("task", String(200), primary_key=True),
    Column("branch", Integer, primary_key=True),
    Column("turn", Integer, primary_key=True),
    Column("before", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("at", Moment, nullable=False),
    Column("situation", Text, nullable=False),
    Column("proposed", Text, nullable=False),
    Column("exchange", Text),
    Column("upto", Integer, nullable=False, default=0),
    Column("namespace", String(200)),
    Column("workflow", String(1000)),
    Index("replan_turns_owner", "namespace", "workflow", "at"),
)
"""One row for each turn: `task` is the task's first run, `before` the branch of the turn before it.

`namespace` is the id of the task's namespace and `workflow` its workflow id; null where nobody said.
"""

EXCHANGE = TypeAdapter(Exchange)
CLOCKS: Mapping[str, set[str]] = {
    "records": {"started", "ended", "attempts", "used", "waits", "waited", "replayed", "claim"},
    "faults": {"at", "attempt", "waited", "retry_after", "model_use"},
    "observations": {"at"},
}
"""What tells when something happened, how often it was tried, and whether the ledger knew it, but not what happened."""


class Transcript:
    """The conversations of all tasks of a store."""

    def __init__(self, engine: AsyncEngine, namespace: str | None = None) -> None:
        """Keep them in this store, as those of the namespace with this id."""
        self._engine = engine
        self._namespace = namespace
        self._is_mine = TURNS.c.namespace == (namespace or "")

    async def of(self, task: str, continues: str | None = None) -> "Turns":
        """All turns of the task whose first run is `task`, and of those whose conversation it carries on.

        The first of these is `continues` where the task has no turn yet that says so.

        Raises:
            DatabaseUnavailable: the store cannot be reached.
        """
        async with begun(reading(self._engine)) as tx:
            return await _load(tx, task, continues)

    async def write(self, past: Past, before: int, workflow: str | None = None) -> Past:
        """Record a turn that followed one of the branch `before`, and return what is recorded.

        That is another one where somebody else was quicker. `workflow` is the task's workflow id.

        Raises:
            DatabaseUnavailable: the store cannot be reached; nothing is recorded.
        """
        row = {
            "task": past.task,
            "branch": past.branch,
            "turn": past.turn,
            "before": before,
            "digest": identity(past.situation),
            "at": datetime.now(UTC),
            "situation": past.situation.model_dump_json(exclude_defaults=True),
            "proposed": past.proposed.model_dump_json(),
            "exchange": EXCHANGE.dump_json(past.exchange).decode() if past.exchange else None,
            "upto": past.upto,
            "namespace": self._namespace,
            "workflow": workflow,
        }
        async with begun(writing(self._engine)) as tx:
            if await insert_new(tx, TURNS, row):
                return past
            mine = (TURNS.c.task == past.task, TURNS.c.branch == past.branch, TURNS.c.turn == past.turn)
            return _past((await tx.execute(select(TURNS).where(*mine))).one())

    async def cards(self, run: str) -> tuple[TurnCard, ...]:
        """The newest conversation of the task whose first run is `run`, as people read it."""
        async with begun(reading(self._engine)) as tx:
            turns = await _load(tx, run)
            moments = {_place(row): row.at for row in await _rows(tx, turns.tasks)}
        return tuple(_card(past, moments[past.task, past.branch, past.turn]) for past in turns.newest())

    async def tasks(self, before: datetime, after: str, limit: int) -> list[str]:
        """The tasks of this namespace that have turns from before a moment, in the order of their workflow ids."""
        mine = (self._is_mine, TURNS.c.at < before, TURNS.c.workflow > after)
        wanted = select(TURNS.c.workflow).distinct().where(*mine).order_by(TURNS.c.workflow).limit(limit)
        async with begun(reading(self._engine)) as tx:
            return list(await tx.scalars(wanted))

    async def prune(self, tasks: Collection[str], before: datetime, carried: Collection[str] = ()) -> int:
        """Delete the conversations of these tasks that ended before a moment, and return how many turns they had.

        The caller knows that none of the tasks is open. A conversation that stays carries on others, which stay, too;
        so do those of the tasks whose first runs are `carried`.
        """
        old = func.max(TURNS.c.at) < before
        mine = (self._is_mine, TURNS.c.workflow.in_(tasks))
        async with begun(writing(self._engine)) as tx:
            ended = select(TURNS.c.task).group_by(TURNS.c.task).having(old)
            asked = select(TURNS.c.task).where(*mine, TURNS.c.task.in_(ended), TURNS.c.task.not_in(carried))
            going = set(await tx.scalars(asked.distinct()))
            if not going:
                return 0
            new = {*carried, *await _carried(tx, select(TURNS.c.task).where(TURNS.c.task.not_in(going)))}
            kept = set(new)
            while new := await _carried(tx, list(new)) - kept:
                kept |= new
            return (await tx.execute(delete(TURNS).where(TURNS.c.task.in_(going - kept)))).rowcount

    async def ownerless(self, before: datetime) -> int:
        """How many turns of a time before this moment say not whose they are."""
        old = (TURNS.c.workflow.is_(None) | TURNS.c.namespace.is_(None), TURNS.c.at < before)
        async with begun(reading(self._engine)) as tx:
            return await tx.scalar(select(func.count()).select_from(TURNS).where(*old)) or 0


class Turns:
    """The turns of one task on all branches, and of the tasks whose conversation it carries on."""

    def __init__(self, task: str, rows: Iterable[tuple[Past, int, str]], earlier: Sequence[Past]) -> None:
        """Each row is a turn, the branch of the turn before it, and its digest; the newest is the last one."""
        self.task = task
        self._rows = tuple(rows)
        self._earlier = tuple(earlier)

    @property
    def tasks(self) -> set[str]:
        """The first runs of all tasks that are part of it."""
        return {self.task, *(past.task for past in self._earlier)}

    def recorded(self, situation: Situation) -> Past | None:
        """The turn that answered this situation; None where it is to be asked for."""
        wanted = identity(situation)
        return next(
            (
                past
                for past, before, digest in self._rows
                if (past.turn, before, digest) == (situation.turn, situation.branch, wanted)
            ),
            None,
        )

    def branch(self, situation: Situation) -> int:
        """The branch that a new answer belongs to: a new one where the turn was answered to something else."""
        taken = {(past.branch, past.turn) for past, _, _ in self._rows}
        if (situation.branch, situation.turn) not in taken:
            return situation.branch
        return 1 + max(past.branch for past, _, _ in self._rows)

    def before(self, turn: int, branch: int) -> list[Past]:
        """The turns that led to `turn` after one of `branch`, the oldest first."""
        found = list[Past]()
        for past, before, _ in sorted(self._rows, key=lambda row: row[0].turn, reverse=True):
            if past.turn < turn and past.branch == branch:
                found.append(past)
                branch = before
        return [*self._earlier, *reversed(found)]

    def newest(self) -> list[Past]:
        """The turns that led to the one that was recorded last, with it."""
        if not self._rows:
            return [*self._earlier]
        last = self._rows[-1][0]
        return self.before(last.turn + 1, last.branch)


def identity(situation: Situation) -> str:
    """What a situation tells, as a digest: the same for the same news, whenever it is told and whatever is left."""
    volatile = {"now", "calls_left", "max_output", "max_lost_replies", "branch"}
    told: dict[str, Any] = situation.model_dump(mode="json", exclude_defaults=True, exclude=volatile)
    for name, clocks in CLOCKS.items():
        if name in told:
            told[name] = [{key: value for key, value in one.items() if key not in clocks} for one in told[name]]
    plain: JsonValue = told
    return digest(plain)


async def _load(
    tx: AsyncConnection,
    task: str,
    continues: str | None = None,
    seen: Set[str] = frozenset(),
    until: datetime | None = None,
) -> Turns:
    """The turns that a task had at the moment `until`: one that is carried on may be reset later."""
    rows = [row for row in await _rows(tx, [task]) if until is None or row.at <= until]
    turns = [(_past(row), row.before, row.digest) for row in rows]
    carried = next((past.situation.continues for past, _, _ in turns if past.situation.continues), continues)
    if carried is None or carried in seen:
        return Turns(task, turns, ())
    began = rows[0].at if rows else until
    return Turns(task, turns, (await _load(tx, carried, seen={*seen, task}, until=began)).newest())


async def _carried(tx: AsyncConnection, tasks: list[str] | Select[tuple[str]]) -> set[str]:
    """The tasks whose conversations these carry on."""
    told = select(TURNS.c.situation).where(TURNS.c.task.in_(tasks), TURNS.c.situation.contains('"continues"'))
    found = (Situation.model_validate_json(text).continues for text in await tx.scalars(told))
    return {task for task in found if task}


async def _rows(tx: AsyncConnection, tasks: Iterable[str]) -> Sequence[Row[Any]]:
    wanted = select(TURNS).where(TURNS.c.task.in_(list(tasks))).order_by(TURNS.c.at, TURNS.c.turn)
    return (await tx.execute(wanted)).all()


def _place(row: Row[Any]) -> tuple[str, int, int]:
    return row.task, row.branch, row.turn


def _past(row: Row[Any]) -> Past:
    return Past(
        task=row.task,
        branch=row.branch,
        turn=row.turn,
        situation=Situation.model_validate_json(row.situation),
        proposed=Proposed.model_validate_json(row.proposed),
        exchange=EXCHANGE.validate_json(row.exchange) if row.exchange else None,
        upto=row.upto,
    )


def _card(past: Past, at: datetime) -> TurnCard:
    plain = {"turn": past.turn, "branch": past.branch, "task": past.task, "at": at, "upto": past.upto}
    plain |= {"planner": past.proposed.planner, "rejected": past.proposed.rejected, "tokens": past.proposed.tokens}
    if past.exchange is None:
        steps = past.proposed.proposal.steps if isinstance(past.proposed.proposal, NewSteps) else ()
        planned = [CallCard(id=step.id, name=step.kind, args=step.args) for step in steps]
        return TurnCard.model_validate({**plain, "calls": planned})
    told, said = past.exchange.told, past.exchange.said
    results = [ResultCard(call_id=one.call_id, text=one.text, is_error=one.is_error) for one in told.results]
    calls = [CallCard(id=call.id, name=call.name, args=call.args) for call in said.calls]
    words = {"told": told.text, "said": said.text, "stop": past.exchange.stop.value}
    return TurnCard.model_validate({**plain, **words, "results": results, "calls": calls})
