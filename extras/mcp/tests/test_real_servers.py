"""Servers as others wrote them, at fixed versions: their texts, their handshakes, and a worker that is killed."""

import asyncio
import json
import re
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from temporalio.client import Client, WorkflowHandle

from extras.mcp.tests import real
from extras.mcp.tests.foreign import loaded, wait_until, written
from runtime.dev_server import DevServer
from tests.harness import DONE, outcome, plan, step
from tests.processes import ROOT, Processes
from workflows.account.outcome import Outcome
from workflows.account.task import Task, TaskStatus
from workflows.agent import AgentWorkflow
from workflows.plans.proposal import Proposal, Step

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

Handle = WorkflowHandle[AgentWorkflow, Outcome]

MESSAGE, AUTHOR = "Add the price list", "replan-worker"


class Workers(Processes):
    """Workers on a queue of their own, with one tools file."""

    def __init__(self, address: str, folder: Path, text: str, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(address, folder, dict(environment or {}))
        self.queue = f"real-{uuid.uuid4().hex[:8]}"
        self.options = ("--tools", str(written(folder, text)), "--queue", self.queue)

    async def start(self, client: Client, steps: Sequence[Step], *revisions: Proposal, **more: Any) -> Handle:
        """Start a task with this plan, and with proposals for what follows it."""
        task = Task(text="a task", plan=tuple(steps), revisions=revisions or (DONE,), **more)
        id = f"real-{uuid.uuid4().hex[:12]}"
        return await client.start_workflow(AgentWorkflow.run, task, id=id, task_queue=self.queue)

    async def ended(self, client: Client, *steps: Step, revisions: Sequence[Proposal] = (), **more: Any) -> Outcome:
        """Run a task to its end."""
        return await outcome(await self.start(client, steps, *revisions, **more))


def table(server: str, *command: object) -> str:
    """The table of a server in a tools file."""
    return f"[servers.{server}]\ncommand = {json.dumps([str(word) for word in command])}\n"


def text_of(ended: Outcome, step: int = -1) -> str:
    """The text of a step's result."""
    result: Any = ended.steps[step].result
    return str(result.get("text", result))


# ---------------------------------------------------------------- git


EXAMPLE = ROOT / "examples" / "git.toml"
"""Its rule for a commit is the mark in the message. Ours is taken for absent if another branch is checked out now; then
the call is repeated, and the server has nothing to commit."""
HOOK = """#!/bin/sh
[ -e "{flag}" ] && exit 0
touch "{flag}"
sleep 120
"""


class Repository:
    """A repository, in which somebody else works, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet")
        self.commit("first", "Begin")
        (folder / "prices").write_text("1\n")
        self.git("add", "prices")

    def git(self, *words: str) -> str:
        identity = ["-c", "user.name=Ann", "-c", "user.email=ann@shop.example", "-c", "core.hooksPath=/nowhere"]
        command = ["git", *identity, *words]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def commit(self, file: str, message: str) -> None:
        """Commit one file as somebody else, and nothing that is staged."""
        (self.folder / file).write_text(message)
        self.git("add", "--intent-to-add", file)
        self.git("commit", "--quiet", "--only", file, "--message", message)

    def commits(self) -> list[tuple[str, str]]:
        """The author and the message of each commit, the oldest first."""
        lines = self.git("log", "--reverse", "--format=%an\t%s").splitlines()
        return [(author, message) for author, _, message in (line.partition("\t") for line in lines)]


def git_workers(server: DevServer, folder: Path, repository: Repository, effect: str) -> Workers:
    """Workers with the example, but for the server's program, the approval and, perhaps, the effect of a commit."""
    changes = {
        '"uvx", "mcp-server-git"': f'"{real.new_programs()}/mcp-server-git", "--repository", "{repository.folder}"',
        'approve = "always"': "timeout = 10",
        'effect = "unkeyed"': f'effect = "{effect}"',
    }
    text = EXAMPLE.read_text()
    for before, after in changes.items():
        assert text.count(before) == 1
        text = text.replace(before, after)
    return Workers(server.address, folder, text)


def committing(repository: Repository) -> Step:
    return step("commit", "git.git_commit", repo_path=str(repository.folder), message=MESSAGE)


async def killed_in_commit(client: Client, workers: Workers, repository: Repository, point: str) -> Handle:
    """Start a task that commits, whose worker is killed at a point of the call."""
    with workers.worker(*workers.options, "--dev", "--break", f"git.git_commit=die@{point}:1") as worker:
        handle = await workers.start(client, [committing(repository)])
        assert await asyncio.to_thread(worker.wait, 60) == -signal.SIGKILL
    return handle


OURS, WORD = (AUTHOR, MESSAGE), "Correct a word"


@pytest.mark.parametrize(
    ("point", "effect", "before", "between"),
    [
        pytest.param("after_claim", "unkeyed", "", MESSAGE, id="not made"),
        pytest.param("before_commit", "unkeyed", "", MESSAGE, id="not made, just before"),
        pytest.param("after_commit", "unkeyed", "", "", id="made"),
        pytest.param("after_commit", "unkeyed", "", WORD, id="made, and somebody else commits in between"),
        pytest.param("after_commit", "unkeyed", "", MESSAGE, id="made, and somebody else with the same message"),
        pytest.param("after_commit", "unkeyed", MESSAGE, "", id="made after one with the same message"),
        pytest.param("after_commit", "idempotent", "", "", id="repeated at once, with nothing to commit"),
    ],
)
async def test_a_commit_is_made_once_although_its_worker_is_killed(
    client: Client, server: DevServer, tmp_path: Path, point: str, effect: str, before: str, between: str
) -> None:
    """Ours is not taken for that of somebody else, nor theirs for ours; and there is no new plan."""
    repository = Repository(tmp_path / "repository")
    workers = git_workers(server, tmp_path, repository, effect)
    if before:
        repository.commit("other", before)
    handle = await killed_in_commit(client, workers, repository, point)
    if between:
        repository.commit("other", between)
    with workers.worker(*workers.options):
        ended = await outcome(handle)

    assert (ended.status, ended.replans) == (TaskStatus.COMPLETED, 0)
    others = [("Ann", message) for message in ("Begin", before, between) if message]
    assert sorted(repository.commits()) == sorted([OURS, *others])


@pytest.mark.parametrize("message", [WORD, MESSAGE])
async def test_the_commit_of_somebody_else_is_not_taken_for_ours(
    client: Client, server: DevServer, tmp_path: Path, message: str
) -> None:
    """The worker and the server are killed while the commit is being made: it is made afterwards."""
    repository = Repository(tmp_path / "repository")
    workers = git_workers(server, tmp_path, repository, "unkeyed")
    flag, hook = tmp_path / "flag", repository.folder / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK.format(flag=flag))
    hook.chmod(0o755)
    with workers.worker(*workers.options) as worker:
        handle = await workers.start(client, [committing(repository)])
        assert await asyncio.to_thread(wait_until, flag.exists, 60)
        worker.kill()
    repository.commit("other", message)
    with workers.worker(*workers.options):
        ended = await outcome(handle)

    assert (ended.status, ended.replans) == (TaskStatus.COMPLETED, 0)
    assert repository.commits() == [("Ann", "Begin"), ("Ann", message), OURS]


