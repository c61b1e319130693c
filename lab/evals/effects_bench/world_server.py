"""Serves the world of one task over HTTP and MCP on loopback, writes down each call, and fails where it is told to.

`world_server.py SUITE` reads one trial a line from standard input, as JSON, and answers with the port of a child that
serves it: importing the worlds takes seconds, a child nothing. It needs nothing of this project.
"""

import json
import os
import signal
import socket
import sqlite3
import struct
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import worlds

SLOW_SECONDS = 4.5
"""How long a slow answer takes; every arm waits for two seconds."""
RETRY_AFTER = 1
"""Seconds, of the header of a 429."""
REFUSED = 422
"""The status of what a tool itself refuses."""
KEYED, KEY = "/mcp/keyed", "request_id"
"""The path of MCP at which each tool that changes something takes an idempotency key, and the argument for it."""
TIMES = {"limited": 2, "unavailable": 2}
"""How many attempts a fault answers; every other one, except `unauthorized`, which stays, answers one."""


class Reply(NamedTuple):
    """What a call is answered with."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = {}


@dataclass
class Trial:
    """One trial: its task, where its journal is, and which attempt at a change fails how."""

    suite: str
    task: str
    journal: str
    fault: str = "none"
    at: int = 1
    """Of the calls that change the world, the one at which the fault begins, counted from 1 without repetitions."""


class Stage:
    """A world that is played, its journal and its fault."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.lock, self.caller = trial, threading.Lock(), 0
        make, task = worlds.SUITES[trial.suite][1], _task(trial)
        solution = worlds.solved(trial.suite, task)
        self.task, self.wanted, self.solution = task, solution.state, solution
        self.world = make(task)
        target = solution.changing[trial.at - 1]
        self.target = task.calls[target]
        self.begun, self.left = False, TIMES.get(trial.fault, 1)
        self.changed_by_others, self.known = False, dict[str, tuple[str, Any]]()
        self.mark, self.tools = self.world.mark(), self._described()
        self.book = sqlite3.connect(trial.journal, check_same_thread=False)
        with self.book:
            self.book.execute(
                "CREATE TABLE calls (number INTEGER PRIMARY KEY, at REAL, tool TEXT, args TEXT, key TEXT, fault TEXT,"
                " outcome TEXT, changed INTEGER, seconds REAL)"
            )

    def call(self, tool: str, args: dict[str, Any], key: str | None) -> Reply | None:
        """Answer a call; None cuts the connection."""
        begun = time.monotonic()
        with self.lock:
            self.begun_at = begun
            fault = self._fault(tool, args)
            if fault == "unsent":
                self._note(tool, args, key, fault, "not done", False)
                return None
            if fault in REFUSALS:
                self._note(tool, args, key, fault, "not done", False)
                return REFUSALS[fault]
            if self.changed_by_others and tool in READING[self.trial.suite]:
                self.changed_by_others = False  # the caller has looked
            if key is not None and key in self.known and self.known[key][0] == _said(tool, args):
                reply = Reply(200, self.known[key][1])
                self._note(tool, args, key, fault, "known", False)
            else:
                reply = self._made(tool, args, key, fault)
        if fault == "killed":
            kill_all(self.caller, Path(self.trial.journal).parent)
            return None
        if fault == "slow":
            time.sleep(SLOW_SECONDS)
        return None if fault == "unanswered" else reply

    def _made(self, tool: str, args: dict[str, Any], key: str | None, fault: str) -> Reply:
        """Make a call; the change and its row in the journal are there together, or neither is."""
        refusal, body = "", dict[str, Any]()
        try:
            body = {"ok": True, "result": self.world.call(tool, args)}
        except Exception as error:  # whatever a published tool raises is its refusal
            refusal = str(error) or type(error).__name__
        before, self.mark = self.mark, self.world.mark()
        self._note(tool, args, key, fault, refusal or "done", self.mark != before)
        if refusal:
            return Reply(REFUSED, {"error": refusal})
        if key is not None:
            self.known[key] = (_said(tool, args), body)
        return Reply(200, body)

    def _fault(self, tool: str, args: dict[str, Any]) -> str:
        """The fault of this attempt; it begins at the call that the trial names."""
        is_target = (tool, _said(tool, args)) == (self.target.tool, _said(self.target.tool, dict(self.target.args)))
        if self.trial.fault == "none" or not is_target:
            return ""
        if self.trial.fault == "unauthorized":
            return "unauthorized"
        if self.trial.fault == "conflict":
            if not self.begun:
                self.begun = self.changed_by_others = True
            return "conflict" if self.changed_by_others else ""
        if self.left <= 0:
            return ""
        self.left -= 1
        return self.trial.fault

    def _note(self, tool: str, args: dict[str, Any], key: str | None, fault: str, outcome: str, changed: bool) -> None:
        seconds = time.monotonic() - self.begun_at
        row = (time.time(), tool, json.dumps(args, sort_keys=True), key, fault, outcome, int(changed), seconds)
        with self.book:
            self.book.execute(
                "INSERT INTO calls (at, tool, args, key, fault, outcome, changed, seconds)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def told(self) -> dict[str, Any]:
        """What the judge and the model are told: the solution, and whether the world is as it should be."""
        calls, reading = [asdict(call) for call in self.task.calls], READING[self.trial.suite]
        reads = [number for number, call in enumerate(self.task.calls) if call.tool in reading]
        with self.lock:
            is_right = self.world.state() == self.wanted
        told = {"text": self.task.text, "calls": calls, "changing": self.solution.changing, "reads": reads}
        return {**told, "is_right": is_right}

    def _described(self) -> list[dict[str, Any]]:
        """The tools, and of each whether it changes something; None if no solution shows it."""
        changing, reading = CHANGING[self.trial.suite], READING[self.trial.suite]
        return [
            {**one, "changes": True if one["name"] in changing else False if one["name"] in reading else None}
            for one in self.world.described()
        ]


def kill_all(caller: int, folder: Path) -> None:
    """Kill the caller, and whatever else runs for its trial: their environment names the folder."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            variables = place.joinpath("environ").read_bytes().split(b"\0")
            if f"FOLDER={folder}".encode() in variables:
                os.kill(int(place.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended, or is not ours
    if caller:
        os.kill(caller, signal.SIGKILL)


REFUSALS = {
    "limited": Reply(429, {"error": "Too many requests. Try again in 1 second."}, {"Retry-After": str(RETRY_AFTER)}),
    "unavailable": Reply(503, {"error": "The service is not available now. Try again later."}),
    "unauthorized": Reply(401, {"error": "The credentials are not valid."}),
    "conflict": Reply(409, {"error": "Somebody else has changed this meanwhile. Read it again first."}),
}
CHANGING: dict[str, frozenset[str]] = {}
"""By suite, the tools that change something in any solution."""
READING: dict[str, frozenset[str]] = {}
"""By suite, the tools of solutions that never change anything."""


def _said(tool: str, args: Mapping[str, Any]) -> str:
    return json.dumps([tool, args], sort_keys=True)


def _task(trial: Trial) -> worlds.Task:
    return next(one for one in worlds.SUITES[trial.suite][0]() if one.id == trial.task)


class Handler(BaseHTTPRequestHandler):
    """HTTP: `/tools`, `/call/TOOL`, `/mcp`, and for the trial `/told` and `/caller`."""

    protocol_version = "HTTP/1.1"
    stage: Stage

    def do_GET(self) -> None:  # as `http.server` names it
        match self.path:
            case "/tools":
                self._send(Reply(200, {"tools": self.stage.tools}))
            case "/told":
                self._send(Reply(200, self.stage.told()))
            case _:
                self._send(Reply(405, {"error": "POST it"}))

    def do_DELETE(self) -> None:
        self._send(Reply(200, {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if self.path == "/caller":
            self.stage.caller = body["pid"]
            self._send(Reply(200, {}))
        elif self.path.startswith("/call/"):
            self._answer(self.stage.call(self.path.removeprefix("/call/"), body, self.headers.get("idempotency-key")))
        elif self.path in ("/mcp", KEYED):
            self._mcp(body)
        else:
            self._send(Reply(404, {"error": "no such path"}))

    def _mcp(self, body: dict[str, Any]) -> None:
        """One message of MCP, over streamable HTTP without a session."""
        method, params = body.get("method"), body.get("params") or {}
        if "id" not in body:
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        result: dict[str, Any]
        match method:
            case "initialize":
                version = params.get("protocolVersion", "2025-06-18")
                server = {"name": "world", "version": "1"}
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
            case "tools/list":
                result = {"tools": [_mcp_tool(one, has_key=self.path == KEYED) for one in self.stage.tools]}
            case "tools/call":
                args = dict(params.get("arguments") or {})
                key = args.pop(KEY, None) if self.path == KEYED else None
                reply = self.stage.call(params["name"], args, key)
                if reply is None:
                    self._answer(None)
                    return
                if reply.status not in (HTTPStatus.OK, HTTPStatus.CONFLICT, REFUSED):
                    error = {"code": -32000, "message": reply.body["error"]}
                    self._send(reply._replace(body={"jsonrpc": "2.0", "id": body["id"], "error": error}))
                    return
                text = [{"type": "text", "text": json.dumps(reply.body)}]
                result = {"content": text, "isError": reply.status != HTTPStatus.OK}
            case _:
                result = {}
        self._send(Reply(200, {"jsonrpc": "2.0", "id": body["id"], "result": result}))

    def _answer(self, reply: Reply | None) -> None:
        if reply is not None:
            self._send(reply)
            return
        # A reset, and not an end of file: what a peer that is gone answers with.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def _send(self, reply: Reply) -> None:
        text = json.dumps(reply.body).encode()
        try:
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except OSError:
            self.close_connection = True  # the caller is gone

    def log_message(self, *_: object) -> None:
        """Say nothing: the journal says it."""


def _mcp_tool(tool: Mapping[str, Any], *, has_key: bool) -> dict[str, Any]:
    schema = dict(tool["parameters"])
    if has_key and tool["changes"]:
        schema["properties"] = {**schema["properties"], KEY: {"type": "string", "description": "An idempotency key."}}
    about = {"name": tool["name"], "description": tool["description"], "inputSchema": schema}
    return about if tool["changes"] is None else {**about, "annotations": {"readOnlyHint": not tool["changes"]}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of connections that a caller, or a fault, has cut."""


def serve(trial: Trial, pipe: int) -> None:
    """Serve a trial until this process is ended; its port goes into the pipe."""
    stage = Stage(trial)
    server = _Server(("127.0.0.1", 0), type("Of", (Handler,), {"stage": stage}))
    os.write(pipe, f"{server.server_address[1]}\n".encode())
    os.close(pipe)
    server.serve_forever()


def main() -> None:
    """Answer each line of standard input with the number of a process and its port."""
    tables = json.loads(sys.argv[1])
    CHANGING.update({suite: frozenset(about["changing"]) for suite, about in tables.items()})
    READING.update({suite: frozenset(about["reading"]) for suite, about in tables.items()})
    for suite in tables:
        next(iter(worlds.SUITES[suite][0]()))  # what is imported here is there in each child
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            sys.stdin.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            serve(Trial(**json.loads(line)), write)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            print(json.dumps({"pid": child, "port": int(answer.readline() or 0)}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
