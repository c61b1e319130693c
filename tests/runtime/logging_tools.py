"""Tools that fail in each way, and write lines of their own; every value has the word that no log may have."""

import asyncio
import logging

import httpx2
import structlog
from pydantic import BaseModel

from replan import Busy, CircuitBreaker, Refused, Unreachable, tool

PLANTED = "planted-canary"
CALLED = list[str]()


class Word(BaseModel):
    """A word."""

    word: str


@tool.read
def say(args: Word) -> Word:
    """Say a word in a thread, with a line by each of the two kinds of loggers."""
    logging.getLogger("shop").warning("said %d characters", len(args.word))
    structlog.get_logger("shop").info("said", characters=len(args.word))
    return args


@tool.idempotent
async def flaky(args: Word) -> Word:
    """Be busy once."""
    CALLED.append(args.word)
    if CALLED.count(args.word) == 1:
        raise Busy(f"Too many of {args.word}.", retry_after=0.01)
    return args


@tool.read
async def find(args: Word, http: httpx2.AsyncClient) -> Word:
    """Ask a server that has no such page."""
    reply = await http.get(args.word, headers={"X-Key": PLANTED})
    reply.raise_for_status()
    return args


@tool.idempotent
async def book(args: Word) -> Word:
    """Refuse."""
    raise Refused(f"{args.word} is taken.", observed={"free": [PLANTED]})


@tool.idempotent
async def bug(args: Word) -> Word:
    """Have a bug."""
    raise KeyError(args.word)


@tool.read(breaker=CircuitBreaker(failures=1, calls=1, recovery=600))
async def reach(args: Word) -> Word:
    """Reach no service."""
    raise Unreachable(f"Nobody at {args.word}.")


@tool.idempotent(timeout=60)
async def linger(args: Word) -> Word:
    """Say so, and take a while."""
    structlog.get_logger("shop").info("lingers")
    await asyncio.sleep(60)
    return args
