"""The wheel in a fresh environment, beside packages of the user that have the names of Replan's rooms."""

import asyncio
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.installation import BUILD, VERSION, build, environment
from tests.own_worker import CONVERTER, QUEUE, OrderWorkflow
from tests.processes import ROOT, Processes
from tests.test_plugin import running
from tests.whole.test_docs_start import check_service
from workflows.account import search_attributes

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

TOOLS = """
from pydantic import BaseModel

import activities
import workflows.orders
from replan import Refused, tool


class Order(BaseModel):
    number: int


class Total(BaseModel):
    amount: float


@tool.read
async def order_total(args: Order) -> Total:
    \"\"\"Look up the total of an order.\"\"\"
    if args.number not in workflows.orders.TOTALS:
        raise Refused("there is no such order", code="not_found", observed=list(workflows.orders.TOTALS))
    return Total(amount=workflows.orders.TOTALS[args.number] + activities.FEE)
"""
USER = {
    "my_tools.py": TOOLS,
    "workflows/tools.py": TOOLS,
    "workflows/__init__.py": "",
    "workflows/orders.py": "TOTALS = {7: 40.0}\n",
    "activities/__init__.py": "FEE = 2.0\n",
    **{
        f"{name}.py": f"raise SystemExit('{name} is the user's')\n"
        for name in ("client", "console", "runtime", "examples")
    },
    **{f"{name}.py": f"raise SystemExit('{name} is the user's')\n" for name in ("worker", "starter", "tests")},
}
"""The user's folder, which comes first where Python looks for packages. Replan may import no module of it by itself."""
TESTS = """
import sys
import pytest
from my_tools import Order, Total, order_total
from replan import TaskFailed
from replan.testing.worker import CallTool

def test_a_total(call_tool: CallTool) -> None:
    assert call_tool(order_total, Order(number=7), break_="503:1") == Total(amount=42)

def test_no_total(call_tool: CallTool) -> None:
    with pytest.raises(TaskFailed) as failed:
        call_tool("order_total", {"number": 8})
    assert failed.value.fault is not None and failed.value.fault.code == "not_found"

async def test_in_a_loop(call_tool: CallTool) -> None:
    reveal_type(call_tool(order_total, Order(number=7)))
"""
REPLAY = """
import asyncio, sys
from pathlib import Path
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from own_worker import CONVERTER, OrderWorkflow, plugin

async def main() -> None:
    both = plugin(Path("state"))
    replayer = Replayer(workflows=[OrderWorkflow], plugins=[both], data_converter=CONVERTER)
    runner = replayer.config(active_config=True)["workflow_runner"]
    assert "workflows" not in runner.restrictions.passthrough_modules, "it is the user's"
    for file in sys.argv[1:]:
        await replayer.replay_workflow(WorkflowHistory.from_json(Path(file).stem, Path(file).read_text()))
        print("ok")

if __name__ == "__main__":
    asyncio.run(main())
"""
TYPED = """
import my_tools
from replan import Tool, tool
reveal_type(my_tools.order_total)
tool.read(3)
from replan import retry
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("made")
    hatch = environment(folder / "hatch", *BUILD)
    wheel, archive = build(hatch, folder / "dist")
    with tarfile.open(archive) as sources:
        sources.extractall(folder / "sources", filter="data")
    [source] = (folder / "sources").iterdir()
    [again] = build(hatch, folder / "again", "--target", "wheel", source=source)
    return [wheel, again]


@pytest.fixture(scope="module")
def user(made: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Processes:
    """The commands of the wheel in the user's folder, without the checkout."""
    bin = environment(tmp_path_factory.mktemp("installed") / "env", str(made[0]), "mypy", "pytest")
    folder = tmp_path_factory.mktemp("user")
    for name, text in USER.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return Processes(f"localhost:{free_port()}", folder, {"PYTHONPATH": str(folder)}, installed=bin / "replan")


@pytest.fixture(scope="module")
def served(user: Processes) -> Iterator[Processes]:
    with user.worker("--dev", "--planner", "offline", "--tools", "my_tools.py"):
        yield user


def python(user: Processes, *words: str) -> subprocess.CompletedProcess[str]:
    assert user.installed is not None
    return user.run([str(user.installed.with_name("python")), *words])


def test_the_wheel_installs_one_package_and_the_archive_of_sources_builds_the_same(
    made: list[Path], user: Processes
) -> None:
    one, other = made
    listed = python(user, "-c", "import importlib.metadata as m; print(*{f.parts[0] for f in m.files('replan')})")

    assert one.read_bytes() == other.read_bytes()
    assert {"replan"} == {name for name in listed.stdout.split() if name != ".." and not name.endswith(".dist-info")}


