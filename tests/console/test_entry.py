"""The command line: mistakes and exit codes, help, who waits for a worker, and where output goes nowhere."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.app import app
from console.entry import main
from runtime.dev_server import DevServer, free_port
from tests import preloaded
from tests.gate import sampled
from tests.processes import PATIENCE, ROOT, Processes

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
    """Of the whole, with a task to copy, and of every command; a switch has no value in it, what takes one shows it. A
    person who types nothing more sees what there is; for a script it is bad usage."""
    codes = [main(app, [*command, flag]) for flag in ("--help", "-h")]
    printed = capsys.readouterr().out

    assert (codes, printed.count("Usage:"), "bool" in printed) == ([0, 0], 2, False)
    assert ("NAME" in printed) is bool(command)
    assert command or 'python starter.py --task "' in " ".join(printed.split())
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
    words = [sys.executable, "-m", "replan", "list", "--store", "X", "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("No such option: --store of list, only of explain and effects and undo: ")
    assert done.stderr.count("\n") == 1


ID = "it's waiting"
WORDS = "no worker answers on queue else where: python worker.py --queue 'else where'  (still waiting)"
SHOWN = """'it'"'"'s waiting'"""


@pytest.fixture(scope="module")
def waits(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Commands for the shared server, with a task on a queue that no worker serves."""
    commands = Processes(server.address, tmp_path_factory.mktemp("waiting"))
    commands.starter("--task", "wait", "--id", ID, "--queue", "else where", "--detach")
    yield commands
    commands.starter("cancel", ID)


def left(commands: Processes, *words: str) -> tuple[str, str, str, int]:
    """What a follower says first, and all that stdout and stderr have after Ctrl-C, with the exit code."""
    out, errors = commands.folder / "out", commands.folder / "errors"
    command = [preloaded.python(), str(preloaded.STARTER), *words, "--address", commands.address]
    with out.open("w") as to, errors.open("w") as and_to:
        process = subprocess.Popen(command, cwd=ROOT, stdout=to, stderr=and_to)
        until = time.monotonic() + PATIENCE
        while "\n" not in out.read_text() + errors.read_text() and process.poll() is None:
            assert time.monotonic() < until, f"{words} said nothing within {PATIENCE} s"
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        code = process.wait(30)
    first = (out.read_text() + errors.read_text()).split("\n", maxsplit=1)[0]
    return first.strip(), out.read_text(), errors.read_text(), code


FOLLOWED = {"show": ("show", ID, "--follow"), "a document": ("show", ID, "--follow", "--json")}
CALLED = {
    "call": ("call", "nap", "--queue", "else where"),
    "its result": ("call", "nap", "--queue", "else where", "--json"),
}
LEFT = {name: (words, f"Follow: python starter.py show {SHOWN} --follow") for name, words in FOLLOWED.items()}
LEFT |= {name: (words, "Follow: python starter.py show call-nap-") for name, words in CALLED.items()}


@pytest.mark.parametrize(("words", "back"), sampled(LEFT, "show"))
def test_who_follows_is_told_once_which_worker_is_missing(waits: Processes, words: tuple[str, ...], back: str) -> None:
    """With the queue of the task, also without `--queue`; after Ctrl-C how to come back, since the task goes on. With
    --json all of the words are on stderr."""
    said, out, errors, code = left(waits, *words)

    assert (said, code, "\n" in out) == (WORDS, 130, words == FOLLOWED["show"])
    assert "detached; still running." in errors and back in errors and "Traceback" not in errors
    assert words != FOLLOWED["show"] or f"  Stop: python starter.py cancel {SHOWN}\n" in errors
    if words[0] == "call":
        assert waits.starter("cancel", errors.split()[-1]).returncode == 0


@pytest.mark.parametrize("words", [("show", ID), ("effects", ID)], ids=lambda words: str(words[0]))
def test_a_look_names_the_queue_of_the_task(waits: Processes, words: tuple[str, ...]) -> None:
    """Those that ask a worker once, and end with 6."""
    done = waits.starter(*words)

    assert done.returncode == 6
    assert "start one with `python worker.py --queue 'else where'`." in done.stderr


LOOKS = {
    " ".join(words): [words]
    for words in (
        ("list",),
        ("list", "--json"),
        ("show", "no-such-task"),
        ("show", "no-such-task", "-f", "--jsonl"),
        ("--help",),
        ("start", "--task", "x", "--detach", "--id", "unheard", "--queue", "nobody-there"),
    )
}
MODULES = ["runtime", "typer", "console.app", "temporalio.service", "temporalio.client"]
FULL = "The output cannot be written (No space left on device): make room, or send it elsewhere.\n"
ENCRYPTED = "note: the tasks named (encrypted) can be read with the workers' `--keys` or REPLAN_CODEC\n"
"""What `list` adds if another test has left an encrypted task on the shared server."""


def redirected(commands: Processes, where: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose streams a shell has redirected."""
    return commands.run(["sh", "-c", f'exec "$@" {where}', "sh", sys.executable, str(ROOT / "starter.py"), *words])


@pytest.mark.parametrize("words", sampled(LOOKS, "show no-such-task"))
def test_a_closed_stdout_changes_no_exit_code(commands: Processes, words: tuple[str, ...]) -> None:
    """`>&-`: nothing is printed, all else is as ever."""
    done, usual = redirected(commands, ">&-", *words), commands.starter(*words)

    assert (done.returncode, done.stdout, done.stderr) == (usual.returncode, "", usual.stderr)
    if "unheard" in words:
        assert commands.starter("cancel", "unheard").returncode == 0


@pytest.mark.parametrize("words", sampled({name: LOOKS[name] for name in ("list", "list --json", "--help")}, "list"))
def test_a_full_disk_is_a_sentence_and_1(commands: Processes, words: tuple[str, ...]) -> None:
    """What was asked is not where it should be; a mistake that cannot be said keeps its exit code."""
    done, unsaid = (
        redirected(commands, ">/dev/full", *words),
        redirected(commands, "2>/dev/full", "show", "no-such-task"),
    )

    assert (done.returncode, done.stderr.removeprefix(ENCRYPTED)) == (1, FULL)
    assert (unsaid.returncode, unsaid.stdout) == (2, "")


@pytest.mark.parametrize("module", sampled({module: [module] for module in MODULES}, "temporalio.client"))
def test_ctrl_c_while_it_is_loaded_is_quiet(commands: Processes, module: str) -> None:
    """Right after this module was imported: exit code 130, no traceback and no warning."""
    command = [sys.executable, "-X", "importtime", str(ROOT / "starter.py"), "list", "--address", commands.address]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rpartition("|")[2].strip() == module:
                process.send_signal(signal.SIGINT)
                break
        rest = [line for line in process.stderr if not line.startswith("import time:")]
        code = process.wait(60)

    assert (code, rest) == (130, [])
