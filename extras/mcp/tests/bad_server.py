"""An MCP server over stdio that misbehaves as its first argument says; it needs only the standard library.

It answers the handshakes of both protocols, `tools/list` and `tools/call`. MODE says what is wrong.
With --state and --times only the first N calls misbehave, counted over all processes that share the state file.
Each call of `do` appends a line to the file of --effects before anything else happens, as a real effect would.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MODES = (
    # a call
    *("ok", "slow", "never", "stuck", "die-before", "die-unapplied", "die-killed", "die-after", "die-half"),
    *("close-stdout", "garbage", "garbage-only", "no-jsonrpc", "batch", "big", "big-line", "wrong-id"),
    *("null-id-error", "twice", "error", "tool-error", "no-content", "bad-content", "bad-structured"),
    *("null-structured", "violates-schema", "missing-structured", "result-string", "no-result", "deep", "nan"),
    *("surrogate", "huge-int", "invalid-utf8", "crlf", "unicode-separator", "sampling", "elicitation", "roots"),
    *("unknown-request", "input-required", "progress", "log", "offers", "flood", "list-changed"),
    *("cancelled-by-server", "contents", "environment", "pids"),
    # the list
    *("list-error", "list-loop", "listed", "list-duplicate"),
    # the start
    *("exit-at-start", "exit-in-handshake", "exit-after-list", "hang-in-handshake", "discover-exits"),
    *("bad-version", "handshake-error", "handshake-garbage", "banner"),
    # the process
    *("ignore-term", "stderr-flood"),
)
LEGACY, MODERN = "2025-11-25", "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
FORM = {
    "mode": "form",
    "message": "Which colour?",
    "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
}
OFFERS: dict[str, Any] = {
    "resources/list": {"resources": [{"uri": "note:1", "name": "one", "x": None}], "nextCursor": "more"},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "note:{id}", "name": "note"}]},
    "resources/read": {"contents": [{"uri": "note:1", "text": "read", "_meta": {"a": 1}}], "own": [1.5, None]},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "prompts/list": {"prompts": [{"name": "greet"}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]},
    "completion/complete": {"completion": {"values": ["red"]}},
    "logging/setLevel": {},
}
LISTS = ("resources", "resourceTemplates", "prompts")
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 10}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "sampling": ("sampling/createMessage", SAMPLE),
    "elicitation": ("elicitation/create", FORM),
    "roots": ("roots/list", {}),
    "unknown-request": ("foo/bar", {}),
}
"""What the server asks before it answers with what it got."""
Message = dict[str, Any]

parser = argparse.ArgumentParser()
parser.add_argument("mode", choices=MODES, metavar="MODE")
parser.add_argument("--era", choices=("legacy", "modern"), default="legacy")
parser.add_argument("--delay", type=float, default=0.2)
parser.add_argument("--size", type=int, default=50_000_000)
parser.add_argument("--levels", type=int, default=10_000)
parser.add_argument("--code", type=int, default=-32603)
parser.add_argument("--message", default="something failed")
parser.add_argument("--contents")
parser.add_argument("--odd", action="store_true", help="lists of resources and prompts have odd entries")
parser.add_argument("--change", choices=("new", "gone", "argument"), default="new")
parser.add_argument("--log", help="gets each message received, one a line")
parser.add_argument("--effects")
parser.add_argument("--state")
parser.add_argument("--times", type=int, default=0, help="how many calls misbehave; 0 for all")
parser.add_argument("--starts", help="gets a line for each start")
parser.add_argument("--variables", help="gets the names of the variables of its environment")


class Server:
    """One process of the server."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.mode: str = options.mode
        self.is_legacy = options.era == "legacy"
        self.has_changed = False
        self.pages = 0
        self._lock = threading.Lock()
        self._subscriptions = list[object]()
        self._waiting = dict[object, threading.Event]()
        self._answers = dict[object, Message]()

    def run(self) -> None:
        if self.options.starts:
            append(self.options.starts, str(os.getpid()))
        if self.options.variables:
            append(self.options.variables, " ".join(os.environ))
        if self.mode == "exit-at-start":
            sys.stderr.write("Usage: server DIRECTORY\n")
            end(4)
        if self.mode == "banner":
            self.write(b"Bad server 1.0 running on stdio\n")
        if self.mode == "ignore-term":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for line in sys.stdin.buffer:
            if self.options.log:
                append(self.options.log, line.decode().strip())
            self.handle(json.loads(line))
        if self.mode == "ignore-term":
            time.sleep(3600)
        end(0)

    # Messages

    def write(self, data: bytes) -> None:
        with self._lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def send(self, message: Message) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def answer(self, ident: object, result: object) -> None:
        self.send({"id": ident, "result": result})

    def fail(self, ident: object, code: int, message: str) -> None:
        self.send({"id": ident, "error": {"code": code, "message": message}})

    def ask(self, method: str, params: Message) -> Message:
        """Ask the client, and wait for its answer."""
        ident = 9000 + len(self._waiting)
        self._waiting[ident] = threading.Event()
        self.send({"id": ident, "method": method, "params": params})
        self._waiting[ident].wait(30)
        return self._answers.get(ident, {})

    def result(self, text: str = "done", **more: object) -> Message:
        """A good result, in the shape of the protocol that is spoken."""
        structured = {"done": True, "text": text}
        good = {"content": [{"type": "text", "text": text}], "structuredContent": structured, "isError": False}
        return good | ({} if self.is_legacy else {"resultType": "complete"}) | more

    def handle(self, message: Message) -> None:
        method, ident, params = message.get("method"), message.get("id"), message.get("params") or {}
        match method:
            case None:
                self._answers[ident] = {key: message[key] for key in ("result", "error") if key in message}
                if ident in self._waiting:
                    self._waiting[ident].set()
            case "initialize" | "server/discover":
                self.shake_hands(ident, method)
            case "tools/list":
                self.list_tools(ident)
            case "tools/call" if self.mode in ("stuck", "die-before", "die-killed"):
                self.call(ident, params)
            case "tools/call":
                threading.Thread(target=self.call, args=(ident, params), daemon=True).start()
            case "subscriptions/listen":
                self._subscriptions.append(ident)
                meta, wanted = {"_meta": {PREFIX + "subscriptionId": ident}}, params["notifications"]
                self.send(
                    {"method": "notifications/subscriptions/acknowledged", "params": {**meta, "notifications": wanted}}
                )
                for uri in wanted.get("resourceSubscriptions", ()):
                    self.send({"method": "notifications/resources/updated", "params": {**meta, "uri": uri}})
            case _ if ident is not None and self.mode == "offers" and method in OFFERS:
                self.offer(ident, method, params)
            case _ if ident is not None:
                self.fail(ident, -32601, "Method not found")

    def offer(self, ident: object, method: str, params: Message) -> None:
        """Answer what is no call of a tool; a subscription is followed by an update, and a level by a line."""
        if method == "resources/read" and params["uri"] == "note:unknown":
            error = {"code": -32002, "message": "Resource not found", "data": {"uri": params["uri"]}}
            return self.send({"id": ident, "error": error})
        self.answer(ident, with_odd_entries(OFFERS[method]) if self.options.odd else OFFERS[method])
        if method == "resources/subscribe":
            self.send({"method": "notifications/resources/updated", "params": {"uri": params["uri"]}})
        if method == "logging/setLevel":
            self.send({"method": "notifications/message", "params": {"level": params["level"], "data": "a log line"}})
        return None

    # The start

    def shake_hands(self, ident: object, method: str) -> None:
        capabilities: Message = {"tools": {"listChanged": True}}
        if self.mode == "offers":
            capabilities |= {"resources": {"subscribe": True, "listChanged": True}, "logging": {}, "completions": {}}
        if self.mode == "exit-in-handshake" or (self.mode == "discover-exits" and method == "server/discover"):
            sys.stderr.write("cannot start: no such option\n")
            end(4)
        if self.mode == "hang-in-handshake":
            return
        if self.mode == "handshake-error":
            self.fail(ident, self.options.code, self.options.message)
        elif method == "server/discover" and self.is_legacy:
            self.fail(ident, -32601, "Method not found")
        elif method == "server/discover":
            found = {"supportedVersions": [MODERN], "capabilities": capabilities, "resultType": "complete"}
            named = {PREFIX + "serverInfo": {"name": "bad", "version": "1"}}
            self.answer(ident, found | {"ttlMs": 0, "cacheScope": "private", "_meta": named})
        elif self.mode == "handshake-garbage":
            self.answer(ident, {"hello": "world"})
        else:
            version = "1999-01-01" if self.mode == "bad-version" else LEGACY
            info = {"name": "bad", "version": "1"}
            told = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
            self.answer(ident, told | ({"instructions": "Look first."} if self.mode == "offers" else {}))

    def list_tools(self, ident: object) -> None:
        if self.mode == "list-error":
            return self.fail(ident, self.options.code, self.options.message)
        more: Message = {} if self.is_legacy else {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if self.mode == "listed":
            found = json.loads(Path(self.options.contents).read_text())
            pages = found if isinstance(found, list) else [found]
            self.pages += 1
            return self.answer(ident, more | pages[(self.pages - 1) % len(pages)])
        more |= {"nextCursor": "again"} if self.mode == "list-loop" else {}
        self.answer(ident, {"tools": self.tools()} | more)
        if self.mode == "exit-after-list":
            end(4)
        return None

    def tools(self) -> list[Message]:
        text = {"text": {"type": "string"}}
        schema = {"type": "object", "properties": text}
        done = {"type": "object", "properties": {"done": {"type": "boolean"}, **text}, "required": ["done"]}
        since = {"type": "object", "properties": {**text, "since": {"type": "string"}}}
        numbers = {"count": {"type": "integer"}, "total": {"type": "integer"}}
        counted = {**numbers, "last": text["text"], "fitting": done}
        found = {"type": "object", "properties": counted, "required": ["count", "total"]}
        reads = {"annotations": {"readOnlyHint": True}}
        look = {"name": "look", "title": "Look", "description": "Looks.", "inputSchema": schema, "_meta": {"a": 1}}
        listed: list[Message] = [
            {"name": "do", "description": "Does it.", "inputSchema": schema, "outputSchema": done},
            {**look, **reads},
            {"name": "plain", "inputSchema": schema},
            {"name": "count", "description": "Counts.", "inputSchema": since, "outputSchema": found, **reads},
        ]
        if self.mode == "list-duplicate":
            listed.append(dict(listed[0]))
        if self.has_changed:
            match self.options.change:
                case "new":
                    listed.append({"name": "new", "inputSchema": {"type": "object"}})
                case "gone":
                    del listed[0]
                case "argument":
                    more = {"where": {"type": "string"}}
                    listed[0]["inputSchema"] = {**schema, "properties": {**text, **more}, "required": ["where"]}
        return listed

    # Calls

    def call(self, ident: object, params: Message) -> None:
        name, arguments = params["name"], params.get("arguments") or {}
        if name == "count":
            return self.answer(ident, self.counted(arguments))
        if self.mode == "die-unapplied":
            end(3)
        if name in ("do", "plain") and self.options.effects:
            now = datetime.now(UTC).isoformat()
            append(self.options.effects, json.dumps({"text": arguments.get("text"), "at": now, "tool": name}))
        mode = self.mode if self.misbehaves() else "ok"
        if mode in BAD_LINES:
            line = json.dumps({"jsonrpc": "2.0", "id": ident, "result": self.result()}).encode()
            self.write(BAD_LINES[mode](line, self.options))
            if mode == "die-half":
                end(3)
            return None
        if (wrong := BAD_RESULTS.get(mode)) is not None:
            whole = self.result(**wrong)
            return self.answer(ident, {key: value for key, value in whole.items() if value is not LEFT_OUT})
        return self.misbehave(mode, ident, params)

    def misbehaves(self) -> bool:
        if not self.options.times:
            return True
        with Path(self.options.state).open("a+") as file:
            file.seek(0)
            count = len(file.read())
            file.write("x")
            return bool(count < self.options.times)

    def echoed(self, params: Message) -> Message:
        """The arguments of a call, as a text, and where there is an outputSchema as structured content."""
        found, given = json.loads(Path(self.options.contents).read_text()), params.get("arguments") or {}
        listed = [tool for page in (found if isinstance(found, list) else [found]) for tool in page["tools"]]
        is_typed = any(tool["name"] == params["name"] and "outputSchema" in tool for tool in listed)
        return {
            "content": [{"type": "text", "text": json.dumps(given)}],
            **({"structuredContent": given} if is_typed else {}),
        }

    def counted(self, arguments: Message) -> Message:
        """What `count` finds of the effects: all with this text, since this time."""
        effects = Path(self.options.effects or os.devnull)
        rows = [json.loads(line) for line in effects.read_text().splitlines()] if effects.exists() else []
        since = arguments.get("since", "")
        fitting = [row for row in rows if arguments.get("text") in (None, row["text"]) and row["at"] >= since]
        last = {"last": rows[-1]["text"]} if rows else {}
        done = {"fitting": {"done": True, "number": len(fitting)}} if fitting else {}
        return self.result(structuredContent={"count": len(fitting), "total": len(rows), **last, **done})

    def misbehave(self, mode: str, ident: object, params: Message) -> None:
        options = self.options
        match mode:
            case "never" | "hang-in-handshake":
                return None
            case "slow":
                time.sleep(options.delay)
                return self.answer(ident, self.result((params.get("arguments") or {}).get("text") or "done"))
            case "stuck":
                time.sleep(3600)
            case "die-before":
                end(3)
            case "die-killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "die-after":
                self.answer(ident, self.result())
                end(3)
            case "close-stdout":
                os.close(1)
                return None
            case "big":
                return self.answer(ident, self.result("x" * options.size, structuredContent={"done": True}))
            case "wrong-id":
                return self.answer(987654, self.result())
            case "null-id-error":
                return self.fail(None, options.code, options.message)
            case "twice":
                self.answer(ident, self.result())
                return self.answer(ident, self.result("again"))
            case "error":
                return self.fail(ident, options.code, options.message)
            case "tool-error":
                return self.answer(ident, self.result(options.message, isError=True))
            case "result-string":
                return self.answer(ident, "done")
            case "no-result":
                return self.send({"id": ident})
            case "sampling" | "elicitation" | "roots" | "unknown-request":
                return self.answer(ident, self.result(json.dumps(self.ask(*ASKED[mode]))))
            case "input-required" if params.get("inputResponses"):
                return self.answer(ident, self.result(json.dumps(params["inputResponses"])))
            case "input-required":
                asked = {"colour": {"method": "elicitation/create", "params": FORM}}
                return self.answer(ident, {"resultType": "input_required", "inputRequests": asked, "requestState": "1"})
            case "progress":
                token = (params.get("_meta") or {}).get("progressToken")
                for number in (1, 2, 3):
                    told = {"progressToken": token, "progress": number, "total": 3, "message": f"step {number}"}
                    self.send({"method": "notifications/progress", "params": told})
            case "log":
                told = {"level": "error", "logger": "bad", "data": "a log line"}
                self.send({"method": "notifications/message", "params": told})
            case "flood":
                for _ in range(options.size):
                    told = {"level": "info", "data": "x" * 10_000}
                    self.send({"method": "notifications/message", "params": told})
            case "list-changed":
                self.change()
            case "cancelled-by-server":
                told = {"requestId": ident, "reason": "the server is tired"}
                return self.send({"method": "notifications/cancelled", "params": told})
            case "contents":
                contents = json.loads(Path(options.contents).read_text())
                more: Message = {} if self.is_legacy else {"resultType": "complete"}
                return self.answer(ident, (contents if isinstance(contents, dict) else {"content": contents}) | more)
            case "listed":
                return self.answer(ident, self.echoed(params))
            case "environment":
                return self.answer(ident, self.result(json.dumps(dict(os.environ))))
            case "pids" | "ignore-term":
                source = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
                child = subprocess.Popen([sys.executable, "-I", "-S", "-c", source])
                return self.answer(ident, self.result(f"{os.getpid()} {child.pid}"))
            case "stderr-flood":
                sys.stderr.write("e" * options.size + "\nline\n" * 10_000)
                sys.stderr.flush()
        return self.answer(ident, self.result())

    def change(self) -> None:
        self.has_changed = True
        for ident in self._subscriptions or [None]:
            told = {} if ident is None else {"params": {"_meta": {PREFIX + "subscriptionId": ident}}}
            self.send({"method": "notifications/tools/list_changed", **told})


LEFT_OUT = object()
BAD_RESULTS: dict[str, Message] = {
    "no-content": {"content": LEFT_OUT},
    "bad-content": {"content": [{"type": "hologram", "text": "x"}]},
    "bad-structured": {"structuredContent": [1, 2]},
    "null-structured": {"structuredContent": None},
    "violates-schema": {"structuredContent": {"done": "perhaps"}},
    "missing-structured": {"structuredContent": LEFT_OUT},
}
BAD_LINES: dict[str, Callable[[bytes, argparse.Namespace], bytes]] = {
    "die-half": lambda line, options: line[: len(line) // 2],
    "garbage": lambda line, options: b"Starting up...\n\n{not json\n[]\n42\nnull\n" + line + b"\n",
    "garbage-only": lambda line, options: b"Traceback (most recent call last):\n",
    "no-jsonrpc": lambda line, options: line.replace(b'"jsonrpc": "2.0", ', b"") + b"\n",
    "batch": lambda line, options: b"[" + line + b"]\n",
    "big-line": lambda line, options: b"x" * options.size,
    "deep": lambda line, options: (
        line.replace(b'"done": true', b'"done": ' + b'{"a":' * options.levels + b"1" + b"}" * options.levels) + b"\n"
    ),
    "nan": lambda line, options: line.replace(b'"done": true', b'"done": true, "x": NaN, "y": Infinity') + b"\n",
    "surrogate": lambda line, options: line.replace(b'"text": "done"', b'"text": "\\ud800"') + b"\n",
    "huge-int": lambda line, options: line.replace(b'"done": true', b'"done": true, "n": ' + b"9" * 5000) + b"\n",
    "invalid-utf8": lambda line, options: line.replace(b'"text": "done"', b'"text": "\xff\xfe\xc3"') + b"\n",
    "crlf": lambda line, options: line + b"\r\n",
    "unicode-separator": lambda line, options: (
        line.replace(b'"text": "done"', '"text": "a\u2028b\u0085c"'.encode()) + b"\n"
    ),
}


def with_odd_entries(result: Message) -> Message:
    """A list with entries that are none, and an odd field in each other entry; any other result as it is."""
    odd: list[Any] = [None, 5, {"name": 5}, {"uri": 5, "name": ["x"], "uriTemplate": []}]
    return {
        name: [*odd, *({**entry, "icons": 5} for entry in value)] if name in LISTS else value
        for name, value in result.items()
    }


def append(file: str, line: str) -> None:
    with Path(file).open("a", encoding="utf-8") as opened:
        opened.write(f"{line}\n")


def end(code: int) -> None:
    """End at once, also from a thread."""
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    Server(parser.parse_args()).run()
