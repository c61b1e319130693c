"""Replan in programs of a user: beside workflows in one process, whose codec encrypts, and by its public names."""

import ast
import os
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient, WorkflowHistory
from temporalio.worker import Replayer, Worker

import replan
from activities.toolbox.registry import ToolMistakes
from client.client import Client
from replan import Step
from replan.plugin import Replan
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.own_worker import CONVERTER, QUEUE, OrderWorkflow, charge, confirm, plugin
from tests.processes import ROOT
from workflows.account import search_attributes


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[DevServer]:
    spec = ServerSpec(tmp_path / "server", port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    async with DevServer(spec, await find_cli(lambda _: None)) as running:
        yield running


@pytest.fixture
async def theirs(own_server: DevServer) -> TemporalClient:
    return await TemporalClient.connect(own_server.address, data_converter=CONVERTER)


async def test_one_worker_serves_both(theirs: TemporalClient, tmp_path: Path) -> None:
    both = plugin(tmp_path / "state")
    file = str(tmp_path / "calls")
    async with Worker(
        theirs, task_queue=QUEUE, workflows=[OrderWorkflow], activities=[confirm], plugins=[both]
    ) as worker:
        order = await theirs.start_workflow(OrderWorkflow.run, args=[40, file], id="order-1", task_queue=QUEUE)
        done = await order.result()
        outcome = await Client(theirs).run("calculate 18% of 2450")
        histories = [
            await theirs.get_workflow_handle(id).fetch_history()
            for id in ("order-1", "order-1-payment", outcome.task_id)
        ]

    assert (worker.client, done) == (theirs, "confirmed: completed 40")
    assert outcome.result == "18% of 2450 = 441."
    replayer = Replayer(workflows=[OrderWorkflow], plugins=[both], data_converter=CONVERTER)
    replayed = await replayer.replay_workflows(each(histories), raise_on_replay_failure=False)
    assert replayed.replay_failures == {}


async def each(histories: list[WorkflowHistory]) -> AsyncIterator[WorkflowHistory]:
    for one in histories:
        yield one


@contextmanager
def running(words: Sequence[str], address: str, folder: Path = ROOT) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "TEMPORAL_ADDRESS": address, "PYTHONPATH": str(folder)}
    with subprocess.Popen(words, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_what_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ToolMistakes, match="another tool has this name already"):
        Replan([charge, charge.__class__(charge, None, charge.options)], state=tmp_path)
    with pytest.raises(TypeError, match="no_such"):
        Replan([charge], state=tmp_path, no_such=1)
    with pytest.raises(TypeError, match="give the SDK's Runtime of your program metrics="):
        Replan([charge], state=tmp_path, metrics="9464")


TRACEBACK = """
from replan import Client
from client.problem import Problem

print(Client)
raise Problem("code", "It is down", "start it")
"""
PROGRAM = """
from replan import AllowedEffect, Limits, Step, Term

steps = [
    Step(id="a", kind="look", args={"sku": "A-17"}),
    Step(id="b", kind="pay", needs=["a"], args={"amount": {"$from": "a", "path": "amount"}, "to": ["ann", None, 1.5]}),
    Step(id="c", kind="pay", needs=("a", "b")),
]
limits = Limits(tool_calls=3)
wrong = Step(id="d", kind="pay", needs=7)
"""


def test_every_class_is_named_by_the_module_that_users_import() -> None:
    """Where Replan defines it is nobody else's business, and may change."""
    ours = [thing for thing in (getattr(replan, name) for name in replan.__all__) if isinstance(thing, type)]
    others = {cls.__module__ for cls in ours if cls.__module__ != "replan"}

    assert {package.partition(".")[0] for package in others} <= {"sqlalchemy"}
    assert pickle.loads(pickle.dumps(Step(id="a", kind="b"))) == Step(id="a", kind="b")  # noqa: S301  # our own


def test_a_traceback_names_the_public_class() -> None:
    """Also of an exception that nobody imported, such as one that the client raises."""
    command = [sys.executable, "-c", TRACEBACK]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert done.stdout == "<class 'replan.Client'>\n"
    assert done.stderr.splitlines()[-1].startswith("replan.Problem: ")


@pytest.mark.full  # the quick gate checks the types of the tests, which have such plans, too
@pytest.mark.parametrize("plugin", [False, True], ids=["plain", "pydantic's plugin"])
def test_a_plan_in_a_program_is_type_checked(tmp_path: Path, plugin: bool) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text("[mypy]\nplugins = pydantic.mypy\n" if plugin else "[mypy]\n")
    cache = ROOT / ".mypy_cache" / "programs"
    words = ["--strict", "--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(cache / str(plugin))]
    command = [sys.executable, "-m", "mypy", *words, str(tmp_path / "program.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)

    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(errors) == 1 and 'Argument "needs" to "Step" has incompatible type "int"' in errors[0], done.stdout


def test_the_checked_arguments_of_a_step_are_its_fields() -> None:
    classes = ast.parse((ROOT / "workflows/plans/proposal.py").read_text()).body
    written = next(node for node in classes if isinstance(node, ast.ClassDef) and node.name == "Step")
    [init] = [node for node in ast.walk(written) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]

    assert [argument.arg for argument in init.args.kwonlyargs] == list(Step.model_fields)
