"""Tasks that wait for a person: what they ask, which answers they take, and how they go on."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import date
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from activities.offline.planner import OfflinePlanner
from replan import Key, NeedsPerson, Refused, Tool, tool
from tests.harness import DONE, Proposals, outcome, plan, step
from tests.workflows.history import Handle, kinds, until
from tests.workflows.props import Recording, Said, Stages, Word, echo, played
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.agent import REQUEST_MEMO
from workflows.limits.budget import Limits
from workflows.people.requests import Choice, HumanRequest
from workflows.plans.proposal import Answer, Question


class Door:
    """What stands outside of Replan: a key that somebody has to mend."""

    def __init__(self) -> None:
        """Closed."""
        self.is_open = False
        self.calls = list[str]()


DOOR = Door()


@pytest.fixture(autouse=True)
def closed_door() -> None:
    """Each test begins with the key revoked."""
    DOOR.__init__()  # type: ignore[misc]


class Receipt(BaseModel):
    id: int


@tool.keyed
async def charge(args: Word, key: Key) -> Receipt:
    """Charge, if the key is good."""
    DOOR.calls.append(key)
    if not DOOR.is_open:
        raise NeedsPerson("The key was revoked: make a new one.", code="unauthorized")
    return Receipt(id=7)


@tool.keyed(timeout=60)
async def refuse_late(args: Word, key: Key) -> Receipt:
    """Need a person only after the call was cancelled."""
    DOOR.calls.append(key)
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(50)
    raise NeedsPerson("The key was revoked.", code="unauthorized")


TOOLS: list[Tool[..., Any]] = [echo, charge, refuse_late]
PAY: Proposals = [plan(step("before", "echo", word="a"), step("paid", "charge", "before", word="b")), DONE]


def waiting(text: str = "a task", *, limits: Limits | None = None, **more: Any) -> Task:
    """A task that waits for people."""
    return Task(text=text, on_escalation="wait", limits=limits or Limits(), **more)


async def asked(handle: Handle, number: int = 1) -> HumanRequest:
    """The request with this number, as soon as it is open."""
    progress = await until(handle, lambda now: len(now.requests) >= number)
    return progress.requests[number - 1]


async def answer(handle: Handle, choice: str, **given: Any) -> str:
    """Answer as a client does."""
    said: str = await handle.execute_update(choice, given or None, result_type=str)
    return said


@asynccontextmanager
async def asking(
    stages: Stages, tools: Sequence[Tool[..., Any]], planner: Any, task: Task | None = None, number: int = 1
) -> AsyncIterator[tuple[Handle, HumanRequest]]:
    """A task that waits for a person, while its worker runs, and its request with this number."""
    async with stages(tools, planner) as stage:
        handle = await stage.start(task or waiting())
        yield handle, await asked(handle, number)


async def refusal(handle: Handle, choice: str, *args: Any) -> str:
    """Why an answer is not accepted."""
    with pytest.raises(WorkflowUpdateFailedError) as raised:
        await handle.execute_update(choice, args=list(args))
    assert isinstance(raised.value.cause, ApplicationError)
    return raised.value.cause.message


async def test_a_mended_cause_goes_on_with_the_same_step(stages: Stages) -> None:
    """Two attempts of that step with one key, one of every other, and the history says who answered."""
    async with asking(stages, TOOLS, PAY) as (handle, request):
        seen = await handle.describe()
        DOOR.is_open = True
        said = await answer(handle, "retry", by="ann")
        ended = await outcome(handle)

    assert (request.kind, request.step, request.code, request.attempts) == ("fault", "paid", "unauthorized", 1)
    assert (said, ended.status) == ("r1: retry", TaskStatus.COMPLETED)
    assert [(one.id, one.attempts, one.status) for one in ended.steps] == [
        ("before", 1, StepStatus.COMPLETED),
        ("paid", 2, StepStatus.COMPLETED),
    ]
    assert len(DOOR.calls) == 2 and len({*DOOR.calls}) == 1
    (kept,) = ended.requests
    assert kept.answer is not None and (kept.answer.choice, kept.answer.by) == (Choice.RETRY, "ann")
    assert (await seen.memo_value(REQUEST_MEMO))["step"] == "paid"
    assert REQUEST_MEMO not in await (await handle.describe()).memo()
    assert [fault.decision for fault in ended.faults] == ["ask"]


@pytest.mark.full
async def test_a_task_that_is_to_stop_asks_nobody(stages: Stages) -> None:
    """Also if its running call fails with what a person could mend, after the cancel."""
    async with stages(TOOLS, [plan(step("late", "refuse_late", word="b")), DONE]) as stage:
        handle = await stage.start(waiting())
        while not DOOR.calls:
            await asyncio.sleep(0.02)
        await handle.cancel()
        ended = await outcome(handle)

    assert (ended.status, ended.requests) == (TaskStatus.CANCELLED, ())
    assert [(one.code, one.decision) for one in ended.faults] == [("unauthorized", "escalate")]


@pytest.mark.full
async def test_other_branches_go_on_while_one_waits(stages: Stages) -> None:
    """Only what needs the waiting step waits with it."""
    steps = [step("paid", "charge", word="b"), step("other", "echo", word="c"), step("more", "echo", "other", word="d")]
    async with stages(TOOLS, [plan(*steps), DONE]) as stage:
        handle = await stage.start(waiting())
        progress = await until(
            handle, lambda now: bool(now.open_requests) and len(now.with_status(StepStatus.COMPLETED)) == 2
        )
        DOOR.is_open = True
        await answer(handle, "retry")
        ended = await outcome(handle)

    assert (progress.status, ended.status) == (TaskStatus.WAITING, TaskStatus.COMPLETED)


async def test_a_person_asks_for_a_new_plan_with_a_hint(stages: Stages) -> None:
    """It counts as a replan, and the planner is told what was said."""
    planner = Recording(plan(step("paid", "charge", word="b")), plan(step("other", "echo", word="c")), DONE)
    async with asking(stages, TOOLS, planner) as (handle, _):
        await answer(handle, "replan", hint="Pay by invoice.")
        ended = await outcome(handle)

    assert (ended.status, ended.replans) == (TaskStatus.COMPLETED, 1)
    assert [[word.text for word in told.words] for told in planner.told][:2] == [[], ["Pay by invoice."]]
    assert [fault.decision for fault in ended.faults] == ["replan"]


async def test_a_person_provides_the_result(stages: Stages) -> None:
    """It is checked as the tool's own would be; the tool is not called again."""
    async with asking(stages, TOOLS, PAY) as (handle, _):
        wrong = await refusal(handle, "provide", {"result": {"id": "none"}})
        request = await asked(handle, 2)
        await answer(handle, "provide", result={"id": 9})
        ended = await outcome(handle)

    assert "It does not fit the result of charge: 'id'" in wrong
    assert "is not accepted" in request.reason
    assert (ended.status, ended.steps[1].result, len(DOOR.calls)) == (TaskStatus.COMPLETED, {"id": 9}, 1)


