"""Workers that die in the middle of a turn, resets, and conversations that grow long: nothing is asked for twice."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import delete
from sqlalchemy.ext.asyncio import create_async_engine
from temporalio.client import Client, WorkflowHandle

from activities.planning.recorder import TurnRecorder
from activities.planning.transcript import TURNS, Transcript
from activities.providers.messages import AssistantTurn, UserTurn
from activities.storage.store import open_store
from activities.toolbox.registry import Registry
from client.reset import Fate
from console.commands.reset import reset
from console.options import Common
from evals.fakes.model_api import ModelApi, running
from evals.fakes.script import (
    Delayed,
    ModelCall,
    ModelError,
    ModelReply,
    ReceivedRequest,
    Response,
    ScriptedResponse,
    calls,
    finishes,
    proposes,
    repeated,
    step,
)
from replan import tool
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.activities.payments import payments
from tests.activities.test_recorder import as_it_is
from tests.gate import sampled
from tests.harness import outcome
from tests.processes import Processes, Running
from tests.providers import planning as models
from tests.providers.acting import Acting, acting, reacting
from tests.providers.desk import Nothing
from tests.providers.planning import MAKER, api_of
from tests.providers.plates import GOAL, read_plate
from tests.providers.test_textual import examples
from tests.providers.test_worker import environment
from tests.providers.visitor import FOUND, visitor
from tests.workflows.test_agent_long import EARLY, runs
from tests.workflows.test_agent_reset import again, lines, tools
from workflows.account import search_attributes
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.planning.situation import Situation

DESK, PLATES = Path(__file__).with_name("desk.py"), Path(__file__).with_name("plates.py")
PATIENCE = 60
TIMES = ("14:00", "14:30")


class Workers(Processes):
    """Worker processes on one queue, whose model is behind one server."""

    def __init__(self, address: str, folder: Path, provider: str, api: ModelApi, tools: Path) -> None:
        """Work for the Temporal server at `address`, with the tools of a file."""
        super().__init__(address, folder, environment(provider, api))
        self._tools = tools
        self.queue = f"turns-{uuid.uuid4().hex[:8]}"
        self._model = f"{MAKER[provider]}:{api.model}"

    def one(self, *breaks: str) -> AbstractContextManager[Running]:
        """Start a worker; each of `breaks` is a `--break`."""
        words = [word for one in breaks for word in ("--break", one)]
        options = ["--tools", str(self._tools), "--planner", self._model, "--queue", self.queue]
        return self.worker("--dev", *options, "--log", "json", *words)


@asynccontextmanager
async def working(
    server: DevServer, folder: Path, provider: str, *script: ScriptedResponse, tools: Path = DESK
) -> AsyncIterator[tuple[ModelApi, Workers]]:
    """A model API with a script, and workers for it."""
    async with running(api_of(provider, *script)) as api:
        yield api, Workers(server.address, folder, provider, api, tools)


async def begun(client: Client, queue: str, task: Task) -> WorkflowHandle[AgentWorkflow, Outcome]:
    """Start a task on the workers of a queue."""
    return await client.start_workflow(AgentWorkflow.run, task, id=f"turn-{uuid.uuid4().hex[:12]}", task_queue=queue)


async def dead(worker: Running) -> None:
    """Wait until a worker has killed itself."""
    await asyncio.to_thread(worker.wait, PATIENCE)


async def asked(api: ModelApi, times: int) -> None:
    """Wait until the model has been asked so often."""
    async with asyncio.timeout(PATIENCE):
        while len(api.bodies) < times:
            await asyncio.sleep(0.05)


def booking(heard: ReceivedRequest) -> Response:
    """A model that books, is refused, books another time, and says so."""
    turn = heard.turn - examples(heard)
    return calls(ModelCall("book", {"at": TIMES[turn]})) if turn < 2 else ModelReply(text="At 14:30.")


def planning(heard: ReceivedRequest) -> Response:
    """The same with whole plans."""
    slot = step(f"slot-{heard.turn}", "book", at=TIMES[min(heard.turn, 1)])
    return proposes(slot) if heard.turn < 2 else finishes("At 14:30.")


STRATEGIES = {"plan": (planning, Task(text="book a slot")), "react": (booking, reacting("book a slot"))}
POINTS = {
    f"{strategy}, {kind}, {point}": (strategy, kind, point, times)
    for strategy, kind, point, times in (
        ("react", "plan", "before_claim", 1),
        ("react", "plan", "after_claim", 1),
        ("react", "plan", "before_commit", 2),
        ("react", "plan", "after_commit", 1),
        ("react", "replan", "after_commit", 1),
        ("plan", "plan", "after_commit", 1),
        ("plan", "replan", "before_commit", 2),
    )
}
"""In which activity the worker dies and where; how often the model is asked for that turn in all."""


@pytest.mark.parametrize(("strategy", "kind", "point", "times"), sampled(POINTS, "react, plan, after_commit"))
@pytest.mark.timeout(180)
async def test_a_turn_is_asked_for_once_if_it_was_recorded(
    client: Client, server: DevServer, tmp_path: Path, strategy: str, kind: str, point: str, times: int
) -> None:
    """The worker kills itself around the request; the next one asks only for what the store does not have."""
    model, task = STRATEGIES[strategy]
    async with working(server, tmp_path, "anthropic", model) as (api, workers):
        with workers.one(f"{kind}=die@{point}:1") as first:
            handle = await begun(client, workers.queue, task)
            await dead(first)
        with workers.one():
            ended = await outcome(handle)
    broken = 0 if kind == "plan" else 1
    counts = [count for _, count in sorted(repeated(api.requests).items())]

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "At 14:30.")
    assert counts == [times if turn == broken else 1 for turn in range(3)]
    assert api.violations == [] and ended.spent.tool_calls == 3  # two calls, and one look at what is free
    assert ended.spent.tokens >= api.billed
    if point == "after_commit":  # the answer was found, so it is paid once
        assert (ended.spent.model_calls, ended.spent.tokens) == (3, api.billed)


@pytest.mark.parametrize(
    ("provider", "strategy"),
    [pytest.param("anthropic", "react", marks=pytest.mark.full), ("openai", "plan"), ("responses", "react")],
)
@pytest.mark.timeout(180)
async def test_a_request_that_was_cut_off_is_made_once_more(
    client: Client, server: DevServer, tmp_path: Path, provider: str, strategy: str
) -> None:
    """kill -9 while the model thinks: exactly one request more, and the lost one is counted as spent."""
    model, task = STRATEGIES[strategy]
    async with working(server, tmp_path, provider, Delayed(PATIENCE), model) as (api, workers):
        with workers.one() as first:
            handle = await begun(client, workers.queue, task)
            await asked(api, 1)
            first.kill()
        with workers.one():
            ended = await outcome(handle)

    assert (ended.status, len(api.bodies), api.aborted) == (TaskStatus.COMPLETED, 4, 1)
    assert api.bodies[0] == api.bodies[1] and api.violations == []


@pytest.mark.full
@pytest.mark.parametrize(("point", "more"), [("before_commit", 1), ("after_commit", 0)])
@pytest.mark.timeout(180)
async def test_a_summary_is_asked_for_once_if_it_was_recorded(
    client: Client, server: DevServer, tmp_path: Path, point: str, more: int
) -> None:
    """As a turn is."""
    async with working(server, tmp_path, "anthropic", visitor, tools=PLATES) as (api, workers):
        api.window = 12_000
        with workers.one(f"compact=die@{point}:1") as first:
            handle = await begun(client, workers.queue, reacting(GOAL))
            await dead(first)
        with workers.one():
            ended = await outcome(handle)
    summaries = sum(not heard.tools for heard in api.requests)

    assert (ended.result, summaries - len(ended.compactions), api.violations) == (FOUND, more, [])


async def test_two_workers_that_ask_at_once_agree(store_url: str, provider: str) -> None:
    """One that counted as lost comes back with an answer of its own: what was written down first is the turn."""
    engine, answers = await open_store(store_url), iter((ModelReply(text="One."), ModelReply(text="Another.")))
    situation = Situation(text="a task", turn=1, now=datetime.now(UTC), strategy="react", converses=True)
    async with models.planning(provider, lambda _: Delayed(0.5, next(answers))) as (api, planner):
        recording = TurnRecorder(Transcript(engine))
        ask = partial(recording.propose, check=as_it_is, reach=lambda _: None)
        first, second = await asyncio.gather(*(ask(planner, situation, Registry(()), "run") for _ in range(2)))
        third, was_recorded = await ask(planner, situation, Registry(()), "run")
    await engine.dispose()

    assert first[0].proposal == second[0].proposal == third.proposal
    assert (was_recorded, len(api.bodies)) == (True, 2)


# Temporal's own reset of a task: the same turn is not asked for again, another one is a branch, effects stay single


def newest(client: Client, id: str) -> WorkflowHandle[AgentWorkflow, Outcome]:
    """The newest run of a task."""
    return client.get_workflow_handle_for(AgentWorkflow.run, id)


def buyer(heard: ReceivedRequest) -> Response:
    """Three prices, one a turn, then the answer."""
    return calls(ModelCall("get_price", {"sku": f"A-{heard.turn}"})) if heard.turn < 3 else ModelReply(text="Done.")


BEFORE_TURNS = {name: (name,) for name in ("catalogue", "plan:1", "t1.c0", "plan:2", "t3.c0", "plan:4")}


@pytest.mark.parametrize("before", sampled(BEFORE_TURNS, "t1.c0"))
async def test_the_same_turns_are_not_asked_for_again(
    client: Client, tmp_path: Path, provider: str, before: str
) -> None:
    """To before each of them: no request, the same steps, the same result."""
    async with acting(client, tmp_path, provider, buyer) as one:
        handle = await one.stage.start(reacting())
        first = await outcome(handle)
        second = await again(one.stage, newest(client, handle.id), before)

    assert (second.status, second.result) == (TaskStatus.COMPLETED, first.result)
    assert [step.id for step in second.steps] == [step.id for step in first.steps] == ["t1.c0", "t2.c0", "t3.c0"]
    assert (len(one.api.bodies), one.api.violations) == (4, [])


class Count(BaseModel):
    """How often something was called."""

    calls: int


async def test_another_turn_is_a_branch(client: Client, tmp_path: Path, provider: str) -> None:
    """A result that is another one this time leads to a request, and to steps with ids of their own.

    Nothing of the lives before is told in it, and all of what it shares with them is.
    """
    called = list[None]()

    @tool.read
    async def count(args: Nothing) -> Count:
        """Count its own calls."""
        called.append(None)
        return Count(calls=len(called))

    def counter(heard: ReceivedRequest) -> Response:
        return calls(ModelCall("count", {})) if heard.turn < 2 else ModelReply(text=f"{heard.turn} turns")

    async with acting(client, tmp_path, provider, counter, tools=[count]) as one:
        handle = await one.stage.start(reacting())
        first, resets = await outcome(handle), ("t1.c0", "t1.c0", "t2.c0.b2")
        lives = [first, *[await again(one.stage, newest(client, handle.id), before) for before in resets]]
    ids, told = [[step.id for step in life.steps] for life in lives], one.api.requests[-1].all_text

    assert ids == [["t1.c0", "t2.c0"], ["t1.c0", "t2.c0.b1"], ["t1.c0", "t2.c0.b2"], ["t1.c0", "t2.c0.b2"]]
    assert [heard.turn for heard in one.api.requests] == [0, 1, 2, 1, 2, 1, 2, 2]
    assert one.api.violations == [] and {life.status for life in lives} == {TaskStatus.COMPLETED}
    assert [number for number in range(1, 8) if f'{{"calls":{number}}}' in told] == [5, 7]


# Tasks that changed the world: the turns are found, and effects stay single

BEFORE_EFFECTS = {name: (name,) for name in ("catalogue", "plan:1", "t1.c0", "t2.c0", "plan:3")}


@pytest.mark.parametrize("before", sampled(BEFORE_EFFECTS, "catalogue", "t2.c0"))
async def test_an_effect_that_is_replayed_is_the_same_news(
    client: Client, tmp_path: Path, provider: str, before: str
) -> None:
    """The ledger knows the calls, and answers as before; so the next turn is found as it was recorded."""
    with payments() as service:
        charge, pay = (ModelCall(kind, {"url": service.url}) for kind in ("charge", "pay"))

        def writer(heard: ReceivedRequest) -> Response:
            turns = [calls(ModelCall("write", {"word": "a"}), charge), calls(ModelCall("write", {"word": "b"}), pay)]
            return turns[heard.turn] if heard.turn < 2 else ModelReply(text="Done.")

        async with acting(client, tmp_path, provider, writer, tools=tools(service)) as one:
            handle = await one.stage.start(reacting())
            await outcome(handle)
            second = await again(one.stage, newest(client, handle.id), before)

    assert second.status is TaskStatus.COMPLETED
    assert [step.id for step in second.steps] == ["t1.c0", "t1.c1", "t2.c0", "t2.c1"]
    assert (len(service.charges), await lines(tmp_path), len(one.api.bodies), one.api.violations) == (2, 2, 3, [])


async def test_a_plan_that_is_another_one_after_a_reset_repeats_no_call(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """The same id with other arguments belongs to the life before: it is refused, and the model takes another id."""
    lives = list[str]()

    def planner(heard: ReceivedRequest) -> Response:
        if heard.turn and not lives:
            return finishes("first")
        if "conflict" in heard.all_text:
            return finishes("second") if "a2 is finished" in heard.all_text else proposes(step("a2", "write", word="y"))
        return proposes(step("a", "write", word=lives[0] if lives else "x"))

    with payments() as service:
        async with acting(client, tmp_path, provider, planner, tools=tools(service)) as one:
            handle = await one.stage.start(Task(text="write", documents=None))
            await outcome(handle)
            lives.append("y")
            engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'store.db'}")
            async with engine.begin() as tx:
                await tx.execute(delete(TURNS))  # the model is asked anew, as after a change of what it is told
            await engine.dispose()
            second = await again(one.stage, newest(client, handle.id), "plan:1")

    assert (second.status, second.result, one.api.violations) == (TaskStatus.COMPLETED, "second", [])
    assert (await lines(tmp_path), [fault.code for fault in second.faults]) == (2, ["conflict"])


@pytest.mark.full
async def test_a_model_is_told_what_a_reset_keeps(client: Client, tmp_path: Path, provider: str) -> None:
    """Once, in a turn of a new branch, with ids, arguments and results; it makes the call no second time."""

    def writer(heard: ReceivedRequest) -> Response:
        if "was applied and stands" in heard.all_text or heard.turn > 1:
            return ModelReply(text="Done.")
        return calls(ModelCall("write", {"word": "ab"[heard.turn]}))

    with payments() as service:
        async with acting(client, tmp_path, provider, writer, tools=tools(service)) as one:
            handle = await one.stage.start(reacting())
            await outcome(handle)
            task = newest(client, handle.id)
            assert await reset(client, task, Common(json=True), to="t1.c0", why=None, fate=Fate.KEEP) == 0
            second = await outcome(task)
    told = one.api.requests[-1].all_text

    assert (second.result, [step.id for step in second.steps], one.api.violations) == ("Done.", ["t1.c0", "t2.c0"], [])
    assert all(f"{id} (write with" in told for id in ("t1.c0", "t2.c0")) and await lines(tmp_path) == 2


# Conversations that outgrow the model's window, a run, a task and a reset: summarised, and nothing is lost


WINDOW = 12_200
"""Tokens: instructions, tools, a summary, and a dozen plates."""


def visiting(
    client: Client, folder: Path, provider: str, model: ScriptedResponse = visitor, **options: Any
) -> AbstractAsyncContextManager[Acting]:
    """A worker whose model reads plates, in a window that does not hold them all."""
    given = {"window": WINDOW, "known": WINDOW, "tools": [read_plate], **options}
    return acting(client, folder, provider, model, **given)


WINDOWS = {"known": (WINDOW,), "unknown": (None,)}
"""What the worker knows of the window; where that is nothing, the provider must refuse a request for it."""


@pytest.mark.parametrize("known", sampled(WINDOWS, *WINDOWS))
async def test_what_was_read_before_a_summary_is_used_after_it(
    client: Client, tmp_path: Path, provider: str, known: int | None
) -> None:
    """The strict server is never sent the page again, and the answer is right all the same.

    The goal and the newest turns stay word for word after every summary, with a fault that is open. A summary is an
    activity of its own, and in the outcome; its tokens are counted.
    """
    async with visiting(client, tmp_path, provider, known=known) as one:
        handle = await one.stage.start(reacting(GOAL, tool_calls=100))
        ended, history = await outcome(handle), await handle.fetch_history()
    requests, page = one.api.requests, f"C-111. {'lorem ' * 20}"
    summaries = [at for at, heard in enumerate(requests) if not heard.tools]
    scheduled = [event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events]

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, FOUND), ended.reason
    assert page not in requests[-1].all_text and FOUND in requests[-1].all_text
    assert (one.api.violations, one.api.too_long > 0) == ([], known is None)
    assert scheduled.count("compact") == len(ended.compactions) == len(summaries) > 0
    # OpenAI's APIs are asked a second time for a shorter reply: the first of the two requests is counted.
    again = 0 if provider == "anthropic" else one.api.too_long // 2
    assert ended.spent.model_calls == len(one.api.bodies) - one.api.too_long + again
    assert all(GOAL in heard.all_text for heard in requests)
    opened = list[bool]()
    for before, after in ((requests[at - 1].turns, requests[at + 1].turns) for at in summaries if known):
        assert before[-1] in after and len(after) < len(before)
        assert isinstance(after[0], UserTurn) and isinstance(after[1], AssistantTurn)
        kept = before[before.index(after[1]) - 1]
        assert isinstance(kept, UserTurn)
        opened += [result.text in after[0].text for result in kept.results if "locked" in result.text]
    assert all(opened) and (opened or known is None)


@pytest.mark.parametrize("whose", ["anthropic", "responses"])
@pytest.mark.full
async def test_thoughts_end_with_a_summary(client: Client, tmp_path: Path, whose: str) -> None:
    """Those of the turns before it are left out, those after it come back."""

    def thinker(heard: ReceivedRequest) -> Response:
        said = visitor(heard)
        assert isinstance(said, ModelReply)
        return ModelReply(said.calls, said.text, thinking=f"Turn {heard.turn}." if heard.tools else "")

    async with visiting(client, tmp_path, whose, thinker) as one:
        ended = await one.run(GOAL, tool_calls=100)

    assert (ended.result, one.api.violations, len(ended.compactions) > 0) == (FOUND, [], True)


async def test_one_result_that_no_summary_makes_shorter_is_a_person_s(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """Nobody asks for ever: what cannot be told is said."""
    async with visiting(client, tmp_path, provider, window=900, known=None) as one:
        ended = await one.run(GOAL, tool_calls=100)

    assert (ended.status, ended.code, one.api.violations) == (TaskStatus.ESCALATED, "too_large", [])
    assert len(one.api.bodies) < 10


@pytest.mark.full
async def test_a_summary_that_fails_for_a_moment_is_asked_for_again(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """As any other request: Temporal waits, and the task goes on."""
    failed = list[ReceivedRequest]()

    def shaky(heard: ReceivedRequest) -> Response:
        if not heard.tools and not failed:
            failed.append(heard)
            return ModelError(529, "overloaded_error")
        return visitor(heard)

    async with visiting(client, tmp_path, provider, shaky) as one:
        ended = await one.run(GOAL, tool_calls=100)

    assert (ended.result, len(failed), one.api.violations) == (FOUND, 1, [])


@pytest.fixture(scope="module")
async def early(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server that suggests a new run after 20 events."""
    folder = tmp_path_factory.mktemp("early")
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES, dynamic=EARLY)
    async with DevServer(spec, await find_cli(lambda _: None)) as server:
        yield await connect(address=server.address, plain=True)


