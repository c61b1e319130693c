"""Hand-written clients of both protocols over pipes and HTTP, which break off, give up and cancel as they are told."""

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from extras.gateway.tests.agents import HELLO
from extras.gateway.tests.forks import Fork
from extras.gateway.tests.http import ACCEPTS, META, NEW

START_SECONDS = 30.0


class _Answers:
    """The answers that have come."""

    def __init__(self, is_new: bool) -> None:
        self.is_lost = False
        """Whether the other end is gone."""
        self._is_new, self._number = is_new, 0
        self._answers, self._changed = dict[int, dict[str, Any]](), threading.Condition()
        self.arrived = dict[int, float]()
        """By number, when an answer came, also to a call that was given up."""

    def _next(self, method: str, params: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._changed:
            self._number += 1
            number = self._number
        if self._is_new:
            params = {**params, "_meta": {**META, **params.get("_meta", {})}}
        return number, {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def _note(self, message: dict[str, Any]) -> None:
        with self._changed:
            if "method" not in message and message.get("id") is not None:
                self._answers[message["id"]] = message
                self.arrived[message["id"]] = time.time()
            self._changed.notify_all()

    def wait(self, number: int, seconds: float) -> dict[str, Any] | None:
        """The answer to a call; None if there is none within so many seconds, or if the connection was lost."""
        until = time.monotonic() + seconds
        with self._changed:
            while number not in self._answers and not self.is_lost:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            return self._answers.get(number)

    def _lose(self) -> None:
        with self._changed:
            self.is_lost = True
            self._changed.notify_all()


class Piped(_Answers):
    """A client at the pipes of a bridge."""

    def __init__(self, start: Callable[[list[int]], Fork], is_new: bool) -> None:
        super().__init__(is_new)
        (mine, theirs), (read, written) = os.pipe()[::-1], os.pipe()
        self.fork = start([theirs, written])
        os.close(theirs)
        os.close(written)
        self._source, self._sink = os.fdopen(read, "rb"), mine
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        if not is_new:
            self.wait(self._send(*self._next("initialize", HELLO)), START_SECONDS)
            self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            for line in self._source:
                self._note(json.loads(line))
        self._lose()

    def _say(self, message: dict[str, Any]) -> None:
        with suppress(OSError):
            os.write(self._sink, json.dumps(message).encode() + b"\n")

    def _send(self, number: int, message: dict[str, Any]) -> int:
        self._say(message)
        return number

    def begin(self, params: dict[str, Any]) -> int:
        """Send the call of a tool; returns its number."""
        return self._send(*self._next("tools/call", params))

    def cancel(self, number: int) -> bool:
        """Say that the answer is not waited for; False if there is no way to say so any more."""
        self._say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        return True

    def hang_up(self, number: int) -> bool:
        """Give a call up as clients do who close its connection; False if that has nothing to wait for any more."""
        return self.cancel(number)

    def leave(self) -> None:
        """End in order."""
        if self._sink >= 0:
            os.close(self._sink)
            self._sink = -1
        self._reading.join(START_SECONDS)
        self.fork.wait()
        self._source.close()

    def kill(self) -> None:
        """End without a word."""
        self.fork.kill()
        self.leave()


class Web(_Answers):
    """A client over HTTP: one connection of TCP for calls in turn, and others beside it."""

    def __init__(self, port: int, path: str, is_new: bool) -> None:
        super().__init__(is_new)
        self._port, self._path = port, path
        self._session = dict[str, str]()
        self._free = list[http.client.HTTPConnection]()
        self._busy = dict[int, http.client.HTTPConnection]()
        self._threads = list[threading.Thread]()
        if not is_new:
            self._post(*self._next("initialize", HELLO))
            self._post(0, {"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _post(self, number: int, message: dict[str, Any]) -> None:
        with self._changed:
            line = self._free.pop() if self._free else http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            self._busy[number] = line
        version = NEW if self._is_new else str(HELLO["protocolVersion"])
        headers = {**ACCEPTS, "mcp-protocol-version": version, **self._session}
        if self._is_new:
            headers |= {"mcp-method": message["method"], "mcp-name": message["params"].get("name", "")}
        try:
            line.request("POST", self._path, json.dumps(message), headers)
            response = line.getresponse()
            if found := response.getheader("mcp-session-id"):
                self._session["mcp-session-id"] = found
            self._take(response)
        except (OSError, http.client.HTTPException, AttributeError, ValueError):
            line.close()
            if self._busy.pop(number, None) is not None:
                self._lose()
            return
        with self._changed:
            is_cut = number > 0 and number not in self._answers  # the stream has ended without an answer
            is_waited_for = self._busy.pop(number, None) is not None
            is_free = is_waited_for and not is_cut and not self.is_lost
            if is_free:
                self._free.append(line)
        if not is_free:
            line.close()
        if is_waited_for and is_cut:
            self._lose()

    def _take(self, response: http.client.HTTPResponse) -> None:
        if (response.getheader("content-type") or "").startswith("application/json"):
            if body := response.read():
                self._note(json.loads(body))
            return
        while line := response.readline():
            if line.startswith(b"data:") and line[5:].strip():
                self._note(json.loads(line[5:]))

    def begin(self, params: dict[str, Any]) -> int:
        number, message = self._next("tools/call", params)
        thread = threading.Thread(target=self._post, args=(number, message), daemon=True)
        thread.start()
        self._threads.append(thread)
        return number

    def cancel(self, number: int) -> bool:
        if self._is_new:
            return self.hang_up(number)
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
        self._post(-number, told)
        return True

    def hang_up(self, number: int) -> bool:
        with self._changed:
            line = self._busy.pop(number, None)
        if line is not None:
            _cut(line)
        return line is not None

    def leave(self) -> None:
        self.kill()

    def kill(self) -> None:
        with self._changed:
            lines = [*self._busy.values(), *self._free]
            self._busy.clear()
            self._free.clear()
        self._lose()
        for line in lines:
            _cut(line)
        for thread in self._threads:
            thread.join(1)


def _cut(line: http.client.HTTPConnection) -> None:
    with suppress(OSError, AttributeError):
        if line.sock is not None:
            line.sock.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        line.close()


Client = Piped | Web
"""One connection of an agent."""
