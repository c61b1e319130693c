"""What the offline planner understands, and what it says of the rest."""

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st
from pydantic import JsonValue

from tests.activities.situations import BOOK, TODAY, asked, gives_up, propose
from workflows.plans.graph import check_graph
from workflows.plans.proposal import GiveUp, NewSteps, Step


async def plan_of(text: str) -> Sequence[Step]:
    """The steps of the first plan."""
    proposal = await propose(asked(text))
    assert isinstance(proposal, NewSteps), proposal
    return proposal.steps


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("book a slot for the team at 14:00", BOOK),
        ("Please book me a slot for the team today at 2 pm.", BOOK),
        ("reserve a slot at 14.00 for my team", BOOK),
        ("book the 14:00", None),
        ("book a slot on tomorrow at 14:00", {"day": "2025-11-22", "at": "14:00", "name": "me"}),
        ("book a slot for Ada Lovelace on Friday at noon", {"day": TODAY, "at": "12:00", "name": "Ada Lovelace"}),
        ("book a slot next Friday at 9:30 am", {"day": "2025-11-28", "at": "09:30", "name": "me"}),
        ("book a slot on Monday, 24 November at 15", {"day": "2025-11-24", "at": "15:00", "name": "me"}),
        ("book a slot on 3 January at 10:00", {"day": "2026-01-03", "at": "10:00", "name": "me"}),
        ("book a slot on 2025-12-01 at 10:00", {"day": "2025-12-01", "at": "10:00", "name": "me"}),
        ('book a slot for "Tea at Four" at 16:00', {**BOOK, "at": "16:00", "name": "Tea at Four"}),
        ("book a slot at 3", None),
        ("book a slot on 11/12/2025 at 14:00", None),
        ("book a slot on 31 February at 14:00", None),
        ("book a slot at 25:00", None),
        ("book a slot", None),
    ],
)
async def test_a_booking_is_read(text: str, args: dict[str, JsonValue] | None) -> None:
    """Day and name may be left out; what can be read in two ways is not guessed."""
    proposal = await propose(asked(text))

    assert (proposal.steps[0].args if isinstance(proposal, NewSteps) else None) == args


@pytest.mark.parametrize(
    ("text", "kind", "args"),
    [
        ("list the free slots", "list_slots", {"day": TODAY}),
        ("list all available slots on Monday", "list_slots", {"day": "2025-11-24"}),
        ("list slots for tomorrow", "list_slots", {"day": "2025-11-22"}),
        ("search the documents for the refund policy", "search", {"query": "refund policy"}),
        ("search for 'terms and conditions'", "search", {"query": "terms and conditions"}),
        ("search for 'this, then list slots; and more'", "search", {"query": "this, then list slots; and more"}),
        ("calculate 18% of 2,450", "calculate", {"expression": "18% of 2,450"}),
        ("What is max(2, 3)?", "calculate", {"expression": "max(2, 3)"}),
        ("compute 7 x 6 =", "calculate", {"expression": "7 x 6"}),
    ],
)
async def test_one_clause_is_one_step(text: str, kind: str, args: dict[str, JsonValue]) -> None:
    """Quotation marks keep everything together."""
    steps = await plan_of(text)

    assert [(step.kind, step.args) for step in steps] == [(kind, args)]


async def test_clauses_become_steps_with_short_ids_and_titles() -> None:
    """A plan reads like the task."""
    steps = await plan_of("book a slot for the team at 14:00, calculate 2+2; calculate 3*3 and search for refunds")

    assert [(step.id, step.title) for step in steps] == [
        ("book", "team 14:00"),
        ("calculate", "2+2"),
        ("calculate-2", "3*3"),
        ("search", "refunds"),
    ]


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("calculate 1+1 and list slots, search for x", [(), (), ()]),
        ("calculate 1+1; list slots", [(), ()]),
        ("calculate 1+1 then list slots", [(), ("calculate",)]),
        ("calculate 1+1, and then list slots. Then search for x", [(), ("calculate",), ("list_slots",)]),
        ("calculate 1+1 and list slots then search for x", [(), (), ("calculate", "list_slots")]),
        ("calculate 1+1; then list slots", [(), ("calculate",)]),
    ],
)
async def test_then_means_order_and_everything_else_does_not(text: str, needs: list[tuple[str, ...]]) -> None:
    """What is only enumerated runs at the same time."""
    assert [step.needs for step in await plan_of(text)] == needs


@pytest.mark.parametrize("said", ["10% of it", "10% of the result"])
async def test_it_refers_to_the_number_of_the_step_before(said: str) -> None:
    """The value travels as a reference, never as text."""
    steps = await plan_of(f"calculate 18% of 2450 then calculate {said}")

    assert steps[1].args == {"expression": "10% of it", "it": {"$from": "calculate", "path": "value"}}


@pytest.mark.parametrize(
    ("text", "clause", "form"),
    [
        ("book a slot for the team", "book a slot for the team", "book a slot [for NAME] [on DATE] at 14:00"),
        ("calculate 1+1 and then fly to the moon", "fly to the moon", "is not understood"),
        ("calculate the meaning of life", "calculate the meaning of life", "calculate 18% of 2450"),
        ("what is the refund policy?", "what is the refund policy", "calculate 18% of 2450"),
        ("list slots at 14:00", "list slots at 14:00", "list slots DAY"),
        (
            "book a slot at 14:00 then calculate 10% of it",
            "calculate 10% of it",
            "no earlier clause brings a number. Write it instead",
        ),
        ("zzz", "zzz", "no sentence is like it"),
        ("...", "", "write e.g. search the documents for WORDS"),
    ],
)
async def test_what_is_not_understood_is_named_with_the_nearest_sentence(text: str, clause: str, form: str) -> None:
    """A person learns which clause it was, how to write it, where all sentences are, and that a model needs none."""
    reason = await gives_up(asked(text))

    assert [part for part in (clause, form, "docs/offline-planner.md", "model key") if part not in reason] == []
    assert len(reason) < 300  # a list of all sentences would be cut where it is shown


async def test_only_usable_kinds_are_proposed() -> None:
    """A kind that is down, or that the worker does not have, is not asked for."""
    reason = await gives_up(asked("calculate 1+1", down=["calculate"]))

    assert "needs the kind calculate, which cannot be used in this task" in reason


async def test_a_rejected_first_plan_is_given_up_with_the_reasons() -> None:
    """The same text gives the same plan, so proposing again would be pointless."""
    reason = await gives_up(asked("calculate 1+1", rejected=[{"text": "1 steps, but only 0 tool calls are left"}]))

    assert "1 steps, but only 0 tool calls are left" in reason


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


@given(TEXTS)
async def test_the_same_situation_gives_the_same_proposal(text: str) -> None:
    """A planner that crashed and is asked again says the same."""
    assert await propose(asked(text)) == await propose(asked(text))
