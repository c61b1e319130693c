"""What a reset over effects refuses and allows, and what the planner is told of those that stand."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio import activity
from temporalio.client import Client

from client.effects import all_effects
from client.history.fetch import fetch_history
from client.history.story import Story
from client.problem import Problem
from client.reset import Fate
from client.tasks import Handle
from client.undo import over_all_runs
from console.commands.reset import reset
from replan import Key, Refused, Tool, tool
from tests.console.desk import QUIET
from tests.harness import DONE, Proposals, Stage, outcome, plan, staged, step
from tests.workflows.props import Recording
from workflows import ids
from workflows.account.records import StepStatus
from workflows.account.state import Folded
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.inquiries import ClaimsFindings, Findings, InquiryInput
from workflows.limits.budget import Limits
from workflows.plans import own_activities
from workflows.plans.proposal import Step


class Word(BaseModel):
    word: str = ""


def tools(sent: list[str]) -> list[Tool[..., Any]]:
    """A read, two effects, and one whose answer is lost."""

    @tool.read
    async def look(args: Word) -> Word:
        """Look."""
        return args

    @tool.read
    async def refuse(args: Word) -> Word:
        """Be refused."""
        raise Refused("No.")

    @tool.read
    async def stare(args: Word) -> Word:
        """Look for a minute."""
        await asyncio.sleep(60)
        return args

    @tool.keyed
    async def send(args: Word, key: Key) -> Word:
        """Send a letter."""
        sent.append(key.partition("/")[2])
        return args

    @tool.idempotent
    async def put(args: Word) -> Word:
        """Put something somewhere."""
        sent.append(f"put {args.word}")
        return args

    @tool.unkeyed
    async def shout(args: Word) -> Word:
        """Shout; the answer is lost."""
        raise ConnectionResetError("the answer never came")

    return [look, refuse, stare, send, put, shout]


class Told:
    """A worker whose planner keeps what it is told, and the keys of the letters that it sent."""

    def __init__(self, stage: Stage, planner: Recording, sent: list[str]) -> None:
        self.stage, self.planner, self.sent = stage, planner, sent

    async def run(self, task: Task | str = "a task") -> Handle:
        """Run a task to its end; the handle stands for its newest run."""
        started = await self.stage.start(task)
        await outcome(started)
        return self.newest(started.id)

    async def asked(self, times: int) -> None:
        """Wait until the planner was asked so often."""
        async with asyncio.timeout(30):
            while len(self.planner.told) < times:
                await asyncio.sleep(0.05)

    async def reset(self, task: Handle, to: str, fate: Fate | None = None) -> Any:
        """Reset a task and wait for its end."""
        assert await reset(self.stage.client, task, QUIET, to=to, why=None, fate=fate) == 0
        return await outcome(self.newest(task.id))

    async def refuses(self, task: Handle, to: str, words: str = "", fate: Fate | None = None) -> str:
        """The code with which a reset is refused, in these words; the task stays as it is."""
        before = (await task.describe()).run_id
        with pytest.raises(Problem, match=words) as refused:
            await reset(self.stage.client, task, QUIET, to=to, why=None, fate=fate)
        assert (await task.describe()).run_id == before
        return refused.value.code

    def newest(self, id: str) -> Handle:
        """The newest run of a task."""
        return self.stage.client.get_workflow_handle_for(AgentWorkflow.run, id)


@activity.defn(name=own_activities.INSPECT.kind)
async def inspect(inquiry: InquiryInput) -> Findings:
    """Answer as a worker of this version whose store has everything."""
    return ClaimsFindings(planner="scripted", lacks="")


@asynccontextmanager
async def told(client: Client, folder: Path, *proposals: Any) -> AsyncIterator[Told]:
    """A worker that plays these proposals."""
    sent, planner = list[str](), Recording(*proposals)
    async with staged(client, folder, tools(sent), planner, extra=[inspect]) as stage:
        yield Told(stage, planner, sent)


CHAIN = [step("a", "look"), step("b", "send", "a", word="hi"), step("c", "look", "b")]
TWO: Proposals = [plan(step("a", "look")), plan(step("b", "send", word="hi")), DONE]


async def test_the_planner_is_told_what_stands(client: Client, tmp_path: Path) -> None:
    """An effect of a later plan is in the way: it would be planned anew, and `--undo` promises that it is gone first.

    With `--keep` the planner is told of the step with its result, of no plan of this run; a proposal that uses its id
    again is sent back.
    """
    async with told(client, tmp_path, *TWO) as desk:
        task = await desk.run()
        await desk.refuses(task, "a", r"^'b' \(send\) was applied after 'a' and stands: .* under another key")
        no_undo = r"was not reset, since this cannot be undone: b \(send has no undo\)"
        await desk.refuses(task, "a", no_undo, Fate.UNDO)
        done = await desk.reset(task, "a", Fate.KEEP)
    asked = desk.planner.told[3]

    assert [(one.step.id, one.revision, one.status, one.result) for one in asked.earlier] == [
        ("b", 0, StepStatus.COMPLETED, {"word": "hi"})
    ]
    assert (asked.turn, asked.planned, desk.sent) == (1, (), ["b"])
    assert "belongs to an earlier step" in done.rejections[0].reasons[0]


@pytest.mark.parametrize("to", ["b", pytest.param("c", marks=pytest.mark.full)])
async def test_an_effect_of_the_same_plan_is_in_the_way_behind_a_read(client: Client, tmp_path: Path, to: str) -> None:
    """What is read before it may be another thing this time: then it would be refused, and planned under another id.

    One that is called at once with its key is not: nothing can come before it that leads to another plan.
    """
    async with told(client, tmp_path, plan(*CHAIN), DONE) as desk:
        task = await desk.run()
        await desk.refuses(task, "a", r"'b' \(send\) was applied after 'a'")
        done = await desk.reset(task, to)

    assert (done.status, set(desk.sent)) == (TaskStatus.COMPLETED, {"b"})


@pytest.mark.full
async def test_a_plan_by_hand_that_cannot_change_may_be_run_again(client: Client, tmp_path: Path) -> None:
    """Without replans no step ever has another id; with them it is refused, and nobody could be told of it."""
    async with told(client, tmp_path, DONE) as desk:
        fixed = Task(text="x", plan=tuple(CHAIN), plan_only=True, limits=Limits(replans=0))
        done = await desk.reset(await desk.run(fixed), "a")
        free = await desk.run(Task(text="x", plan=tuple(CHAIN)))
        codes = [await desk.refuses(free, "a"), await desk.refuses(free, "a", fate=Fate.UNDO)]

    assert (done.status, codes) == (TaskStatus.COMPLETED, ["effect_stands", "by_hand"])


async def test_a_later_plan_by_hand_can_be_told_nothing_either(client: Client, tmp_path: Path) -> None:
    """It would be run again as it was written."""
    written = plan(step("c", "look"), step("d", "send", "c", word="hi"))
    async with told(client, tmp_path, DONE, DONE, DONE) as desk:
        task = await desk.run(Task(text="x", plan=(step("a", "refuse"),), revisions=(written,)))
        codes = [
            await desk.refuses(task, "c", fate=Fate.UNDO),
            await desk.refuses(task, ids.of_request(2), fate=Fate.KEEP),
        ]

    assert (codes, desk.sent) == (["by_hand"] * 2, ["d"])


IDEMPOTENT = [step("a", "look"), step("b", "put", "a", word="hi"), step("c", "look", "b")]


@pytest.mark.parametrize("steps", [CHAIN, pytest.param(IDEMPOTENT, marks=pytest.mark.full)])
async def test_an_effect_of_the_plan_in_force_that_is_kept_counts_as_done(
    client: Client, tmp_path: Path, steps: Sequence[Step]
) -> None:
    """Its step is not called again, even where that would be harmless, and what needs it has its result."""
    async with told(client, tmp_path, plan(*steps), DONE) as desk:
        done = await desk.reset(await desk.run(), "a", Fate.KEEP)

    assert [(one.id, one.revision, one.status.value) for one in done.steps] == [(id, 1, "completed") for id in "abc"]
    assert (done.status, len(desk.sent), len(desk.planner.told)) == (TaskStatus.COMPLETED, 1, 3)


@pytest.mark.full
async def test_an_effect_of_unknown_outcome_is_told_as_that(client: Client, tmp_path: Path) -> None:
    """It is in the way, too, and with `--keep` the planner hears that nobody knows."""
    async with told(client, tmp_path, plan(step("a", "look")), plan(step("b", "shout")), DONE, DONE) as desk:
        task = await desk.run()
        await desk.refuses(task, "a", r"'b' \(shout\) may have been applied after 'a'")
        await desk.reset(task, "plan:1", Fate.KEEP)

    assert [(one.step.id, one.status) for one in desk.planner.told[2].earlier] == [("b", StepStatus.CANCELLED)]


@pytest.mark.full
async def test_a_running_task_is_told_too(client: Client, tmp_path: Path) -> None:
    """Its run is told and then set back, so that the new one knows from its first moment on.

    Not one that was closed from outside: going back to its last moment might call something; so it is refused.
    """
    script = [plan(step("a", "look")), plan(step("b", "send")), plan(step("c", "stare"))]
    async with told(client, tmp_path, *script) as desk:
        task = desk.newest((await desk.stage.start()).id)
        await desk.asked(3)
        await reset(client, task, QUIET, to="plan:2", why=None, fate=Fate.KEEP)
        await desk.asked(4)
        asked = desk.planner.told[3]
        await task.terminate()
        closed = "was closed from outside, and nobody can tell it what stands"
        await desk.refuses(task, "plan:1", closed, Fate.KEEP)

    assert (asked.turn, [one.step.id for one in asked.earlier]) == (2, ["b"])


async def test_effects_that_a_long_task_no_longer_keeps_are_in_its_history(client: Client, tmp_path: Path) -> None:
    """What was folded away is undone as well: no account of it is left but the events."""
    async with told(client, tmp_path, *TWO) as desk:
        task = await desk.run()
        newest, story = await task.query(AgentWorkflow.progress), Story(await fetch_history(client, task))
    kept = [record for record in newest.records if record.step.id != "b"]
    folded = newest.model_copy(update={"records": kept, "folded": Folded(ids=["b"], effects=1)})
    whole = over_all_runs(folded, story, all_effects(story, None, ()))

    assert [(one.step.id, one.args, one.result) for one in whole.records[1:]] == [("b", {"word": "hi"}, {"word": "hi"})]
    assert (whole.folded.effects, whole.undo) == (0, [])
