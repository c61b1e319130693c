"""The world of drawn sequences: the effects that really happened, in a database that the floor does not know.

The function under test is told aside from its arguments, by MOMENT, in whose name it is called and what befalls it.
"""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from replan import Refused
from replan.effects import Effects, Key, Transaction
from tests.effects.oracle import Effect

JOURNAL = """create table if not exists journal (
    number integer primary key, function text, arguments text, meant text, key text, once text unique
)"""
INSERT = "insert into journal (function, arguments, meant, key, once) values (?, ?, ?, ?, ?) on conflict do nothing"


class Conflict(Exception):
    """What a service raises that applies nothing."""


@dataclass(frozen=True)
class Moment:
    """In whose name the function is called, and what befalls this call."""

    meant: str
    before: float = 0.0
    after: float = 0.0
    error: str = "none"
    dies: str = ""
    """Where the process is killed: `before` or `after` the effect."""


NOBODY = Moment("nobody")
MOMENT: ContextVar[Moment] = ContextVar("moment", default=NOBODY)


class World:
    """The effects in a folder: those of services in one file, those of transactions in another."""

    def __init__(self, folder: Path) -> None:
        """Nothing is written before `make`."""
        self.file, self.bank = folder / "world.db", folder / "bank.db"

    def make(self) -> "World":
        """Make both files."""
        for file in (self.file, self.bank):
            with _connected(file) as db:
                db.execute(JOURNAL)
        return self

    def apply(self, function: str, arguments: Mapping[str, str], key: str | None = None, once: bool = False) -> str:
        """Apply an effect, and return its name; with a key that is known, or `once`, that of the earlier one."""
        written = json.dumps(arguments, sort_keys=True)
        unique = key or (f"{function} {written}" if once else None)
        with _connected(self.file) as db:
            db.execute(INSERT, (function, written, MOMENT.get().meant, key, unique))
            where = ("once = ?", unique) if unique else ("number = last_insert_rowid() or ? is not null", None)
            [number] = db.execute(f"select number from journal where {where[0]}", (where[1],)).fetchone()  # noqa: S608
        return f"w{number}"

    def find(self, function: str, arguments: Mapping[str, str]) -> str | None:
        """The newest effect with these arguments, whoever meant it."""
        with _connected(self.file) as db:
            row = db.execute(
                "select max(number) from journal where function = ? and arguments = ?",
                (function, json.dumps(arguments, sort_keys=True)),
            ).fetchone()
        return f"w{row[0]}" if row[0] is not None else None

    def effects(self) -> list[tuple[str, Effect]]:
        """All effects, each with its function."""
        found = list[tuple[str, Effect]]()
        for file, mark in ((self.file, "w"), (self.bank, "t")):
            with _connected(file) as db:
                for number, function, arguments, meant in db.execute(
                    "select number, function, arguments, meant from journal order by number"
                ):
                    found.append((function, Effect(f"{mark}{number}", meant, json.loads(arguments))))
        return found


