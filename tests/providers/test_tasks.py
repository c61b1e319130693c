"""Whole tasks on a real Temporal server, planned by a model behind a server that holds its provider's rules."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.offline.planner import ANSWERS_IN_TEXT, BEGUN, OfflinePlanner
from activities.planning import conversation
from activities.planning.activities import Planning
from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from activities.planning.planner import Exchange, RecordedTurn
from activities.providers.messages import AssistantTurn, StopReason, ToolCall, Usage, UserTurn
from evals.fakes.local_servers import THOUGHT, LocalServer, Quirk
from evals.fakes.model_api import KEY, Json, ModelApi, event_bytes, json_answer, running
from evals.fakes.script import (
    DROPPED,
    ModelCall,
    ModelError,
    ModelReply,
    RawBytes,
    ReceivedRequest,
    Response,
    calls,
    finishes,
    proposes,
    step,
)
from tests.activities.situations import NOW, record
from tests.gate import sampled
from tests.harness import Stage, outcome, staged
from tests.providers.acting import acting, reacting
from tests.providers.desk import PAGE, TOOLS
from tests.providers.planning import MAKER, PROVIDERS, adapter_of, api_of, model_of, other, planning
from tests.providers.wire import DEEPSEEK, WHOLE
from tests.workflows.history import timers
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.records import Revision, StepStatus
from workflows.account.task import Remains, Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.planning.situation import Situation
from workflows.plans.catalogue import FORM, Price
from workflows.plans.proposal import BY_HAND, Answer, NewSteps, Proposed, Step


@asynccontextmanager
async def planned(
    client: Client, folder: Path, provider: str, *script: Response
) -> AsyncIterator[tuple[ModelApi, Stage]]:
    """A model API with a script, and a worker that plans with it."""
    async with planning(provider, *script) as (api, planner), staged(client, folder, TOOLS, planner) as stage:
        yield api, stage


PRICES = proposes(
    step("a", "get_price", sku="A-17"),
    step("b", "get_price", sku="B-2"),
    step("sum", "add", amounts=[{"$from": "a", "path": "amount"}, {"$from": "b", "path": "amount"}]),
)


async def test_a_task_is_planned_carried_out_and_answered(client: Client, tmp_path: Path, provider: str) -> None:
    """Two steps at once, a third that takes their results, and the model sees them before it answers."""
    async with planned(client, tmp_path, provider, PRICES, finishes("26.50 in all")) as (api, stage):
        ended = await stage.run("what do A-17 and B-2 cost together?")

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "26.50 in all")
    assert ended.planner == f"{MAKER[provider]}:some-model@{api.url.removeprefix('http://')}"
    assert (ended.spent.model_calls, ended.spent.tokens, ended.spent.tool_calls) == (2, 260, 3)
    assert (len(api.bodies), api.violations) == (2, [])
    assert "26.5" in json.dumps(api.bodies[1])


async def test_a_refused_step_leads_to_another_plan(client: Client, tmp_path: Path, provider: str) -> None:
    """The model is told what was refused and what is free, and what it had finished stays."""
    script = (
        proposes(step("price", "get_price", sku="A-17"), step("slot", "book", at="14:00")),
        proposes(step("slot-2", "book", at="14:30")),
        finishes("14:30"),
    )
    async with planned(client, tmp_path, provider, *script) as (api, stage):
        ended = await stage.run("book a slot at 14:00 and look up the price of A-17")
    states = {one.id: one.status for one in ended.steps}

    assert (ended.status, ended.replans) == (TaskStatus.COMPLETED, 1)
    assert states == {"price": StepStatus.COMPLETED, "slot": StepStatus.FAILED, "slot-2": StepStatus.COMPLETED}
    assert "14:30" in json.dumps(api.bodies[1]) and api.violations == []


@pytest.mark.parametrize("strategy", ["plan", "react"])
async def test_a_model_that_follows_hand_written_plans_has_seen_them(
    client: Client, tmp_path: Path, provider: str, strategy: Literal["plan", "react"]
) -> None:
    """It is asked once, told the rejection and what followed it as its own turns, and only its answer is counted."""
    first = (Step(id="slot", kind="book", args={"at": "14:00"}),)
    then = NewSteps(steps=(Step(id="later", kind="book", args={"at": "14:30"}),))
    task = Task(text="book a slot", plan=first, revisions=(then,), strategy=strategy)
    answer = finishes("14:30") if strategy == "plan" else ModelReply(text="14:30")
    async with planned(client, tmp_path, provider, answer) as (api, stage):
        ended = await stage.run(task)
    sent = json.dumps(api.bodies[0])

    assert (ended.status, ended.result, ended.replans) == (TaskStatus.COMPLETED, "14:30", 1)
    assert ([one.planner for one in ended.revisions], ended.spent.model_calls) == ([BY_HAND, BY_HAND], 1)
    assert ended.planner.startswith(MAKER[provider])
    assert ("was refused (conflict)" in sent, "later is finished" in sent, api.violations) == (True, True, [])


CIRCLE = step("a", "book", "b", at="14:30"), step("b", "book", "a", at="15:00")
WRONG = {
    "unknown kind": (proposes(step("slot", "bok", at="14:30")), "did you mean book"),
    "unknown argument": (proposes(step("slot", "book", when="14:30")), "has no argument 'when'"),
    "misfit": (proposes(step("slot", "book", at="soon")), "'at'"),
    "unknown step": (proposes(step("slot", "book", at={"$from": "nothing"})), "which does not exist"),
    "circle": (proposes(*CIRCLE), "need each other in a circle"),
    "refusal": (ModelReply(refusal="I cannot."), "you declined to answer"),
}


@pytest.mark.parametrize(("wrong", "reason"), sampled(WRONG, "misfit", "unknown step", "refusal"))
async def test_a_model_mends_its_own_mistake(
    client: Client, tmp_path: Path, provider: str, wrong: ModelReply, reason: str
) -> None:
    """It is told exactly what is wrong, and nothing of the bad plan is carried out."""
    script = (wrong, proposes(step("slot", "book", at="14:30")), finishes())
    async with planned(client, tmp_path, provider, *script) as (api, stage):
        ended = await stage.run("book a slot at 14:30")

    assert (ended.status, len(ended.steps), ended.spent.tool_calls) == (TaskStatus.COMPLETED, 1, 1)
    assert reason in json.dumps(api.bodies[1]) and api.violations == []


async def test_a_model_that_does_not_mend_it_leads_to_a_person(client: Client, tmp_path: Path, provider: str) -> None:
    async with planned(client, tmp_path, provider, ModelReply(text="No.")) as (api, stage):
        ended = await stage.run()

    assert (ended.status, ended.code, len(api.bodies)) == (TaskStatus.ESCALATED, "proposals_rejected", 3)


UNUSABLE = {
    "anthropic": ModelError(401, "authentication_error", f"invalid x-api-key {KEY}"),
    "openai": ModelError(429, "insufficient_quota", "You exceeded your current quota", "insufficient_quota"),
}


async def test_the_next_provider_takes_over(client: Client, tmp_path: Path, provider: str) -> None:
    """One request to the one that cannot be used, none of them retried; the task names who answered."""
    async with (
        planning(provider, UNUSABLE[MAKER[provider]]) as (first, broken),
        planning(other(provider), PRICES, finishes()) as (second, whole),
        staged(client, tmp_path, TOOLS, FallbackPlanner([broken, whole])) as stage,
    ):
        ended = await stage.run("what do they cost?")

    assert (ended.status, ended.planner) == (TaskStatus.COMPLETED, whole.name)
    assert (len(first.bodies), len(second.bodies)) == (2, 2)  # each request begins with the first planner


BUSY = ModelError(429, "rate_limit_error", headers={"retry-after": "2"})
CURABLE: dict[str, tuple[Response, float]] = {
    "overloaded": (ModelError(529, "overloaded_error", "Overloaded", headers={"x-should-retry": "true"}), 0),
    "busy for two seconds": (BUSY, 2),
    "error": (ModelError(500, "api_error"), 0),
    "conflict": (ModelError(409, "conflict_error"), 0),
    "dropped": (DROPPED, 0),
}


@pytest.mark.parametrize(("move", "least"), sampled(CURABLE, "overloaded", "busy for two seconds"))
async def test_one_request_for_each_attempt(
    client: Client, tmp_path: Path, provider: str, move: Response, least: float
) -> None:
    """Time cures it, and Temporal alone retries, after the wait that was asked for; history counts each request."""
    async with planned(client, tmp_path, provider, move, move, finishes()) as (api, stage):
        handle = await stage.start()
        ended = await outcome(handle)
        history = await handle.fetch_history()
    kind = EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
    begun = [one.activity_task_started_event_attributes for one in history.events if one.event_type == kind]

    assert (ended.status, len(api.bodies), begun[0].attempt) == (TaskStatus.COMPLETED, 3, 3)
    assert least <= api.times[1] - api.times[0] < (6 if least else 60)


async def test_what_a_page_says_reaches_the_model_fenced(client: Client, tmp_path: Path, provider: str) -> None:
    script = (proposes(step("page", "read_page", sku="A-17")), finishes())
    async with planned(client, tmp_path, provider, *script) as (api, stage):
        ended = await stage.run()
    last = str(api.bodies[-1])

    assert ended.steps[0].result == {"text": PAGE}
    assert last.index('<data from="page">') < last.index(PAGE) < last.index("</data>", last.index(PAGE))


# Planners that take over from a model in the middle of a task, and workers that have none: nothing is done again


NO_KEY = ModelError(401, "authentication_error", code="invalid_api_key")


def booker(at: str, fails: int = 1) -> Any:
    """A model that books one slot, whose key is refused then so many times."""
    asked = list[None]()

    def move(heard: ReceivedRequest) -> Response:
        asked.append(None)
        if not heard.turn:
            return calls(ModelCall("book", {"at": at}))
        return NO_KEY if len(asked) < 2 + fails else ModelReply(text="Done.")

    return move


async def taken_over(client: Client, folder: Path, api: ModelApi, provider: str, task: Task) -> Outcome:
    """What comes of a task that the rules plan where the model cannot."""
    async with running(api):
        planner = FallbackPlanner([ModelPlanner(model_of(provider, api)), OfflinePlanner()])
        async with staged(client, folder, TOOLS, planner) as stage:
            return await stage.run(task)


async def test_no_rule_calls_a_task_done_that_a_model_had_only_begun(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """What a model chose turn by turn may be half of the task: the rules neither repeat it nor say that it is all."""
    api = api_of(provider, booker("15:00", fails=9))
    ended = await taken_over(client, tmp_path, api, provider, reacting("book 15:00, then look up a price"))

    assert (ended.status, ended.code, ended.reason) == (TaskStatus.FAILED, "gave_up", BEGUN)
    assert [(step.id, step.status) for step in ended.steps] == [("t1.c0", StepStatus.COMPLETED)]


async def test_the_rules_mend_a_call_of_a_model_that_came_back(client: Client, tmp_path: Path, provider: str) -> None:
    """With an id that a step may have; and the model goes on from there as soon as it can be asked."""
    api = api_of(provider, booker("14:00"))
    ended = await taken_over(client, tmp_path, api, provider, reacting())

    assert (ended.status, ended.result, api.violations) == (TaskStatus.COMPLETED, "Done.", [])
    assert [(step.id, step.status, step.args["at"]) for step in ended.steps] == [
        ("t1.c0", StepStatus.FAILED, "14:00"),
        ("t1_c0-2", StepStatus.COMPLETED, "14:30:00"),
    ]
    assert "14:30" in api.requests[-1].all_text


RECORD = record(Step(id="a", kind="get_price", args={"sku": "A-17"}), "completed", result={"amount": 24.5})


async def test_a_task_that_began_without_a_conversation_is_told_as_a_whole(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """A long one whose newest run finds a model: it hears what was done before, and does not do it once more."""

    def buyer(heard: ReceivedRequest) -> Response:
        return ModelReply(text="24.5" if "24.5" in heard.all_text and "find the price" in heard.all_text else "nothing")

    begun: dict[str, Any] = {"form": FORM, "task_id": "x", "started_at": NOW, "turn": 1, "planner": "offline"}
    given = Progress(task=reacting("find the price"), records=[RECORD], revisions=[Revision(number=1)], **begun)
    async with acting(client, tmp_path, provider, buyer) as one:
        id = f"taken-{provider}-{tmp_path.name}"
        handle = await client.start_workflow(AgentWorkflow.run, given, id=id, task_queue=one.stage.queue)
        ended = await outcome(handle)

    assert (ended.status, ended.result, one.api.violations) == (TaskStatus.COMPLETED, "24.5", [])


async def test_rules_open_no_conversation(client: Client, tmp_path: Path) -> None:
    """So that a model which plans a later run knows that it has to be told all."""
    async with staged(client, tmp_path, TOOLS, OfflinePlanner()) as stage:
        handle = await stage.start("nothing that it knows")
        await outcome(handle)
        progress = await handle.query(AgentWorkflow.progress)

    assert (progress.turn, progress.is_opened) == (1, False)


async def test_a_worker_without_the_model_does_not_plan_from_the_news_alone() -> None:
    """As after a start without its key: a person starts the right one; no rule takes the news for the task."""
    news = Situation(turn=2, now=NOW, converses=True)
    with pytest.raises(ApplicationError, match="offline keeps no conversation: start a worker with the planner"):
        await ActivityEnvironment().run(Planning(OfflinePlanner(), {}, searchable=True).plan, news)


@pytest.mark.parametrize("provider", ["anthropic"])
async def test_what_an_earlier_task_left_is_no_step_of_this_one(client: Client, tmp_path: Path, provider: str) -> None:
    """The rules plan the new task when they take over in its first turn."""
    api = api_of(provider, lambda heard: NO_KEY if heard.turn else ModelReply(text="Done."))
    async with running(api):
        planner = FallbackPlanner([ModelPlanner(model_of(provider, api)), OfflinePlanner()])
        async with staged(client, tmp_path, TOOLS, planner) as stage:
            first = await stage.start(reacting())
            await outcome(first)
            run = first.first_execution_run_id
            more = {"continues": run, "remains": Remains(records=(RECORD,), is_tainted=False)}
            ended = await stage.run(Task(text="calculate 1 + 1", **more))

    assert (ended.status, ended.code) == (TaskStatus.FAILED, "gave_up")
    assert "needs the kind calculate" in ended.reason


async def test_no_rule_answers_where_the_answer_is_to_fit_a_schema(
    client: Client, tmp_path: Path, provider: str
) -> None:
    """What the user's program reads would be another thing; nothing is done before that is said."""
    task = Task(text="get the price of A-17", result_schema={"type": "object"})
    ended = await taken_over(client, tmp_path, api_of(provider, NO_KEY), provider, task)

    assert (ended.status, ended.reason, ended.steps) == (TaskStatus.FAILED, ANSWERS_IN_TEXT, ())


