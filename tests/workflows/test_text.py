"""Untrusted text as people see it: nothing in it is invisible, turns the rest around, or reaches a terminal."""

import json
from unicodedata import category

import pytest
from hypothesis import given, strategies as st

from workflows.text import legible, visible

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
def test_what_a_language_needs_stays_in_prose(text: str) -> None:
    """A joiner after a letter of such a script, or after an emoji, hides nothing."""
    assert legible(text) == text


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


@pytest.mark.parametrize("text", [one for name, one in SPELLINGS.items() if {"\u200c", "\u200d", "\ufe0f"} & set(one)])
def test_a_value_to_approve_shows_each_character(text: str) -> None:
    """Two values that differ only in a joiner are two values, in any language."""
    assert visible(text) != text
    assert json.loads(f'"{visible(text)}"') == text


@given(st.text(max_size=200))
def test_text_that_was_shown_once_stays_as_it_is(text: str) -> None:
    """So a text may pass both."""
    assert visible(visible(text)) == visible(text)
    assert legible(visible(text)) == " ".join(visible(text).split())
