"""`read_document`: the text of any document by pages; a name leads to a document or nowhere."""

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from pydantic import JsonValue

from activities.errors import Refused
from activities.toolbox.documents.document import MAX_FILE
from activities.toolbox.documents.excerpt import MAX_TEXT, DocumentText
from activities.toolbox.documents.read_document import DocumentName, read_document
from activities.toolbox.documents.search import Query, search
from activities.toolbox.injection import Documents
from tests.activities.bench import Bench
from tests.activities.pdfs import BOMBS, BROKEN, packed, pdf
from tests.gate import sampled
from workflows.faults.fault import Code, Fault

EXAMPLES = Documents(Path(__file__).parents[2] / "examples" / "documents")
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
    """Read."""
    return read_document(DocumentName(name=name, page=page), documents)


def refusal(documents: Documents, name: str, page: int = 1) -> Fault:
    """Why nothing was read."""
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


def test_what_search_names_can_be_read(documents: Documents) -> None:
    """The path of a hit is the name of a document."""
    hit = search(Query(query="thirty days"), documents).hits[0]

    assert "Thirty days." in read(documents, hit.path).text


@pytest.mark.parametrize(("name", "pages"), [("diary.txt", 11), ("book.pdf", 10)])
def test_a_long_document_is_read_in_pieces(documents: Documents, name: str, pages: int) -> None:
    """One call returns a bounded text and says what is left out and how to get it."""
    found = read(documents, name)

    assert len(found.text) <= MAX_TEXT
    assert (found.first, found.pages) == (1, pages)
    assert found.left_out == f"pages {found.last + 1} to {pages}: call again with page {found.last + 1}"


@pytest.mark.parametrize(
    ("name", "whole"),
    [("diary.txt", DIARY), pytest.param("book.pdf", "\n".join(BOOK), marks=pytest.mark.full)],
)
def test_the_pieces_make_the_whole(documents: Documents, name: str, whole: str) -> None:
    """Following what `left_out` says, everything is read and nothing twice."""
    texts, page, pages = list[str](), 1, 1
    while page <= pages:
        found = read(documents, name, page)
        texts.append(found.text)
        page, pages = found.last + 1, found.pages

    assert "\n".join(texts).split() == whole.split()


def test_a_page_that_is_not_there_is_refused(documents: Documents) -> None:
    """How many there are is what the planner needs."""
    fault = refusal(documents, "menu.pdf", 3)

    assert (fault.code, seen(fault, "pages")) == (Code.INVALID_INPUT, 2)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("policy.txt", "policy.md"),
        ("Policy.md", "policy.md"),
        ("polciy.md", "policy.md"),
        ("policy", "policy.md"),
        ("list.txt", "inner/list.txt"),
        ("documents/inner/list.txt", "inner/list.txt"),
        ("menus.pdf", "menu.pdf"),
    ],
)
def test_an_unknown_name_offers_the_nearest(documents: Documents, name: str, nearest: str) -> None:
    """A replan can mend a name."""
    fault = refusal(documents, name)

    assert fault.code is Code.NOT_FOUND
    assert nearest in str(seen(fault, "nearest"))


def test_an_unknown_name_offers_what_is_there(documents: Documents) -> None:
    """When no name is near, the names of all that there is help."""
    assert "menu.pdf" in str(seen(refusal(documents, "zzzzzz"), "there"))


def test_a_large_folder_does_not_flood_the_planner(documents: Documents) -> None:
    """Only the first names are told, and how many more there are."""
    for number in range(100):
        (documents.root / f"n{number}.txt").touch()
    fault = refusal(documents, "zzzzzz")

    assert seen(fault, "more") == 107 - 20


