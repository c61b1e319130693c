"""Asking a planner that keeps a conversation: what was recorded is not asked for again, and nothing is mixed up."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from activities.boundary.attempt import FaultRaised
from activities.boundary.failpoints import Failpoint
from activities.planning.planner import PlannerReply, RecordedTurn
from activities.planning.recorder import TurnRecorder
from activities.planning.transcript import Transcript
from activities.storage.store import open_store, sqlite_url
from activities.toolbox.declare.kind import Kind
from tests.activities.situations import NOW
from workflows.faults.fault import Code
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Price
from workflows.plans.proposal import Answer, Mistake, Proposed


class Counting:
    """A planner that answers with the number of times that it was asked, as slowly as it is told."""

    name = "counting"
    prices: Mapping[str, Price | None] = {}  # a test's planner
    longest_reply = 1_000

    def __init__(self) -> None:
        """Be asked by nobody yet."""
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def preamble(self, kinds: Mapping[str, Kind]) -> int:
        """Nothing."""
        return 0

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposed:
        """Count."""
        return (await self.converse(situation, kinds, (), task="", branch=0)).proposed

    async def converse(
        self, situation: Situation, kinds: Mapping[str, Kind], past: Sequence[RecordedTurn], *, task: str, branch: int
    ) -> PlannerReply:
        """Count, and answer when it may."""
        self.asked += 1
        answer = self.asked
        await self.may_answer.wait()
        return PlannerReply(Proposed(proposal=Answer(result=answer), planner=self.name))

    async def summarise(self, past: Sequence[RecordedTurn], oldest: int) -> PlannerReply:
        """Count."""
        return PlannerReply(Proposed(proposal=Answer(result=None), planner=self.name))


@pytest.fixture
async def recorder(tmp_path: Path) -> AsyncIterator[TurnRecorder]:
    """In a store of its own."""
    engine = await open_store(sqlite_url(tmp_path))
    yield TurnRecorder(Transcript(engine))
    await engine.dispose()


async def as_it_is(proposed: Proposed, past: Sequence[RecordedTurn]) -> Proposed:
    """Find no mistake."""
    return proposed


async def ask(recorder: TurnRecorder, planner: Counting, turn: int = 1, what: str = "") -> tuple[object, bool]:
    """The answer to a situation, and whether it was recorded."""
    rejected = (Mistake(text=what),) if what else ()
    text = "do it" if turn == 1 else ""
    situation = Situation(text=text, turn=turn, now=NOW, converses=True, rejected=rejected)

    def reach(point: Failpoint) -> None:
        """Break nothing."""

    proposed, known = await recorder.propose(planner, situation, {}, "run", check=as_it_is, reach=reach)
    assert isinstance(proposed.proposal, Answer)
    return proposed.proposal.result, known


async def test_a_turn_is_asked_for_once(recorder: TurnRecorder) -> None:
    """However often an attempt is made."""
    planner = Counting()
    answers = [await ask(recorder, planner) for _ in range(3)]

    assert (answers, planner.asked) == ([(1, False), (1, True), (1, True)], 1)


async def test_another_question_in_the_same_turn_is_asked(recorder: TurnRecorder) -> None:
    """And both answers stay."""
    planner = Counting()
    first, other = await ask(recorder, planner), await ask(recorder, planner, what="no")

    assert (first, other) == ((1, False), (2, False))
    assert [await ask(recorder, planner), await ask(recorder, planner, what="no")] == [(1, True), (2, True)]


async def test_of_two_attempts_at_the_same_moment_one_answer_counts(recorder: TurnRecorder) -> None:
    """Both workers go on with the one that was recorded first."""
    planner = Counting()
    planner.may_answer.clear()
    both = [asyncio.create_task(ask(recorder, planner)) for _ in range(2)]
    while planner.asked < 2:
        await asyncio.sleep(0.01)
    planner.may_answer.set()
    found = {answer for answer, _ in await asyncio.gather(*both)}

    assert len(found) == 1


async def test_an_answer_to_another_question_is_never_taken(recorder: TurnRecorder) -> None:
    """A worker of the life before a reset may be quicker: the turn is asked again, on a branch of its own."""
    planner = Counting()
    planner.may_answer.clear()
    old = asyncio.create_task(ask(recorder, planner, what="old"))
    new = asyncio.create_task(ask(recorder, planner, what="new"))
    while planner.asked < 2:
        await asyncio.sleep(0.01)
    planner.may_answer.set()
    ended = await asyncio.gather(old, new, return_exceptions=True)
    late = next(one for one in ended if isinstance(one, BaseException))

    assert isinstance(late, FaultRaised) and late.fault.code is Code.BUSY
    assert (await ask(recorder, planner, what="new"))[0] != (await ask(recorder, planner, what="old"))[0]


async def test_a_conversation_that_is_not_here_is_a_person_s(recorder: TurnRecorder) -> None:
    """A worker on another store would begin anew in the middle."""
    with pytest.raises(FaultRaised, match="not in this worker's store") as raised:
        await ask(recorder, Counting(), turn=2)

    assert raised.value.fault.code is Code.WRONG_STORE
