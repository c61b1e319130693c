"""The transcript: what planners were told and said, turn by turn, in the store.

The planner is not asked again for a recorded turn, neither after a crash nor after a reset that leads to the same
situation. If a reset leads to another situation, a new branch begins, and the old branch does not change.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue, TypeAdapter
from sqlalchemy import (
    Column,
    Connection,
    Index,
    Integer,
    Row,
    Select,
    String,
    Table,
    Text,
    delete,
    func,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.planning.planner import Exchange, RecordedTurn
from activities.storage.store import REPLAN_TABLES, Moment, SealedText, insert_new, reading, transaction, write
from workflows.inquiries import CallCard, ResultCard, TurnCard
from workflows.json_values import digest
from workflows.planning.situation import Situation
from workflows.plans.proposal import NewSteps, Proposed
from workflows.plans.references import SEALED

TURNS = Table(
    "replan_turns",
    REPLAN_TABLES,
    Column("task", String(200), primary_key=True),
    Column("branch", Integer, primary_key=True),
    Column("turn", Integer, primary_key=True),
    Column("before", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("at", Moment, nullable=False),
    Column("situation", SealedText, nullable=False),
    Column("proposed", SealedText, nullable=False),
    Column("exchange", SealedText),
    Column("upto", Integer, nullable=False, default=0),
    Column("namespace", String(200)),
    Column("workflow", String(1000)),
    Index("replan_turns_owner", "namespace", "workflow", "at"),
)
"""One row per turn. `task` is the run id of the task's first run; `before` is the branch of the turn before this one.

`namespace` is the id of the task's namespace, and `workflow` its workflow id; null if unknown.
"""

EXCHANGE = TypeAdapter(Exchange)
VOLATILE_FIELDS: Mapping[str, set[str]] = {
    "records": {
        "started",
        "ended",
        "attempts",
        "used",
        "waits",
        "waited",
        "replayed",
        "fencing_token",
        "is_planned_ahead",
    },
    "faults": {"at", "attempt", "waited", "retry_after", "model_use", "lost_use"},
    "observations": {"at"},
}
"""Fields that a situation's digest leaves out, because they may differ if the same steps run again after a reset."""


