"""What the boundary knows of a call that was made before, and of one that went wrong after its effect."""

import sqlite3
import time
from pathlib import Path

from pydantic import BaseModel, Field
from sqlalchemy import text

from activities.toolbox.http.network import Reach
from replan import Refused, Services, Transaction, Web, tool
from tests.activities.bench import Bench, bench
from tests.activities.payments import payments
from workflows.faults.fault import Applied, Code


class Word(BaseModel):
    word: str


class Stamped(Word):
    at: float = Field(default_factory=time.time)


class Two(BaseModel):
    first: str
    second: str


class Done(BaseModel):
    ok: bool = True


INSERT = text("INSERT INTO notes VALUES (:word)")


async def test_what_a_tool_adds_to_its_arguments_makes_no_other_call(calls: Bench) -> None:
    """The digest is that of what was sent: a default that differs each time, or is new in a deploy, is no conflict.

    A tool's own commit breaks the promise of the ledger, and is not passed over as if nothing had happened.
    """

    @tool.transactional
    async def write(args: Stamped, tx: Transaction) -> Done:
        """Write a note with the time."""
        await tx.execute(INSERT, {"word": args.word})
        if args.word == "y":
            await tx.commit()
        return Done()

    await calls.call(write, run="r", word="x")
    back = await calls.call(write, run="r", attempt=2, word="x")
    written = await calls.rows("SELECT word FROM notes")
    fault, _ = await calls.fails(write, run="s", word="y")

    assert (back.replayed, written) == (True, ["x"])
    assert fault.applied is Applied.UNKNOWN


async def test_a_result_that_cannot_be_written_down_is_given_all_the_same(tmp_path: Path) -> None:
    """The store went away during the call: it happened, and history keeps what it came to."""

    @tool.unkeyed
    async def shout(args: Word) -> Done:
        """Take the store away."""
        (tmp_path / "store.db").rename(tmp_path / "elsewhere.db")
        return Done()

    async with bench(tmp_path) as calls:
        back = await calls.call(shout, run="r", word="x")

    assert back.result == {"ok": True}


async def test_a_second_request_that_was_not_sent_says_nothing_of_the_first(tmp_path: Path) -> None:
    """A charge, and then no way to send more: the charge is not forgotten, and not made again."""

    @tool.unkeyed
    async def pay(args: Two, services: Services) -> Done:
        """Send two requests."""
        for url in (args.first, args.second):
            async with services.send("POST", url, {"content-type": "application/json"}, b"{}") as answer:
                await answer.aread()
        return Done()

    services = Services.of(["127.0.0.1"], [], {}, Web(Reach.of(["127.0.0.1"])))
    with payments() as service:
        async with bench(tmp_path, services=services) as calls:
            for made, second in enumerate(["http://127.0.0.1:9/", "ftp://127.0.0.1/", "http://user:pw@127.0.0.1/"], 1):
                fault, _ = await calls.fails(pay, run=second, first=service.url, second=second)
                again, _ = await calls.fails(pay, run=second, attempt=2, first=service.url, second=second)
                assert (fault.applied, again.applied) == (Applied.UNKNOWN, Applied.UNKNOWN), second
                assert len(service.charges) == made


async def test_what_a_tool_raised_is_the_fault_also_if_the_attempt_ends_before_that_is_written_down(
    tmp_path: Path,
) -> None:
    """The ledger waited for another writer until the end: what the tool proved before holds."""
    held = list[sqlite3.Connection]()

    @tool.unkeyed(timeout=0.5)
    async def shout(args: Word) -> Done:
        """Find nothing to reach, while another process begins to write to the store."""
        held.append(sqlite3.connect(tmp_path / "store.db"))
        held[0].execute("BEGIN IMMEDIATE")
        raise Refused("Taken.", code="conflict")

    async with bench(tmp_path) as calls:
        fault, _ = await calls.fails(shout, word="x")
        held[0].close()

    assert (fault.code, fault.applied) == (Code.CONFLICT, Applied.NONE)
