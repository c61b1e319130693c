"""What tools ensure: which fields a condition may name, and what becomes of a result that breaks it."""

import sqlite3
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue, RootModel, computed_field
from sqlalchemy import text
from temporalio.client import Client
from typing_extensions import TypedDict

from activities.toolbox.declare.conditions import mistakes
from activities.toolbox.registry import Registry
from replan import Tool, Transaction, tool
from tests.activities.bench import Bench
from tests.harness import DONE, plan, staged, step
from workflows.account.task import TaskStatus
from workflows.faults.fault import Applied, Code


class Charge(BaseModel):
    amount: Decimal
    notes: list[str] = []


class Receipt(BaseModel):
    id: str | None = "r-1"
    amount: Decimal


LIE = Decimal("1.00")
"""What the world charges, whatever was asked for."""


KEEPS = "result.amount == args.amount"


async def lie(args: Charge) -> Receipt:
    """Look up or make a charge, and always come to the same."""
    return Receipt(amount=LIE)


quote, charge = tool.read(ensure=KEEPS)(lie), tool.idempotent(ensure=KEEPS)(lie)


@tool.transactional(ensure=KEEPS)
async def write(args: Charge, tx: Transaction) -> Receipt:
    """Write a charge down, but always the same."""
    await tx.execute(text("INSERT INTO notes VALUES (:word)"), {"word": str(LIE)})
    return Receipt(amount=LIE)


def returning(ensure: str, result: Callable[[], Any], annotation: Any = Receipt) -> Tool[..., Any]:
    """A tool that ensures something and returns something."""

    async def answer(args: Charge) -> Any:
        """Answer."""
        return result()

    answer.__annotations__["return"] = annotation
    return tool.read(ensure=ensure)(answer)


# Which fields there are


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tail: str


class Open(BaseModel):
    """A model that takes more than it names."""

    model_config = ConfigDict(extra="allow")

    known: int = 1


class Part(TypedDict):
    price: Decimal


class Colour(StrEnum):
    RED = "red"


