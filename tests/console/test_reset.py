"""`reset`: a task goes on from before a step; nothing is done twice, and the planner is told of effects that stand."""

import asyncio
import gc
import json
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio import activity
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from client.effects import all_effects, repeated_by_reset
from client.explain.explanation import explain_task
from client.history.decoder import calls_in
from client.history.fetch import fetch_history
from client.history.records import CallEnd
from client.history.story import Story
from client.problem import Problem
from client.reset import Fate
from client.tasks import Handle
from client.undo import over_all_runs
from console.commands.reset import reset
from console.commands.show import show
from console.options import Common
from replan import Key, Refused, Tool, tool
from tests.console.desk import QUIET, desk
from tests.console.histories import history
from tests.gate import sampled
from tests.harness import DONE, Proposals, Stage, outcome, plan, staged, step
from tests.workflows.history import until
from tests.workflows.props import Recording
from workflows import ids
from workflows.account.records import StepStatus
from workflows.account.state import Folded
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.calls.header import HEADER
from workflows.inquiries import ClaimsFindings, Findings, InquiryInput
from workflows.limits.budget import Limits
from workflows.plans import own_activities
from workflows.plans.proposal import Question, Step

SIGNED = plan(step("a", "look"), step("b", "sign", "a"), step("c", "write", "b", word="later"))


