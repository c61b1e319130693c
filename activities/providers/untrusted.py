"""Untrusted content on its way to a model: labelled, without hidden characters, and with a note if it is cut.

The content becomes JSON between two marks, `<data from="...">` and `</data>`, and nothing in it looks like a mark: each
character that could begin a mark is escaped as `\\u003c`, which is the same string in JSON. This also breaks the
marks of chat templates (`<|im_start|>`), which some servers would obey anywhere.
"""

import re
import unicodedata
from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import to_json

from workflows.planning.situation import MAX_SHOWN
from workflows.text import FILLERS

MAX_LABEL = 80
VISIBLE_CONTROLS = "\n\t"
HIDDEN = ("Cc", "Cf", "Cs", "Co")
"""Unicode categories of characters that are invisible, or that reverse or hide what follows."""
_ALSO_HIDDEN = re.compile(f"[{FILLERS}]")
"""Finds characters that show nothing, so that a text can be hidden in them."""
_LINES = str.maketrans({"\u0085": "\n", "\u2028": "\n", "\u2029": "\n"})
_OPENING = re.compile("[<\u02c2\u1438\u2039\u276e\u2770\u27e8\u29fc\u3008\ufe64\uff1c]")
"""`<` and the characters that look like it."""
_NOT_IN_LABEL = re.compile(r"[^\w.:-]", re.ASCII)


def fenced(label: str, value: JsonValue, limit: int = MAX_SHOWN) -> str:
    """A value as JSON, at most `limit` characters, between marks that nothing inside can open or close."""
    text = to_json(cleaned(value), inf_nan_mode="null").decode(errors="replace")
    # A JSON escape is the same string for the model, but no mark for the server's chat template.
    inside = _OPENING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    cut = f"\n(cut: the first {limit} of {len(inside)} characters)" if len(inside) > limit else ""
    return f'<data from="{_NOT_IN_LABEL.sub("_", label)[:MAX_LABEL]}">\n{inside[:limit]}{cut}\n</data>'


def remove_hidden(text: str) -> str:
    """The text without characters that are invisible, or that reverse or hide the text after them."""
    kept = (
        character
        for character in text.translate(_LINES)
        if character in VISIBLE_CONTROLS or unicodedata.category(character) not in HIDDEN
    )
    return _ALSO_HIDDEN.sub("", "".join(kept))


def cleaned(value: JsonValue) -> JsonValue:
    """A value of JSON whose texts and keys have no hidden characters."""
    if isinstance(value, str):
        return remove_hidden(value)
    if isinstance(value, dict):
        return _cleaned_object(value)
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    return value


def _cleaned_object(value: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    # Two keys may differ only in hidden characters: the second gets a number, so no value is lost.
    found = dict[str, JsonValue]()
    for key, item in value.items():
        name, number = remove_hidden(key), 2
        while name in found:
            name, number = f"{remove_hidden(key)} ({number})", number + 1
        found[name] = cleaned(item)
    return found
