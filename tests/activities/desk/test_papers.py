"""The documents that are kept as rows: listed, deleted once, and known to be gone."""

import pytest

from activities.toolbox.desk.papers import (
    Delete,
    Document,
    DocumentsOf,
    delete_document,
    list_documents,
    missing,
    read_row,
)
from tests.activities.desk.front import Desk


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

    assert deleted == Document(name="returns-checklist", title="Returns: checklist")
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
