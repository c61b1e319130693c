"""Who may approve a call: the tool names roles and people, doors sign who answers, and the worker verifies it."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from client import people
from client.follow import View
from client.problem import Problem
from client.reset import Fate, reset
from client.undo import PlannedUndo, cancel, undo
from client.vouching import Voucher
from replan import Approval, Key, NeedsPerson, Tool, tool
from runtime.keys import Keyring, add_key, encrypting, read_keys
from runtime.people_file import Door, KnownPeople, PeopleFile, Person, Signer
from tests.harness import DONE, Proposals, Stage, outcome, plan, staged, step
from tests.workflows.history import Handle, until
from tests.workflows.test_agent_people import answer, asked, refusal, waiting
from tests.workflows.test_approvals import finished_tasks, reset_to
from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus
from workflows.people.card import needs_text
from workflows.people.requests import Choice, GivenApprove, HumanRequest

NOW = datetime.now(UTC)


class Refund(BaseModel):
    order: str
    amount: int


class Paid(BaseModel):
    amount: int


PAID = list[tuple[str, int]]()
"""What was paid back."""
IS_OPEN = [True]


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    PAID.clear()
    IS_OPEN[:] = [True]


def refunding(**rule: Any) -> list[Tool[..., Any]]:
    """A tool that pays back, with this rule."""

    @tool.keyed(approve=Approval(**{"when": "args.amount > 500", **rule}))
    async def refund(args: Refund, key: Key) -> Paid:
        """Pay back."""
        if not IS_OPEN[0]:
            raise NeedsPerson("The bank is closed: open it.")
        PAID.append((key, args.amount))
        return Paid(amount=args.amount)

    return [refund]


def paying(*amounts: int) -> Proposals:
    """Payments, one after the other."""
    steps = [
        step(f"s{number}", "refund", *([f"s{number - 1}"] if number else []), order="a", amount=one)
        for number, one in enumerate(amounts)
    ]
    return [plan(*steps), DONE]


@dataclass
class Office:
    """People, a door that knows them, and the people file of the worker."""

    path: Path
    door: Signer
    file: PeopleFile
    rule: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "Office":
        """Ann and cleo are in finance, bob is in sales, dora is on the board."""
        door = Signer.new(folder / "door.key", "desk")
        roles = {"ann": "finance", "bob": "sales", "cleo": "finance", "dora": "board"}
        file = PeopleFile(
            people=tuple(Person(name=name, roles=(role,), also=(f"{name}@shop",)) for name, role in roles.items()),
            doors=(Door(name="desk", keys=(door.public_key(NOW - timedelta(days=1)),)),),
        )
        file.write(folder / "people.json")
        return cls(folder / "people.json", door, file)

    def change(self, **more: Any) -> None:
        """Write the file anew with these rows."""
        self.file = self.file.model_copy(update=more)
        self.file.write(self.path)

    def voucher(self, name: str, *roles: str, signer: Signer | None = None) -> Voucher:
        """The door's word for somebody, with the roles of the file or these."""
        person = self.file.person(name)
        known = roles or (person.roles if person else ())
        return Voucher(person.name if person else name, "token", known, signer or self.door)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office.of(tmp_path)


@asynccontextmanager
async def asking(
    client: Client, office: Office, proposals: Proposals, starter: str = "", **rule: Any
) -> AsyncIterator[tuple[Stage, Handle, HumanRequest]]:
    """A task that waits for those whom the rule names."""
    tools, people = refunding(**rule), KnownPeople(office.path)
    async with staged(client, office.path.parent, tools, proposals, people=people) as stage:
        handle = await started(stage, office, starter)
        yield stage, handle, await asked(handle)


async def started(stage: Stage, office: Office, starter: str = "") -> Handle:
    if not starter:
        return await stage.start(waiting())
    id = f"of-{starter}-{len(stage.started)}-{stage.queue}"
    stated = office.voucher(starter).of_start(stage.client.namespace, id)
    return await stage.start(waiting(started=stated), id=id)


