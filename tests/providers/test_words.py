"""What models say is read while they say it: by whoever asks, bounded, and it stands in no history."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from activities import deadline
from activities.boundary.boundary import Boundary
from activities.boundary.failpoints import FaultInjection
from activities.boundary.interceptor import HeaderInterceptor
from activities.planning.activities import Planning
from activities.planning.model_planner import ModelPlanner
from activities.planning.planner import Planner
from activities.planning.transcript import Transcript
from activities.providers import spoken
from activities.providers.adapter import Endpoint
from activities.providers.chat_completions import ChatCompletions
from activities.providers.messages import ToolDefinition
from activities.providers.metering import Arriving
from activities.storage.store import Datasources, open_store, sqlite_url, store_id
from activities.toolbox.reasoning.model_tools import compose
from activities.toolbox.registry import Registry
from activities.toolbox.resources import Resources
from activities.words import Words
from client import document
from client.client import TaskHandle
from client.events import ModelSays, RequestRetried, TaskEvent, Thinking
from client.follow import fetch_state
from client.tasks import Handle, query_words
from console.render.live import running_frame
from console.render.views import WordLines
from evals.fakes.model_api import KEY, MODEL, Json, running
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.script import ModelCall, ModelReply, Streamed, finishes, step
from runtime import serve
from runtime.dev_server import DevServer
from tests.console.terminal import Terminal, starter
from tests.gate import on_sqlite
from tests.harness import DONE, Proposals, outcome, plan, staged, step as planned
from tests.processes import ROOT, Processes
from tests.providers.acting import acting, reacting
from tests.providers.asking import ASKED, IDLE, number_of_events, request
from tests.providers.desk import TOOLS
from tests.providers.planning import api_of, model_of, quickly_one
from tests.providers.test_react_crash import begun, working
from tests.providers.wire import call_delta, chunk
from workflows.account.task import TaskStatus
from workflows.agent import AgentWorkflow
from workflows.calls.interceptor import CallInterceptor
from workflows.plans import own_activities
from workflows.unfinished import MAX_SAID, MAX_TOLD, Unfinished

LONG = " ".join(f"Rome is warmer than Paris, for the {number}th time." for number in range(12))
LOST = "Xylophones are never kept. " * 30
"""Words of a reply that nobody gets whole."""


def said(events: list[TaskEvent], activity: str) -> str:
    """All words of an activity that a follower has heard, of the last reply."""
    heard = [event for event in events if isinstance(event, ModelSays) and event.activity == activity]
    return "".join(event.text for event in heard if event.reply == heard[-1].reply)


async def followed(client: Client, handle: Handle) -> list[TaskEvent]:
    """Follow a task to its end, with the words of its models."""
    return [event async for event in TaskHandle(client, handle.id).follow(text=True)]


async def every_history(client: Client) -> bytes:
    """All events of all runs of all workflows of the server, as the server has them and with their payloads as text."""
    found = b""
    async for run in client.list_workflows("CloseTime IS NULL OR CloseTime IS NOT NULL"):
        request = GetWorkflowExecutionHistoryRequest(namespace=client.namespace)
        request.execution.workflow_id, request.execution.run_id = run.id, run.run_id
        while True:
            page = await client.workflow_service.get_workflow_execution_history(request)
            found += page.history.SerializeToString()
            if not page.next_page_token:
                break
            request.next_page_token = page.next_page_token
    return found


async def until_words(handle: Handle) -> list[Unfinished]:
    """What models say, as soon as one says something."""
    async with asyncio.timeout(30):
        while not (words := await query_words(handle)):
            await asyncio.sleep(0.05)
    return words


@quickly_one
async def test_words_are_read_while_they_come(client: Client, tmp_path: Path, provider: str) -> None:
    """Each part once and in order, before the reply is complete, and written nowhere: the worker's memory has them."""
    async with acting(client, tmp_path, provider, Streamed(ModelReply(text=LONG), pause=0.04)) as act:
        handle = await act.stage.start(reacting())
        following = asyncio.create_task(followed(client, handle))
        await until_words(handle)
        await asyncio.sleep(1)
        written, events = await rows(sqlite_url(tmp_path)), await following
    heard = [event for event in events if isinstance(event, ModelSays)]
    told, over = heard[:-1], heard[-1]

    assert len(told) > 1 and (over.is_over, over.text, written) == (True, "", [])
    assert LONG.startswith(said(events, "plan:1")) and len(said(events, "plan:1")) > len(LONG) / 4
    assert [event.start for event in told] == [sum(len(one.text) for one in told[:at]) for at in range(len(told))]


