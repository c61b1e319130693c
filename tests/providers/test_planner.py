"""The planner on a model: what it is told, what it may answer, and what becomes of answers that are none."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types
from pydantic import BaseModel
from temporalio.client import Client

from activities.borders import classify
from activities.errors import Unreachable
from activities.planning.checks import why_task_is_refused
from activities.planning.conversation import split_situation, turns
from activities.planning.model_planner import REPLY_PART, ModelPlanner
from activities.planning.selection import PlannerSelection
from activities.planning.strategies import PROPOSE, propose_plan
from activities.providers.messages import Turn, UserTurn
from activities.providers.metering import start_meter
from activities.providers.registry import takes_effort
from activities.toolbox.registry import Registry
from evals.fakes.model_api import KEY, ModelApi, running
from evals.fakes.script import (
    Delayed,
    ModelCall,
    ModelError,
    ModelReply,
    ReceivedRequest,
    Response,
    asks,
    calls,
    finishes,
    gives_up,
    proposes,
    step,
)
from replan import tool
from tests.activities.situations import FREE, KINDS, asked, fault, record, refused, step as planned
from tests.gate import sampled
from tests.harness import staged
from tests.providers.acting import acting
from tests.providers.desk import TOOLS
from tests.providers.planning import CUT_OFF, LIMIT, MAKER, api_of, model_of, planning, quickly_one
from workflows.account.task import Task, TaskStatus
from workflows.faults.fault import Code
from workflows.limits.spending import MAX_OUTPUT
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Proposed, Question

BOOK = step("book", "book_slot", day="2025-11-21", at="14:00", name="team")


async def propose(provider: str, *script: Response, about: Situation | None = None) -> tuple[ModelApi, Proposed]:
    """What the planner makes of the model's answer."""
    async with planning(provider, *script) as (api, planner):
        return api, await planner.propose(about or asked("book a slot"), KINDS)


def told_of(situation: Situation) -> list[Turn]:
    """The conversation that led to a situation which is told as a whole."""
    past, news = split_situation(situation)
    return turns(past, news)


PROPOSALS = {
    "steps": (proposes(BOOK), NewSteps),
    "answer": (finishes("It is booked."), Answer),
    "question": (asks("For whom?"), Question),
    "end": (gives_up("There is no such kind."), GiveUp),
}


@pytest.mark.parametrize(("said", "expected"), PROPOSALS.values(), ids=PROPOSALS)
async def test_each_call_is_a_proposal(provider: str, said: ModelReply, expected: type) -> None:
    """With the planner's name and what it cost by the provider's own count."""
    api, proposed = await propose(provider, said)

    assert isinstance(proposed.proposal, expected) and proposed.rejected == ()
    assert (proposed.model_calls, proposed.tokens, api.violations) == (1, 130, [])
    assert proposed.planner.startswith(f"{MAKER[provider]}:some-model@127.0.0.1:")


USELESS: dict[str, tuple[ModelReply, str]] = {
    "text": (ModelReply(text="I would book it."), "you answered with text where a call was wanted"),
    "nothing": (ModelReply(), "your answer was empty"),
    "spaces": (ModelReply(text="  \n"), "your answer was empty"),
    "refusal": (ModelReply(refusal="I cannot."), "you declined to answer"),
    "two calls": (ModelReply((*proposes(BOOK).calls, *finishes().calls)), "you made 2 calls at once"),
    "unknown tool": (ModelReply((ModelCall("propose_plans", {}),)), "did you mean propose_plan?"),
    "a kind": (
        ModelReply((ModelCall("book_slot", {"at": "14:00"}),)),
        "book_slot is a kind of step, which you cannot call",
    ),
    "strange tool": (ModelReply((ModelCall("xyz", {}),)), "there is no tool 'xyz': call propose_plan, finish"),
    "no steps": (proposes(), "the plan has no steps"),
    "no plan": (ModelReply((ModelCall(PROPOSE, {}),)), "'steps' field required"),
    "no kind": (ModelReply((ModelCall(PROPOSE, {"steps": [{"id": "a"}]}),)), "'steps.0.kind' field required"),
    "more fields": (proposes({**BOOK, "when": "now"}), "'steps.0.when' extra inputs are not permitted"),
    "empty answer": (finishes(""), "finish needs 'result', which is missing or empty"),
}


