"""The pages where one starts, with models and with the client: their programs and replies do what they say."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.planning.strategies import ENDINGS, PlanStrategy
from activities.toolbox import builtin
from activities.toolbox.expressions.calculate import calculate
from activities.toolbox.json_schema import JsonSchema
from activities.toolbox.registry import Registry
from evals.fakes.script import RawBytes, finishes
from runtime.dev_server import DevServer, free_port
from tests import documentation
from tests.activities.situations import asked
from tests.gate import sampled
from tests.harness import staged
from tests.processes import PATIENCE, ROOT, Processes
from tests.providers.planning import planning
from workflows.account.task import TaskStatus
from workflows.plans.proposal import MAX_STEPS

SHUTDOWN = (-signal.SIGABRT, -signal.SIGSEGV)
"""How a process that has used Temporal's SDK may end after all of its work: threads of its core still call Python."""


def played(page: str, folder: Path, **environment: str) -> list[tuple[str, int, str]]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    programs = documentation.files(text)
    for name, content in programs.items():
        (folder / name).write_text(content)
    (folder / "starter.py").symlink_to(ROOT / "starter.py")
    found = []
    for line in documentation.read(page, text):
        program, *words = line.command.split()
        if program == "cat":
            found.append((line.command, 0, (folder / words[0]).read_text()))
        elif words[0] in programs:
            ours = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
            command = [sys.executable, *words]
            done = subprocess.run(command, cwd=folder, env=ours, capture_output=True, text=True, timeout=60)
            found.append((line.command, done.returncode, done.stdout + done.stderr))
    return found


@pytest.mark.parametrize("page", ["start-functions.md", "start-mcp.md"])
def test_what_was_paid_before_a_kill_is_found_and_not_paid_again(page: str, tmp_path: Path) -> None:
    (_, killed, _), (_, again, said), (_, _, paid) = played(page, tmp_path)

    assert (killed, again) == (-signal.SIGKILL, 0), said
    assert "charged 12.00" in said and ("found" in said or "Not done again" in said)
    assert paid == "17 12.00\n"


def test_the_line_ends_retries_that_cannot_help(tmp_path: Path, server: DevServer) -> None:
    without, with_it = played("start-worker.md", tmp_path, TEMPORAL_ADDRESS=server.address)

    assert {without[1], with_it[1]} <= {0, *SHUTDOWN}
    assert [said.count("attempt ") for _, _, said in (without, with_it)] == [4, 1]
    assert all("failed: [WorkflowFailureError" in said for _, _, said in (without, with_it))


MODELS = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
CALLS = {call: cells for call, *cells in documentation.tables(MODELS)["call"]}
REPLY = (
    MODELS.partition("A whole reply of a server with OpenAI's API:")[2].partition("```json\n")[2].partition("```")[0]
)


def test_the_page_has_each_call_with_its_arguments() -> None:
    """Those that are offered to a model, with each field that it must or may give."""
    tools = PlanStrategy().tools(asked("x"), Registry([], builtin=builtin.tools(has_model=False)))
    plan = tools[0].schema
    [step, *_] = plan["properties"]["steps"]["items"]["anyOf"]
    fields = {tool.name: set(tool.schema["properties"]) for tool in tools}
    fields[tools[0].name] |= set(step["properties"])

    assert {call: set(re.findall(r"`(\w+)`", cells[0])) - {"value"} for call, cells in CALLS.items()} == fields
    assert f"1 to {MAX_STEPS} objects" in CALLS[tools[0].name][0]
    assert set(ENDINGS) == set(CALLS) - {tools[0].name}
    assert set(JsonSchema({"type": "string"}).arguments["properties"]) == {"value"}


async def test_the_reply_of_the_page_is_understood(client: Client, tmp_path: Path) -> None:
    body = json.dumps(json.loads(REPLY)).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    script = (RawBytes(head.encode() + body), finishes("It is 2."))
    async with planning("openai", *script) as (api, planner), staged(client, tmp_path, [calculate], planner) as stage:
        ended = await stage.run("what is 1 + 1?")
    first, second = (body["messages"] for body in api.bodies)

    assert (ended.status, ended.result, [step.id for step in ended.steps]) == (
        TaskStatus.COMPLETED,
        "It is 2.",
        ["sum"],
    )
    assert [one["role"] for one in second] == ["system", "user", "assistant", "tool", "user"]
    assert ("1 + 1" in first[1]["content"], "tool calls are left" in second[-1]["content"]) == (True, True)
    assert ended.spent.tokens > 940


PAGE = (ROOT / "docs" / "client.md").read_text()
FOUND = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
BLOCKS = [one for one in FOUND if "from orders" not in one]  # tests/test_plugin.py has a worker with workflows
SAID = {0: "= 441.", 1: "", 2: "completed"}
"""The last word that each block prints."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(f"localhost:{free_port()}", tmp_path_factory.mktemp("client"))
    with processes.worker("--dev"):
        yield processes


@pytest.mark.parametrize("number", sampled({str(number): [number] for number in range(len(BLOCKS))}, "0"))
def test_a_block_of_the_page_runs(world: Processes, number: int) -> None:
    body = textwrap.indent(BLOCKS[number], "    ")
    program = f"import asyncio\n\nasync def main() -> None:\n{body}\n\nasyncio.run(main())\n"
    done = world.run([sys.executable, "-c", program])

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(SAID[number]), done.stdout


def test_the_service_takes_orders_and_decides(world: Processes) -> None:
    """What it may approve is booked; anything else ends the task."""
    check_service(world, Path(sys.executable))


def check_service(world: Processes, python: Path) -> None:
    port = free_port()
    words = [str(python), str(ROOT / "examples" / "service.py"), str(port)]
    paths = {} if world.installed else {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, env={**world._environment, **paths}, cwd=world.folder) as service:
        try:
            until = time.monotonic() + PATIENCE
            while not answers(port):
                assert time.monotonic() < until and service.poll() is None
                time.sleep(0.1)
            booked = order(port, "book a slot for the team at 16:30")
            refused = order(port, "write 'hello' into note.txt")
        finally:
            service.terminate()

    by = "Aborted by the order service: The order service cannot decide that."
    assert booked["status"] == "completed", booked
    assert (refused["status"], refused["reason"]) == ("failed", by)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def order(port: int, text: str) -> dict[str, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}", data=text.encode(), timeout=PATIENCE) as answer:
        found: dict[str, str] = json.loads(answer.read())
        return found