@pytest.mark.full
async def test_a_new_run_goes_on_in_the_conversation(early: Client, tmp_path: Path, provider: str) -> None:
    """With its summaries, and no turn is asked for twice; nor after a reset of the newest run."""
    async with visiting(early, tmp_path, provider) as one:
        handle = await one.stage.start(reacting(GOAL, tool_calls=100))
        ended = await outcome(handle)
        parts, asked = await runs(early, handle), len(one.api.bodies)
        second = await again(one.stage, newest(early, handle.id), "catalogue")

    assert (ended.status, ended.result, ended.spent.model_calls) == (TaskStatus.COMPLETED, FOUND, asked)
    assert (len(parts) > 3, len(ended.compactions) > 0, one.api.violations) == (True, True, [])
    assert (second.result, len(one.api.bodies)) == (FOUND, asked)


@pytest.mark.parametrize("before", ["compact", "after"])
@pytest.mark.full
async def test_a_reset_to_a_summary_asks_for_nothing(
    client: Client, tmp_path: Path, provider: str, before: str
) -> None:
    async with visiting(client, tmp_path, provider) as one:
        handle = await one.stage.start(reacting(GOAL, tool_calls=100))
        ended, asked = await outcome(handle), len(one.api.bodies)
        turn = ended.compactions[0].turn
        place = f"compact:{turn}" if before == "compact" else f"plan:{turn + 1}"
        second = await again(one.stage, newest(client, handle.id), place)

    assert (second.result, len(one.api.bodies), one.api.violations) == (FOUND, asked, [])
    assert second.compactions == ended.compactions


async def test_a_task_carries_on_what_was_summarised(client: Client, tmp_path: Path, provider: str) -> None:
    """Twice over: the new goals are told word for word, and what was found before is still known."""
    async with visiting(client, tmp_path, provider) as one:
        handle = await one.stage.start(reacting(GOAL, tool_calls=100))
        await outcome(handle)
        one.api.script[:] = [lambda heard: ModelReply(text="Known." if FOUND in heard.all_text else "Lost.")]
        second = await one.stage.start(reacting("say it again", more={"continues": handle.first_execution_run_id}))
        said = await outcome(second)
        third = await one.run("and again", more={"continues": second.first_execution_run_id})

    assert (said.result, third.result, one.api.violations) == ("Known.", "Known.", [])
    assert "say it again" in one.api.requests[-1].all_text and "and again" in one.api.requests[-1].all_text
