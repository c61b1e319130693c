"""Calls that a person must approve: each approval buys one effect of one call, in one run of the task."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from client import tree
from client.follow import View
from client.undo import PlannedUndo, cancel, undo, undo_steps
from replan import Key, NeedsPerson, Tool, tool
from tests.gate import sampled
from tests.harness import DONE, Proposals, Stage, outcome, plan, staged, step
from tests.workflows.history import Handle, kinds, until
from tests.workflows.props import Said, Stages, Word, echo
from tests.workflows.test_agent_people import answer, asked, refusal, waiting
from tests.workflows.test_undo_contract import seen_by
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.people.requests import Change, HumanRequest
from workflows.people.updates import RESOLVE
from workflows.rollback import Undo, UndoCall, UndoWorkflow


class Purchase(BaseModel):
    item: str
    amount: int


class Receipt(BaseModel):
    item: str
    amount: int


class Shop:
    """What was really bought, with the keys of the calls."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.sold = list[tuple[str, int]]()
        self.keys = list[str]()
        self.is_closed = False
        self.returned = list[str]()


SHOP = Shop()


@pytest.fixture(autouse=True)
def new_shop() -> None:
    """Each test begins with nothing sold."""
    SHOP.__init__()  # type: ignore[misc]


@tool.idempotent
async def give_back(args: Word) -> Said:
    """Take a purchase back."""
    SHOP.returned.append(args.word)
    return Said(said=args.word)


@tool.keyed(approve="args.amount > 500", undo=give_back.using(word="args.item"))
async def buy(args: Purchase, key: Key) -> Receipt:
    """Buy something."""
    SHOP.keys.append(key)
    if SHOP.is_closed:
        raise NeedsPerson("The shop is closed: open it.")
    SHOP.sold.append((args.item, args.amount))
    return Receipt(item=args.item, amount=args.amount)


@tool.pure
def double(args: Word) -> Said:
    """Say it twice."""
    return Said(said=args.word * 2)


TOOLS: list[Tool[..., Any]] = [echo, buy, give_back, double]
BUY: Proposals = [
    plan(step("before", "echo", word="a"), step("bought", "buy", "before", item="desk", amount=900)),
    DONE,
]


@pytest.fixture
async def stage(client: Client, tmp_path: Path) -> AsyncIterator[Stage]:
    """A worker with the shop's tools, and a plan that buys a desk for 900."""
    async with staged(client, tmp_path, TOOLS, BUY) as staging:
        yield staging


async def approve(handle: Handle, request: HumanRequest, **more: Any) -> str:
    """Approve the call that a request shows."""
    assert request.call is not None
    return await answer(handle, "approve", call=request.call.code, **more)


async def test_an_approved_call_is_made_once(stage: Stage) -> None:
    """The request shows the exact call; the other steps are as without an approval."""
    handle = await stage.start(waiting())
    request = await asked(handle)
    before = list(SHOP.keys)
    said = await approve(handle, request, by="ann")
    ended = await outcome(handle)

    assert request.call is not None
    assert (request.kind, request.code, request.step) == ("approval", "needs_approval", "bought")
    assert request.reason == "buy needs approval: the amount is above 500."
    assert request.call.args == {"item": "desk", "amount": 900}
    assert (request.call.kind, request.call.effect, request.call.undo) == ("buy", "keyed", "give_back")
    assert (before, SHOP.sold, said) == ([], [("desk", 900)], "r1: approve")
    assert (ended.status, [one.attempts for one in ended.steps]) == (TaskStatus.COMPLETED, [1, 1])
    assert ended.spent.tool_calls == 2
    kept = ended.requests[0]
    assert kept.answer is not None and kept.answer.by == "ann"
    assert kept.call is not None and kept.call.args is None
    assert [(fault.code, fault.decision) for fault in ended.faults] == [("needs_approval", "ask")]


WHO_NEEDS_ONE: dict[str, tuple[str, str, list[str]]] = {
    "declared": ("declared", "the task asks for declared", []),
    "effects": ("effects", "buy needs approval: the task asks before each call that changes something.", ["bought"]),
    "all": ("all", "echo needs approval: the task asks before each call.", ["first", "bought", "twice"]),
}


