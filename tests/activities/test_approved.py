"""What the worker decides of a call that people must approve: who may, may, and whatever was forged buys nothing.

The header is what anybody who reaches the Temporal server can write. The matrix is rule x person x what is wrong with
what was signed; which cells buy the call is written down here, and not computed by the product.
"""

import base64
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel
from temporalio.exceptions import ApplicationError

from activities.toolbox.declare.tool import Tool
from replan import Approval, Key, tool
from runtime.people_file import VALID, Door, KnownPeople, PeopleFile, Person, Signer
from tests.activities.bench import Bench, bench
from workflows.calls.header import CallHeader, Provided, Undoes
from workflows.faults.fault import Code
from workflows.json_values import digest
from workflows.people.approval import ApprovedCall, approval_code, undo_code
from workflows.people.statement import START, UNDO, Statement, given_digest

NOW = datetime.now(UTC)
"""When this module was loaded; the tests may run much later."""
DAY = timedelta(days=1)
RUN, TASK = "a-run", "a-task"
SHOWN = digest("refund", {"amount": 900})
OTHER = "123456123456"
"""The code of another call."""


class Step(NamedTuple):
    """The call of a step, which the ledger has not seen before."""

    key: str

    @property
    def code(self) -> str:
        return approval_code(RUN, self.key, SHOWN)

    @classmethod
    def new(cls) -> "Step":
        return cls(f"{uuid.uuid4().hex}/paid")


class Refund(BaseModel):
    amount: int


class Paid(BaseModel):
    amount: int


MADE = list[int]()
"""What was really paid back."""


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()


def refunding(**rule: Any) -> Tool[..., Any]:
    @tool.keyed(approve=Approval(when="args.amount > 500", **rule))
    async def refund(args: Refund, key: Key) -> Paid:
        """Pay back."""
        MADE.append(args.amount)
        return Paid(amount=args.amount)

    return refund


class House:
    """People with keys of their own, doors, and the file that the worker has."""

    def __init__(self, folder: Path) -> None:
        """Ann and cleo are in finance, bob is in sales, dora is on the board; fay has left."""
        self.signers = {
            name: Signer.new(folder / name, name) for name in ("desk", "old", "gone", "next", "foreign", "bob")
        }
        days = {"desk": (-9, None, None), "old": (-9, -1, None), "gone": (-9, None, -1), "next": (1, None, None)}
        keys = {
            name: self.signers[name]
            .public_key(NOW + since * DAY, NOW + until * DAY if until else None)
            .model_copy(update={"withdrawn": NOW + withdrawn * DAY if withdrawn else None})
            for name, (since, until, withdrawn) in days.items()
        }
        roles = {"ann": "finance", "bob": "sales", "cleo": "finance", "dora": "board", "fay": "finance"}
        known = {name: Person(name=name, roles=(role,), also=(f"{name}@shop",)) for name, role in roles.items()}
        known["fay"] = known["fay"].model_copy(update={"until": NOW - DAY})
        known["bob"] = known["bob"].model_copy(update={"keys": (self.signers["bob"].public_key(NOW - DAY),)})
        doors = tuple(Door(name=name, keys=(key,)) for name, key in keys.items())
        self.path = folder / "people.json"
        PeopleFile(people=tuple(known.values()), doors=doors).write(self.path)
        self.roles = {**roles, "eve": "finance"}  # the file does not know eve, whom a provider knows

    def state(self, call: Step, person: str, signer: str = "desk", /, **more: Any) -> Statement:
        """What a door signs about a person who approves the call of a step."""
        usual = {
            "key": "",
            "person": person,
            "how": "token",
            "roles": (self.roles[person],),
            "at": NOW,
            "until": NOW + VALID,
            "asked": NOW - timedelta(hours=1),
            "namespace": "default",
            "task": TASK,
            "run": RUN,
            "request": "r1",
            "step": "paid",
            "choice": "approve",
            "calls": (call.code,),
        }
        return self.signers[signer].sign(Statement.model_validate({**usual, **more}))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture
async def calls(tmp_path: Path, house: House) -> Any:
    async with bench(tmp_path, people=KnownPeople(house.path)) as calls:
        yield calls


