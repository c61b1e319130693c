"""`read_document`: the text of any document by pages; a name leads to a document or nowhere."""

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from pydantic import JsonValue

from activities.errors import Refused
from activities.toolbox.injection import Documents
from activities.toolbox.pages import MAX_TEXT, DocumentText
from extras.documents.document import MAX_FILE
from extras.documents.read_document import DocumentName, read_document
from extras.documents.tests.pdfs import BOMBS, BROKEN, packed, pdf
from tests.activities.bench import Bench
from workflows.faults.fault import Code, Fault

EXAMPLES = Documents(Path(__file__).parents[3] / "examples" / "documents")
DIARY = "Diary\n" + "".join(f"Day {day}: nothing happened.\n" for day in range(1, 3001))
BOOK = [f"Page {number}. " + "word " * 1000 for number in range(1, 11)]


@pytest.fixture
def documents(tmp_path: Path) -> Documents:
    """A folder with a document of each kind, and a secret beside the folder."""
    root = tmp_path / "documents"
    (root / "inner").mkdir(parents=True)
    (root / "policy.md").write_text("# Refund policy\n\nThirty days.\n")
    (root / "inner" / "list.txt").write_text("Price list\n\nA-17 24.50\n")
    (root / "care.html").write_text("<title>Care</title><h1>Oak</h1><p>No sun.<script>x()</script>")
    (root / "menu.pdf").write_bytes(pdf("Soup (hot)", "Bread", title="Menu"))
    (root / "Re: offer; DROP TABLE passages.txt").write_text("We accept.")
    (root / "diary.txt").write_text(DIARY)
    (root / "book.pdf").write_bytes(pdf(*BOOK))
    (tmp_path / "secret.txt").write_text("swordfish")
    return Documents(root)


def read(documents: Documents, name: str, page: int = 1) -> DocumentText:
    return read_document(DocumentName(name=name, page=page), documents)


def refusal(documents: Documents, name: str, page: int = 1) -> Fault:
    with pytest.raises(Refused) as caught:
        read(documents, name, page)
    return caught.value.fault


def seen(fault: Fault, key: str) -> JsonValue:
    """One of the things that a refusal observed."""
    assert isinstance(fault.observed, dict)
    return fault.observed[key]


@pytest.mark.parametrize(
    ("name", "title", "text"),
    [
        ("policy.md", "Refund policy", "# Refund policy\n\nThirty days.\n"),
        ("inner/list.txt", "Price list", "Price list\n\nA-17 24.50\n"),
        ("care.html", "Care", "# Oak\n\nNo sun."),
        ("menu.pdf", "Menu", "Soup (hot)\nBread"),
        ("./policy.md", "Refund policy", "# Refund policy\n\nThirty days.\n"),
        ("Re: offer; DROP TABLE passages.txt", "Re: offer; DROP TABLE passages", "We accept."),
    ],
)
def test_a_document_is_read_by_its_name(documents: Documents, name: str, title: str, text: str) -> None:
    """Whatever kind of file it is, title and text come back, and nothing is left out of a short one."""
    found = read(documents, name)

    assert (found.title, found.text.rstrip("\n")) == (title, text.rstrip("\n"))
    assert found.left_out is None


@pytest.mark.parametrize(
    ("name", "count", "whole"),
    [("diary.txt", 11, DIARY), pytest.param("book.pdf", 10, "\n".join(BOOK), marks=pytest.mark.full)],
)
def test_a_long_document_is_read_in_pieces(documents: Documents, name: str, count: int, whole: str) -> None:
    """Each says what is left out and how to get it; following that, everything is read and nothing twice."""
    texts, page, pages = list[str](), 1, 1
    while page <= pages:
        found = read(documents, name, page)
        texts.append(found.text)
        assert (found.first, found.pages, len(found.text) <= MAX_TEXT) == (page, count, True)
        page, pages = found.last + 1, found.pages
        if page <= pages:
            assert found.left_out == f"pages {page} to {count}: call again with page {page}"

    assert "\n".join(texts).split() == whole.split()


def test_a_page_that_is_not_there_is_refused(documents: Documents) -> None:
    """How many there are is what the planner needs."""
    fault = refusal(documents, "menu.pdf", 3)

    assert (fault.code, fault.observed) == (Code.INVALID_INPUT, {"pages": 2})


def test_an_unknown_name_offers_the_nearest_or_what_is_there(documents: Documents) -> None:
    """A replan can mend a name; of a large folder only the first names are told, and how many more there are."""
    for name in ("policy.txt", "Policy.md", "polciy.md", "policy"):
        assert "policy.md" in str(seen(refusal(documents, name), "nearest"))
    for name in ("list.txt", "documents/inner/list.txt"):
        assert "inner/list.txt" in str(seen(refusal(documents, name), "nearest"))
    assert "menu.pdf" in str(seen(refusal(documents, "menus.pdf"), "nearest"))
    assert "menu.pdf" in str(seen(refusal(documents, "zzzzzz"), "there"))
    for number in range(100):
        (documents.root / f"n{number}.txt").touch()
    fault = refusal(documents, "zzzzzz")

    assert (fault.code, seen(fault, "more")) == (Code.NOT_FOUND, 107 - 20)


