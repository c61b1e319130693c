"""Whole tasks turn by turn: the model calls the tools itself, sees what came of it, mends its mistakes, and answers."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, JsonValue
from temporalio.client import Client

from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from activities.toolbox.find_tools import MAX_SHOWN, NAME
from evals.fakes.model_api import running
from evals.fakes.script import (
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
from replan import Key, Tool, tool
from tests.gate import sampled
from tests.harness import outcome, staged
from tests.providers.acting import acting, reacting
from tests.providers.desk import TOOLS, Article
from tests.providers.planning import CUT_OFF, FINISHED, MAKER, api_of, model_of, other, planning, quickly_one
from tests.workflows.test_agent_reset import again
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.plans.repeated_calls import REPEATED_NOTICE, WAITED

A17, B2 = ModelCall("get_price", {"sku": "A-17"}), ModelCall("get_price", {"sku": "B-2"})


def amounts(heard: ReceivedRequest) -> list[float]:
    """What the model reads of prices in the results of its newest calls."""
    return [float(found) for result in heard.results for found in re.findall(r'"amount":\s*([\d.]+)', result.text)]


def shopper(heard: ReceivedRequest) -> Response:
    """A model that asks for two prices at once, adds what it was told, and says the sum; it thinks before each call."""
    if not heard.turn:
        return ModelReply((A17, B2), text="I look both up.", thinking="Both are in the list.")
    if heard.turn == 1:
        return ModelReply((ModelCall("add", {"amounts": amounts(heard)}),), thinking="I add them.")
    return ModelReply(text=f"{amounts(heard)[0]:.2f} in all")


async def test_a_task_is_done_turn_by_turn(client: Client, tmp_path: Path, provider: str) -> None:
    """Two calls at once, a third with their results, and the answer is text.

    Results are paired with their calls, in their order, whichever tool was done first. All kinds and the two other ends
    are offered in every turn alike, and each request begins with the one before, so that a cache finds it again.
    """
    async with acting(client, tmp_path, provider, shopper) as one:
        ended = await one.run("what do A-17 and B-2 cost together?")
    first, second, third = one.api.requests

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "26.50 in all")
    assert [step.id for step in ended.steps] == ["t1.c0", "t1.c1", "t2.c0"]
    assert (ended.spent.model_calls, ended.spent.tool_calls, ended.replans) == (3, 3, 0)
    assert [result.call_id for result in second.results] == [call.id for call in second.calls]
    assert (amounts(second), one.api.violations) == ([24.5, 2.0], [])
    assert first.tools == second.tools == third.tools
    assert {*first.tools} == {*(tool.__name__ for tool in TOOLS), "ask", "give_up"}
    assert second.turns[: len(first.turns)] == first.turns and third.turns[: len(second.turns)] == second.turns


async def test_a_server_that_repeats_ids_loses_no_pair(client: Client, tmp_path: Path) -> None:
    """As some compatible servers do: `call_0` in every turn."""
    script = (calls(A17), calls(B2), calls(ModelCall("add", {"amounts": [1, 2]})), shopper)
    async with acting(client, tmp_path, "openai", *script, repeats_ids=True) as one:
        ended = await one.run()
    results = [re.findall(r"[\d.]+(?=})", heard.results[0].text) for heard in one.api.requests[1:]]

    assert [step.id for step in ended.steps] == ["t1.c0", "t2.c0", "t3.c0"]
    assert (results, one.api.violations) == ([["24.5"], ["2.0"], ["3.0"]], [])


def booker(heard: ReceivedRequest) -> Response:
    """A model that books, and takes the first time that is free where the one it wanted is taken."""
    if not heard.turn:
        return calls(ModelCall("book", {"at": "14:00"}), A17)
    if heard.turn == 1:
        free = re.findall(r"14:30", heard.results[0].text + heard.last_text)
        return calls(ModelCall("book", {"at": free[0]}))
    return ModelReply(text="It is booked for 14:30.")


async def test_a_refused_call_is_changed_by_what_was_seen(client: Client, tmp_path: Path, provider: str) -> None:
    """The refusal is the result of the call, with what is free; the sibling's result stays; nothing is retried."""
    async with acting(client, tmp_path, provider, booker) as one:
        ended = await one.run("book a slot at 14:00 and look up the price of A-17")
    states = {step.id: (step.status, step.attempts) for step in ended.steps}
    refused, priced = one.api.requests[1].results

    assert (ended.status, ended.replans) == (TaskStatus.COMPLETED, 1)
    assert states["t1.c0"] == (StepStatus.FAILED, 1) and states["t2.c0"] == (StepStatus.COMPLETED, 1)
    assert "conflict" in refused.text and "24.5" in priced.text and one.api.violations == []
    assert (refused.is_error, priced.is_error) == (provider == "anthropic", False)  # OpenAI's protocol has no mark


