"""What keeps a store of effects small, and what says whether it is well."""

import os
import shutil
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, delete, func, select

from activities.effects.calls import UNSETTLED, State
from activities.effects.database import Database
from activities.effects.desk import CallRecord, Desk, place
from activities.effects.ledger import LEDGER
from activities.effects.owner import OWNERS, Life, boot_id, evidence, is_unlocked
from activities.effects.remedies import IDENTITY, OUTCOME, to_settle
from activities.storage.migrations import Stream
from activities.storage.store import StoreUnavailable, spoken

ORPHAN_SECONDS = 3600.0
"""The age of a lock file without an owner's row from which on it is removed: a process makes its row by its first
call."""
MAX_NAMED = 5
MAX_KEYS = 500
"""The most keys in one statement."""


@dataclass(frozen=True)
class Pruned:
    """What was deleted, or would be."""

    calls: Sequence[CallRecord]
    kept: int
    """How many calls are as old, and stay: they are not settled, or the newest."""
    owners: int
    files: Sequence[str]
    """The lock files of these owners, and those that no owner has."""
    before: datetime


def prune(desk: Desk, days: float, *, is_dry_run: bool) -> Pruned:
    """Delete calls that were claimed more than `days` ago, and what nothing needs any more; raises StoreUnavailable.

    What is not settled stays, and what such a call may be again, and the newest call: the file beside the store has its
    number.
    """
    before = datetime.now(UTC) - timedelta(days=days)

    def work(tx: Connection) -> Pruned:
        calls, kept = _old_calls(tx, before)
        owners = _idle_owners(desk.database, tx, [call.key for call in calls])
        if not is_dry_run:
            for at in range(0, len(calls), MAX_KEYS):
                keys = [call.key for call in calls[at : at + MAX_KEYS]]
                # As they were read: with PostgreSQL, a call may claim its row again meanwhile.
                settled = LEDGER.c.state.not_in([state.value for state in UNSETTLED])
                tx.execute(delete(LEDGER).where(LEDGER.c.key.in_(keys), LEDGER.c.at < before, settled))
            for owner in owners:
                tx.execute(delete(OWNERS).where(OWNERS.c.id == owner.id))
        files = [*(owner.lock_file for owner in owners if _is_own_file(owner)), *_orphans(desk.database, tx)]
        return Pruned(desk.records(tx, calls), kept, len(owners), files, before)

    if is_dry_run:
        return desk.database.read(work)
    done = desk.database.write(work)
    for file in done.files:  # after the commit: a file proves more than its absence
        Path(file).unlink(missing_ok=True)
    return done


def _old_calls(tx: Connection, before: datetime) -> tuple[Sequence[Any], int]:
    """The rows to delete, and how many others are as old."""
    ours = LEDGER.c.session.is_not(None)
    newest = tx.execute(select(func.max(LEDGER.c.seq))).scalar()
    unsettled = [state.value for state in UNSETTLED]
    needed = set(tx.execute(select(LEDGER.c.about).where(ours, LEDGER.c.state.in_(unsettled))).scalars())
    old = tx.execute(select(LEDGER).where(ours, LEDGER.c.at < before).order_by(LEDGER.c.seq)).all()
    gone = [row for row in old if _may_go(row, newest, needed)]
    return gone, len(old) - len(gone)


def _may_go(row: Any, newest: int | None, needed: Collection[str]) -> bool:
    is_being_undone = row.state == State.APPLIED and row.undone_by is not None
    return row.state not in UNSETTLED and row.seq != newest and row.key not in needed and not is_being_undone


def _idle_owners(database: Database, tx: Connection, gone: Collection[str]) -> list[Any]:
    """The owners that are over, and of which no row that stays depends."""
    gone = set(gone)
    needed = set[str | None]()
    for row in tx.execute(select(LEDGER.c.key, LEDGER.c.state, LEDGER.c.owner, LEDGER.c.reader)):
        if row.key not in gone:
            # Whether an answer was read depends on how its reader ended.
            needed |= {row.reader} | ({row.owner} if row.state in UNSETTLED else set())
    now, is_local = database.now(tx), database.is_local
    owners = [owner for owner in tx.execute(select(OWNERS)) if owner.id not in needed]
    return [owner for owner in owners if evidence(owner, now, is_local=is_local).life in (Life.DEAD, Life.ENDED)]


def _is_own_file(owner: Any) -> bool:
    """Whether the lock file of an owner is here, and its own."""
    try:
        status = os.stat(owner.lock_file)  # noqa: PTH116  # by the path of a row
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (owner.device, owner.inode)


def _orphans(database: Database, tx: Connection) -> Iterator[str]:
    """The lock files that nobody holds and no owner has: their processes made no call."""
    if database.file is None:  # the folder belongs to all stores in PostgreSQL that this user has
        return
    known = set(tx.execute(select(OWNERS.c.lock_file)).scalars())
    for file in database.folder.glob("*.lock"):
        path = str(file.absolute())
        try:
            age = time.time() - file.stat().st_mtime
        except OSError:
            continue
        # A new file may not be locked yet, and to ask would lock it for a moment.
        if path not in known and age > ORPHAN_SECONDS and is_unlocked(path):
            yield path


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    name: str
    status: Literal["ok", "warn", "fail", "skipped"]
    found: str
    remedy: str = ""


