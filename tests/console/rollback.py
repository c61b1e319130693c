"""Workers with tools of every effect, the tasks that they run, and what really happened."""

import json
import sqlite3
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from tests import preloaded
from tests.console.rollback_tools import BOOKS
from tests.processes import ROOT, Processes, Running

TOOLS = Path(__file__).with_name("rollback_tools.py")


class Rollbacks(Processes):
    """Worker processes on a queue of their own, and the commands that a person gives."""

    def __init__(self, address: str, folder: Path) -> None:
        super().__init__(address, folder, {"ROLLBACK_FOLDER": str(folder)})
        self.queue = f"rollback-{uuid.uuid4().hex[:8]}"
        bank = create_engine(f"sqlite:///{folder / 'bank.db'}")
        BOOKS.create_all(bank)
        bank.dispose()

    def one(self) -> AbstractContextManager[Running]:
        return self.worker("--tools", str(TOOLS), "--queue", self.queue)

    def run_task(self, *kinds: str, options: Sequence[str] = (), id: str | None = None) -> str:
        """Run a task of one step for each kind, one after the other, and return its id; `kind:word` gives a word."""
        given = [kind.partition(":") for kind in kinds]
        steps: list[dict[str, Any]] = [
            {"id": kind, "kind": kind, "args": {"word": word or kind} if kind not in ("person", "linger") else {}}
            for kind, _, word in given
        ]
        for before, after in pairwise(steps):
            after["needs"] = [before["id"]]
        plan, chosen = self.folder / f"{uuid.uuid4().hex[:8]}.json", id or f"task-{uuid.uuid4().hex[:8]}"
        plan.write_text(json.dumps({"steps": steps, "task": "a task"}))
        self.starter("start", "--plan", str(plan), "--id", chosen, "--queue", self.queue, "--replans", "0", *options)
        return chosen

    def begin(self, *words: str) -> subprocess.Popen[str]:
        command = [preloaded.python(), str(preloaded.STARTER), *words]
        return subprocess.Popen(command, env=self._environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)

    def calls(self) -> list[str]:
        """What was called, in order, without keys."""
        file = self.folder / "calls"
        return [" ".join(line.split()[:2]) for line in file.read_text().splitlines()] if file.exists() else []

    def called(self, call: str) -> None:
        until = time.monotonic() + 40
        while call not in self.calls():
            assert time.monotonic() < until, self.calls()
            time.sleep(0.05)

    def clear(self) -> None:
        """Forget what really happened so far: the calls, and all notes and deposits."""
        (self.folder / "calls").unlink(missing_ok=True)
        for file, table in (("state/store.db", "rollback_notes"), ("bank.db", "deposits")):
            with closing(sqlite3.connect(self.folder / file, timeout=20)) as database, database:
                database.execute(f"DELETE FROM {table}")  # noqa: S608 - the names above

    def rows(self) -> int:
        """How many notes and deposits there are."""
        with sqlite3.connect(self.folder / "state" / "store.db") as store:
            [notes] = store.execute("SELECT count(*) FROM rollback_notes").fetchone()
        with sqlite3.connect(self.folder / "bank.db") as bank:
            [deposits] = bank.execute("SELECT count(*) FROM deposits").fetchone()
        return int(notes) + int(deposits)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """While this lasts, letters cannot be recalled."""
        hang = self.folder / "hang"
        hang.touch()
        try:
            yield
        finally:
            hang.unlink()


def document(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)