async def buys(calls: Bench, rule: Mapping[str, Any], step: Step, *statements: Statement, **header: Any) -> str:
    """Why the call was not made; empty if it was."""
    MADE.clear()
    approval = ApprovedCall(code=step.code, shown=SHOWN, allowed=SHOWN, statements=statements)
    given = CallHeader(**{"key": step.key, "approval": approval, **header})
    try:
        await calls.call(refunding(**rule), run=RUN, header=given, amount=900)
    except ApplicationError as error:
        assert error.type == Code.NEEDS_APPROVAL and MADE == []
        return str(error.details[0].reason)
    assert ([] if given.provided else [900]) == MADE
    return ""


RULES: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "a role": ({"by": "role:finance"}, "ann cleo eve"),
    "a person": ({"by": "person:dora"}, "dora"),
    "either": ({"by": ["role:sales", "person:ann"]}, "ann bob"),
    "anybody known": ({}, "ann bob cleo dora eve"),
    "two": ({"by": "role:finance", "count": 2}, ""),
    "not the starter": ({"by": "role:finance", "not_starter": True}, ""),  # nobody knows who that is
    "later": ({"by": "role:finance", "after": "30m escalate role:board"}, "ann cleo dora eve"),
    "too early": ({"by": "role:finance", "after": "2h escalate role:board"}, "ann cleo eve"),
}
"""By name, a rule, and the people of whom one alone may approve."""
PEOPLE = ("ann", "bob", "cleo", "dora", "eve", "fay")


HERE = "here"
"""Stands for the code of the call."""


class Flaw(NamedTuple):
    """What is done to a statement before, or after, it is signed; `why` is what the worker says."""

    why: str
    signer: str = "desk"
    said: Mapping[str, Any] = MappingProxyType({})
    forged: Callable[[Statement], Statement] = lambda statement: statement


def edited(**fields: Any) -> Flaw:
    """What was changed after it was signed."""
    return Flaw("its signature is wrong", forged=lambda one: one.model_copy(update=fields))


FLAWS: Mapping[str, Flaw] = {
    "nothing": Flaw(""),
    "its clock is behind": Flaw("", said={"at": NOW - 4 * timedelta(minutes=1), "until": NOW + DAY / 2}),
    "all calls": Flaw("", said={"choice": "approve_all", "calls": (OTHER, HERE)}),
    "other keys": Flaw("nobody here knows the key", signer="foreign"),
    "a withdrawn key": Flaw("was withdrawn at", signer="gone"),
    "a key that has ended": Flaw("ended at", signer="old"),
    "a key of tomorrow": Flaw("is valid from", signer="next"),
    "a personal key of another person": Flaw("signed it", signer="bob"),
    "no signature": edited(signature=""),
    "another signature": edited(signature=base64.b64encode(b"x" * 64).decode()),
    "an edited person": edited(person="ann@shop"),
    "an edited role": edited(roles=("finance", "x")),
    "an edited end": edited(until=NOW + DAY / 2),
    "an edited call": edited(calls=(OTHER,)),
    "its end": Flaw("it ended at", said={"at": NOW - DAY, "until": NOW - DAY / 2}),
    "no end": Flaw("it ended at", said={"until": NOW + 30 * DAY}),
    "its clock is ahead": Flaw("still to come", said={"at": NOW + 2 * DAY, "until": NOW + 3 * DAY}),
    "another task": Flaw("another task", said={"task": "another-task"}),
    "another run": Flaw("another task", said={"run": "another-run"}),
    "another namespace": Flaw("another task", said={"namespace": "another"}),
    "another call": Flaw("another call", said={"calls": (OTHER,)}),
    "no call": Flaw("another call", said={"calls": ()}),
    "a rejection": Flaw("another call", said={"choice": "reject"}),
    "an edit": Flaw("another call", said={"choice": "edit"}),
    "a start": Flaw("another call", said={"choice": START, "request": ""}),
}


@pytest.mark.parametrize("rule", RULES)
async def test_who_may_approve_may_and_nothing_forged_buys_a_call(calls: Bench, house: House, rule: str) -> None:
    """Each cell: a rule, a person, and what is wrong with what was signed."""
    declared, may = RULES[rule]
    for name, flaw in FLAWS.items():
        for person in PEOPLE:
            signer = flaw.signer if (flaw.signer, person) != ("bob", "bob") else "foreign"
            step, said = Step.new(), dict(flaw.said)
            if HERE in said.get("calls", ()):
                said["calls"] = tuple(step.code if one == HERE else one for one in said["calls"])
            statement = flaw.forged(house.state(step, person, signer, **said))
            why = await buys(calls, declared, step, statement)
            where = (rule, name, person, why)
            assert (why == "") == (not flaw.why and person in may.split()), where
            if flaw.why and person != "fay":
                assert "does not count: " in why and (flaw.why in why or signer != flaw.signer), where
    assert len(FLAWS) * len(PEOPLE) * len(RULES) >= 300