async def test_a_step_that_nothing_needs_is_skipped(stages: Stages) -> None:
    """One that others need is not."""
    steps = [step("paid", "charge", word="b"), step("after", "echo", "paid", word="c")]
    async with asking(stages, TOOLS, [plan(*steps), DONE]) as (handle, _):
        needed = await refusal(handle, "skip")
        await answer(handle, "abort", reason="enough")
        ended = await outcome(handle)
    async with asking(stages, TOOLS, PAY) as (handle, _):
        await answer(handle, "skip")
        skipped = await outcome(handle)

    assert needed == "The step 'paid' cannot be skipped: after needs it."
    assert (ended.status, ended.code, ended.reason) == (TaskStatus.FAILED, "aborted", "Aborted: enough")
    assert (skipped.status, skipped.steps[1].status) == (TaskStatus.COMPLETED, StepStatus.SKIPPED)


async def test_a_question_goes_back_into_the_conversation(stages: Stages) -> None:
    """A reply that is none of the options is rejected, where only these are allowed; it names one in any capitals.

    The memo has the options: for lists, and for programs that cannot ask the worker.
    """
    planner = Recording(Question(text="Which?", options=("Ada", "the team"), free_text=False), Answer(result="booked"))
    async with asking(stages, TOOLS, planner) as (handle, request):
        memo = await (await handle.describe()).memo_value(REQUEST_MEMO)
        other = await refusal(handle, "reply", {"text": "Bob"})
        await answer(handle, "reply", text=" THE  Team ", by="ann")
        ended = await outcome(handle)

    assert (request.kind, request.options, request.free_text) == ("question", ("Ada", "the team"), False)
    assert (memo["options"], memo["free_text"]) == (["Ada", "the team"], False)
    assert other == "The question takes one of 'Ada', 'the team', and not 'Bob'."
    assert [(one.text, one.is_option) for one in planner.told[1].words] == [("the team", True)]
    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "booked")
    assert [one.may_ask for one in planner.told] == [True, True]


