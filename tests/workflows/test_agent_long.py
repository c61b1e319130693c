"""Long tasks, on a real server that suggests a new run early: they go on in it, and nobody notices."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue
from temporalio.client import Client, WorkflowHandle

from client.history.fetch import fetch_history, fetch_run, final_outcome
from client.start import build_task
from console.commands.reset import reset
from console.options import Common
from replan import NeedsPerson, Refused, tool
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.harness import DONE, Proposals, outcome, plan, step
from tests.workflows.history import calls, until
from tests.workflows.props import Recording, Said, Stages, Word, played
from workflows.account import search_attributes
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.limits.budget import Limits
from workflows.plans.contract import AllowedEffect
from workflows.plans.proposal import BY_HAND, GiveUp, NewSteps

EARLY = {"limit.historyCount.suggestContinueAsNew": "20"}
Handle = WorkflowHandle[AgentWorkflow, Outcome]


class Page(BaseModel):
    title: str
    body: str


@tool.read
async def echo(args: Word) -> Said:
    """Say the word louder."""
    return Said(said=f"{args.word}!")


refuse = played("refuse", Refused("It is taken.", code="conflict"))


@pytest.fixture(scope="module")
async def early(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server that suggests a new run after 20 events, about two proposals."""
    folder = tmp_path_factory.mktemp("early")
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES, dynamic=EARLY)
    async with DevServer(spec, await find_cli(lambda _: None)) as server:
        yield await connect(address=server.address, plain=True)


async def runs(client: Client, handle: Handle) -> list[Handle]:
    """A handle of each run of the task, the first one first."""
    found: list[Handle] = []
    run = handle.first_execution_run_id
    while run:
        one: Handle = client.get_workflow_handle_for(AgentWorkflow.run, handle.id, run_id=run)
        found.append(one)
        last = (await one.fetch_history()).events[-1]
        run = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id or None
    return found


@pytest.fixture
def stages(early: Client, tmp_path: Path) -> Stages:
    """Workers on that server."""
    return Stages(early, tmp_path)


def chain(count: int) -> list[NewSteps]:
    """Plans of one step each, every one fed by the one before."""
    words: list[JsonValue] = ["hi"]
    words += [{"$from": f"s{n}", "path": "said"} for n in range(count - 1)]
    return [plan(step(f"s{n}", "echo", word=word)) for n, word in enumerate(words)]


@pytest.mark.full
async def test_what_a_person_wrote_for_later_turns_is_used_once_over_all_runs(early: Client, stages: Stages) -> None:
    """A new run goes on where the one before was in the list."""
    later = [plan(step(f"s{number}", "refuse", word=str(number))) for number in range(1, 8)]
    written = build_task(text="by hand", limits={"replans": 8}).model_copy(
        update={"plan": (step("s0", "refuse"),), "revisions": (*later, GiveUp(reason="That was all."))}
    )
    done, handle = await stages.ended([refuse], [DONE], written)
    parts = await runs(early, handle)

    assert len(parts) > 2 and [one.id for one in done.steps] == [f"s{number}" for number in range(8)]
    assert (done.reason, done.replans, {one.planner for one in done.revisions}) == ("That was all.", 8, {BY_HAND})


@pytest.mark.parametrize("effect_key", [None, "order/7"])
async def test_a_long_task_goes_on_in_new_runs(early: Client, stages: Stages, effect_key: str | None) -> None:
    """Steps of earlier runs keep their results, ids, titles and place in the outcome; every step ran once.

    A call that is made in a later run has the key that it would have had in the first, or the effect key of the task;
    whoever reads only the events of that run finds it, too.
    """
    done, handle = await stages.ended([echo], [*chain(9), DONE], Task(text="a task", effect_key=effect_key))
    parts = await runs(early, handle)
    made = [call for part in parts for call in await calls(part)]
    read = [await fetch_run(early, handle.id, str(part.run_id)) for part in parts]
    prefix = effect_key or handle.first_execution_run_id

    assert len(parts) > 2 and [call.id for call in made if call.kind == "echo"] == [f"s{number}" for number in range(9)]
    assert [one.result for one in done.steps] == [{"said": f"hi{'!' * louder}"} for louder in range(1, 10)]
    assert (done.status, done.spent.tool_calls, len(done.revisions)) == (TaskStatus.COMPLETED, 9, 9)
    assert {call.header["key"].rpartition("/")[0] for call in made if call.kind == "echo"} == {prefix}
    assert {call.header["key"].split("/")[0] for call in made if call.header and call.kind != "echo"} == {
        handle.first_execution_run_id
    }
    assert {(history.key_prefix, history.first_run) for history in read} == {(prefix, handle.first_execution_run_id)}
    assert [history.unreadable for history in read] == [[]] * len(parts)


