"""`serve` as a user starts it, tasks that wait, and event streams as a program reads them."""

import asyncio
import json
import signal
import ssl
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
from pydantic import JsonValue

from tests import preloaded
from tests.processes import END_SECONDS, READY_SECONDS, ROOT, Processes

TOKEN = "a-token-of-the-tests"  # noqa: S105 - of the tests
PATIENCE = 30.0
"""Seconds that a request, or a task, may take."""


@dataclass
class Served:
    url: str
    process: Process

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def visit(self, token: str | None = None, **headers: str) -> httpx2.AsyncClient:
        """A program that speaks to it, as many connections as it likes."""
        sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        if token is not None:
            sent[b"authorization"] = f"Bearer {token}".encode()
        return httpx2.AsyncClient(
            base_url=self.url,
            headers=sent,
            timeout=PATIENCE,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            trust_env=False,
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # loads no certificates, which takes longer than a request
        )

    async def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), END_SECONDS)


@asynccontextmanager
async def serving(
    address: str,
    folder: Path,
    *options: str,
    token: str = "",
    port: int = 0,
    files: int | None = None,
    **variables: str,
) -> AsyncIterator[Served]:
    """A `serve` that said `ready`, and that may open so many `files`; none is left behind."""
    environment = Processes(address, folder, {"REPLAN_TOKEN": token, **variables})._environment
    limit = ["bash", "-c", 'ulimit -n "$0" && exec "$@"', str(files)] if files else []
    python = sys.executable if files else preloaded.python()  # which gives its limits to no fork
    words = [*limit, python, str(preloaded.STARTER), "serve", "--port", str(port), *options]
    log = folder / "serve.log"
    with log.open("a") as errors:
        process = await asyncio.create_subprocess_exec(
            *words, env=environment, cwd=ROOT, stdin=DEVNULL, stdout=PIPE, stderr=errors
        )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), READY_SECONDS)).decode()
        assert line.startswith("ready"), f"{words} said {line!r}; its log: {log.read_text()}"
        yield Served(line.split()[1], process)
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), END_SECONDS)


def path_of(id: str, *parts: str) -> str:
    return "/".join(["/tasks", quote(id, safe=""), *parts])


def paying(*amounts: int) -> dict[str, Any]:
    """The body that starts a task of these payments, one after the other; more than 500 is to be approved."""
    steps = [
        {"id": f"p{number}", "kind": "charge", "args": {"amount": amount}, "needs": [f"p{number - 1}"] * (number > 1)}
        for number, amount in enumerate(amounts, 1)
    ]
    return {"text": "pay", "plan": steps, "on_escalation": "wait"}


async def started(program: httpx2.AsyncClient, *amounts: int, **more: JsonValue) -> str:
    response = await program.post("/tasks", json={**paying(*amounts), **more})
    assert response.status_code == 201, response.text
    return str(response.json()["task_id"])


async def standing(program: httpx2.AsyncClient, id: str, *statuses: str) -> dict[str, Any]:
    """The document of a task as soon as it has one of these statuses."""
    async with asyncio.timeout(PATIENCE):
        while True:
            response = await program.get(path_of(id))
            assert response.status_code == 200, response.text
            found: dict[str, Any] = response.json()
            if found["status"] in statuses:
                return found
            await asyncio.sleep(0.05)


async def asked(program: httpx2.AsyncClient, id: str) -> dict[str, Any]:
    """The request of a task that waits, as soon as it waits."""
    found: dict[str, Any] = next(
        one for one in (await standing(program, id, "waiting"))["requests"] if not one.get("answer")
    )
    return found


def approval_of(request: Mapping[str, Any], **more: JsonValue) -> dict[str, JsonValue]:
    """The body that approves the call of a request."""
    return {"choice": "approve", "request": request["id"], "call": request["call"]["code"], **more}


class Told(NamedTuple):
    id: str
    name: str
    data: dict[str, Any]


async def told(program: httpx2.AsyncClient, id: str, after: str = "") -> AsyncIterator[Told]:
    """What happens to a task, after the event with the id `after`, until the server ends the stream."""
    headers = {"last-event-id": after} if after else {}
    async with program.stream("GET", path_of(id, "events"), headers=headers) as response:
        assert response.status_code == 200, response.status_code
        assert response.headers["content-type"].startswith("text/event-stream")
        fields = dict[str, str]()
        async for line in response.aiter_lines():
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            elif "data" in fields:
                yield Told(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
                fields = {}


async def all_told(program: httpx2.AsyncClient, id: str, after: str = "") -> list[Told]:
    async with asyncio.timeout(PATIENCE):
        return [one async for one in told(program, id, after)]
