"""What the boundary knows of a call that was made before, and of one that went wrong after its effect."""

import sqlite3
import time
from pathlib import Path

import pytest
from pydantic import BaseModel, Field
from sqlalchemy import text

from activities.toolbox.http.network import Reach
from replan import Refused, Services, Transaction, Web, tool
from tests.activities.bench import Bench, bench
from tests.activities.payments import payments
from workflows.faults.fault import Applied, Code


class Word(BaseModel):
    """What to write."""

    word: str


class Stamped(Word):
    """The same, with what the tool itself adds."""

    at: float = Field(default_factory=time.time)


class Two(BaseModel):
    """Two addresses."""

    first: str
    second: str


class Done(BaseModel):
    """That it was done."""

    ok: bool = True


INSERT = text("INSERT INTO notes VALUES (:word)")


async def test_what_a_tool_adds_to_its_arguments_makes_no_other_call(calls: Bench) -> None:
    """The digest is that of what was sent: a default that differs each time, or is new in a deploy, is no conflict."""

    @tool.transactional
    async def write(args: Stamped, tx: Transaction) -> Done:
        """Write a note with the time."""
        await tx.execute(INSERT, {"word": args.word})
        return Done()

    await calls.call(write, run="r", word="x")
    back = await calls.call(write, run="r", attempt=2, word="x")

    assert (back.replayed, await calls.rows("SELECT word FROM notes")) == (True, ["x"])


async def test_a_tool_that_commits_for_itself_may_have_changed_something(calls: Bench) -> None:
    """Its own commit breaks the promise of the ledger, and is not passed over as if nothing had happened."""

    @tool.transactional
    async def write(args: Word, tx: Transaction) -> Done:
        """Write a note and commit."""
        await tx.execute(INSERT, {"word": args.word})
        await tx.commit()
        return Done()

    fault, _ = await calls.fails(write, run="r", word="x")

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


@pytest.mark.parametrize("second", ["http://127.0.0.1:9/", "ftp://127.0.0.1/", "http://user:pw@127.0.0.1/"])
async def test_a_second_request_that_was_not_sent_says_nothing_of_the_first(tmp_path: Path, second: str) -> None:
    """A charge, and then no way to send more: the charge is not forgotten, and not made again."""

    @tool.unkeyed
    async def pay(args: Two, services: Services) -> Done:
        """Send two requests."""
        for url in (args.first, args.second):
            async with services.send("POST", url, {"content-type": "application/json"}, b"{}") as answer:
                await answer.aread()
        return Done()

    with payments() as service:
        services = Services.of(["127.0.0.1"], [], {}, Web(Reach.of(["127.0.0.1"])))
        async with bench(tmp_path, services=services) as calls:
            fault, _ = await calls.fails(pay, run="r", first=service.url, second=second)
            again, _ = await calls.fails(pay, run="r", attempt=2, first=service.url, second=second)

    assert (fault.applied, again.applied, len(service.charges)) == (Applied.UNKNOWN, Applied.UNKNOWN, 1)


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
