"""Asks a planner once for each turn of its conversation; the reply for a repeated turn comes from the transcript."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from temporalio import activity

from activities.boundary.attempt import FaultRaised
from activities.boundary.failpoints import Failpoint
from activities.planning.planner import ConversationalPlanner, PlannerReply, RecordedTurn
from activities.planning.transcript import TaskTurns, Transcript, situation_digest
from activities.toolbox.declare.kind import Kind
from workflows.faults.fault import Code, Fault
from workflows.planning.situation import Situation
from workflows.plans.proposal import Proposed

CONVERSATION_LOST = (
    "The conversation of this task is not in this worker's store: start a worker on the store that has it, or start"
    " the task anew."
)


@dataclass(frozen=True)
class TurnRecorder:
    """Takes the reply for a turn from the transcript; if it is not there, asks the planner and records the reply."""

    transcript: Transcript

    async def propose(
        self,
        planner: ConversationalPlanner,
        situation: Situation,
        kinds: Mapping[str, Kind],
        task: str,
        *,
        check: Callable[[Proposed, Sequence[RecordedTurn]], Awaitable[Proposed]],
        reach: Callable[[Failpoint], None],
        written: Proposed | None = None,
    ) -> tuple[Proposed, bool]:
        """Return the proposal (or summary) that answers `situation`, and whether another attempt recorded it.

        `task` is the run id of the task's first run. `check` gets a new proposal and the turns before it, and returns
        the proposal with its mistakes; it also gets a recorded one that no worker could check yet. `reach` is called at
        each failpoint, where tests inject faults. `written` is what a person wrote for this turn, checked; None to ask.

        Raises:
            FaultRaised: the earlier turns are not in the store, or another worker recorded a different turn meanwhile.
            DatabaseUnavailable: the store cannot be reached.
            Exception: what the planner raises.
        """
        turns = await self.transcript.load(task, situation.continues)
        is_first = bool(situation.text) and not situation.continues
        past = turns.before(situation.turn, situation.branch)
        if not is_first and not past:
            raise FaultRaised(Fault.of(Code.WRONG_STORE, CONVERSATION_LOST))
        if recorded := turns.recorded(situation):
            proposed = recorded.proposed
            return (await check(proposed, past) if proposed.unchecked else proposed), True
        if written is not None:
            return await self._record(situation, turns, PlannerReply(written))
        reach(Failpoint.AFTER_CLAIM)
        reply = await _ask(planner, situation, kinds, turns)
        # Not recorded: the workflow has the oldest turns summarised, and then asks for this turn again.
        if reply.proposed.compact:
            return reply.proposed, False
        reach(Failpoint.BEFORE_COMMIT)
        checked = await check(reply.proposed, past)
        return await self._record(situation, turns, PlannerReply(checked, reply.exchange))

    async def _record(self, situation: Situation, turns: TaskTurns, reply: PlannerReply) -> tuple[Proposed, bool]:
        """Record the reply; return the recorded proposal, and whether another attempt recorded this turn first.

        Raises:
            FaultRaised: another worker recorded this turn first, for another situation.
        """
        branch = turns.branch_for(situation)
        proposed = reply.proposed.model_copy(update={"branch": branch})
        turn = RecordedTurn(
            turns.task, branch, situation.turn, situation, proposed, reply.exchange, upto=situation.compact
        )
        workflow = activity.info().workflow_id if activity.in_activity() else None
        recorded = await self.transcript.write(turn, before=situation.branch, workflow=workflow)
        # A worker that still runs the task's run from before a reset may have recorded its own turn first.
        if situation_digest(recorded.situation) != situation_digest(situation):
            raise FaultRaised(Fault.of(Code.BUSY, "Another worker recorded this turn first; the attempt is repeated."))
        return recorded.proposed, recorded is not turn


async def _ask(
    planner: ConversationalPlanner, situation: Situation, kinds: Mapping[str, Kind], turns: TaskTurns
) -> PlannerReply:
    past = turns.before(situation.turn, situation.branch)
    if situation.compact:
        return await planner.summarise(past, situation.compact)
    # Only the first turn of the task tells the schema of the answer and the examples, but each request needs them.
    first = next((turn.situation for turn in past if turn.task == turns.task and turn.situation.text), situation)
    request = situation.model_copy(
        update={"result_schema": first.result_schema, "demonstrations": first.demonstrations}
    )
    return await planner.converse(request, kinds, past, task=turns.task, branch=turns.branch_for(situation))
