"""An encrypted place in which a task has seen, done and said what only holders of the key may read."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from evals.fakes.http_server import Visits, reply, streaming
from evals.fakes.model_api import ModelApi
from evals.fakes.script import asks, finishes, proposes, step
from extras.web.tests.serving import Served, serving
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from runtime.keys import add_key
from tests.observability.otlp import Receiver, receiver as otlp_receiver
from tests.processes import Processes
from tests.providers.test_worker import environment, prepared
from tests.receiving import Mailbox, receiver
from workflows.account import search_attributes

MARK = "planted"
"""All that is secret begins so."""
SECRETS = (
    "task-text", "argument", "large-result", "body", "reason", "observed", "answer", "turn", "question", "finish",
)  # fmt: skip
"""What the account of the task has; each stands after MARK and a dash."""
TOOLS = '''
from pydantic import BaseModel
from replan import Key, NeedsPerson, Refused, tool

class Words(BaseModel):
    words: str

@tool.keyed
async def write(args: Words, key: Key) -> Words:
    """Write it down."""
    return args

@tool.read
async def large(args: Words) -> Words:
    """Much of it."""
    return Words(words="planted-large-result " * 4000)

@tool.read
async def refuse(args: Words) -> Words:
    """Say no."""
    raise Refused("It is planted-reason.", observed={"colour": "planted-observed"})

@tool.read
async def stuck(args: Words) -> Words:
    """Ask for a person."""
    raise NeedsPerson("Nobody mixes planted-reason.")
'''


@dataclass
class Place:
    """A server, a worker, `serve` and receivers, which write below one folder; keyring and tools are beside it."""

    folder: Path
    server: DevServer
    seeing: Processes
    """Commands with the key."""
    blind: Processes
    """Commands without it."""
    keys: Path
    metrics: str
    api: ModelApi
    spans: Receiver
    mailbox: Mailbox
    page: Visits
    """The service that `http_request` sends to."""
    served: Served
    task: str = ""
    waiting: str = ""
    """The id of a task that waits for a person."""

    def holders(self) -> list[str]:
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return [str(path) for path in files if f"{MARK}-".encode() in path.read_bytes()]

    async def run(self, *words: str, blind: bool = False) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread((self.blind if blind else self.seeing).starter, *words)


@asynccontextmanager
async def placed(tmp: Path, *options: str) -> AsyncIterator[Place]:
    """A place whose task has ended, and another one whose task waits."""
    keys, folder = tmp / "replan.keys", tmp / "all"
    add_key(keys)
    (folder / "server").mkdir(parents=True)
    (folder / "web").mkdir()
    tools = tmp / "tools.py"
    tools.write_text(TOOLS)
    spec = ServerSpec(folder / "server", port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)

    async def page(head: bytes) -> AsyncIterator[bytes]:
        yield reply(200, b'{"body": "planted-body"}', content_type="application/json")

    with otlp_receiver() as spans:
        async with (
            DevServer(spec, await find_cli(lambda _: None)) as server,
            streaming(page) as visits,
            receiver() as mailbox,
        ):
            plan = (
                step("ask", "http_request", method="POST", url=f"{visits.url}/orders", body={"is": "planted-argument"}),
                step("write", "write", words="planted-argument"),
                step("much", "large", words="planted-argument"),
                step("no", "refuse", "ask", "write", "much", words="planted-argument"),
            )
            script = (
                proposes(*plan),
                asks("planted-question, or not?", "planted-option", "no"),
                proposes(step("mix", "stuck", words="planted-turn")),
                finishes("planted-finish"),
                proposes(step("mix", "stuck", words="planted-turn")),
            )
            async with prepared("anthropic", *script) as api:
                own = {**environment("anthropic", api), **spans.environment, "XDG_CACHE_HOME": str(folder / "cache")}
                own["PLANTED_HEADER"] = "planted-header"
                blind = Processes(server.address, folder, own)
                seeing = Processes(server.address, folder, {**own, "REPLAN_KEYS": str(keys)})
                metrics = f"127.0.0.1:{free_port()}"
                host = urlsplit(visits.url).hostname or ""
                words = ("--tools", str(tools), "--notify", mailbox.url, "--metrics", metrics, "--log", "json")
                sends = ("--allow-host", host, "--allow-request", host)
                header = ("--http-header", f"{host}=x-colour:PLANTED_HEADER")
                with seeing.worker(*words, *sends, *header):
                    web = ("--keys", str(keys), *options)
                    async with serving(
                        server.address, folder / "web", *web, REPLAN_WEB_UI_ORIGIN=spec.ui_url
                    ) as served:
                        place = Place(folder, server, seeing, blind, keys, metrics, api, spans, mailbox, visits, served)
                        await _act(place)
                        yield place


async def _act(place: Place) -> None:
    started = await place.run("start", "--task", "planted-task-text", "--on-escalation", "wait", "--detach", "--json")
    place.task = json.loads(started.stdout)["task_id"]
    await _answer(place, place.task, "reply", "--text", "planted-answer")
    await _answer(place, place.task, "provide", "--result", '{"words": "planted-answer"}')
    ended = await place.run("show", place.task, "--follow", "--json")
    assert json.loads(ended.stdout)["status"] == "completed", ended.stdout + ended.stderr
    waits = await place.run("start", "--task", "planted-task-text", "--on-escalation", "wait", "--detach", "--json")
    place.waiting = json.loads(waits.stdout)["task_id"]
    async with asyncio.timeout(240):
        while not (await place.run("answer", place.waiting)).stdout.count("planted-reason"):
            pass


async def _answer(place: Place, task: str, choice: str, *words: str) -> None:
    async with asyncio.timeout(240):
        while (done := await place.run("answer", task, choice, *words)).returncode:
            assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
            await asyncio.sleep(0.2)