async def test_a_task_goes_on_from_the_step_that_was_mended(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What came before is kept and not called again; the step is done again, and then what needs it. The keys stay
    those of the first run, so that whatever a step did before counts as done for the new run too. So does the start, so
    the time since the reset stands beside it. It says how to follow, to people and to programs."""
    async with desk(client, tmp_path, SIGNED) as here:
        task = await here.run()
        first = (await task.describe()).run_id
        await asyncio.sleep(1.1)
        capsys.readouterr()
        done = await here.reset(task, "b")
        document = json.loads("".join(re.findall(r"(?ms)^\{.*?^\}", capsys.readouterr().out)))
        sent = [one.activity_task_scheduled_event_attributes for one in await events(client, task.id)]
        keys = {one.activity_id: json.loads(one.header.fields[HEADER].data)["key"] for one in sent if one.activity_id}
        summary = explain_task(await fetch_history(client, task, journal=True)).summary
        calls = dict(here.calls)
        await show(client, task, Common())
        shown = capsys.readouterr().out
        await reset(client, task, Common(), to="plan:2", why=None)
        said = [line for line in capsys.readouterr().out.splitlines() if task.id in line and "kind=" not in line]
        await outcome(client.get_workflow_handle_for(AgentWorkflow.run, task.id))

    assert (done.status, [one.status for one in done.steps]) == ("completed", ["completed"] * 3)
    assert calls == {"look": 1, "sign": 2, "write later": 1}
    assert (document["task_id"], document["to"]) == (task.id, "b")
    assert keys["b"] == f"{first}/b" and keys["c"] == f"{first}/c"
    assert (await task.describe()).run_id != first
    took = re.search(r" completed after ([\d.]+) s, ([\d.]+) s after it was reset: ", summary)
    assert took is not None and float(took[1]) - float(took[2]) > 1.1, summary
    assert re.search(r"^It was reset at .*Z; its time counts from the start\.$", shown, re.MULTILINE)
    assert said[0].startswith(f"{task.id} goes on from before plan:2 (event ")
    assert said[1] == f"Follow: python starter.py show {task.id} --follow"


async def events(client: Client, id: str) -> Sequence[HistoryEvent]:
    return (await client.get_workflow_handle(id).fetch_history()).events


@pytest.mark.full
async def test_a_task_may_be_reset_more_than_once(client: Client, tmp_path: Path) -> None:
    """The newest run is meant, also to a step of an earlier plan, and to the planner's turn."""
    refused = plan(step("w", "write", word="taken"), step("a", "look"))
    async with desk(client, tmp_path, refused, plan(step("b", "look", word="2"))) as here:
        task = await here.run()
        again = [await here.reset(task, to) for to in ("plan:3", "b", "a", "w", "plan:1", "catalogue")]

    assert {one.status for one in again} == {TaskStatus.COMPLETED}
    assert here.calls == {"look": 5, "look 2": 6}


@pytest.mark.full
async def test_a_cancelled_task_goes_on(client: Client, tmp_path: Path) -> None:
    """The request to cancel belonged to the old run."""
    async with desk(client, tmp_path, plan(step("a", "look"), step("b", "linger", "a"))) as here:
        task = await here.begin()
        await here.called("linger")
        await task.cancel()
        assert (await outcome(task)).status is TaskStatus.CANCELLED
        done = await here.reset(task, "b")

    assert done.status is TaskStatus.COMPLETED


@pytest.mark.full
async def test_what_a_person_answered_after_the_point_is_asked_again(client: Client, tmp_path: Path) -> None:
    """The answer, and more of a budget, belonged to the old run."""
    question = Question(text="Which?", options=("this", "that"))
    async with desk(client, tmp_path, plan(step("a", "look")), question) as here:
        task = await here.begin(Task(text="a task", on_escalation="wait"))
        await until(task, lambda now: bool(now.open_requests))
        await task.execute_update("extend", {"tool_calls": 5, "by": "ann"})
        await task.execute_update("reply", {"text": "this", "by": "ann"})
        first = await outcome(task)
        assert await reset(client, task, QUIET, to="a", why=None) == 0
        again = await until(task, lambda now: bool(now.open_requests))
        await task.execute_update("reply", {"text": "that", "by": "bob"})
        ended = await outcome(task)

    assert (first.status, [one.by for one in first.extensions]) == (TaskStatus.COMPLETED, ["ann"])
    assert ([one.id for one in again.requests], again.extensions) == (["r1"], [])
    assert [(one.answer.by, one.answer.text) for one in ended.requests if one.answer] == [("bob", "that")]


async def test_a_running_task_goes_on_while_only_reads_run(client: Client, tmp_path: Path) -> None:
    """Its run is closed and a new one begins."""
    async with desk(client, tmp_path, plan(step("a", "look"), step("b", "stare", "a"))) as here:
        task = await here.begin()
        await here.called("stare")
        code = await reset(client, task, QUIET, to="b", why="it takes too long")
        asked = [one.workflow_task_failed_event_attributes.failure.message for one in await events(client, task.id)]
        await task.cancel()
        await outcome(task)

    gc.collect()
    assert (code, [why for why in asked if why]) == (0, ["it takes too long"])


CHANGED = r"would do 'b' again, which has changed the world"
LOOKED = step("a", "look")
SLOWLY = [LOOKED, step("b", "write", word="slowly"), step("c", "look", "a"), step("d", "look", "b")]
REFUSED: dict[str, tuple[list[Step], str, str]] = {
    "a finished effect": (
        [LOOKED, step("b", "write", "a"), step("c", "look", "b")],
        "b",
        rf"{CHANGED} \(write, event \d+\): reset to what came after it: c, ",
    ),
    "an effect after it": ([LOOKED, step("b", "write", "a")], "a", f"Going back to 'a' {CHANGED}"),
    "an effect that began before and ended after": (
        SLOWLY,
        "c",
        f"{CHANGED} .*: reset to what came after it: d, plan:2",
    ),
    "an effect with a result that is not right": ([LOOKED, step("b", "lie", "a")], "b", CHANGED),
    "an unknown step": ([step("price", "look")], "prise", "has no step 'prise': did you mean price: reset to one of "),
    "a step that never started": (
        [step("a", "lie"), step("b", "look", "a")],
        "b",
        "Step 'b' of task .* never started: reset to one that did: catalogue, plan:1, a",
    ),
}


@pytest.mark.parametrize(("steps", "to", "words"), sampled(REFUSED, "a finished effect", "an unknown step"))
async def test_what_cannot_be_gone_back_to_is_refused(
    client: Client, tmp_path: Path, steps: Sequence[Step], to: str, words: str
) -> None:
    """Which step is in the way, and what to do instead; the task stays as it is."""
    async with desk(client, tmp_path, plan(*steps)) as here:
        task = await here.run()
        before = (await task.describe()).run_id
        with pytest.raises(Problem, match=words):
            await reset(client, task, QUIET, to=to, why=None)

    assert (await task.describe()).run_id == before


async def test_an_effect_that_runs_is_in_the_way(client: Client, tmp_path: Path) -> None:
    """It would go on while its step begins anew."""
    async with desk(client, tmp_path, plan(step("a", "look"), step("b", "engrave"))) as here:
        task = await here.begin()
        await here.called("look")
        with pytest.raises(Problem, match=r"which runs and may change the world .*: wait until it has ended, or stop"):
            await reset(client, task, QUIET, to="a", why=None)
        await task.cancel()
        await outcome(task)


async def test_an_effect_whose_outcome_a_codec_hides_is_in_the_way(client: Client, tmp_path: Path) -> None:
    """What cannot be read is not taken for harmless."""
    async with desk(client, tmp_path, plan(step("a", "look"), step("b", "look", "a"))) as here:
        task = await here.run()
        run = await events(client, task.id)
        for found in calls_in(run):  # as a console without the codec's key sees it
            for payload in found.payloads if found.call.closed is CallEnd.COMPLETED else ():
                payload.metadata["encoding"] = b"binary/encrypted"
        story = Story(await history(run, client.data_converter))
    step_a = next(call for call in story.history.calls if call.id == "a")

    assert [one.id for one in repeated_by_reset(story, step_a)] == ["a", "b"]


@pytest.mark.full
async def test_a_task_that_is_past_its_deadline_is_refused(client: Client, tmp_path: Path) -> None:
    """It would end again at once: the deadline counts from the first start."""
    async with desk(client, tmp_path, plan(step("a", "stare"))) as here:
        task = await here.run(Task(text="a task", limits=Limits(deadline=1)))
        with pytest.raises(Problem, match=r"The deadline of task .*, 1 s after its start, has passed: start a new"):
            await reset(client, task, QUIET, to="a", why=None)


async def test_a_task_that_no_worker_has_taken_has_nothing_to_go_back_to(client: Client) -> None:
    """It has not begun."""
    task = await client.start_workflow(
        AgentWorkflow.run, Task(text="waits"), id=f"waits-{secrets.token_hex(6)}", task_queue="nobody-serves-this"
    )
    with pytest.raises(Problem, match="has no step 'a': it has not begun"):
        await reset(client, client.get_workflow_handle_for(AgentWorkflow.run, task.id), QUIET, to="a", why=None)
    await task.terminate()


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
        async with asyncio.timeout(30):
            while len(self.planner.told) < times:
                await asyncio.sleep(0.05)

    async def reset(self, task: Handle, to: str, fate: Fate | None = None) -> Any:
        """Reset a task and wait for its end."""
        assert await reset(self.stage.client, task, QUIET, to=to, why=None, fate=fate) == 0
        return await outcome(self.newest(task.id))

    async def refuses(self, task: Handle, to: str, words: str | None = None, fate: Fate | None = None) -> str:
        """The code with which a reset is refused, in these words; the task stays as it is."""
        before = (await task.describe()).run_id
        with pytest.raises(Problem, match=words) as refused:
            await reset(self.stage.client, task, QUIET, to=to, why=None, fate=fate)
        assert (await task.describe()).run_id == before
        return refused.value.code

    def newest(self, id: str) -> Handle:
        return self.stage.client.get_workflow_handle_for(AgentWorkflow.run, id)


@activity.defn(name=own_activities.INSPECT.kind)
async def inspect(inquiry: InquiryInput) -> Findings:
    """Answer as a worker of this version whose store has everything."""
    return ClaimsFindings(planner="scripted", lacks="")


@asynccontextmanager
async def told(client: Client, folder: Path, *proposals: Any) -> AsyncIterator[Told]:
    sent, planner = list[str](), Recording(*proposals)
    async with staged(client, folder, tools(sent), planner, extra=[inspect]) as stage:
        yield Told(stage, planner, sent)


CHAIN = [step("a", "look"), step("b", "send", "a", word="hi"), step("c", "look", "b")]
TWO: Proposals = [plan(step("a", "look")), plan(step("b", "send", word="hi")), DONE]


async def test_the_planner_is_told_what_stands(client: Client, tmp_path: Path) -> None:
    """An effect of a later plan is in the way: it would be planned anew, and `--undo` promises that it is gone first.
    With `--keep` the planner is told of the step with its result, of no plan of this run; a proposal that uses its id
    again is sent back."""
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
    One that is called at once with its key is not: nothing can come before it that leads to another plan."""
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


GOING_ON = [plan(step("a", "look")), plan(step("b", "send")), plan(step("c", "stare"))]


@pytest.mark.full
async def test_a_running_task_is_told_too(client: Client, tmp_path: Path) -> None:
    """Its run is told and then set back, so that the new one knows from its first moment on."""
    async with told(client, tmp_path, *GOING_ON) as desk:
        task = desk.newest((await desk.stage.start()).id)
        await desk.asked(3)
        await reset(client, task, QUIET, to="plan:2", why=None, fate=Fate.KEEP)
        await desk.asked(4)
        asked = desk.planner.told[3]
        await task.terminate()

    assert (asked.turn, [one.step.id for one in asked.earlier]) == (2, ["b"])


@pytest.mark.full
async def test_a_task_that_was_closed_from_outside_is_not_told(client: Client, tmp_path: Path) -> None:
    """Going back to its last moment might call something; so it is refused."""
    async with told(client, tmp_path, *GOING_ON) as desk:
        task = desk.newest((await desk.stage.start()).id)
        await desk.asked(3)
        await task.terminate()
        await desk.refuses(task, "a", "was closed from outside, and nobody can tell it what stands", Fate.KEEP)


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
