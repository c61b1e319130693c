"""The planner without a model after a reset: what an earlier run did and still stands is not planned again."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import JsonValue

from tests.activities.situations import BOOK, TODAY, asked, fault, gives_up, propose, record, step
from workflows.account.records import StepRecord, StepStatus
from workflows.plans.proposal import Answer, NewSteps

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


@pytest.mark.parametrize(
    "done",
    [earlier("book"), earlier("book-2", at="14:30"), earlier("book-3", day="2025-11-22")],
    ids=lambda one: one.step.id,
)
async def test_a_booking_that_stands_is_not_planned_again(done: StepRecord) -> None:
    """Also at the time that was taken in place of the one that was asked for."""
    assert list(await planned(TASK, done)) == ["list_slots"]


async def test_a_booking_that_was_undone_is_planned_under_another_id() -> None:
    """Its own id belongs to what is undone."""
    assert list(await planned(TASK, earlier("book", status=StepStatus.UNDONE))) == ["list_slots", "book-2"]


async def test_nothing_is_left_to_plan_where_all_stands() -> None:
    """Then the answer tells of it."""
    answer = await propose(asked("book a slot for the team today at 14:00", records=[earlier("book-2", at="14:30")]))

    assert answer == Answer(result="Booked 14:30 today for the team.")


async def test_a_booking_for_somebody_else_is_left_to_a_person() -> None:
    """No rule says whether it does what was asked, and a second booking could be one too many."""
    reason = await gives_up(asked(TASK, records=[earlier("book-2", name="Ada")]))

    assert reason == "No rule says whether book-2 of an earlier run did what book is to do."


async def test_two_bookings_are_told_apart() -> None:
    """Each stands for the one that it is most alike."""
    both = "book a slot for Ada today at 14:00, then book a slot for Ben today at 15:00"
    done = [earlier("book-3", name="Ada", at="14:30"), earlier("book-2", name="Ben", at="15:00")]

    assert isinstance(await propose(asked(both, records=done)), Answer)


async def test_nobody_knows_is_not_taken_for_done() -> None:
    """Neither for done nor for not done."""
    reason = await gives_up(asked(TASK, records=[earlier("book-2", at="14:30", status=StepStatus.CANCELLED)]))

    assert reason == "Nobody knows whether book-2 of an earlier run was applied: find out first."


async def test_a_refused_step_is_not_repeated_where_its_effect_stands() -> None:
    """The new plan has what follows it, with references to what was done."""
    refused = record(step("book"), StepStatus.FAILED)
    look = record(step("list_slots", "list_slots", {"day": TODAY}, needs=("book",)), StepStatus.SKIPPED)
    records = [earlier("book-2", at="14:30"), refused, look]
    proposal = await propose(asked(TASK, records=records, faults=[fault("book")]))

    assert isinstance(proposal, NewSteps) and [(one.id, one.needs) for one in proposal.steps] == [
        ("list_slots", ("book-2",))
    ]
