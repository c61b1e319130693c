"""What the web UI is given: short, plain, and never markup from the world."""

import re
import shlex
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import JsonValue

from tests.harness import step
from workflows.account.outcome import Ending
from workflows.account.progress import Progress
from workflows.account.records import (
    Compaction,
    Failover,
    FaultRecord,
    Rejection,
    Revision,
    StepRecord,
    StepStatus,
)
from workflows.account.task import Task, TaskStatus
from workflows.faults.fault import Code, Fault
from workflows.limits.budget import Limits, Spent, TaskBudget
from workflows.people.requests import Choice, HumanRequest, ProposedCall, RequestKind
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import Step
from workflows.text import shorten, visible
from workflows.web_ui import SIGNS, details, escape, summary

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LIMIT = 2500
"""Bytes that the web UI can carry in a URL."""
HOSTILE = (
    "<img src=x onerror=alert(1)> \x1b\u202e\u200b **bold** [link](http://evil) `code` # head | cell & ~~gone~~\n- item"
)
SPELLING = "\u200c\u200d\ufe0e\ufe0f"
"""What a language may need in prose."""
WORDS = st.text(max_size=80) | st.sampled_from(["&" * 80, "🦊" * 80, "<b>" * 30, HOSTILE, "\n\n# "])


def record(one: Step, status: StepStatus = StepStatus.PENDING, **more: Any) -> StepRecord:
    """A step of the first plan that stands so."""
    kind = more.pop("kind", one.kind)
    return StepRecord(step=one, revision=1, effect=Effect.READ, kind=kind, status=status, **more)


def fault(step_id: str, reason: str, decision: str = "replan") -> FaultRecord:
    """A fault of the first plan."""
    return FaultRecord.of_call(Fault.of(Code.NOT_FOUND, reason), step_id, 1, decision, at=NOW)


def progress(*records: StepRecord, **more: Any) -> Progress:
    """A task with these steps in its first plan."""
    given = {"task": Task(text="a task"), "revisions": [Revision(number=1)], "records": list(records), **more}
    return Progress(task_id="t", started_at=NOW, **given)


@st.composite
def anything(draw: st.DrawFn) -> Progress:
    """A task with any steps, faults and ending, in any words."""
    records = [
        record(
            Step(id=f"s{number}", kind=draw(WORDS), title=draw(WORDS), needs=tuple(draw(st.lists(WORDS, max_size=3)))),
            draw(st.sampled_from(StepStatus)),
            kind=draw(WORDS),
            attempts=draw(st.integers(0, 5)),
            result=draw(WORDS | st.lists(WORDS, max_size=3)),
        )
        for number in range(draw(st.integers(0, 50)))
    ]
    faults = [fault(f"s{draw(st.integers(0, 50))}", draw(WORDS)) for _ in range(draw(st.integers(0, 30)))]
    failovers = [
        Failover(planner=f"{number}{draw(WORDS)}", code="x", reason=draw(WORDS), turn=1)
        for number in range(draw(st.integers(0, 20)))
    ]
    ending = Ending(status=draw(st.sampled_from(TaskStatus)), reason=draw(WORDS) * draw(st.integers(1, 40)), result="x")
    unused = [Rejection(turn=turn, reasons=(draw(WORDS), draw(WORDS) * 9)) for turn in range(draw(st.integers(0, 5)))]
    planner = draw(WORDS) * draw(st.integers(1, 40))
    more = {"failovers": failovers, "rejections": unused, "planner": planner}
    return progress(*records, faults=faults, ending=ending, **more)


@given(anything())
def test_details_stay_below_what_the_web_ui_carries(one: Progress) -> None:
    """Details travel in a URL: however many steps and faults, they are cut at whole lines."""
    assert len(details(one).encode()) < LIMIT


@given(st.text(max_size=500))
def test_a_summary_fits_and_is_one_line(text: str) -> None:
    """The server cuts summaries at 200 bytes, in the middle of a character if need be."""
    assert len(summary(text).encode()) < 200
    assert visible(summary(text), kept=SPELLING) == summary(text)


