"""What the offline planner understands, and what it says of the rest."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import JsonValue

from activities.offline.alternatives import find_alternatives, limit_kept_now
from tests.activities.situations import BOOK, TODAY, asked, fault, gives_up, propose, record, step
from workflows.account.records import StepRecord, StepStatus
from workflows.plans.graph import check_graph
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Step


async def plan_of(text: str) -> Sequence[Step]:
    proposal = await propose(asked(text))
    assert isinstance(proposal, NewSteps), proposal
    return proposal.steps


BOOKINGS: dict[str, dict[str, JsonValue] | None] = {
    "book a slot for the team at 14:00": BOOK,
    "Please book me a slot for the team today at 2 pm.": BOOK,
    "reserve a slot at 14.00 for my team": BOOK,
    "book the 14:00": None,
    "book a slot on tomorrow at 14:00": {"day": "2025-11-22", "at": "14:00", "name": "me"},
    "book a slot for Ada Lovelace on Friday at noon": {"day": TODAY, "at": "12:00", "name": "Ada Lovelace"},
    "book a slot next Friday at 9:30 am": {"day": "2025-11-28", "at": "09:30", "name": "me"},
    "book a slot on Monday, 24 November at 15": {"day": "2025-11-24", "at": "15:00", "name": "me"},
    "book a slot on 3 January at 10:00": {"day": "2026-01-03", "at": "10:00", "name": "me"},
    "book a slot on 2025-12-01 at 10:00": {"day": "2025-12-01", "at": "10:00", "name": "me"},
    'book a slot for "Tea at Four" at 16:00': {**BOOK, "at": "16:00", "name": "Tea at Four"},
    "book a slot at 3": None,
    "book a slot on 11/12/2025 at 14:00": None,
    "book a slot on 31 February at 14:00": None,
    "book a slot at 25:00": None,
    "book a slot": None,
}


async def test_a_booking_is_read() -> None:
    """Day and name may be left out; what can be read in two ways is not guessed."""
    found = {text: await propose(asked(text)) for text in BOOKINGS}

    assert {text: one.steps[0].args if isinstance(one, NewSteps) else None for text, one in found.items()} == BOOKINGS


CLAUSES: dict[str, tuple[str, dict[str, JsonValue]]] = {
    "list the free slots": ("list_slots", {"day": TODAY}),
    "list all available slots on Monday": ("list_slots", {"day": "2025-11-24"}),
    "list slots for tomorrow": ("list_slots", {"day": "2025-11-22"}),
    "search the documents for the refund policy": ("search", {"query": "refund policy"}),
    "search for 'terms and conditions'": ("search", {"query": "terms and conditions"}),
    "search for 'this, then list slots; and more'": ("search", {"query": "this, then list slots; and more"}),
    "calculate 18% of 2,450": ("calculate", {"expression": "18% of 2,450"}),
    "What is max(2, 3)?": ("calculate", {"expression": "max(2, 3)"}),
    "compute 7 x 6 =": ("calculate", {"expression": "7 x 6"}),
}


async def test_one_clause_is_one_step() -> None:
    """Quotation marks keep everything together; `it` travels as a reference, never as text."""
    steps = {text: await plan_of(text) for text in CLAUSES}

    assert {text: [(step.kind, step.args) for step in steps[text]] for text in CLAUSES} == {
        text: [step] for text, step in CLAUSES.items()
    }

    for said in ("10% of it", "10% of the result"):
        _, second = await plan_of(f"calculate 18% of 2450 then calculate {said}")
        assert second.args == {"expression": "10% of it", "it": {"$from": "calculate", "path": "value"}}


NEEDS: dict[str, list[tuple[str, ...]]] = {
    "calculate 1+1 and list slots, search for x": [(), (), ()],
    "calculate 1+1; list slots": [(), ()],
    "calculate 1+1 then list slots": [(), ("calculate",)],
    "calculate 1+1, and then list slots. Then search for x": [(), ("calculate",), ("list_slots",)],
    "calculate 1+1 and list slots then search for x": [(), (), ("calculate", "list_slots")],
    "calculate 1+1; then list slots": [(), ("calculate",)],
}


async def test_then_means_order_and_everything_else_does_not() -> None:
    """What is only enumerated runs at the same time; clauses become steps with short ids and titles, like the task."""
    steps = await plan_of("book a slot for the team at 14:00, calculate 2+2; calculate 3*3 and search for refunds")
    titles = [("book", "team 14:00"), ("calculate", "2+2"), ("calculate-2", "3*3"), ("search", "refunds")]

    assert {text: [step.needs for step in await plan_of(text)] for text in NEEDS} == NEEDS
    assert [(step.id, step.title) for step in steps] == titles


NOT_UNDERSTOOD = {
    "book a slot for the team": ("book a slot for the team", "book a slot [for NAME] [on DATE] at 14:00"),
    "calculate 1+1 and then fly to the moon": ("fly to the moon", "is not understood"),
    "calculate the meaning of life": ("calculate the meaning of life", "calculate 18% of 2450"),
    "what is the refund policy?": ("what is the refund policy", "calculate 18% of 2450"),
    "list slots at 14:00": ("list slots at 14:00", "list slots DAY"),
    "book a slot at 14:00 then calculate 10% of it": ("calculate 10% of it", "no earlier clause brings a number."),
    "zzz": ("zzz", "no sentence is like it"),
    "...": ("", "write e.g. search the documents for WORDS"),
}


async def test_what_is_not_understood_is_named_with_the_nearest_sentence() -> None:
    """A person learns which clause it was, how to write it, where all sentences are, and that a model needs none."""
    for text, words in NOT_UNDERSTOOD.items():
        reason = await gives_up(asked(text))

        assert [part for part in (*words, "docs/offline-planner.md", "model key") if part not in reason] == []
        assert len(reason) < 300  # a list of all sentences would be cut where it is shown

    down = await gives_up(asked("calculate 1+1", down=["calculate"]))
    rejected = await gives_up(asked("calculate 1+1", rejected=[{"text": "1 steps, but only 0 tool calls are left"}]))

    assert "needs the kind calculate, which cannot be used in this task" in down
    assert "1 steps, but only 0 tool calls are left" in rejected


WORDS = st.sampled_from(
    ["book a slot", "for", "the team", "on", "tomorrow", "Friday", "at", "14:00", "2pm", "noon", "list free slots", ",",
     "search the documents for", "calculate", "what is", "18% of", "2450", "it", "and", "then", ";", ".", "'", '"', "(",
     "\u201c", "\n", "next", "31 February", "2025-11-21", "0", ")", "to", "cancel", "them", "booking 12",
     "read", "a.md", "summarise", "in 2 sentences", "buy 2 of", "A-17", "for at most 25", "each",
     "send parcel", "north",
     "find customer", "C-0001", "save", "to b.md", "fetch",
     "https://a.example/", "refund", "order 7", "get the price of", "list the documents", "delete document"]
)  # fmt: skip
TEXTS = st.one_of(st.text(min_size=1, max_size=200), st.lists(WORDS, min_size=1, max_size=40).map(" ".join))


@given(TEXTS)
async def test_any_text_gives_steps_or_a_reason(text: str) -> None:
    """Never an exception, never an empty plan, and never one that needs what is not there."""
    proposal = await propose(asked(text))

    assert isinstance(proposal, NewSteps | GiveUp)
    assert getattr(proposal, "steps", True)
    assert not check_graph(proposal.steps, (), ()) if isinstance(proposal, NewSteps) else proposal.reason
    assert await propose(asked(text)) == proposal


TASK = "list the free slots today, then book a slot for the team today at 14:00"


def earlier(id: str, *, status: StepStatus = StepStatus.COMPLETED, **args: JsonValue) -> StepRecord:
    """A booking of an earlier run."""
    made = {**BOOK, **args}
    return record(step(id, args=made), status, result={**made, "id": 7}).model_copy(update={"revision": 0})


async def planned(text: str, *records: StepRecord, **more: Any) -> Mapping[str, Any]:
    """The arguments of each step that is planned, by id."""
    proposal = await propose(asked(text, records=records, **more))
    assert isinstance(proposal, NewSteps), proposal
    return {one.id: one.args for one in proposal.steps}


async def test_a_booking_that_stands_is_not_planned_again() -> None:
    """Also at the time that was taken in place of the one that was asked for; of two each stands for its own."""
    for done in (earlier("book"), earlier("book-2", at="14:30"), earlier("book-3", day="2025-11-22")):
        assert list(await planned(TASK, done)) == ["list_slots"]
    assert list(await planned(TASK, earlier("book", status=StepStatus.UNDONE))) == ["list_slots", "book-2"]

    answer = await propose(asked("book a slot for the team today at 14:00", records=[earlier("book-2", at="14:30")]))
    both = "book a slot for Ada today at 14:00, then book a slot for Ben today at 15:00"
    two = [earlier("book-3", name="Ada", at="14:30"), earlier("book-2", name="Ben", at="15:00")]

    assert answer == Answer(result="Booked 14:30 today for the team.")
    assert isinstance(await propose(asked(both, records=two)), Answer)


async def test_a_booking_that_no_rule_judges_is_left_to_a_person() -> None:
    """One for somebody else: a second booking could be one too many. And what nobody knows is neither done nor not."""
    others = await gives_up(asked(TASK, records=[earlier("book-2", name="Ada")]))
    unknown = await gives_up(asked(TASK, records=[earlier("book-2", at="14:30", status=StepStatus.CANCELLED)]))

    assert others == "No rule says whether book-2 of an earlier run did what book is to do."
    assert unknown == "Nobody knows whether book-2 of an earlier run was applied: find out first."


async def test_a_refused_step_is_not_repeated_where_its_effect_stands() -> None:
    """The new plan has what follows it, with references to what was done."""
    refused = record(step("book"), StepStatus.FAILED)
    look = record(step("list_slots", "list_slots", {"day": TODAY}, needs=("book",)), StepStatus.SKIPPED)
    records = [earlier("book-2", at="14:30"), refused, look]
    proposal = await propose(asked(TASK, records=records, faults=[fault("book")]))

    assert isinstance(proposal, NewSteps) and [(one.id, one.needs) for one in proposal.steps] == [
        ("list_slots", ("book-2",))
    ]


@pytest.mark.parametrize(
    ("args", "observed", "expected"),
    [
        ({"weight": 7.0}, {"available": [2, 6, 8, 9]}, [8, 6, 9, 2]),
        ({"weight": 7}, {"weights": ["6.5", "9"]}, ["6.5", "9"]),
        ({"weight": 7}, {"ids": [1, 2]}, []),
        ({"name": "Ada"}, {"people": ["Grace"]}, []),
        ({"name": "Ada"}, {"names": ["Grace"]}, ["Grace"]),
        ({"day": TODAY}, {"busy": ["2025-11-22"]}, []),
        ({"from": "2025-11-21T10:00:00Z"}, ["2025-11-21T12:00:00Z", "2025-11-21T09:00:00Z"],
         ["2025-11-21T09:00:00Z", "2025-11-21T12:00:00Z"]),
        ({"at": "14:00", "until": "15:00"}, {"until": ["16:00"]}, ["16:00"]),
        ({"at": "14:00"}, {"free": ["soon", "15:00"]}, []),
        ({"at": "14:00"}, {"free": [True, None, []]}, []),
        ({"at": "14:00"}, {"free": []}, []),
        ({"at": None}, None, []),
        ({"at": "14:00"}, "15:00", []),
    ],
)  # fmt: skip
def test_only_what_is_alike_and_offered_replaces_an_argument(
    args: dict[str, JsonValue], observed: JsonValue, expected: list[JsonValue]
) -> None:
    """Any text or number looks like any other, so their list must be named as an offer or after the argument."""
    assert [one.value for one in find_alternatives(args, observed)] == expected


@pytest.mark.parametrize(
    ("args", "refused", "now", "fits"),
    [
        ({"at_most": "24.50"}, {"price": "26.00"}, {"price": "24.50"}, True),
        ({"max_price": 5}, {"price": 6}, {"price": 4.5}, True),
        ({"at_least": 3}, {"stock": 2}, {"stock": 3}, True),
        ({"min_stars": 3}, {"stars": 2}, {"stars": 2}, False),
        ({"at_most": 5}, {"price": 6}, {"price": 7}, False),
        ({"at_most": 5}, {"price": 4}, {"price": 3}, False),
        ({"at_most": 5}, {"price": 6}, {"price": None}, False),
        ({"at_most": 5}, {"price": 6}, {"cost": 4}, False),
        ({"at_most": 5}, {"open": True}, {"open": False}, False),
        ({"at_most": "nan"}, {"price": "6"}, {"price": "inf"}, False),
        ({"name": "5"}, {"price": 6}, {"price": 4}, False),
        ({"at_most": 5}, None, {"price": 4}, False),
        ({"at_most": 5}, {"price": 6}, [4], False),
    ],
)
def test_a_number_must_have_come_back_within_its_limit(
    args: dict[str, JsonValue], refused: JsonValue, now: JsonValue, fits: bool
) -> None:
    """The same field, too high or too low at the refusal, and right in what was seen since."""
    assert (limit_kept_now(args, refused, now) is not None) is fits