async def approve(
    office: Office, handle: Handle, request: HumanRequest, name: str, *roles: str, signer: Signer | None = None
) -> str:
    """Approve through a door that knows the person; each time it is another answer."""
    assert request.call is not None
    voucher = office.voucher(name, *roles, signer=signer)
    about = {"call": request.call.code, "request": request.id}
    return await people.answer(handle, Choice.APPROVE, uuid.uuid4().hex, voucher=voucher, **about) or ""


async def refused(*args: Any, **more: Any) -> str:
    with pytest.raises(Problem) as raised:
        await approve(*args, **more)
    return raised.value.reason


async def aborted(handle: Handle, request: HumanRequest) -> Outcome:
    await answer(handle, "abort", request=request.id)
    return await outcome(handle)


async def test_whom_the_tool_names_may_approve_and_nobody_else(client: Client, office: Office) -> None:
    """The others are told who may, in one sentence; what was accepted says how the person was known."""
    async with asking(client, office, paying(900), by="role:finance") as (_, handle, request):
        alone = await refusal(handle, "approve", {"call": request.call.code if request.call else "", "by": "ann"})
        wrong = await refused(office, handle, request, "bob")
        said = await approve(office, handle, request, "ann@shop")
        ended = await outcome(handle)

    assert request.approvers is not None and request.approvers.text() == "a person with the role finance"
    assert needs_text(request) == "a person with the role finance."
    assert alone == (
        "This answer needs a person with the role finance, and nobody vouches for who gives it: answer where you are"
        " signed in."
    )
    assert wrong == "bob (sales) may not approve it: it needs a person with the role finance."
    assert (said, [amount for _, amount in PAID]) == ("r1: approve", [900])
    given = ended.requests[0].answer
    assert ended.status is TaskStatus.COMPLETED and given is not None and given.statement is not None
    assert (given.by, given.statement.how, given.statement.roles) == ("ann", "token", ("finance",))


async def test_two_different_people_must_approve(client: Client, office: Office) -> None:
    """Under whatever name: the first one is told how many are left, and cannot be the second one."""
    async with asking(client, office, paying(900), by="role:finance", count=2) as (_, handle, request):
        first = await approve(office, handle, request, "ann")
        again = await refused(office, handle, request, "ann@shop")
        before = list(PAID)
        second = await approve(office, handle, request, "cleo")
        ended = await outcome(handle)

    assert (first, second, before) == ("r1: approve (1 of 2)", "r1: approve", [])
    assert again == "ann has answered it already: it needs 2 people with the role finance."
    assert len(PAID) == 1 and ended.status is TaskStatus.COMPLETED
    assert [one.by for one in ended.requests[0].endorsed] == ["ann"]


@pytest.mark.parametrize("starter", ["ann", ""])
async def test_who_started_it_cannot_approve_alone(client: Client, office: Office, starter: str) -> None:
    """If nobody knows who that is, two people must: one of them is somebody else."""
    rule = {"by": "role:finance", "not_starter": True}
    async with asking(client, office, paying(900), starter, **rule) as (_, handle, request):
        said = await approve(office, handle, request, "ann") if not starter else ""
        own = "" if not starter else await refused(office, handle, request, "ann")
        before = list(PAID)
        await approve(office, handle, request, "cleo")
        ended = await outcome(handle)

    assert own == ("ann started the task, and may not approve this call: another person must." if starter else "")
    assert said == ("" if starter else "r1: approve (1 of 2)")
    assert (before, len(PAID), ended.status) == ([], 1, TaskStatus.COMPLETED)