def test_messages_name_the_command_that_was_typed(user: Processes) -> None:
    """Not the scripts of a checkout, which nobody has who installed the wheel; and tab offers commands."""
    help, wrong, none = user.starter("--help"), user.starter("shwo"), user.starter("list", "--address", "localhost:1")
    typed = f'COMP_WORDS=({user.installed} sh); COMP_CWORD=1; _replan_completion; printf "%s\\n" "${{COMPREPLY[@]}}"'
    tab = user.run(["bash", "--norc", "-c", f"source <({user.installed} --show-completion)\n{typed}"])

    for words in (["--version"], ["worker", "--version"]):  # as a program, and as a module
        assert user.starter(*words).stdout == python(user, "-m", "replan", *words).stdout == f"Replan {VERSION}\n"
    assert "Usage: replan " in help.stdout and "Serve a task queue" in help.stdout
    assert "did you mean show? `replan --help`" in wrong.stderr
    assert "`replan worker --dev`" in none.stderr and "`replan doctor`" in none.stderr
    assert "starter.py" not in help.stdout + wrong.stderr + none.stderr
    assert tab.stdout.split() == ["show"], tab.stderr


@pytest.mark.parametrize(("tools", "file"), [("my_tools.py", "my_tools.py"), ("workflows.tools", "workflows/tools.py")])
def test_the_users_tools_are_checked(user: Processes, tools: str, file: str) -> None:
    """They import packages of the user that have the names of Replan's rooms, or are in one."""
    done = user.starter("worker", "--check", "--tools", tools)

    assert done.returncode == 0, done.stderr
    assert f"order_total  read           {file}:17" in done.stdout
    assert "1 tool of yours: no mistakes." in done.stdout


def test_a_worker_of_the_wheel_serves_the_demo_and_the_users_tools(served: Processes) -> None:
    """With the codes and the types of activities that the checkout has; it is healthy, as its container asks."""
    [task] = re.findall(r'^python starter.py --task "(book .*)"', (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    done = served.starter("--task", task, "--json")
    document = json.loads(done.stdout)
    searched = served.starter("call", "search", '{"query": "refund policy"}')
    found, missing = (served.starter("call", "order_total", f'{{"number": {n}}}') for n in (7, 8))
    healthy = python(served, "-m", "replan.healthy")

    assert (done.returncode, document["status"], document["replans"]) == (0, "completed", 1)
    assert "441" in json.dumps(document["result"])
    assert (searched.returncode, "refund-policy.md" in searched.stdout) == (0, True), searched.stderr
    assert (found.returncode, missing.returncode, "42" in found.stdout) == (0, 1, True)
    assert "not_found: there is no such order" in missing.stderr
    assert (healthy.returncode, healthy.stdout + healthy.stderr) == (0, "")


def test_every_saved_history_replays_with_the_code_of_the_wheel(user: Processes) -> None:
    files = sorted(map(str, (ROOT / "tests" / "histories").glob("*.json")))
    done = user.starter("replay", *files)

    assert len(files) > 20
    assert (done.returncode, done.stdout.count(": ok, ")) == (0, len(files)), done.stdout + done.stderr


def test_a_users_project_is_type_checked(user: Processes) -> None:
    (user.folder / "typed.py").write_text(TYPED)
    done = python(user, "-m", "mypy", "--strict", "my_tools.py", "typed.py")
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]

    assert 'Revealed type is "replan._internal.activities.toolbox.declare.tool.Tool[[args: ' in done.stdout
    assert [line.split(":")[:2] for line in errors] == [["typed.py", "5"], ["typed.py", "6"]], done.stdout


def test_a_service_uses_the_client(served: Processes) -> None:
    """With the wheel only; the user's own packages have the names of Replan's rooms."""
    assert served.installed is not None
    check_service(served, served.installed.with_name("python"))


def test_a_user_tests_tools(user: Processes) -> None:
    (user.folder / "test_my_tools.py").write_text(TESTS)
    done = python(user, "-m", "pytest", "-o", "replan_tools=my_tools", "-k", "total", "test_my_tools.py")
    checked = python(user, "-m", "mypy", "--strict", "test_my_tools.py")

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"replan-{VERSION}" in done.stdout and "2 passed" in done.stdout
    assert 'Revealed type is "my_tools.Total"' in checked.stdout, checked.stdout


async def test_a_worker_of_the_user_serves_both(user: Processes, tmp_path: Path) -> None:
    assert user.installed is not None
    shutil.copy(ROOT / "tests" / "own_worker.py", user.folder)
    (user.folder / "replay_both.py").write_text(REPLAY)
    spec = ServerSpec(tmp_path / "server", port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    words = [str(user.installed.with_name("python")), "-m", "own_worker", str(tmp_path / "state")]
    calls, files = tmp_path / "calls", list[Path]()
    async with DevServer(spec, await find_cli(lambda _: None)) as server:
        theirs = await Client.connect(server.address, data_converter=CONVERTER)
        with running(words, server.address, user.folder) as first:
            order = await theirs.start_workflow(OrderWorkflow.run, args=[400, str(calls)], id="order", task_queue=QUEUE)
            while not calls.exists() or not calls.read_text():
                await asyncio.sleep(0.05)
            first.kill()
        with running(words, server.address, user.folder):
            done = await order.result()
        for id in ("order", "order-payment"):
            files.append(tmp_path / f"{id}.json")
            files[-1].write_text((await theirs.get_workflow_handle(id).fetch_history()).to_json())
    replayed = python(user, "replay_both.py", *map(str, files))
    keys = calls.read_text().split()

    assert (done, len(keys), len({*keys})) == ("confirmed: completed 400", 2, 1)
    assert (replayed.returncode, replayed.stdout) == (0, "ok\nok\n"), replayed.stderr