@quickly_one
async def test_of_a_plan_people_read_what_is_for_them(client: Client, tmp_path: Path, provider: str) -> None:
    """Why these steps, and their titles; then the answer: but no JSON, and no thought."""
    one = {**step("sum", "get_price", sku="A-17"), "title": "Look up the price of the article A-17 in the shop"}
    because = "The price decides, so it is looked up before anything else is done about it."
    thoughtful = ModelReply((ModelCall("propose_plan", {"because": because, "steps": [one]}),), thinking="Hidden.")
    script = [Streamed(thoughtful, pause=0.05), Streamed(finishes(LONG), pause=0.02)]
    async with acting(client, tmp_path, provider, *script) as act:
        events = await followed(client, await act.stage.start())
    first, second = said(events, "plan:1"), said(events, "plan:2")

    assert f"{because}\n{one['title']}".startswith(first) and len(first) > len(because) / 4
    assert LONG.startswith(second) and len(second) > len(LONG) / 4


@pytest.mark.full
async def test_a_step_that_asks_a_model_is_read_too(client: Client, tmp_path: Path) -> None:
    """By the id of the step, on the loop of the tools; a planner that asks no model says nothing."""
    proposals: Proposals = [plan(planned("text", "compose", what="a letter", results=["Rome"])), DONE]
    async with running(api_of("anthropic", Streamed(ModelReply(text=LONG), pause=0.02))) as api:
        model = model_of("anthropic", api)
        async with staged(client, tmp_path, [compose], proposals, model=model) as stage:
            events = await followed(client, await stage.start())

    assert LONG.startswith(said(events, "text")) and len(said(events, "text")) > len(LONG) / 4
    assert {event.activity for event in events if isinstance(event, ModelSays)} == {"text"}


@quickly_one
async def test_a_reply_that_stalls_leaves_no_word_in_a_history(client: Client, tmp_path: Path, provider: str) -> None:
    """The attempt ends with a timeout, people have read its words, and the server has none of them."""
    lost = ModelReply(text=LOST)
    stalls = Streamed(lost, events=number_of_events(provider, lost) // 2, then="stall", pause=0.01)
    async with running(api_of(provider, stalls, ModelReply(text="Kept: 24.50"))) as api:
        planner = ModelPlanner(model_of(provider, api, idle_timeout=IDLE))
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            handle = await stage.start(reacting())
            events, ended = await followed(client, handle), await outcome(handle)
    histories = await every_history(client)

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "Kept: 24.50")
    assert any(isinstance(event, ModelSays) and "Xylophones" in event.text for event in events)
    assert b"Kept: 24.50" in histories and b"Xylophone" not in histories


