"""The ledger: an effect happens once for its key, and whoever calls again is given what it came to."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from activities.effects.errors import KeyConflict
from activities.effects.ledger import (
    EffectResult,
    LedgerEntry,
    apply_at_most_once,
    apply_in_transaction,
    effects_of,
    find_result,
    mark_undone,
)
from activities.storage.store import open_store, writing
from replan import Key, Transaction, tool
from tests.activities.bench import bench
from tests.gate import on_sqlite
from workflows.calls.header import CallHeader
from workflows.faults.fault import Applied, Code

ENTRY = LedgerEntry("run/step", "task", "step", "add", "abc")


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[AsyncEngine]:
    opened = await open_store(store_url)
    async with opened.begin() as tx:
        await tx.execute(text("CREATE TABLE words (word TEXT)"))
    yield opened
    await opened.dispose()


async def add(engine: AsyncEngine, word: str, entry: LedgerEntry = ENTRY, pause: float = 0) -> tuple[JsonValue, bool]:
    async with writing(engine).begin() as tx:

        async def effect() -> JsonValue:
            await asyncio.sleep(pause)
            await tx.execute(text("INSERT INTO words VALUES (:word)"), {"word": word})
            return {"word": word}

        return await apply_in_transaction(tx, entry, effect)


async def words(engine: AsyncEngine) -> list[str]:
    async with engine.begin() as tx:
        return [row[0] for row in await tx.execute(text("SELECT word FROM words"))]


async def test_the_second_call_is_given_what_the_first_came_to(engine: AsyncEngine) -> None:
    """Nothing happens again; with other arguments it is refused, since it would be given the result of another call."""
    with pytest.raises(ZeroDivisionError):
        async with writing(engine).begin() as tx:
            await apply_in_transaction(tx, ENTRY, work=lambda: 1 / 0)  # type: ignore[arg-type,return-value]

    assert await add(engine, "one") == ({"word": "one"}, False)
    assert await add(engine, "two") == ({"word": "one"}, True)
    with pytest.raises(KeyConflict):
        await add(engine, "two", ENTRY._replace(digest="def"))
    assert await words(engine) == ["one"]


@on_sqlite
async def test_the_effects_of_a_task_are_listed(engine: AsyncEngine) -> None:
    """With key, kind and result; those of other tasks are not. Another key is another effect."""
    await add(engine, "one")
    await add(engine, "one", ENTRY._replace(key="k2", task="other"))
    async with engine.begin() as tx:
        found = await effects_of(tx, "task")

    assert await words(engine) == ["one", "one"]
    assert [(one["key"], one["kind"], one["result"]) for one in found] == [("run/step", "add", {"word": "one"})]


async def test_two_at_the_same_moment_are_one_effect_with_two_answers(engine: AsyncEngine) -> None:
    answers = await asyncio.gather(*(add(engine, f"w{number}", pause=0.05) for number in range(4)))

    assert len(await words(engine)) == 1
    assert [replayed for _, replayed in answers].count(False) == 1 and len({str(result) for result, _ in answers}) == 1


async def test_a_result_that_comes_too_late_for_its_row_is_logged(engine: AsyncEngine) -> None:
    """A newer claim has the key: the first effect was applied all the same, and somebody has to know."""

    async def late() -> JsonValue:
        await apply_at_most_once(engine, ENTRY._replace(fencing_token=1), quick, lambda _: False)
        return "late"

    async def quick() -> JsonValue:
        return "quick"

    with capture_logs() as lines:
        await apply_at_most_once(engine, ENTRY, late, lambda _: False)
    kept = await find_result(engine, ENTRY.key)

    assert [(line["event"], line["key"], line["log_level"]) for line in lines] == [
        ("ledger_superseded", ENTRY.key, "error")
    ]
    assert kept == EffectResult("quick", replayed=True)


class Word(BaseModel):
    word: str


@on_sqlite
async def test_a_key_that_is_used_with_other_arguments_is_a_conflict(tmp_path: Path, store_url: str) -> None:
    """A typed fault, and nothing happens."""

    @tool.transactional
    async def note(args: Word, tx: Transaction) -> Word:
        """Note a word."""
        await tx.execute(text("INSERT INTO notes VALUES (:word)"), {"word": args.word})
        return args

    async with bench(tmp_path, store=store_url) as calls:
        await calls.call(note, run="r", word="x")
        fault, _ = await calls.fails(note, run="r", word="y")
        written = await calls.rows("SELECT word FROM notes")

    assert (fault.code, fault.by_id, written) == (Code.CONFLICT, True, ["x"])
    assert "with other arguments: the same call" in fault.reason


@on_sqlite
@pytest.mark.parametrize("has_effect_key", [False, True])
async def test_a_key_whose_effect_was_undone_has_no_effect_again(
    tmp_path: Path, store_url: str, *, has_effect_key: bool
) -> None:
    """Whatever an attempt before it did, from which nobody heard: the ledger would have refused it, too."""
    called = list[str]()

    @tool.keyed
    async def send(args: Word, key: Key) -> Word:
        """Send a word."""
        called.append(args.word)
        return args

    header = CallHeader(key="k/a", has_effect_key=has_effect_key)
    async with bench(tmp_path, store=store_url) as calls:
        await mark_undone([calls.engine], LedgerEntry("k/a", "task", "a", "send", ""), by="undo")
        fault, _ = await calls.fails(send, header=header, attempt=2, word="x")

    assert (fault.code, fault.applied, fault.by_id) == (Code.CONFLICT, Applied.NONE, not has_effect_key)
    assert called == []