# Models of vendors that add fields, or whose replies cannot be read


BOOKS = calls(ModelCall("book", {"at": "14:30"}))
PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)


@dataclass
class DeepSeek(LocalServer):
    """Thinks before each reply, and wants each thought back."""

    quirks: frozenset[Quirk] = frozenset([Quirk.REASONING])

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Response:
        said = [one for one in body["messages"] if one["role"] == "assistant"]
        if any(one.get("reasoning_content") != THOUGHT for one in said):
            return ModelError(400, "invalid_request_error", DEEPSEEK)
        return super().answer(path, headers, body)


async def test_a_task_gives_each_thought_back(client: Client, tmp_path: Path) -> None:
    """In each request, also after a mistake of the model and after an empty reply."""
    api = DeepSeek([BOOKS, ModelReply(), calls(ModelCall("bok", {})), ModelReply(text="It is booked.")])
    async with running(api), staged(client, tmp_path, TOOLS, ModelPlanner(adapter_of("openai", api))) as stage:
        ended = await stage.run(reacting())

    assert (ended.status, ended.result, ended.spent.model_calls) == (TaskStatus.COMPLETED, "It is booked.", 4)
    assert (len(api.bodies), api.violations) == (4, [])


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_next_vendor_gets_no_thought_of_the_first(client: Client, tmp_path: Path, provider: str) -> None:
    """The rest of the conversation is the same, and holds its rules."""
    first = DeepSeek([BOOKS, ModelError(402, "insufficient_quota", code="insufficient_quota")])
    async with running(first), planning(provider, ModelReply(text="It is booked.")) as (second, ready):
        planners = FallbackPlanner([ModelPlanner(adapter_of("openai", first)), ready])
        async with staged(client, tmp_path, TOOLS, planners) as stage:
            ended = await stage.run(reacting())

    assert (ended.status, ended.result, ended.planner) == (TaskStatus.COMPLETED, "It is booked.", ready.name)
    assert second.violations == [] and THOUGHT not in str(second.bodies) and len(second.bodies) == 1