async def test_an_edited_call_is_asked_for_again(client: Client, office: Office) -> None:
    """What was signed is about the call that was shown, and not about another one."""
    async with asking(client, office, paying(900), by="role:finance") as (_, handle, request):
        assert request.call is not None
        about = {"call": request.call.code, "args": {"amount": 700}}
        await people.answer(handle, Choice.EDIT, voucher=office.voucher("ann"), **about)
        again = await asked(handle, 2)
        await approve(office, handle, again, "cleo")
        await outcome(handle)

    assert again.call is not None and again.call.args == {"order": "a", "amount": 700}
    assert [amount for _, amount in PAID] == [700]


async def test_who_may_not_approve_may_not_edit_either(client: Client, office: Office) -> None:
    """A door that does not know it yet is believed by the workflow; the worker refuses, and the call is as it was."""
    async with asking(client, office, paying(900), by="role:finance") as (_, handle, request):
        assert request.call is not None
        about = {"call": request.call.code, "args": {"amount": 700}}
        with pytest.raises(Problem) as refusal:
            await people.answer(handle, Choice.EDIT, voucher=office.voucher("bob", "finance"), **about)
        again = await asked(handle, 2)
        await approve(office, handle, again, "ann")
        await outcome(handle)

    assert "not accepted: bob may not approve it: it needs a person with the role finance." in refusal.value.reason
    assert again.call is not None and again.call.args == {"order": "a", "amount": 900}
    assert [amount for _, amount in PAID] == [900]


async def test_a_result_is_provided_by_those_who_may_approve(client: Client, office: Office) -> None:
    """It stands for the call, also of one that is small enough to need no approval."""
    IS_OPEN[:] = [False]
    async with asking(client, office, paying(100), by="role:finance", count=2) as (_, handle, _request):
        forged = await refusal(handle, "provide", {"result": {"amount": 100}, "by": "boss"})
        one, other = {"result": {"amount": 100}}, {"result": {"amount": 5}}
        first = await people.answer(handle, Choice.PROVIDE, voucher=office.voucher("ann"), **one)
        with pytest.raises(Problem) as differs:
            await people.answer(handle, Choice.PROVIDE, voucher=office.voucher("cleo"), **other)
        await people.answer(handle, Choice.PROVIDE, voucher=office.voucher("cleo"), **one)
        ended = await outcome(handle)

    assert "nobody vouches" in forged and first == "r1: provide (1 of 2)"
    assert differs.value.reason == "ann has given another result: everybody must give the same."
    assert (ended.status, ended.steps[0].result, PAID) == (TaskStatus.COMPLETED, {"amount": 100}, [])


async def test_after_a_while_others_may_approve(client: Client, office: Office) -> None:
    rule = {"by": "role:finance", "after": "2s escalate role:board"}
    async with asking(client, office, paying(900), **rule) as (_, handle, request):
        early = await refused(office, handle, request, "dora")
        while datetime.now(UTC) < request.since + timedelta(seconds=2):
            await asked(handle)
        await approve(office, handle, request, "dora")
        ended = await outcome(handle)

    assert early.startswith("dora (board) may not approve it: it needs a person with the role finance, and from ")
    assert (len(PAID), ended.status) == (1, TaskStatus.COMPLETED)


async def forged(handle: Handle, request: HumanRequest, office: Office, **changed: Any) -> str:
    """Send an Update with a statement that nobody signed, as whoever reaches the server can."""
    assert request.call is not None
    where = ("default", handle.id, (await handle.describe()).run_id or "")
    given = GivenApprove(call=request.call.code, request=request.id)
    true = office.voucher("bob").of_answer(Choice.APPROVE, given, request, where)
    statement = true.model_copy(update={"person": "ann", "roles": ("finance",), **changed})
    return await answer(handle, "approve", **given.model_copy(update={"statement": statement}).model_dump(mode="json"))


