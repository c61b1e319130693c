"""What docs/tools.md promises is what happens: its tools, its commands, its tables."""

import ast
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator

import httpx2
import pytest
from pydantic import TypeAdapter

from activities import errors
from activities.borders import classify
from activities.toolbox.declare.tool import DECORATORS, ToolOptions
from activities.toolbox.expressions.evaluation import TYPED_FUNCTIONS
from activities.toolbox.injection import ASYNC_ONLY, INJECTABLE
from runtime.dev_server import DevServer, free_port
from tests.activities.mistakes import PLANTED
from tests.activities.payments import Payments, payments
from tests.processes import ROOT, Processes
from tests.test_break import BROKEN
from workflows.faults import retries
from workflows.faults.fault import Code, Quadrant

TEXT = (ROOT / "docs" / "tools.md").read_text()
FILES: dict[str, str] = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, flags=re.DOTALL))
FILES |= zip(("my_plan.json", "my_next.json"), re.findall(r"```json\n(.*?)```", TEXT, flags=re.DOTALL), strict=True)
"""The code blocks that are a file, by its name."""
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    for line in block.splitlines()
]


def table(heading: str) -> list[list[str]]:
    _, _, below = TEXT.partition(f"\n| {heading} |")
    rows = below.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def ticked(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, server: DevServer) -> Processes:
    folder = tmp_path_factory.mktemp("docs")
    for name, source in FILES.items():
        (folder / name).write_text(source)
    # Plugins by name, since an environment that was made earlier lacks the newest entry points.
    return Processes(server.address, folder, {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


@pytest.fixture(scope="module")
def paying(written: Processes) -> Iterator[tuple[Processes, Payments]]:
    with payments() as service:
        written.environment["PAYMENTS_URL"] = service.url.removesuffix("/charges")
        files = [str(written.folder / name) for name in ("my_tools.py", "my_lists.py", "my_payments.py")]
        with written.worker(*(word for file in files for word in ("--tools", file))):
            yield written, service


@pytest.fixture(scope="module")
def served(paying: tuple[Processes, Payments]) -> Processes:
    return paying[0]


def run(processes: Processes, command: str) -> subprocess.CompletedProcess[str]:
    words = [str(processes.folder / word) if word in FILES else word for word in shlex.split(command)]
    if words[:2] == ["python", "starter.py"]:
        return processes.starter(*words[2:])
    return processes.run([sys.executable if word == "python" else word for word in words])


def test_the_page_has_files_and_commands() -> None:
    """The other tests look at something."""
    tools = {"my_tools.py", "my_vat.py", "my_judge.py", "my_payments.py", "my_lists.py"}

    assert set(FILES) == tools | {"test_my_tools.py", "test_my_calls.py", "my_plan.json", "my_next.json"}
    assert len(COMMANDS) == 9


@pytest.mark.full
@pytest.mark.parametrize("name", ["my_tools.py", "my_payments.py", "my_lists.py"])
def test_each_tools_file_is_accepted(written: Processes, name: str) -> None:
    done = run(written, f"python worker.py --check --tools {name}")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.full
def test_the_tests_of_the_page_pass(written: Processes) -> None:
    """Those of the page's tools, run as their reader would."""
    files = "test_my_tools.py test_my_calls.py"
    done = run(written, f"python -m pytest -q -p no:cacheprovider -p replan.pytest_plugin {files}")

    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_the_example_of_raising_is_right() -> None:
    [source] = re.findall(r"```python\nraise (.*)\n```", TEXT)

    call = ast.parse(source, mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    words = [ast.literal_eval(word) for word in call.args]
    more = {option.arg or "": ast.literal_eval(option.value) for option in call.keywords}

    assert getattr(errors, call.func.id)(*words, **more).fault.code == more["code"]


@pytest.mark.full
@pytest.mark.parametrize("command", [one for one in COMMANDS if "starter.py" in one])
def test_each_command_of_the_starter_runs(served: Processes, command: str) -> None:
    done = run(served, command)

    assert done.returncode == 0, done.stdout + done.stderr
    assert ("Completed" if "--plan" in command else "to_feet") in done.stdout + done.stderr


def test_the_plans_and_calls_of_the_page_do_what_it_says(served: Processes) -> None:
    """The table is there, each reference brings what was found, and in the end the list is as it was.

    At the latest the second time swimming is a conflict and running follows; at the latest the third, nothing.
    """
    done = run(served, "python starter.py start --plan my_plan.json --json")
    steps = {step["id"]: step for step in json.loads(done.stdout)["steps"]}
    entry = steps["put"]["result"]
    ended = [json.loads(run(served, "python starter.py start --plan my_next.json --json").stdout) for _ in range(3)]
    call = """python starter.py call add '{"day": "Monday", "words": "rest"}' --json"""
    _, again = (json.loads(run(served, call).stdout) for _ in range(2))
    misfit = run(served, """python starter.py call to_feet '{"meters": 1.5}'""")

    assert (steps["see"]["result"], steps["off"]["result"]) == ([entry], {"id": entry["id"]})
    assert steps["see"]["needs"] == ["put"]
    assert [one["result"] for one in ended if one["replans"] == 1 and one["code"] is None] == ["Sunday is planned."]
    assert (ended[2]["code"], ended[2]["reason"]) == ("gave_up", "Sunday is full.")
    assert [(one["code"], one["attempt"]) for one in again["faults"]] == [("conflict", 1)]
    assert (misfit.returncode, "The call was rejected" in misfit.stderr) == (2, True), misfit


@pytest.mark.full
@pytest.mark.parametrize("command", [one for one in COMMANDS if "worker.py" in one])
def test_each_command_of_the_worker_has_options_that_exist(written: Processes, command: str) -> None:
    done = run(written, f"{command} --check")

    shown = {"my_lists.py": "entries", "my_tools.py": "to_feet"}
    kind = next((kind for name, kind in shown.items() if name in command), "http_request")
    assert (done.returncode, kind in done.stdout) == (0, True)


@pytest.mark.full
def test_the_broken_worker_shows_what_the_page_says(written: Processes) -> None:
    [command] = [one for one in COMMANDS if "--break" in one]
    options = [str(written.folder / word) if word in FILES else word for word in shlex.split(command)[2:]]
    alone = Processes(f"localhost:{free_port()}", written.folder)
    with alone.worker(*options):
        done = run(alone, next(one for one in COMMANDS if " call " in one))

    assert BROKEN["503:2"].words in done.stderr, done.stdout + done.stderr


CHARGE = """python starter.py call charge '{"customer": "Ada", "amount": "24.50"}' --json"""


def test_a_charge_whose_answers_are_lost_is_found(paying: tuple[Processes, Payments]) -> None:
    processes, service = paying
    service.plan[:] = ["drop"] * 4
    ended = json.loads(run(processes, CHARGE).stdout)
    [step] = ended["steps"]
    [charge] = [one for one in service.charges if one["id"] == step["result"]["id"]]

    assert (ended["status"], step["attempts"]) == ("completed", 4)
    assert (charge["amount"], charge["key"].endswith("/call")) == (step["result"]["amount"], True)


@pytest.mark.full
def test_a_charge_that_is_not_found_did_not_happen(paying: tuple[Processes, Payments]) -> None:
    processes, service = paying
    run(processes, CHARGE)  # one call alone that fails, after a success, is no outage that the next would wait for
    before, service.plan[:] = len(service.charges), ["500"] * 4
    ended = json.loads(run(processes, CHARGE).stdout)
    last = ended["faults"][-1]

    assert (last["reconciled"], last["applied"]) == ("not_applied", "none")
    assert len(service.charges) == before


def test_a_charge_is_paid_back_once_by_what_belongs_to_it(paying: tuple[Processes, Payments]) -> None:
    """Undone twice: one refund, of the charge that its result names, with a key of its own."""
    processes, service = paying
    ended = json.loads(run(processes, CHARGE).stdout)
    [charge] = [step["result"]["id"] for step in ended["steps"]]
    for _ in range(2):
        run(processes, f"python starter.py undo {ended['task_id']}").check_returncode()
    [refund], keys = service.refunds, {one["key"] for one in service.charges}
    shown = run(processes, "python starter.py tools charge").stdout.splitlines()

    assert refund["charge"] == charge and refund["key"] not in keys
    assert {"  is reconciled by find_charge", "  settles within 5 s", "  is undone by refund"} <= set(shown)


def test_the_tables_are_those_of_the_code() -> None:
    """No row is missing, and none is invented; a type says whether a plain `def` may take it, a class its default."""
    options = {ticked(row[0])[0].partition("=")[0]: row for row in table("option")}
    said = re.findall(r'"(\w+)"` (?:\| )?(\d+)', " | ".join(options["retry"]).replace("retry=", ""))
    codes = {
        chosen.__name__: [chosen.default, *(code for code in chosen.codes() if code != chosen.default)]
        for chosen in errors.ToolError.__subclasses__()
    }
    raised = {ticked(row[0])[0]: ticked(row[2]) for row in table("raise")}
    conditions = {row[0]: ticked(row[1]) for row in table("in a condition")}
    shown = {
        ticked(fault)[0]: (int(number), ticked(words)[0], int(exit)) for fault, number, words, exit in table("FAULT")
    }

    assert [ticked(row[0]) for row in table("decorator")] == [[f"@{name}"] for name in DECORATORS]
    assert {ticked(row[0])[0]: row[2] for row in table("type")} == {
        name: "no" if kind in ASYNC_ONLY else "yes" for kind, name in INJECTABLE.items()
    }
    assert set(options) == set(ToolOptions.__dataclass_fields__)
    assert dict(said) == {name: str(profile.attempts) for name, profile in retries.PROFILES.items()}
    assert raised == codes
    assert set(conditions["functions"]) == set(TYPED_FUNCTIONS)
    assert shown == {fault: (one.attempts, one.words.strip(), one.exit) for fault, one in BROKEN.items()}


@pytest.mark.parametrize("row", [row for row in table("exception") if "HTTP" in row[0]], ids=lambda row: str(row[0]))
def test_the_codes_of_a_status_are_those_of_its_cell(row: list[str]) -> None:
    replies = [
        httpx2.Response(int(one), request=httpx2.Request("GET", "http://x")) for one in re.findall(r"\d{3}", row[0])
    ]
    faults = [classify(httpx2.HTTPStatusError("", request=one.request, response=one)) for one in replies]
    follows = {Quadrant.PERSISTENT_SEMANTIC: "a new plan", Quadrant.PERSISTENT_INFRASTRUCTURAL: "a person"}

    assert {fault.code.value for fault in faults} == set(ticked(row[1])) - {"refused"}
    assert all(row[2].startswith(follows.get(fault.quadrant, "a retry")) for fault in faults)


@pytest.mark.parametrize(("profile", "seconds"), [("standard", 2), ("patient", 123)])
def test_the_waits_of_a_profile_are_as_long_as_the_page_says(profile: str, seconds: int) -> None:
    longest = sum(retries.backoff(profile, attempt, 1) for attempt in range(1, retries.PROFILES[profile].attempts))

    assert math.ceil(longest) == seconds and f"within {seconds} s" in TEXT


@pytest.mark.parametrize("row", table("written"), ids=lambda row: str(row[1].strip("`").partition(":")[0]))
def test_what_is_said_of_a_mistake_is_what_is_said(row: list[str]) -> None:
    """The sentence is one that tests/activities/test_check.py reads from a worker."""
    assert ticked(row[1])[0] in PLANTED.values()


@pytest.mark.parametrize("read", [httpx2.Response.json, lambda reply: TypeAdapter(float).validate_json(reply.content)])
def test_a_page_that_is_no_json_is_what_the_page_says(read: Callable[[httpx2.Response], object]) -> None:
    """Whoever reads it, an answer that is no JSON leads to a new plan."""
    with pytest.raises(ValueError) as raised:
        read(httpx2.Response(200, content=b"<html>"))

    assert classify(raised.value).code is Code.UNEXPECTED_RESULT
