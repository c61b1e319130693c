"""Every form of the offline planner, what `it` and `them` are, and the page that says so."""

import re

import pytest
from pydantic import JsonValue

from activities.offline.forms import FORMS
from activities.planning.checks import find_mistakes
from activities.toolbox.declare.form import Form
from tests import documentation
from tests.activities import test_repair
from tests.activities.desk import test_repair_desk
from tests.activities.situations import KINDS, TODAY, asked, gives_up, propose
from tests.processes import ROOT
from workflows.plans.graph import check_graph
from workflows.plans.proposal import NewSteps, Step

PAGE = (ROOT / "docs" / "offline-planner.md").read_text(encoding="utf-8")
RULES = {
    "An alternative that was offered": test_repair.test_the_nearest_alternative_is_taken,
    "A wider search": test_repair.test_a_wider_query_is_taken,
    "The next that was found": test_repair_desk.test_the_next_that_was_found_is_read,
    "Within the limit again": test_repair_desk.test_what_is_within_the_limit_again_is_bought,
    "A newer version": test_repair_desk.test_a_change_is_made_again_unless_somebody_changed_the_same_field,
    "The declared fallback": test_repair_desk.test_what_was_refused_is_asked_of_the_declared_fallback,
    "None of these": test_repair.test_without_an_alternative_the_planner_gives_up,
}
"""What is done after a rejection, in the order of the page, with the test that shows it."""
DESK = [form for kind in KINDS.values() for form in kind.forms]
"""The forms that the demo desk brings."""


async def plan_of(text: str) -> list[Step]:
    """The steps of the first plan, which may be run as they are."""
    proposal = await propose(asked(text))
    assert isinstance(proposal, NewSteps), proposal
    assert (find_mistakes(proposal, KINDS), check_graph(proposal.steps, (), ())) == ([], [])
    return list(proposal.steps)


def ref(step: str, path: str) -> JsonValue:
    """A reference."""
    return {"$from": step, "path": path}


def test_the_page_has_every_form_and_every_rule() -> None:
    """How a form is written, its example, and what it calls; no form or rule that is not there."""
    for table, forms in (("Write", FORMS), ("Write to the desk", DESK)):
        rows = [(spelling, example, re.findall(r"\w+", kinds)) for spelling, example, kinds in TABLES[table]]

        assert sorted(rows) == sorted((form.spelling, form.example, list(form.kinds)) for form in forms)
    assert re.findall(r"^\d\. \*\*(.*)\*\*", PAGE, flags=re.MULTILINE) == list(RULES)


TABLES = documentation.tables(PAGE)


@pytest.mark.parametrize("form", [*FORMS, *DESK], ids=lambda form: form.spelling)
async def test_each_example_is_understood(form: Form) -> None:
    """A person may copy any example, and it calls what the page says."""
    assert form.kinds[-1] in {step.kind for step in await plan_of(form.example)}


def test_each_kind_of_the_worker_that_is_shipped_has_a_form() -> None:
    """Without a key nothing is out of reach, but a request whose method, address and body no sentence says.

    Nor is there a form for `compose`: what the offline planner answers is such a list already.
    """
    assert {kind for form in [*FORMS, *DESK] for kind in form.kinds} == set(KINDS) - {
        "send_parcel",
        "http_request",
        "compose",
    }