@contextmanager
def _connected(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection whose transaction is committed, and forced to the disk, at the end of the block."""
    with contextlib.closing(sqlite3.connect(file, timeout=10)) as db, db:
        yield db


def _befalls(where: str) -> None:
    """What befalls a call before or after its effect."""
    moment = MOMENT.get()
    if moment.dies == where:
        os.kill(os.getpid(), signal.SIGKILL)
    if where == "before" and moment.error == "refused":
        raise Refused("not possible")
    if where == "before" and moment.error == "conflict":
        raise Conflict("409")
    if where == "before" and moment.error == "no service":
        raise ConnectionRefusedError("nobody is there")
    if where == "after" and moment.error == "lost answer":
        raise TimeoutError("no answer")


def functions(
    effects: Effects, world: World, bank: Engine, settle: float, timeout: float
) -> dict[str, Callable[..., Any]]:
    """A function of each effect, as `def` and, with `a_`, as `async def`."""
    found = {
        **_plain(effects, world, settle, timeout),
        **{f"a_{name}": function for name, function in _asynchronous(effects, world, settle, timeout).items()},
    }
    words = _options(timeout)

    @effects.transactional(bank, **words)
    def move(to: str, body: str, tx: Connection) -> str:
        return _moved(tx, "move", to, body)

    a_bank = create_async_engine(f"sqlite+aiosqlite:///{world.bank}", poolclass=NullPool)

    @effects.transactional(a_bank, name="a_move", **words)
    async def moved(to: str, body: str, tx: Transaction) -> str:
        await asyncio.sleep(MOMENT.get().before)
        return await tx.run_sync(_moved, "a_move", to, body)

    return {**found, "move": move, "a_move": moved}


def _moved(tx: Connection, function: str, to: str, body: str) -> str:
    """Apply the effect in the transaction."""
    moment = MOMENT.get()
    time.sleep(moment.before)
    _befalls("before")
    row = {"function": function, "arguments": json.dumps({"body": body, "to": to}), "meant": moment.meant}
    done = tx.execute(
        text("insert into journal (function, arguments, meant) values (:function, :arguments, :meant)"), row
    )
    time.sleep(moment.after)
    _befalls("after")
    return f"t{done.lastrowid}"


def _options(timeout: float) -> dict[str, Any]:
    """What all functions say of themselves."""
    return {"authority": ("to",), "content": ("body",), "timeout": timeout, "raises": {Conflict: "conflict"}}


def _plain(effects: Effects, world: World, settle: float, timeout: float) -> dict[str, Callable[..., Any]]:
    """The functions that are `def`."""
    words = _options(timeout)

    def called(function: str, to: str, body: str, key: str | None = None, once: bool = False) -> str:
        moment = MOMENT.get()
        time.sleep(moment.before)
        _befalls("before")
        name = world.apply(function, {"to": to, "body": body}, key, once)
        _befalls("after")
        time.sleep(moment.after)
        return name

    def find_mail(to: str, body: str) -> str | None:
        return world.find("mail", {"to": to, "body": body})

    @effects.unkeyed(**words)
    def pay(to: str, body: str) -> str:
        return called("pay", to, body)

    @effects.unkeyed(reconcile=find_mail, settle=settle, **words)
    def mail(to: str, body: str) -> str:
        return called("mail", to, body)

    @effects.keyed(**words)
    def charge(to: str, body: str, key: Key) -> str:
        return called("charge", to, body, str(key))

    @effects.idempotent(**words)
    def put(to: str, body: str) -> str:
        return called("put", to, body, once=True)

    return {"pay": pay, "mail": mail, "charge": charge, "put": put}


def _asynchronous(effects: Effects, world: World, settle: float, timeout: float) -> dict[str, Callable[..., Any]]:
    """The functions that are `async def`."""
    words = _options(timeout)

    async def called(function: str, to: str, body: str, key: str | None = None, once: bool = False) -> str:
        moment = MOMENT.get()
        await asyncio.sleep(moment.before)
        _befalls("before")
        name = world.apply(function, {"to": to, "body": body}, key, once)
        _befalls("after")
        await asyncio.sleep(moment.after)
        return name

    async def find_mail(to: str, body: str) -> str | None:
        return world.find("a_mail", {"to": to, "body": body})

    @effects.unkeyed(name="a_pay", **words)
    async def pay(to: str, body: str) -> str:
        return await called("a_pay", to, body)

    @effects.unkeyed(name="a_mail", reconcile=find_mail, settle=settle, **words)
    async def mail(to: str, body: str) -> str:
        return await called("a_mail", to, body)

    @effects.keyed(name="a_charge", **words)
    async def charge(to: str, body: str, key: Key) -> str:
        return await called("a_charge", to, body, str(key))

    @effects.idempotent(name="a_put", **words)
    async def put(to: str, body: str) -> str:
        return await called("a_put", to, body, once=True)

    return {"pay": pay, "mail": mail, "charge": charge, "put": put}


def bank_of(world: World) -> Engine:
    """The engine of the tool's own database; a connection is not kept, so a fork may use it."""
    return create_engine(f"sqlite:///{world.bank}", poolclass=NullPool)