async def test_plans_in_turn_end_over_the_change_of_runs(early: Client, stages: Stages) -> None:
    """A later run knows what the runs before it have done: each call of the cycle is made twice."""
    turns = [plan(step(f"{word}{turn}", "echo", word=word)) for turn in range(4) for word in "abc"]
    done, handle = await stages.ended([echo], [*turns, DONE])
    parts = await runs(early, handle)

    assert len(parts) > 2 and (done.status, done.code) == (TaskStatus.ESCALATED, "proposals_rejected")
    assert [one.id for one in done.steps] == ["a0", "b0", "c0", "a1", "b1", "c1"]
    assert "makes the same call for the third time" in done.reason


@pytest.mark.full
async def test_a_replan_survives_the_change_of_runs(early: Client, stages: Stages) -> None:
    """The new run still knows what was refused and asks for a new plan, not for the next one."""
    script: Proposals = [*chain(2), plan(step("a", "refuse", word="x")), plan(step("b", "echo", word="y")), DONE]
    planner = Recording(*script)
    done, handle = await stages.ended([echo, refuse], planner)
    parts = await runs(early, handle)

    asked = planner.told[3]
    assert len(parts) > 1 and (done.status, done.replans) == (TaskStatus.COMPLETED, 1)
    assert ([one.step_id for one in asked.faults], len(asked.observations)) == (["a"], 1)
    assert done.revisions[3].refused == ("a",)


@pytest.mark.full
async def test_a_plan_by_hand_stays_by_hand_in_a_new_run(early: Client, stages: Stages) -> None:
    """The planner of the worker, which only puts the results together, did not plan because the task was long."""
    later = [*(plan(step(name, "refuse", word=name)) for name in "bcd"), plan(step("e", "echo", word="e"))]
    limits = Limits(replans=4, fruitless=None)
    task = Task(text="by hand", plan=(step("a", "refuse", word="a"),), revisions=(*later,), limits=limits)
    done, handle = await stages.ended([echo, refuse], [DONE] * 6, task)

    assert len(await runs(early, handle)) > 1 and (done.status, done.planner) == (TaskStatus.COMPLETED, BY_HAND)
    assert {one.planner for one in done.revisions} == {BY_HAND}


@pytest.mark.full
async def test_an_effect_of_an_earlier_run_is_undone_whatever_its_arguments_were(early: Client, stages: Stages) -> None:
    """A new run does not carry arguments beyond 8 KiB, but what the undo names of them."""
    removed = list[str]()
    remove = played("remove", None, declare=tool.idempotent, called=removed)
    ask = played("ask", NeedsPerson("Somebody has to look."))

    @tool.idempotent(undo=remove.using(word="args.title"))
    async def publish(args: Page) -> Said:
        """Publish a page."""
        return Said(said=args.title)

    first = plan(step("page", "publish", title="news", body="x" * 20_000))
    script: Proposals = [first, *chain(8), plan(step("last", "ask", word="y"))]
    done, handle = await stages.ended([echo, remove, publish, ask], script, Task(text="a task", on_escalation="undo"))
    parts = await runs(early, handle)

    assert (len(parts) > 1, done.status) == (True, TaskStatus.ESCALATED)
    assert ([one.done for one in done.undo], removed) == ([True], ["remove news"])


