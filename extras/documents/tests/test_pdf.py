"""PDF: its text by pages; and files that are made against their reader cost a bounded time and memory."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from activities.toolbox.pages import Document, Page
from extras.documents.document import MEGABYTES, SECONDS, UnreadableDocument, read_pdf
from extras.documents.tests.pdfs import BOMBS, BROKEN, FLATE, packed, pdf, raw, zeros

ROOT = Path(__file__).parents[3]
PAGES = [f"Page {number} of the book." for number in range(1, 31)]

MEASURE = """
import json, resource, sys, tracemalloc
from pathlib import Path
from extras.documents.document import UnreadableDocument, read_pdf
tracemalloc.start()
for path in sys.argv[1:]:
    with Path(path).open("rb") as file:
        try:
            read_pdf(file, first=1, max_text=2_000_000)
        except UnreadableDocument:
            pass
readers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
print(json.dumps([tracemalloc.get_traced_memory()[1] // 1_000_000, readers]))
"""
"""Prints the most megabytes that the worker allocated, and that the processes which read for it had."""


def read(folder: Path, content: bytes, *, first: int = 1, max_text: int = 2_000_000, **limits: int) -> Document:
    """Write a file and read it."""
    path = folder / "a.pdf"
    path.write_bytes(content)
    with path.open("rb") as file:
        return read_pdf(file, first=first, max_text=max_text, **limits)


def why(folder: Path, content: bytes, **limits: int) -> str:
    """Why a file cannot be read."""
    with pytest.raises(UnreadableDocument) as caught:
        read(folder, content, **limits)
    return str(caught.value)


def test_the_text_comes_by_pages(tmp_path: Path) -> None:
    """Lines and signs are those of the page."""
    document = read(tmp_path, pdf("Caf\u00e9 (new)\nopen \\ daily", "Page two", title="The menu"))

    assert document.title == "The menu"
    assert document.pages == [Page(1, 1, "Caf\u00e9 (new)\nopen \\ daily"), Page(2, 1, "Page two")]


def test_reading_begins_where_it_was_asked_to(tmp_path: Path) -> None:
    """A long file is not read from its beginning each time; a page that is not there has no text."""
    document, beyond = read(tmp_path, pdf(*PAGES), first=12, max_text=60), read(tmp_path, pdf(*PAGES), first=31)

    assert [page.number for page in document.pages] == [12, 13, 14]
    assert (document.last, document.of) == (14, 30)
    assert (list(beyond.pages), beyond.of) == ([], 30)


def test_one_bad_page_does_not_hide_the_others(tmp_path: Path) -> None:
    """It is named, and the others are read."""
    document = read(tmp_path, raw(zeros(1), zeros(50), zeros(1), filters=FLATE))

    assert [page.number for page in document.pages] == [1, 3]
    assert document.notes[0] == "page 2 cannot be read"


@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_read_says_why(tmp_path: Path, kind: str) -> None:
    """Broken and encrypted files are told apart."""
    expected = "it is encrypted" if kind == "encrypted" else "it is no PDF, or a broken one"

    assert why(tmp_path, BROKEN[kind]()) == expected


@pytest.mark.full
@pytest.mark.parametrize("kind", BOMBS)
def test_no_file_takes_long(tmp_path: Path, kind: str) -> None:
    """Whatever a file is made to do to its reader, there is an answer in time."""
    content, began = BOMBS[kind](), time.perf_counter()
    try:
        assert read(tmp_path, content).of < 1_000
    except UnreadableDocument as unreadable:
        assert str(unreadable)

    assert time.perf_counter() - began < 4 * SECONDS + 10


@pytest.mark.full
def test_no_file_eats_the_memory(tmp_path: Path) -> None:
    """The process that reads stays below its limit, and the worker's own hardly grows at all."""
    for number, kind in enumerate(("a stream of half a gigabyte", "a million words")):
        (tmp_path / f"{number}.pdf").write_bytes(BOMBS[kind]())
    command = [sys.executable, "-c", MEASURE, *map(str, tmp_path.glob("*.pdf"))]
    own, readers = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)

    assert own < 10
    assert readers < MEGABYTES


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not hold a limit of memory")
def test_a_reader_that_asks_for_too_much_memory_is_ended(tmp_path: Path) -> None:
    """The limit is the kernel's, not the file's to respect."""
    assert why(tmp_path, BOMBS["a flood of objects"](), megabytes=60) == "it needs too much memory to read"


def test_a_reader_that_never_ends_is_ended(tmp_path: Path) -> None:
    """Time is the kernel's, too: one page cannot hold a worker's thread."""
    content, began = packed(b"BT /F1 9 Tf " + b"(x) Tj " * 1_000_000), time.perf_counter()
    reason = why(tmp_path, content, seconds=1)

    assert reason == "it takes too long to read"
    assert time.perf_counter() - began < 10
