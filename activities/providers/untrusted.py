"""Text from the world on its way to a model: labelled, without invisible characters, and cut with the cut announced.

It stands as JSON between marks, and nothing in it looks like a mark: what opens one is written as `\\u003c`, which is
the same string to whoever reads it as JSON. That also takes the marks of chat templates apart (`<|im_start|>`), which
some servers would read as such wherever they stand.
"""

import re
import unicodedata
from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import to_json

from workflows.situation import MAX_SHOWN

__all__ = ["MAX_LABEL", "MAX_SHOWN", "fenced", "visible"]

MAX_LABEL = 80
KEPT = "\n\t"
HIDDEN = ("Cc", "Cf", "Cs", "Co")
"""Categories of characters that nobody sees, or that turn or hide what follows."""
_ALSO_HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufdd0-\ufdef\ufe00-\ufe0f\uffa0\ufff0-\ufff8\ufffe\uffff\U000e0000-\U000e0fff]"
)
"""Fillers and selectors that show nothing and are of other categories; hidden texts are written in them."""
_LINES = str.maketrans({"\u0085": "\n", "\u2028": "\n", "\u2029": "\n"})
_OPENING = re.compile("[<\u02c2\u1438\u2039\u276e\u2770\u27e8\u29fc\u3008\ufe64\uff1c]")
"""What opens a mark, or looks as if it did."""
_NO_NAME = re.compile(r"[^\w.:-]", re.ASCII)


def fenced(label: str, value: JsonValue, limit: int = MAX_SHOWN) -> str:
    """A value between marks that it cannot close or open itself."""
    text = to_json(_visible(value), inf_nan_mode="null").decode(errors="replace")
    inside = _OPENING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    cut = f"\n(cut: the first {limit} of {len(inside)} characters)" if len(inside) > limit else ""
    return f'<data from="{_NO_NAME.sub("_", label)[:MAX_LABEL]}">\n{inside[:limit]}{cut}\n</data>'


def visible(text: str) -> str:
    """The text without characters that nobody sees: controls, fillers, and those that turn or hide what follows."""
    shown = (one for one in text.translate(_LINES) if one in KEPT or unicodedata.category(one) not in HIDDEN)
    return _ALSO_HIDDEN.sub("", "".join(shown))


def _visible(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return _with_visible_keys(value)
    if isinstance(value, list):
        return [_visible(item) for item in value]
    return value


def _with_visible_keys(value: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """No value is lost where two keys differ only in what nobody sees."""
    shown = dict[str, JsonValue]()
    for key, item in value.items():
        name, number = visible(key), 2
        while name in shown:
            name, number = f"{visible(key)} ({number})", number + 1
        shown[name] = _visible(item)
    return shown
