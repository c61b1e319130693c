"""A model that repeats itself: it is told, then refused, and the task ends if it proposes nothing else."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, JsonValue
from temporalio.client import Client

from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, calls, finishes, proposes, step
from replan import Key, Tool, tool
from tests.gate import sampled
from tests.harness import outcome, staged
from tests.providers.desk import TOOLS, Article
from tests.providers.planning import planning, quickly_one
from tests.workflows.test_agent_reset import again
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.plans.guards import REPEATED_NOTICE, WAITED

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

    def __init__(self, strategy: str, *plans: Sequence[tuple[str, str]], gives_in: bool = False) -> None:
        """It ends the task when it was refused, if it `gives_in`."""
        self.strategy, self.plans, self.gives_in = strategy, plans, gives_in
        self.told, self.refused, self.ends_after = list[int](), list[int](), 1_000

    def __call__(self, heard: ReceivedRequest) -> ModelReply:
        """Propose the next plan of the cycle."""
        newest = "".join(result.text for result in heard.results) + heard.last_text
        self.told += [heard.turn] if REPEATED_NOTICE in newest else []
        self.refused += [heard.turn] if REFUSED in newest else []
        if (self.refused and self.gives_in) or heard.turn == self.ends_after:
            return finishes("24.50") if self.strategy == "plan" else ModelReply(text="24.50")
        made = len(heard.calls) if self.strategy == "plan" else heard.turn
        return proposing(self.strategy, heard.turn, *self.plans[(made - len(self.refused)) % len(self.plans)])


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_the_same_call_is_told_once_and_then_refused(
    client: Client, tmp_path: Path, provider: str, strategy: Literal["plan", "react"]
) -> None:
    """Two calls are made, the third is not."""
    model = Stubborn(strategy, [A], gives_in=True)
    async with planning(provider, model) as (api, planner), staged(client, tmp_path, TOOLS, planner) as stage:
        ended = await stage.run(Task(text="what does A-17 cost?", strategy=strategy))

    assert (ended.status, ended.result, ended.spent.tool_calls) == (TaskStatus.COMPLETED, "24.50", 2)
    assert (model.told, model.refused, api.violations) == ([2], [3], [])


CYCLES: Sequence[tuple[str, Sequence[Sequence[tuple[str, str]]], int]] = [
    ("the same step", [[A]], 2),
    ("the same plan", [[A, B]], 4),
    ("two plans in turn", [[A], [B]], 4),
    ("three plans in turn", [[A], [B], [A, B]], 4),
]


@quickly_one
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("plans", "made"), sampled({case[0]: case[1:] for case in CYCLES}, "two plans in turn"))
async def test_a_model_that_goes_on_repeating_itself_ends_the_task(
    client: Client,
    tmp_path: Path,
    provider: str,
    strategy: Literal["plan", "react"],
    plans: Sequence[Sequence[tuple[str, str]]],
    made: int,
) -> None:
    """Each strategy has the same limit, and ends in the same way."""
    model = Stubborn(strategy, *plans)
    async with planning(provider, model) as (_, planner), staged(client, tmp_path, TOOLS, planner) as stage:
        ended = await stage.run(Task(text="what does A-17 cost?", strategy=strategy))

    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "proposals_rejected")
    assert REFUSED in ended.reason and ended.spent.tool_calls == made


@quickly_one
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_call_may_be_repeated_beside_new_ones(
    client: Client, tmp_path: Path, provider: str, strategy: Literal["plan", "react"]
) -> None:
    """Parallel calls of which one is new find something out; alone, the old call is refused."""
    model = Stubborn(strategy, *[[A, ("get_price", f"N-{turn}")] for turn in range(5)], [A], gives_in=True)
    async with planning(provider, model) as (_, planner), staged(client, tmp_path, TOOLS, planner) as stage:
        ended = await stage.run(Task(text="what does each cost?", strategy=strategy))

    assert (ended.status, ended.spent.tool_calls) == (TaskStatus.COMPLETED, 11)
    assert (model.told, model.refused) == ([2, 3, 4, 5, 6], [7])


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


@quickly_one
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_model_may_look_again_after_each_change(
    client: Client, tmp_path: Path, provider: str, strategy: Literal["plan", "react"]
) -> None:
    """A read after a write, with the same arguments each time, is progress."""
    model = Stubborn(strategy, [("push", "A")], [("look", "A")])
    model.ends_after = 12
    async with planning(provider, model) as (_, planner), staged(client, tmp_path, job(), planner) as stage:
        ended = await stage.run(Task(text="push the job", strategy=strategy))

    assert (ended.status, ended.spent.tool_calls, model.refused) == (TaskStatus.COMPLETED, 12, [])


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
