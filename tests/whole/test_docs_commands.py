"""Every command line in README.md and docs/*.md is one that works as it stands."""

import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replan.effects import Effects
from runtime.dev_server import find_cli, free_port
from tests import documentation
from tests.documentation import PAGES, Line
from tests.processes import ROOT, Processes
from tests.whole import test_docs_tools

KEYS = documentation.printed()
ELSEWHERE = {
    r"python (with_line|payments|paying_agent)\.py.*|cat \w+\.txt": "test_docs_start.py runs them in their order",
    r"python starter\.py --task \"charge ann .*": "tests/whole/maintenance/test_pictures.py draws it, with its tools",
    r"OPENAI_BASE_URL=.*": "no such server is here: tests/providers/test_worker.py has one",
    r"make demo": "tests/whole/test_readme.py runs it",
    r"pip install '?replan.*|replan .*": "tests/whole/maintenance/test_installed.py runs what the wheel installs",
    r"make (test(-all|-stack)?|check|clean|pictures|lock|audit|bench)( \S+)?": "minutes, a network, or what runs here",
    r"(CONTAINERS=docker )?make test-containers": "it takes minutes, and root",
    r"\S+ -m pip install .*": "it would change the environment that runs here",
    r"(docker|cp) .*": "tests/containers runs them, and tests/whole/deploy/test_pages.py holds what they name",
    r"(REPLAN_(TOKEN|PAGE)=\S+ )?python starter\.py serve.*|curl .*": "it serves until Ctrl-C: extras/web asks it",
    r"python starter\.py mcp .*": "it serves an agent until that ends: extras/gateway/tests has agents",
    r".* --strategy react( --calls text)?": "no model plans here: tests/console/test_transcript.py has one",
    r"temporal activity .*": "tests/console/test_paused.py pauses and resumes calls",
    r"(temporal workflow list .* -o jsonl|while read) .*": "a loop over tasks; the same file runs what it does to each",
    r"temporal workflow pause": "only a server from 1.30 on has it: tests/stack/test_newer_server.py",
    r"temporal workflow show -w my-agent.*|python starter\.py audit .*": "extras/audit/tests/test_command.py audits",
    r"temporal workflow reset": "no command, but one that is warned of",
    r"python starter\.py .* --store \w+\.db.*": "tests/effects/test_commands.py runs them, with a store",
    r".*(\[[A-Z]+\]|COMMAND|NAME|HOST:PORT).*": "no command, but how one is written",
    "|".join(map(re.escape, test_docs_tools.COMMANDS)): "test_docs_tools.py runs them, with the tools of that page",
    r"python worker\.py .*--tools \S+\.toml.*": "extras/mcp/tests/test_real_servers.py has real servers",
    r"python starter\.py answer ID edit .*replan_answers.*": "there, too, has a server that asks",
    r"python starter\.py answer (book-a-slot retry|ID provide .*)": "its task has no fault that a person repairs",
    r"python starter\.py resolve (charge/\w+.*|CAUSE)": "tests/crash/test_incidents.py resolves one",
    r".* --contract \"send_money .*": "no tool of the demo: tests/workflows/test_agent_contract.py runs it",
}
"""Command lines that are not run here, and why."""
TOLD = {
    ".venv/bin/python": "python",
    "localhost:7233": "{address}",
    "cancel book-a-slot": "cancel going-on",
    "cancel ID": "cancel going-on",
    "refund-7f3a.json": "refund.json",
    "refund-7f3a": "book-a-slot",
    "--reset TOOL": "--reset get_price",
    "extend book-a-slot": "extend asks",
    ".replan/": "{folder}/state/",
    "replan.keys": "{folder}/replan.keys",
    "postgresql+psycopg://replan@localhost/replan": "sqlite+aiosqlite:///{folder}/theirs.db",
    ":///reports.db": ":///{folder}/reports.db",
    "--workspace files": "--workspace {folder}/files",
    "my_tools.py": "{folder}/my_tools.py",
    "--tools refunds.py --people people.json": "--tools {folder}/refunds.py --people {folder}/known.json",
    "plan.json": "{folder}/plan.json",
    "KIND JSON": """calculate '{{"expression": "1 + 1"}}'""",
    "--to STEP": "--to get_price",
    " ID": " book-a-slot",
}
"""What a reader puts in the place of what the pages say, here; all else is run as it stands."""
SERVES = re.compile(r"(\.venv/bin/)?python worker\.py(?!.*--(check|classify))")
RUNS = re.compile(r"((\.venv/bin/)?python|temporal|make|source|eval) ")
SHOWN = {
    "start --detach": "start --detach --task 'calculate 1 + 1'",
    "start --dry-run": "start --dry-run --task 'calculate 1 + 1'",
    "explain": "explain book-a-slot",
    "effects": "effects book-a-slot",
    "effects --session NAME": "effects --session shop",
    "explain --session NAME": "explain --session shop",
    "undo --session NAME": "undo --session shop --yes",
    "transcript": "transcript book-a-slot",
    "undo": "undo book-a-slot",
    "tools": "tools calculate",
    "answer": "answer asks",
    "extend": "extend asks --tool-calls +1",
    "answer ID CHOICE": "answer asks abort",
    "breakers --reset KIND": "breakers --reset get_price",
    "cancel": "cancel unwanted",
    "reset": "reset book-a-slot --to get_price",
    "resolve": "resolve http_request/forbidden",
    "export": "export book-a-slot",
    "audit": "audit --query \"WorkflowId = 'book-a-slot'\"",
    "replay": "replay --query \"WorkflowId = 'book-a-slot'\"",
    "export ID FILE": "export book-a-slot {folder}/keys.json",
    "effects --store STORE": "effects --store {folder}/agent.db",
    "effects KEY --store STORE": "effects s/greet/1 --store {folder}/agent.db",
    "explain KEY --store STORE": "explain s/greet/1 --store {folder}/agent.db",
    "export KEY --store STORE": "export s/greet/1 --store {folder}/agent.db",
    "export KEY FILE --store STORE": "export s/greet/1 {folder}/calls.json --store {folder}/agent.db",
    "prune --store STORE": "prune --store {folder}/agent.db",
    "people list": "people list --people {folder}/known.json",
    "people add": "people add bob --people {folder}/known.json",
    "doctor --store STORE": "doctor --store {folder}/agent.db",
}
"""A command line for each whose JSON docs/console.md describes, where its name alone is not enough."""
BARRED = {"id": "asked", "kind": "http_request", "args": {"method": "GET", "url": "https://pay.example/"}}
"""A step that waits for a person, since the worker may not call this host."""