@pytest.mark.parametrize(
    ("text", "kind", "args"),
    [
        ("read the document refund-policy.md", "read_document", {"name": "refund-policy.md"}),
        ("read refund-policy.md", "read_document", {"name": "refund-policy.md"}),
        ('open "House Rules"', "read_document", {"name": "House Rules"}),
        ("read document handbook", "read_document", {"name": "handbook"}),
        ("fetch https://a.example/x,y;z?q=1.", "fetch_page", {"url": "https://a.example/x,y;z?q=1"}),
        ("get the page http://a.example", "fetch_page", {"url": "http://a.example"}),
        ('save "one, then two; and 3" to a.txt', "write_file", {"name": "a.txt", "content": "one, then two; and 3"}),
        ("cancel booking 12", "cancel_booking", {"booking": 12}),
        ("cancel my booking #12", "cancel_booking", {"booking": 12}),
        ("list the bookings", "list_bookings", {}),
        ("list my bookings for the auditors", "list_bookings", {"name": "auditors"}),
        ("what is the price of a-17?", "get_price", {"sku": "A-17"}),
        ("check the price of A-17", "get_price", {"sku": "A-17"}),
        ("buy 2 of A-17 for at most 25", "purchase", {"sku": "A-17", "quantity": 2, "at_most": "25"}),
        ("purchase A-17 for at most \u20ac24.50", "purchase", {"sku": "A-17", "quantity": 1, "at_most": "24.50"}),
        ("buy 3 of A-17 for at most 50 EUR in all", "purchase", {"sku": "A-17", "quantity": 3, "at_most": "16.66"}),
        ('buy 1 of "Lamp, oak" for up to 9 each', "purchase", {"sku": "Lamp, oak", "quantity": 1, "at_most": "9"}),
        ("refund order 7", "refund", {"order": 7}),
        ("list the latest orders", "list_orders", {}),
        ("list orders of b-03", "list_orders", {"sku": "B-03"}),
        ("find customer Ada Brook", "find_customer", {"query": "Ada Brook"}),
        ("look up the customer c-0001", "find_customer", {"query": "C-0001"}),
        ("find customer complaints in the documents", "search", {"query": "customer complaints"}),
        ("list the documents", "list_documents", {}),
        ("show me all documents about returns", "list_documents", {"query": "returns"}),
        ("delete the document returns-checklist", "delete_document", {"document": "returns-checklist"}),
        ('search for "how to open and read files"', "search", {"query": "how to open and read files"}),
        ('find customer "Smith, Brook and Sons"', "find_customer", {"query": "Smith, Brook and Sons"}),
        ('book a slot for "Ada and Ben" at 14:00', "book_slot", {"day": TODAY, "at": "14:00", "name": "Ada and Ben"}),
    ],
)  # fmt: skip
async def test_one_clause_is_one_call(text: str, kind: str, args: dict[str, JsonValue]) -> None:
    """What is asked for is called with what was said, and with nothing else."""
    assert [(step.kind, step.args) for step in await plan_of(text)] == [(kind, args)]


