"""A deploy changes a tool while tasks wait that planned calls of its earlier version, on a real server."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue
from temporalio.client import Client, WorkflowUpdateFailedError

from activities.toolbox.declare.kind import Kind
from replan import Busy, CircuitBreaker, Key, Tool, Unreachable, tool
from tests.harness import DONE, Stage, outcome, plan, staged, step
from tests.workflows.history import Handle, kinds, until
from tests.workflows.props import Said, Word, echo
from tests.workflows.test_agent_missing import outdated
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.people.requests import Choice, HumanRequest
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, NewSteps, Question

QUICK = CircuitBreaker(failures=1, calls=1, recovery=2)


@dataclass
class Shop:
    """What stands outside of Replan, and takes each key once."""

    is_down: bool = True
    orders: dict[str, dict[str, Any]] = field(default_factory=dict)

    def order(self, key: str, args: BaseModel) -> Said:
        """Take an order."""
        assert key not in self.orders
        self.orders[key] = args.model_dump()
        return Said(said="ordered")


class Order(BaseModel):
    """The arguments before the deploy."""

    article: str
    note: str = ""


class PricedOrder(Order):
    """The arguments after it."""

    currency: str


Version = Callable[[Shop], list[Tool[..., Any]]]


def old(shop: Shop) -> list[Tool[..., Any]]:
    """The tools before the deploy."""

    @tool.keyed
    async def order(args: Order, key: Key) -> Said:
        """Order an article."""
        return shop.order(key, args)

    @tool.keyed(approve="always")
    async def order_approved(args: Order, key: Key) -> Said:
        """Order an article, if a person agrees."""
        return shop.order(key, args)

    @tool.keyed
    async def order_later(args: Order, key: Key) -> Said:
        """Order an article when the shop is not busy."""
        if shop.is_down:
            raise Busy("The shop is busy.", retry_after=4)
        return shop.order(key, args)

    @tool.keyed(breaker=QUICK)
    async def order_remotely(args: Order, key: Key) -> Said:
        """Order an article from a shop that may be down."""
        if shop.is_down:
            raise Unreachable("The shop is down.")
        return shop.order(key, args)

    return [echo, confirm, order, order_approved, order_later, order_remotely]


def new(shop: Shop) -> list[Tool[..., Any]]:
    """The same tools after it: each wants to know the currency."""

    @tool.keyed
    async def order(args: PricedOrder, key: Key) -> Said:
        """Order an article."""
        return shop.order(key, args)

    @tool.keyed(approve="always")
    async def order_approved(args: PricedOrder, key: Key) -> Said:
        """Order an article, if a person agrees."""
        return shop.order(key, args)

    @tool.keyed
    async def order_later(args: PricedOrder, key: Key) -> Said:
        """Order an article when the shop is not busy."""
        return shop.order(key, args)

    @tool.keyed(breaker=QUICK)
    async def order_remotely(args: PricedOrder, key: Key) -> Said:
        """Order an article from a shop that may be down."""
        return shop.order(key, args)

    return [echo, confirm, order, order_approved, order_later, order_remotely]


@tool.read(approve="always")
async def confirm(args: Word) -> Said:
    """Ask a person; no deploy changes it."""
    return Said(said=args.word)


NEEDED = "'currency' is new and required"
TASKS = ("approval", "question", "timer", "breaker", "chain", "react")


ORDERS = {
    "approval": "order_approved",
    "timer": "order_later",
    "breaker": "order_remotely",
    "react": "order_approved",
}
"""By task, the kind that it calls; all others call `order`."""


class Buyer:
    """A planner that plans for the tools of its own worker, as a model does."""

    name = "buyer"

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Answer | Question:
        """Order once; a new plan has another step id."""
        text, name = situation.text, f"s{situation.turn}"
        done = {record.kind for record in situation.records if record.status is StepStatus.COMPLETED}
        if any(kind.startswith("order") for kind in done):
            return DONE
        if text == "question" and not situation.words:
            return Question(text="Which colour?")
        kind = ORDERS.get(text, "order")
        asks = "currency" in kinds[kind].args_schema["properties"]
        args: dict[str, JsonValue] = {"article": "a lamp", **({"currency": "EUR"} if asks else {})}
        if text == "chain" and "confirm" not in done:
            args["article"] = {"$from": "c", "path": "said"}
            return plan(step("c", "confirm", word="a lamp"), step(name, kind, "c", **args))
        return plan(step(name, kind, **args))


def waiting(text: str, **more: Any) -> Task:
    """A task that waits for people."""
    return Task(text=text, on_escalation="wait", strategy="react" if text == "react" else "plan", **more)


async def asked(handle: Handle, code: str) -> HumanRequest:
    """The open request with this code, as soon as the task has it."""
    now = await until(handle, lambda now: any(request.code == code for request in now.open_requests))
    return next(request for request in now.open_requests if request.code == code)


async def approve(handle: Handle, code: str = "needs_approval") -> None:
    """Approve the call that a task asks about."""
    request = await asked(handle, code)
    assert request.call is not None
    await handle.execute_update("approve", {"call": request.call.code})


@asynccontextmanager
async def deployed(
    client: Client, folder: Path, version: Version, shop: Shop, queue: str | None = None
) -> AsyncIterator[Stage]:
    """A worker with this version of the tools; its planner plans for them."""
    async with staged(client, folder, version(shop), Buyer(), queue=queue) as stage:
        yield stage


async def begun(stage: Stage, names: Sequence[str] = TASKS) -> dict[str, Handle]:
    """A task that waits in each way, on the tools before the deploy."""
    tasks = {text: await stage.start(waiting(text)) for text in names}
    for text in ("approval", "chain", "react"):
        await asked(tasks[text], "needs_approval")
    await asked(tasks["question"], "question")
    if "breaker" in tasks:
        await until(tasks["breaker"], lambda now: bool(now.with_status(StepStatus.WAITING)))
    await until(tasks["timer"], lambda now: bool(now.with_status(StepStatus.RUNNING)))
    return tasks


async def after_deploy(tasks: Mapping[str, Handle]) -> dict[str, HumanRequest]:
    """Answer what the tasks asked before the deploy; then the requests because of the changed tool."""
    for text in ("approval", "chain", "react"):
        await approve(tasks[text])
    await tasks["question"].execute_update("reply", {"text": "green"})
    return {text: await asked(handle, "changed_tool") for text, handle in tasks.items() if text != "question"}


async def test_a_required_field_that_a_deploy_adds_fails_no_waiting_task(client: Client, tmp_path: Path) -> None:
    """Each task asks a person, and says what is new; after a rollback, `retry` makes the call that was planned.

    A task whose planner is asked only after the deploy plans for the new tool, and asks nobody.
    """
    shop = Shop()
    async with deployed(client, tmp_path, old, shop) as before:
        tasks = await begun(before)
    async with deployed(client, tmp_path, new, shop, before.queue):
        requests = await after_deploy(tasks)
        silent = await outcome(tasks.pop("question"))
        assert len(shop.orders) == 1
    shop.is_down = False
    async with deployed(client, tmp_path, old, shop, before.queue):
        for handle in tasks.values():
            await handle.execute_update("retry")
        ended = {text: await outcome(handle) for text, handle in tasks.items()}

    assert silent.status is TaskStatus.COMPLETED and {fault.code for fault in silent.faults} == set()
    for text, request in requests.items():
        kind = ORDERS.get(text, "order")
        assert request.reason == (
            f"The plan was made for another version of {kind}, as before a deploy: {NEEDED}. It was not called."
        )
        assert (request.cause, request.choices) == (
            f"{kind}/changed_tool",
            (Choice.RETRY, Choice.REPLAN, Choice.PROVIDE, Choice.SKIP, Choice.ABORT),
        )
    assert {one.status for one in ended.values()} == {TaskStatus.COMPLETED}
    assert {one.replans for one in ended.values()} == {0}
    assert sorted(order.get("currency", "") for order in shop.orders.values()) == ["", "", "", "", "", "EUR"]


MENDED = tuple(text for text in TASKS if text != "breaker")  # whose next trial call would wait for some seconds


async def test_a_planner_that_knows_the_new_field_mends_the_plan(client: Client, tmp_path: Path) -> None:
    """`replan` asks the planner of today's worker; its calls are made once, with what the new tools promise."""
    shop = Shop()
    async with deployed(client, tmp_path, old, shop) as before:
        tasks = await begun(before, MENDED)
    shop.is_down = False
    async with deployed(client, tmp_path, new, shop, before.queue):
        for text in await after_deploy(tasks):
            await tasks[text].execute_update("replan", {"hint": "the currency is EUR"})
        for text in ("approval", "react"):
            await approve(tasks[text])
        ended = {text: await outcome(handle) for text, handle in tasks.items()}
        made = await kinds(tasks["chain"])

    assert {text: one.status for text, one in ended.items()} == dict.fromkeys(MENDED, TaskStatus.COMPLETED)
    assert [order["currency"] for order in shop.orders.values()] == ["EUR"] * len(MENDED)
    assert made.count("catalogue") == 2