async def test_a_forged_update_buys_nothing_and_is_asked_for_again(client: Client, office: Office) -> None:
    """The workflow, which verifies nothing, takes it; the worker does not, and the next request says why."""
    async with asking(client, office, paying(900), by="role:finance") as (_, handle, request):
        said = await forged(handle, request, office)
        again = await asked(handle, 2)
        unknown = await forged(handle, again, office, key="0123456789abcdef")
        third = await asked(handle, 3)
        before = list(PAID)
        await approve(office, handle, third, "ann")
        ended = await outcome(handle)

    assert (said, unknown, before) == ("r1: approve", "r2: approve", [])
    assert "What was signed for ann does not count: its signature is wrong." in again.reason
    assert "So far nobody approved it; 1 must." in again.reason
    assert "nobody here knows the key 0123456789abcdef" in third.reason
    assert (len(PAID), ended.status) == (1, TaskStatus.COMPLETED)


async def test_what_another_task_was_approved_with_does_not_fit(client: Client, office: Office) -> None:
    """A statement is about one call of one run of one task: sent to another one, it buys nothing."""
    async with asking(client, office, paying(900), by="role:finance") as (stage, handle, request):
        await approve(office, handle, request, "ann")
        true = (await outcome(handle)).requests[0].answer
        other = await started(stage, office)
        second = await asked(other)
        assert true is not None and true.statement is not None and second.call is not None
        stated = true.statement.model_copy(update={"asked": second.since})
        replayed = await refusal(
            other, "approve", {"call": second.call.code, "statement": true.statement.model_dump(mode="json")}
        )
        await answer(other, "approve", call=second.call.code, statement=stated.model_dump(mode="json"))
        third = await asked(other, 2)
        ended = await aborted(other, third)

    assert replayed == "What was signed is about another request or answer: sign approve of r1."
    assert "does not count: its signature is wrong" in third.reason
    assert (len(PAID), ended.status) == (1, TaskStatus.FAILED)


async def test_a_role_is_taken_away_between_the_question_and_the_call(client: Client, office: Office) -> None:
    """A door that does not know it yet is believed by the workflow, and not by the worker."""
    async with asking(client, office, paying(900), by="role:finance") as (_, handle, request):
        office.change(people=(*(one for one in office.file.people if one.name != "ann"), Person(name="ann")))
        told = await refused(office, handle, request, "ann")
        await approve(office, handle, request, "ann", "finance")
        again = await asked(handle, 2)
        withdrawn = office.door.public_key(NOW - timedelta(days=1)).model_copy(update={"withdrawn": NOW})
        office.change(doors=(Door(name="desk", keys=(withdrawn,)),))
        await approve(office, handle, again, "cleo")
        third = await asked(handle, 3)
        ended = await aborted(handle, third)

    assert told == "ann may not approve it: it needs a person with the role finance."
    assert "ann may not approve it: it needs a person with the role finance." in again.reason
    assert f"the key {office.door.id} was withdrawn" in third.reason
    assert (PAID, ended.status) == ([], TaskStatus.FAILED)


async def test_who_may_only_read_approves_nothing(client: Client, office: Office) -> None:
    """Whatever door says who they are, and whatever role they have: the worker has its own people file."""
    async with asking(client, office, paying(900), by="role:finance") as (_, handle, request):
        rows = [
            row.model_copy(update={"scopes": ("read",)}) if row.name == "ann" else row for row in office.file.people
        ]
        office.change(people=tuple(rows))
        known = KnownPeople(office.path)
        await approve(office, handle, request, "ann")
        again = await asked(handle, 2)
        await approve(office, handle, again, "cleo")
        ended = await outcome(handle)

    assert "What was signed for ann does not count: ann may not answer, but read." in again.reason
    assert len(PAID) == 1 and ended.requests[0].answer is not None
    signed = ended.requests[0].answer.statement
    assert signed is not None and known.now().verified(signed, signed.at).person == "ann"  # for the record it is true