@pytest.mark.parametrize(("policy", "reason", "steps"), sampled(WHO_NEEDS_ONE, "declared", "effects"))
async def test_a_task_may_want_more_approvals(stages: Stages, policy: str, reason: str, steps: list[str]) -> None:
    """Of all effects, or of all calls, also of those that run in the workflow task's worker; else of those above."""
    cheap = plan(
        step("first", "echo", word="a"),
        step("bought", "buy", "first", item="pen", amount=5),
        step("twice", "double", "bought", word="b"),
    )
    async with stages(TOOLS, [cheap, DONE]) as staging:
        handle = await staging.start(waiting(approve=policy))
        for number in range(1, len(steps) + 1):
            await approve(handle, await asked(handle, number))
        ended = await outcome(handle)

    assert steps or (await kinds(handle)).count("buy") == 1
    assert (ended.status, [one.step for one in ended.requests]) == (TaskStatus.COMPLETED, steps)
    assert not steps or ended.requests[0].reason == reason
    assert SHOP.sold == [("pen", 5)]


@pytest.mark.full
async def test_nobody_is_asked_to_approve_what_the_tool_does_not_take(stages: Stages) -> None:
    """Arguments are checked first: the planner has to mend them."""
    said: JsonValue = {"$from": "said", "path": "said"}
    wrong: Proposals = [plan(step("said", "echo", word="many"), step("bought", "buy", item="desk", amount=said)), DONE]
    ended = await stages.run(TOOLS, wrong, waiting(approve="effects"))

    assert (ended.requests, [fault.code for fault in ended.faults]) == ((), ["invalid_input"])


@pytest.mark.full
async def test_a_task_that_does_not_wait_ends(stage: Stage) -> None:
    """As escalated, and nothing was bought."""
    ended = await stage.run()

    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "needs_approval")
    assert (ended.reason, SHOP.keys) == ("bought: buy needs approval: the amount is above 500.", [])


class TriesAgain(BaseModel):
    name: str = "tries again"

    async def propose(self, situation: Any, kinds: Mapping[str, Any]) -> Any:
        """The next plan."""
        done = [one.step.id for one in situation.records if one.status is StepStatus.COMPLETED]
        if done:
            return DONE
        if not situation.faults:
            return plan(step("bought", "buy", item="desk", amount=900))
        return plan(
            step("cheaper", "buy", item="desk", amount=600 if "Too dear" in situation.faults[-1].reason else 800)
        )


async def test_a_rejection_is_told_to_the_planner(stages: Stages) -> None:
    """Its new call needs an approval of its own: the one before is not for it."""
    async with stages(TOOLS, TriesAgain()) as staging:
        handle = await staging.start(waiting())
        first = await asked(handle)
        await answer(handle, "reject", reason="Too dear.", by="bob")
        second = await asked(handle, 2)
        assert first.call is not None
        old = await refusal(handle, "approve", {"call": first.call.code})
        await approve(handle, second)
        ended = await outcome(handle)

    assert (ended.status, ended.replans, SHOP.sold) == (TaskStatus.COMPLETED, 1, [("desk", 600)])
    assert [(one.code, one.decision) for one in ended.faults if one.step_id == "bought"] == [
        ("needs_approval", "ask"),
        ("rejected", "replan"),
    ]
    assert ended.faults[1].reason == "A person rejected the call of buy: Too dear."
    assert old.startswith(f"The code {first.call.code!r} stands for another call, or for the run before a reset")


async def test_an_edited_call_is_made_as_it_was_edited(stage: Stage) -> None:
    """Once, after the tool has checked the arguments; the history says who changed what."""
    handle = await stage.start(waiting())
    request = await asked(handle)
    assert request.call is not None
    code = request.call.code
    nothing = await refusal(handle, "edit", {"call": code})
    wrong = await refusal(handle, "edit", {"call": code, "args": {"amount": "few"}})
    again = await asked(handle, 2)
    assert again.call is not None
    await answer(handle, "edit", call=again.call.code, args={"amount": 700}, by="ann")
    ended = await outcome(handle)

    assert nothing.startswith("Something is missing: edit takes ")
    assert wrong.startswith("The arguments were not accepted: The arguments do not fit buy: 'amount'")
    assert again.call.args == {"item": "desk", "amount": 900}
    assert "The edited arguments are not accepted" in again.reason
    assert (ended.status, SHOP.sold, len(SHOP.keys)) == (TaskStatus.COMPLETED, [("desk", 700)], 1)
    kept = ended.requests[1].answer
    assert kept is not None and (kept.by, kept.edited) == ("ann", {"amount": Change(was=900, now=700)})
    # The check that refused the first edit called nothing: it is no attempt, and no attempt that left no report.
    assert (ended.steps[1].args, ended.steps[1].attempts, ended.steps[1].silent) == (
        {"item": "desk", "amount": 700},
        1,
        0,
    )
    assert ", 0 retries, " in tree.headline(ended)
    assert ended.steps[1].title == "desk, amount 700"