class Slot(BaseModel):
    day: date
    at: str
    name: str


@tool.idempotent
async def book_slot(args: Slot) -> Slot:
    """Book a slot; 14:00 is always taken."""
    if args.at == "14:00":
        raise Refused("14:00 is taken.", code="conflict", observed={"free": ["13:30", "14:30", "15:00"]})
    return args


@pytest.mark.parametrize(("how", "at"), [("wait", "13:30"), pytest.param("end", "14:30", marks=pytest.mark.full)])
async def test_without_a_model_the_user_chooses_between_equally_near_slots(
    stages: Stages, how: Literal["wait", "end"], at: str
) -> None:
    """Where the task waits; else the later one is taken. The same step goes on, in a plan that says why."""
    task = Task(text="book a slot for the team at 14:00", on_escalation=how)
    async with stages([book_slot], OfflinePlanner()) as stage:
        handle = await stage.start(task)
        if how == "wait":
            request = await asked(handle)
            assert (request.reason, request.options) == (
                "book: 14:00 is taken. Which time instead of 14:00?",
                ("14:30", "13:30", "15:00"),
            )
            await answer(handle, "reply", text="1:30 pm")
        ended = await outcome(handle)

    assert (ended.status, ended.replans, len(ended.requests)) == (TaskStatus.COMPLETED, 1, int(how == "wait"))
    assert [(one.id, one.args["at"]) for one in ended.steps] == [("book", "14:00"), ("book-2", at)]
    assert ("the user chose 13:30" in ended.revisions[-1].because) is (how == "wait")


@pytest.mark.full
async def test_an_answer_to_no_open_request_is_rejected(stages: Stages) -> None:
    """It names one that was answered, or none at all; or nothing is open. No event tells of it."""

    @tool.read(timeout=60)
    async def hang(args: Word) -> Said:
        """Hang until cancelled."""
        await asyncio.sleep(50)
        return Said(said="never")

    questions: Proposals = [Question(text="Which?"), Question(text="Which other?"), plan(step("a", "hang"))]
    async with asking(stages, [hang], questions) as (handle, _):
        await answer(handle, "reply", text="this", by="ann")
        await asked(handle, 2)
        events = len((await handle.fetch_history()).events)
        answered = await refusal(handle, "reply", {"text": "that", "request": "r1"})
        unknown = await refusal(handle, "reply", {"text": "that", "request": "r7"})
        left = len((await handle.fetch_history()).events) - events
        await answer(handle, "reply", text="that")
        await until(handle, lambda now: bool(now.with_status(StepStatus.RUNNING)))
        none = await refusal(handle, "reply", {"text": "late"})
        await handle.cancel()
        await outcome(handle)

    assert answered.startswith("The request r1 was answered already: reply by ann at ")
    assert unknown == "There is no request 'r7'; open are r2 (the task: question)."
    assert (none, left) == ("The task asks nothing now.", 0)


no = played("no", Refused("No.", code="conflict"))


@pytest.mark.parametrize(
    ("limit", "kind"), [("tool_calls", "echo"), pytest.param("replans", "no", marks=pytest.mark.full)]
)
async def test_a_used_up_budget_is_a_question(stages: Stages, limit: str, kind: str) -> None:
    """An extension goes on where the task stopped."""
    given = {"tool_calls": 1} if limit == "tool_calls" else {"replans": 0}

    class OneByOne(BaseModel):
        name: str = "one by one"

        async def propose(self, situation: Any, kinds: Mapping[str, Any]) -> Any:
            ids = [one.step.id for one in situation.records]
            return DONE if "b" in ids else plan(step("b", "echo", word="b") if ids else step("a", kind, word="a"))

    async with asking(stages, [*TOOLS, no], OneByOne(), waiting(limits=Limits(**{"replans": 2, **given}))) as (
        handle,
        request,
    ):
        nothing = await refusal(handle, "extend", {})
        await answer(handle, "extend", **{limit: 2}, by="ann")
        ended = await outcome(handle)

    assert (request.kind, request.code, len(ended.requests)) == ("budget", limit, 1)
    assert nothing.startswith("Something is missing: extend takes ")
    assert (ended.status, [one.extended for one in ended.extensions]) == (TaskStatus.COMPLETED, [{limit: 2}])