@pytest.mark.full
@pytest.mark.timeout(180)
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_a_killed_worker_leaves_no_word_in_a_history(
    client: Client, server: DevServer, tmp_path: Path, provider: str
) -> None:
    """SIGKILL in the middle of a reply: the attempt times out, and its last heartbeat goes into the history."""
    lost = Streamed(ModelReply(text=LOST), pause=0.1)
    async with working(server, tmp_path, provider, lost, ModelReply(text="Kept: 24.50")) as (api, workers):
        with workers.one() as first:
            handle = await begun(client, workers.queue, reacting())
            words = await until_words(handle)
            await asyncio.sleep(4)  # two heartbeats
            first.kill()
        with workers.one():
            ended = await outcome(handle)
            left = await rows(sqlite_url(tmp_path / "state"))
    histories = await every_history(client)

    assert (ended.result, len(api.bodies)) == ("Kept: 24.50", 2)
    assert LOST.startswith(words[0].text) and left == []
    assert b"activity Heartbeat timeout" in histories
    assert b"Kept: 24.50" in histories and b"Xylophone" not in histories


async def rows(url: str) -> list[Any]:
    """The words that stand in a store."""
    engine = await open_store(url)
    try:
        async with engine.connect() as connection:
            return [*(await connection.execute(text("SELECT * FROM replan_words"))).all()]
    finally:
        await engine.dispose()


