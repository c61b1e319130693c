"""Tools with effects that take their time, for the workers in containers."""

import asyncio

from pydantic import BaseModel
from sqlalchemy import text

from replan import Transaction, tool


class Entry(BaseModel):
    """What to enter, and how long that takes."""

    word: str
    seconds: float = 0.0


class Entered(BaseModel):
    """What was entered."""

    word: str


@tool.transactional(timeout=120)
async def enter(args: Entry, tx: Transaction) -> Entered:
    """Enter a word into the book."""
    await asyncio.sleep(args.seconds)
    await tx.execute(text("CREATE TABLE IF NOT EXISTS book (word TEXT)"))
    await tx.execute(text("INSERT INTO book VALUES (:word)"), {"word": args.word})
    return Entered(word=args.word)