class Transcript:
    """The conversations of all tasks of a store; each method raises DatabaseUnavailable if it cannot be reached."""

    def __init__(self, engine: AsyncEngine, namespace: str | None = None) -> None:
        """`engine` connects to the store; `namespace` is the id of the tasks' namespace, None if unknown."""
        self._engine = engine
        self._namespace = namespace
        self._is_mine = TURNS.c.namespace == (namespace or "")

    async def load(self, task: str, continues: str | None = None) -> "TaskTurns":
        """Load all turns of the task whose first run is `task`, and of the tasks whose conversation it continues.

        `continues` is the first run of the task that `task` continues. It is needed only until the first turn of `task`
        is recorded, because this turn names the continued task.
        """
        async with transaction(reading(self._engine)) as tx:
            return await _load(tx, task, continues)

    async def write(self, turn: RecordedTurn, before: int, workflow: str | None = None) -> RecordedTurn:
        """Record `turn` and return it. If another worker recorded this turn first, return that worker's turn instead.

        `before` is the branch of the turn that comes before `turn`. `workflow` is the task's workflow id; None if
        unknown.
        """
        row = {
            "task": turn.task,
            "branch": turn.branch,
            "turn": turn.turn,
            "before": before,
            "digest": situation_digest(turn.situation),
            "at": datetime.now(UTC),
            "situation": turn.situation.model_dump_json(exclude_defaults=True),
            "proposed": turn.proposed.model_dump_json(),
            "exchange": EXCHANGE.dump_json(turn.exchange).decode() if turn.exchange else None,
            "upto": turn.upto,
            "namespace": self._namespace,
            "workflow": workflow,
        }

        def record(tx: Connection) -> RecordedTurn:
            # Two workers may have asked at the same time: the first row wins, the other reply is discarded.
            if insert_new(tx, TURNS, row):
                return turn
            key = (TURNS.c.task == turn.task, TURNS.c.branch == turn.branch, TURNS.c.turn == turn.turn)
            return _recorded_turn(tx.execute(select(TURNS).where(*key)).one())

        return await write(self._engine, record)

    async def cards(self, run: str) -> tuple[TurnCard, ...]:
        """The turns of the task whose first run is `run`, as `TaskTurns.newest` returns them, in the console's form."""
        async with transaction(reading(self._engine)) as tx:
            turns = await _load(tx, run)
            rows = await _rows(tx, {turns.task, *(turn.task for turn in turns.continued)})
        times = {(row.task, row.branch, row.turn): row.at for row in rows}
        return tuple(_card(turn, times[turn.task, turn.branch, turn.turn]) for turn in turns.newest())

    async def tasks(self, before: datetime, after: str, limit: int) -> list[str]:
        """List workflow ids of this namespace's tasks that have turns older than `before`.

        The ids are sorted and begin after the id `after`; there are at most `limit`.
        """
        conditions = (self._is_mine, TURNS.c.at < before, TURNS.c.workflow > after)
        query = select(TURNS.c.workflow).distinct().where(*conditions).order_by(TURNS.c.workflow).limit(limit)
        async with transaction(reading(self._engine)) as tx:
            return list(await tx.scalars(query))

    async def prune(self, tasks: Collection[str], before: datetime, carried: Collection[str] = ()) -> int:
        """Delete conversations whose last turn is older than `before`; return the number of deleted turns.

        `tasks` are workflow ids; the caller must make sure that all these tasks are closed. A conversation is kept if
        another kept conversation continues it, or if the first run of its task is in `carried`.
        """
        old = func.max(TURNS.c.at) < before
        conditions = (self._is_mine, TURNS.c.workflow.in_(tasks))

        def delete_old(tx: Connection) -> int:
            ended = select(TURNS.c.task).group_by(TURNS.c.task).having(old)
            query = select(TURNS.c.task).where(*conditions, TURNS.c.task.in_(ended), TURNS.c.task.not_in(carried))
            candidates = set(tx.scalars(query.distinct()))
            if not candidates:
                return 0
            new = {*carried, *_continued(tx, select(TURNS.c.task).where(TURNS.c.task.not_in(candidates)))}
            # A kept conversation also keeps the conversation that it continues, and so on.
            kept = set(new)
            while new := _continued(tx, list(new)) - kept:
                kept |= new
            return tx.execute(delete(TURNS).where(TURNS.c.task.in_(candidates - kept))).rowcount

        return await write(self._engine, delete_old)


@dataclass(frozen=True)
class TaskTurns:
    """The turns of one task on all branches, and the turns of the tasks whose conversation it continues."""

    task: str
    """The run id of the first run of the task."""
    rows: Sequence[tuple[RecordedTurn, int, str]]
    """Each row: a turn, the branch of the turn before it, and the digest of its situation; the newest row is last."""
    continued: Sequence[RecordedTurn]

    def recorded(self, situation: Situation) -> RecordedTurn | None:
        """The recorded turn that answered this situation; None if no turn did."""
        key = (situation.turn, situation.branch, situation_digest(situation))
        return next((turn for turn, before, digest in self.rows if (turn.turn, before, digest) == key), None)

    def branch_for(self, situation: Situation) -> int:
        """The branch for a new reply: `situation.branch`; a new branch if that branch has this turn number already."""
        taken = {(turn.branch, turn.turn) for turn, _, _ in self.rows}
        if (situation.branch, situation.turn) not in taken:
            return situation.branch
        return 1 + max(turn.branch for turn, _, _ in self.rows)

    def before(self, number: int, branch: int) -> list[RecordedTurn]:
        """The turns that led to the turn `number`, the oldest first; the newest of these turns is on `branch`."""
        # Backwards, because each row names the branch of the turn before it.
        found = list[RecordedTurn]()
        for turn, branch_before, _ in sorted(self.rows, key=lambda row: row[0].turn, reverse=True):
            if turn.turn < number and turn.branch == branch:
                found.append(turn)
                branch = branch_before
        return [*self.continued, *reversed(found)]

    def newest(self) -> list[RecordedTurn]:
        """The turns that led to the newest recorded turn, the oldest first, and then the newest turn itself."""
        if not self.rows:
            return [*self.continued]
        last = self.rows[-1][0]
        return self.before(last.turn + 1, last.branch)