@pytest.mark.full
async def test_the_budget_counts_over_all_runs(early: Client, stages: Stages) -> None:
    """A new run is no way round a limit."""
    async with stages([echo], [*chain(20), DONE]) as stage:
        done = await stage.run(tool_calls=7)

    assert (done.status, done.spent.tool_calls) == (TaskStatus.OVER_BUDGET, 7)


@pytest.mark.full
async def test_the_deadline_is_that_of_the_whole_task(early: Client, stages: Stages) -> None:
    """Seconds count from the start of the first run."""

    @tool.read
    async def doze(args: Word) -> Said:
        """Take a while."""
        await asyncio.sleep(0.4)
        return Said(said="z")

    script: Proposals = [plan(step(f"d{number}", "doze", word=str(number))) for number in range(30)]
    async with stages([doze], script) as stage:
        done = await stage.run(deadline=3, tool_calls=100)

    assert (done.status, done.code) == (TaskStatus.OVER_BUDGET, "deadline")
    assert 3 <= done.spent.seconds < 10


@pytest.mark.full
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_follower_does_not_notice(early: Client, stages: Stages, is_cancelled: bool) -> None:
    """The result comes from the last run, and the query shows the steps of all of them; so after a cancel."""
    looked = asyncio.Event()

    @tool.read(timeout=60)
    async def wait(args: Word) -> Said:
        """Wait until the test has looked."""
        await looked.wait()
        return Said(said="")

    async with stages([echo, wait], [*chain(8), plan(step("last", "wait")), DONE]) as stage:
        handle = await stage.start()
        newest = early.get_workflow_handle_for(AgentWorkflow.run, handle.id)
        end = asyncio.create_task(final_outcome(early, newest))
        seen = await until(handle, lambda now: any(one.step.id == "last" and one.started for one in now.records))
        await newest.cancel() if is_cancelled else looked.set()
        done = await end

    assert [one.step.id for one in seen.records] == [*(f"s{number}" for number in range(8)), "last"]
    assert done.status is (TaskStatus.CANCELLED if is_cancelled else TaskStatus.COMPLETED) and len(done.steps) == 9


async def test_what_was_read_in_an_earlier_run_is_not_forgotten(early: Client, stages: Stages) -> None:
    """Text that anybody may have written counts in every later run, and so does what was planned before it."""
    page = played("page", None, declare=tool.read(untrusted=True))
    buy, keep = played("buy", None, declare=tool.idempotent), played("keep", None, declare=tool.idempotent)
    first = plan(step("p", "page"), step("k", "keep", word="1"))
    last = plan(step("k2", "keep", word="2")), *[plan(step("b", "buy", word="1"))] * 3
    done, handle = await stages.ended(
        [echo, page, buy, keep],
        [first, *chain(7), *last],
        Task(text="keep 2", contract=(AllowedEffect(kind="keep", count=2),)),
    )
    parts = await runs(early, handle)

    assert len(parts) > 1 and done.code == "proposals_rejected" and "buy is outside the contract" in done.reason
    assert [one.id for one in done.steps if one.kind in ("keep", "buy")] == ["k", "k2"]


@pytest.mark.full
async def test_a_reset_of_the_newest_run_leaves_the_runs_before_it(early: Client, stages: Stages) -> None:
    """The history of the task is that of all runs that led to the new one; the one that was reset is beside it."""
    async with stages([echo], [*chain(9), DONE]) as stage:
        handle = await stage.start()
        await outcome(handle)
        newest: Handle = early.get_workflow_handle_for(AgentWorkflow.run, handle.id)
        before = await runs(early, handle)
        assert await reset(early, newest, Common(json=True), to="catalogue", why=None) == 0
        done = await outcome(newest)
    told = await fetch_history(early, newest, journal=True)

    assert [entry.number for entry in told.journal] == list(range(1, len(told.journal) + 1))
    assert told.run_ids[: len(before) - 1] == [one.run_id for one in before[:-1]]
    assert told.end and told.end.status == done.status
    assert [call.id for call in told.calls if call.is_step] == [f"s{number}" for number in range(9)]
    assert [one.run_ids[0] for one in told.earlier] == [before[-1].run_id]