@pytest.mark.parametrize(
    "name",
    [
        "../secret.txt",
        "inner/../../secret.txt",
        "..",
        "inner/..",
        "/etc/passwd",
        "//etc/passwd",
        "~/secret.txt",
        "file:///etc/passwd",
        "file://secret.txt",
        "FILE:secret.txt",
        "http://localhost/secret.txt",
        "C:\\secret.txt",
        "..\\secret.txt",
        "policy.md\x00.txt",
        "\x1b[2J",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(documents: Documents, name: str) -> None:
    """Nothing outside the folder is read, and the planner learns what a name looks like."""
    assert refusal(documents, name).code in (Code.INVALID_INPUT, Code.NOT_FOUND)


@given(name=st.text(min_size=1, max_size=60) | st.text("./\\~%e2", min_size=1, max_size=30))
def test_any_other_name_is_refused(name: str) -> None:
    """Every text is a name that is there, or a fault."""
    try:
        assert read(EXAMPLES, name).name in {path.name for path in EXAMPLES.root.iterdir()}
    except Refused as refused:
        assert refused.fault.code in (Code.INVALID_INPUT, Code.NOT_FOUND)


@pytest.mark.parametrize("name", ["leak.txt", "leak/secret.txt", "leak.md"])
def test_a_link_that_leads_out_is_not_followed(documents: Documents, name: str) -> None:
    """The folder is a border for links, too."""
    (documents.root / "leak.txt").symlink_to(documents.root.parent / "secret.txt")
    (documents.root / "leak").symlink_to(documents.root.parent)
    (documents.root / "leak.md").symlink_to("/etc/passwd")

    assert refusal(documents, name).code is Code.NOT_FOUND


def test_a_file_that_is_no_document_is_not_read(documents: Documents) -> None:
    """Only the kinds of files that search reads, also through a link."""
    (documents.root / "key.pem").write_text("swordfish")
    (documents.root / "key.txt").symlink_to(documents.root / "key.pem")

    assert {refusal(documents, name).code for name in ("key.pem", "key.txt")} == {Code.NOT_FOUND}


def test_a_link_to_itself_costs_itself(documents: Documents) -> None:
    """The others are read, and it is refused with the reason."""
    (documents.root / "loop.txt").symlink_to("loop.txt")

    assert read(documents, "policy.md").text
    assert "Too many levels of symbolic links" in refusal(documents, "loop.txt").reason


def test_a_pipe_does_not_hang(documents: Documents) -> None:
    """Only regular files are documents."""
    os.mkfifo(documents.root / "pipe.txt")

    assert refusal(documents, "pipe.txt").code is Code.NOT_FOUND


@pytest.mark.parametrize("kind", sampled({kind: [kind] for kind in BROKEN}, "encrypted", "half a file"))
def test_a_pdf_that_cannot_be_read_is_refused(documents: Documents, kind: str) -> None:
    """The planner is told why, and goes on without it."""
    (documents.root / "bad.pdf").write_bytes(BROKEN[kind]())
    fault = refusal(documents, "bad.pdf")

    assert fault.code is Code.REFUSED
    assert ("it is encrypted" if kind == "encrypted" else "it is no PDF") in fault.reason


@pytest.mark.full
def test_a_bomb_is_refused(documents: Documents) -> None:
    """What unpacks without end is a page that cannot be read."""
    (documents.root / "bomb.pdf").write_bytes(BOMBS["a stream packed twice"]())

    assert "page 1 cannot be read" in refusal(documents, "bomb.pdf").reason


def test_a_file_that_is_too_large_is_refused(documents: Documents) -> None:
    """Nobody reads two megabytes of text by pages."""
    (documents.root / "huge.txt").write_bytes(b"refund " * (MAX_FILE // 7 + 1))

    assert "larger than 2,000,000 bytes" in refusal(documents, "huge.txt").reason


def test_a_page_that_is_too_long_is_cut(documents: Documents) -> None:
    """A result is bounded even where a page is not."""
    (documents.root / "long.pdf").write_bytes(packed(b"BT /F1 9 Tf (" + b"word " * 10_000 + b") Tj ET"))
    found = read(documents, "long.pdf")

    assert len(found.text) == MAX_TEXT
    assert found.left_out == "the rest of page 1, which is too long to be shown"


def test_a_pdf_of_pictures_says_so(documents: Documents) -> None:
    """An empty text is explained."""
    (documents.root / "scan.pdf").write_bytes(pdf(""))

    assert read(documents, "scan.pdf").left_out == "its pages hold no text, perhaps pictures of it"


@pytest.mark.parametrize("name", ["../secret.txt", "x' OR '1'='1", "x; DROP TABLE notes", "file:///etc/passwd"])
async def test_the_boundary_makes_a_fault_of_it(calls: Bench, name: str) -> None:
    """A hostile name is replanned, and the store is untouched."""
    fault, _ = await calls.fails(read_document, name=name)

    assert fault.code in (Code.INVALID_INPUT, Code.NOT_FOUND)
    assert await calls.rows("SELECT count(*) FROM notes") == [0]
