"""What the recipes of docs/effects.md call: mails in a book, and a kill of their program.

`BOOK` is a file; `KILL` is empty, or the number of a mail of this process and `before`, `after` or `answered`.
"""

import os
import signal
import sqlite3
import threading


def _book():
    book = sqlite3.connect(os.environ["BOOK"], timeout=30)
    book.execute("CREATE TABLE IF NOT EXISTS mails (too TEXT, subject TEXT)")
    return book


def send(to: str, subject: str) -> str:
    """Send a mail; returns its number."""
    number = next(NUMBERS)
    _come(number, "before")
    with _book() as book:
        mail = book.execute("INSERT INTO mails VALUES (?, ?)", (to, subject)).lastrowid
    _come(number, "after")
    if os.environ.get("KILL") == f"{number}/answered":
        threading.Timer(0.03, _die).start()
    return f"mail {mail} to {to}"


def find_mail(to: str, subject: str) -> str | None:
    """What `send` returned for the newest mail with these arguments; None if there is none."""
    with _book() as book:
        query = "SELECT max(rowid) FROM mails WHERE too = ? AND subject = ?"
        (mail,) = book.execute(query, (to, subject)).fetchone()
    return f"mail {mail} to {to}" if mail else None


NUMBERS = iter(range(1, 1000))


def _come(number, moment):
    if os.environ.get("KILL") == f"{number}/{moment}":
        _die()


def _die():
    os.kill(os.getpid(), signal.SIGKILL)
