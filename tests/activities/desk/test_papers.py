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

EXAMPLES = Path(__file__).parents[3] / "examples" / "documents"


async def read(desk: Desk, name: str, folder: Path | None = EXAMPLES, page: int = 1) -> DocumentText:
    """The kind `read_document` of the desk, with a folder of documents or without."""
    async with desk.engine.begin() as tx:
        return await read_document(DocumentName(name=name, page=page), tx, Documents(folder))


async def refusal(desk: Desk, name: str, folder: Path | None = EXAMPLES) -> Refused:
    """Why a document cannot be read."""
    with pytest.raises(Refused) as caught:
        await read(desk, name, folder)
    return caught.value


async def names(desk: Desk, query: str = "") -> list[str]:
    """The names of the documents that are kept."""
    return [document.name for document in (await desk.do(list_documents, DocumentsOf(query=query))).documents]


async def test_documents_are_listed_by_name(desk: Desk) -> None:
    """All that are kept, in the order of their names."""
    listed = await names(desk)

    assert (len(listed), listed) == (34, sorted(listed))


@pytest.mark.parametrize("query", ["returns", "RETURNS: c", "urns-c"])
async def test_documents_are_listed_by_a_part_of_name_or_title(desk: Desk, query: str) -> None:
    """However it is spelt."""
    assert "returns-checklist" in await names(desk, query)


async def test_no_document_is_an_answer(desk: Desk) -> None:
    """Nobody has to be asked why a list is empty."""
    assert await names(desk, "no such thing") == []


async def test_a_deleted_document_is_listed_no_more(desk: Desk) -> None:
    """What is gone is not offered."""
    deleted = await desk.do(delete_document, Delete(document="returns-checklist"))

    assert deleted == Paper(name="returns-checklist", title="Returns: checklist")
    assert "returns-checklist" not in await names(desk)


async def test_a_document_is_deleted_once(desk: Desk) -> None:
    """The second time it is gone, and the refusal says since when."""
    await desk.do(delete_document, Delete(document="returns-checklist"))

    assert (await desk.refuses(delete_document, Delete(document="returns-checklist"))).code == "gone"


async def test_a_document_is_read_with_all_that_is_stored(desk: Desk) -> None:
    """Name, title and text."""
    async with desk.engine.begin() as tx:
        row = await read_row("returns-checklist", tx)

    assert row is not None
    assert (row.title, row.text.splitlines()[0], row.deleted) == ("Returns: checklist", "# Returns: checklist", None)


async def test_a_deleted_document_is_known_with_its_end(desk: Desk) -> None:
    """Who reads must be able to tell gone from never there."""
    async with desk.engine.begin() as tx:
        row = await read_row("returns-minutes", tx)

    assert row is not None
    assert str(row.deleted) == "2025-11-18 17:00:00+00:00"


async def test_a_document_that_never_was_is_nothing(desk: Desk) -> None:
    """No row, no refusal: the reader may look elsewhere."""
    async with desk.engine.begin() as tx:
        assert await read_row("returns", tx) is None


@pytest.mark.parametrize(("name", "code"), [("returns-minutes", "gone"), ("returns", "not_found")])
async def test_a_reader_can_refuse_as_deleting_does(desk: Desk, name: str, code: str) -> None:
    """One refusal for all who cannot have a document; its text is never in it."""
    async with desk.engine.begin() as tx:
        fault = (await missing(name, tx)).fault

    assert fault.code == code
    assert "Kept by" not in str(fault.observed)


async def test_a_kept_document_is_read_by_name(desk: Desk) -> None:
    """The text of the row, in the shape of every document."""
    text = await read(desk, " returns-checklist ")

    assert (text.name, text.title, text.pages, text.left_out) == ("returns-checklist", "Returns: checklist", 1, None)
    assert text.text.startswith("# Returns: checklist")


async def test_a_file_is_read_beside_the_kept_ones(desk: Desk) -> None:
    """One kind for both: a name that no row has is looked for in the task's folder."""
    assert (await read(desk, "refund-policy.md")).title == "Refund policy"


async def test_kept_documents_need_no_folder(desk: Desk) -> None:
    """A worker without --documents still reads its rows."""
    assert (await read(desk, "returns-checklist", None)).text


@pytest.mark.parametrize("folder", [EXAMPLES, None], ids=["with a folder", "without"])
async def test_a_deleted_document_is_gone_for_readers(desk: Desk, folder: Path | None) -> None:
    """It says since when, and never what it said."""
    fault = (await refusal(desk, "returns-minutes", folder)).fault

    assert (fault.code, "was deleted at 2025-11-18" in fault.reason) == ("gone", True)
    assert "Kept by" not in str(fault.observed)


@pytest.mark.parametrize(
    ("name", "near"), [("returns-cheklist", "returns-checklist"), ("refund-polcy.md", "refund-policy.md")]
)
async def test_an_unknown_name_is_compared_with_rows_and_files(desk: Desk, name: str, near: str) -> None:
    """Whoever mistyped sees what was probably meant, wherever it is kept."""
    fault = (await refusal(desk, name)).fault

    assert fault.code == "not_found"
    assert isinstance(fault.observed, dict) and near in str(fault.observed["nearest"])


async def test_an_unknown_name_without_a_folder_is_compared_with_the_rows(desk: Desk) -> None:
    """Nobody has to start the worker anew for a name that was mistyped."""
    fault = (await refusal(desk, "returns-cheklist", None)).fault

    assert (fault.code, "returns-checklist" in str(fault.observed)) == ("not_found", True)


@pytest.mark.parametrize("name", ["../secret.md", "/etc/passwd", "file:///etc/passwd"])
async def test_a_name_that_leads_out_is_refused(desk: Desk, name: str) -> None:
    """As in the folder alone."""
    assert (await refusal(desk, name)).fault.code == "invalid_input"