@given(st.text(max_size=100), st.integers(1, 60))
def test_a_brief_text_has_at_most_the_width(text: str, width: int) -> None:
    """What is left out is said with an ellipsis, what fits is left alone."""
    short = shorten(text, width)

    assert len(short) <= width
    assert short == text or short.endswith("…")


@given(WORDS)
def test_escaped_text_holds_no_live_markup(text: str) -> None:
    """Every character that Markdown or HTML could read has a backslash, and all is on one line."""
    escaped = escape(text)
    bare = re.sub(r"\\[\\`*_{}\[\]()#+!|~<>&$-]", "", escaped)

    assert not set(bare) & set("\\`*_{}[]()#+!|~-<>&$\n\r")


def test_a_sign_is_never_written_as_an_entity() -> None:
    """The UI takes the `&` of an entity for itself and shows `&lt;` as four signs."""
    assert escape("a < b & c") == "a \\< b \\& c"


FIELDS = [
    ("the result", progress(record(step("a", "k"), StepStatus.COMPLETED, result={"html": HOSTILE}))),
    ("the title", progress(record(Step(id="a", kind="k", title=HOSTILE)))),
    ("the arguments", progress(record(step("a", "k", x=HOSTILE)))),
    ("the kind", progress(record(step("a", HOSTILE)))),
    ("the id", progress(record(step(HOSTILE, "k")))),
    ("the needs", progress(record(step("a", "k", HOSTILE)))),
    ("the fallback", progress(record(step("a", HOSTILE), kind="k"))),
    ("the fault", progress(record(step("a", "k"), StepStatus.FAILED), faults=[fault("a", HOSTILE)])),
    ("the step of the fault", progress(faults=[fault(HOSTILE, "no")])),
    ("the answer", progress(ending=Ending(status=TaskStatus.COMPLETED, result=HOSTILE))),
    ("the reason", progress(ending=Ending(status=TaskStatus.FAILED, reason=HOSTILE))),
    ("the planner", progress(planner=HOSTILE)),
    ("the planner before", progress(failovers=[Failover(planner=HOSTILE, code="x", reason="x", turn=1)])),
    ("why a proposal was not used", progress(rejections=[Rejection(turn=1, reasons=(HOSTILE,))])),
    ("why it was not used", progress(failovers=[Failover(planner="x", code="x", reason=HOSTILE, turn=1)])),
]


@pytest.mark.parametrize("one", [pytest.param(case, id=name) for name, case in FIELDS])
def test_markup_from_the_world_is_shown_and_not_rendered(one: Progress) -> None:
    """The UI passes raw HTML on, and what turns a line around, hides in it or rings: nothing of it may reach it."""
    shown = details(one)

    assert "\\<img src" in shown and r"\u001b\\u202e\\u200b" in shown
    assert not re.search(r"<|\*\*bold|\[link|`|\n# |~~", re.sub(r"\\.", "", shown))
    assert {char for char in shown if visible(char) != char} == {"\n"}


def asking(id: str = "t", **args: JsonValue) -> Progress:
    """A task that asks a person to approve a call."""
    call = ProposedCall(kind="send", effect="idempotent", args=args, code="3f9c")
    words = {"kind": RequestKind.APPROVAL, "code": "approval", "reason": "Each effect needs an approval."}
    request = HumanRequest(id="r1", since=NOW, until=NOW, choices=(Choice.APPROVE,), call=call, step="a", **words)
    return progress(record(step("a", "send")), requests=[request]).model_copy(update={"task_id": id})


def test_a_link_leads_back_to_the_page() -> None:
    """To the request, where the worker says where people open the page; whatever the id of the task is."""
    asked = asking("a) b/c").model_copy(update={"page": "https://replan.example"})

    assert "[Answer on the page](https://replan.example/ui/tasks/a%29%20b%2Fc#r1)" in details(asked).splitlines()
    assert "on the page" not in details(asking())