async def test_people_are_counted_once_and_only_those_who_count(calls: Bench, house: House) -> None:
    """Two statements of one person, under two names and from two doors, are one person's."""

    async def why(rule: Mapping[str, Any], *people: str, starter: str = "", **header: Any) -> str:
        step = Step.new()
        if starter:
            header["starter"] = house.state(step, starter, choice=START, run="", request="", step="", calls=())
        return await buys(calls, rule, step, *(house.state(step, person) for person in people), **header)

    names = ("ann@shop", "zoe", "Ann", "ANN@Shop", "\uff21nn", "guest", "Guest")
    house.roles |= dict.fromkeys(names, "finance")
    two, other = {"by": "role:finance", "count": 2}, {"by": "role:finance", "not_starter": True}
    assert "So far ann approved it; 1 more must." in await why(two, "ann", "ann@shop", "ann")
    assert "So far ann approved it; 1 more must." in await why(two, "ann", "bob", "dora", "fay")
    assert "So far ann approved it; 1 more must." in await why(two, "ann", "Ann", "ANN@Shop", "\uff21nn")
    assert "So far Guest approved it; 1 more must." in await why(two, "guest", "Guest")  # nobody whom the file knows
    assert await why(two, "ann", "bob", "cleo") == ""
    assert "ann started the task" in await why(other, "ann", starter="ann")
    assert "guest started the task" in await why(other, "Guest", starter="guest")
    assert "ann started the task" in await why(other, "ann@shop", starter="ann")
    assert await why(other, "cleo", starter="ann") == ""
    assert "So far ann approved it; 1 more must." in await why(other, "ann")
    assert await why(other, "ann", "cleo") == ""
    assert await why({**two, "not_starter": True}, "ann", "cleo", "eve", starter="ann") == ""
    assert "So far cleo approved it; 1 more must." in await why(
        {**two, "not_starter": True}, "ann", "cleo", starter="ann"
    )


async def test_a_statement_about_the_start_must_be_true_and_about_this_task(calls: Bench, house: House) -> None:
    """Else nobody knows who started it, and two people must approve. It may be old: the task may have waited."""
    old = {"at": NOW - 5 * DAY, "until": NOW - 4 * DAY}
    starts: Mapping[str, tuple[bool, Mapping[str, Any]]] = {
        "true": (True, {}),
        "old": (True, old),
        "by a key that has ended since": (True, {"signer": "old", **old}),
        "of another task": (False, {"task": "another"}),
        "of another namespace": (False, {"namespace": "another"}),
        "an approval": (False, {"choice": "approve"}),
        "of a foreign key": (False, {"signer": "foreign"}),
        "of a key that was withdrawn since": (False, {"signer": "gone", **old}),
    }
    for name, (counts, more) in starts.items():
        step, said = Step.new(), {"choice": START, "run": "", "request": "", "step": "", "calls": (), **more}
        starter = house.state(step, "bob", str(said.pop("signer", "desk")), **said)
        rule = {"by": "role:finance", "not_starter": True}
        assert (await buys(calls, rule, step, house.state(step, "ann"), starter=starter) == "") == counts, name


async def test_a_call_of_a_task_is_not_that_of_another_which_somebody_else_started(calls: Bench, house: House) -> None:
    """Only a rollback says of which task it is: who writes headers cannot borrow another starter."""
    step = Step.new()
    starter = house.state(step, "bob", choice=START, run="", request="", step="", calls=(), task="of-bob")
    rule = {"by": "role:finance", "not_starter": True}
    why = await buys(calls, rule, step, house.state(step, "ann"), starter=starter, task="of-bob")

    assert "So far ann approved it; 1 more must." in why


async def test_a_name_in_a_rule_is_compared_as_people_are(calls: Bench, house: House) -> None:
    step = Step.new()
    assert await buys(calls, {"by": "person:Ann"}, step, house.state(step, "ann")) == ""
    house.roles["Ann Lee"] = "sales"
    step = Step.new()
    assert await buys(calls, {"by": ["person:Ann Lee"]}, step, house.state(step, "Ann Lee")) == ""


