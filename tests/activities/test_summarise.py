"""`summarise`: sentences of the text itself, always the same ones, in bounded time, without the network."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from activities.errors import Refused
from activities.toolbox.reasoning.summarise import MAX_SENTENCE, MAX_TEXT, LongText, Summary, summarise
from tests.activities.bench import Bench
from workflows.faults.fault import Code

ROOT = Path(__file__).parents[2]
POLICY = (ROOT / "examples" / "documents" / "refund-policy.md").read_text()
ALONE = """
import sys
from pathlib import Path

def refuse(event, _):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request"):
        raise SystemExit(event)

sys.addaudithook(refuse)
from activities.toolbox.reasoning.summarise import LongText, summarise
print(summarise(LongText(text=Path(sys.argv[1]).read_text())).summary)
"""
"""Summarises a file, and ends at the first thing that would use the network."""


def summary(text: str, sentences: int = 3) -> Summary:
    return summarise(LongText(text=text, sentences=sentences))


def test_the_telling_sentences_are_chosen() -> None:
    """Of a policy on refunds, the sentences on refunds are kept and the small print is not."""
    chosen = summary(POLICY).summary

    assert "You get a full refund for any lamp that you send back within 30 days" in chosen
    assert "The refund goes to the card you paid with" in chosen


def test_as_many_sentences_come_back_as_were_asked_for() -> None:
    """In the order of the text, and it is said out of how many."""
    text = " ".join(f"The lamp number {number} is a lamp for the desk." for number in ("one", "two", "three", "four"))
    chosen = summary(text).summary.split(". ")

    assert [(summary(POLICY, count).sentences, summary(POLICY, count).of) for count in (1, 2, 5)] == [
        *((1, 9), (2, 9), (5, 9))
    ]
    assert chosen == sorted(chosen, key=text.index)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One sentence only.", "One sentence only."),
        ("no full stop", "no full stop"),
        ("First. Second!", "First. Second!"),
        ("# Heading\n\nWords below it.", "Words below it."),
        ("# Heading", "# Heading"),
        ("| a | b |\n|---|---|\n\nThe table says it.", "The table says it."),
        ("Code:\n```\nrm -rf /\n```\nDone.", "Code: Done."),
        ("- One thing.\n- Another thing.", "One thing. Another thing."),
        ("It was wrapped\nin the middle. Then it\nended.", "It was wrapped in the middle. Then it ended."),
        ("Again. Again. Again.", "Again."),
        ("Dr. Grey, e.g. of No. 5, costs 2.50. She said \u201cNo.\u201d Then?", None),
    ],
)
def test_a_short_text_is_its_own_summary(text: str, expected: str | None) -> None:
    """Nothing is lost but marks, repetitions and what is no sentence."""
    assert summary(text).summary == (expected or text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Dr. Grey met Mr. J. Brown. They talked.", 2),
        ("It costs 2.50 or 3.75. Pay now.", 2),
        ("Really?! Yes... Good.", 3),
        ("He said \u201cStop.\u201d She went on.", 2),
        ("See www.example.com for more. Thanks.", 2),
        ("Use it, e.g. like this, i.e. so.", 1),
        ("\u8fd9\u662f\u4e00\u3002\u8fd9\u662f\u4e8c\u3002", 2),
    ],
)
def test_sentences_end_where_a_reader_sees_it(text: str, count: int) -> None:
    """A full stop in a number, an abbreviation or an address ends nothing."""
    assert summary(text).of == count


def test_a_text_without_sentences_is_bounded() -> None:
    """A wall of words is broken rather than returned."""
    assert len(summary("word " * 20_000, 3).summary) <= 3 * (MAX_SENTENCE + 1)


def test_nothing_to_summarise_is_refused() -> None:
    """The planner forgot to pass the text on."""
    for text in ("", " ", "\n" * 1000, "\t \u2003"):
        with pytest.raises(Refused) as caught:
            summary(text)
        assert caught.value.fault.code is Code.INVALID_INPUT


@given(text=st.text(max_size=500) | st.lists(st.sampled_from([*"aB.!? \n#|-`\"'", "e.g."]), max_size=200).map("".join))
def test_any_text_is_summarised_with_its_own_words(text: str) -> None:
    """No word comes back that is not in the text."""
    try:
        words = summary(text, 2).summary.split()
    except Refused:
        words = []

    assert all(word.encode(errors="replace") in text.encode(errors="replace") for word in words)


@pytest.mark.full
def test_it_is_the_same_everywhere() -> None:
    """Another process, another hash seed, no network, no home: the same summary."""
    command = [sys.executable, "-W", "error", "-c", ALONE, str(ROOT / "examples" / "documents" / "refund-policy.md")]
    runs = [
        subprocess.run(
            command, cwd=ROOT, env={"PYTHONHASHSEED": seed, "HOME": os.devnull}, capture_output=True, text=True
        )
        for seed in ("1", "2")
    ]

    assert [run.stderr for run in runs] == ["", ""]
    assert [run.stdout.strip() for run in runs] == [summary(POLICY).summary] * 2


LONG = [
    *(
        sign * (MAX_TEXT // len(sign))
        for sign in (".", "a. ", "A. ", ".\"'", "word ", "#\n", "\u8fd9\u662f\u4e00\u3002")
    ),
    "\n" * (MAX_TEXT - 1) + "x",
    " ".join(f"The {number:b} came.".replace("0", "o").replace("1", "i") for number in range(4_000)),
    " ".join(
        "abcdefghij"[number % 10] + "klmnopqrst"[number // 10 % 10] + "uvwxyz"[number % 6] + (number % 9 == 0) * "."
        for number in range(20_000)
    ),
]


@pytest.mark.parametrize("text", LONG, ids=lambda text: repr(text[:12]))
def test_no_text_takes_long(text: str) -> None:
    """The longest text takes seconds, whatever it is made of."""
    began = time.process_time()
    assert summary(text[:MAX_TEXT]).sentences

    assert time.process_time() - began < 15


async def test_a_text_is_only_text(calls: Bench) -> None:
    """What it says is repeated, never done; one that is too long is refused before anything is done with it."""
    text = "'; DROP TABLE notes; -- ../../etc/passwd {{ 7 * 7 }} __import__('os').system('id')"
    back = await calls.call(summarise, text=text)
    fault, _ = await calls.fails(summarise, text="x" * (MAX_TEXT + 1))

    assert back.result == {"summary": text, "sentences": 1, "of": 1}
    assert fault.code is Code.INVALID_INPUT
