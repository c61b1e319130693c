"""Text from the world on its way to a model: labelled, without invisible characters, and cut with the cut announced."""

import unicodedata

from pydantic import JsonValue
from pydantic_core import to_json

MAX_SHOWN = 8_000
"""Characters of one result that a model is shown."""
KEPT = "\n\t"


def fenced(label: str, value: JsonValue, limit: int = MAX_SHOWN) -> str:
    """A value between marks that it cannot close itself."""
    text = to_json(_visible(value), inf_nan_mode="null").decode(errors="replace")
    cut = f"\n(cut: the first {limit} of {len(text)} characters)" if len(text) > limit else ""
    inside = text[:limit].replace("</", "<\\/")  # the same string to whoever reads it as JSON
    return f'<data from="{label}">\n{inside}{cut}\n</data>'


def visible(text: str) -> str:
    """The text without characters that nobody sees: controls, and those that turn or hide what follows."""
    return "".join(one for one in text if one in KEPT or unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co"))


def _visible(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key): _visible(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_visible(item) for item in value]
    return value
