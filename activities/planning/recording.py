"""Asking a planner that keeps a conversation: a turn that was recorded is answered from the record."""

from collections.abc import Callable, Iterable, Mapping

from pydantic import JsonValue
from temporalio import activity

from activities.boundary.attempt import FaultRaised
from activities.boundary.failpoints import Point
from activities.planning.planner import Conversing, Past, Said
from activities.planning.transcript import Transcript, Turns, identity
from activities.toolbox.declare.kind import Kind
from workflows.faults import Code, Fault
from workflows.plan import NewSteps, Proposed
from workflows.situation import Situation

Reach = Callable[[Point], None]
"""Where somebody who breaks things on purpose stops a worker."""
LOST = (
    "The conversation of this task is not in this worker's store: start a worker on the store that has it, or start"
    " the task anew."
)


class Recording:
    """Writes down what planners were told and said, and asks them for what is not written down yet."""

    def __init__(self, transcript: Transcript) -> None:
        """Keep it in this transcript."""
        self._transcript = transcript

    async def propose(
        self,
        planner: Conversing,
        situation: Situation,
        kinds: Mapping[str, Kind],
        task: str,
        *,
        check: Callable[[Proposed], Proposed],
        reach: Reach,
    ) -> tuple[Proposed, bool]:
        """The proposal that answers a situation of `task`, checked, and whether it was recorded before.

        `reach` is told how far it is.

        Raises:
            FaultRaised: the turns before it are not in the store.
            DatabaseUnavailable: the store cannot be reached.
            Exception: what the planner raises.
        """
        turns = await self._turns(task, situation)
        if recorded := turns.recorded(situation):
            return recorded.proposed, True
        past, branch = turns.before(situation.turn, situation.branch), turns.branch(situation)
        if situation.plan is not None:
            return await self._write(situation, turns, _by_hand(situation, check)), False
        opened = next((one.situation for one in past if one.task == task and one.situation.text), situation)
        asked = situation.model_copy(update={"result_schema": opened.result_schema})
        reach(Point.AFTER_CLAIM)
        said = await planner.converse(asked, kinds, past, task=task, branch=branch)
        if said.proposed.compact:
            return said.proposed, False
        reach(Point.BEFORE_COMMIT)
        return await self._write(situation, turns, Said(check(said.proposed), said.exchange)), False

    async def summarise(
        self, planner: Conversing, situation: Situation, task: str, reach: Reach
    ) -> tuple[Proposed, bool]:
        """Have the oldest turns of `task` summarised, as many as the situation says.

        Raises:
            FaultRaised, DatabaseUnavailable, Exception: as above.
        """
        turns = await self._turns(task, situation)
        if recorded := turns.recorded(situation):
            return recorded.proposed, True
        past = turns.before(situation.turn, situation.branch)
        reach(Point.AFTER_CLAIM)
        said = await planner.summarise(past, situation.compact)
        reach(Point.BEFORE_COMMIT)
        return await self._write(situation, turns, said), False

    async def of(self, run: JsonValue) -> list[Past]:
        """The conversation of the task whose first run is `run`; nothing where it is not here.

        Raises:
            DatabaseUnavailable: the store cannot be reached.
        """
        return (await self._transcript.of(run)).newest() if isinstance(run, str) else []

    async def _turns(self, task: str, situation: Situation) -> Turns:
        turns = await self._transcript.of(task, situation.continues)
        is_first = bool(situation.text) and not situation.continues
        if not is_first and not turns.before(situation.turn, situation.branch):
            raise FaultRaised(Fault.of(Code.WRONG_STORE, LOST))
        return turns

    async def _write(self, situation: Situation, turns: Turns, said: Said) -> Proposed:
        branch = turns.branch(situation)
        proposed = said.proposed.model_copy(update={"branch": branch})
        past = Past(turns.task, branch, situation.turn, situation, proposed, said.exchange, upto=situation.compact)
        workflow = activity.info().workflow_id if activity.in_activity() else None
        written = await self._transcript.write(past, before=situation.branch, workflow=workflow)
        if identity(written.situation) != identity(situation):  # a worker of the life before a reset was quicker
            raise FaultRaised(Fault.of(Code.BUSY, "Another turn was recorded in the place of this one meanwhile."))
        return written.proposed


def is_clean(past: Iterable[Past]) -> bool:
    """Whether nothing in a conversation is text that anybody may have written."""
    return not any(one.situation.is_tainted for one in past)


def _by_hand(situation: Situation, check: Callable[[Proposed], Proposed]) -> Said:
    return Said(check(Proposed(proposal=NewSteps(steps=situation.plan or ()))))
