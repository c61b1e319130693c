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
    """However often an attempt is made; another question in the same turn is asked, and both answers stay."""
    planner = Counting()
    answers = [await ask(recorder, planner) for _ in range(3)]
    other = [await ask(recorder, planner, what="no") for _ in range(2)]

    assert (answers, other) == ([(1, False), (1, True), (1, True)], [(2, False), (2, True)])
    assert (await ask(recorder, planner), planner.asked) == ((1, True), 2)


async def at_once(recorder: TurnRecorder, planner: Counting, *what: str) -> list[tuple[object, bool] | BaseException]:
    """What becomes of attempts that all ask before one is answered."""
    planner.may_answer.clear()
    asking = [asyncio.create_task(ask(recorder, planner, what=one)) for one in what]
    while planner.asked < len(what):
        await asyncio.sleep(0.01)
    planner.may_answer.set()
    return await asyncio.gather(*asking, return_exceptions=True)


async def test_of_two_attempts_at_the_same_moment_one_answer_counts(recorder: TurnRecorder) -> None:
    """Both workers go on with the one that was recorded first."""
    found = await at_once(recorder, Counting(), "", "")

    assert len({answer for answer, _ in (one for one in found if isinstance(one, tuple))}) == 1
    assert all(isinstance(one, tuple) for one in found)


async def test_an_answer_to_another_question_is_never_taken(recorder: TurnRecorder) -> None:
    """A worker of the life before a reset may be quicker: the turn is asked again, on a branch of its own."""
    planner = Counting()
    ended = await at_once(recorder, planner, "old", "new")
    late = next(one for one in ended if isinstance(one, BaseException))
    answers = [(await ask(recorder, planner, what=one))[0] for one in ("new", "old")]

    assert isinstance(late, FaultRaised) and late.fault.code is Code.BUSY
    assert answers[0] != answers[1]


async def test_a_conversation_that_is_not_here_is_a_person_s(recorder: TurnRecorder) -> None:
    """A worker on another store would begin anew in the middle."""
    with pytest.raises(FaultRaised, match="not in this worker's store") as raised:
        await ask(recorder, Counting(), turn=2)

    assert raised.value.fault.code is Code.WRONG_STORE
