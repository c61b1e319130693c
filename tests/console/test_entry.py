"""The command line: mistakes are one sentence or one JSON document, help is help, exit codes are kept."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from console.app import app
from console.entry import main
from runtime.dev_server import DevServer, free_port
from tests.gate import sampled
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
def test_a_mistake_in_the_usage_is_one_sentence(capsys: Captured, arguments: list[str], words: str) -> None:
    """On stderr: what is wrong and what to do about it; exit code 2; nothing on stdout."""
    code = main(app, arguments)
    printed = capsys.readouterr()

    assert (code, printed.out) == (2, "")
    assert words in printed.err and printed.err.endswith(".\n") and printed.err.count("\n") == 1


@pytest.mark.parametrize(("arguments", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_usage_is_one_document(capsys: Captured, arguments: list[str], words: str) -> None:
    """With --json the same on stdout, in the shape of every problem."""
    code = main(app, [*arguments, "--json"])
    printed = capsys.readouterr()
    error = json.loads(printed.out)["error"]

    assert (code, printed.err) == (2, "")
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


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", [[], ["start"], ["show"], ["cancel"]], ids=" ".join)
def test_help_is_help(capsys: Captured, command: list[str], flag: str) -> None:
    """Of the whole and of every command, long and short, exit code 0."""
    code = main(app, [*command, flag])

    assert code == 0
    assert "Usage:" in capsys.readouterr().out


@pytest.mark.parametrize("command", [[], ["start"], ["show"]], ids=" ".join)
def test_a_switch_takes_no_value(capsys: Captured, command: list[str]) -> None:
    """The help shows none for it; what takes one shows it."""
    main(app, [*command, "--help"])
    printed = capsys.readouterr().out

    assert "bool" not in printed and ("NAME" in printed) is bool(command)


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["", "json"])
def test_a_text_beside_a_plan_is_explained(capsys: Captured, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The plan runs as it is written: a person who gave a text, too, is told what it is for; a program is not."""
    (file := tmp_path / "plan.json").write_text('{"steps": []}')
    code = main(app, ["--plan", str(file), "--task", "do more", "--deadline", "1h", "--address", "localhost:1", *words])

    assert code == 6
    assert ("--plan runs as it is written; the text of --task names" in capsys.readouterr().err) is (not words)


def test_no_arguments_show_the_help(capsys: Captured) -> None:
    """A person who types nothing more sees what there is; for a script it is bad usage."""
    code = main(app, [])

    assert code == 2
    assert "Usage:" in "".join(capsys.readouterr())


def test_an_example_of_a_task_is_in_the_help(capsys: Captured) -> None:
    """One line to copy."""
    main(app, ["--help"])

    assert 'python starter.py --task "' in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def nobody(tmp_path: Path) -> Processes:
    """Commands for a server that is not there, with no settings of whoever runs the tests."""
    return Processes(f"localhost:{free_port()}", tmp_path, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})


NEED_A_SERVER = [("--task", "x"), ("show", "x"), ("cancel", "x")]


@pytest.mark.parametrize("command", sampled({" ".join(words): [words] for words in NEED_A_SERVER}, "show x"))
def test_a_server_that_is_not_there_is_a_sentence_and_6(nobody: Processes, command: tuple[str, ...]) -> None:
    """Where nobody answers, and how to start somebody; no traceback."""
    done = nobody.starter(*command)

    assert (done.returncode, done.stdout) == (6, "")
    assert f"No Temporal server answers at {nobody.address}" in done.stderr and done.stderr.count("\n") == 1


def test_a_server_that_is_not_there_is_a_document(nobody: Processes) -> None:
    """With --json, on stdout."""
    done = nobody.starter("--task", "x", "--json")

    assert (done.returncode, done.stderr) == (6, "")
    assert json.loads(done.stdout)["error"]["code"] == "unreachable"


def test_settings_that_cannot_be_used_are_bad_usage(nobody: Processes) -> None:
    """An address that is none is no server that does not answer."""
    done = nobody.starter("--task", "x", "--address", "nonsense:x")

    assert done.returncode == 2
    assert "'nonsense:x' is no address" in done.stderr


@pytest.fixture
def commands(server: DevServer, tmp_path: Path) -> Processes:
    """Commands for the shared server, which has no worker."""
    return Processes(server.address, tmp_path)


@pytest.mark.parametrize("command", [("show", "no-such-task"), ("cancel", "no-such-task")], ids=" ".join)
def test_an_unknown_id_is_bad_usage(commands: Processes, command: tuple[str, ...]) -> None:
    """Nothing is started, nothing is guessed."""
    done = commands.starter(*command)

    assert done.returncode == 2
    assert done.stderr == "There is no task 'no-such-task' here: `python starter.py list` shows those there are.\n"


@pytest.mark.parametrize("id", ["x" * 5000, ""], ids=["too long", "empty"])
def test_an_id_that_the_server_refuses_is_bad_usage(commands: Processes, id: str) -> None:
    """A server that says no has answered."""
    done = commands.starter("show", id)

    assert done.returncode == 2
    assert "did not answer" not in done.stderr and done.stderr.count("\n") == 1


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


@pytest.mark.full
def test_a_follower_without_a_worker_says_so_and_detaches(commands: Processes) -> None:
    """After 3 s: which queue, and the command that serves it; Ctrl-C leaves the task running, exit code 130."""
    command = [sys.executable, str(ROOT / "starter.py"), "--task", "wait", "--queue", "nobody-there"]
    environment = {**os.environ, "TEMPORAL_ADDRESS": commands.address}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)

    assert (
        said.strip()
        == "no worker answers on queue nobody-there: python worker.py --queue nobody-there  (still waiting)"
    )
    assert process.returncode == 130
    assert "detached; still running. Follow: python starter.py show wait-" in errors and "Traceback" not in errors


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