ENDS = [
    (asks("For whom?"), TaskStatus.ESCALATED, "question"),
    (gives_up("Nothing here books."), TaskStatus.FAILED, "gave_up"),
]


@pytest.mark.parametrize(("said", "status", "code"), ENDS)
async def test_a_model_may_end_without_an_answer(
    client: Client, tmp_path: Path, provider: str, said: ModelReply, status: TaskStatus, code: str
) -> None:
    async with acting(client, tmp_path, provider, calls(A17), said) as one:
        ended = await one.run()

    assert (ended.status, ended.code, one.api.violations) == (status, code, [])


TOTAL = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


async def test_an_answer_by_a_schema_is_asked_for_again(client: Client, tmp_path: Path, provider: str) -> None:
    """Text and misfits are told what is wrong; what fits is the result, as JSON."""
    written = [ModelReply((ModelCall("finish", {name: 24.5}),)) for name in ("sum", "total")]
    async with acting(client, tmp_path, provider, calls(A17), ModelReply(text="24.50"), *written) as one:
        ended = await one.run(more={"result_schema": TOTAL})
    after_text, after_misfit = one.api.requests[2], one.api.requests[3]

    assert (ended.status, ended.result, one.api.violations) == (TaskStatus.COMPLETED, {"total": 24.5}, [])
    assert "call finish" in after_text.last_text and "total" in after_misfit.results[0].text


UNUSABLE = {
    "anthropic": ModelError(401, "authentication_error"),
    "openai": ModelError(429, "insufficient_quota", "You exceeded your current quota", "insufficient_quota"),
}


async def test_the_next_provider_carries_the_conversation_on(client: Client, tmp_path: Path, provider: str) -> None:
    """In the middle of a task: it is told all that was called and what came of it, whatever the ids were."""
    first = api_of(provider, calls(A17), calls(B2), UNUSABLE[MAKER[provider]])
    second = api_of(other(provider), ModelReply(text="26.50"))
    first.repeats_ids = provider != "anthropic"
    async with running(first), running(second):
        planners = [ModelPlanner(model_of(provider, first)), ModelPlanner(model_of(other(provider), second))]
        async with staged(client, tmp_path, TOOLS, FallbackPlanner(planners)) as stage:
            ended = await outcome(await stage.start(reacting()))
    heard = second.requests[0]

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "26.50")
    assert ([call.args["sku"] for call in heard.calls], heard.turn) == (["A-17", "B-2"], 2)
    assert first.violations + second.violations == [] and len(first.bodies) == 3
    assert [(one.turn, one.planner.partition(":")[0]) for one in ended.failovers] == [(3, MAKER[provider])]


# What models do wrong: each is told exactly, and the task goes on

GOOD = calls(ModelCall("book", {"at": "14:30"}))
WRONG: dict[str, tuple[ModelReply, str]] = {
    "unknown tool": (calls(ModelCall("bok", {"at": "14:30"})), "did you mean book"),
    "a tool of another program": (calls(ModelCall("functions.book", {"at": "14:30"})), "there is no kind"),
    "a name with spaces": (calls(ModelCall("book a slot", {"at": "14:30"})), "there is no kind"),
    "no name": (calls(ModelCall("", {"at": "14:30"})), "there is no kind"),
    "unknown argument": (calls(ModelCall("book", {"when": "14:30"})), "has no argument 'when'"),
    "missing argument": (calls(ModelCall("book", {})), "'at' field required"),
    "misfit": (calls(ModelCall("book", {"at": "soon"})), "'at'"),
    "one of two": (calls(ModelCall("book", {"at": "14:30"}), ModelCall("book", {"at": "soon"})), "'at'"),
    "an end among calls": (calls(ModelCall("book", {"at": "14:30"}), ModelCall("ask", {"question": "Why?"})), "alone"),
    "a question without words": (calls(ModelCall("ask", {})), "needs 'question'"),
    "refusal": (ModelReply(refusal="I cannot."), "you declined"),
    "nothing": (ModelReply(), "your answer was empty"),
    "spaces": (ModelReply(text=" \n "), "your answer was empty"),
    "a reference": (calls(ModelCall("book", {"at": {"$from": "t0.c0"}})), "t0.c0"),
}


