"""Tools for crash tests: each call leaves a line in a file, so that the test can count what really ran."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

import httpx2
from pydantic import BaseModel
from sqlalchemy import Column, Integer, String, Table, event, insert
from temporalio import activity

from activities.boundary.attempt import FaultRaised
from replan import Key, Refused, Transaction, metadata, tool
from workflows.faults.fault import Code, Fault


class Note(BaseModel):
    """Where to note the call, and how it goes on."""

    file: Path
    word: str
    seconds: float = 0.0
    """How long it takes."""
    patience: int = 0
    """How many calls hang before one goes through."""


class Noted(BaseModel):
    """How many calls of this word there were, this one included."""

    calls: int


@tool.idempotent(timeout=60)
async def note(args: Note) -> Noted:
    """Note the call in a file, then take a while."""
    with args.file.open("a") as file:  # one short line, appended atomically
        file.write(f"{args.word}\n")
    calls = args.file.read_text().split().count(args.word)  # see above
    await asyncio.sleep(60 if calls <= args.patience else args.seconds)
    return Noted(calls=calls)


@tool.pure
def ponder(args: Note) -> Noted:
    """Note the call in a file, which a pure tool must not do, then think for a while."""
    with args.file.open("a") as file:
        file.write(f"{args.word}\n")
    time.sleep(args.seconds)
    return Noted(calls=1)


@tool.keyed(timeout=60)
async def pay(args: Note, key: Key) -> Noted:
    """Pay with a key, as slowly as `note` notes."""
    return await note(args)


ENTRIES = Table(
    "crash_entries",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("word", String(80)),
    extend_existing=True,  # this file is a tools file and a module, so one process may import it twice
)


class Write(BaseModel):
    """What to write, and at which point the first worker dies."""

    file: Path
    word: str
    dies: Literal["never", "before the commit", "after the commit"] = "never"


class Written(BaseModel):
    """The row that was written."""

    id: int


def _die() -> None:
    """End this worker as the kernel would."""
    os.kill(os.getpid(), signal.SIGKILL)


@tool.transactional(timeout=20)
async def write(args: Write, tx: Transaction) -> Written:
    """Write a row; the first call's worker does not survive it."""
    is_first = not args.file.exists()
    args.file.touch()
    id = await tx.scalar(insert(ENTRIES).values(word=args.word).returning(ENTRIES.c.id))
    if is_first and args.dies == "before the commit":
        _die()
    if is_first and args.dies == "after the commit":
        event.listen(tx.engine.sync_engine.pool, "checkin", lambda *_: _die())
    return Written(id=id or 0)


class Order(BaseModel):
    """What to order, and the file of the service that takes orders."""

    item: str
    amount: int
    file: Path


class Ordered(BaseModel):
    """What was ordered."""

    amount: int


@tool.keyed(approve="args.amount > 500")
async def order(args: Order, key: Key) -> Ordered:
    """Order something; the service applies each key once."""
    with args.file.open("a") as file:
        file.write(f"{key} {args.amount}\n")
    return Ordered(amount=args.amount)


@tool.transactional(approve="always")
async def spend(args: Order, tx: Transaction) -> Ordered:
    """Write a row about an amount."""
    await tx.execute(insert(ENTRIES).values(word=f"{activity.info().workflow_id} {args.amount}"))
    return Ordered(amount=args.amount)


class Find(BaseModel):
    """What to look for."""

    word: str


@tool.read
async def find_nothing(args: Find) -> Noted:
    """Look for a call; there never was one."""
    raise Refused(f"There is no {args.word}.", code="not_found")


def _is_first(args: Note) -> bool:
    with args.file.open("a") as file:
        file.write(f"{args.word}\n")
    return args.file.read_text().split().count(args.word) == 1


@tool.unkeyed(reconcile=find_nothing.using(word="args.word"), settle=3, timeout=2, breaker=None)
async def lose(args: Note) -> Noted:
    """Lose the answer of the first call, which had no effect."""
    if _is_first(args):
        raise ConnectionResetError("the answer never came")
    return Noted(calls=2)


@tool.idempotent
async def wait_for_store(args: Note) -> Noted:
    """Fail at the first call as a tool does whose store is away: the step waits 5 s."""
    if _is_first(args):
        raise FaultRaised(Fault.of(Code.STORE_UNAVAILABLE, "The store is away."))
    return Noted(calls=2)


@tool.read(retry="once", timeout=60)
async def hang(args: Find) -> Noted:
    """Last until the worker is killed."""
    await asyncio.sleep(60)
    return Noted(calls=1)


class Charge(BaseModel):
    """Where to note the charge, and how long the first one takes."""

    file: Path
    seconds: float


@tool.read
async def charged(args: Charge) -> Noted:
    """Find the charge."""
    calls = args.file.read_text().split().count("charged")
    if not calls:
        raise Refused("There is no charge.", code="not_found")
    return Noted(calls=calls)


@tool.unkeyed(reconcile=charged, settle=0.5, timeout=2, enforces_timeout=True)
def charge(args: Charge) -> Noted:
    """Charge, the first time in a thread that blocks for long before it does."""
    with args.file.open("a") as file:
        file.write("charging\n")
    if args.file.read_text().split().count("charging") == 1:
        time.sleep(args.seconds)
    with args.file.open("a") as file:
        file.write("charged\n")
    return Noted(calls=args.file.read_text().split().count("charged"))


@tool.read(timeout=120)
async def cling(args: Note) -> Noted:
    """Keep the first worker that calls it from ending, whoever cancels it."""
    with args.file.open("a") as file:
        file.write(f"{args.word}\n")
    calls = args.file.read_text().split().count(args.word)  # a short file on this machine
    until = time.monotonic() + (60 if calls == 1 else 0)
    while time.monotonic() < until:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.5)
    return Noted(calls=calls)


class Ask(BaseModel):
    """Where the service is."""

    url: str


@tool.read(timeout=20)
async def ask_service(args: Ask, http: httpx2.AsyncClient) -> Noted:
    """Ask a service, and tell it which process asks."""
    reply = await http.get(args.url, headers={"worker": str(os.getpid())})
    return Noted.model_validate(reply.raise_for_status().json())
