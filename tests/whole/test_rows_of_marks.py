"""Text of a stranger that is slow to normalise: 64,000 marks behind one letter, or as many backslashes.

What is quadratic holds the interpreter's lock for half a minute or more, and with it each task of the worker.
"""

import time
import unicodedata
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from urllib.error import HTTPError

import pytest

from activities.borders import classify
from activities.errors import Refused
from activities.planning.origins.imitations import imitated
from activities.planning.text_calls import whole_calls
from activities.providers.messages import ToolCall
from activities.toolbox.find_tools import ranked
from activities.toolbox.workspace import Workspace
from examples.desk.near import folded
from extras.documents.document import read
from extras.documents.excerpt import read_from
from tests.activities.situations import KINDS, asked
from tests.activities.test_origins import KINDS as TRACED, traced
from workflows.text import MAX_MARKS

MOST = 64_000
MARKS = MAX_MARKS * "\u0316"
MAX_SECONDS = 4
"""Of the processor: less than 0.3 s is usual, also for a slow and busy machine this is enough."""
ROWS = {
    "in turn": "a" + "\u0301\u0316" * (MOST // 2),
    "sorted backwards": "a" + "\u0301" * (MOST // 2) + "\u0316" * (MOST // 2),
    "backslashes": "\\" * MOST,
}


def _refused(call: Callable[[], object]) -> None:
    with pytest.raises(Refused):
        call()


def _document(text: str, folder: Path) -> None:
    (folder / "notes.txt").write_text(text)
    read(folder / "notes.txt")


PLACES: dict[str, Callable[[str, Path], object]] = {
    "the input of a task, where a value is looked for": lambda text, _: traced(
        "eve", asked("go", untrusted_input=text)
    ),
    "the words of the user": lambda text, _: traced("eve", asked(text)),
    "a value": lambda text, _: traced(text, asked("go", untrusted_input="x")),
    "the input of a task, where a call is looked for": lambda text, _: imitated(
        [ToolCall("c", "send", {"value": text})], (), asked("go", untrusted_input=text), TRACED
    ),
    "a call as text": lambda text, _: whole_calls(f"send({text}=1)", ["send"]),
    "a document": _document,
    "the name of a document": lambda text, folder: _refused(lambda: read_from(folder, text)),
    "the name of a file": lambda text, folder: _refused(lambda: Workspace(folder).write(text, "")),
    "a search for tools": lambda text, _: ranked(KINDS, text, 3),
    "a search for customers": lambda text, _: folded(text),
    "the address of a failed request": lambda text, _: classify(
        HTTPError(f"https://{text}/", 404, "Not Found", Message(), None)
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_long_row_takes_little_time(place: Callable[[str, Path], object], row: str, tmp_path: Path) -> None:
    """The time grows with the length."""
    began = time.process_time()
    place(row, tmp_path)

    assert time.process_time() - began < MAX_SECONDS


def test_a_document_of_any_language_is_shown_as_it_is(tmp_path: Path) -> None:
    """Composed, and with all its marks: thirty in a row are more than any language has."""
    text = f"Ti\u1ebfng, \u0928\u093f, \u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd, \ud55c, z{MARKS}"
    (tmp_path / "notes.txt").write_text(unicodedata.normalize("NFD", text))

    assert read(tmp_path / "notes.txt").pages[0].text == text