CHAINS: list[tuple[str, list[tuple[str, dict[str, JsonValue]]]]] = [
    ("search for refunds then read it, summarise it in 2 sentences and save it to s.md", [
        ("search", {"query": "refunds"}),
        ("read", {"name": ref("search", "hits.0.path")}),
        ("summarise", {"text": ref("read", "text"), "sentences": 2}),
        ("save", {"name": "s.md", "content": ref("summarise", "summary")}),
    ]),
    ("summarise a.md", [("read", {"name": "a.md"}), ("summarise", {"text": ref("read", "text")})]),
    ("summarise https://a.example/b", [
        ("fetch", {"url": "https://a.example/b"}), ("summarise", {"text": ref("fetch", "text")}),
    ]),
    ("search for refunds and summarise them", [
        ("search", {"query": "refunds"}), ("summarise", {"text": ref("search", "hits.0.text")}),
    ]),
    ("read a.md and read b.md then summarise them", [
        ("read", {"name": "a.md"}), ("read-2", {"name": "b.md"}),
        ("summarise", {"text": ref("read", "text")}), ("summarise-2", {"text": ref("read-2", "text")}),
    ]),
    ("calculate 2+2, fetch https://a.example and calculate it * 3", [
        ("calculate", {"expression": "2+2"}), ("fetch", {"url": "https://a.example"}),
        ("calculate-2", {"expression": "it * 3", "it": ref("calculate", "value")}),
    ]),
    ("get the price of A-17, calculate 3 * it then save the result to sum.txt", [
        ("price", {"sku": "A-17"}),
        ("calculate", {"expression": "3 * it", "it": ref("price", "price")}),
        ("save", {"name": "sum.txt", "content": ref("calculate", "value")}),
    ]),
    ("book a slot for Ada at 14:00 then move it to 15:00, then cancel it", [
        ("book", {"day": TODAY, "at": "14:00", "name": "Ada"}),
        ("move", {"day": ref("book", "day"), "at": "15:00", "name": ref("book", "name")}),
        ("cancel", {"booking": ref("book", "id")}), ("cancel-2", {"booking": ref("move", "id")}),
    ]),
    ("move booking 12 to tomorrow at 3 pm", [
        ("booking", {"booking": 12}),
        ("move", {"day": "2025-11-22", "at": "15:00", "name": ref("booking", "bookings.0.name")}),
        ("cancel", {"booking": 12}),
    ]),
    ("move the booking 12 to 15:00", [
        ("booking", {"booking": 12}),
        ("move", {"day": ref("booking", "bookings.0.day"), "at": "15:00", "name": ref("booking", "bookings.0.name")}),
        ("cancel", {"booking": 12}),
    ]),
    ("buy 1 of A-17 for at most 25, then refund it", [
        ("buy", {"sku": "A-17", "quantity": 1, "at_most": "25"}), ("refund", {"order": ref("buy", "id")}),
    ]),
    ("update customer C-0001: e-mail to ada@mail.example and phone +49 30 1", [
        ("customer", {"query": "C-0001"}),
        ("update", {"customer": "C-0001", "version": ref("customer", "customers.0.version"),
                    "changes": {"email": "ada@mail.example", "phone": "+49 30 1"}}),
    ]),
    ("find customer C-0001 then change it: phone 12", [
        ("customer", {"query": "C-0001"}),
        ("update", {"customer": ref("customer", "customers.0.id"), "version": ref("customer", "customers.0.version"),
                    "changes": {"phone": "12"}}),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "steps"), CHAINS, ids=lambda value: str(value)[:40])
async def test_results_travel_as_references(text: str, steps: list[tuple[str, dict[str, JsonValue]]]) -> None:
    """`it` is the nearest result before that fits, `them` are all of them."""
    assert [(step.id, step.args) for step in await plan_of(text)] == steps


async def test_what_is_moved_is_cancelled_last() -> None:
    """A refused slot leaves the old booking."""
    book, move, cancel = await plan_of("book a slot at 14:00 and move it to 15:00")

    assert [set(step.dependencies) for step in (move, cancel)] == [{book.id}, {book.id, move.id}]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("move it to 15:00", "it must be a booking that was made before. Write its number instead"),
        ("cancel them", "`them` means: it must be a booking"),
        ("refund it", "Write its number instead, as in order 12"),
        ("read it", "a document that was searched for before"),
        ("calculate 1+1 then summarise it", "Name the document or the URL instead"),
        ("list the slots then save it to a.md", "Write the text in quotation marks instead"),
        ("calculate 1+1 then save the summary to a.md", "Ask for it first: summarise document NAME"),
        ("find customer Ada then update it: phone 12", "by a name several may be found"),
        ("save hello to a.md", "the nearest form is: save it to FILE"),
        ("read the handbook", "the nearest form is: read document NAME"),
        ("buy 2 of A-17", "the nearest form is: buy 2 of A-17 for at most 24.50"),
        ("buy 2 of A-17 for at most $25", "the nearest form is: buy 2 of A-17 for at most 24.50"),
        ("buy 0 of A-17 for at most 25", "the nearest form is: buy 2 of A-17 for at most 24.50"),
        ("move booking 12 to 3", "the nearest form is: move booking 12"),
        ("cancel the booking of Ada", "the nearest form is: cancel booking 12"),
        ("change the customer's e-mail", "the nearest form is: update customer C-0001"),
        ("update customer C-0001: phone 1, phone 2", "the nearest form is: update customer C-0001"),
        ("delete the old documents", "the nearest form is: delete document NAME"),
        ("fetch example.org", "the nearest form is: fetch URL"),
    ],
)
async def test_what_cannot_be_done_honestly_is_not_understood(text: str, hint: str) -> None:
    """Nothing is guessed: the clause is named, with what to write instead."""
    assert hint in await gives_up(asked(text))


@pytest.mark.parametrize(
    "text",
    [
        "find customer Ada and change her phone to 12",
        "find customer Ada, send her a parcel",
        "find customer Ada. Send her a parcel",
        "find customer Ada to change her phone",
        "find customer Ada or Ben",
        "search the documents for refunds and mail them to Ada",
        "find refunds and returns in the documents",
        "list the documents about returns and print them",
        "list the bookings for Ada and move them",
        "list the orders of A-17 and pay them",
        "get the price of A-17 and of B-03",
        "buy 2 of A-17 and one of B-03 for at most 25",
        "book a slot for Ada and tell her at 14:00",
        "update customer C-0001: phone 12 and write her a letter",
        "update customer C-0001: name Ada, also called Countess",
    ],
)
async def test_no_clause_is_swallowed_by_the_words_of_another(text: str) -> None:
    """Words that may be another request are never taken for a name, a value or a part of a search: nothing is done."""
    reason = await gives_up(asked(text))

    assert ("is not understood" in reason, "quotation marks" in reason) == (True, True)


async def test_a_form_needs_all_its_kinds() -> None:
    """A move that could book but not cancel is not begun."""
    reason = await gives_up(asked("move booking 12 to 15:00", down=["cancel_booking"]))

    assert "needs the kind cancel_booking, which cannot be used" in reason