async def test_an_approval_needs_the_code_of_what_was_seen(stage: Stage) -> None:
    """Without it nothing happens, and no event is written."""
    handle = await stage.start(waiting())
    request = await asked(handle)
    before = len([event async for event in handle.fetch_history_events()])
    none = await refusal(handle, "approve")
    other = await refusal(handle, "approve", {"call": "123456123456"})
    retry = await refusal(handle, "retry")
    after = len([event async for event in handle.fetch_history_events()])
    await answer(handle, "abort")
    ended = await outcome(handle)

    assert request.call is not None
    assert none.startswith(f'Say which call you have seen: {{"call": "{request.call.code}"}} stands for buy')
    assert other.startswith("The code '123456123456' stands for another call")
    assert retry == "The request r1 (approval) takes approve, reject, edit, abort, and not retry."
    assert (before, ended.code, SHOP.keys) == (after, "aborted", [])


@pytest.mark.full
async def test_an_approval_lasts_for_the_retries_of_its_call(stages: Stages) -> None:
    """And for the same call after a person mended what was broken, since it had no effect yet."""

    @tool.keyed(approve="always")
    async def pay(args: Purchase, key: Key) -> Receipt:
        """Pay, at the third attempt."""
        SHOP.keys.append(key)
        if len(SHOP.keys) < 3:
            raise ConnectionResetError
        return Receipt(item=args.item, amount=args.amount)

    async with stages([pay], [plan(step("paid", "pay", item="desk", amount=1)), DONE]) as staging:
        handle = await staging.start(waiting())
        await approve(handle, await asked(handle))
        ended = await outcome(handle)

    assert (ended.status, ended.steps[0].attempts, len(ended.requests)) == (TaskStatus.COMPLETED, 3, 1)
    assert len({*SHOP.keys}) == 1


async def test_a_resolution_without_a_cause_is_no_answer(stage: Stage) -> None:
    """An approval belongs to no incident: the Signal of another program neither makes the call nor ends the task."""
    handle = await stage.start(waiting())
    request = await asked(handle)
    await handle.signal(RESOLVE, {"id": "1", "cause": ""})
    await approve(handle, request)
    ended = await outcome(handle)

    assert (ended.status, SHOP.sold, len(ended.requests)) == (TaskStatus.COMPLETED, [("desk", 900)], 1)


async def test_a_fallback_needs_an_approval_of_its_own(stages: Stages) -> None:
    """It is another call."""

    @tool.keyed(approve="always")
    async def other(args: Purchase, key: Key) -> Receipt:
        """Buy elsewhere."""
        SHOP.sold.append((args.item, args.amount))
        return Receipt(item=args.item, amount=args.amount)

    @tool.keyed(approve="always", fallback=other, retry="once")
    async def first(args: Purchase, key: Key) -> Receipt:
        """Buy where nobody answers."""
        raise ConnectionRefusedError(111, "refused")

    async with stages([first, other], [plan(step("a", "first", item="x", amount=1)), DONE]) as staging:
        handle = await staging.start(waiting())
        await approve(handle, await asked(handle))
        second = await asked(handle, 2)
        await approve(handle, second)
        ended = await outcome(handle)

    assert second.call is not None
    assert (second.call.kind, ended.status, SHOP.sold) == ("other", TaskStatus.COMPLETED, [("x", 1)])


@pytest.mark.full
async def test_several_calls_ask_at_the_same_time(stages: Stages) -> None:
    """Each has a request of its own, and the code says for which of them an approval is."""
    both = plan(step("one", "buy", item="desk", amount=900), step("two", "buy", item="lamp", amount=800))
    async with stages(TOOLS, [both, DONE]) as staging:
        handle = await staging.start(waiting())
        await asked(handle, 2)
        first, second = (await handle.query("progress", result_type=dict))["requests"]
        which = await refusal(handle, "approve", {"call": second["call"]["code"]})
        crossed = await refusal(handle, "approve", {"request": "r1", "call": second["call"]["code"]})
        for one in (second, first):
            await answer(handle, "approve", request=one["id"], call=one["call"]["code"])
        ended = await outcome(handle)

    assert which.startswith("Several requests are open")
    assert crossed.startswith("The code")
    assert (ended.status, sorted(SHOP.sold)) == (TaskStatus.COMPLETED, [("desk", 900), ("lamp", 800)])


