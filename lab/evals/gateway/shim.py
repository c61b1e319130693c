"""Stands between a client and an MCP server at their pipes, and writes down each effect that the server makes.

    python shim.py FOLDER SERVER COMMAND...

A call with a token such as `fx-0017` in its arguments is an effect. FOLDER/journal.jsonl gets a line when it came, when
it was sent to the server, and when it was answered. FOLDER/holds/TOKEN says at which moment the call is to be held,
once: `before` it is sent, or `after` it was answered; the file then moves to FOLDER/held, and the call goes on when it
is gone there. `die-before` and `die-after` kill the server at that moment instead. An effect that was begun is let
finish before the server is killed: whether a server leaves an effect half done is its own affair.

It is a program of its own, started without site packages: it imports nothing of Replan.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

TOKEN = re.compile(r"\b(?:fx|click)-\d+\b")
HELD_SECONDS = 30.0
LAST_SECONDS = 1.5
"""Seconds that an effect has to end when this program is to end."""


class Shim:
    """One server and its client."""

    def __init__(self, folder: Path, server: str, command: list[str]) -> None:
        self._folder, self._name = folder, server
        # A session of its own, so that what kills this program's group kills no effect halfway.
        self._server = subprocess.Popen(  # noqa: S603  # what the eval names
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._journal = os.open(folder / "journal.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._answers = dict[Any, tuple[threading.Event, list[bytes]]]()
        self._sending, self._writing, self._making = threading.Lock(), threading.Lock(), threading.Lock()
        self._is_leaving = threading.Event()

    def run(self) -> None:
        threading.Thread(target=self._from_server, daemon=True).start()
        for line in sys.stdin.buffer:
            if token := _token(line):
                threading.Thread(target=self._make, args=(token, line), daemon=True).start()
            else:
                self._send(line)
        self.leave()

    def leave(self, code: int = 0) -> None:
        """End, and the server, as soon as no effect is under way."""
        self._is_leaving.set()
        self._making.acquire(timeout=LAST_SECONDS)
        self._server.kill()
        os._exit(code)

    def _make(self, token: str, line: bytes) -> None:
        number = json.loads(line)["id"]
        self._note(token, "came")
        self._hold(token, "before")
        done, answer = threading.Event(), list[bytes]()
        with self._making:
            if self._is_leaving.is_set():
                return
            if self._name == "git":
                _stage(line, token)
            self._answers[number] = (done, answer)
            self._note(token, "sent")
            self._send(line)
            done.wait()
            self._note(token, "failed" if _is_error(answer[0]) else "done")
        self._hold(token, "after")
        self._write(answer[0])

    def _hold(self, token: str, moment: str) -> None:
        wanted, held = self._folder / "holds" / token, self._folder / "held" / token
        try:
            said = wanted.read_text()
            if said.removeprefix("die-") != moment:
                return
            wanted.rename(held)
        except FileNotFoundError:
            return
        if said != moment:
            self.leave(1)
        until = time.monotonic() + HELD_SECONDS
        while held.exists() and time.monotonic() < until:
            time.sleep(0.01)

    def _from_server(self) -> None:
        for line in self._server.stdout or ():
            message = json.loads(line) if b'"id"' in line else {}
            waiting = self._answers.pop(message.get("id"), None) if "method" not in message else None
            if waiting is None:
                self._write(line)
            else:
                waiting[1].append(line)
                waiting[0].set()
        os._exit(1)  # the server is gone

    def _send(self, line: bytes) -> None:
        with self._sending:
            if self._server.stdin is None:
                return
            try:
                self._server.stdin.write(line)
                self._server.stdin.flush()
            except OSError:
                os._exit(1)

    def _write(self, line: bytes) -> None:
        with self._writing:
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except OSError:
                self.leave()

    def _note(self, token: str, event: str) -> None:
        said = {"at": time.time(), "server": self._name, "token": token, "event": event, "pid": os.getpid()}
        os.write(self._journal, json.dumps(said).encode() + b"\n")


def _token(line: bytes) -> str | None:
    """The token of a call with an effect; reads such as that of a reconcile have none of their own."""
    if b'"tools/call"' not in line:
        return None
    params = json.loads(line).get("params") or {}
    if params.get("name") not in ("git_commit", "write_query", "create_entities", "edit_file"):
        return None
    found = TOKEN.search(json.dumps(params.get("arguments")))
    return found.group() if found else None


def _is_error(line: bytes) -> bool:
    message = json.loads(line)
    result = message.get("result") or {}
    texts = [part.get("text", "") for part in result.get("content", ())]
    is_failure = any(text.startswith(("Database error", "Error:")) for text in texts)  # of sqlite, in a success
    return "error" in message or bool(result.get("isError")) or is_failure


def _stage(line: bytes, token: str) -> None:
    """Stage a new file before each commit, so that a second one would be made, and be seen."""
    repository = Path(json.loads(line)["params"]["arguments"]["repo_path"])
    (repository / f"{token}-{time.time_ns()}").write_text(token)
    subprocess.run(["git", "-C", str(repository), "add", "."], check=True, stdout=subprocess.DEVNULL)  # noqa: S603, S607


if __name__ == "__main__":
    shim = Shim(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=shim.leave, daemon=True).start())
    shim.run()
