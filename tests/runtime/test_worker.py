"""The entry scripts as a user starts them: whatever is wrong with an option is one sentence, and how they end."""

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from console.commands.doctor import _within
from console.render.checks import Status
from runtime.dev_server import DevServer, free_port
from tests.gate import sampled
from tests.installation import VERSION
from tests.processes import ROOT, Processes
from tests.stores import make_old_store

TOOL = '''
from pydantic import BaseModel
from replan import tool


class Word(BaseModel):
    """A word."""

    word: str


@tool.read
async def echo(args: Word) -> Word:
    """Say it again."""
    return args
'''


@pytest.fixture
def nobody(tmp_path: Path) -> Processes:
    return Processes(f"localhost:{free_port()}", tmp_path, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})


def worker(processes: Processes, *options: str) -> tuple[int, str, str]:
    done = processes.asked(*options)
    return done.returncode, done.stdout, done.stderr


def test_check_prints_the_catalogue_without_a_server(nobody: Processes) -> None:
    file = nobody.folder / "mine.py"
    file.write_text(TOOL)
    code, said, errors = worker(nobody, "--check", "--tools", str(file))

    assert (code, errors) == (0, "")
    assert said.startswith("echo  read ") and "\n    Say it again.\n    word: string; standard, 30 s\n" in said
    assert " compose, " in said and not (nobody.folder / "state").exists()


BAD_TOOLS = {
    "bare decorator": (TOOL.replace("@tool.read", "@tool"), ["echo: a bare @tool does not say what a call changes"]),
    "two mistakes": (
        TOOL.replace("-> Word", "").replace('    """Say it again."""\n', ""),
        ["echo: there is no docstring", "echo: the result has no type"],
    ),
    "built-in name": (TOOL.replace("echo", "compose"), ["compose: another tool has this name already"]),
    "raises": ("raise RuntimeError('no luck')", ["cannot be imported (RuntimeError: no luck): correct it there."]),
    "exits": ("import sys; sys.exit(0)", ["cannot be imported (SystemExit: 0): correct it there."]),
    "none": ("", ["defines no tool: decorate a function"]),
}


@pytest.mark.parametrize(("source", "sentences"), sampled(BAD_TOOLS, "two mistakes"))
def test_check_says_everything_that_is_wrong_with_a_file(nobody: Processes, source: str, sentences: list[str]) -> None:
    file = nobody.folder / "mine.py"
    file.write_text(source)
    code, said, errors = worker(nobody, "--check", "--tools", str(file))

    assert (code, said, errors.count("\n")) == (2, "", len(sentences) + (len(sentences) > 1))
    assert all(sentence in errors for sentence in sentences)


BAD_OPTIONS = {
    "fresh alone": (["--fresh"], 2, "give --dev too"),
    "port alone": (["--port", "7300"], 2, "--port is for the server of --dev: name another server with TEMPORAL_ADDR"),
    "no tools file": (["--tools", "nowhere.py"], 2, "There is no tools file nowhere.py: check --tools."),
    "planner": (["--planner", "oracle"], 2, "There is no planner 'oracle': use offline, anthropic:MODEL,"),
    "no script": (["--planner", "scripted:"], 2, "There is no planner 'scripted:'"),
    "missing script": (["--planner", "scripted:no.json"], 2, "The script 'no.json' cannot be used (No such file"),
    "broken script": (["--planner", "scripted:README.md"], 2, "cannot be used (it is no JSON list of proposals)"),
    "documents": (["--documents", "nowhere"], 2, "There is no folder 'nowhere': give --documents one that exists."),
    "documents file": (["--documents", "README.md"], 2, "There is no folder 'README.md'"),
    "no settings": (["--settings", "no.toml"], 2, "There is no settings file 'no.toml': check --settings and REPLAN_"),
    "bad settings": (["--settings", "README.md"], 2, "The settings file 'README.md' is no TOML ("),
    "state file": (["--state", "README.md"], 2, "The state folder 'README.md' cannot be used (File exists)"),
    "nobody there": ([], 6, "No Temporal server answers at localhost:"),
}


@pytest.mark.parametrize(("options", "code", "words"), sampled(BAD_OPTIONS, "broken script", "nobody there"))
def test_an_option_that_cannot_be_used_is_a_sentence(
    nobody: Processes, options: list[str], code: int, words: str
) -> None:
    ended, said, errors = worker(nobody, *options)

    assert (ended, said) == (code, "")
    assert words in errors and errors.count("\n") == 1


BAD_STORES = [
    "nonsense",
    "sqlite:///{folder}/store.db",
    "sqlite+aiosqlite:////no/such/folder/store.db",
    "sqlite+aiosqlite:///{folder}",
    "sqlite+aiosqlite:///{folder}/notes.txt",
    "sqlite+aiosqlite:///file:{folder}/empty.db?mode=ro&uri=true",
    "postgresql+asyncpg://me:sk-secret@localhost:port/db",
    "postgresql+asyncpg://me:sk-secret@localhost:1/db",
    "nosuch+driver://me:sk-secret@localhost/db",
]