CHECKS = ("store", "revision", "keys", "file system", "owners folder", "owners", "unknown", "doubtful", "clock")


def check(desk: Desk) -> list[CheckResult]:
    """Whether a store can be used, and what in it waits for a person."""
    database = desk.database
    try:
        identity = desk.store_id()
        calls = desk.calls()
    except StoreUnavailable as error:
        return [_unusable(error), *(CheckResult(name, "skipped", "the store cannot be used") for name in CHECKS[1:])]
    return [
        CheckResult("store", "ok", f"{spoken(database.url)}, with {_count(len(calls), 'call')} ({identity})"),
        CheckResult("revision", "ok", ", ".join(f"{stream} {stream.newest}" for stream in Stream) + ", the newest"),
        CheckResult("keys", "ok", f"encrypted with {database.cipher.ids[0]}" if database.cipher else "not encrypted"),
        _file_system(database),
        _folder(desk),
        _owners(desk),
        _unknown(desk, calls),
        _doubtful(desk, calls),
        _clock(desk),
    ]


def _unusable(error: StoreUnavailable) -> CheckResult:
    found, _, remedy = str(error).removesuffix(".").rpartition(": ")
    return CheckResult("store", "fail", found, remedy)


def _file_system(database: Database) -> CheckResult:
    if (file := database.file) is None:
        return CheckResult("file system", "ok", "PostgreSQL keeps the store")
    free = shutil.disk_usage(file.parent).free
    found = f"{database.file_system or 'not known'}, {free // 1_000_000} MB free"
    if free < 50_000_000:
        return CheckResult(
            "file system", "warn", found, "make room: without it no call can be claimed, and none is made"
        )
    return CheckResult("file system", "ok", found)


def _folder(desk: Desk) -> CheckResult:
    """The folder with the locks of owners, and beside a SQLite file the mark that another file does not replace it."""
    folder, name = desk.database.folder, "owners folder"
    if not folder.is_dir():
        return CheckResult(name, "warn", f"{folder} is not there", "the next program that uses the store makes it")
    if not os.access(folder, os.W_OK):
        return CheckResult(name, "fail", f"{folder} cannot be written by this user", "run as the user who owns it")
    mark, locks = desk.database.mark, len(list(folder.glob("*.lock")))
    seq = f", mark {mark.seq}" if mark else ", without a mark" if desk.database.file else ""
    return CheckResult(name, "ok", f"{folder}: {_count(locks, 'lock file')}{seq}")


def _owners(desk: Desk) -> CheckResult:
    database = desk.database

    def work(tx: Connection) -> list[tuple[Any, Life]]:
        now, is_local = database.now(tx), database.is_local
        return [(owner, evidence(owner, now, is_local=is_local).life) for owner in tx.execute(select(OWNERS))]

    lives = [life for _, life in database.read(work)]
    found = ", ".join(f"{lives.count(life)} {life.value}" for life in Life if life in lives) or "none"
    if Life.UNKNOWN in lives:
        remedy = "on other machines, without a sign of life: look there whether their processes run"
        return CheckResult("owners", "warn", found, remedy)
    return CheckResult("owners", "ok", found)


def _unknown(desk: Desk, calls: Sequence[CallRecord]) -> CheckResult:
    found = [call for call in calls if call.is_unsettled and call.state is not State.DOUBTFUL]
    if not found:
        return CheckResult("unknown", "ok", "no call has an unknown outcome")
    first = "the program settles what it can when it makes the calls again. "
    return CheckResult("unknown", "warn", _named(found), first + _commands(desk, found, OUTCOME))


def _doubtful(desk: Desk, calls: Sequence[CallRecord]) -> CheckResult:
    found = [call for call in calls if call.state is State.DOUBTFUL]
    if not found:
        return CheckResult("doubtful", "ok", "no call is doubtful")
    return CheckResult("doubtful", "warn", _named(found), _commands(desk, found, IDENTITY))


def _named(calls: Sequence[CallRecord]) -> str:
    named = "; ".join(f"{call.function} ({call.key}) of {place(call.process)}" for call in calls[:MAX_NAMED])
    more = f"; {len(calls) - MAX_NAMED} more" if len(calls) > MAX_NAMED else ""
    return f"{_count(len(calls), 'call')}: {named}{more}"


def _commands(desk: Desk, calls: Sequence[CallRecord], missing: str) -> str:
    return " ".join(to_settle(call.key, missing, desk.database.url) for call in calls[:MAX_NAMED]).removesuffix(".")


def _clock(desk: Desk) -> CheckResult:
    database = desk.database
    now = database.read(database.now)
    if not database.is_local:
        apart = abs(now - time.time())
        found = f"of the database, {apart:.1f} s from this machine's, which decides nothing"
        return CheckResult("clock", "ok", found)
    earlier = select(func.count()).select_from(OWNERS).where(OWNERS.c.boot != boot_id())
    before = database.read(lambda tx: tx.execute(earlier).scalar_one())
    return CheckResult(
        "clock", "ok", f"{socket.gethostname()} is up for {now:.0f} s; {_count(before, 'owner')} of other boots"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