# ---------------------------------------------------------------- the others, on one worker


SQLITE = """
[servers.sqlite.tools.read_query]
effect = "read"
"""
LONG = """
[servers.everything.tools.trigger-long-running-operation]
timeout = 100
"""
NOTES = """
[servers.memory.env]
MEMORY_FILE_PATH = "MEMORY"
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the server of files may read, and a file outside."""
    folder = tmp_path_factory.mktemp("files") / "root"
    folder.mkdir()
    (folder / "a.txt").write_text("hello")
    (folder.parent / "outside.txt").write_text("hidden")
    return folder


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    """The tools file of all servers."""
    new, node = real.new_programs(), real.node_programs()
    return "".join(
        [
            table("files", node / "mcp-server-filesystem", root),
            table("sqlite", real.old_programs() / "mcp-server-sqlite", "--db-path", root.parent / "shop.db") + SQLITE,
            table("everything", node / "mcp-server-everything", "stdio") + LONG,
            table("memory", node / "mcp-server-memory") + NOTES,
            table("time", new / "mcp-server-time"),
            table("fetch", new / "mcp-server-fetch", "--allow-private-ips") + "timeout = 60\n",
        ]
    )


@pytest.fixture(scope="module")
def workers(server: DevServer, tmp_path_factory: pytest.TempPathFactory, text: str) -> Workers:
    """Those of the worker."""
    folder = tmp_path_factory.mktemp("worker")
    return Workers(server.address, folder, text, {"MEMORY": str(folder / "memory.jsonl")})


@pytest.fixture(scope="module")
def worker(workers: Workers) -> Iterator[psutil.Process]:
    """A worker with all servers."""
    with workers.worker(*workers.options) as process:
        yield psutil.Process(process.pid)