async def test_nobody_answers(stages: Stages) -> None:
    """The task ends as escalated, and the reason says what was asked. Without `wait`, nothing is asked.

    A cancel ends the wait, and closes the request.
    """
    async with stages(TOOLS, PAY) as stage:
        handle = await stage.start(waiting())
        await asked(handle)
        await handle.cancel()
        late, ended, cancelled = await asyncio.gather(stage.run(waiting(answer_within=1)), stage.run(), outcome(handle))

    assert (late.status, late.code) == (TaskStatus.ESCALATED, "unanswered")
    assert late.reason.startswith("paid: The key was revoked: make a new one. Nobody has answered since ")
    assert [one.closed for one in late.requests] == ["unanswered"]
    assert (ended.status, ended.code, ended.requests) == (TaskStatus.ESCALATED, "unauthorized", ())
    assert (cancelled.status, cancelled.requests[0].closed) == (TaskStatus.CANCELLED, "ended")


WRONG: dict[str, tuple[str, tuple[Any, ...], str]] = {
    "not this choice": (
        "reply",
        ({"text": "x"},),
        "The request r1 (fault) takes retry, replan, provide, skip, abort, and",
    ),
    "no such request": ("retry", ({"request": "r9"},), "There is no request 'r9'; open are r1 (paid: unauthorized)."),
    "no object": ("retry", (7,), "The answer cannot be read: its argument is no JSON object."),
    "another field": ("retry", ({"requset": "r1"},), "The answer cannot be read: 'requset': Extra inputs are not"),
    "two arguments": ("retry", ({}, {}), "The answer cannot be read: it has 2 arguments, and takes one."),
    "no result": ("provide", ({},), 'Something is missing: provide takes {"result": {"id": 7}}.'),
    "no limit": ("extend", ({"usd": 1},), "The task has no limit of usd: nothing to extend."),
    "negative": ("extend", ({"tool_calls": -1},), "The answer cannot be read: 'tool_calls'"),
}


async def test_what_is_not_accepted_leaves_no_trace(stages: Stages) -> None:
    """No event, and the request stays open."""
    async with asking(stages, TOOLS, PAY) as (handle, _):
        before = len([event async for event in handle.fetch_history_events()])
        for choice, given, says in WRONG.values():
            assert (await refusal(handle, choice, *given)).startswith(says), choice
        after = len([event async for event in handle.fetch_history_events()])
        await answer(handle, "abort")
        late = await outcome(handle)

    assert before == after
    assert late.code == "aborted"


async def test_of_two_answers_one_wins(stages: Stages) -> None:
    """The other is told who was first."""
    async with asking(stages, TOOLS, PAY) as (handle, _):
        DOOR.is_open = True
        answers = [handle.execute_update("retry", {"by": name, "request": "r1"}) for name in ("ann", "bob")]
        came = await asyncio.gather(*answers, return_exceptions=True)
        ended = await outcome(handle)

    lost = [one for one in came if isinstance(one, WorkflowUpdateFailedError)]
    assert (len(lost), ended.status, ended.steps[1].attempts) == (1, TaskStatus.COMPLETED, 2)
    assert "was answered already: retry by" in str(lost[0].cause)


@pytest.mark.full
async def test_an_aborted_task_is_undone_on_request(stages: Stages) -> None:
    """And other open requests are closed with it."""

    @tool.idempotent
    async def back(args: Receipt) -> Said:
        """Take it back."""
        return Said(said="back")

    @tool.keyed(undo=back.using(id="result.id"))
    async def give(args: Word, key: Key) -> Receipt:
        """Give."""
        return Receipt(id=3)

    steps = [
        step("given", "give", word="a"),
        step("one", "charge", "given", word="b"),
        step("two", "charge", "given", word="c"),
    ]
    async with asking(stages, [*TOOLS, back, give], [plan(*steps), DONE], number=2) as (handle, _):
        await answer(handle, "abort", request="r1", undo=True)
        ended = await outcome(handle)

    assert (ended.code, ended.steps[0].status) == ("aborted", StepStatus.UNDONE)
    assert [one.closed for one in ended.requests] == ["", "ended"]
    assert "back" in await kinds(handle)