def test_two_calls_to_approve_never_look_alike() -> None:
    """Not even by a joiner that a language needs, or a blank of another width."""
    names = ["ann", "an\u200dn", "ann\u202e", "ann\u3164"]
    names += ["\u0645\u06cc\u062e", "\u0645\u06cc\u200c\u062e", "a b", "a\u00a0b"]
    shown = [details(asking(to=name)) for name in names]

    assert len(set(shown)) == len(names)
    assert {char for text in shown for char in text if visible(char) != char} == {"\n"}


def test_a_call_of_invisible_characters_is_still_shown() -> None:
    """Their escapes take more room, and the call is cut, not left out."""
    shown = details(asking(to="\u200b" * 700)).splitlines()

    assert [line for line in shown if line.startswith(r"  - **to:** \\u200b\\u200b") and "…" in line]
    assert any("approve" in line and "3f9c" in line for line in shown)


@pytest.mark.parametrize("id", ["a b", "$(reboot)", "a`b``c", "it's", "\u202egnp", "\x1b[2J"], ids=ascii)
def test_the_command_that_answers_names_the_task_and_nothing_else(id: str) -> None:
    """Whoever chose the id: it is quoted for a shell, stays code, and has nothing invisible."""
    [line] = [line for line in details(asking(id)).splitlines() if line.startswith("More Actions")]
    _, marks, rest = re.split("Or: (`+)", line)

    assert rest.endswith(marks) and marks not in rest.removesuffix(marks)
    assert shlex.split(rest.removesuffix(marks))[-3:] == ["answer", visible(id), "approve"]


def test_the_command_for_a_limit_is_one_that_the_console_has() -> None:
    """`extend` is a command of its own, and no value of `answer`."""
    words = {"kind": RequestKind.BUDGET, "code": "tool_calls", "reason": "All 2 tool calls are used up."}
    request = HumanRequest(id="r1", since=NOW, until=NOW, choices=(Choice.EXTEND, Choice.ABORT), **words)
    shown = details(progress(requests=[request]).model_copy(update={"task_id": "t"}))

    assert "`python starter.py extend t --tool-calls +10`" in shown


def lines(one: Progress, start: str = "- ") -> list[str]:
    """The lines of the details that begin so."""
    return [line for line in details(one).splitlines() if line.startswith(start)]


FAULTED = record(step("b", "book", x="nine"), StepStatus.FAILED)
LOOKED = record(step("a", "look", x="Ada"), StepStatus.COMPLETED, result={"free": 2}, attempts=3)
TITLED = Step(id="charge", kind="charge", args={}, title="charge ann 12.00 17")
SLOW = [fault("a", "Slow.", "retry"), fault("a", "Gone.")]
FAILED = [Failover(planner="anthropic:x", code="unauthorized", reason="No.", turn=turn) for turn in (1, 2, 3)]
SHORT = [Compaction(turn=turn, turns=turn - 1, planner="openai:y", tokens=9) for turn in (20, 41)]
UNUSED = [Rejection(turn=turn, reasons=("no *grant*", "no sense")) for turn in (2, 3, 4, 5)]
ENDED = (StepStatus.COMPLETED, StepStatus.SKIPPED, StepStatus.FAILED)
KEPT = [record(step(id, "k"), status) for id, status in zip("abc", ENDED, strict=True)]
AFTER = "the same call would fail again: a new plan, no retry"
LINES: dict[str, tuple[Progress, list[str]]] = {
    "each step has its sign, id, kind, what it does, and what became of it; a fault what it led to": (
        progress(LOOKED, FAULTED, record(step("c", "book", "a", x="ten")), faults=[fault("b", "Taken.")]),
        [
            "- ✓ **a** look Ada → free 2 (3 attempts)",
            "- ✗ **b** book nine → not\\_found",
            "- ○ **c** book ten needs a",
            f"- Plan 1, b: not_found. Taken. → {AFTER}",
        ],
    ),
    "after a replan, what is kept and what failed; what was dropped is gone": (
        progress(*KEPT, revisions=[Revision(number=1), Revision(number=2)]),
        ["- ✓ **a** k → null (kept from plan 1)", "- ✗ **c** k (plan 1)"],
    ),
    "a fallback is never silent": (
        progress(record(step("a", "main"), kind="spare")),
        ["- ○ **a** spare (instead of main)"],
    ),
    "what time has cured is in the number of attempts, and no fault that led to something": (
        progress(record(step("a", "k")), faults=SLOW),
        ["- ○ **a** k", f"- Plan 1, a: not_found. Gone. → {AFTER}"],
    ),
    "a planner that could not be used is told once; and that older turns were summarised": (
        progress(failovers=FAILED, compactions=SHORT),
        [
            "- anthropic:x could not be used: unauthorized. No.",
            "- The oldest 40 turns were summarised at turn 41.",
        ],
    ),
    "one turn that was summarised is one": (
        progress(compactions=[Compaction(turn=2, turns=1, planner="x", tokens=9)]),
        ["- The oldest turn was summarised at turn 2."],
    ),
    **{
        f"the newest proposals that were not used, of the strategy {strategy}": (
            progress(task=Task.model_validate({"text": "a task", "strategy": strategy}), rejections=UNUSED),
            [f"- {what} {turn} was not used: no \\*grant\\*; no sense" for turn in (3, 4, 5)],
        )
        for strategy, what in (("plan", "Proposal"), ("react", "Turn"))
    },
    "a step is named once, however its plan titled it": (progress(record(TITLED)), ["- ○ **charge** ann 12.00 17"]),
}