def situation_digest(situation: Situation) -> str:
    """The digest of what a planner is told, without the fields that may differ when the same turn is repeated."""
    volatile = {"now", "catalogue", "calls_left", "max_output", "max_lost_replies", "max_shown", "branch"}
    shown: dict[str, Any] = situation.model_dump(mode="json", exclude_defaults=True, exclude=volatile)
    for name, fields in VOLATILE_FIELDS.items():
        if name in shown:
            shown[name] = [{key: value for key, value in entry.items() if key not in fields} for entry in shown[name]]
    plain: JsonValue = shown
    return digest(plain)


async def _load(
    tx: AsyncConnection,
    task: str,
    continues: str | None = None,
    visited: Set[str] = frozenset(),
    until: datetime | None = None,
) -> TaskTurns:
    # `until`: the continued task may be reset later, and its new turns must not change this conversation.
    rows = [row for row in await _rows(tx, [task]) if until is None or row.at <= until]
    turns = [(_recorded_turn(row), row.before, row.digest) for row in rows]
    continued = next((turn.situation.continues for turn, _, _ in turns if turn.situation.continues), continues)
    # `visited` ends the recursion if tasks continue each other in a circle.
    if continued is None or continued in visited:
        return TaskTurns(task, turns, ())
    began = rows[0].at if rows else until
    return TaskTurns(task, turns, (await _load(tx, continued, visited={*visited, task}, until=began)).newest())


def _continued(tx: Connection, tasks: list[str] | Select[tuple[str]]) -> set[str]:
    """The first runs of the tasks whose conversations `tasks` continue."""
    written = type_coerce(TURNS.c.situation, Text)
    may_continue = or_(written.contains('"continues"'), written.startswith(SEALED, autoescape=True))
    query = select(TURNS.c.situation).where(TURNS.c.task.in_(tasks), may_continue)
    found = (Situation.model_validate_json(text).continues for text in tx.scalars(query))
    return {task for task in found if task}


async def _rows(tx: AsyncConnection, tasks: Iterable[str]) -> Sequence[Row[Any]]:
    query = select(TURNS).where(TURNS.c.task.in_(list(tasks))).order_by(TURNS.c.at, TURNS.c.turn)
    return (await tx.execute(query)).all()


def _recorded_turn(row: Row[Any]) -> RecordedTurn:
    return RecordedTurn(
        task=row.task,
        branch=row.branch,
        turn=row.turn,
        situation=Situation.model_validate_json(row.situation),
        proposed=Proposed.model_validate_json(row.proposed),
        exchange=EXCHANGE.validate_json(row.exchange) if row.exchange else None,
        upto=row.upto,
    )


def _card(turn: RecordedTurn, at: datetime) -> TurnCard:
    card = TurnCard(
        turn=turn.turn,
        branch=turn.branch,
        task=turn.task,
        at=at,
        upto=turn.upto,
        planner=turn.proposed.planner,
        rejected=tuple(mistake.text for mistake in turn.proposed.rejected),
        tokens=turn.proposed.tokens,
    )
    if turn.exchange is None:
        steps = turn.proposed.proposal.steps if isinstance(turn.proposed.proposal, NewSteps) else ()
        planned = tuple(CallCard(id=step.id, name=step.kind, args=step.args) for step in steps)
        return card.model_copy(update={"calls": planned})
    user_turn, reply = turn.exchange.told, turn.exchange.said
    is_rejected = bool(turn.situation.rejected)
    results = tuple(
        ResultCard(call_id=result.call_id, text=result.text, is_error=result.is_error, is_rejected=is_rejected)
        for result in user_turn.results
    )
    calls = tuple(CallCard(id=call.id, name=call.name, args=call.args) for call in reply.calls)
    texts = {"told": user_turn.text, "said": reply.text, "aside": reply.aside, "stop": turn.exchange.stop.value}
    return card.model_copy(update={**texts, "results": results, "calls": calls})
