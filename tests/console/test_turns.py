"""A conversation as lines: who said what at a glance, foreign text harmless and folded, everything with --full."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from console.commands import transcript
from workflows.inquiries import CallCard, ResultCard, TurnCard

AT = datetime(2026, 11, 21, 12, 4, 11, tzinfo=UTC)
NAMES = {"run-1": "book-a-slot", "run-2": "go-on"}
LONG = "word " * 400


def card(turn: int = 1, **more: Any) -> TurnCard:
    """A turn of the first task."""
    return TurnCard.model_validate({"turn": turn, "task": "run-1", "planner": "openai:x", "at": AT, **more})


def call(id: str, name: str, **args: Any) -> CallCard:
    """A call that a model made."""
    return CallCard(id=id, name=name, args=args)


def lines(*cards: TurnCard, full: bool = False) -> list[str]:
    """The lines of these turns."""
    return list(transcript.turn_lines(cards, NAMES, full=full))


def test_a_turn_says_who_said_what() -> None:
    """What the model was told, what it said, what it called, and what became of that, each by a sign and a word."""
    asked = card(
        told="The task:\nbook", said="At once.", calls=(call("c1", "book_slot", at="14:00", seats=2),), tokens=9
    )
    refused = card(
        2, results=(ResultCard(call_id="c1", text="It is taken.", is_error=True),), at=AT + timedelta(hours=1)
    )
    done = card(3, results=(ResultCard(call_id="c1", text="It is booked."),), at=AT + timedelta(days=1))

    assert lines(asked, refused, done) == [
        "Turn 1  openai:x  2026-11-21 12:04:11Z  9 tokens",
        "  > told",
        "      The task:",
        "      book",
        "  < said",
        "      At once.",
        "  → book_slot",
        "      at=14:00, seats=2",
        "Turn 2  openai:x  13:04:11Z",
        "  ✗ book_slot failed",
        "      It is taken.",
        "Turn 3  openai:x  2026-11-22 12:04:11Z",
        "  ← book_slot",
        "      It is booked.",
    ]


def test_calls_of_one_kind_are_told_apart() -> None:
    """By the provider's id, which the results have too; a provider that uses its ids again means the newest."""
    two = card(calls=(call("c1", "get_price", sku="A"), call("c2", "get_price", sku="B")))
    results = ResultCard(call_id="c2", text="9"), ResultCard(call_id="c1", text="8")
    back, again = card(2, results=results, calls=two.calls[:1]), card(3, results=results[1:])

    assert [line.strip() for line in lines(two, back, again) if "get_price" in line] == [
        *("→ get_price  c1", "→ get_price  c2"),
        *("← get_price  c2", "← get_price  c1", "→ get_price"),
        "← get_price",
    ]


def test_a_plan_is_a_line_for_each_step() -> None:
    """Its id, its kind, its arguments, what it needs."""
    steps = [
        {"id": "price", "kind": "get_price", "args": {"sku": "A-17"}},
        {"id": "sum", "kind": "calculate", "args": {"expression": {"$from": "price"}}, "needs": ["price"]},
    ]

    assert lines(card(calls=(call("c1", "propose_plan", because="It is cheap. " * 9, steps=steps),)))[2:] == [
        "      because=" + ("It is cheap. " * 9).strip(),
        "      steps:",
        "        price  get_price sku=A-17",
        '        sum  calculate expression={"$from":"price"}, needs=["price"]',
    ]


def test_long_text_is_folded_and_says_how_much_there_is() -> None:
    """By characters and by lines; `--full` shows all of it."""
    long = card(results=(ResultCard(call_id="c1", text=LONG),), told="\n".join(map(str, range(20))))
    folded, full = lines(long), lines(long, full=True)

    assert [line for line in folded if "…" in line] == [
        "      … 1,400 more characters of 2,000: --full",
        "      … 34 more characters of 49: --full",
    ]
    assert f"      {LONG}".rstrip() in full and "      19" in full


def test_the_marks_around_foreign_text_are_shown_with_full_only() -> None:
    """They are for the model."""
    told = card(told='Its result:\n<data from="page">\n"<data from=x>"\n</data>\nSeen <data from="args">\n1\n</data>:')

    assert lines(told)[2:] == ["      Its result:", '      "<data from=x>"', "      Seen 1:"]
    assert '      <data from="page">' in lines(told, full=True) and "      </data>:" in lines(told, full=True)


@pytest.mark.parametrize("field", ["told", "said", "planner", "result", "args", "name", "id", "rejected"])
def test_foreign_text_cannot_draw_on_the_terminal(field: str) -> None:
    """Whoever wrote it: no colour, no bell, no cursor; and no line of it looks like one of ours."""
    evil = "a\x1b[31m\x07\r\n  < said\n\x9b2J\u202eb"
    given: dict[str, Any] = {
        "result": {"results": (ResultCard(call_id="c1", text=evil),)},
        "args": {"calls": (call("c1", "k", x=evil),)},
        "name": {"calls": (call("c1", evil),)},
        "id": {"results": (ResultCard(call_id=evil, text="x"),)},
        "rejected": {"rejected": (evil,)},
    }
    shown = lines(card(**given.get(field, {field: evil})), full=True)

    assert all(line.isprintable() for line in shown)
    assert field == "said" or "  < said" not in shown


SHOWN: dict[str, tuple[list[TurnCard], list[str]]] = {
    "what could not be used": (
        [card(said="I would", stop="cut", rejected=("it was cut off",)), card(2, told="x", stop="refused")],
        [
            *("  < said", "      I would", "  ✗ cut off at its limit, so nothing of it was used"),
            *("  ✗ could not be used", "      it was cut off"),
            *("Turn 2  openai:x  12:04:11Z", "  > told", "      x", "  ✗ declined to answer"),
        ],
    ),
    "another branch, where it begins": (
        [card(said="x"), card(2, branch=1, said="y"), card(3, branch=1, said="z")],
        [
            *("  < said", "      x", "Turn 2, branch 1, after a reset  openai:x  12:04:11Z", "  < said", "      y"),
            *("Turn 3, branch 1  openai:x  12:04:11Z", "  < said", "      z"),
        ],
    ),
    "a summary": (
        [card(said="x"), card(41, upto=40, told="Told: much", said="It is 441.")],
        [
            *("  < said", "      x", "Summary of the oldest 40 turns  openai:x  12:04:11Z"),
            *("  > asked to summarise", "      Told: much", "  ≡ in their place", "      It is 441."),
        ],
    ),
    "the turns of an earlier task": (
        [card(said="x"), card(task="run-2", said="y")],
        ["  < said", "      x", "Continued by go-on", "Turn 1  openai:x  12:04:11Z", "  < said", "      y"],
    ),
    "no model, but a plan by hand": ([card()], ["  · no model was asked"]),
}


@pytest.mark.parametrize(("cards", "said"), SHOWN.values(), ids=SHOWN)
def test_what_is_special_about_a_turn_is_shown(cards: list[TurnCard], said: list[str]) -> None:
    """Why a reply could not be used; how many turns a summary stands for; who carried turns on."""
    assert lines(*cards)[1:] == said
    assert transcript.is_conversation(cards) == (len(cards) > 1)


def test_the_tally_counts_summaries_apart() -> None:
    """They are no turns, and cost tokens, too."""
    assert transcript.tally([card(tokens=1000), card(2, tokens=1), card(3, upto=1, tokens=3)]) == (
        "2 turns, 1 summary, 1,004 tokens"
    )
