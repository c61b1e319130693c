"""A program with effects in a store, in this process and in forked ones that are killed."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replan.effects import Effects

PROGRAM = """
import os
from replan.effects import Effects

effects = Effects({store!r}, session="order 17")

@effects.idempotent
def cancel_order(item: str, result: dict) -> str:
    with open({world!r}, "a") as world:
        print("cancel", item, result["id"], file=world)
    return "cancelled"

@effects.unkeyed(undo=cancel_order)
def order(item: str, note: str = "") -> dict:
    with open({world!r}, "a") as world:
        print("order", item, file=world)
    return {{"id": item}}
"""


@dataclass
class Shop:
    """A shop with an agent that orders, and a file that has what certainly happened."""

    folder: Path
    effects: Effects = field(init=False)
    pid: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        """Declare the functions."""
        self.effects = Effects(self.store, session="order 17")
        self.cancel = self.effects.idempotent(self._cancel)
        self.order = self.effects.unkeyed(undo=self.cancel)(self._order)

    @property
    def store(self) -> str:
        """The path of the store."""
        return str(self.folder / "agent.db")

    @property
    def world(self) -> list[str]:
        """What happened, in order."""
        file = self.folder / "world"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def note(self, line: str) -> None:
        """Let something happen."""
        with (self.folder / "world").open("a", encoding="utf-8") as world:
            print(line, file=world)

    def _order(self, item: str, note: str = "") -> dict[str, str]:
        if note.startswith("before"):
            self._die()
        self.note(f"order {item}")
        if note.startswith("after"):
            self._die()
        if note == "stays":
            time.sleep(600)
        return {"id": item}

    def _cancel(self, item: str, result: dict[str, str]) -> str:
        self.note(f"cancel {item} {result['id']}")
        if item == "deadly" and self.world.count("cancel deadly deadly") == 1:
            self._die()
        return "cancelled"

    def _die(self) -> None:
        assert os.getpid() != self.pid, "this process was to make no such call"
        os.kill(os.getpid(), signal.SIGKILL)

    def unknown(self) -> str:
        """The key of a call whose process was killed after its effect."""
        self.dies(lambda: self.order("lamp", "after"))
        return self.key("unknown")

    def doubtful(self) -> str:
        """The key of a doubtful call, which may be that of `unknown` in other words."""
        self.unknown()
        self.dies(lambda: self.order("lamp", "after this one comes another one"))
        return self.key("doubtful")

    def key(self, state: str) -> str:
        """The key of the newest call in a state."""
        return [call.key for call in self.effects.calls() if call.state == state][-1]

    def state(self, key: str) -> str:
        """The state of a call."""
        return str(self.effects.desk.call(key).state)

    def dies(self, work: Callable[[], Any]) -> None:
        """Run `work` in a forked process, which is killed in it or, if it ends, after it."""
        os.waitpid(self.lives(work), 0)

    def lives(self, work: Callable[[], Any]) -> int:
        """Run `work` in a forked process, and return its id."""
        self.effects.close()
        if (child := os.fork()) == 0:
            try:
                os.close(2)  # what it raises is asked of the store
                work()
            finally:
                sys.stdout.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        return child

    def program(self) -> str:
        """The folder of a module `shop_program` with the same functions."""
        text = PROGRAM.format(store=self.store, world=str(self.folder / "world"))
        (self.folder / "shop_program.py").write_text(text, encoding="utf-8")
        return str(self.folder)