class Everything(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    amount: Decimal = Decimal(1)
    number: int = Field(default=1, alias="NUMBER")
    half: float = 0.5
    word: str = ""
    flag: bool = True
    day: date = date(2025, 11, 21)
    colour: Colour = Colour.RED
    maybe: Charge | None = None
    pet: Cat | Dog = Field(default=Cat(kind="cat", lives=9), discriminator="kind")
    items: list[Charge] = []
    pair: tuple[int, Charge] = (1, Charge(amount=LIE))
    by_name: dict[str, Charge] = {}
    part: Part = {"price": LIE}
    open: Open = Open()
    free: Any = None
    data: JsonValue = None
    below: "Everything | None" = None
    hidden: str = Field(default="", exclude=True)

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know it
    @property
    def total(self) -> Decimal:
        """Twice the amount."""
        return 2 * self.amount


RIGHT = [
    "result.amount == args.amount",
    "result.number == 1",
    "result.half < 1",
    "result.word != 'x'",
    "result.flag",
    "result.day >= '2025-11-21'",
    "result.colour == 'red'",
    "result.maybe == none or result.maybe.amount > 0",
    "result.pet.lives > 0 or result.pet.tail != ''",
    "len(result.items) == 0 or result.items.0.amount > 0",
    "result.pair.0 == 1 and result.pair.1.amount > 0",
    "len(result.by_name) == 0 or result.by_name.ada.amount > 0",
    "result.part.price > 0",
    "result.open.known == 1 and result.open.unknown == none",
    "result.free == none or result.free.what.ever == 1",
    "result.data == none or result.data.0.what == 'x'",
    "result.below == none or result.below.below.below.amount > 0",
    "result.total == 2 * result.amount",
    "result == args or result != args",
]


@pytest.mark.parametrize(
    ("ensure", "result"),
    [
        *((ensure, Everything) for ensure in RIGHT),
        ("result > 0", int),
        ("result.0.amount > 0", list[Charge]),
        ("result.0.amount > 0", RootModel[list[Charge]]),
    ],
)
def test_a_name_is_followed_as_far_as_the_annotations_lead(ensure: str, result: Any) -> None:
    """Through models, unions and lists; where anything may be, nothing is refused. A result need not be a model."""
    assert mistakes("tool", ensure, Charge, result) == []


WRONG = {
    "result.maybe.amout > 0": "'result.maybe.amout': did you mean amount?: Charge has ['amount', 'notes'].",
    "result.pet.wings > 0": "'result.pet.wings': Cat has ['kind', 'lives'], Dog has ['kind', 'tail'].",
    "result.pet.tial != ''": "'result.pet.tial': did you mean tail?: Cat has",
    "result.items.0.amout > 0": "'result.items.0.amout': did you mean amount?: Charge has",
    "result.items.99999999999.amout > 0": "did you mean amount?: Charge has",
    "result.pair.1.amout > 0": "'result.pair.1.amout': did you mean amount?: Charge has",
    "result.pair.2 == 1": "'result.pair.2': 'result.pair' is a list",
    "result.items.first == 1": "'result.items' is a list, so write result.items.0 for its first item",
    "result.by_name.ada.amout > 0": "did you mean amount?: Charge has",
    "result.part.prize > 0": "'result.part.prize': did you mean price?: Part has ['price'].",
    "result.below.below.maybe.amout > 0": "did you mean amount?: Charge has",
    "result.hidden == ''": "'result.hidden': Everything has [",
    "result.NUMBER == 1": "'result.NUMBER': Everything has [",
    "result.day.year > 2024": "'result.day.year': 'result.day' has no fields.",
    "result.number == 'one'": "is no condition: it compares a number with a text",
    "result.pair.0 == 'one'": "is no condition: it compares a number with a text",
    "result.colour > 1": "is no condition: it compares a text with a number",
    "result.flag > 1": "is no condition: it asks whether a truth value is smaller or larger",
    "result.maybe > 1": "is no condition: it asks whether an object is smaller or larger",
    "result.items": "is no condition: there is a list where a condition must stand",
}


@pytest.mark.parametrize(("ensure", "words"), WRONG.items(), ids=WRONG)
def test_a_field_that_is_not_there_is_named_with_those_that_are(ensure: str, words: str) -> None:
    """The author reads what the model has instead, or why the condition could never hold."""
    (mistake,) = mistakes("tool", ensure, Charge, Everything)

    assert words in mistake and mistake.endswith(".")


# What becomes of a result


KEPT: dict[str, tuple[str, Callable[[], Any], Any]] = {
    "a decimal of other digits": ("result.amount == args.amount", lambda: Receipt(amount=Decimal("24.5")), Receipt),
    "a text that is a number": ("result.amount == args.amount", lambda: {"amount": "24.500"}, Receipt),
    "none": ("result.id == none", lambda: Receipt(id=None, amount=LIE), Receipt),
    "a number": ("result < args.amount", lambda: 24, int),
    "a list": ("result.1.amount == args.amount + 0.5", lambda: [{"amount": 1}, {"amount": 25}], list[Charge]),
    "a union": ("result.amount > 0", lambda: {"amount": 1}, Receipt | Cat),
    "a set": ("'a' in result", lambda: {"a"}, set[str]),
    "a dictionary of numbers": ("result.7 == args.amount", lambda: {7: Decimal("24.50")}, dict[int, Decimal]),
    "everything": (" and ".join(f"({one})" for one in RIGHT[1:8]), Everything, Everything),
    "an enumeration": ("result.colour == 'red' and result.total == 2", Everything, Everything),
}


@pytest.mark.parametrize(("ensure", "result", "annotation"), KEPT.values(), ids=KEPT)
async def test_a_result_that_keeps_the_condition_is_returned(
    calls: Bench, ensure: str, result: Callable[[], Any], annotation: Any
) -> None:
    """Decimals are compared as numbers, although JSON has them as texts; the rest is what JSON has."""
    back = await calls.call(returning(ensure, result, annotation), amount="24.50")

    assert back.result is not None


OPEN: dict[str, tuple[str, Callable[[], Any], str]] = {
    "missing": ("result.items.0.amount > 0", Everything, "the name 'result.items.0.amount' has no value"),
    "none": ("result.maybe.amount > 0", Everything, "since 'result.maybe' is none without 'amount'"),
    "another member": ("result.pet.tail != ''", Everything, "'result.pet' is an object without 'tail'"),
    "unlike": ("result.free > 1", lambda: Everything(free="sk-secret"), "it compares a text with a number"),
    "no number": ("1 / (result.half - 0.5) > 1", Everything, "it divides by zero"),
}


@pytest.mark.parametrize(("ensure", "result", "words"), OPEN.values(), ids=OPEN)
async def test_a_condition_that_cannot_be_decided_is_broken(
    calls: Bench, ensure: str, result: Callable[[], Any], words: str
) -> None:
    """It says which name has no value, or what is compared with what; values stay in `observed`."""
    fault, _ = await calls.fails(returning(ensure, result, Everything), amount=1)

    assert fault.code is Code.UNEXPECTED_RESULT
    assert words in fault.reason and "sk-secret" not in fault.reason


@pytest.mark.parametrize(
    ("lying", "effect"),
    [(quote, Applied.NONE), (charge, Applied.APPLIED), (write, Applied.NONE)],
    ids=["quote", "charge", "write"],
)
async def test_a_lie_does_not_hide_that_the_call_happened(calls: Bench, lying: Tool[..., Any], effect: Applied) -> None:
    """Only a read, and a transaction that was rolled back, have changed nothing; the planner sees what came back."""
    fault, error = await calls.fails(lying, amount="24.50")

    assert (fault.code, fault.applied, error.non_retryable) == (Code.UNEXPECTED_RESULT, effect, True)
    assert fault.observed == {"id": "r-1", "amount": "1.00"}
    assert fault.reason == (
        f"The result of {lying.__name__} violates 'result.amount == args.amount': do not use it, "
        "make a new plan from what was observed."
    )


async def test_the_condition_is_over_what_was_asked_for(calls: Bench) -> None:
    """A tool that uses its arguments up does not change what it has to keep; what was left out has its default."""

    @tool.read(ensure="len(args.notes) == len(result)")
    async def read_out(args: Charge) -> list[str]:
        """Read the notes out."""
        return [args.notes.pop() for _ in range(len(args.notes))]

    back = await calls.call(read_out, amount=1, notes=["a", "b"])
    default = await calls.call(returning("len(args.notes) == 0 and result > 0", lambda: 1, int), amount=1)

    assert (back.result, default.result) == (["b", "a"], 1)
    # the workflow's history keeps it, and people see it
    registry = Registry([quote])
    assert registry["lie"].spec.ensure == KEEPS
    assert "ensure=result.amount == args.amount" in registry.catalogue()


async def test_a_lie_costs_one_attempt_and_a_new_plan(client: Client, tmp_path: Path) -> None:
    """On a server: no retry, nothing is written, and the planner sees the lie."""
    async with staged(client, tmp_path, [write], [plan(step("a", "write", amount="24.50")), DONE]) as stage:
        sqlite3.connect(tmp_path / "store.db").execute("CREATE TABLE notes (word TEXT)").connection.close()
        outcome = await stage.run()
        connection = sqlite3.connect(tmp_path / "store.db")
        rows = connection.execute("SELECT word FROM notes").fetchall()
        connection.close()
    seen = [(one.code, one.decision, one.applied, one.observed) for one in outcome.faults]

    assert seen == [("unexpected_result", "replan", "none", {"id": "r-1", "amount": "1.00"})]
    assert (outcome.status, outcome.steps[0].attempts, outcome.replans, rows) == (TaskStatus.COMPLETED, 1, 1, [])
