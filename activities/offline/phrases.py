"""Writes the result of a completed step of a built-in kind as one sentence; other tools bring a `sentence=`.

`{"expression": "1 + 1", "value": 2}` of `calculate` becomes "1 + 1 = 2.".
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from pydantic import BaseModel, JsonValue

from activities.toolbox.documents.excerpt import DocumentText
from activities.toolbox.documents.search import Found
from activities.toolbox.expressions.calculate import Calculation, plain
from activities.toolbox.http.fetch_page import WebPage
from activities.toolbox.reasoning.compose import Composition
from activities.toolbox.reasoning.summarise import Summary
from activities.toolbox.workspace import Written

MAX_TEXT = 400  # characters of a text that a sentence shows

Result = TypeVar("Result", bound=BaseModel)
Phrase = Callable[[JsonValue], str]


def _phrase(model: type[Result], write: Callable[[Result], str]) -> Phrase:
    return lambda result: write(model.model_validate(result))


def _hits(found: Found) -> str:
    if not found.hits:
        return f"Nothing was found for {found.query}."
    best = found.hits[0]
    page = f" page {best.page}," if best.page else ""
    return f"{best.title}: {best.text} ({best.path},{page} line {best.line})"


def _short(text: str) -> str:
    line = " ".join(text[: 2 * MAX_TEXT].split())
    return line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT].rsplit(' ', 1)[0]} …"


_SUMMARY = _phrase(Summary, lambda result: f"In short: {result.summary}")
PHRASES: Mapping[str, Phrase] = {
    "search": _phrase(Found, _hits),
    "calculate": _phrase(Calculation, lambda result: f"{result.expression} = {plain(result.value)}."),
    "read_document": _phrase(
        DocumentText, lambda text: f"{text.title or text.name}: {_short(text.text)} ({text.name})"
    ),
    "fetch_page": _phrase(WebPage, lambda page: f"{page.title or 'The page says'}: {_short(page.text)} ({page.url})"),
    "summarise": _SUMMARY,
    "key_sentences": _SUMMARY,
    "compose": _phrase(Composition, lambda result: result.text),
    "write_file": _phrase(Written, lambda file: f"Saved {file.path} ({file.bytes:,} bytes)."),
}
"""For each kind, the function that makes the sentence from the result.

It raises ValidationError if the result does not fit the kind's model in this file.
"""
