"""A gateway over HTTP, and hand-written clients that break off where a test says."""

import json
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

from extras.gateway.tests.agents import HELLO, PATIENCE, Place
from tests.processes import ROOT

NEW, OLD = "2026-07-28", "2025-11-25"
ACCEPTS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": HELLO["clientInfo"],
}


class Gateway:
    """A process of `replan mcp --http` in front of the shop, or of what `words` name."""

    def __init__(self, place: Place, *words: str, is_gated: bool = False, **variables: str) -> None:
        shop = [] if {"--queue", "--tools"} & {*words} else ["--", *place.shop, *([str(place.gate)] * is_gated)]
        where = ["--http", "127.0.0.1:0", "--state", str(place.state)]
        self.place = place
        log = place.state.parent / "gateway.err"
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [place.python, "-m", "replan", "mcp", *place.mode, *where, *words, *shop],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**place.environment, **variables},
                cwd=ROOT,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("ready "), log.read_text()
        self.url = line.split()[1]
        """The address of `/mcp`."""
        self.port = int(self.url.split(":")[2].split("/")[0])

    def close(self) -> str:
        """End it as Ctrl-C does; returns what it printed since it was ready."""
        self._process.terminate()
        said, _ = self._process.communicate(timeout=PATIENCE)
        return said


def message(method: str, params: Mapping[str, Any], *, version: str = NEW, number: int = 1) -> dict[str, Any]:
    """A request of JSON-RPC as clients of a version send it."""
    meta = {**(META if version == NEW else {}), **params.get("_meta", {})}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **({"_meta": meta} if meta else {})}}


def call(tool: str, args: Mapping[str, Any], **meta: str) -> dict[str, Any]:
    """The parameters of a call."""
    return {"name": tool, "arguments": dict(args), "_meta": {f"replan/{name}": value for name, value in meta.items()}}


def headers_of(body: Mapping[str, Any], more: Mapping[str, str], version: str = NEW) -> dict[str, str]:
    name = {"mcp-name": body["params"]["name"]} if version == NEW and "name" in body["params"] else {}
    method = {"mcp-method": body["method"]} if version == NEW else {}
    return {**ACCEPTS, "mcp-protocol-version": version, **method, **name, **more}


class Http:
    """A client with one connection at a time."""

    def __init__(self, url: str, version: str = NEW, **headers: str) -> None:
        self._url, self.version = url, version
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._client = httpx2.Client(timeout=PATIENCE)
        self.number = 0
        """The id of the last request."""

    def __enter__(self) -> Self:
        if self.version == OLD:
            response = self.post("initialize", {**HELLO, "protocolVersion": OLD})
            assert response.status_code == 200, response.text
            self.headers["mcp-session-id"] = response.headers["mcp-session-id"]
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            self._client.post(self._url, json=told, headers={**ACCEPTS, **self.headers})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.close()

    def post(self, method: str, params: Mapping[str, Any], **headers: str) -> httpx2.Response:
        """The response to a request."""
        self.number += 1
        body = message(method, params, version=self.version, number=self.number)
        more = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self._client.post(self._url, json=body, headers=headers_of(body, more, self.version))

    def call(self, tool: str, args: Mapping[str, Any], headers: Mapping[str, str] = {}, **meta: str) -> dict[str, Any]:
        """The result of a call."""
        response = self.post("tools/call", call(tool, args, **meta), **headers)
        assert response.status_code == 200, response.text
        result: dict[str, Any] = answer_of(response)["result"]
        return result


def answer_of(response: httpx2.Response) -> dict[str, Any]:
    """The message of JSON-RPC in a response, also if that is a stream of events."""
    if response.headers["content-type"].startswith("application/json"):
        found: dict[str, Any] = response.json()
        return found
    messages = [json.loads(line[5:]) for line in response.text.splitlines() if line.startswith("data:")]
    return next(one for one in messages if "id" in one)


class Broken:
    """A request on a connection of its own that is cut before its answer comes, or whose answer nobody reads."""

    def __init__(
        self, gateway: Gateway, params: Mapping[str, Any], path: str = "", *, version: str = NEW, **headers: str
    ) -> None:
        body = message("tools/call", params, version=version, number=99)
        sent = json.dumps(body).encode()
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        fields = headers_of(body, more, version)
        fields |= {"host": f"127.0.0.1:{gateway.port}", "content-length": str(len(sent))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._socket = socket.create_connection(("127.0.0.1", gateway.port))
        self._socket.sendall(f"POST /mcp{path} HTTP/1.1\r\n{lines}\r\n".encode() + sent)

    def cut(self) -> None:
        self._socket.close()

    def peek(self) -> bytes:
        """The beginning of the answer, as soon as it is there; it counts as not read."""
        self._socket.settimeout(PATIENCE)
        return self._socket.recv(64, socket.MSG_PEEK)


TOOLS = '''
from pathlib import Path
from pydantic import BaseModel
from replan import tool

class Payment(BaseModel):
    who: str

@tool.idempotent
async def pay(args: Payment) -> Payment:
    """Pay somebody."""
    with Path({book!r}).open("a") as book:
        book.write(f"{{args.who}}\\n")
    return args

@tool.read
def book(args: Payment) -> list[str]:
    """Who was paid."""
    return Path({book!r}).read_text().split()
'''


def tools_of(place: Place) -> Path:
    """A Python file with the tools of a shop, for a worker."""
    place.state.mkdir(exist_ok=True)
    file = place.state / "my_tools.py"
    file.write_text(TOOLS.format(book=str(place.book)))
    return file
