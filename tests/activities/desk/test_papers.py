"""The documents that are kept as rows: listed, deleted once, and known to be gone."""

from pathlib import Path

import pytest

from examples.desk.papers import (
    Delete,
    DocumentName,
    DocumentsOf,
    Paper,
    delete_document,
    list_documents,
    missing,
    read_document,
    read_row,
)
from replan import Documents, DocumentText, Refused
from tests.activities.desk.front import Desk
from tests.gate import needs_extra

EXAMPLES = Path(__file__).parents[3] / "examples" / "documents"


async def read(desk: Desk, name: str, folder: Path | None = EXAMPLES, page: int = 1) -> DocumentText:
    """The kind `read_document` of the desk, with a folder of documents or without."""
    async with desk.engine.begin() as tx:
        return await read_document(DocumentName(name=name, page=page), tx, Documents(folder))


async def refusal(desk: Desk, name: str, folder: Path | None = EXAMPLES) -> Refused:
    with pytest.raises(Refused) as caught:
        await read(desk, name, folder)
    return caught.value


async def names(desk: Desk, query: str = "") -> list[str]:
    return [document.name for document in (await desk.do(list_documents, DocumentsOf(query=query))).documents]


@needs_extra("documents")
async def test_a_document_is_listed_and_read_by_name_from_rows_and_files(desk: Desk) -> None:
    """A name that no row has is looked for in the task's folder; a worker without --documents still reads its rows."""
    listed = await names(desk)
    text = await read(desk, " returns-checklist ")

    assert (len(listed), listed) == (34, sorted(listed))
    for query in ("returns", "RETURNS: c", "urns-c"):
        assert "returns-checklist" in await names(desk, query), query
    assert await names(desk, "no such thing") == []
    assert (text.name, text.title, text.pages, text.left_out) == ("returns-checklist", "Returns: checklist", 1, None)
    assert text.text.startswith("# Returns: checklist")
    assert await read(desk, "returns-checklist", None) == text
    assert (await read(desk, "refund-policy.md")).title == "Refund policy"


async def test_who_reads_a_row_can_tell_gone_from_never_there(desk: Desk) -> None:
    """Name, title, text and end; no row, no refusal: the reader may look elsewhere, or refuse as deleting does."""
    async with desk.engine.begin() as tx:
        kept, gone, never = [await read_row(f"returns{rest}", tx) for rest in ("-checklist", "-minutes", "")]
        faults = [(await missing(name, tx)).fault for name in ("returns-minutes", "returns")]
    deleted = await desk.do(delete_document, Delete(document="returns-checklist"))
    faults.append(await desk.refuses(delete_document, Delete(document="returns-checklist")))

    assert kept is not None and gone is not None and never is None
    assert (kept.title, kept.text.splitlines()[0], kept.deleted) == ("Returns: checklist", "# Returns: checklist", None)
    assert str(gone.deleted) == "2025-11-18 17:00:00+00:00"
    assert deleted == Paper(name="returns-checklist", title="Returns: checklist")
    assert "returns-checklist" not in await names(desk)
    assert [fault.code for fault in faults] == ["gone", "not_found", "gone"] and "Kept by" not in str(faults)


UNREADABLE: list[tuple[str, Path | None, str, str]] = [
    ("returns-minutes", EXAMPLES, "gone", "was deleted at 2025-11-18"),
    ("returns-minutes", None, "gone", "was deleted at 2025-11-18"),
    ("returns-cheklist", EXAMPLES, "not_found", "'returns-checklist'"),
    ("returns-cheklist", None, "not_found", "'returns-checklist'"),
    ("refund-polcy.md", EXAMPLES, "not_found", "'refund-policy.md'"),
    ("../secret.md", EXAMPLES, "invalid_input", ""),
    ("/etc/passwd", EXAMPLES, "invalid_input", ""),
    ("file:///etc/passwd", EXAMPLES, "invalid_input", ""),
]
"""Name, folder of documents, code, and what the reason says or which name is observed as the nearest."""


@needs_extra("documents")
async def test_a_document_that_cannot_be_read_is_refused_with_what_is_near(desk: Desk) -> None:
    """A deleted one says since when, and never what it said; a name that leads out is refused as in the folder."""
    wrong = []
    for name, folder, code, words in UNREADABLE:
        fault = (await refusal(desk, name, folder)).fault
        near = fault.observed.get("nearest", fault.observed.get("near")) if isinstance(fault.observed, dict) else None
        said = f"{near}" if code == "not_found" else fault.reason
        if fault.code != code or words not in said or "Kept by" in str(fault.observed):
            wrong.append((name, folder, fault))

    assert wrong == []
