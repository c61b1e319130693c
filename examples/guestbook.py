"""A guestbook in the worker's store: an entry and the record of its call commit in one transaction, or not at all."""

from pydantic import BaseModel, Field
from sqlalchemy import Column, Integer, String, Table, delete, insert, select

from replan import Refused, Transaction, metadata, tool

GUESTS = Table(  # the worker creates this table when it opens the store
    "guests",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(80), nullable=False, unique=True),
    Column("message", String(500), nullable=False),
)


class Entry(BaseModel):
    """What to write into the book."""

    name: str = Field(description="Who signs, once", min_length=1, max_length=80)
    message: str = Field(max_length=500)


class Signed(Entry):
    """What stands in the book."""

    id: int


class Newest(BaseModel):
    count: int = Field(default=5, ge=1, le=50, description="How many entries")


class Erase(BaseModel):
    entry: int = Field(description="The number of an entry")


@tool.read
async def read_guestbook(args: Newest, tx: Transaction) -> list[Signed]:
    """Read the newest entries of the guestbook."""
    newest = select(GUESTS).order_by(GUESTS.c.id.desc()).limit(args.count)
    return [Signed.model_validate(dict(row)) for row in (await tx.execute(newest)).mappings()]


@tool.transactional(observe=read_guestbook)
async def erase_entry(args: Erase, tx: Transaction) -> Erase:
    """Erase one entry of the guestbook."""
    if (await tx.execute(delete(GUESTS).where(GUESTS.c.id == args.entry))).rowcount == 0:
        raise Refused(f"There is no entry {args.entry}: read the guestbook first.", code="not_found")
    return args


@tool.transactional(observe=read_guestbook, undo=erase_entry.using(entry="result.id"))
async def sign_guestbook(args: Entry, tx: Transaction) -> Signed:
    """Sign the guestbook in somebody's name; each name signs once."""
    id = await tx.scalar(insert(GUESTS).values(args.model_dump()).returning(GUESTS.c.id))  # twice: a conflict
    return Signed(id=id, **args.model_dump())