async def test_several_calls_are_approved_together_by_the_same_people(client: Client, office: Office) -> None:
    """A call that only one of two people has seen is asked for by itself."""
    rule: dict[str, Any] = {"when": "always", "by": "role:finance", "count": 2}
    async with asking(client, office, paying(600, 700), **rule) as (_, handle, request):
        assert request.call is not None and [one.step for one in request.others] == ["s1"]
        both = people.reference_to(request, Choice.APPROVE_ALL)
        await people.answer(handle, Choice.APPROVE_ALL, voucher=office.voucher("ann"), **both)
        await approve(office, handle, request, "cleo")
        second = await asked(handle, 2)
        for name in ("ann", "cleo"):
            await approve(office, handle, second, name)
        await outcome(handle)

    assert second.step == "s1" and sorted(amount for _, amount in PAID) == [600, 700]

    PAID.clear()
    async with asking(client, office, paying(600, 700), **rule) as (_, handle, request):
        both = people.reference_to(request, Choice.APPROVE_ALL)
        for name in ("ann", "cleo"):
            await people.answer(handle, Choice.APPROVE_ALL, voucher=office.voucher(name), **both)
        ended = await outcome(handle)

    assert len(ended.requests) == 1 and sorted(amount for _, amount in PAID) == [600, 700]


def charging(count: int = 2) -> list[Tool[..., Any]]:
    """A charge that anybody may make, and so many people of finance must take back."""
    [refund] = refunding(when="always", by="role:finance", count=count)

    @tool.keyed(undo=refund)
    async def charge(args: Refund, key: Key) -> Paid:
        """Charge."""
        return Paid(amount=args.amount)

    return [charge, refund]


CHARGED: Proposals = [
    plan(step("s0", "charge", order="a", amount=5), step("s1", "charge", "s0", order="b", amount=6)),
    DONE,
]


async def all_of_it(planned: PlannedUndo) -> bool:
    return True


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_an_undo_is_confirmed_by_two_people_one_after_the_other(
    client: Client, office: Office, *, is_encrypted: bool
) -> None:
    """Each undoes the task once: the calls of the second have both statements, and one person twice is one person."""
    path, known = office.path, KnownPeople(office.path)
    if is_encrypted:
        add_key(keys := path.with_name("replan.keys"))
        config = client.config()
        config["data_converter"] = encrypting(Keyring(read_keys(keys), "default"))
        client = Client(**config)
    async with staged(client, path.parent, charging(), CHARGED, people=known) as stage:
        handle = await stage.start()
        await outcome(handle)
        alone = [
            await undo(client, handle, View(), is_attended=False, confirm=all_of_it, voucher=office.voucher(name))
            for name in ("ann", "ann@shop", "bob")
        ]
        before = list(PAID)
        seen = await undo(client, handle, View(), is_attended=False, voucher=office.voucher("cleo"))  # without a yes
        both = await undo(client, handle, View(), is_attended=False, confirm=all_of_it, voucher=office.voucher("cleo"))

    reasons = [one.outcome.undo[0].reason for one in alone]
    assert [one.is_complete for one in [*alone, seen]] == [False] * 4 and before == []
    assert reasons[0].endswith(
        "needs approval: the tool asks before each call. So far ann approved it; 1 more must."
    ), reasons
    assert "bob (sales) may not approve it" in reasons[2]
    assert both.is_complete and sorted(amount for _, amount in PAID) == [5, 6]


async def test_who_confirmed_a_cancel_counts_in_the_undo_that_follows(client: Client, office: Office) -> None:
    waits: Proposals = [
        plan(step("s0", "charge", order="a", amount=5), step("s1", "refund", "s0", order="b", amount=7))
    ]
    path, known = office.path, KnownPeople(office.path)
    async with staged(client, path.parent, charging(), waits, people=known) as stage:
        handle = await stage.start(waiting())
        await asked(handle)
        await cancel(client, handle, undo=True, confirm=all_of_it, voucher=office.voucher("ann"))
        [stays] = (await outcome(handle)).undo
        done = await undo(client, handle, View(), is_attended=False, confirm=all_of_it, voucher=office.voucher("cleo"))

    assert "So far ann approved it; 1 more must." in stays.reason
    assert done.is_complete and [amount for _, amount in PAID] == [5]