@pytest.mark.parametrize(
    ("wrong", "reason"), sampled(WRONG, "unknown tool", "one of two", "an end among calls", "refusal")
)
async def test_a_model_mends_its_own_mistake(
    client: Client, tmp_path: Path, provider: str, wrong: ModelReply, reason: str
) -> None:
    """It is told what is wrong; nothing of the bad turn is carried out, and its calls keep their results."""
    async with acting(client, tmp_path, provider, wrong, GOOD, ModelReply(text="It is booked.")) as one:
        ended = await one.run("book a slot at 14:30")
    heard = one.api.requests[1]
    told = "\n".join([*(result.text for result in heard.results), heard.last_text])

    assert reason in told, told
    assert (ended.status, [step.id for step in ended.steps]) == (TaskStatus.COMPLETED, ["t2.c0"])
    assert (len(heard.results), one.api.violations) == (len(wrong.calls), [])


@pytest.mark.parametrize(("whose", "word"), [*CUT_OFF.items(), ("anthropic", "model_context_window_exceeded")])
async def test_a_call_that_was_cut_off_is_never_made(client: Client, tmp_path: Path, whose: str, word: str) -> None:
    """However whole it looks; its pair stays whole, too."""
    cut = ModelReply((ModelCall("book", {"at": "15:00"}),), stop=word)
    async with acting(client, tmp_path, whose, cut, GOOD, ModelReply(text="Done.")) as one:
        ended = await one.run()

    assert [step.args for step in ended.steps if step.status == "completed"] == [{"at": "14:30"}]
    assert (ended.status, len(one.api.bodies), one.api.violations) == (TaskStatus.COMPLETED, 3, [])


UNFINISHED = [("anthropic", "pause_turn"), *(("openai", word) for word in ("length", "model_length", "error", "abort"))]


@pytest.mark.parametrize(("whose", "word"), UNFINISHED)
async def test_a_turn_that_the_server_left_unfinished_is_no_answer(
    client: Client, tmp_path: Path, whose: str, word: str
) -> None:
    """A pause, an error in the middle, a limit: half an answer looks like a whole one, so it is asked for again."""
    script = ModelReply(text="I will look it up.", stop=word), ModelReply(text="Booked.")
    async with acting(client, tmp_path, whose, *script) as one:
        ended = await one.run()

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "Booked.")
    assert (len(one.api.bodies), one.api.violations) == (2, [])


async def test_calls_that_are_called_an_end_are_made(client: Client, tmp_path: Path, provider: str) -> None:
    """Some compatible servers say `stop` although there are calls."""
    said = ModelReply((ModelCall("book", {"at": "14:30"}),), stop=FINISHED[provider])
    async with acting(client, tmp_path, provider, said, ModelReply(text="Done.")) as one:
        ended = await one.run()

    assert (ended.status, ended.spent.tool_calls) == (TaskStatus.COMPLETED, 1)


async def test_a_model_that_repeats_a_refused_call_is_stopped(client: Client, tmp_path: Path, provider: str) -> None:
    """The call is made once; after that it is refused before anything is done."""
    async with acting(client, tmp_path, provider, lambda _: calls(ModelCall("book", {"at": "14:00"}))) as one:
        ended = await one.run()

    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "proposals_rejected")
    assert ([step.attempts for step in ended.steps], one.api.violations) == ([1], [])


HALF = "A-\ud83d17"


async def test_halves_of_characters_end_no_task(client: Client, tmp_path: Path, provider: str) -> None:
    """JSON can carry them and no text can: a sign stands in their place; as an argument one is not what was meant."""
    half = calls(ModelCall("get_price", {"sku": HALF}), text=HALF)
    async with acting(client, tmp_path, provider, half, ModelReply(text=f"It costs 2 {HALF}")) as one:
        ended = await one.run()

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "It costs 2 A-?17")
    assert "half a character" in one.api.requests[1].results[0].text
    assert (ended.steps, one.api.violations) == ((), [])


class Gauge(BaseModel):
    """What is measured."""

    bar: float = 0


def gauge(number: int) -> Tool[..., Any]:
    """A tool that nobody asks for."""

    async def read(args: Gauge) -> Gauge:
        """Read one gauge of the boiler."""
        return args

    read.__name__ = f"gauge_{number}"
    return tool.read(read)


SLOT = {
    "react": (calls(ModelCall("book", {"at": "14:30"})), ModelReply(text="Booked.")),
    "plan": (proposes(step("slot", "book", at="14:30")), finishes("Booked.")),
}


