"""Agents of the tests: processes of `replan mcp` with a hand-written client, which breaks off where a test says."""

import fcntl
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.processes import ROOT

SHOP = Path(__file__).with_name("shop.py")
PATIENCE = 100.0
PAY, NOT_AGAIN = {"who": "ann"}, "Not done again"
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Agent:
    """One process of the gateway, and the agent at its pipes."""

    def __init__(self, place: "Place", *options: str, is_silent: bool = False) -> None:
        """One that is silent reads nothing."""
        self._process = subprocess.Popen(
            [place.python, "-m", "replan", "mcp", *place.mode, "--state", str(place.state), "--idle", "4", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=place.environment,
            cwd=ROOT,
            text=True,
            start_new_session=True,
        )
        self._answers = dict[int, dict[str, Any]]()
        self._lines: queue.Queue[str] = queue.Queue()
        self.notifications = list[dict[str, Any]]()
        self._number = 0
        self.about = dict[str, Any]()
        """What the server said of itself."""
        self._reading = threading.Thread(target=self._read, daemon=True)
        if not is_silent:
            self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def send(self, method: str, params: dict[str, Any] | None = None, *, is_request: bool = True) -> int:
        """Send a message; returns the number of a request."""
        assert self._process.stdin is not None
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if is_request:
            self._number += 1
            message["id"] = self._number
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        return self._number

    def answer(self, number: int, seconds: float = PATIENCE) -> dict[str, Any]:
        """The whole answer to a request."""
        until = time.monotonic() + seconds
        while number not in self._answers:
            try:
                message = json.loads(self._lines.get(timeout=max(0.01, until - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"no answer to {number} within {seconds} s") from None
            if "id" in message:
                assert message["id"] not in self._answers, "two answers"
                self._answers[message["id"]] = message
            else:
                self.notifications.append(message)
        return self._answers[number]

    def hello(self) -> None:
        """Shake hands."""
        self.about = self.answer(self.send("initialize", HELLO))["result"]
        self.send("notifications/initialized", is_request=False)

    def tools(self) -> dict[str, dict[str, Any]]:
        listed = self.answer(self.send("tools/list"))["result"]["tools"]
        return {tool["name"]: tool for tool in listed}

    def begin(self, tool: str, args: dict[str, Any] | None = None, **meta: str) -> int:
        """Send a call without waiting for its answer."""
        named = {f"replan/{name}": value for name, value in meta.items()}
        return self.send("tools/call", {"name": tool, "arguments": args or {}, "_meta": named})

    def call(self, tool: str, args: dict[str, Any] | None = None, **meta: str) -> dict[str, Any]:
        """The result of a call."""
        answer = self.answer(self.begin(tool, args, **meta))
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def kill(self) -> None:
        """End the process without a word."""
        self._process.kill()
        self._close()

    def kill_group(self) -> None:
        """End the process and all of its group, as a client does that was killed with what it started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._close()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def leave_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.returncode

    def _close(self) -> None:
        self._process.wait(30)
        if self._reading.ident is not None:
            self._reading.join(30)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def hang_up(self) -> None:
        """Close stdin, as agents do, and as their death does."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def leave(self) -> int:
        """Close stdin, and wait for the end of the process; returns its exit code."""
        self.hang_up()
        self._close()
        return self._process.returncode

    def errors(self) -> str:
        """What it says when it ends by itself."""
        assert self._process.stderr is not None
        said = self._process.stderr.read()
        self._close()
        return said


class Place:
    """A state folder with a shop."""

    def __init__(self, folder: Path, address: str = "", python: str = sys.executable, mode: Sequence[str] = ()) -> None:
        """`python` starts the gateway, and with it the gateway starts its own programs; `mode` are options of all."""
        self.python, self.mode = python, mode
        self.state, self.book, self.gate = folder / "state", folder / "book", folder / "gate"
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("REPLAN_", "ANTHROPIC_"))}
        self.environment = {**ours, **({"TEMPORAL_ADDRESS": address} if address else {})}
        self._agents = list[Agent]()

    def agent(self, session: str | None = None, *options: str, is_gated: bool = False) -> Agent:
        """An agent that has shaken hands."""
        named = ["--session", session] if session else []
        gate = [str(self.gate)] if is_gated else []
        return self._greeted(*named, *options, "--", *self.shop, *gate)

    @property
    def shop(self) -> list[str]:
        """The command of the shop."""
        return [sys.executable, str(SHOP), str(self.book)]

    @property
    def slow_shop(self) -> list[str]:
        """That of a shop that starts when the gate is open."""
        return ["sh", "-c", f"until [ -e {self.gate} ]; do sleep 0.1; done; exec {' '.join(self.shop)}"]

    def shops(self, script: Path = SHOP) -> list[psutil.Process]:
        """The processes of this place's shop, without those that watch them."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = process.cmdline()
                if str(self.book) in words and str(script) in words[:3] and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def tools_file(self, rows: str, *, is_gated: bool = False) -> Path:
        """A tools file with the shop and these rows."""
        self.state.mkdir()
        command = [*self.shop, *([str(self.gate)] if is_gated else [])]
        file = self.state / "shop.toml"
        file.write_text(f"[servers.shop]\ncommand = {json.dumps(command)}\n\n{rows}")
        return file

    def of_tools(self, file: Path, *options: str) -> Agent:
        """An agent that has shaken hands, with the tools of a file."""
        return self._greeted("--tools", str(file), *options)

    def of_command(self, *command: str, session: str, patience: float = 30, options: Sequence[str] = ()) -> Agent:
        """An agent that has shaken hands, with the server of a command."""
        return self._greeted("--session", session, "--patience", f"{patience:g}", *options, "--", *command)

    def _greeted(self, *words: str) -> Agent:
        agent = Agent(self, *words)
        self._agents.append(agent)
        agent.hello()
        return agent

    @property
    def paid(self) -> list[str]:
        """Who was paid, in order."""
        return self.book.read_text().split() if self.book.exists() else []

    def until_paid(self, count: int) -> None:
        """Wait until so many payments are in the book."""
        until(lambda: len(self.paid) >= count)

    def open_gate(self) -> None:
        self.gate.touch()

    def kill_all(self) -> None:
        """Kill the holders and all that they started, and wait until they are gone."""
        found = [psutil.Process(pid) for pid in self.holders]
        killed = [*found, *(child for holder in found for child in holder.children(recursive=True))]
        for process in killed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(killed, PATIENCE)

    @property
    def holders(self) -> dict[int, Path]:
        """The process ids of the holders that run, each with its lock file."""
        found = dict[int, Path]()
        for lock in (self.state / "gateway").glob("*.lock"):
            with suppress(ValueError, psutil.NoSuchProcess):
                pid = int(lock.read_text())
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE and _is_locked(lock):
                    found[pid] = lock
        return found

    def close(self) -> None:
        """End the agents and the holders, and all that these started."""
        for agent in self._agents:
            agent.kill()
        for holder in self.holders:
            with suppress(ProcessLookupError):
                os.kill(holder, signal.SIGTERM)
        until(lambda: not self.holders)


def said(result: Mapping[str, Any]) -> str:
    """The texts of a result."""
    return "\n".join(part["text"] for part in result["content"] if part["type"] == "text")


def until(is_so: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Wait until it is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def _is_locked(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