@pytest.mark.parametrize(("said", "reason"), sampled(USELESS, "text", "nothing", "refusal", "two calls", "no kind"))
@quickly_one
async def test_what_a_model_does_wrong_is_said_exactly(provider: str, said: ModelReply, reason: str) -> None:
    """It goes back through the workflow; the tokens are spent all the same."""
    _, proposed = await propose(provider, said)

    assert len(proposed.rejected) == 1 and reason in proposed.rejected[0].text
    assert proposed.tokens == 130


@pytest.mark.parametrize(("whose", "word"), CUT_OFF.items())
async def test_a_call_that_was_cut_off_is_never_carried_out(whose: str, word: str) -> None:
    _, proposed = await propose(whose, ModelReply(proposes(BOOK).calls, stop=word))

    assert isinstance(proposed.proposal, GiveUp) and "cut off before its end" in proposed.rejected[0].text


def after_a_refusal() -> Situation:
    """Plan 1: a price was found, the slot was taken, a receipt never began."""
    price = record(planned("price", "get_price", {"sku": "A-17"}), "completed", result={"price": "24.50"})
    receipt = record(planned("receipt", "write_file", {"name": "a", "text": "b"}, needs=("book",)), "skipped")
    return refused(price, receipt, faults=(fault("book", observed=FREE),), calls_left=9, down=("search",))


ROLES = {
    "anthropic": ["user", "assistant", "user"],
    "openai": ["system", "user", "assistant", "tool", "user"],
    "responses": ["user", "function_call", "function_call_output", "user"],
}


async def test_a_replan_is_the_next_turn_of_the_same_conversation(provider: str) -> None:
    """The first plan as the call that it was, what became of it as its result, then what was seen since.

    Last comes what is true now: the time, what is left, what is down, and the fresh look at the world.
    """
    api, _ = await propose(provider, finishes(), about=after_a_refusal())
    body = api.bodies[0]
    messages = body["input"] if "input" in body else body["messages"]
    last = json.dumps(messages[-1])

    assert api.violations == []
    assert [message.get("role") or message["type"] for message in messages] == ROLES[provider]
    assert "Friday, 2025-11-21 12:00 UTC. 9 tool calls are left." in last
    assert "may not be used: search" in last and "after the refusal of book, with list_slots" in last


def test_a_refusal_says_what_was_refused_what_was_seen_and_what_may_be_tried() -> None:
    """As text for a model; finished steps with their results, steps that never began as such."""
    last = told_of(after_a_refusal())[-1]
    assert isinstance(last, UserTurn)
    told = last.results[0].text

    assert 'book was refused (conflict). The reason:\n<data from="book">\n"It is taken."' in told
    assert '"14:30"' in told and "change it by what was seen" in told
    assert 'price is finished. Its result:\n<data from="price">\n{"price":"24.50"}\n</data>' in told
    assert "receipt never started" in told and last.results[0].is_error


@quickly_one
async def test_an_answer_that_does_not_come_is_a_timeout(provider: str) -> None:
    async with running(api_of(provider, Delayed(60))) as api:
        planner = ModelPlanner(model_of(provider, api), timeout=2)
        with pytest.raises(Unreachable, match="gave no answer within 2 s") as raised:
            await planner.propose(asked("book a slot"), KINDS)

    assert classify(raised.value).code is Code.TIMEOUT


def test_a_planner_shows_no_key() -> None:
    planner = ModelPlanner(model_of("openai", api_of("openai", finishes())))

    assert KEY not in repr(vars(planner)) + repr(vars(planner._model)) + planner.name


# The schema that a model's plan is held to


class Line(BaseModel):
    """Part of an order."""

    sku: str
    pieces: int