async def test_a_personal_key_signs_without_a_door(calls: Bench, house: House) -> None:
    """Its roles are those of the file, whatever it states."""
    step = Step.new()
    own = house.state(step, "bob", "bob", how="key", roles=("sales", "finance"))

    assert await buys(calls, {"by": "role:sales"}, step, own) == ""
    step = Step.new()
    own = house.state(step, "bob", "bob", how="key", roles=("sales", "finance"))
    assert "bob (sales) may not approve it" in await buys(calls, {"by": "role:finance"}, step, own)


async def test_a_role_that_was_taken_away_counts_no_more(calls: Bench, house: House) -> None:
    """The worker reads its file again, and a file that it cannot read knows nobody."""
    step, file = Step.new(), PeopleFile.read(house.path)
    statement = house.state(step, "ann")
    without = [one.model_copy(update={"roles": ()}) if one.name == "ann" else one for one in file.people]
    file.model_copy(update={"people": tuple(without)}).write(house.path)
    taken = await buys(calls, {"by": "role:finance"}, step, statement)
    house.path.write_text("{")
    unread = await buys(calls, {"by": "role:finance"}, step, statement)
    file.write(house.path)

    assert "ann may not approve it: it needs a person with the role finance." in taken
    assert "The people file" in unread and "cannot be used" in unread
    assert await buys(calls, {"by": "role:finance"}, step, statement) == ""


async def test_a_provided_result_needs_those_whom_the_tool_names(calls: Bench, house: House) -> None:
    """For this step, and this result; whatever the arguments are."""
    result, rule = {"amount": 900}, {"by": "role:finance"}
    provided = {"choice": "provide", "calls": (), "given": given_digest({"result": result})}

    async def why(**said: Any) -> str:
        step = Step.new()
        statement = house.state(step, "ann", **{**provided, **said})
        return await buys(calls, rule, step, statement, provided=Provided(result=result))

    step = Step.new()
    assert "refund needs approval" in await buys(calls, rule, step, provided=Provided(result=result))
    assert "another result" in await why(given=given_digest({"result": {"amount": 5}}))
    assert "another result" in await why(step="another")
    assert "another result" in await why(choice="approve")
    assert "another task" in await why(run="another")
    assert await why() == ""


async def test_an_undo_is_confirmed_for_one_effect_of_one_task(calls: Bench, house: House) -> None:
    """In whatever run: a rollback is a workflow of its own, or the end of the task."""

    async def why(again: Step | None = None, **said: Any) -> str:
        """`again` is another call, in whose header what was signed is sent once more."""
        step, undone = Step.new(), Undoes(key=uuid.uuid4().hex, step="paid", kind="charge")
        codes = (OTHER, undo_code(step.key, SHOWN))
        usual = {"choice": UNDO, "run": "", "request": "", "step": "", "calls": codes, "task": "of-the-task"}
        statement = house.state(step, "ann", **{**usual, **said})
        return await buys(calls, {"by": "role:finance"}, again or step, statement, undoes=undone, task="of-the-task")

    assert await why() == ""
    for said in ({"choice": "approve"}, {"calls": (OTHER,)}, {"task": TASK}, {"namespace": "another"}):
        assert "another undo" in await why(**said), said
    assert "another undo" in await why(again=Step.new())


async def test_no_time_runs_for_an_undo(calls: Bench, house: House) -> None:
    """Nobody is asked about it, so whoever signs it could name any time."""
    step, undone = Step.new(), Undoes(key=uuid.uuid4().hex, step="paid", kind="charge")
    said = {"choice": UNDO, "run": "", "request": "", "step": "", "calls": (undo_code(step.key, SHOWN),)}
    statement = house.state(step, "dora", **said, asked=NOW - DAY)
    rule = {"by": "role:finance", "after": "4h escalate role:board"}
    why = await buys(calls, rule, step, statement, undoes=undone)

    assert "dora (board) may not approve it: it needs a person with the role finance." in why


async def test_a_worker_without_a_people_file_makes_no_such_call(tmp_path: Path, house: House) -> None:
    async with bench(tmp_path / "x") as calls:
        step = Step.new()
        why = await buys(calls, {"by": "role:finance"}, step, house.state(step, "ann"))

    assert "this worker has no --people, so it knows nobody" in why
