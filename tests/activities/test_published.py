"""What workers publish of themselves in the store that they share, on each database."""

from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.planning.published import CATALOGUES, FORGET_SECONDS, NO_OTHERS, Catalogues, OtherKinds, digest_of
from activities.storage.store import open_store, write
from activities.toolbox.registry import Registry
from replan import Tool, tool


class Word(BaseModel):
    word: str


class LoudWord(Word):
    volume: int = 5


def say(args_type: type[BaseModel]) -> Tool[..., Any]:
    """One version of a tool."""

    async def say(args: Any) -> str:
        """Say a word."""
        return str(args)

    say.__annotations__ = {"args": args_type, "return": str}
    return tool.read(say)


@tool.read
async def shout(args: Word) -> str:
    """Say it loudly."""
    return args.word.upper()


OLDER, NEWER = Registry([say(Word)]), Registry([say(LoudWord), shout])


def catalogues(engine: AsyncEngine, registry: Registry = OLDER, queue: str = "q") -> Catalogues:
    """Those of a queue, as one worker reads and publishes them."""
    return Catalogues(engine, "n", queue, registry)


@pytest.mark.parametrize("is_newer_first", [True, False])
async def test_each_worker_knows_what_the_other_has(store_url: str, is_newer_first: bool) -> None:
    """Whichever of them started first; neither itself, nor a worker of another queue, is another worker."""
    engine = await open_store(store_url)
    older, newer = catalogues(engine), catalogues(engine, NEWER)
    first, second = (newer, older) if is_newer_first else (older, newer)
    async with catalogues(engine, NEWER, queue="another").published(), catalogues(engine).published():
        alone = await older.others()
        async with first.published(), second.published():
            for_older, for_newer = await older.others(), await newer.others()
    await engine.dispose()

    assert alone == OtherKinds({"say"}) and NO_OTHERS.schemas == alone.schemas
    assert for_older.names == {"say", "shout"}
    assert [for_older.takes("say", {"word": "hi", "volume": 7}), for_older.takes("shout", {"word": "hi"})] == [True] * 2
    assert for_newer.takes("say", {"word": "hi"}) and not for_newer.takes("say", {"word": "hi", "volume": 7})


async def test_workers_that_are_gone_count_only_for_tasks_that_know_them(store_url: str) -> None:
    """A task has the digest of its catalogue; rows that no task can know any more are deleted."""
    engine = await open_store(store_url)
    own = catalogues(engine)
    async with catalogues(engine, NEWER).published():
        await write(engine, lambda tx: tx.execute(update(CATALOGUES).values(until=CATALOGUES.c.until - 3600)))
    digest = digest_of({name: kind.spec for name, kind in NEWER.items()})
    gone, known = await own.others(), await own.others(digest)
    await write(engine, lambda tx: tx.execute(update(CATALOGUES).values(until=CATALOGUES.c.until - FORGET_SECONDS)))
    async with own.published():
        left = await write(engine, lambda tx: tx.execute(select(func.count()).select_from(CATALOGUES)).scalar())
    await engine.dispose()

    assert (gone, known, left) == (NO_OTHERS, OtherKinds({"say", "shout"}), 1)


FITTING: list[tuple[dict[str, Any], bool]] = [
    ({"word": {"$from": "s", "path": "x"}}, True),  # a reference stands for any value
    ({"word": "w", "volume": {"$from": "s"}}, True),
    ({"word": "w", "colour": "red"}, False),
    ({"volume": 1}, False),
    ({"word": "w", "volume": "loud"}, False),
    ({"word": "w"}, True),
]


def test_arguments_are_judged_by_the_schema_of_the_other_version() -> None:
    """Missing and unknown ones, types and defaults."""
    others = OtherKinds({"say"}, {"say": [NEWER["say"].args_schema]})

    assert [(args, others.takes("say", args)) for args, _ in FITTING] == FITTING
