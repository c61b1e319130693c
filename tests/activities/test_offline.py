"""The offline planner at the end of a task: the answer in words."""

import pytest
from pydantic import JsonValue

from tests.activities.situations import BOOK, TODAY, asked, fault, propose, record, step
from workflows.plan import Answer
from workflows.task import StepRecord, StepStatus


def done(kind: str, result: JsonValue, title: str = "", id: str = "one") -> StepRecord:
    """A finished step."""
    return record(step(id, kind, {}, title=title), StepStatus.COMPLETED, result=result)


@pytest.mark.parametrize(
    ("finished", "sentence"),
    [
        (done("book_slot", {**BOOK, "id": 7, "at": "14:30"}), "Booked 14:30 today for the team."),
        (done("book_slot", {**BOOK, "id": 7, "day": "2025-11-22", "name": "Ada"}), "Booked 14:00 tomorrow for Ada."),
        (done("book_slot", {**BOOK, "id": 7, "day": "2025-12-01", "name": "me"}), "Booked 14:00 on 2025-12-01."),
        (done("list_slots", {"day": TODAY, "free": ["14:30", "15:00"]}), "Free today: 14:30, 15:00."),
        (done("list_slots", {"day": TODAY, "free": []}), "Nothing is free today."),
        (done("calculate", {"expression": "18% of 2450", "value": "441"}), "18% of 2450 = 441."),
        (
            done("search", {"query": "x", "hits": [{"path": "a.md", "line": 3, "title": "A", "text": "It is x."}]}),
            "A: It is x. (a.md, line 3)",
        ),
        (done("send_parcel", {"weight": 7, "depot": "north"}, "parcel"), "parcel: weight 7, depot north"),
        (done("unheard_of", "fine", "greeting"), "greeting: fine"),
        (done("unheard_of", [1, 2]), "one: [1,2]"),
        (done("book_slot", "not a booking", "odd"), "odd: not a booking"),
    ],
)
async def test_a_finished_step_is_told_in_a_sentence(finished: StepRecord, sentence: str) -> None:
    """Known kinds have a phrase, all others their title and value."""
    assert await propose(asked("x", turn=2, records=(finished,))) == Answer(result=sentence)


async def test_the_answer_follows_the_plan_and_leaves_out_what_was_refused() -> None:
    """One sentence for each finished step, of all revisions."""
    finished = (
        record(step("book"), StepStatus.FAILED),
        done("calculate", {"expression": "1+1", "value": "2"}, id="sum"),
        record(step("book-2"), StepStatus.COMPLETED, revision=2, result={**BOOK, "id": 7, "at": "14:30"}),
    )
    situation = asked("x", turn=3, records=finished, faults=(fault("book"),))

    assert await propose(situation) == Answer(result="1+1 = 2.\nBooked 14:30 today for the team.")