def test_a_message_keeps_its_fields_after_a_summary() -> None:
    """Those of Messages and Responses stay, too, where the adapter finds them valid."""
    now = Situation(turn=1, now=datetime(2026, 11, 1, tzinfo=UTC), text="x", strategy="react")
    call = ToolCall("c", "book", {})
    said = AssistantTurn("", (call,), ({"type": "x"},), "m", vendor={"reasoning_content": "I look."})

    def turn(number: int, upto: int = 0) -> RecordedTurn:
        exchange = Exchange(UserTurn("go on"), said, StopReason.CALLS, Usage())
        return RecordedTurn("t", 0, number, now, Proposed(proposal=Answer(result=None)), exchange, upto)

    found = conversation.turns([turn(1), turn(2), turn(3, upto=1)], now)
    kept = [one for one in found if isinstance(one, AssistantTurn)]

    assert kept == [replace(said, follows_summary=True)]


def unreadable(provider: str, *, is_counted: bool) -> RawBytes:
    """A stream that becomes unreadable, before or after its count."""
    events = [event_bytes(event) for event in WHOLE[provider] if isinstance(event, dict)]
    cut = [*events[:-1], b'data: {"type": \n\n'] if is_counted else [events[0], b'data: {"type": \n\n']
    return RawBytes(json_answer(200, b"".join(cut), **{"content-type": "text/event-stream"}))


