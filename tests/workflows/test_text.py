"""Untrusted text as people see it: nothing in it is invisible, turns the rest around, or reaches a terminal."""

import json
import time
import unicodedata
from typing import Literal
from unicodedata import category

import pytest
from hypothesis import given, strategies as st

from workflows.text import MAX_MARKS, legible, normalized, stream_safe, visible, without_repeats

CONTROLS = "\x00\x07\x08\x1b\x7f\x85\x9b"
DIRECTIONS = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
NO_WIDTH = "\u00ad\u180e\u200b\u200c\u200d\u2060\u2061\u2064\u206f\ufeff\ufff9\U000e0001\U000e0041"
FILLERS = "\u034f\u115f\u1160\u17b4\u2065\u2800\u3164\uffa0\ufe0f\U000e0100"
LINES = "\n\r\t\u2028\u2029"
BLANKS = "\u00a0\u2003\u202f\u3000"
OTHERS = "\ue000\ud800"
INVISIBLE = CONTROLS + DIRECTIONS + NO_WIDTH + FILLERS + LINES + BLANKS + OTHERS


def test_no_invisible_character_is_left() -> None:
    """Each becomes an escape of JSON, so that the value is the same, and a person sees that it is there."""
    shown = {char: visible(f"a{char}b") for char in INVISIBLE}

    assert [ascii(char) for char, text in shown.items() if not text.isascii() or text == "ab" or char in text] == []
    assert [ascii(char) for char, text in shown.items() if json.loads(f'"{text}"') != f"a{char}b"] == []


@given(st.text())
def test_only_what_is_invisible_becomes_an_escape(text: str) -> None:
    """Letters, marks and signs of all languages stay."""
    kept = [char for char in text if category(char)[0] in "LNPS" and visible(char) == char]

    assert not {category(char) for char in visible(text)} & {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    assert [char for char in text if category(char)[0] in "LNPS" and char not in kept] == [
        char for char in text if char in "\u115f\u1160\u2800\u3164\uffa0"
    ]


SPELLINGS = {
    "Persian": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "Hindi": "\u0915\u094d\u200d\u0937",
    "a family": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "a heart": "\u2764\ufe0f",
    "a heart on fire": "\u2764\ufe0f\u200d\U0001f525",
    "a keycap": "1\ufe0f\u20e3",
    "letters and blanks": "Gr\u00f6\u00dfe 5 \u20ac, \u65e5\u672c\u8a9e, \u05e9\u05dc\u05d5\u05dd",
    "a new sign": "\U0001fae9",
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_what_a_language_needs_stays_in_prose_and_is_seen_in_a_value(text: str) -> None:
    """A joiner hides nothing in prose; two values to approve that differ only in a joiner are two, in any language."""
    assert legible(text) == text
    assert (visible(text) == text) is not bool({"\u200c", "\u200d", "\ufe0f"} & set(text))
    assert json.loads(f'"{visible(text)}"') == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("an\u200dn", r"an\u200dn"),
        ("1\ufe0f", r"1\ufe0f"),
        ("\u2764" + "\ufe0f" * 4, "\u2764\ufe0f\ufe0f" + r"\ufe0f" * 2),
        ("\u05e9\u202e\u05dd", "\u05e9" + r"\u202e" + "\u05dd"),
        (" a \n\n b\u00a0c\u2028", "a b c"),
        ("\x1b[31mred\x07", r"\u001b[31mred\u0007"),
    ],
    ids=ascii,
)
def test_elsewhere_it_is_an_escape(text: str, shown: str) -> None:
    """In the middle of a name, or as a message in invisible characters."""
    assert legible(text) == shown


@given(st.text(max_size=200))
def test_text_that_was_shown_once_stays_as_it_is(text: str) -> None:
    """So a text may pass both."""
    assert visible(visible(text)) == visible(text)
    assert legible(visible(text)) == " ".join(visible(text).split())


def longest_row(text: str) -> int:
    """The most characters in a row that normalisation has to sort."""
    longest = row = 0
    for char in unicodedata.normalize("NFKD", text):
        row = row + 1 if unicodedata.combining(char) else 0
        longest = max(longest, row)
    return longest


EVERYTHING = [chr(code) for code in range(0x110000)]
MARKS = [char for char in EVERYTHING if unicodedata.combining(unicodedata.normalize("NFKD", char)[0])]
MOST = 2 * MAX_MARKS + 3
"""A mark may be two when it is decomposed, and the letter before a row may have three of its own."""


def test_no_text_has_a_long_row_of_marks() -> None:
    """Of all characters of Unicode: none makes a row longer, whether it stands alone or repeats."""
    alone = [char for char in EVERYTHING if longest_row(char) > 3]
    repeated = [char for char in MARKS if longest_row(stream_safe(f"\u1f82{char * 99}")) > MOST]

    assert (alone, repeated) == ([], [])
    assert longest_row(stream_safe("".join(MARKS))) <= MOST


@given(st.lists(st.sampled_from([*MARKS, "a", "\u1f82", "\u034f", "\uac00", "\u1100", "\ud800"]), max_size=300))
def test_no_mixed_text_has_a_long_row_of_marks(chars: list[str]) -> None:
    """Whatever stands between the marks; and a second time changes nothing."""
    safe = stream_safe("".join(chars))

    assert longest_row(safe) <= MOST
    assert stream_safe(safe) == safe and safe.replace("\u034f", "") == "".join(chars).replace("\u034f", "")


@given(st.text() | st.text(st.sampled_from([*"ae\u0301\u0316\u0344\u1e69"]), max_size=MAX_MARKS))
def test_the_forms_of_usual_text_are_those_of_unicode(text: str) -> None:
    """No language has more than thirty marks in a row."""
    forms: list[Literal["NFC", "NFKC", "NFD", "NFKD"]] = ["NFC", "NFKC", "NFD", "NFKD"]

    assert [normalized(form, text) for form in forms] == [unicodedata.normalize(form, text) for form in forms]


@pytest.mark.parametrize(
    "text",
    ["a" + "\u0301\u0316" * 500_000, "a" + "\u0301" * 500_000 + "\u0316" * 500_000, "\u0344" * 1_000_000],
    ids=["in turn", "sorted backwards", "two in one"],
)
def test_many_marks_take_little_time(text: str) -> None:
    """A million take less than a second; in quadratic time, they would take an hour."""
    began = time.process_time()
    normalized("NFKC", normalized("NFD", text))

    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("id", "kind", "title", "shown"),
    [
        ("charge", "charge", "charge ann", ("", "ann")),
        ("charge-2", "charge", "Charge: ann", ("", "ann")),
        ("pay", "charge_card", "charge card ann", ("charge_card", "ann")),
        ("pay", "charge_card", "pay ann", ("charge_card", "ann")),
        ("pay", "charge_card", "payment of ann", ("charge_card", "payment of ann")),
        ("price", "get_price", "price of A-17", ("get_price", "price of A-17")),
        ("charge-card", "charge", "ann", ("charge", "ann")),
        ("search", "search", "search", ("", "")),
        ("a", "b", "", ("b", "")),
    ],
)
def test_a_step_is_named_without_repeats(id: str, kind: str, title: str, shown: tuple[str, str]) -> None:
    """Whole words count, `_` and a blank are the same, and so are upper and lower case."""
    assert without_repeats(id, kind, title) == shown
