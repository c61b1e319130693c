"""What is planned after the refusals of the front desk, and with tools of the same purpose."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from activities.offline.planner import OfflinePlanner
from activities.toolbox.registry import Registry
from replan import tool
from tests.activities.situations import KINDS, asked, fault, gives_up, propose, record, refused, seen, step
from workflows.account.records import StepRecord, StepStatus
from workflows.faults.fault import Code
from workflows.planning.situation import Situation
from workflows.plans.proposal import NewSteps

ADA: dict[str, JsonValue] = {"id": "C-0001", "name": "Ada", "email": "a@b.example", "phone": "12", "version": 3}
CHANGE: dict[str, JsonValue] = {"customer": "C-0001", "version": 3, "changes": {"phone": "99"}}
BUY: dict[str, JsonValue] = {"sku": "A-17", "quantity": 2, "at_most": "24.50"}
LAMP: dict[str, JsonValue] = {"sku": "A-17", "name": "Desk lamp", "price": "26.00", "stock": 12, "version": 2}


def after(
    kind: str,
    args: dict[str, JsonValue],
    code: Code,
    observed: JsonValue,
    *,
    before: Sequence[StepRecord] = (),
    **more: Any,
) -> Situation:
    """A task whose step `one` was refused, when `before` had been done."""
    failed = record(step("one", kind, args), StepStatus.FAILED)
    usual: dict[str, Any] = {"faults": (fault("one", code, observed),), "observations": (seen("one", observed),)}
    return refused(**{"records": (*before, failed), **usual, **more})


@pytest.mark.parametrize(
    ("kind", "args", "code", "observed"),
    [
        ("purchase", BUY, Code.PRECONDITION_FAILED, LAMP),
        ("purchase", BUY, Code.CONFLICT, {**LAMP, "price": "20.00", "stock": 1}),
        ("purchase", BUY, Code.NOT_FOUND, {"near": {"A-18": "Desk lamp"}}),
        ("refund", {"order": 12}, Code.NOT_FOUND, {"orders": [{"id": 9, "sku": "A-17", "quantity": 1}]}),
        ("cancel_booking", {"booking": 12}, Code.NOT_FOUND, {"bookings": [{"id": 9, "at": "14:00", "name": "Ada"}]}),
        ("delete_document", {"document": "a"}, Code.GONE, {"document": {"name": "a", "title": "A"}}),
        ("delete_document", {"document": "a"}, Code.NOT_FOUND, {"documents": [{"name": "b", "title": "B"}]}),
        ("find_customer", {"query": "Adda"}, Code.NO_RESULTS, {"near": {"C-0001": "Ada"}}),
        ("read_document", {"name": "a.md"}, Code.NOT_FOUND, {"nearest": ["b.md"], "there": ["b.md"], "more": 0}),
        ("fetch_page", {"url": "https://a.example"}, Code.GONE, None),
        ("update_customer", CHANGE, Code.INVALID_INPUT, {"field": "phone", "expected": "digits"}),
    ],
)  # fmt: skip
async def test_what_is_not_as_good_is_never_taken(
    kind: str, args: dict[str, JsonValue], code: Code, observed: JsonValue
) -> None:
    """No other article, price, amount, order, customer, document or page; the reason is what the tool said."""
    reason = await gives_up(after(kind, args, code, observed))

    assert reason.startswith(f"one cannot be done ({code}): It is taken. Nothing that was seen offers an alternative.")


@pytest.mark.parametrize(
    ("price", "code", "is_again"),
    [("24.50", Code.PRECONDITION_FAILED, True), ("20", Code.PRECONDITION_FAILED, True),
     ("25.00", Code.PRECONDITION_FAILED, False), ("26.00", Code.PRECONDITION_FAILED, False)],
)  # fmt: skip
async def test_what_is_within_the_limit_again_is_bought(price: str, code: Code, is_again: bool) -> None:
    """The price moved up, so that the call was refused, and down before the world was looked at again."""
    now = (seen("one", {**LAMP, "price": price, "version": 3}),)
    proposal = await propose(after("purchase", BUY, code, LAMP, observations=now))

    assert isinstance(proposal, NewSteps) is is_again
    if isinstance(proposal, NewSteps):
        assert (proposal.steps[0].args, proposal.steps[0].kind) == (BUY, "purchase")
        assert proposal.because == f"one was rejected (precondition_failed); price is {price} now, within at_most 24.50"


async def test_what_the_workflow_refuses_to_repeat_is_given_up() -> None:
    """Its word counts, whatever the planner sees."""
    now = (seen("one", {**LAMP, "price": "20.00"}),)
    situation = after(
        "purchase", BUY, Code.PRECONDITION_FAILED, LAMP, observations=now, rejected=({"text": "step 'one-2' no"},)
    )

    assert "may not be run" in await gives_up(situation)


HITS: JsonValue = {
    "hits": [{"path": "a.md", "text": "A"}, {"path": "b.md", "text": "B"}, {"path": "c.md", "text": "C"}]
}


def unread(*names: str) -> Situation:
    """A task that searched and was refused the documents with these names, one after the other."""
    found = record(step("search", "search", {"query": "x"}), StepStatus.COMPLETED, result=HITS)
    tried = [
        record(
            step(f"read-{number}", "read_document", {"name": {"$from": "search", "path": f"hits.{number}.path"}}),
            StepStatus.FAILED,
            revision=number + 1,
            args={"name": name},
        )
        for number, name in enumerate(names)
    ]
    faults = tuple(fault(one.step.id, Code.GONE, revision=one.revision) for one in tried)
    return refused(records=(found, *tried), faults=faults, observations=(seen(tried[-1].step.id, None),))


@pytest.mark.parametrize(("tried", "index"), [(("a.md",), 1), (("a.md", "b.md"), 2)], ids=["second", "third"])
async def test_the_next_that_was_found_is_read(tried: tuple[str, ...], index: int) -> None:
    """A document that a search found and that is gone since is not the only one that it found."""
    proposal = await propose(unread(*tried))

    assert isinstance(proposal, NewSteps)
    assert [one.args for one in proposal.steps] == [{"name": {"$from": "search", "path": f"hits.{index}.path"}}]


async def test_when_all_that_was_found_is_gone_the_planner_gives_up() -> None:
    """It does not begin again."""
    assert "Nothing that was seen offers an alternative" in await gives_up(unread("a.md", "b.md", "c.md"))


async def test_an_effect_is_not_given_the_next_that_was_found() -> None:
    """To delete another document than the one that was meant is no alternative."""
    found = record(step("search", "search", {"query": "x"}), StepStatus.COMPLETED, result=HITS)
    meant: dict[str, JsonValue] = {"document": {"$from": "search", "path": "hits.0.path"}}
    failed = record(step("one", "delete_document", meant), StepStatus.FAILED, args={"document": "a.md"})
    situation = refused(records=(found, failed), faults=(fault("one", Code.GONE),), observations=(seen("one", None),))

    assert "Nothing that was seen offers an alternative" in await gives_up(situation)


async def test_what_is_spelt_alike_is_named() -> None:
    """A person who mistyped sees what was probably meant."""
    reason = await gives_up(after("get_price", {"sku": "A-71"}, Code.NOT_FOUND, {"near": {"A-17": "Desk lamp"}}))

    assert reason.endswith("Spelt alike: A-17 (Desk lamp).")


@pytest.mark.parametrize(
    ("now", "version"),
    [
        ({**ADA, "version": 4, "email": "new@b.example"}, 4),
        ({**ADA, "version": 4, "phone": "99"}, 4),
        ({**ADA, "version": 4, "phone": "77"}, None),
    ],
)
async def test_a_change_is_made_again_unless_somebody_changed_the_same_field(
    now: dict[str, JsonValue], version: int | None
) -> None:
    """Nothing that somebody else wrote is overwritten unseen."""
    look = record(step("look", "find_customer", {"query": "C-0001"}), "completed", result={"customers": [ADA]})
    situation = after("update_customer", CHANGE, Code.PRECONDITION_FAILED, {"customers": [now]}, before=(look,))
    proposal = await propose(situation)

    args = proposal.steps[0].args if isinstance(proposal, NewSteps) else None
    assert args == (None if version is None else {**CHANGE, "version": version})


async def test_a_lost_change_is_named() -> None:
    """The reason says which field it is."""
    look = record(step("look", "find_customer", {"query": "C-0001"}), "completed", result={"customers": [ADA]})
    now: JsonValue = {"customers": [{**ADA, "version": 4, "phone": "77"}]}

    reason = await gives_up(after("update_customer", CHANGE, Code.PRECONDITION_FAILED, now, before=(look,)))

    assert "Somebody else has changed phone meanwhile" in reason


class City(BaseModel):
    """Where."""

    city: str


class Place(BaseModel):
    """Where, in other words."""

    city: str
    country: str = "DE"


class Country(BaseModel):
    """What else must be known."""

    city: str
    country: str


class Weather(BaseModel):
    """What it is like."""

    title: str
    celsius: float


class Sky(BaseModel):
    """The same, of another author."""

    celsius: float
    title: str


@tool.read
def sky(args: City) -> Sky:
    """Say the weather too."""
    return Sky(title=args.city, celsius=7)


@tool.read(fallback=sky)
def weather(args: City) -> Weather:
    """Say the weather."""
    return Weather(title=args.city, celsius=7)


@tool.read
def forecast(args: Country) -> Weather:
    """Need more than a city."""
    return Weather(title=args.city, celsius=7)


@tool.read
def climate(args: City) -> City:
    """Say something else."""
    return args


@tool.idempotent
def make_sky(args: City) -> Weather:
    """Change it too."""
    return Weather(title=args.city, celsius=7)


@tool.idempotent(fallback=make_sky)
def make_weather(args: City) -> Weather:
    """Change the weather."""
    return Weather(title=args.city, celsius=7)


WEATHERS = Registry([weather, sky, forecast, climate, make_weather, make_sky])


async def test_what_was_refused_is_asked_of_the_declared_fallback() -> None:
    """Later steps follow it, and the new plan says why."""
    failed = record(step("one", "weather", {"city": "Ulm"}, title="weather in Ulm"), StepStatus.FAILED)
    later = record(step("sum", "calculate", {"expression": "it", "it": {"$from": "one", "path": "celsius"}}), "pending")
    situation = asked("x", turn=2, records=(failed, later), faults=(fault("one", Code.NO_RESULTS),))

    proposal = await OfflinePlanner().propose(situation, {**KINDS, **WEATHERS})

    assert isinstance(proposal, NewSteps)
    assert [(one.id, one.kind) for one in proposal.steps] == [("one-2", "sky"), ("sum", "calculate")]
    assert proposal.because == "one was rejected (no_results); sky is the declared fallback of weather"


@pytest.mark.parametrize(
    ("kind", "down", "why"),
    [
        ("sky", (), "no fallback is declared, though weather takes and returns the same"),
        ("climate", (), "none is declared, and nothing is alike"),
        ("weather", ("sky",), "its fallback is down"),
        ("make_weather", (), "an effect is never replaced, even by its fallback: the fallback is for what is down"),
    ],
)
async def test_a_refused_tool_is_never_replaced_by_one_that_it_does_not_declare(
    kind: str, down: tuple[str, ...], why: str
) -> None:
    """Two tools with the same schema need not serve the same purpose: `why` says what holds for this one."""
    failed = record(step("one", kind, {"city": "Ulm"}), StepStatus.FAILED)
    situation = asked("x", turn=2, records=(failed,), faults=(fault("one", Code.REFUSED),), down=down)

    proposal = await OfflinePlanner().propose(situation, WEATHERS)

    assert "Nothing that was seen offers an alternative" in getattr(proposal, "reason", ""), why


async def test_an_effect_that_is_down_is_never_replaced() -> None:
    """Two effects that look alike need not be the same effect."""
    failed = record(step("one", "make_weather", {"city": "Ulm"}), StepStatus.FAILED)
    situation = asked("x", turn=2, records=(failed,), faults=(fault("one", Code.TIMEOUT),), down=("make_weather",))
    proposal = await OfflinePlanner().propose(situation, WEATHERS)

    assert "cannot be used any more (timeout)" in getattr(proposal, "reason", "")
