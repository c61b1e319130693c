"""The tools of the Replan side: `python worker.py --tools lab/benchmarks/tools.py`."""

import asyncio
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import httpx2
from pydantic import BaseModel
from sqlalchemy import Column, Integer, String, Table, insert
from temporalio import activity

from benchmarks.work import FAILURES, Words
from replan import NeedsPerson, Transaction, Unreachable, metadata, tool

ENTRIES = Table("entries", metadata, Column("id", Integer, primary_key=True), Column("text", String(2000)))


class Entry(BaseModel):
    """A line for the tally."""

    file: str
    step: str
    seconds: float = 0.0
    """How long the step goes on after it wrote the line."""


@tool.read
async def echo(args: Words) -> Words:
    """Return the argument."""
    return args


@tool.read(breaker=None)
async def echo_unguarded(args: Words) -> Words:
    """Return the argument, without a circuit breaker."""
    return args


@tool.transactional
async def enter(args: Words, tx: Transaction) -> Words:
    """Write the argument into a table."""
    await tx.execute(insert(ENTRIES).values(args.model_dump()))
    return args


@tool.read(breaker=None)  # what is measured are the retries of one activity
async def stumble(args: Words) -> Words:
    """Fail twice, then return the argument."""
    if activity.info().attempt <= FAILURES:
        raise Unreachable("not yet")
    return args


@tool.read  # the file belongs to the benchmark and not to the world: each run of a step adds a line
async def tally(args: Entry) -> Entry:
    """Write down that a step ran."""
    line = f"{args.step} {activity.info().attempt} {datetime.now(UTC).timestamp():.6f}\n"
    file = os.open(args.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())  # one write: a kill leaves a whole line or none
    finally:
        os.close(file)
    await asyncio.sleep(args.seconds)
    return args


class Door(BaseModel):
    """What has to be there."""

    key: str
    """A file."""


@tool.read
def unlock(args: Door) -> Door:
    """Need a key that a person has to bring."""
    if not Path(args.key).exists():
        raise NeedsPerson("The key is missing.", code="unauthorized")
    return args


class Duration(BaseModel):
    """How long a call takes."""

    seconds: float


@tool.read(timeout=120)
async def linger(args: Duration) -> Duration:
    """Hold a slot of the worker."""
    await asyncio.sleep(args.seconds)
    return args


@tool.read(timeout=120)  # a shorter one would be called again, in another thread
def hang(args: Duration) -> Duration:
    """Hold a thread of the worker."""
    time.sleep(args.seconds)
    return args


@tool.read(timeout=120)
async def block(args: Duration) -> Duration:
    """Block the event loop of the tools."""
    time.sleep(args.seconds)  # noqa: ASYNC251  # that is what is measured
    return args


class Address(BaseModel):
    """Where a service is."""

    url: str


@tool.read
async def ask_service(args: Address, http: httpx2.AsyncClient) -> Address:
    """Ask a service."""
    (await http.get(args.url)).raise_for_status()
    return args