@pytest.mark.parametrize("strategy", ["react", pytest.param("plan", marks=pytest.mark.full)])
async def test_a_model_finds_what_it_is_not_shown(
    client: Client, tmp_path: Path, provider: str, strategy: Literal["plan", "react"]
) -> None:
    """It is shown as many kinds as it can look at, with the one that finds others, and then what it found as well."""
    script = (calls(ModelCall(NAME, {"query": "book a slot"})), *SLOT[strategy])
    async with acting(client, tmp_path, provider, *script, tools=[*map(gauge, range(40)), *TOOLS]) as one:
        ended = await one.stage.run(Task(text="read the gauges of the boiler", strategy=strategy))
    before, after = (str(one.api.bodies[turn].get("tools")) for turn in (0, 1))
    kinds = [[name for name in heard.tools if name not in ("ask", "give_up")] for heard in one.api.requests]

    assert (ended.status, ended.result, one.api.violations) == (TaskStatus.COMPLETED, "Booked.", [])
    assert [record.kind for record in ended.steps] == [NAME, "book"]
    assert "'book'" not in before and "'book'" in after
    if strategy == "react":
        assert [len(offered) for offered in kinds] == [MAX_SHOWN] * 3
        assert kinds[1] == kinds[2] and all(NAME in offered for offered in kinds)


# A model that repeats itself: it is told, then refused, and the task ends if it proposes nothing else


REFUSED = "makes the same call for the third time"
A, B = ("get_price", "A-17"), ("get_price", "B-2")
STRATEGIES: Sequence[Literal["plan", "react"]] = ("plan", "react")


def proposing(strategy: str, turn: int, *made: tuple[str, str]) -> ModelReply:
    """A reply that makes these calls: a plan with ids of its own, or the calls themselves."""
    if strategy == "react":
        return calls(*(ModelCall(kind, {"sku": sku}) for kind, sku in made))
    return proposes(*(step(f"s{turn}-{index}", kind, sku=sku) for index, (kind, sku) in enumerate(made)))


class Stubborn:
    """A model that proposes one plan after the other, over and over, and remembers what it was told."""

    def __init__(
        self, strategy: str, *plans: Sequence[tuple[str, str]], gives_in: bool = False, ends_after: int = 1_000
    ) -> None:
        """It ends the task when it was refused, if it `gives_in`, or after some turns."""
        self.strategy, self.plans, self.gives_in, self.ends_after = strategy, plans, gives_in, ends_after
        self.told, self.refused = list[int](), list[int]()

    def __call__(self, heard: ReceivedRequest) -> ModelReply:
        """Propose the next plan of the cycle."""
        newest = "".join(result.text for result in heard.results) + heard.last_text
        self.told += [heard.turn] if REPEATED_NOTICE in newest else []
        self.refused += [heard.turn] if REFUSED in newest else []
        if (self.refused and self.gives_in) or heard.turn == self.ends_after:
            return finishes("24.50") if self.strategy == "plan" else ModelReply(text="24.50")
        made = len(heard.calls) if self.strategy == "plan" else heard.turn
        return proposing(self.strategy, heard.turn, *self.plans[(made - len(self.refused)) % len(self.plans)])


class State(BaseModel):
    """What a job says of itself."""

    percent: int


class Pause(BaseModel):
    """How long to wait."""

    seconds: float


def job() -> list[Tool[..., Any]]:
    """A job that goes on while somebody waits, and only then."""
    state = State(percent=0)

    @tool.read
    async def look(args: Article) -> State:
        """Say how far the job is."""
        return state.model_copy()

    @tool.keyed
    async def push(args: Article, key: Key) -> State:
        """Make the job go on."""
        state.percent += 10
        return State(percent=100)

    return [look, push]


NEW = [[A, ("get_price", f"N-{turn}")] for turn in range(5)]
Turns = list[int] | None
CYCLES: dict[str, tuple[Sequence[Sequence[tuple[str, str]]], dict[str, Any], int, Turns, Turns]] = {
    "the same step, until it is refused": ([[A]], {"gives_in": True}, 2, [2], [3]),
    "the same step": ([[A]], {}, 2, None, None),
    "the same plan": ([[A, B]], {}, 4, None, None),
    "two plans in turn": ([[A], [B]], {}, 4, None, None),
    "three plans in turn": ([[A], [B], [A, B]], {}, 4, None, None),
    "beside new ones, then alone": ([*NEW, [A]], {"gives_in": True}, 11, [2, 3, 4, 5, 6], [7]),
    "a look after each change": ([[("push", "A")], [("look", "A")]], {"ends_after": 12}, 12, None, []),
}
"""The plans, how the model ends, how many calls are made, and, where one looks, when it was told and refused."""
QUICK = [name for name in CYCLES if name not in ("the same step", "the same plan", "three plans in turn")]