class Order(BaseModel):
    """Arguments of every shape."""

    lines: list[Line]
    prices: dict[str, float]
    first: Line | None = None
    size: Literal["small", "large"]


@tool.read
async def check_order(args: Order) -> Order:
    """Check an order."""
    return args


def ordered(**args: Any) -> dict[str, Any]:
    """A step that checks an order."""
    return step("order", "check_order", **args)


REFERENCE = {"$from": "a", "path": "b.0"}
LINE = {"sku": "A-17", "pieces": 2}
FITS: dict[str, tuple[dict[str, Any], bool]] = {
    "values": (BOOK, True),
    "a reference": (step("a", "calculate", expression={"$from": "price", "path": "price"}), True),
    "unknown kind": (step("a", "teleport"), False),
    "missing argument": (step("a", "book_slot", day="2025-11-21"), False),
    "another kind's": (step("a", "calculate", sku="A-17"), False),
    "no id": ({"kind": "calculate", "args": {"expression": "1"}}, False),
    "a number": (step("a", "calculate", expression=3), False),
    "an order": (ordered(lines=[LINE], prices={"A-17": 2}, size="small"), True),
    "references": (ordered(lines=REFERENCE, prices=REFERENCE, first=REFERENCE, size=REFERENCE), True),
    "references in lists and dictionaries": (
        ordered(lines=[REFERENCE, {**LINE, "sku": REFERENCE}], prices={"A-17": REFERENCE}, size="large"),
        True,
    ),
    "a reference in a model": (
        ordered(lines=[LINE], prices={}, first={**LINE, "pieces": REFERENCE}, size="small"),
        True,
    ),
    "half a line": (ordered(lines=[{"sku": "A-17"}], prices={}, size="small"), False),
    "no price": (ordered(lines=[LINE], prices={"A-17": "dear"}, size="small"), False),
    "no such size": (ordered(lines=[LINE], prices={}, size="huge"), False),
}


@pytest.mark.parametrize(("one", "fits"), FITS.values(), ids=FITS)
def test_the_schema_allows_what_can_be_planned(one: dict[str, Any], fits: bool) -> None:
    """Kinds of the catalogue, the arguments of each, and a reference for any part; the rest keeps its own shape."""
    kinds = Registry([check_order]) if one["kind"] == "check_order" else KINDS

    assert Draft202012Validator(propose_plan(kinds).schema).is_valid({"steps": [one]}) is fits


# How much a model reasons, how long its replies may be, and in which form it answers, as a task asks for it


KEYS = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "b"}
SENT: dict[str, dict[str, Any]] = {
    "anthropic": {"output_config": {"effort": "low"}},
    "openai": {"reasoning_effort": "low"},
    "responses": {"reasoning": {"effort": "low"}},
}
"""How each API is told."""


async def ran(client: Client, folder: Path, provider: str, *script: Any, **more: Any) -> tuple[Any, Any]:
    """A task with these fields, and the server that its planner asked."""
    async with planning(provider, *script) as (api, planner), staged(client, folder, TOOLS, planner) as stage:
        api.fields |= {"reasoning_effort"}
        return await stage.run(Task(text="what does A-17 cost?", **more)), api


async def test_a_task_says_how_much_its_model_reasons(client: Client, tmp_path: Path, provider: str) -> None:
    """Each API has its own parameter; without the option none is sent."""
    ended, api = await ran(client, tmp_path, provider, finishes("24.50"), effort="low", reply_tokens=40_000)
    _, usual = await ran(client, tmp_path, provider, finishes("24.50"))
    [body], [without] = api.bodies, usual.bodies

    assert (ended.status, api.violations, usual.violations) == (TaskStatus.COMPLETED, [], [])
    assert {name: body.get(name) for name in SENT[provider]} == SENT[provider]
    assert not without.keys() & {"output_config", "reasoning_effort", "reasoning"}
    assert (body[LIMIT[provider]], without[LIMIT[provider]]) == (40_000, 16_000)


