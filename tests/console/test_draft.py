"""A plan that is only looked at: its order, its references, what it would change, and the document of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from client import document
from client.start import read_plan
from console.commands import dry_run
from tests.harness import plan, step
from workflows.account.outcome import Ending
from workflows.account.task import Task, TaskStatus
from workflows.inquiries import ApprovalNeed, Draft
from workflows.plans.catalogue import CompanionSpec, Effect, ToolSpec
from workflows.plans.proposal import Answer, GiveUp, Question, Step

UNDO = CompanionSpec(kind="back")
SPECS = {
    "look": ToolSpec(kind="look", effect=Effect.READ, retry="once"),
    "book": ToolSpec(kind="book", effect=Effect.TRANSACTIONAL, undo=UNDO, observe=CompanionSpec(kind="look")),
    "mail": ToolSpec(kind="mail", effect=Effect.UNKEYED, fallback="letter", retry="patient"),
    "wire": ToolSpec(kind="wire", effect=Effect.KEYED, approve="always"),
    "pay": ToolSpec(kind="pay", effect=Effect.KEYED, approve="args.amount > 500"),
}
TASK = Task(text="do it", documents="papers")


def drafted(*steps: Step, because: str = "") -> Draft:
    """A draft of these steps."""
    return Draft(planner="offline", proposal=plan(*steps, because=because), specs=SPECS)


def lines(found: Draft, task: Task = TASK) -> list[str]:
    """What a person reads."""
    return dry_run.draft_lines(task, found, dry_run.ending_of(found))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"$from": "hits"}, "hits"),
        ({"$from": "hits", "path": "documents.0.name"}, "hits.documents[0].name"),
        ({"$from": "hits", "path": "0"}, "hits[0]"),
        ("hits.name", '"hits.name"'),
        (["a", {"$from": "hits", "path": "n"}, 1.5, None], '["a", hits.n, 1.5, null]'),
        ({"to": {"$from": "who"}, "cc": []}, '{"to": who, "cc": []}'),
        ({"$from": "hits", "more": 1}, '{"$from": "hits", "more": 1}'),
        ("\x1b[31m", '"\\u001b[31m"'),
    ],
)
def test_an_argument_is_shown_so_that_a_reference_reads_like_one(value: JsonValue, words: str) -> None:
    """As JSON, but for references, which are no text in quotes; what would draw on the terminal is spelt out."""
    assert dry_run.shown_value(value) == words


def test_steps_are_shown_in_the_order_of_their_needs() -> None:
    """However they were written; those that could start together stay in the order of the plan."""
    steps = [step("c", "look", "b"), step("b", "look", text={"$from": "a"}), step("d", "look"), step("a", "look")]

    assert [one.id for one in dry_run.in_order(steps)] == ["d", "a", "b", "c"]


def test_a_step_says_what_it_may_do() -> None:
    """Its effect, the way back, the look after a refusal, what takes over, how often it is tried, what it needs.

    The planner comes first, with its reason, or that somebody wrote the plan; programs get the same by the step's id.
    """
    found = drafted(
        step("b", "book"), step("m", "mail", "b", to="x"), step("l", "look"), because="It is enough\nto look."
    )
    told, written = lines(found), lines(found, Task(text="x", plan=(step("l", "look"),)))
    effects = json.loads(json.dumps(dry_run.draft_fields(TASK, found, dry_run.ending_of(found))["effects"]))

    assert told[:2] == ["The plan of the offline planner", "    It is enough to look."]
    assert written[0] == "The plan as it was written"
    for words in (
        "changes the world (transactional); back would undo it (by hand); look observes after a rejection",
        "after b; changes the world (unkeyed); cannot be undone; letter takes over",
        "reads only; one attempt",
        "8 attempts (patient)",
    ):
        assert any(words in line for line in told), words
    companions = {"undo": None, "observe": None, "fallback": "letter"}
    retries = {"retry": "patient", "attempts": 8, "approval": {"asks": "no", "why": ""}}
    assert effects["m"] == {"effect": "unkeyed", "changes_world": True, **companions, **retries}


SUMS = [
    (["look"], "1 step: none changes the world; nothing was run"),
    (["look", "book"], "2 steps: 1 changes the world (s1), each can be undone by hand; nothing was run"),
    (["book", "book"], "2 steps: 2 change the world (s0, s1), each can be undone by hand; nothing was run"),
    (
        ["book", "look", "mail"],
        "3 steps: 2 change the world (s0, s2), 1 of these cannot be undone (s2); nothing was run",
    ),
]


@pytest.mark.parametrize(("kinds", "words"), SUMS)
def test_the_last_line_counts(kinds: list[str], words: str) -> None:
    """Which steps change the world and for which there is no way back."""
    assert lines(drafted(*(step(f"s{number}", kind) for number, kind in enumerate(kinds))))[-1] == words


YES, NO = ApprovalNeed(asks="yes", why="the amount is above 500"), ApprovalNeed(asks="no")
ASKED = [
    ("look", None, "declared", None),
    ("look", None, "effects", None),
    ("look", None, "all", "asks a person: the task asks before each call"),
    ("book", None, "effects", "asks a person: the task asks before each call that changes something"),
    ("wire", None, "declared", "asks a person: the tool asks before each call"),
    ("pay", YES, "declared", "asks a person: the amount is above 500"),
    ("pay", YES, "all", "asks a person: the amount is above 500"),
    ("pay", NO, "declared", None),
    ("pay", NO, "effects", "asks a person: the task asks before each call that changes something"),
    ("pay", None, "declared", "may ask a person: if args.amount > 500"),
]


@pytest.mark.parametrize(("kind", "declared", "approve", "words"), ASKED)
def test_it_is_said_which_calls_a_person_is_asked_about(
    kind: str, declared: ApprovalNeed | None, approve: str, words: str | None
) -> None:
    """With the reason, in the lines and in the document: the tool declares it, or the task asks for it."""
    task = Task.model_validate({"text": "x", "approve": approve})
    draft = drafted(step("a", kind)).model_copy(update={"approvals": {"a": declared} if declared else {}})
    *told, last = lines(draft, task)
    approval = dry_run.draft_fields(task, draft, dry_run.ending_of(draft))["effects"]["a"]["approval"]

    assert [line.strip() for line in told if "a person" in line] == ([words] if words else [])
    assert {"yes": "1 asks a person (a)", "may": "1 may ask a person (a)", "no": "; nothing"}[approval["asks"]] in last
    assert (approval["why"] in (words or "")) and ("ask" in last) == bool(words)


REFUSED = Ending(status=TaskStatus.FAILED, reason="The plan was rejected: x.", code="c")
ENDINGS: list[tuple[dict[str, Any], str, str]] = [
    ({"proposal": Answer(result="42")}, "completed", "The p planner answers at once; nothing was run\n42"),
    ({"proposal": Answer(result={"a": 1})}, "completed", '{"a":1}'),
    ({"proposal": Question(text="Which\nday?")}, "escalated", "The planner asks: Which day?"),
    ({"proposal": GiveUp(reason="Too hard.")}, "failed", "The p planner gives up: Too hard."),
    ({"ending": REFUSED}, "failed", "The plan was rejected: x."),
]


@pytest.mark.parametrize(("more", "status", "words"), ENDINGS)
def test_where_there_is_no_plan_it_is_said_why(more: dict[str, Any], status: str, words: str) -> None:
    """An answer, a question, a planner that gives up, a refusal; each on one line, and that nothing was run."""
    found = Draft(planner="p", **more)
    told = "\n".join(lines(found))

    assert dry_run.ending_of(found).status == status and "nothing was run" in told.lower() and words in told


def test_control_characters_of_a_plan_do_not_reach_the_terminal() -> None:
    """Titles, reasons and texts come from a model."""
    evil = Step(id="l", kind="look", title="a\x1b[31mb\nc", args={"x\x1b": "\x07"})
    told = "".join(lines(drafted(evil, because="\x1b]0;title\x07")))

    assert all(char.isprintable() for char in told)


def test_the_document_is_a_plan_file(tmp_path: Path) -> None:
    """As it was printed; task and documents go with it, and every field of a step."""
    found = drafted(step("b", "book", text={"$from": "l"}), Step(id="l", kind="look", title="Look"))
    file = tmp_path / "plan.json"
    file.write_text(document.of_anything(dry_run.draft_fields(TASK, found, dry_run.ending_of(found))))
    read = read_plan(file)

    assert (read.steps, read.task, read.documents) == (dry_run.proposed(found), "do it", "papers")
