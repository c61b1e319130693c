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


async def test_what_is_within_the_limit_again_is_bought() -> None:
    """The price moved up, so that the call was refused, and down before the world was looked at again.

    The workflow's word counts, whatever the planner sees: what it refuses to repeat is given up.
    """
    for price, is_again in (("24.50", True), ("20", True), ("25.00", False), ("26.00", False)):
        now = (seen("one", {**LAMP, "price": price, "version": 3}),)
        proposal = await propose(after("purchase", BUY, Code.PRECONDITION_FAILED, LAMP, observations=now))

        assert isinstance(proposal, NewSteps) is is_again
        if isinstance(proposal, NewSteps):
            assert (proposal.steps[0].args, proposal.steps[0].kind) == (BUY, "purchase")
            why = f"one was rejected (precondition_failed); price is {price} now, within at_most 24.50"
            assert proposal.because == why
    more: dict[str, Any] = {"observations": (seen("one", {**LAMP, "price": "20"}),)}
    more["rejected"] = ({"text": "step 'one-2' no"},)
    assert "may not be run" in await gives_up(after("purchase", BUY, Code.PRECONDITION_FAILED, LAMP, **more))


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


async def test_the_next_that_was_found_is_read() -> None:
    """A document that a search found and that is gone since is not the only one that it found.

    When all are gone it does not begin again; and to delete another one than the one that was meant is no alternative.
    """
    for tried in (("a.md",), ("a.md", "b.md")):
        proposal = await propose(unread(*tried))
        assert isinstance(proposal, NewSteps)
        assert [one.args for one in proposal.steps] == [
            {"name": {"$from": "search", "path": f"hits.{len(tried)}.path"}}
        ]
    found = record(step("search", "search", {"query": "x"}), StepStatus.COMPLETED, result=HITS)
    meant: dict[str, JsonValue] = {"document": {"$from": "search", "path": "hits.0.path"}}
    failed = record(step("one", "delete_document", meant), StepStatus.FAILED, args={"document": "a.md"})
    effect = refused(records=(found, failed), faults=(fault("one", Code.GONE),), observations=(seen("one", None),))
    for situation in (unread("a.md", "b.md", "c.md"), effect):
        assert "Nothing that was seen offers an alternative" in await gives_up(situation)


async def test_what_is_spelt_alike_is_named() -> None:
    """A person who mistyped sees what was probably meant."""
    reason = await gives_up(after("get_price", {"sku": "A-71"}, Code.NOT_FOUND, {"near": {"A-17": "Desk lamp"}}))

    assert reason.endswith("Spelt alike: A-17 (Desk lamp).")


async def test_a_change_is_made_again_unless_somebody_changed_the_same_field() -> None:
    """Nothing that somebody else wrote is overwritten unseen, and the reason says which field it is."""
    look = record(step("look", "find_customer", {"query": "C-0001"}), "completed", result={"customers": [ADA]})
    changed: list[dict[str, JsonValue]] = [{"email": "new@b.example"}, {"phone": "99"}, {"phone": "77"}]
    observed: list[JsonValue] = [{"customers": [{**ADA, "version": 4, **change}]} for change in changed]
    *again, lost = [after("update_customer", CHANGE, Code.PRECONDITION_FAILED, now, before=(look,)) for now in observed]

    for situation in again:
        proposal = await propose(situation)
        assert isinstance(proposal, NewSteps) and proposal.steps[0].args == {**CHANGE, "version": 4}
    assert "Somebody else has changed phone meanwhile" in await gives_up(lost)


class City(BaseModel):
    city: str


class Country(City):
    country: str


class Weather(BaseModel):
    title: str
    celsius: float


@tool.read
def sky(args: City) -> Weather:
    """Say the weather too."""
    return Weather(title=args.city, celsius=7)


@tool.read(fallback=sky)
def weather(args: City) -> Weather:
    """Say the weather."""
    return sky.function(args)


@tool.read
def forecast(args: Country) -> Weather:
    """Need more than a city."""
    return sky.function(args)


@tool.read
def climate(args: City) -> City:
    """Say something else."""
    return args


@tool.idempotent
def make_sky(args: City) -> Weather:
    """Change it too."""
    return sky.function(args)


@tool.idempotent(fallback=make_sky)
def make_weather(args: City) -> Weather:
    """Change the weather."""
    return sky.function(args)


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


ALONE: list[tuple[str, tuple[str, ...], Code]] = [
    ("sky", (), Code.REFUSED),  # no fallback is declared, though weather takes and returns the same
    ("climate", (), Code.REFUSED),  # none is declared, and nothing is alike
    ("weather", ("sky",), Code.REFUSED),  # its fallback is down
    ("make_weather", (), Code.REFUSED),  # an effect is never replaced: the fallback is for what is down
    ("make_weather", ("make_weather",), Code.TIMEOUT),
]


async def test_a_refused_tool_is_never_replaced_by_one_that_it_does_not_declare() -> None:
    """Two tools with the same schema need not serve the same purpose, nor are two effects that look alike the same."""
    for kind, down, code in ALONE:
        failed = record(step("one", kind, {"city": "Ulm"}), StepStatus.FAILED)
        situation = asked("x", turn=2, records=(failed,), faults=(fault("one", code),), down=down)
        proposal = await OfflinePlanner().propose(situation, WEATHERS)

        words = (
            "Nothing that was seen offers an alternative"
            if code is Code.REFUSED
            else "cannot be used any more (timeout)"
        )
        assert words in getattr(proposal, "reason", ""), kind