async def test_a_missing_tool_that_comes_in_another_version_asks(client: Client, tmp_path: Path) -> None:
    """A step that waits for its kind, which a deploy then brings with a new required field."""
    shop = Shop()
    known = [made.__name__ for made in old(shop) if made.__name__ != "order"]
    async with outdated(client, tmp_path, old(shop), known, Buyer()) as before:
        handle = await before.start(waiting("missing"))
        await until(handle, lambda now: bool(now.with_status(StepStatus.WAITING)))
    async with deployed(client, tmp_path, new, shop, before.queue):
        request = await asked(handle, "changed_tool")
        await handle.execute_update("replan")
        ended = await outcome(handle)

    assert NEEDED in request.reason
    assert (ended.status, len(shop.orders)) == (TaskStatus.COMPLETED, 1)


def idempotent(shop: Shop) -> list[Tool[..., Any]]:
    """A deploy that changes what a tool does, and neither its name nor its arguments."""

    @tool.idempotent
    async def order_later(args: Order) -> Said:
        """Order an article."""
        return shop.order(f"order {len(shop.orders)}", args)

    return [echo, confirm, order_later]


async def test_a_changed_effect_is_never_applied_in_the_place_of_the_planned_one(
    client: Client, tmp_path: Path
) -> None:
    """The call fits, and yet a person is asked; a new plan is made and run with the effect of today."""
    shop = Shop()
    async with deployed(client, tmp_path, old, shop) as before:
        handle = await before.start(waiting("timer"))
        await until(handle, lambda now: bool(now.with_status(StepStatus.RUNNING)))
    async with deployed(client, tmp_path, idempotent, shop, before.queue):
        request = await asked(handle, "changed_tool")
        assert shop.orders == {}
        await handle.execute_update("replan")
        ended = await outcome(handle)

    assert "its effect was keyed and is idempotent now" in request.reason
    assert (ended.status, [one.effect for one in ended.steps]) == (TaskStatus.COMPLETED, ["keyed", "idempotent"])


