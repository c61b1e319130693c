"""The offline planner at the end of a task: the answer in words."""

import pytest
from pydantic import JsonValue

from tests.activities.situations import BOOK, TODAY, asked, fault, propose, record, step
from workflows.account.records import StepRecord, StepStatus
from workflows.plans.proposal import Answer


def done(kind: str, result: JsonValue, title: str = "", id: str = "one") -> StepRecord:
    return record(step(id, kind, {}, title=title), StepStatus.COMPLETED, result=result)


ENTRY: JsonValue = {**BOOK, "id": 7, "cancelled": "2025-11-21T10:00:00Z"}
PRICE: JsonValue = {"sku": "A-17", "name": "Desk lamp", "price": "24.50", "stock": 12, "version": 1}
ORDER: dict[str, JsonValue] = {
    "id": 9, "sku": "A-17", "quantity": 2, "price": "24.50", "customer": None, "bought": "2025-11-21T10:00:00Z",
    "refunded": None, "total": "49.00",
}  # fmt: skip
ADA: JsonValue = {"id": "C-0001", "name": "Ada", "email": "ada@mail.example", "phone": "12", "version": 3}
PAGE: dict[str, JsonValue] = {
    "url": "https://a.example", "status": 200, "content_type": "text/html", "title": "Prices", "fetched": 9
}  # fmt: skip


@pytest.mark.parametrize(
    ("finished", "sentence"),
    [
        (done("book_slot", {**BOOK, "id": 7, "at": "14:30"}), "Booked 14:30 today for the team."),
        (done("book_slot", {**BOOK, "id": 7, "day": "2025-11-22", "name": "Ada"}), "Booked 14:00 tomorrow for Ada."),
        (done("book_slot", {**BOOK, "id": 7, "day": "2025-12-01", "name": "me"}), "Booked 14:00 on 2025-12-01."),
        (done("list_slots", {"day": TODAY, "free": ["14:30", "15:00"]}), f"one: day {TODAY}, free 14:30; 15:00"),
        (done("list_slots", {"day": TODAY, "free": []}), f"one: day {TODAY}, free none"),
        (done("calculate", {"expression": "18% of 2450", "value": "441"}), "18% of 2450 = 441."),
        (
            done("search", {"query": "x", "hits": [{"path": "a.md", "line": 3, "title": "A", "text": "It is x."}]}),
            "A: It is x. (a.md, line 3)",
        ),
        (done("book_slot", {**BOOK, "id": 7, "name": "the night shift"}), "Booked 14:00 today for the night shift."),
        (done("cancel_booking", ENTRY),
         f"one: day {TODAY}, at 14:00, name team, id 7, cancelled 2025-11-21T10:00:00Z"),
        (done("list_bookings", {"bookings": [ENTRY]}), f"one: bookings {TODAY} 14:00 team 7 2025-11-21T10:00:00Z"),
        (done("list_bookings", {"bookings": []}), "one: bookings none"),
        (done("get_price", PRICE), "one: sku A-17, name Desk lamp, price 24.50, stock 12, version 1"),
        (done("purchase", ORDER),
         "one: id 9, sku A-17, quantity 2, price 24.50, bought 2025-11-21T10:00:00Z, total 49.00"),
        (done("refund", {**ORDER, "quantity": 1}),
         "one: id 9, sku A-17, quantity 1, price 24.50, bought 2025-11-21T10:00:00Z, total 49.00"),
        (done("list_orders", {"orders": [ORDER]}), "one: orders 9 A-17 2 24.50 2025-11-21T10:00:00Z 49.00"),
        (done("list_orders", {"orders": []}), "one: orders none"),
        (done("find_customer", {"customers": [ADA], "more": True}),
         "one: customers C-0001 Ada ada@mail.example 12 3, more true"),
        (done("update_customer", ADA), "one: id C-0001, name Ada, email ada@mail.example, phone 12, version 3"),
        (done("list_documents", {"documents": [{"name": "a", "title": "A"}] * 10}),
         "one: documents " + "; ".join(["a A"] * 8) + " and 2 more"),
        (done("delete_document", {"name": "a", "title": "A"}), "one: name a, title A"),
        (done("read_document", {"name": "a.md", "title": "A", "text": "One\ntwo.", "first": 1, "last": 1, "pages": 1}),
         "A: One two. (a.md)"),
        (done("fetch_page", {**PAGE, "text": "word " * 200}), f"Prices: {'word ' * 80}\u2026 (https://a.example)"),
        (done("summarise", {"summary": "It is x.", "sentences": 1, "of": 9}), "In short: It is x."),
        (done("key_sentences", {"summary": "It is x.", "sentences": 1, "of": 9, "method": "key_sentences"}),
         "In short: It is x."),
        (done("compose", {"text": "Dear Ada", "method": "model"}), "Dear Ada"),
        (done("write_file", {"path": "a.md", "bytes": 1200, "sha256": "0"}), "Saved a.md (1,200 bytes)."),
        (done("send_parcel", {"weight": 7, "depot": "north"}, "parcel"), "parcel: weight 7, depot north"),
        (done("unheard_of", "fine", "greeting"), "greeting: fine"),
        (done("unheard_of", [1, 2]), "one: 1; 2"),
        (done("book_slot", "not a booking", "odd"), "odd: not a booking"),
    ],
)  # fmt: skip
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