def running(worker: psutil.Process, name: str) -> list[int]:
    """The processes of a server."""
    found = [child for child in worker.children(recursive=True) if name in " ".join(child.cmdline())]
    return [child.pid for child in found if "supervisor" not in " ".join(child.cmdline())]


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><body><h1>Prices</h1><p>A desk costs 900.</p></body></html>"
        is_page = self.path == "/prices"
        self.send_response(200 if is_page else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body) if is_page else 0))
        self.end_headers()
        self.wfile.write(body if is_page else b"")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """A site with one page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()


INSERT = "INSERT INTO orders VALUES ('a-1')"
TIMES = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
ANN: Any = [{"name": "Ann", "entityType": "person", "observations": ["sells desks"]}]
TASKS: dict[str, tuple[list[Step], list[Step], list[tuple[str, str]], str]] = {
    "a path outside the root is for a person: no plan can change what the server may read": (
        [step("read", "files.read_text_file", path="ROOT/../outside.txt")],
        [],
        [("forbidden", "escalate")],
        "",
    ),
    "a file that is not there is for a new plan, after one attempt": (
        [step("read", "files.read_text_file", path="ROOT/b.txt")],
        [step("list", "files.list_directory", path="ROOT")],
        [("not_found", "replan")],
        "a.txt",
    ),
    "a failure inside a success is a fault, as SQLite's server calls each of its errors": (
        [
            step("make", "sqlite.create_table", query="CREATE TABLE orders (id TEXT UNIQUE)"),
            step("first", "sqlite.write_query", "make", query=INSERT),
            step("second", "sqlite.write_query", "first", query=INSERT),
        ],
        [step("count", "sqlite.read_query", query="SELECT count(*) AS n FROM orders")],
        [("conflict", "replan")],
        "'n': 1",
    ),
    "a page is fetched, and one that is not there is for a new plan": (
        [step("missing", "fetch.fetch", url="SITE/missing")],
        [step("prices", "fetch.fetch", url="SITE/prices")],
        [("not_found", "replan")],
        "A desk costs 900.",
    ),
    "a time is converted, and a time zone that does not exist is for a new plan": (
        [step("wrong", "time.convert_time", **{**TIMES, "target_timezone": "Mars/Base"})],
        [step("t", "time.convert_time", **TIMES)],
        [("invalid_input", "replan")],
        "'timezone': 'Asia/Tokyo'",
    ),
    "a note is kept, and read by the next step": (
        [
            step("keep", "memory.create_entities", entities=ANN),
            step("find", "memory.search_nodes", "keep", query="desks"),
        ],
        [],
        [],
        "'name': 'Ann'",
    ),
}
"""By what is tested, the plan, the next one, the code of each fault and what followed, and words of the last result."""


@pytest.mark.parametrize("name", TASKS)
async def test_a_task_uses_a_server(
    client: Client, workers: Workers, worker: psutil.Process, root: Path, site: str, name: str
) -> None:
    """Each call is made once."""
    first, then, expected, words = TASKS[name]
    placed = [[placed_in(one, root, site) for one in steps] for steps in (first, then)]
    revisions: list[Proposal] = [plan(*placed[1]), DONE] if then else [DONE]
    ended = await workers.ended(client, *placed[0], revisions=revisions)
    is_escalated = ("forbidden", "escalate") in expected

    assert ended.status is (TaskStatus.ESCALATED if is_escalated else TaskStatus.COMPLETED)
    assert [(fault.code, fault.decision, fault.attempt) for fault in ended.faults] == [(*one, 1) for one in expected]
    assert ended.replans == bool(then) and (not words or words in text_of(ended))
    assert {one.attempts for one in ended.steps} == {1}


def placed_in(one: Step, root: Path, site: str) -> Step:
    """A step with the places that exist here."""
    return Step.model_validate_json(one.model_dump_json().replace("ROOT", str(root)).replace("SITE", site))


async def test_a_server_that_was_killed_is_started_again(
    client: Client, workers: Workers, worker: psutil.Process, root: Path
) -> None:
    """By the next call."""
    reading = step("read", "files.read_text_file", path=str(root / "a.txt"))
    await workers.ended(client, reading)
    [before] = running(worker, "mcp-server-filesystem")
    psutil.Process(before).kill()
    ended = await workers.ended(client, reading)

    assert ended.status is TaskStatus.COMPLETED and "hello" in text_of(ended)
    assert running(worker, "mcp-server-filesystem") not in ([], [before])


def test_each_server_is_asked_in_the_way_that_it_knows(tmp_path: Path, text: str) -> None:
    """The older ones by the older handshake."""
    foreign = loaded(tmp_path, text, {"MEMORY": str(tmp_path / "memory.jsonl")})
    protocols = {name: listing.protocol for name, listing in foreign.listings.items()}

    old = dict.fromkeys(("files", "sqlite", "everything", "memory"), "2025-11-25")
    assert protocols == {**old, "time": "2026-07-28", "fetch": "2026-07-28"}


async def test_a_long_call_says_how_far_it_is(client: Client, workers: Workers, worker: psutil.Process) -> None:
    """To who looks at its task."""
    handle = await workers.start(
        client, [step("wait", "everything.trigger-long-running-operation", duration=10, steps=20)]
    )
    seen = await asyncio.to_thread(workers.starter, "show", handle.id, "--follow", "--jsonl")
    ended = await outcome(handle)
    events = [json.loads(line) for line in seen.stdout.splitlines()]
    working = [(event["step"], event["total"]) for event in events if event["event"] == "working"]

    assert ended.status is TaskStatus.COMPLETED and "Duration: 10 seconds, Steps: 20" in text_of(ended)
    assert {*working} == {("wait", 20)}


async def test_a_cancelled_call_leaves_its_server_usable(
    client: Client, workers: Workers, worker: psutil.Process
) -> None:
    """It is the same process."""
    echo = step("echo", "everything.echo", message="hello")
    await workers.ended(client, echo)
    before = running(worker, "mcp-server-everything")
    handle = await workers.start(
        client, [step("wait", "everything.trigger-long-running-operation", duration=90, steps=9)]
    )
    await asyncio.sleep(3)
    began = time.monotonic()
    await handle.cancel()
    ended, after = await outcome(handle), await workers.ended(client, echo)

    assert ended.status is TaskStatus.CANCELLED and time.monotonic() - began < 30
    assert "hello" in text_of(after) and running(worker, "mcp-server-everything") == before


async def test_what_a_server_asks_is_answered_by_an_edit(
    client: Client, workers: Workers, worker: psutil.Process
) -> None:
    """The fields of its form are arguments."""
    asking = step("ask", "everything.trigger-elicitation-request")
    handle = await workers.start(client, [asking], on_escalation="wait")
    while not (progress := await handle.query(AgentWorkflow.progress)).requests:
        await asyncio.sleep(0.1)
    answers = {"replan_answers": {"form": {"name": "Ann", "check": True, "integer": 7}}}
    done = workers.starter("answer", handle.id, "edit", "--args", json.dumps(answers), "--by", "ann", "--yes")
    ended = await outcome(handle)

    assert done.returncode == 0, done.stderr
    assert "Please provide inputs for the following fields:" in progress.requests[0].reason
    assert ended.status is TaskStatus.COMPLETED and "Ann" in text_of(ended) and "7" in text_of(ended)


READS = {
    "files": {
        *("read_file", "read_text_file", "read_media_file", "read_multiple_files", "list_directory"),
        *("list_directory_with_sizes", "directory_tree", "search_files", "get_file_info", "list_allowed_directories"),
    },
    "sqlite": {"read_query"},
    "everything": {
        *("echo", "get-annotated-message", "get-env", "get-resource-links", "get-resource-reference", "get-sum"),
        *("get-structured-content", "get-tiny-image", "trigger-long-running-operation"),
    },
    "memory": {"read_graph", "search_nodes", "open_nodes"},
    "time": {"get_current_time", "convert_time"},
    "fetch": {"fetch"},
}
"""By server, the tools that only read: as the servers say, and of `sqlite`, which says nothing, as the file does."""


def test_the_check_says_what_each_tool_is(workers: Workers) -> None:
    """And why. A tool of which nobody says that it only reads is unkeyed."""
    done = workers.asked(*workers.options[:2], "--check")
    rows = re.findall(r"^(\w+)\.(\S+) +(\w+) +\S+ +\((.*)\)$", done.stdout, re.MULTILINE)
    effects = {(server, tool): (effect, why) for server, tool, effect, why in rows if server in READS}
    reads = {name for name, (effect, _) in effects.items() if effect == "read"}

    assert done.returncode == 0, done.stderr
    assert reads == {(server, tool) for server, tools in READS.items() for tool in tools}
    assert effects[("time", "convert_time")] == ("read", "the server says that it only reads")
    assert effects[("sqlite", "read_query")] == ("read", "as the file says")
    assert effects[("memory", "create_entities")] == ("unkeyed", "nobody says that it only reads")
    assert {effect for effect, _ in effects.values()} == {"read", "unkeyed"} and len(effects) > 40