async def test_a_reply_that_is_all_reasoning_names_both_options(client: Client, tmp_path: Path, provider: str) -> None:
    """To propose less would not help: nothing was proposed."""
    silent = ModelReply(stop=CUT_OFF[provider], thinking="" if provider == "openai" else "Hm. " * 40)
    ended, _ = await ran(client, tmp_path, provider, silent)

    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "proposals_rejected")
    assert "--reply-tokens" in ended.reason and "--effort low" in ended.reason
    assert "fewer steps" not in ended.reason


HAVE = ["claude-opus-4-5", "claude-sonnet-4-6", "claude-opus-4-8", "claude-sonnet-5-5", "claude-haiku-5-5"]
LACK = ["claude-3-7-sonnet-20250219", "claude-sonnet-4-20250514", "claude-sonnet-4-5-20250929", "claude-haiku-4-5"]
NAMES = [
    *((f"anthropic:{name}", True) for name in HAVE),
    *((f"anthropic:{name}", False) for name in LACK),
    *((f"openai:{name}", True) for name in ("gpt-5.4-mini", "o3", "gpt-7")),
    *((f"openai:{name}", False) for name in ("gpt-4.1", "gpt-4o-mini")),
    ("openai:qwen3@localhost:11434", True),
]


@pytest.mark.parametrize(("name", "takes"), NAMES)
def test_which_models_have_efforts(name: str, takes: bool) -> None:
    """By the pages of their providers; a model that is not known may, and then its provider decides."""
    assert takes_effort(name) is takes


@pytest.mark.parametrize("planner", ["openai:gpt-4.1", "anthropic:claude-haiku-4-5", "openai:o3, openai:gpt-4o"])
def test_an_effort_that_a_model_lacks_is_refused(planner: str) -> None:
    """Before anything is asked, with the model's name and what to do."""
    chosen = PlannerSelection(planner, KEYS).planner
    why = why_task_is_refused({"effort": "low"}, chosen, {}, {}, None, None)

    assert why is not None and planner.split(", ")[-1] in why
    assert "leave it out, or name a model that reasons (--planner)" in why
    assert why_task_is_refused({}, chosen, {}, {}, None, None) is None


def test_the_offline_planner_has_no_effort() -> None:
    why = why_task_is_refused({"effort": "low"}, PlannerSelection("offline", {}).planner, {}, {}, None, None)

    assert why is not None and why.startswith("--effort is for models, and offline plans here")


# How long a reply may be


async def limit(provider: str, window: int | None = None, **more: Any) -> int | None:
    """The limit that a request says."""
    async with running(api_of(provider, finishes())) as api:
        await ModelPlanner(model_of(provider, api), window=window).propose(asked("do it", **more), KINDS)

    found = api.bodies[0].get(LIMIT[provider])
    return None if found is None else int(found)


async def test_a_budget_and_a_window_limit_a_reply(provider: str) -> None:
    """Wherever the server is, and however much is left; a small window keeps room for what is told.

    Without them, a server of one's own decides by itself: its window may be smaller than the usual length, which
    Anthropic wants to be told.
    """
    assert [await limit(provider, max_output=most) for most in (700, MAX_OUTPUT)] == [700, MAX_OUTPUT]
    assert await limit(provider, window=8_000) == 8_000 // REPLY_PART
    assert await limit(provider) == (MAX_OUTPUT if provider == "anthropic" else None)


TOO_LONG = {
    "openai": "This model's maximum context length is 8192 tokens.",
    "anthropic": "input length and `max_tokens` exceed context limit: 900 + 16000 > 8192",
}


@pytest.mark.parametrize(("provider", "requests"), [("openai", 2), ("responses", 2), ("anthropic", 1)])
async def test_a_window_that_does_not_hold_the_limit_is_a_limit_itself(provider: str, requests: int) -> None:
    """vLLM rejects a limit that its window does not hold: without one, its answer is shorter. Anthropic wants one."""

    def small(heard: ReceivedRequest) -> Response:
        if LIMIT[provider] in heard.body:
            return ModelError(400, "invalid_request_error", TOO_LONG[MAKER[provider]])
        return finishes()

    meter = start_meter()
    async with running(api_of(provider, small)) as api:
        asking = ModelPlanner(model_of(provider, api)).propose(asked("do it", max_output=MAX_OUTPUT), KINDS)
        [proposed] = await asyncio.gather(asking, return_exceptions=True)

    assert (len(api.bodies), api.violations) == (requests, [])
    assert (isinstance(proposed, Proposed), len(meter.wasted)) == (requests == 2, requests - 1)


