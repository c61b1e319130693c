"""Documents in a table: `list_documents`, `read_document` and `delete_document`."""

import asyncio
from datetime import UTC, datetime

from pydantic import BaseModel, Field
from sqlalchemy import Column, String, Table, Text, or_, select, update

from examples.desk.near import near
from replan import Documents, DocumentText, Moment, Refused, Transaction, metadata, tool

PAPERS = Table(
    "papers",
    metadata,
    Column("name", String(80), primary_key=True),
    Column("title", String(120), nullable=False),
    Column("text", Text, nullable=False),
    Column("deleted", Moment),
)
"""The documents. The row of a deleted document stays, with the time of the deletion in `deleted`, so that a tool can
say when the document was deleted."""

MAX_LISTED = 50


class DocumentsOf(BaseModel, extra="forbid"):
    """Which documents; without an argument all."""

    query: str = Field(default="", description="Part of the name or title", max_length=80)


class DocumentName(BaseModel):
    """Which document, and from where on."""

    name: str = Field(description="The file, as search names it, e.g. refund-policy.md", min_length=1, max_length=400)
    page: int = Field(default=1, ge=1, le=1_000_000, description="The page to begin with, when there is more than one")


class Paper(BaseModel, from_attributes=True):
    """A document without its text."""

    name: str
    title: str


class Listing(BaseModel):
    """Documents, by name."""

    documents: list[Paper]
    more: bool = False
    """Whether more documents match than are returned."""


class Delete(BaseModel):
    """Which document."""

    document: str = Field(description="The name of the document, as list_documents shows it", max_length=80)


class Row(Paper):
    """A document with all its columns."""

    text: str
    deleted: datetime | None
    """When the document was deleted; None if it was not. The text of a deleted document must not be returned."""


@tool.read(untrusted=True)
async def list_documents(args: DocumentsOf, tx: Transaction) -> Listing:
    """List the documents that are kept, by name, with their titles; the first 50 at the most."""
    fits = or_(*(column.icontains(args.query, autoescape=True) for column in (PAPERS.c.name, PAPERS.c.title)))
    query = select(PAPERS.c.name, PAPERS.c.title).where(PAPERS.c.deleted.is_(None), fits).order_by(PAPERS.c.name)
    found = [Paper.model_validate(row) for row in await tx.execute(query.limit(MAX_LISTED + 1))]
    return Listing(documents=found[:MAX_LISTED], more=len(found) > MAX_LISTED)


@tool.read(timeout=60, untrusted=True)
async def read_document(args: DocumentName, tx: Transaction, documents: Documents) -> DocumentText:
    """Read a document by its name: one that is kept, or one of the task's (Markdown, text, HTML, PDF), page by page."""
    row = await read_row(args.name.strip(), tx)
    if row is not None and row.deleted is None:
        return DocumentText.of(row.name, row.text, title=row.title, page=args.page)
    if row is not None or documents.of_worker is None:
        raise await missing(args.name.strip(), tx)
    kept = await tx.scalars(select(PAPERS.c.name).where(PAPERS.c.deleted.is_(None)).order_by(PAPERS.c.name))
    # In a thread: reading a file would block the event loop.
    return await asyncio.to_thread(documents.read, args.name, args.page, list(kept))


@tool.transactional(observe=list_documents)
async def delete_document(args: Delete, tx: Transaction) -> Paper:
    """Delete one document for good."""
    kept = (PAPERS.c.name == args.document) & PAPERS.c.deleted.is_(None)
    mark = update(PAPERS).where(kept).values(deleted=datetime.now(UTC))
    row = (await tx.execute(mark.returning(PAPERS.c.name, PAPERS.c.title))).one_or_none()
    if row is None:
        raise await missing(args.document, tx)
    return Paper.model_validate(row)


async def read_row(name: str, tx: Transaction) -> Row | None:
    row = (await tx.execute(select(PAPERS).where(PAPERS.c.name == name))).one_or_none()
    return None if row is None else Row.model_validate(row)


async def missing(name: str, tx: Transaction) -> Refused:
    """The rejection for a document that was deleted, or that has never existed."""
    row = await read_row(name, tx)
    if row is None:
        kept = select(PAPERS.c.name, PAPERS.c.title).where(PAPERS.c.deleted.is_(None)).order_by(PAPERS.c.name)
        observed = {"near": await near(name, kept, tx)}
        return Refused("There is no document of this name: see list_documents.", code="not_found", observed=observed)
    reason = f"{row.name} was deleted at {row.deleted:%Y-%m-%d %H:%M} UTC: do without it."
    return Refused(reason, code="gone", observed={"document": row.model_dump(mode="json", exclude={"text"})})
