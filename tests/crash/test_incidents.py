"""Three tasks meet a revoked credential of a real service: one incident, which one command resolves, whatever dies."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from runtime.dev_server import DevServer
from tests.processes import Processes

TOOLS = '''
import httpx2
from pydantic import BaseModel

from replan import Key, tool


class Amount(BaseModel):
    """What is paid."""

    amount: int


class Receipt(BaseModel):
    """That it is paid."""

    id: int


@tool.keyed
async def charge(args: Amount, key: Key, http: httpx2.AsyncClient) -> Receipt:
    """Charge a card."""
    reply = await http.post("{url}", json=args.model_dump(), headers={{"Idempotency-Key": key}})
    return Receipt.model_validate(reply.raise_for_status().json())
'''
PLAN = {
    "steps": [
        {"id": "sum", "kind": "calculate", "args": {"expression": "40 + 2"}},
        {"id": "paid", "kind": "charge", "args": {"amount": 42}, "needs": ["sum"]},
    ]
}


class Service:
    """A payment service that answers 401 until somebody mends the credential."""

    def __init__(self) -> None:
        """Nobody is known."""
        self.is_mended = False
        self.url = ""
        self.keys = list[str]()


@pytest.fixture
def service() -> Iterator[Service]:
    """The service, and where it is."""
    state = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            state.keys.append(self.headers["Idempotency-Key"])
            body = json.dumps({"id": len(state.keys)} if state.is_mended else {"error": "who are you?"}).encode()
            self.send_response(200 if state.is_mended else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_port}/"
        yield state
        server.shutdown()


class Console:
    """Commands, run beside the loop of the test."""

    def __init__(self, processes: Processes) -> None:
        """Run them here."""
        self._processes = processes

    async def __call__(self, *words: str) -> tuple[int, str]:
        """The exit code, and all that was said."""
        done = await asyncio.to_thread(self._processes.starter, *words)
        return done.returncode, done.stdout + done.stderr

    async def document(self, *words: str) -> Any:
        """What a command prints with --json."""
        return json.loads((await asyncio.to_thread(self._processes.starter, *words, "--json")).stdout)

    async def incident(self, waiting: int) -> Any:
        """The only incident, when so many tasks wait because of it."""
        while True:
            found = (await self.document("incidents"))["incidents"]
            if [one["waiting"] for one in found] == [waiting]:
                return found[0]
            await asyncio.sleep(0.3)


def prepared(server: DevServer, service: Service, folder: Path) -> tuple[Path, Processes]:
    """A tools file that calls the service, and commands for the server."""
    (tools := folder / "shop_tools.py").write_text(TOOLS.format(url=service.url))
    return tools, Processes(server.address, folder)


async def begun(console: Console, folder: Path, count: int) -> list[str]:
    """The ids of so many tasks that pay, and wait for people."""
    (plan := folder / "plan.json").write_text(json.dumps(PLAN))
    words = ("start", "--task", "pay", "--plan", str(plan), "--on-escalation", "wait", "--detach")
    return [(await console.document(*words, "--id", f"pay-{number}"))["task_id"] for number in range(count)]


@pytest.mark.parametrize("dies", ["nothing", pytest.param("all", marks=pytest.mark.full)])
async def test_a_revoked_credential_is_one_incident(
    own_server: DevServer, service: Service, tmp_path: Path, dies: str
) -> None:
    """The step that failed has two attempts in each task, every other step one; a canary that fails spends nobody."""
    tools, processes = prepared(own_server, service, tmp_path)
    console = Console(processes)
    with ExitStack() as stack:
        worker = stack.enter_context(processes.worker("--tools", str(tools)))
        tasks = await begun(console, tmp_path, 3)
        seen = await console.incident(3)
        if dies == "all":
            worker.kill()
            os.kill(own_server.pid or 0, signal.SIGKILL)
            await own_server.start()
            stack.enter_context(processes.worker("--tools", str(tools)))
        _, told = await console("incidents")
        _, asked = await console("answer", tasks[0])
        _, listed = await console("list", "--status", "waiting")
        failed, why = await console("resolve", "charge/unauthorized")
        spent = len(service.keys)
        service.is_mended = True
        await console.incident(3)
        done, said = await console("resolve", "charge/unauthorized", "--reason", "new key", "--by", "ann")
        ended = [await console.document("show", task) for task in tasks]
        _, explained = await console("explain", tasks[2])
        nothing, empty = await console("incidents")
        unknown, none = await console("resolve", "charge/unauthorized")

    assert (seen["cause"], seen["queue"], seen["example"] in tasks) == ("charge/unauthorized", "replan", True)
    assert told.startswith("charge/unauthorized: 3 tasks wait since ") and len(told.splitlines()) == 2
    assert "    Repaired? python starter.py resolve charge/unauthorized\n" in told
    assert "All tasks that wait for it: python starter.py resolve charge/unauthorized" in asked
    assert listed.count("(incident charge/unauthorized): ") == 3
    assert (failed, spent) == (1, 4), why
    [canary] = [task for task in tasks if f"{task} failed again, so no other task was told: " in why]
    assert done == 0, said
    assert "charge/unauthorized: 3 tasks went on.\n" in said
    assert [task["status"] for task in ended] == ["completed"] * 3
    attempts = [{step["id"]: step["attempts"] for step in task["steps"]} for task in ended]
    assert attempts == [{"sum": 1, "paid": 3 if task == canary else 2} for task in tasks]
    assert len(service.keys) == 7 and len({*service.keys}) == 3
    assert "ann answered retry for all tasks that waited for charge/unauthorized, after " in explained
    assert ': "new key".' in explained
    assert (nothing, empty.split(".")[0]) == (0, "No tasks wait for one cause")
    assert (unknown, none.split(":")[0]) == (2, "No task waits because of 'charge/unauthorized'")


@pytest.mark.full
async def test_a_worker_that_is_killed_while_it_resolves_is_followed_by_another(
    own_server: DevServer, service: Service, tmp_path: Path
) -> None:
    """Each task is told once, and the command that is followed says so."""
    tools, processes = prepared(own_server, service, tmp_path)
    console = Console(processes)
    with ExitStack() as stack:
        worker = stack.enter_context(processes.worker("--tools", str(tools)))
        tasks = await begun(console, tmp_path, 12)
        await console.incident(12)
        service.is_mended = True
        resolving = asyncio.create_task(console("resolve", "charge/unauthorized"))
        while len(service.keys) < 13:  # the first task was told
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.2)
        worker.kill()
        stack.enter_context(processes.worker("--tools", str(tools)))
        done, said = await resolving
        ended = [await console.document("show", task) for task in tasks]

    assert done == 0, said
    assert "charge/unauthorized: 12 tasks went on.\n" in said
    assert [task["status"] for task in ended] == ["completed"] * 12
    assert len({*service.keys}) == 12
    assert all({step["attempts"] for step in task["steps"]} <= {1, 2} for task in ended)