# The form of the answer: `--result-schema`

FORMATS = {"output_config", "text", "response_format"}
"""The field of each API for the form of a text."""
TOTAL = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


def spender(last: str) -> Callable[[ReceivedRequest], ModelReply]:
    """A model that calls as long as it may, and then writes this text."""
    look = calls(ModelCall("get_price", {"sku": "A-17"}))
    return lambda heard: look if heard.may_call else ModelReply(text=last)


SCHEMAS = {"object": (TOTAL,), "list": ({"type": "array", "items": {"type": "number"}},)}


@pytest.mark.parametrize("schema", sampled(SCHEMAS, "object"))
async def test_the_last_answer_keeps_the_result_schema(
    client: Client, tmp_path: Path, provider: str, schema: dict[str, Any]
) -> None:
    """When the budget is used up, the model may call nothing, so its text has the form of the answer."""
    text, result = ('{"total": 24.5}', {"total": 24.5}) if schema is TOTAL else ('{"value": [24.5]}', [24.5])
    async with acting(client, tmp_path, provider, spender(text)) as one:
        ended = await one.run(more={"result_schema": schema}, tool_calls=1)
    *before, last = (FORMATS & body.keys() for body in one.api.bodies)

    assert (ended.status, ended.result, ended.result_misfit) == (TaskStatus.OVER_BUDGET, result, "")
    assert (len(last), any(before), one.api.violations) == (1, False, [])


MISFITS = {
    "other words": ("It costs 24.50.", "It costs 24.50.", "where an answer by its schema is wanted"),
    "a misfit": ('{"total": "much"}', {"total": "much"}, "total"),
}


@quickly_one
@pytest.mark.parametrize(("text", "result", "misfit"), MISFITS.values(), ids=MISFITS)
async def test_a_last_answer_that_breaks_the_schema_is_marked(
    client: Client, tmp_path: Path, provider: str, text: str, result: Any, misfit: str
) -> None:
    """Nothing is left to ask for another one: it is kept as it is, and a program need not check it again."""
    async with acting(client, tmp_path, provider, spender(text)) as one:
        ended = await one.run(more={"result_schema": TOTAL}, tool_calls=1)

    assert (ended.status, ended.result) == (TaskStatus.OVER_BUDGET, result)
    assert misfit in ended.result_misfit and ended.result_misfit in ended.reason


@quickly_one
async def test_text_that_keeps_the_schema_is_an_answer(client: Client, tmp_path: Path, provider: str) -> None:
    """It costs no second request that the model did not call `finish`."""
    async with acting(client, tmp_path, provider, ModelReply(text='{"total": 24.5}')) as one:
        ended = await one.run(more={"result_schema": TOTAL})

    assert (ended.status, ended.result, len(one.api.bodies)) == (TaskStatus.COMPLETED, {"total": 24.5}, 1)


@pytest.mark.parametrize(("most", "allowed"), [(1_000, 972), (280, 280)])
async def test_the_schema_of_the_answer_counts_as_a_part_of_the_reply(provider: str, most: int, allowed: int) -> None:
    """The provider tells the model the schema, so the rest of the budget pays both; it is left out if too little is."""
    situation = asked("a task").model_copy(update={"is_last": True, "result_schema": TOTAL, "max_output": most})
    async with planning(provider, ModelReply(text='{"total": 24.5}')) as (api, planner):
        proposed = await planner.propose(situation, KINDS)
    body = api.bodies[0]

    assert (body[LIMIT[provider]], bool(FORMATS & body.keys())) == (allowed, most > allowed)
    assert proposed.proposal == Answer(result={"total": 24.5})
