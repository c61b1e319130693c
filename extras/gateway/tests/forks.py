"""Gateways that start within a tenth of a second: bridges and holders are forked from a process that has made one.

All else is real: they are processes with pipes, locks and sockets of their own, and the bridge starts the holder.
"""

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import preloaded
from tests.processes import ROOT

TILL = Path(__file__).with_name("till.py")


class Forks:
    """The process that forks, and the stand-in for the interpreter with which bridges start holders."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="replan-forks-")
        self._executable = f"{self._folder}/python"
        ours = shlex.join([sys.executable, "-IS", preloaded.STAND_IN, self._folder])
        real = shlex.quote(sys.executable)
        Path(self._executable).write_text(
            f'#!/bin/sh\ncase "$2" in extras.gateway.holder) exec {ours} "$0" "$@";; esac\nexec {real} "$@"\n'
        )
        Path(self._executable).chmod(0o700)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self._folder}/{preloaded.SOCKET}")
        listener.listen(64)
        command = [sys.executable, "-m", "extras.gateway.tests.forks", str(listener.fileno())]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
        listener.close()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("REPLAN_", "ANTHROPIC_"))}
        self._environment = kept

    def __enter__(self) -> Self:
        """Leave its end to the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process that forks."""
        self._process.communicate()

    def begin(self, words: Sequence[str], streams: Sequence[int], **variables: str) -> "Fork":
        """Begin `replan WORDS` with these streams."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"{self._folder}/{preloaded.SOCKET}")
        asked = {"command": ["-m", "replan", *words], "executable": self._executable, "is_leader": True}
        asked |= {"environment": {**self._environment, **variables}, "cwd": str(ROOT)}
        request = json.dumps(asked).encode()
        socket.send_fds(connection, [len(request).to_bytes(8, "big")], list(streams))
        connection.sendall(request)
        return Fork(connection)


class Fork:
    """A process that was forked."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._answers = connection, connection.makefile()
        self.pid = int(self._answers.readline())

    def kill(self) -> None:
        """End it without a word."""
        if not self._answers.closed:  # else another process may have its number
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Wait until it has ended."""
        if not self._answers.closed:
            with self._connection, self._answers:
                self._answers.readline()


async def _make_one(folder: Path) -> None:
    from activities.storage.store import sqlite_url
    from extras.gateway.effect_calls import AgentCall, EffectCalls, open_store
    from extras.gateway.local_tools import LocalTools
    from extras.gateway.offers import offers_of
    from extras.gateway.request import AgentRequest
    from extras.gateway.sessions import Session
    from extras.gateway.wire import Hello

    command = (sys.executable, "-IS", str(TILL), str(folder))
    tools = LocalTools(Hello(version="1", process="p", session="s", command=command, cwd=str(folder)), {}, None, None)
    found = dict[str, Any]()
    async with tools.loaded(found.update, lambda *_: None), tools.opened(sqlite_url(folder), None):
        calls = EffectCalls(open_store(str(folder / "store.db"), None), tools, AgentCall)
        offers = {offer.name: offer for offer in offers_of(found["tools"])}
        args: dict[str, Any] = {"who": "a", "amount": 1, "note": ""}
        await calls.call(offers["pay"], args, AgentRequest(Session("s"), "r", "c"))
        await asyncio.to_thread(calls.store.close)


def _load() -> None:
    """Load what bridges and holders need, and make one, so that all is there that is made once."""
    import extras.gateway.effect_calls
    import extras.gateway.serving  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "acts").mkdir()
        asyncio.run(_make_one(Path(folder)))
    preloaded.settle()


if __name__ == "__main__":
    preloaded.Server(socket.socket(fileno=int(sys.argv[1])), _load).serve()
    os._exit(0)