@pytest.mark.parametrize("url", sampled({url: [url] for url in BAD_STORES}, BAD_STORES[4]))
def test_a_store_that_cannot_be_opened_is_a_sentence(server: DevServer, tmp_path: Path, url: str) -> None:
    """Which store, without its password, why, and where it was named; the process ends."""
    (tmp_path / "notes.txt").write_text("no database" * 100)
    (tmp_path / "empty.db").touch()
    code, said, errors = worker(Processes(server.address, tmp_path), "--store", url.format(folder=tmp_path))

    assert (code, said) == (2, "")
    assert "cannot be opened" in errors and "--store" in errors and errors.count("\n") == 1
    assert "sk-secret" not in errors


def test_a_store_of_a_version_before_the_first_release_is_a_sentence(server: DevServer, tmp_path: Path) -> None:
    """What made it, why it cannot be used, and what to do; not a byte of it is changed."""
    old, url = tmp_path / "old.db", f"sqlite+aiosqlite:///{tmp_path}/old.db"
    asyncio.run(make_old_store(url))
    before = old.read_bytes()
    code, said, errors = worker(Processes(server.address, tmp_path), "--store", url)

    assert (code, said, errors.count("\n")) == (2, "", 1)
    assert "old.db was made by a version of Replan before 0.2.0, which was never released" in errors
    assert errors.endswith(": use another --store, or delete this one.\n")
    assert old.read_bytes() == before


@pytest.mark.full
def test_an_unknown_option_is_said(nobody: Processes) -> None:
    code, _, errors = worker(nobody, "--nope")

    assert code == 2
    assert "No such option: --nope" in errors and "Traceback" not in errors


def test_help_names_every_option(nobody: Processes) -> None:
    code, said, _ = worker(nobody, "--help")
    promised = "--dev --port --fresh --tools --check --documents --state --store --queue --planner"

    assert code == 0
    assert all(option in said for option in promised.split())


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM])
def test_a_worker_stops_in_order(server: DevServer, tmp_path: Path, number: signal.Signals) -> None:
    """It says where everything is, serves its queue, and ends with 0 and a word about what is left."""
    processes = Processes(server.address, tmp_path)
    with processes.worker("--queue", f"stops-{number}", "--log", "json") as running:
        running.send_signal(number)
        said, _ = running.communicate(timeout=30)

    assert (running.returncode, said) == (0, "stopped; no task unfinished\n")
    log = (tmp_path / "worker.log").read_text()
    assert all(json.loads(line) for line in log.splitlines()) and "Beginning worker shutdown" not in log


@pytest.mark.full
def test_a_user_s_folder_beside_the_tools_shadows_nothing(nobody: Processes) -> None:
    for name in ("activities", "replan", "runtime", "workflows"):
        (nobody.folder / name).mkdir()
        (nobody.folder / name / "__init__.py").write_text("raise RuntimeError('the wrong one')")
    (nobody.folder / "mine.py").write_text(TOOL)
    python = str(ROOT / ".venv" / "bin" / "python")
    script = f"cd {nobody.folder} && {python} {ROOT / 'worker.py'} --check --tools mine.py"
    done = nobody.run([shutil.which("sh") or "sh", "-c", script])

    assert (done.returncode, done.stderr) == (0, "")
    assert "echo" in done.stdout


SCRIPTS = pytest.mark.parametrize("script", [pytest.param("worker.py", marks=pytest.mark.full), "starter.py"])


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, script, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@SCRIPTS
@pytest.mark.parametrize("flag", ["-h", pytest.param("--help", marks=pytest.mark.full)])
def test_help_is_short_and_long(script: str, flag: str) -> None:
    done = run(script, flag)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout and "--version" in done.stdout


@SCRIPTS
def test_the_version_is_one_line(script: str) -> None:
    done = run(script, "--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"Replan {VERSION}\n", "")


STUBBORN = """
import asyncio
from runtime import process

async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def late():
    try:
        await asyncio.sleep(3600)
    finally:
        raise LookupError("nobody reads this")

async def main():
    tasks = [asyncio.create_task(work()) for work in (stubborn, late)]
    await asyncio.sleep(0.1)
    END
"""


@pytest.mark.parametrize(("end", "code"), [("return 3", 3), ("raise SystemExit(4)", 4)])
def test_a_task_that_ignores_its_cancel_does_not_keep_the_process(end: str, code: int) -> None:
    """It is left behind, without a word."""
    script = STUBBORN.replace("END", end)
    script += (
        "try:\n    code = process.run(main())\nexcept SystemExit as left:\n    code = left.code\nprocess.leave(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


async def test_a_check_that_ignores_its_cancel_is_given_up_in_time() -> None:
    is_over = asyncio.Event()

    async def stubborn() -> list[object]:
        while not is_over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await is_over.wait()
        return []

    begun = time.monotonic()
    [check] = await _within(asyncio.get_running_loop().time() + 0.2, "open tasks", stubborn())  # type: ignore[arg-type]
    is_over.set()

    assert (check.status, check.found) == (Status.FAIL, "no answer in time")
    assert time.monotonic() - begun < 20