@quickly_one
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("plans", "how", "made", "told", "refused"), sampled(CYCLES, *QUICK))
async def test_a_model_that_goes_on_repeating_itself_ends_the_task(
    client: Client,
    tmp_path: Path,
    provider: str,
    strategy: Literal["plan", "react"],
    plans: Sequence[Sequence[tuple[str, str]]],
    how: dict[str, Any],
    made: int,
    told: Turns,
    refused: Turns,
) -> None:
    """The same call is told once, and then refused; each strategy has the same limit, and ends in the same way.

    Parallel calls of which one is new find something out, and a read after a write is progress.
    """
    model = Stubborn(strategy, *plans, **how)
    tools: list[Tool[..., Any]] = [*TOOLS, *job()]
    async with planning(provider, model) as (api, planner), staged(client, tmp_path, tools, planner) as stage:
        ended = await stage.run(Task(text="what does A-17 cost?", strategy=strategy))

    if how:
        assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "24.50")
    else:
        assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "proposals_rejected") and REFUSED in ended.reason
    assert (ended.spent.tool_calls, api.violations) == (made, [])
    assert told in (None, model.told) and refused in (None, model.refused)


@quickly_one
async def test_a_plan_may_begin_alike_after_each_new_fault(client: Client, tmp_path: Path, provider: str) -> None:
    """Three plans read the same before they book; each fault is another one."""
    begin = ("list_free", "at", "14:00:00")
    plans = [
        proposes(*(step(f"{kind}{turn}", kind, **{name: at}) for kind, name, at in (begin, made)))
        for turn, made in enumerate([("book", "at", "14:00:00"), ("get_price", "sku", "A-1"), ("book", "at", "15:00")])
    ]
    async with (
        planning(provider, *plans, finishes("15:00")) as (api, planner),
        staged(client, tmp_path, TOOLS, planner) as stage,
    ):
        ended = await stage.run(Task(text="book a slot"))

    assert (ended.status, ended.replans, len(api.bodies)) == (TaskStatus.COMPLETED, 1, 4), ended.reason
    assert [one.kind for one in ended.steps].count("list_free") == 3


@quickly_one
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_what_was_repeated_before_a_reset_counts(
    client: Client, tmp_path: Path, provider: str, strategy: Literal["plan", "react"]
) -> None:
    """The new run has the same calls behind it, and refuses the same call."""
    model = Stubborn(strategy, [A], gives_in=True)
    async with planning(provider, model) as (_, planner), staged(client, tmp_path, TOOLS, planner) as stage:
        handle = await stage.start(Task(text="what does A-17 cost?", strategy=strategy))
        first = await outcome(handle)
        for made in [one.id for one in first.steps]:
            newest = client.get_workflow_handle_for(AgentWorkflow.run, handle.id)
            second = await again(stage, newest, made)
            assert (second.status, second.result, second.spent.tool_calls) == (TaskStatus.COMPLETED, "24.50", 2)

    assert (len(first.steps), {*model.told}, {*model.refused}) == (2, {2}, {3})


@pytest.mark.full
@pytest.mark.parametrize(("seconds", "made"), [(WAITED + 0.1, 6), (0.1, 4)])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_model_may_look_again_after_each_wait(
    client: Client, tmp_path: Path, strategy: Literal["plan", "react"], seconds: float, made: int
) -> None:
    """A state that stays the same is looked at as often as the model waits between; a short wait is none."""

    @tool.read
    async def wait(args: Pause) -> State:
        """Wait."""
        await asyncio.sleep(args.seconds)
        return State(percent=0)

    def next_move(heard: ReceivedRequest) -> ModelReply:
        if heard.turn == 6 or REFUSED in "".join(result.text for result in heard.results) + heard.last_text:
            return finishes() if strategy == "plan" else ModelReply(text="done")
        args: dict[str, JsonValue] = {"sku": "A"} if heard.turn % 2 else {"seconds": seconds}
        kind = "look" if heard.turn % 2 else "wait"
        if strategy == "react":
            return calls(ModelCall(kind, args))
        return proposes(step(f"s{heard.turn}", kind, **args))

    async with (
        planning("anthropic", next_move) as (_, planner),
        staged(client, tmp_path, [*job(), wait], planner) as stage,
    ):
        ended = await stage.run(Task(text="look until it is done", strategy=strategy))

    assert (ended.status, ended.spent.tool_calls) == (TaskStatus.COMPLETED, made)