def is_elsewhere(line: Line) -> bool:
    return any(re.fullmatch(pattern, line.command) for pattern in ELSEWHERE)


LINES = [line for line in documentation.lines() if not is_elsewhere(line)]
SERVING = [line for line in LINES if SERVES.match(line.command)]
RUNNING = [line for line in LINES if RUNS.match(line.command) and line not in SERVING]


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Processes]:
    """A checkout of links, so that nothing is written into ours, with a worker and the tasks that the pages name.

    `book-a-slot` met a changed world and looked up a price; `asks` waits for a person. The others
    wait on a queue that no worker serves.
    """
    folder = tmp_path_factory.mktemp("world")
    for path in ROOT.iterdir():
        if path.name not in (".git", ".replan"):
            (folder / path.name).symlink_to(path)
    for page in PAGES:
        for name, text in documentation.files(page.read_text(encoding="utf-8")).items():
            (folder / name).write_text(text)
    programs = folder / "programs"
    programs.mkdir()
    (folder / "histories").mkdir()
    (programs / "temporal").symlink_to(await find_cli(print))
    places = os.pathsep.join([str(Path(sys.executable).parent), str(programs), os.environ["PATH"]])
    processes = Processes(f"localhost:{free_port()}", folder, {"PATH": places})
    assert processes.starter("keys", "new", str(folder / "replan.keys")).returncode == 0
    assert processes.starter("people", "add", "ann", "--people", str(folder / "known.json")).returncode == 0
    with Effects(str(folder / "agent.db"), session="s") as effects, effects.scope(key="1"):
        effects.unkeyed(name="greet")(os.path.basename)("hello")
    with processes.worker("--dev"):
        task = "book a slot for the team at 14:00, then get the price of A-17"
        done = processes.starter("--id", "book-a-slot", "--task", task)
        assert done.returncode == 0, done.stdout + done.stderr
        asks = ("--id", "asks", "--task", "book a slot for the team at 14:00", "--on-escalation", "wait")
        assert processes.starter(*asks, "--replans", "0").returncode == 3
        (file := folder / "barred.json").write_text(json.dumps({"steps": [BARRED]}))
        barred = ("--id", "barred", "--task", "ask", "--plan", str(file), "--on-escalation", "wait")
        assert processes.starter("start", *barred).returncode == 3
        assert processes.starter("--id", "mcp:shop:1", "--task", "calculate 1 + 1").returncode == 0
        for id in ("going-on", "stuck", "unwanted"):
            processes.starter("--id", id, "--task", "calculate 1 + 1", "--queue", "nobody", "--detach")
        yield processes


