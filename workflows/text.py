"""Texts for people and by people: a file's text, escapes, suggestions for a misspelt name; the normal forms of Unicode.

Used whenever a text is shown, compared or cut.

In untrusted text, characters that nobody sees, or that turn, move or hide others, become escapes: Temporal's web UI, a
terminal and the page obey or hide them. What a person approves is shown with `visible`, in which two different values
never look the same because of such characters. What only informs is shown with `legible`.
"""

import codecs
import difflib
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal
from unicodedata import category

WORDS = "The service's words"
"""What stands before a text that a called system wrote, and that Replan neither believes nor obeys."""
MAX_WORDS = 300
"""The most characters of such a text that are shown."""
INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"})
"""Unicode categories of characters that show nothing, or not the same everywhere: controls, formats such as those of
direction and of width zero, private ones, lone surrogates, line breaks, and all blanks but the usual one."""
FILLERS = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufdd0-\ufdef\ufe00-\ufe0f\uffa0\ufff0-\ufff8\ufffe"
    "\uffff\U000e0000-\U000e0fff"
)
"""Characters of other categories that show nothing either, as a part of a regular expression."""
_JOINING = (
    "\u0600-\u085f\u08a0-\u0fff\u1000-\u109f\u1780-\u18af\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc"
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u27ff\u2900-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
"""Scripts and signs in which a joiner or a variation selector is a matter of spelling, as in Persian or of emoji."""
MAX_MARKS = 30
"""The most marks in a row in a text that is normalised, as in the Stream-Safe Text Format (Unicode Standard Annex #15):
more than any language needs."""
_FIRST_MARK, _JOINER = "\u0300", "\u034f"
"""COMBINING GRAPHEME JOINER: it shows nothing, and marks are not sorted across it."""
_FILLER = re.compile(f"[{FILLERS}]")
_UNUSUAL = re.compile("[^ -~]")
_SPELLING = rf"(?<=[{_JOINING}])[\u200c\u200d\ufe0e\ufe0f]{{1,2}}|(?<=[0-9#*])\ufe0f(?=\u20e3)"
_UNUSUAL_OR_SPELLING = re.compile(f"(?P<spelling>{_SPELLING})|{_UNUSUAL.pattern}")


NOT_TEXT = "it is neither UTF-8 nor UTF-16 with a byte order mark"
"""Why a file is no text for `decode_text`."""
_OF_MARK = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is its beginning
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def decode_text(content: bytes, errors: str = "strict") -> str:
    """The text of a file that a person wrote, with each line end as `\\n`; the locale does not matter.

    It is UTF-8, or UTF-16 or UTF-32 with a byte order mark (PowerShell's `>` writes UTF-16); the mark is left out.
    Raises UnicodeDecodeError, which is a ValueError, for other bytes; `errors="replace"` replaces them.
    """
    encoding = next((name for mark, name in _OF_MARK.items() if content.startswith(mark)), "utf-8-sig")
    return content.decode(encoding, errors).replace("\r\n", "\n").replace("\r", "\n")


def capitalised(text: str) -> str:
    """The text with its first character in upper case; the other characters stay as they are."""
    return text[:1].upper() + text[1:]


def few(names: Sequence[str], most: int, between: str = ", ") -> str:
    """The first `most` names or clauses, and how many more there are: `a, b and 3 more`, or `a; b; and 3 more`."""
    before = " " if between == ", " else between
    return between.join(names[:most]) + (f"{before}and {len(names) - most} more" if len(names) > most else "")


def without_repeats(id: str, kind: str, title: str) -> tuple[str, str]:
    """The kind and the title of a step as they follow its id on a screen, without words that stand before them.

    The kind is empty if the id already is the kind, or the kind and a number, such as `charge-2`. The title loses the
    kind, or else the id, at its beginning; but `price of A-17` stays whole after the id `price`.
    """
    shown = "" if re.fullmatch(rf"{re.escape(kind)}(-\d+)?", id) else kind
    for name in (kind, id):
        begin, rest = title[: len(name)], title[len(name) :]
        is_phrase = name != kind and rest.startswith(" of ")
        if name and not is_phrase and _spaced(begin) == _spaced(name) and (not rest or rest[0] in " :,"):
            return shown, rest.lstrip(" :,")
    return shown, title


def _spaced(name: str) -> str:
    return name.casefold().replace("_", " ")


def shorten(text: str, width: int) -> str:
    """The text, cut to `width` characters with an ellipsis at its end."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def visible(text: str, kept: str = "") -> str:
    """The text with an escape as in JSON for each invisible character; characters in `kept` are not escaped.

    Invisible characters that a language needs are escaped, too: a value with such a character and a value without it
    must not look the same.
    """
    return _UNUSUAL.sub(lambda found: found[0] if found[0] in kept else _escaped_if_invisible(found[0]), text)


def legible(text: str, most: int | None = None) -> str:
    """The text on one line, with the escapes of `visible`, except for invisible characters that a language needs.

    Only the first `most` characters of a longer text are read (None for all): each character that is not ASCII takes a
    microsecond, and a result may have a million.
    """
    line = " ".join(text.split())[:most]
    return _UNUSUAL_OR_SPELLING.sub(lambda found: found["spelling"] or _escaped_if_invisible(found[0]), line)


def _escaped_if_invisible(char: str) -> str:
    if category(char) not in INVISIBLE and not _FILLER.fullmatch(char):
        return char
    return json.dumps(char)[1:-1] if char != "\x7f" else r"\u007f"  # JSON does not escape DEL


def service_words(words: str) -> str:
    """What a called system wrote, marked as its words and in quotes, on one line and cut; empty for no words."""
    quoted = shorten(legible(words, MAX_WORDS + 1), MAX_WORDS).replace('"', "'")
    return f'{WORDS}: "{quoted}"' if words else ""


def nearest(name: str, among: Iterable[str]) -> str:
    """The clause ": did you mean A or B?" with up to three names that are similar to `name`; empty if no name is.

    Two names are similar if they are spelt alike, or if one has all words of the other: `get_price` and `price`.
    """
    pieces, names = set(name.split("_")), sorted(among)
    parts = [similar for similar in names if pieces <= set(similar.split("_")) or pieces >= set(similar.split("_"))]
    found = list(dict.fromkeys([*difflib.get_close_matches(name, names), *parts]))[:3]
    return f": did you mean {' or '.join(found)}?" if found else ""


def normalized(form: Literal["NFC", "NFKC", "NFD", "NFKD"], text: str) -> str:
    """The text in a normal form of Unicode, in a time that grows with its length; see `stream_safe`.

    The form of a character that an older version of Python does not know may differ, so no workflow decides by it, but
    for whether two names are one person's.
    """
    return unicodedata.normalize(form, stream_safe(text))


def stream_safe(text: str) -> str:
    """The text with an invisible joiner after each MAX_MARKS marks in a row; almost every text is returned as it is.

    Python sorts the marks behind a letter when it normalises a text, a URL or an identifier. It needs quadratic time,
    and holds the interpreter's lock: 64,000 marks behind one letter stop a worker for seconds.
    """
    if text.isascii():
        return text
    marks = "".join(sorted(char for char in set(text) if char >= _FIRST_MARK and _is_mark(char)))
    if not marks:
        return text
    return re.sub(f"[{marks}]{{{MAX_MARKS}}}(?=[{marks}])", rf"\g<0>{_JOINER}", text)


def _is_mark(char: str) -> bool:
    """Whether normalisation sorts a character among marks: it is one, or begins with one when it is decomposed."""
    return unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) > 0