@pytest.mark.parametrize(("is_counted", "has_next"), [(True, True), (False, True), (False, False)])
async def test_an_unreadable_stream_is_asked_for_once_more_and_paid_twice(
    client: Client, tmp_path: Path, is_counted: bool, has_next: bool
) -> None:
    """Then the next planner plans, or a person is asked, since it is no outage that ends by itself: nothing waits."""
    raw = unreadable("openai", is_counted=is_counted)
    async with running(api_of("openai", raw)) as first, planning("anthropic", ModelReply(text="Done.")) as (_, ready):
        planners = [ModelPlanner(adapter_of("openai", first), price=PRICE), *([ready] if has_next else [])]
        async with staged(client, tmp_path, TOOLS, FallbackPlanner(planners), jitter=lambda: 0.01) as stage:
            handle = await stage.start(reacting(usd=None if has_next else 5.0))
            ended = await outcome(handle)
    tokens = ended.spent.tokens - (130 if has_next else 0)

    assert (len(first.bodies), ended.spent.model_calls, await timers(handle)) == (2, 2 + has_next, [])
    assert tokens == 2 * 120 if is_counted else tokens > 32_000
    if has_next:
        assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "Done.")
    else:
        assert ended.status is TaskStatus.ESCALATED and "twice" in ended.reason and (ended.spent.usd or 0) > 0.4