def told(text: str, world: Processes) -> str:
    for written, meant in TOLD.items():
        text = text.replace(written, meant.format(address=world.address, folder=world.folder))
    return text


def as_told(line: Line, world: Processes, folder: Path) -> Processes:
    exported = {name: told(value, world) for name, value in line.environment.items()}
    return Processes(world.address, folder, {**world.environment, **exported})


PAGE = """
Say `python starter.py
list` first.

```sh
export A=1 B='2 3'
python x.py "#1"   # one
python y.py \\
  --z              # exit code 2
# nothing
```

```
$ temporal z
an answer
```

```python
python.no("command")
```
"""


def test_a_page_is_read_as_people_read_it() -> None:
    """Commands without their comments, with what is exported above them and the exit code that is promised."""
    read = [(line.command, line.exit, line.environment) for line in documentation.read("a.md", PAGE)]
    exported = {"A": "1", "B": "2 3"}

    assert read == [
        ('python x.py "#1"', 0, exported),
        ("python y.py    --z", 2, exported),
        ("temporal z", 0, {}),
        ("python starter.py list", 0, {}),
    ]


def test_every_line_is_covered_and_every_page_has_been_read() -> None:
    uncovered = [line for line in LINES if line not in RUNNING and line not in SERVING]

    assert [str(line) for line in uncovered] == [], "what begins so is not run: add it to RUNS, or to ELSEWHERE why not"
    assert {line.page for line in [*RUNNING, *SERVING]} >= {"README.md", "console.md", "errors.md", "operations.md"}


@pytest.mark.full
@pytest.mark.parametrize("line", RUNNING, ids=str)
def test_a_command_runs(world: Processes, line: Line) -> None:
    """It ends as the page says: with 0 unless a comment names another exit code."""
    shell = f"cd {shlex.quote(str(world.folder))} && {told(line.command, world)}"
    done = as_told(line, world, world.folder).run(["bash", "-c", shell])

    assert done.returncode == line.exit, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("line", SERVING, ids=str)
def test_a_worker_starts(world: Processes, tmp_path: Path, line: Line) -> None:
    words = shlex.split(told(line.command, world), comments=True)
    told_here = as_told(line, world, tmp_path)
    told_here.environment["REPLAN_QUEUE"] = tmp_path.name  # a queue has one store, and each of these has its own
    with told_here.worker(*words[2:]) as worker:
        worker.terminate()

        assert worker.wait(30) == 0


@pytest.mark.parametrize("command", KEYS)
def test_the_json_of_a_command_has_the_keys_that_the_page_names(world: Processes, command: str) -> None:
    """None is missing and none is invented; of a list, those of its first element, where it has one here."""
    words = shlex.split(SHOWN.get(command, command).format(folder=world.folder))
    printed = json.loads(world.starter(*words, "--json").stdout)

    assert set(printed) == {"schema", *KEYS[command]}
    listed = {name: set(inner) for name, inner in KEYS[command].items() if inner and printed[name]}
    assert {name: set(printed[name][0]) for name in listed} == listed


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page

        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
