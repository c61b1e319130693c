"""Tools of every effect, each with what undoes it and one without, that write down in a folder what really happened."""

import asyncio
import os
import time
from pathlib import Path

from pydantic import BaseModel
from sqlalchemy import Column, Integer, MetaData, String, Table, delete, insert
from sqlalchemy.ext.asyncio import create_async_engine

from replan import Key, NeedsPerson, Transaction, metadata, tool

FOLDER = Path(os.environ.get("ROLLBACK_FOLDER", "."))
BANK = create_async_engine(f"sqlite+aiosqlite:///{FOLDER / 'bank.db'}")
BOOKS = MetaData()
DEPOSITS = Table("deposits", BOOKS, Column("id", Integer, primary_key=True), Column("word", String(20)))
NOTES = Table(
    "rollback_notes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("word", String(20)),
    extend_existing=True,  # this file is a tools file and a module, so one process may import it twice
)


class Word(BaseModel):
    word: str = ""


class Row(BaseModel):
    id: int


class Nothing(BaseModel):
    """No arguments."""


def note_down(kind: str, word: str, key: str = "") -> Word:
    """Write a call down: one short line, appended atomically."""
    with (FOLDER / "calls").open("a") as file:
        file.write(f"{kind} {word} {key}".strip() + "\n")
    return Word(word=word)


@tool.transactional
async def remove(args: Row, tx: Transaction) -> Row:
    """Remove a note."""
    await tx.execute(delete(NOTES).where(NOTES.c.id == args.id))
    note_down("remove", str(args.id))
    return args


@tool.transactional(undo=remove.using(id="result.id"))
async def note(args: Word, tx: Transaction) -> Row:
    """Write a note."""
    return Row(id=await tx.scalar(insert(NOTES).values(word=args.word).returning(NOTES.c.id)))


@tool.transactional(datasource=BANK)
async def withdraw(args: Row, tx: Transaction) -> Row:
    """Take a deposit back."""
    await tx.execute(delete(DEPOSITS).where(DEPOSITS.c.id == args.id))
    note_down("withdraw", str(args.id))
    return args


@tool.transactional(datasource=BANK, undo=withdraw.using(id="result.id"))
async def deposit(args: Word, tx: Transaction) -> Row:
    """Make a deposit in the bank, which has a database of its own."""
    return Row(id=await tx.scalar(insert(DEPOSITS).values(word=args.word).returning(DEPOSITS.c.id)))


@tool.keyed(timeout=60)
async def recall(args: Word, key: Key) -> Word:
    """Recall a letter; it hangs as long as there is a file `hang`."""
    note_down("recall", args.word, key)
    while (FOLDER / "hang").exists():
        await asyncio.sleep(0.1)
    return args


@tool.keyed(undo=recall)
async def send(args: Word, key: Key) -> Word:
    """Send a letter."""
    return note_down("send", args.word)


@tool.keyed(approve="args.word == 'large'")
async def wire(args: Word, key: Key) -> Word:
    """Wire money out."""
    return note_down("wire", args.word)


@tool.keyed(undo=wire)
async def reserve(args: Word, key: Key) -> Word:
    """Reserve something."""
    return note_down("reserve", args.word)


@tool.unkeyed
async def whisper(args: Word) -> Word:
    """Say that it was not meant so."""
    return note_down("whisper", args.word)


@tool.unkeyed(undo=whisper)
async def shout(args: Word) -> Word:
    """Shout; the answer to `lost` is lost."""
    note_down("shout", args.word)
    if args.word == "lost":
        raise ConnectionResetError("the answer never came")
    return args


@tool.unkeyed(timeout=0.5, undo=whisper)
def ponder(args: Word) -> Word:
    """Say a word after long thought, in a thread that nothing stops; it thinks as long as there is a file `hang`."""
    note_down("ponders", args.word)
    while (FOLDER / "hang").exists():
        time.sleep(0.1)
    return note_down("ponder", args.word)


@tool.idempotent
async def drop(args: Word) -> Word:
    """Take something away."""
    return note_down("drop", args.word)


@tool.idempotent(undo=drop)
async def put(args: Word) -> Word:
    """Put something somewhere."""
    return note_down("put", args.word)


@tool.keyed
async def engrave(args: Word, key: Key) -> Word:
    """Engrave a word, which nobody can take back."""
    return note_down("engrave", args.word)


@tool.read
async def person(args: Nothing) -> Nothing:
    """Need a person."""
    raise NeedsPerson("Somebody has to look.")


@tool.read(timeout=120)
async def linger(args: Nothing) -> Nothing:
    """Take two minutes."""
    note_down("linger", "")
    await asyncio.sleep(120)
    return args