ELSEWHERE = {
    "above": ["../secret.txt", "inner/../../secret.txt", "..", "inner/..", "..\\secret.txt", "C:\\secret.txt"],
    "the root": ["/etc/passwd", "//etc/passwd", "~/secret.txt"],
    "addresses": ["file:///etc/passwd", "file://secret.txt", "FILE:secret.txt", "http://localhost/secret.txt"],
    "signs": ["policy.md\x00.txt", "\x1b[2J", "x' OR '1'='1", "x; DROP TABLE notes"],
    "links": ["leak.txt", "leak/secret.txt", "leak.md"],
    "no documents": ["key.pem", "key.txt", "pipe.txt"],
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_a_name_that_leads_elsewhere_is_refused(documents: Documents, kind: str) -> None:
    """Nothing outside the folder is read, nor what is no document, and the planner learns what a name looks like."""
    (documents.root / "leak.txt").symlink_to(documents.root.parent / "secret.txt")
    (documents.root / "leak").symlink_to(documents.root.parent)
    (documents.root / "leak.md").symlink_to("/etc/passwd")
    (documents.root / "key.pem").write_text("swordfish")
    (documents.root / "key.txt").symlink_to(documents.root / "key.pem")
    os.mkfifo(documents.root / "pipe.txt")
    codes = {name: refusal(documents, name).code for name in ELSEWHERE[kind]}
    expected = {Code.NOT_FOUND} if kind in ("links", "no documents") else {Code.NOT_FOUND, Code.INVALID_INPUT}

    assert [name for name, code in codes.items() if code not in expected] == []


@given(name=st.text(min_size=1, max_size=60) | st.text("./\\~%e2", min_size=1, max_size=30))
def test_any_other_name_is_refused(name: str) -> None:
    """Every text is a name that is there, or a fault."""
    try:
        assert read(EXAMPLES, name).name in {path.name for path in EXAMPLES.root.iterdir()}
    except Refused as refused:
        assert refused.fault.code in (Code.INVALID_INPUT, Code.NOT_FOUND)


def test_what_cannot_be_read_is_refused_with_why(documents: Documents) -> None:
    """It costs itself: the planner goes on without it, and the others are read."""
    (documents.root / "loop.txt").symlink_to("loop.txt")
    (documents.root / "huge.txt").write_bytes(b"refund " * (MAX_FILE // 7 + 1))
    (documents.root / "locked.pdf").write_bytes(BROKEN["encrypted"]())
    (documents.root / "half.pdf").write_bytes(BROKEN["half a file"]())
    faults = {name: refusal(documents, name) for name in ("locked.pdf", "half.pdf", "huge.txt", "loop.txt")}

    assert read(documents, "policy.md").text
    assert {faults[name].code for name in ("locked.pdf", "half.pdf")} == {Code.REFUSED}
    assert "it is encrypted" in faults["locked.pdf"].reason and "it is no PDF" in faults["half.pdf"].reason
    assert "larger than 2,000,000 bytes" in faults["huge.txt"].reason
    assert "Too many levels of symbolic links" in faults["loop.txt"].reason


@pytest.mark.full
def test_a_bomb_is_refused(documents: Documents) -> None:
    """What unpacks without end is a page that cannot be read."""
    (documents.root / "bomb.pdf").write_bytes(BOMBS["a stream packed twice"]())

    assert "page 1 cannot be read" in refusal(documents, "bomb.pdf").reason


def test_a_page_that_is_too_long_is_cut_and_one_of_pictures_says_so(documents: Documents) -> None:
    """A result is bounded even where a page is not, and an empty text is explained."""
    (documents.root / "long.pdf").write_bytes(packed(b"BT /F1 9 Tf (" + b"word " * 10_000 + b") Tj ET"))
    (documents.root / "scan.pdf").write_bytes(pdf(""))
    found = read(documents, "long.pdf")

    assert len(found.text) == MAX_TEXT
    assert found.left_out == "the rest of page 1, which is too long to be shown"
    assert read(documents, "scan.pdf").left_out == "its pages hold no text, perhaps pictures of it"


async def test_the_boundary_makes_a_fault_of_it(calls: Bench) -> None:
    """A hostile name is replanned."""
    fault, _ = await calls.fails(read_document, name="../secret.txt")

    assert fault.code in (Code.INVALID_INPUT, Code.NOT_FOUND)