class Bulky(OpenAIApi):
    """Sends its text in parts of 64 kB."""

    def events(self, body: Json) -> Iterator[Json]:
        """The parts of the text, and the end."""
        (choice,) = body["choices"]
        content = choice["message"]["content"]
        size = 2**16
        for at in range(0, len(content), size):
            yield {**body, "choices": [{"index": 0, "delta": {"content": content[at : at + size]}}]}
        yield {**body, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        yield {}


async def test_five_megabytes_are_told_as_their_last_words(client: Client, tmp_path: Path) -> None:
    """No answer is longer than the bound, and it has the newest words."""
    text = "".join(f"{number:07} " for number in range(5 * 2**20 // 8))
    async with (
        running(Bulky([Streamed(ModelReply(text=text), pause=0.02)])) as api,
        staged(client, tmp_path, TOOLS, ModelPlanner(model_of("openai", api))) as stage,
    ):
        handle = await stage.start(reacting())
        told = list[Unfinished]()
        async with asyncio.timeout(30):
            while not told or told[-1].length < 2**20:
                told += await query_words(handle)
        await handle.cancel()
        await outcome(handle)

    assert all(len(one.text) == MAX_SAID for one in told)
    assert all(text[one.start : one.length] == one.text for one in told)
    assert told[-1].length > 2**18


HOSTILE = "A \x1b[31mred\x1b[0m \u202eword\u202c, a \0 and\rhalf \ud83d of \u2066one\u2069.\x1b]0;title\x07 " * 9


def is_harmless(shown: str) -> bool:
    """Whether a terminal shows all of it as it is, line by line."""
    return all(line.isprintable() for line in shown.split("\n"))


@pytest.mark.full
async def test_hostile_words_do_nothing(client: Client, tmp_path: Path) -> None:
    """Neither in a line, nor in a frame, nor in an event."""
    async with acting(client, tmp_path, "openai", Streamed(ModelReply(text=HOSTILE), pause=0.03)) as act:
        handle, lines, frames = await act.stage.start(reacting()), list[str](), list[str]()
        printed = WordLines(lines.append, 80)
        await until_words(handle)
        while (state := await fetch_state(client, handle, with_words=True)) and state.snapshot:
            printed.see(state.snapshot.words)
            frames += running_frame(state.snapshot, None, (), 80, 24)
        printed.see({})
    events = [document.of_event("words", text=HOSTILE[:at]) for at in range(60)]

    assert lines[0] == "  ● plan:1 the model says, unfinished:" and lines[1].startswith("    A \\u001b[31mred")
    assert lines[0] in frames and any("\\u001b[31mred" in row for row in frames)
    assert all(map(is_harmless, [*lines, *frames, *events]))


@asynccontextmanager
async def apart(client: Client, url: str, planner: Planner) -> AsyncIterator[tuple[str, Words, Words, list[str]]]:
    """Two workers of one queue and one store: one has only workflows, the other makes all calls.

    The words of the first, those of the second, and the statements that both send to the store.
    """
    queue, statements = f"apart-{uuid.uuid4().hex[:8]}", list[str]()
    async with deadline.client() as http, AsyncExitStack() as stack:
        engines = [await open_store(url) for _ in range(2)]
        for engine in engines:
            stack.push_async_callback(engine.dispose)
        registry, store = Registry(TOOLS), await store_id(engines[1])
        planning = Planning(planner, registry, searchable=True, store=store, transcript=Transcript(engines[1]))
        boundary = Boundary(
            Resources(engines[1], http, None), FaultInjection((), {}), store=store, ledgers=Datasources(engines[1])
        )
        activities = [*planning.activities(), *boundary.activities(registry)]
        asked, asking = [await entered(stack, engine, statements) for engine in engines]
        given: Any = {"task_queue": queue, "workflow_runner": serve.sandbox()}
        given |= {"workflows": [AgentWorkflow], "activities": [planning.catalogue], "no_remote_activities": True}
        header = HeaderInterceptor()
        await stack.enter_async_context(Worker(client, **given, interceptors=[CallInterceptor(), header, asked]))
        calls = serve.build(client, queue, workflows=[], activities=activities, interceptors=[header, asking])
        await stack.enter_async_context(calls)
        yield queue, asked, asking, statements


async def entered(stack: AsyncExitStack, engine: AsyncEngine, statements: list[str]) -> Words:
    """The words of a worker whose statements about words are noted."""
    words = Words(engine)
    await stack.enter_async_context(words.exchanged())
    writer = engine.sync_engine.get_execution_options().get("replan_writer")
    for sync in (engine.sync_engine, *([writer.engine] if writer else [])):
        event.listen(sync, "before_cursor_execute", lambda *sent: statements.append(sent[2]))
    return words


@on_sqlite
async def test_one_worker_tells_what_a_model_says_to_another(client: Client, store_url: str) -> None:
    """They share a store, and who comes late hears the same."""
    async with running(api_of("anthropic", Streamed(ModelReply(text=LONG), pause=0.06))) as api:
        planner = ModelPlanner(model_of("anthropic", api))
        async with apart(client, store_url, planner) as (queue, asked, asking, _):
            handle = await begun(client, queue, reacting())
            early = asyncio.create_task(followed(client, handle))
            await until_words(handle)
            late = await followed(client, handle)
            events = await early
            run = (await handle.describe()).run_id
            left = [asked.said(run), asking.said(run)]
        left_rows = await rows(store_url)

    assert LONG.startswith(said(events, "plan:1")) and len(said(events, "plan:1")) > len(LONG) / 4
    assert LONG.startswith(said(late, "plan:1")) and len(said(late, "plan:1")) > len(LONG) / 4
    assert left_rows == [] and left[1] == []


@pytest.mark.full
async def test_words_for_which_nobody_asks_are_not_written(client: Client, tmp_path: Path) -> None:
    """While a model replies, a worker looks once a second whether somebody listens, and that is all."""
    async with running(api_of("anthropic", Streamed(ModelReply(text=LONG), pause=0.06))) as api:
        planner = ModelPlanner(model_of("anthropic", api))
        async with apart(client, sqlite_url(tmp_path), planner) as (queue, _, _, statements):
            ended = await outcome(await begun(client, queue, reacting()))

    ours = [sent for sent in statements if "replan_words" in sent or "replan_listeners" in sent]

    assert ended.result == LONG and all(sent.startswith("SELECT") for sent in ours)
    assert 2 <= len([sent for sent in ours if "replan_listeners" in sent]) <= ended.spent.seconds + 3


async def test_many_that_speak_share_what_is_told(client: Client, tmp_path: Path) -> None:
    """One answer stays small, however many models are asked at once."""
    engine = await open_store(sqlite_url(tmp_path))
    words = Words(engine)
    async with AsyncExitStack() as stack:
        for number in range(20):
            stack.enter_context(words.watching("run", f"s{number}", 1))
            reply = Arriving(words=lambda: (20_000, "\x1b" * 20_000))
            [*words._asking][-1].replies.append(reply)
        told = words.said("run")
    await engine.dispose()

    assert len(told) == 20 and sum(len(one.text) for one in told) <= MAX_TOLD
    assert len(json.dumps([one.model_dump() for one in told])) < 64 * 1024


@pytest.mark.full
async def test_a_terminal_shows_the_last_words_below_the_tree(
    client: Client, server: DevServer, tmp_path: Path
) -> None:
    """Dimmed, and gone when the reply is complete."""
    script = [Streamed(ModelReply(text=LONG), pause=0.06)]
    async with acting(client, tmp_path, "openai", *script) as act:
        words = ("--task", "x", "--strategy", "react", "--queue", act.stage.queue, "--stream")
        with Terminal(starter(ROOT, *words), {"TEMPORAL_ADDRESS": server.address}, ROOT) as window:
            await window.until("Rome is warmer")
            rows = window.shown.text
            code = await window.ended()
    said = rows.index("  ● plan:1 the model says, unfinished:")

    assert code == 0 and rows[said + 1].startswith("    Rome is warmer") and rows[-1].startswith("Running for")
    assert "\x1b[2m    Rome is warmer" in window.raw
    assert not any("unfinished" in row for row in window.shown.text) and LONG[:60] in "\n".join(window.shown.text)


@pytest.mark.full
async def test_off_a_terminal_words_are_lines_and_events(client: Client, server: DevServer, tmp_path: Path) -> None:
    """Each line below one that says what it is; events for a program; without a model, as ever."""
    script = [Streamed(ModelReply(text=LONG), pause=0.04)] * 2
    command = Processes(server.address, tmp_path)
    async with acting(client, tmp_path, "openai", *script) as act:
        given = ("--task", "x", "--strategy", "react", "--queue", act.stage.queue, "--stream")
        lines = (await asyncio.to_thread(command.starter, *given)).stdout.splitlines()
        events = (await asyncio.to_thread(command.starter, *given, "--jsonl")).stdout.splitlines()
    told = [found for found in map(json.loads, events) if found["event"] == "words"]
    refused = [command.starter("show", "x", *words, "--stream") for words in ((), ("--follow", "--json"))]
    first = lines.index("  ● plan:1 the model says, unfinished:")

    assert lines[first + 1].startswith("    Rome is warmer than Paris, for the 0th time.")
    assert LONG.startswith("".join(found["text"] for found in told)) and told[-1]["over"]
    assert [run.returncode for run in refused] == [2, 2]


async def test_a_worker_that_knows_no_words_says_none(client: Client, tmp_path: Path) -> None:
    """As in a replay: the query is answered, and empty."""
    queue = f"mute-{uuid.uuid4().hex[:8]}"

    @activity.defn(name=own_activities.CATALOGUE.kind)
    async def nothing(requirements: Any) -> None:
        raise ApplicationError("Another worker has it.")

    given: Any = {"task_queue": queue, "workflows": [AgentWorkflow], "workflow_runner": serve.sandbox()}
    async with Worker(client, **given, activities=[nothing], interceptors=[CallInterceptor()]):
        handle = await begun(client, queue, reacting())
        told = await handle.query(AgentWorkflow.words)
        await handle.terminate()

    assert told == []


CALLED = "a call: "
SHOWN = {
    "<think>No": "",
    "<think>Not this.</think>Rome.": "Rome.",
    "Rome <thi": "Rome ",
    "Rome <b>": "Rome <b>",
    " \n Rome.": "Rome.",
    CALLED + '{"beca': "",
    CALLED + '{"because": "To know': "To know",
    CALLED + '{"because": "To know", "steps": [{"id": "a", "title": "Look': "To know\nLook",
    CALLED + '{"steps": [{"kind": "x", "title": "Look"}, {"title": "Book", "args": {"title": "no"': "Look\nBook",
    CALLED + '{"because": 7, "steps": [7, {"title": {}}]}': "",
    CALLED + "no JSON": "",
    CALLED + "7": "",
}


@pytest.mark.parametrize(("written", "shown"), SHOWN.items(), ids=SHOWN)
def test_words_are_shown_as_far_as_they_came(written: str, shown: str) -> None:
    """No reasoning between marks, which may be half written; of arguments those that the tool's definition names."""
    draft = ChatCompletions(MODEL, Endpoint(KEY))._draft()
    delta = call_delta(written.removeprefix(CALLED)) if written.startswith(CALLED) else {"content": written}
    draft.add(ChatCompletionChunk.model_validate(chunk(delta)))
    tools = [ToolDefinition("weather", "", {}, words=("because", "steps.title"))]

    assert spoken.words(draft, replace(request(ASKED), tools=tools)) == (len(shown), shown)


# Streams that break or are slow while a whole task runs


@quickly_one
@pytest.mark.parametrize("then", ["drop", "stall"])
async def test_half_a_call_is_never_executed(client: Client, tmp_path: Path, provider: str, then: Any) -> None:
    """The attempt is repeated once, with one request, and only the whole call is made.

    A reader is told that the attempt is the second and why it is made, with what comes of its reply.
    """
    plan_ = {"because": "Rome is warmer, " * 40, "steps": [step("price", "get_price", sku="A-17")]}
    price = ModelReply((ModelCall("propose_plan", plan_),))
    half = number_of_events(provider, price) // 2  # a stall before the first word is a slow server's right
    script = (Streamed(price, events=half, then=then), Streamed(price, pause=0.1), finishes("24.50"))
    async with running(api_of(provider, *script)) as api:
        planner = ModelPlanner(model_of(provider, api, idle_timeout=IDLE))
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            handle = await stage.start()
            told = [event async for event in TaskHandle(client, handle.id).follow()]
            ended = await outcome(handle)
    retried = [event for event in told if isinstance(event, RequestRetried)]
    thinking = [event for event in told if isinstance(event, Thinking) and event.tokens]

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "24.50")
    assert [step.args for step in ended.steps] == [{"sku": "A-17"}]
    assert (len(api.bodies), api.violations, ended.spent.model_calls) == (3, [], 3)
    assert ended.spent.tokens > 260
    assert {(event.activity, event.attempt.number) for event in retried} == {("plan:1", 2)}
    assert retried[0].attempt.code in ("unreachable", "timeout", "server_error")
    assert thinking and {event.attempt for event in thinking} <= {1, 2} and thinking[-1].attempt == 2


@quickly_one
async def test_the_tokens_that_came_are_shown_and_nothing_else(client: Client, tmp_path: Path, provider: str) -> None:
    """The count grows in the live view, and no text of the reply is in a heartbeat."""
    slow = Streamed(finishes("Rome is warmer, " * 40), pause=0.1)
    async with (
        running(api_of(provider, slow)) as api,
        staged(client, tmp_path, TOOLS, ModelPlanner(model_of(provider, api))) as stage,
    ):
        handle = await stage.start()
        counts, frames, heartbeats = list[int](), list[str](), b""
        while len({*counts} - {0}) < 2:
            state, seen = await fetch_state(client, handle), await handle.describe()
            heartbeats += b"".join(
                one.heartbeat_details.SerializeToString() for one in seen.raw_description.pending_activities
            )
            if state and state.snapshot and state.snapshot.thinking:
                counts += state.snapshot.thinking.values()
                frames += running_frame(state.snapshot, None, (), 100, 20)
            await asyncio.sleep(0.2)
        ended = await outcome(handle)

    assert ended.status is TaskStatus.COMPLETED
    assert counts == sorted(counts) and b"Rome" not in heartbeats
    assert any(line.endswith(f": thinking, {counts[-1]} tokens") for line in frames), frames