async def test_a_task_that_may_ask_nobody_ends_as_escalated(client: Client, tmp_path: Path) -> None:
    """No replan is burnt, and the reason says what has changed."""
    shop = Shop()
    async with deployed(client, tmp_path, old, shop) as before:
        handle = await before.start("timer")
        await until(handle, lambda now: bool(now.with_status(StepStatus.RUNNING)))
    async with deployed(client, tmp_path, new, shop, before.queue):
        ended = await outcome(handle)

    assert (ended.status, ended.code, ended.replans) == (TaskStatus.ESCALATED, "changed_tool", 0)
    assert NEEDED in ended.reason and shop.orders == {}


async def test_a_person_can_provide_the_result_of_the_planned_call(client: Client, tmp_path: Path) -> None:
    """The tool is not called, so that the arguments need not fit; the result must."""
    shop = Shop()
    async with deployed(client, tmp_path, old, shop) as before:
        handle = await before.start(waiting("timer"))
        await until(handle, lambda now: bool(now.with_status(StepStatus.RUNNING)))
    async with deployed(client, tmp_path, new, shop, before.queue):
        await asked(handle, "changed_tool")
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update("provide", {"result": {"said": 5}})
        await asked(handle, "changed_tool")
        await handle.execute_update("provide", {"result": {"said": "ordered by telephone"}})
        ended = await outcome(handle)

    assert (ended.status, ended.steps[0].result) == (TaskStatus.COMPLETED, {"said": "ordered by telephone"})
    assert shop.orders == {}