async def test_who_undid_an_earlier_task_with_this_id_has_confirmed_nothing_of_a_new_one(
    client: Client, office: Office
) -> None:
    path, known = office.path, KnownPeople(office.path)
    async with staged(client, path.parent, charging(), CHARGED, people=known) as stage:
        ended = list[bool]()
        for name in ("ann", "cleo"):
            handle = await stage.start(id=f"same-{stage.queue}")
            await outcome(handle)
            done = await undo(
                client, handle, View(), is_attended=False, confirm=all_of_it, voucher=office.voucher(name)
            )
            ended.append(done.is_complete)

    assert (ended, PAID) == ([False, False], [])


async def test_a_cancel_and_a_reset_say_who_confirms_what_they_undo(client: Client, office: Office) -> None:
    """Without somebody who is known, the effects stay."""
    waits: Proposals = [
        plan(step("s0", "charge", order="a", amount=5), step("s1", "refund", "s0", order="b", amount=7)),
        DONE,
    ]
    path, known = office.path, KnownPeople(office.path)
    async with staged(client, path.parent, charging(count=1), waits, people=known) as stage:
        cancelled = list[Outcome]()
        for voucher in (None, office.voucher("ann")):
            handle = await stage.start(waiting())
            await asked(handle)
            await cancel(client, handle, undo=True, confirm=all_of_it, voucher=voucher)
            cancelled.append(await outcome(handle))
    async with staged(client, path.parent, charging(count=1), CHARGED, people=known) as stage:
        closed = await stage.start()
        await outcome(closed)
        going = partial(reset, client, closed, to="s1", reason="test", fate=Fate.UNDO, confirm=all_of_it)
        with pytest.raises(Problem) as stays:
            await going(voucher=office.voucher("bob"))
        before = list(PAID)
        await going(voucher=office.voucher("cleo"))

    assert [[one.done for one in each.undo] for each in cancelled] == [[False], [True]]
    assert "bob (sales) may not approve it" in stays.value.reason
    assert [amount for _, amount in before] == [5] and [amount for _, amount in PAID] == [5, 6]


async def test_a_reset_makes_what_was_approved_void(client: Client, office: Office) -> None:
    """The server sends the Updates of the old run to the new one: they are about a run that is no more."""
    async with asking(client, office, paying(900), by="role:finance") as (_, handle, request):
        await approve(office, handle, request, "ann")
        await outcome(handle)
        run = await reset_to(client, handle, event=(await finished_tasks(handle))[1])
        again = await asked(run)
        with pytest.raises(Problem) as void:
            await approve(office, run, request, "cleo")
        ended = await aborted(run, again)

    assert again.is_open and again.since != request.since and "stands for another call" in void.value.reason
    assert (len(PAID), ended.status) == (1, TaskStatus.FAILED)


async def test_an_endorsement_outlives_the_worker(client: Client, office: Office) -> None:
    """And a task without such a tool is as ever: its history has nothing of this."""
    tools, file = refunding(by="role:finance", count=2), KnownPeople(office.path)
    async with staged(client, office.path.parent, tools, paying(900), people=file, queue="q-endorsed") as stage:
        handle = await started(stage, office)
        request = await asked(handle)
        await approve(office, handle, request, "ann")
    async with staged(client, office.path.parent, tools, paying(900), people=file, queue="q-endorsed") as stage:
        progress = await until(handle, lambda now: bool(now.requests))
        await approve(office, handle, progress.requests[0], "cleo")
        ended = await outcome(handle)

    assert [one.by for one in progress.requests[0].endorsed] == ["ann"]
    assert (len(PAID), ended.status) == (1, TaskStatus.COMPLETED)