def wiring() -> list[Tool[..., Any]]:
    """A reservation without an approval, which a large transfer would undo."""

    @tool.idempotent(approve="args.amount > 500")
    async def wire(args: Purchase) -> Receipt:
        """Wire money out."""
        SHOP.returned.append(f"{args.item} {args.amount}")
        return Receipt(item=args.item, amount=args.amount)

    @tool.keyed(undo=wire)
    async def reserve(args: Purchase, key: Key) -> Receipt:
        """Reserve something."""
        return Receipt(item=args.item, amount=args.amount)

    return [*TOOLS, wire, reserve]


RESERVED = [
    step("large", "reserve", item="house", amount=900_000),
    step("small", "reserve", "large", item="pen", amount=5),
    step("open", "buy", "small", item="lamp", amount=800),
]


async def test_an_undo_is_held_like_any_call(stages: Stages) -> None:
    """A planner that wants a large transfer does not get it by reserving: the effect has to be undone by a person."""
    ended = await stages.run(wiring(), [plan(*RESERVED), DONE], Task(text="a task", on_escalation="undo"))

    assert SHOP.returned == ["pen 5"]
    assert [(one.step_id, one.done, one.reason) for one in ended.undo] == [
        ("small", True, ""),
        ("large", False, "wire needs approval: the amount is above 500."),
    ]
    assert ended.reason.endswith("Not undone: large (wire needs approval: the amount is above 500).")


async def test_the_policy_of_a_task_holds_undos_as_well(stages: Stages) -> None:
    """Where each effect is approved, an approval of the effect does not pay for its undo."""
    steps = [step("bought", "buy", item="desk", amount=900), step("more", "buy", "bought", item="lamp", amount=800)]
    async with stages(TOOLS, [plan(*steps), DONE]) as staging:
        handle = await staging.start(waiting(approve="effects"))
        await approve(handle, await asked(handle))
        await asked(handle, 2)
        await answer(handle, "abort", undo=True)
        ended = await outcome(handle)

    assert (ended.code, SHOP.returned) == ("aborted", [])
    assert [(one.step_id, one.reason) for one in ended.undo] == [
        ("bought", "give_back needs approval: the task asks before each call that changes something.")
    ]


async def closed(staging: Stage) -> Handle:
    """A task that has reserved two things and ended; nothing is undone."""
    handle = await staging.start()
    await outcome(handle)
    return handle


async def test_an_undo_that_a_person_has_seen_is_made(stages: Stages) -> None:
    """The list has the calls with their arguments; a confirmed call is made once, however often it is undone."""
    seen = list[PlannedUndo]()

    async with stages(wiring(), [plan(*RESERVED), DONE]) as staging:
        handle = await closed(staging)
        unseen = await undo(stages.client, handle, View(), is_attended=False)
        confirmed = await undo(stages.client, handle, View(), is_attended=False, confirm=seen_by(seen))
        again = await undo(stages.client, handle, View(), is_attended=False, confirm=seen_by(seen))

    assert unseen.planned is not None and [one.step for one in unseen.planned.to_approve] == ["large"]
    [listed] = seen
    assert [(one.step, one.kind, one.args) for one in listed.calls] == [
        ("large", "wire", {"item": "house", "amount": 900_000})
    ]
    assert (confirmed.is_complete, again.ended_before is not None) == (True, True)
    assert SHOP.returned == ["pen 5", "house 900000"]


async def test_a_reset_that_undoes_shows_only_what_it_would_call(stages: Stages) -> None:
    """The effects after the step to which the task goes back; without a person they stay, and are named."""
    seen = list[PlannedUndo]()

    async with stages(wiring(), [plan(*RESERVED), DONE]) as staging:
        handle = await closed(staging)
        [unseen] = await undo_steps(stages.client, handle, {"large"}, View(), is_attended=False)
        [confirmed] = await undo_steps(
            stages.client, handle, {"large"}, View(), is_attended=False, confirm=seen_by(seen)
        )

    assert (unseen.done, unseen.reason) == (False, "wire needs approval: the amount is above 500.")
    [listed] = seen
    assert (confirmed.done, [one.step for one in listed.calls], SHOP.returned) == (True, ["large"], ["house 900000"])


