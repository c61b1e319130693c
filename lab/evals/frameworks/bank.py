"""What function tools of agents change, a book in SQLite, and the moment at which their process is killed.

It needs Python alone, so that it runs in the environment of each framework.
"""

import functools
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

_NUMBER: ContextVar[int] = ContextVar("number of the call")
MOMENTS = {
    "called": "when the framework calls the tool, and nothing is claimed",
    "sending": "during the effect, before the world has it",
    "committed": "right after the world has it",
    "recorded": "when the result is recorded",
    "returned": "after the tool has returned",
}
"""When an agent is killed, in the order in which the moments of a call come."""


class Bank:
    """Pays, once for each key, and mails."""

    def __init__(self, book: str, kill: str) -> None:
        """`kill` is the number of the call, the moment and the seconds after it, as in `2/committed/0.01`; or `never`.

        The calls of a process are counted from 1; only the first process with this `book` is killed.
        """
        self._book, self._calls = book, 0
        number, self._moment, seconds = kill.split("/") if "/" in kill else ("0", "", "0")
        self._number, self._seconds = int(number), float(seconds)

    def pay(self, who: str, key: str) -> str:
        """Pay somebody, and return the number of the payment; an equal key gets the first payment's."""
        return self._change("pay", who, key)

    def mail(self, to: str, subject: str) -> str:
        """Send a mail, and return its number."""
        return self._change("mail", f"{to}: {subject}", None)

    def find_mail(self, to: str, subject: str) -> str | None:
        """The number of the first mail with these arguments; None if there is none."""
        with self._opened() as book:
            row = book.execute(
                "SELECT rowid FROM book WHERE kind = 'mail' AND what = ?", (f"{to}: {subject}",)
            ).fetchone()
        return f"mail {row[0]}" if row else None

    def passes(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """A function that calls `function`, and is killed after it if that is the moment."""

        @functools.wraps(function)
        async def passing(*args: Any, **named: Any) -> Any:
            self._calls += 1
            number = self._calls
            _NUMBER.set(number)
            self._come("called", number)
            value = await function(*args, **named)
            self._come("recorded", number)
            self._come("returned", number)
            return value

        return passing

    def _change(self, kind: str, what: str, key: str | None) -> str:
        number = _NUMBER.get()
        self._come("sending", number)
        with self._opened() as book:
            book.execute(
                "INSERT INTO book (kind, what, key) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (kind, what, key)
            )
            same = "SELECT max(rowid) FROM book WHERE kind = ? AND what = ? AND key IS ?"
            receipt = book.execute(same, (kind, what, key)).fetchone()[0]
        self._come("committed", number)
        return f"{kind} {receipt}"

    def _opened(self) -> sqlite3.Connection:
        book = sqlite3.connect(self._book, timeout=30)
        book.execute("CREATE TABLE IF NOT EXISTS book (kind TEXT, what TEXT, key TEXT UNIQUE)")
        return book

    def _come(self, moment: str, number: int) -> None:
        if (moment, number) != (self._moment, self._number):
            return
        if moment == "returned":  # what comes next goes on until the drawn time is over
            threading.Timer(self._seconds, _die).start()
            return
        time.sleep(self._seconds)
        _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
