"""The command line: mistakes are one sentence or one JSON document, help is help, exit codes are kept."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from console.app import app
from console.entry import main
from runtime.dev_server import DevServer, free_port
from tests.processes import ROOT, Processes

Captured = pytest.CaptureFixture[str]

MISTAKES = {
    "unknown option": (["--nope"], "No such option: --nope"),
    "nothing to do": (["start"], "There is nothing to do, since neither --task nor --plan says what"),
    "a limit in words": (["--task", "x", "--tokens", "abc"], "--tokens N must be a whole number, not 'abc'"),
    "deadline in words": (["--task", "x", "--deadline", "soon"], "--deadline 'soon' is no duration: write seconds"),
    "option of another command": (["show", "x", "--task", "y"], "No such option: --task of show, only of start"),
    "two commands": (["--task", "x", "show", "y"], "`python starter.py start` takes only options, and not 'show y'"),
    "command after its options": (["--status", "waiting", "list"], "--status stands before the command list"),
    "no UTF-8": (["show", "\udcff"], r"The argument '\udcff' is not UTF-8"),
}
"""Some of mistakes.toml, and what TOML cannot say."""


@pytest.mark.parametrize(("arguments", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_usage_is_one_sentence_or_one_document(
    capsys: Captured, arguments: list[str], words: str
) -> None:
    """On stderr, with what to do about it; with --json the same on stdout, in the shape of every problem."""
    code, printed = main(app, arguments), capsys.readouterr()
    coded, document = main(app, [*arguments, "--json"]), capsys.readouterr()
    error = json.loads(document.out)["error"]

    assert (code, printed.out, coded, document.err) == (2, "", 2, "")
    assert words in printed.err and printed.err.endswith(".\n") and printed.err.count("\n") == 1
    assert words in f"{error['reason']}: {error['remedy']}" and error["code"]


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--nope"], "python starter.py start --help"),
        (["call", "--nope"], "python starter.py call --help"),
        (["shwo"], "python starter.py --help"),
    ],
)
def test_the_remedy_is_a_command_that_works(capsys: Captured, arguments: list[str], remedy: str) -> None:
    """The help that is named is that of the command that was meant."""
    main(app, arguments)
    assert f"`{remedy}`" in capsys.readouterr().err

    assert main(app, remedy.split()[2:]) == 0


@pytest.mark.parametrize("command", [[], ["start"], ["show"], ["cancel"]], ids=" ".join)
def test_help_is_help(capsys: Captured, command: list[str]) -> None:
    """Of the whole, with a task to copy, and of every command; a switch has no value in it, what takes one shows it.

    A person who types nothing more sees what there is; for a script it is bad usage.
    """
    codes = [main(app, [*command, flag]) for flag in ("--help", "-h")]
    printed = capsys.readouterr().out

    assert (codes, printed.count("Usage:"), "bool" in printed) == ([0, 0], 2, False)
    assert ("NAME" in printed) is bool(command)
    assert ('python starter.py --task "' in " ".join(printed.split())) is not bool(command)
    assert (main(app, []), "Usage:" in "".join(capsys.readouterr())) == (2, True)


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["", "json"])
def test_a_text_beside_a_plan_is_explained(capsys: Captured, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The plan runs as it is written: a person who gave a text, too, is told what it is for; a program is not."""
    (file := tmp_path / "plan.json").write_text('{"steps": []}')
    code = main(app, ["--plan", str(file), "--task", "do more", "--deadline", "1h", "--address", "localhost:1", *words])

    assert code == 6
    assert ("--plan runs as it is written; the text of --task names" in capsys.readouterr().err) is (not words)


@pytest.fixture
def nobody(tmp_path: Path) -> Processes:
    """Commands for a server that is not there, with no settings of whoever runs the tests."""
    return Processes(f"localhost:{free_port()}", tmp_path, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize("words", [("show", "x"), pytest.param(("cancel", "x"), marks=pytest.mark.full)])
def test_a_server_that_is_not_there_is_a_sentence_and_6(nobody: Processes, words: tuple[str, ...]) -> None:
    """Where nobody answers, and how to start somebody; no traceback. With --json it is a document."""
    done, document = nobody.starter(*words), nobody.starter("--task", "x", "--json")

    assert (done.returncode, done.stdout) == (6, "")
    assert f"No Temporal server answers at {nobody.address}" in done.stderr and done.stderr.count("\n") == 1
    assert done.stderr.endswith(", or see `python starter.py doctor`.\n")
    assert (document.returncode, document.stderr) == (6, "")
    assert json.loads(document.stdout)["error"]["code"] == "unreachable"


@pytest.fixture
def commands(server: DevServer, tmp_path: Path) -> Processes:
    """Commands for the shared server, which has no worker."""
    return Processes(server.address, tmp_path)


NO_TASK = "There is no task 'no-such-task' here: `python starter.py list` shows those there are.\n"


@pytest.mark.parametrize(
    ("command", "id", "said"),
    [
        ("show", "no-such-task", NO_TASK),
        ("cancel", "no-such-task", NO_TASK),
        ("show", "x" * 5000, ""),
        ("show", "", ""),
    ],
    ids=["show", "cancel", "too long", "empty"],
)
def test_an_id_that_names_no_task_is_bad_usage(commands: Processes, command: str, id: str, said: str) -> None:
    """Nothing is started, nothing is guessed; a server that says no has answered."""
    done = commands.starter(command, id)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "did not answer" not in done.stderr and (done.stderr == said or not said)


def test_a_task_may_be_started_before_its_worker(commands: Processes) -> None:
    """`--detach` needs no worker, and says how to come back."""
    done = commands.starter("--task", "wait for it", "--detach", "--queue", "nobody-there")
    id = done.stdout.split()[0]

    assert done.returncode == 0
    assert f"Follow: python starter.py show {id} --follow" in done.stdout
    assert commands.starter("cancel", id).returncode == 0


@pytest.mark.full
def test_a_terminal_that_knows_no_such_letter_shows_a_question_mark(server: DevServer, tmp_path: Path) -> None:
    """Signs and foreign names are no reason to fail where the locale is an old one."""
    old = Processes(server.address, tmp_path, {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    done = old.starter("--task", "x", "--id", f"tä-{free_port()}", "--detach", "--queue", "nobody-there")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("t?-")


@pytest.mark.parametrize("script", ["starter.py", "worker.py"])
def test_a_python_without_the_packages_says_what_to_do(script: str) -> None:
    """Outside the virtual environment: the remedy, not a ModuleNotFoundError; exit code 2."""
    command = [sys.executable, "-S", script, "--help"]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": "/usr/bin"}, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"This Python ({sys.executable}) has no temporalio, pydantic, structlog, typer: ")
    assert f"`.venv/bin/python {script} ...`" in done.stderr and done.stderr.count("\n") == 1


def test_the_command_line_of_the_package_explains_an_option_of_other_commands() -> None:
    """It has a command more, `worker`, which is no module of the console."""
    words = [sys.executable, "-m", "replan", "serve", "--store", "X", "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("No such option: --store of serve, only of explain and effects and undo: ")
    assert done.stderr.count("\n") == 1