async def test_a_confirmation_is_for_the_arguments_that_were_seen(stages: Stages) -> None:
    """A call with others is held: by the workflow, and by the worker that compares what it is sent."""
    async with stages(wiring(), [plan(*RESERVED), DONE]) as staging:
        handle = await closed(staging)
        progress = await handle.query(AgentWorkflow.progress)
        progress.origin = handle.first_execution_run_id
        other = UndoCall(step="large", kind="wire", args={"item": "house", "amount": 501})
        progress.confirmed = {"large": other.digest, "small": other.digest}
        with pytest.raises(WorkflowFailureError) as failed:
            await stages.client.execute_workflow(
                UndoWorkflow.run, Undo(progress=progress), id=f"undo-{handle.id}", task_queue=staging.queue
            )

    assert SHOP.returned == ["pen 5"]
    assert "large (wire needs approval: the amount is above 500)" in str(failed.value.cause)


async def test_what_was_confirmed_before_a_cancel_is_undone(stages: Stages) -> None:
    """`cancel --undo` tells the running task what a person has seen; what it does after that is held."""
    steps, seen = [RESERVED[0], step("open", "buy", "large", item="lamp", amount=800)], list[PlannedUndo]()
    async with stages(wiring(), [plan(*steps), DONE]) as staging:
        first, second = [await staging.start(waiting()) for _ in range(2)]
        for handle in (first, second):
            await asked(handle)
        await cancel(stages.client, first, undo=True, confirm=seen_by(seen))
        await cancel(stages.client, second, undo=True)
        ended = [await outcome(handle) for handle in (first, second)]

    assert [[one.step for one in planned.calls] for planned in seen] == [["large"]]
    assert [[(one.step_id, one.done) for one in each.undo] for each in ended] == [[("large", True)], [("large", False)]]
    assert SHOP.returned == ["house 900000"]


async def reset_to(client: Client, handle: Handle, *, event: int) -> WorkflowHandle[Any, Outcome]:
    """Temporal's own reset, which applies the Updates after the reset point again."""
    made = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=(await handle.describe()).run_id or ""),
            reason="test",
            request_id=f"{handle.id}-{event}",
            workflow_task_finish_event_id=event,
        )
    )
    return client.get_workflow_handle_for(AgentWorkflow.run, handle.id, run_id=made.run_id)


async def finished_tasks(handle: Handle) -> list[int]:
    """The ids of the events at which workflow tasks were completed."""
    return [
        event.event_id
        async for event in handle.fetch_history_events()
        if event.HasField("workflow_task_completed_event_attributes")
    ]


@pytest.mark.full
async def test_an_approval_before_the_reset_point_is_void(client: Client, stage: Stage) -> None:
    """What it was for was not done yet, and is not done in the new run without a person."""
    SHOP.is_closed = True
    handle = await stage.start(waiting())
    await approve(handle, await asked(handle))
    await asked(handle, 2)
    again = await reset_to(client, handle, event=(await finished_tasks(handle))[-1])
    SHOP.is_closed = False
    await until(again, lambda now: len(now.requests) == 2)
    called = len(SHOP.keys)
    await answer(again, "retry")
    third = await asked(again, 3)
    before = list(SHOP.sold)
    await approve(again, third)
    ended = await outcome(again)

    assert (third.kind, third.reason) == (
        "approval",
        "buy needs approval: the amount is above 500. What was approved is another call, or one with other defaults, "
        "or one before a reset.",
    )
    assert (called, before, SHOP.sold, ended.status) == (1, [], [("desk", 900)], TaskStatus.COMPLETED)


@pytest.mark.parametrize("place", ["before the request", pytest.param("after the request", marks=pytest.mark.full)])
async def test_temporals_own_reset_asks_again(client: Client, stage: Stage, place: str) -> None:
    """The server gives the new run the approval of the old one again, and it is not accepted."""
    handle = await stage.start(waiting())
    request = await asked(handle)
    open_at = len([event async for event in handle.fetch_history_events()])
    assert request.call is not None
    await approve(handle, request)
    await outcome(handle)
    tasks = await finished_tasks(handle)
    events = [event async for event in handle.fetch_history_events()]
    accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    after = next(event.event_id for event in events if event.event_type == accepted)
    point = tasks[0] if place == "before the request" else max(one for one in tasks if one < after)
    again = await reset_to(client, handle, event=point)
    progress = await until(again, lambda now: bool(now.open_requests))
    new = progress.open_requests[0]
    sold = list(SHOP.keys)
    assert new.call is not None and new.call.code != request.call.code
    old = await refusal(again, "approve", {"call": request.call.code})
    await answer(again, "approve", call=new.call.code)
    ended = await outcome(again)

    assert open_at < after
    assert len(sold) == 1, "only the run before the reset has bought something"
    assert "for the run before a reset" in old
    assert (ended.status, len({*SHOP.keys})) == (TaskStatus.COMPLETED, 1)
