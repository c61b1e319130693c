"""`search`: ranked passages with their place; any text is a query; nothing outside the folder is read."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from pydantic import JsonValue

from activities.errors import Refused
from activities.toolbox.injection import Documents
from extras.documents.document import MAX_FILE
from extras.documents.read_document import DocumentName, read_document
from extras.documents.search import Found, Query, search
from extras.documents.tests.pdfs import BROKEN, pdf
from tests.unprivileged import open_folder, unprivileged

SHOP = Documents(Path(__file__).parents[3] / "examples" / "documents")
POLICY = """# Refund policy

Lamps may be sent back.

## Time limit

You have thirty days.
Refunds are paid within a week.

```
# no heading
```
"""
CARE = """<html><head><title>Care of oak</title><style>p {}</style></head><body>
<p>Oak likes <b>no sun</b>.</p><script>varnish()</script><h2>Stains</h2><p>Soap removes stains.</p></body></html>"""


@pytest.fixture
def documents(tmp_path: Path) -> Documents:
    """A folder with a policy, a price list below a folder, and a note."""
    root = tmp_path / "documents"
    (root / "prices").mkdir(parents=True)
    (root / "policy.md").write_text(POLICY)
    (root / "prices" / "list.txt").write_text("Price list\n\nA-17 lamp 24.50\nB-03 lamp 118.00\n")
    (root / "note.md").write_text("Caf\u00e9 Ren\u00e9 opens at nine.\n")
    (root / "care.html").write_text(CARE)
    return Documents(root)


def found(documents: Documents, query: str) -> Found:
    return search(Query(query=query), documents)


def refusal(documents: Documents, query: str) -> Refused:
    with pytest.raises(Refused) as caught:
        found(documents, query)
    return caught.value


def finds_or_no_results(documents: Documents, query: str) -> None:
    """Search for what may stand anywhere or nowhere."""
    try:
        assert found(documents, query).hits
    except Refused as refused:
        assert refused.fault.code == "no_results"


def wider(documents: Documents, query: str) -> JsonValue:
    """The queries that a refusal offers."""
    observed = refusal(documents, query).fault.observed
    assert isinstance(observed, dict)
    return observed["wider"]


@pytest.mark.parametrize(
    ("query", "path", "line", "title"),
    [
        ("thirty days", "policy.md", 7, "Refund policy > Time limit"),
        ("paid week", "policy.md", 8, "Refund policy > Time limit"),
        ("sent back", "policy.md", 3, "Refund policy"),
        ("refund policy", "policy.md", 3, "Refund policy"),
        ("B-03", "prices/list.txt", 4, "Price list"),
        ("opens", "note.md", 1, "note"),
        ("no heading", "policy.md", 11, "Refund policy > Time limit"),
        ("oak sun", "care.html", 1, "Care of oak"),
        ("soap", "care.html", 5, "Stains"),
    ],
)
def test_a_hit_says_where_it_stands(documents: Documents, query: str, path: str, line: int, title: str) -> None:
    """File, line and headings lead a person to the passage."""
    hit = found(documents, query).hits[0]

    assert (hit.path, hit.line, hit.title) == (path, line, title)


def test_a_hit_in_a_pdf_says_its_page(documents: Documents) -> None:
    """Its title is the one that the PDF itself names; a short text has no page to name."""
    handbook = pdf("Handbook\nRead me first.", "Oil the\nhinges weekly.", title="Manual")
    (documents.root / "handbook.pdf").write_bytes(handbook)
    first, second, policy = (found(documents, query).hits[0] for query in ("read first", "hinges weekly", "thirty"))

    assert (second.path, second.line, second.title) == ("handbook.pdf", 2, "Manual")
    assert [hit.page for hit in (first, second, policy)] == [1, 2, None]


def test_the_page_of_a_long_text_is_the_one_that_read_document_counts(documents: Documents) -> None:
    """A hit far down in a long text can be read without all that stands before it."""
    (documents.root / "long.txt").write_text("Diary\n" + "Nothing happened today.\n" * 2_000 + "A zebra came.\n")
    hit = found(documents, "zebra").hits[0]
    page = read_document(DocumentName(name=hit.path, page=hit.page or 0), documents)

    assert "A zebra came." in page.text
    assert hit.line == 2002


FORMS = ["refunds", "REFUND", "the refund", "cafe rene", "Cafe\u0301", "lamp 24.50", "A-17"]


def test_words_are_found_in_other_forms(documents: Documents) -> None:
    """Case, endings, accents and small words do not matter; the text of a hit holds the words."""
    assert [query for query in FORMS if not found(documents, query).hits] == []
    assert "A-17 lamp 24.50" in found(documents, "A-17").hits[0].text
    assert len(search(Query(query="refund", limit=1), documents).hits) == 1


EXAMPLES = {
    "refund policy": "refund-policy.md",
    "the refund policy": "refund-policy.md",
    "terms and conditions": "terms-and-conditions.md",
    "opening hours": "opening-hours.md",
    "gift cards": "gift-cards.txt",
    "A-17": "price-list.txt",
}


def test_the_example_documents_answer_well() -> None:
    """The first hit of an obvious question is the document of that name."""
    assert {query: found(SHOP, query).hits[0].path for query in EXAMPLES} == EXAMPLES


def test_a_new_file_is_found_at_once_and_searching_leaves_nothing_behind(documents: Documents) -> None:
    """The index is never behind the folder, which belongs to the user."""
    (documents.root / "new.txt").write_text("About zebras.")
    before = sorted(documents.root.rglob("*"))

    assert found(documents, "zebra").hits[0].path == "new.txt"
    assert sorted(documents.root.rglob("*")) == before


@pytest.mark.parametrize(
    ("query", "offers"),
    [
        ("refund zeppelin", ["refund"]),
        ("refund week zeppelin", ["refund week", "refund", "week"]),
        ("lamp nine", ["lamp", "nine"]),
        ("refnud policy", ["refund policy", "policy", "refund"]),
        ("zeppelin", []),
        ("varnish", []),  # stands in a script only
        ("\U0001f388", []),
        ("", []),
    ],
)
def test_no_hit_offers_wider_queries_that_have_some(documents: Documents, query: str, offers: list[str]) -> None:
    """What the planner can try next: without the words that stand nowhere, spelt as in the documents, or one by one."""
    assert wider(documents, query) == offers


def test_every_offer_has_hits(documents: Documents, tmp_path: Path) -> None:
    """A replan with an offered query is not refused for the same reason; where nothing is to read, none helps."""
    (empty := tmp_path / "empty").mkdir()
    query = "refund thirty lamp nine zeppelin"
    offered = wider(documents, query)

    assert refusal(documents, query).fault.code == "no_results" and isinstance(offered, list)
    assert all(found(documents, str(query)).hits for query in offered)
    assert "no documents (.txt, .md" in refusal(Documents(empty), "refund").fault.reason


OPERATORS = [
    *("refund AND", "refund OR", "NOT refund", "NEAR(refund)", "refund*", '"refund', "title:refund", "-refund"),
    *("^refund", "refund)", "refund\x00", "refund + {}", "{refund}: refund", "../refund", "file:///refund"),
    *("refund; DROP TABLE passages", "refund' OR '1'='1", "refund' UNION SELECT body FROM passages --"),
    'refund" OR body MATCH "lamp',
]


def test_operators_are_only_words(documents: Documents) -> None:
    """A query is text from the world: whatever it holds is looked for, never obeyed."""
    for query in OPERATORS:
        finds_or_no_results(documents, query)

    assert found(documents, "refund").hits


@given(query=st.text(max_size=300))
def test_any_text_is_a_legal_query(query: str) -> None:
    """Every text gives hits or `no_results`."""
    finds_or_no_results(SHOP, query)


def test_a_link_is_read_unless_it_leads_out_of_the_folder(documents: Documents, tmp_path: Path) -> None:
    """Only the border matters, not that it is a link: nothing beyond it gets into a result."""
    (outside := tmp_path / "outside").mkdir()
    (outside / "secret.md").write_text("swordfish")
    (documents.root / "leak.md").symlink_to(outside / "secret.md")
    (documents.root / "leak").symlink_to(outside)
    (documents.root / "alias.md").symlink_to(documents.root / "note.md")

    assert wider(documents, "swordfish") == []
    assert {hit.path for hit in found(documents, "nine").hits} == {"alias.md", "note.md"}


def test_what_cannot_be_read_is_skipped_and_named(documents: Documents) -> None:
    """It costs itself, and no search of the others; and nobody takes silence for absence."""
    root, why = documents.root, "the worker cannot open it: Too many levels of symbolic links"
    for name, target in (("loop.txt", "loop.txt"), ("one.md", "two.md"), ("two.md", "one.md")):
        (root / name).symlink_to(target)
    (root / "gone.md").symlink_to("nothing.md")
    (root / "around").symlink_to(".")
    os.mkfifo(root / "pipe.md")  # only regular files are opened
    (root / "huge.txt").write_bytes(b"refund " * (MAX_FILE // 7 + 1))
    (root / "locked.pdf").write_bytes(BROKEN["encrypted"]())
    (root / "half.pdf").write_bytes(BROKEN["half a file"]())
    (root / "scan.pdf").write_bytes(pdf("", ""))
    result = found(documents, "nine")

    assert result.hits
    assert sorted(result.skipped) == [
        "half.pdf: it is no PDF, or a broken one",
        "huge.txt: larger than 2,000,000 bytes",
        "locked.pdf: it is encrypted",
        f"loop.txt: {why}",
        f"one.md: {why}",
        "scan.pdf: its pages hold no text, perhaps pictures of it",
        f"two.md: {why}",
    ]


def test_a_folder_and_a_file_of_somebody_else_are_skipped_and_named() -> None:
    """They cost themselves, and no search of the others."""
    with open_folder() as root:
        (root / "a.md").write_text("A refund takes nine days.")
        (root / "closed.md").write_text("nine")
        (root / "inner").mkdir()
        (root / "inner" / "b.md").write_text("nine")
        assert len(found(Documents(root), "nine").hits) == 3
        (root / "closed.md").chmod(0)
        (root / "inner").chmod(0)
        with unprivileged():
            result = found(Documents(root), "nine")
        (root / "inner").chmod(0o755)

    assert [hit.path for hit in result.hits] == ["a.md"]
    assert result.skipped == [
        f"{name}: the worker cannot open it: Permission denied" for name in ("closed.md", "inner")
    ]


def test_bytes_that_are_no_text_are_harmless(documents: Documents) -> None:
    """Broken encodings and control characters are read as far as they go."""
    (documents.root / "odd.md").write_bytes(b"\xef\xbb\xbf# Odd\r\n\r\n\x02walrus\x03\xff \x00here\r\n")

    assert found(documents, "walrus").hits[0].line == 3


@pytest.mark.full
@pytest.mark.parametrize("name", ["odd.md", "odd.txt", "odd.html"])
@pytest.mark.parametrize("text", ["# " * 200_000, "#" * 400_000, "a" * 400_000, "```\n" * 100_000, "- \n" * 150_000])
def test_odd_documents_are_read_quickly(documents: Documents, name: str, text: str) -> None:
    """No document, however it is made, holds up a search."""
    (documents.root / name).write_text(text)
    began = time.process_time()
    found(documents, "refund")

    assert time.process_time() - began < 10
