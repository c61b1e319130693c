"""`datasource=`: a tool's transactions happen in its own database, and the ledger's row with them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from activities.storage.store import adopt
from activities.toolbox.declare.tool import ToolOptions
from replan import Key, Refused, Tool, Transaction
from tests.activities.bench import Bench
from workflows.faults.fault import Code
from workflows.plans.catalogue import Effect


class Word(BaseModel):
    word: str


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """A database apart from the store, adopted as a worker does it, with a table `words`."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/bank.db")
    await adopt(engine)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE words (word TEXT PRIMARY KEY)"))
    yield engine
    await engine.dispose()


async def write(args: Word, tx: Transaction) -> Word:
    """Write a word down."""
    await tx.execute(text("INSERT INTO words VALUES (:word)"), args.model_dump())
    if args.word == "no":
        raise Refused("No.")
    return args


async def look(args: Word, tx: Transaction) -> Word:
    """Find a word."""
    return Word(word=(await tx.execute(text("SELECT word FROM words"))).scalar_one())


async def send(args: Word, key: Key, tx: Transaction) -> Word:
    """Write a word down on the way to another system."""
    return await write(args, tx)


async def found(engine: AsyncEngine, statement: str) -> list[object]:
    """The first column of what a query finds."""
    async with engine.begin() as connection:
        return [row[0] for row in await connection.execute(text(statement))]


async def test_words_and_ledger_commit_there(calls: Bench, bank: AsyncEngine) -> None:
    """And nothing in the store; what fails leaves nothing, and a second call is given what the first came to."""
    writer = Tool(write, Effect.TRANSACTIONAL, ToolOptions(datasource=bank))
    first, second = [await calls.call(writer, run="r", word="one") for _ in range(2)]
    await calls.fails(writer, word="no")

    assert await found(bank, "SELECT word FROM words") == ["one"]
    assert await found(bank, "SELECT key FROM replan_ledger") == ["r/a"]
    assert await found(calls.engine, "SELECT key FROM replan_ledger") == []
    assert (first.replayed, second.replayed, second.result) == (False, True, {"word": "one"})


async def test_a_read_reads_there_and_cannot_write(calls: Bench, bank: AsyncEngine) -> None:
    """What it says that it does is what it can do, in any database; a tool with a key writes there, too."""
    await calls.call(Tool(send, Effect.KEYED, ToolOptions(datasource=bank)), word="one")
    seen = await calls.call(Tool(look, Effect.READ, ToolOptions(datasource=bank)), word="any")
    fault, _ = await calls.fails(Tool(write, Effect.READ, ToolOptions(datasource=bank)), word="two")

    assert (seen.result, fault.code) == ({"word": "one"}, Code.BUG)
    assert await found(bank, "SELECT word FROM words") == ["one"]


async def test_an_unkeyed_tool_writes_in_its_own_database(calls: Bench, bank: AsyncEngine) -> None:
    """Its claim lies in the store, so that neither waits for the other."""
    await calls.call(Tool(write, Effect.UNKEYED, ToolOptions(datasource=bank)), run="r", word="one")

    assert await found(bank, "SELECT word FROM words") == ["one"]
    assert await found(calls.engine, "SELECT key FROM replan_ledger WHERE result IS NOT NULL") == ["r/a"]


async def jot(args: Word, tx: Transaction) -> Word:
    """Write a word down in the store."""
    await tx.execute(text("INSERT INTO notes VALUES (:word)"), args.model_dump())
    return args


async def test_without_a_datasource_it_is_the_store(calls: Bench, bank: AsyncEngine) -> None:
    """There an unkeyed tool does not write, since the row of its claim would have to wait for it."""
    fault, _ = await calls.fails(Tool(jot, Effect.UNKEYED, ToolOptions()), word="one")
    left = await calls.rows("SELECT word FROM notes")
    await calls.call(Tool(jot, Effect.TRANSACTIONAL, ToolOptions()), word="two")

    assert fault.code is Code.BUG and "declare it @tool.transactional" in fault.reason
    assert (left, await calls.rows("SELECT word FROM notes")) == ([], ["two"])
