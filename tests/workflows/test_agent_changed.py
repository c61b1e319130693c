"""A deploy changes a tool while tasks wait that planned calls of its earlier version, on a real server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue
from temporalio.client import WorkflowUpdateFailedError

from activities.toolbox.declare.kind import Kind
from replan import Busy, CircuitBreaker, Key, Tool, Unreachable, tool
from tests.harness import DONE, Stage, outcome, plan, step
from tests.workflows.history import Handle, kinds, until
from tests.workflows.props import Said, Stages, echo, played
from tests.workflows.test_agent_missing import outdated
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.people.requests import Choice, HumanRequest
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, NewSteps, Question

QUICK = CircuitBreaker(failures=1, calls=1, recovery=2)


class Order(BaseModel):
    article: str
    note: str = ""


class PricedOrder(Order):
    """The arguments after it."""

    currency: str


confirm = played("confirm", None, declare=tool.read(approve="always"))
"""Asks a person; no deploy changes it."""


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

    def tools(self, args_type: type[Order]) -> list[Tool[..., Any]]:
        """One version of the tools."""

        def ordering(name: str, error: Callable[[], Exception] | None = None, **options: Any) -> Tool[..., Any]:
            async def order(args: Any, key: Key) -> Said:
                """Order an article; while the shop is down, some ways fail."""
                if error is not None and self.is_down:
                    raise error()
                return self.order(key, args)

            order.__name__ = name
            order.__annotations__["args"] = args_type
            return tool.keyed(**options)(order)

        return [
            *(echo, confirm, ordering("order"), ordering("order_approved", approve="always")),
            ordering("order_later", lambda: Busy("The shop is busy.", retry_after=4)),
            ordering("order_remotely", lambda: Unreachable("The shop is down."), breaker=QUICK),
        ]


def old(shop: Shop) -> list[Tool[..., Any]]:
    """The tools before the deploy."""
    return shop.tools(Order)


def new(shop: Shop) -> list[Tool[..., Any]]:
    """The same tools after it: each wants to know the currency."""
    return shop.tools(PricedOrder)


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


def waiting(text: str) -> Task:
    """A task that waits for people."""
    return Task(text=text, on_escalation="wait", strategy="react" if text == "react" else "plan")


async def asked(handle: Handle, code: str) -> HumanRequest:
    """The open request with this code, as soon as the task has it."""
    now = await until(handle, lambda now: any(request.code == code for request in now.open_requests))
    return next(request for request in now.open_requests if request.code == code)


async def approve(handle: Handle) -> None:
    """Approve the call that a task asks about."""
    request = await asked(handle, "needs_approval")
    assert request.call is not None
    await handle.execute_update("approve", {"call": request.call.code})


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


async def test_a_required_field_that_a_deploy_adds_fails_no_waiting_task(stages: Stages) -> None:
    """Each task asks a person, and says what is new; after a rollback, `retry` makes the call that was planned.

    A task whose planner is asked only after the deploy plans for the new tool, and asks nobody.
    """
    shop = Shop()
    async with stages(old(shop), Buyer()) as before:
        tasks = await begun(before)
    async with stages(new(shop), Buyer(), queue=before.queue):
        requests = await after_deploy(tasks)
        silent = await outcome(tasks.pop("question"))
        assert len(shop.orders) == 1
    shop.is_down = False
    async with stages(old(shop), Buyer(), queue=before.queue):
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
    assert {(one.status, one.replans) for one in ended.values()} == {(TaskStatus.COMPLETED, 0)}
    assert sorted(order.get("currency", "") for order in shop.orders.values()) == ["", "", "", "", "", "EUR"]


MENDED = tuple(text for text in TASKS if text != "breaker")  # whose next trial call would wait for some seconds


async def test_a_planner_that_knows_the_new_field_mends_the_plan(stages: Stages) -> None:
    """`replan` asks the planner of today's worker; its calls are made once, with what the new tools promise."""
    shop = Shop()
    async with stages(old(shop), Buyer()) as before:
        tasks = await begun(before, MENDED)
    shop.is_down = False
    async with stages(new(shop), Buyer(), queue=before.queue):
        for text in await after_deploy(tasks):
            await tasks[text].execute_update("replan", {"hint": "the currency is EUR"})
        for text in ("approval", "react"):
            await approve(tasks[text])
        ended = {text: await outcome(handle) for text, handle in tasks.items()}

    assert {text: one.status for text, one in ended.items()} == dict.fromkeys(MENDED, TaskStatus.COMPLETED)
    assert [order["currency"] for order in shop.orders.values()] == ["EUR"] * len(MENDED)
    assert (await kinds(tasks["chain"])).count("catalogue") == 2


async def test_a_missing_tool_that_comes_in_another_version_asks(stages: Stages) -> None:
    """A step that waits for its kind, which a deploy then brings with a new required field."""
    shop = Shop()
    known = [made.__name__ for made in old(shop) if made.__name__ != "order"]
    async with outdated(stages.client, stages.folder, old(shop), known, Buyer()) as before:
        handle = await before.start(waiting("missing"))
        await until(handle, lambda now: bool(now.with_status(StepStatus.WAITING)))
    async with stages(new(shop), Buyer(), queue=before.queue):
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


async def deployed(stages: Stages, task: Task | str, shop: Shop) -> tuple[Handle, str]:
    """A task whose call waits for the next deploy, and its queue."""
    async with stages(old(shop), Buyer()) as before:
        handle = await before.start(task)
        await until(handle, lambda now: bool(now.with_status(StepStatus.RUNNING)))
    return handle, before.queue


@pytest.mark.parametrize(
    ("version", "choice", "given", "said", "effects"),
    [
        (idempotent, "replan", None, "its effect was keyed and is idempotent now", ["keyed", "idempotent"]),
        (new, "provide", {"result": {"said": "by telephone"}}, NEEDED, ["keyed"]),
    ],
    ids=["another effect, and a new plan", "the result is provided"],
)
async def test_a_changed_effect_is_never_applied_in_the_place_of_the_planned_one(
    stages: Stages, version: Callable[[Shop], Any], choice: str, given: Any, said: str, effects: list[str]
) -> None:
    """A person is asked although the call fits; a new plan is made and run with the effect of today.

    Where a person provides the result, the tool is not called, so that the arguments need not fit; the result must.
    """
    shop = Shop()
    handle, queue = await deployed(stages, waiting("timer"), shop)
    async with stages(version(shop), Buyer(), queue=queue):
        request = await asked(handle, "changed_tool")
        assert shop.orders == {}
        if given:
            with pytest.raises(WorkflowUpdateFailedError):
                await handle.execute_update("provide", {"result": {"said": 5}})
            await asked(handle, "changed_tool")
        await handle.execute_update(choice, given)
        ended = await outcome(handle)

    assert said in request.reason and ended.status is TaskStatus.COMPLETED
    assert [one.effect for one in ended.steps] == effects
    assert ended.steps[0].result == (given or {}).get("result") and len(shop.orders) == len(effects) - 1


async def test_a_task_that_may_ask_nobody_ends_as_escalated(stages: Stages) -> None:
    """No replan is burnt, and the reason says what has changed."""
    shop = Shop()
    handle, queue = await deployed(stages, "timer", shop)
    async with stages(new(shop), Buyer(), queue=queue):
        ended = await outcome(handle)

    assert (ended.status, ended.code, ended.replans) == (TaskStatus.ESCALATED, "changed_tool", 0)
    assert NEEDED in ended.reason and shop.orders == {}