@pytest.mark.parametrize(("one", "told"), LINES.values(), ids=LINES)
def test_each_thing_has_its_line(one: Progress, told: list[str]) -> None:
    """In the list of the plan, and below it."""
    assert lines(one) == told


def test_every_status_has_a_sign_of_its_own() -> None:
    """A glance tells them apart."""
    assert set(SIGNS) == set(StepStatus)
    assert len(set(SIGNS.values())) == len(SIGNS)


@pytest.mark.parametrize("count", [1, 20, 200])
def test_what_does_not_fit_is_counted(count: int) -> None:
    """A long plan says how many lines are missing instead of ending in the middle."""
    shown = details(progress(*(record(step(f"s{number}", "k", x="w" * 60)) for number in range(count)))).splitlines()
    whole = [line for line in shown if line.startswith("- ○")]
    left_out = re.fullmatch(r"- … (\d+) more lines", shown[-3])

    assert len(whole) == count or left_out
    assert left_out is None or int(left_out[1]) >= count - len(whole)


def test_the_headline_says_how_the_task_stands() -> None:
    """Status, plan, tool calls and planner in one sentence. The web UI cuts the last line, whatever it is."""
    shown = details(progress(planner="scripted")).splitlines()

    assert shown[0] == "**Running**. Plan 1, 0 of 2 replans, 0 of 100 tool calls. Planner: scripted."
    assert shown[-2:] == ["", "---"]


def test_a_task_of_turns_says_what_models_used() -> None:
    """The turn for the plan, tokens and money with their limits; the ids of steps say in which turn they came."""
    task = Task(text="a task", strategy="react", limits=Limits(tokens=500_000, usd=2))
    spent = Spent(tool_calls=1, model_calls=2, tokens=48_120, usd=0.314)
    done = [record(step(f"t{turn}.c0", "k"), StepStatus.COMPLETED, result=1) for turn in (1, 2)]
    more = {"turn": 3, "budget": TaskBudget(limits=task.limits, spent=spent), "planner": "openai:x"}
    plans = {"revisions": [Revision(number=1), Revision(number=2)], "faults": [fault("t2.c0", "Taken.")]}
    shown = details(progress(*done, task=task, **more, **plans)).splitlines()

    assert shown[0] == (
        "**Running**. Turn 3, 0 of 20 replans, 1 of 100 tool calls, 48,120 of 500,000 tokens, 0.31 of 2.00 USD. "
        "Planner: openai:x."
    )
    assert shown[2:4] == ["- ✓ **t1.c0** k → 1", "- ✓ **t2.c0** k → 1"]
    assert shown[5].endswith("Taken. → the same call would fail again: the model's next turn, no retry")
