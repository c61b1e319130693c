"""`start --dry-run` as a user runs it: a plan is shown, nothing is run, and what was shown can be run unchanged."""

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from activities.boundary.interceptor import HeaderInterceptor
from activities.planning.activities import Planning
from activities.planning.planner import Planner, ScriptedPlanner
from activities.toolbox import builtin
from activities.toolbox.declare.kind import Kind
from activities.toolbox.registry import Registry
from runtime import serve
from runtime.dev_server import DevServer
from tests.gate import sampled
from tests.harness import plan, step
from tests.processes import ROOT, Processes
from workflows.calls.interceptor import CallInterceptor
from workflows.inquiries import InspectWorkflow
from workflows.planning.situation import Situation
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Question
from workflows.task_queues import control_queue

QUEUE = "dry-run"
TASK = "book a slot for the team at 15:00, then search the documents for refund policy and calculate 18% of 2450"


@pytest.fixture(scope="module")
def desk(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A worker with the desk and documents."""
    processes = Processes(server.address, tmp_path_factory.mktemp("dry-run"))
    with processes.worker("--desk", "--queue", QUEUE, "--documents", str(ROOT / "examples")):
        yield processes


def starter(processes: Processes, *words: str, queue: str = QUEUE) -> tuple[int, str, str]:
    """Run a command of the console on a queue: exit code, stdout, stderr."""
    done = processes.starter(*words, "--queue", queue)
    return done.returncode, done.stdout, done.stderr


def test_a_condition_is_evaluated_for_the_arguments_that_are_known(server: DevServer, tmp_path: Path) -> None:
    """Where it needs the result of another step, a person may be asked. `tools KIND` says when a tool asks."""
    steps = [
        {"id": "small", "kind": "charge", "args": {"amount": 5}},
        {"id": "large", "kind": "charge", "args": {"amount": 501}},
        {"id": "open", "kind": "charge", "args": {"amount": {"$from": "small", "path": "id"}}},
    ]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"steps": steps}))
    processes, tools = Processes(server.address, tmp_path), str(ROOT / "tests" / "server" / "tools.py")
    with processes.worker("--queue", "asks", "--tools", tools):
        code, said, _ = starter(processes, "start", "--plan", str(file), "--dry-run", "--json", queue="asks")
        _, tool, _ = starter(processes, "tools", "charge", queue="asks")

    asks = {id: effects["approval"]["asks"] for id, effects in json.loads(said)["effects"].items()}
    assert (code, asks) == (0, {"small": "no", "large": "yes", "open": "may"})
    assert "  asks a person before a call if the amount is above 500\n" in tool


def test_the_plan_is_shown_and_nothing_is_run(desk: Processes) -> None:
    """The steps, what they change, the sum; afterwards nothing is booked."""
    code, said, errors = starter(desk, "start", "--task", TASK, "--dry-run")
    _, booked, _ = starter(desk, "call", "list_bookings", '{"name": "team"}')

    assert (code, errors, said.splitlines()[0]) == (0, "", "The plan of the offline planner")
    assert said.splitlines()[-1].startswith("3 steps: 1 changes the world (book), each can be undone by hand; ")
    assert '"bookings": []' in booked


def test_what_was_shown_is_run_unchanged(desk: Processes) -> None:
    """`--dry-run --json > FILE`, then `--plan FILE`: the same steps, and the task has its words."""
    code, said, _ = starter(desk, "--task", TASK, "--documents", "documents", "--dry-run", "--json")
    file = desk.folder / "plan.json"
    file.write_text(said)
    ended, ran, errors = starter(desk, "--plan", str(file), "--json")
    shown, outcome = json.loads(said), json.loads(ran)

    assert (code, ended, errors, outcome["status"], outcome["task"]) == (0, 0, "", "completed", TASK)
    assert outcome["replans"] == 0
    assert [one["id"] for one in outcome["steps"]] == [one["id"] for one in shown["steps"]]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"id": "a", "kind": "serch"}, "there is no kind 'serch': did you mean search?"),
    "reference": ({"id": "a", "kind": "search", "args": {"query": {"$from": "b"}}}, "needs 'b', which does not exist"),
    "argument": ({"id": "a", "kind": "search", "args": {"query": "x", "limt": 3}}, "has no argument 'limt'"),
    "circle": (
        {"id": "a", "kind": "search", "args": {"query": "x"}, "needs": ["a"]},
        "steps need each other in a circle",
    ),
}


@pytest.mark.parametrize(("wrong", "words"), sampled(REFUSED, "kind", "circle"))
def test_a_hand_written_plan_is_checked_as_when_it_is_run(desk: Processes, wrong: dict[str, Any], words: str) -> None:
    """Bad usage, with the reason; nothing is run."""
    file = desk.folder / "wrong.json"
    file.write_text(json.dumps({"steps": [wrong]}))
    code, said, errors = starter(desk, "--plan", str(file), "--dry-run")

    assert (code, errors) == (2, "")
    assert said.startswith("The plan was rejected: step") and words in said and said.endswith("Nothing was run\n")


def test_a_plan_beyond_the_budget_is_refused(desk: Processes) -> None:
    """The limits of the task count as if it were run."""
    file = desk.folder / "two.json"
    steps = [{"id": id, "kind": "calculate", "args": {"expression": "1+1"}} for id in "ab"]
    file.write_text(json.dumps({"steps": steps}))
    code, said, _ = starter(desk, "--plan", str(file), "--tool-calls", "1", "--dry-run")

    assert code == 2 and "2 steps, but only 1 tool calls are left" in said


def test_a_folder_of_documents_that_is_not_there_is_refused(desk: Processes) -> None:
    """As the task itself would be."""
    code, said, _ = starter(desk, "--task", TASK, "--documents", "nowhere", "--dry-run")

    assert code == 2 and said.startswith("There is no folder 'nowhere' below the worker's documents")


def test_a_task_that_is_not_understood_has_no_plan(desk: Processes) -> None:
    """The planner's reason, exit code 1; as a document with the same."""
    code, said, _ = starter(desk, "--task", "make me a sandwich", "--dry-run")
    coded, document, _ = starter(desk, "--task", "make me a sandwich", "--dry-run", "--json")

    assert (code, coded) == (1, 1) and said.startswith("The offline planner gives up: 'make me a sandwich' is not")
    assert (json.loads(document)["code"], json.loads(document)["steps"]) == ("gave_up", [])


@asynccontextmanager
async def planning(client: Client, planner: Planner) -> AsyncIterator[str]:
    """The queue of a worker that plans and does nothing else."""
    queue = f"planning-{uuid.uuid4().hex[:8]}"
    activities = Planning(planner, Registry(builtin.TOOLS), searchable=True).activities()
    interceptors = [CallInterceptor(), HeaderInterceptor()]
    worker = serve.build(client, queue, workflows=[InspectWorkflow], activities=activities, interceptors=interceptors)
    async with worker:
        yield queue


@pytest.fixture
def commands(server: DevServer, tmp_path: Path) -> Processes:
    """Commands for the shared server."""
    return Processes(server.address, tmp_path)


UNKNOWN = plan(step("a", "no_such_kind"))
GOOD = plan(step("a", "calculate", expression="1+1"))
SCRIPTS: list[tuple[Sequence[NewSteps | Answer | Question | GiveUp], int, str]] = [
    ([Answer(result="42")], 0, "The scripted planner answers at once; nothing was run\n42\n"),
    ([Question(text="Which day?")], 3, "The planner asks: Which day?\nNothing was run\n"),
    ([UNKNOWN, GOOD], 0, "1 step: none changes the world; nothing was run\n"),
    ([UNKNOWN] * 3, 3, "The planner made 3 proposals that cannot be run; the last: "),
]


@pytest.mark.parametrize(("script", "code", "words"), SCRIPTS, ids=["answer", "question", "mended", "rejected"])
async def test_whatever_the_planner_proposes_is_shown(
    client: Client,
    commands: Processes,
    script: Sequence[NewSteps | Answer | Question | GiveUp],
    code: int,
    words: str,
) -> None:
    """With the exit code that the task would have had; a proposal that cannot be run goes back, twice at the most."""
    async with planning(client, ScriptedPlanner(script)) as queue:
        ended, said, errors = await asyncio.to_thread(starter, commands, "--task", "x", "--dry-run", queue=queue)

    assert (ended, errors) == (code, "")
    assert words in said


class Slow:
    """Thinks for longer than a worker may take to begin."""

    name = "slow"

    def __init__(self, seconds: float) -> None:
        """Think for so long."""
        self.seconds = seconds

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Answer:
        """Answer after a while."""
        await asyncio.sleep(self.seconds)
        return Answer(result="at last")


@pytest.mark.full
async def test_a_slow_planner_is_waited_for(client: Client, commands: Processes) -> None:
    """A worker that has begun is there."""
    async with planning(client, Slow(6)) as queue:
        code, said, errors = await asyncio.to_thread(starter, commands, "--task", "x", "--dry-run", queue=queue)

    assert (code, said.splitlines()[-1]) == (0, "at last")
    assert errors == "still waiting for the planner; Ctrl-C stops asking\n"


async def ended_in(client: Client, queue: str) -> WorkflowExecutionStatus | None:
    """How the one question on a queue ended, as soon as the server lists it."""
    async with asyncio.timeout(20):
        while True:
            async for one in client.list_workflows(
                f"TaskQueue = '{control_queue(queue)}' AND ExecutionStatus != 'Running'"
            ):
                return one.status
            await asyncio.sleep(0.2)


@pytest.mark.full
async def test_ctrl_c_withdraws_the_question(client: Client, commands: Processes) -> None:
    """Exit code 130, no traceback, and the planner need not think any longer."""
    async with planning(client, Slow(60)) as queue:
        command = [str(ROOT / "starter.py"), "--task", "x", "--dry-run", "--queue", queue]
        environment = {**os.environ, "TEMPORAL_ADDRESS": commands.address}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        waiting = await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said, errors = await process.communicate()

        assert (process.returncode, said, errors, waiting[:5]) == (130, b"", b"", b"still")
        assert await ended_in(client, queue) is WorkflowExecutionStatus.TERMINATED


@pytest.mark.full
async def test_without_a_worker_nobody_is_asked_later(client: Client, commands: Processes) -> None:
    """One sentence, exit code 6, and no question stays behind for which a planner would work when nobody listens."""
    queue = f"nobody-{uuid.uuid4().hex[:8]}"
    code, said, errors = await asyncio.to_thread(starter, commands, "--task", "x", "--dry-run", queue=queue)

    assert (code, said, errors.count("\n")) == (6, "", 1) and f"No worker answers on queue {queue}: " in errors
    assert await ended_in(client, queue) is WorkflowExecutionStatus.TERMINATED


DETACHED = {
    "nobody said": (("--approve", "effects"), True),
    "all": (("--approve", "all"), True),
    "said": (("--approve", "effects", "--on-escalation", "end"), False),
    "waits": (("--approve", "effects", "--on-escalation", "wait"), False),
    "declared": ((), False),
}


@pytest.mark.parametrize(("options", "is_warned"), sampled(DETACHED, "nobody said", "waits"))
def test_where_nobody_is_asked_it_is_said_that_the_task_will_end(
    desk: Processes, options: Sequence[str], is_warned: bool
) -> None:
    """With `--approve` a person shall be asked, so the option that lets the task wait is named."""
    code, said, errors = starter(desk, "start", "--task", TASK, "--detach", *options)

    assert (code, errors.count("\n"), "`--on-escalation wait`" in errors) == (0, is_warned, is_warned)
    assert "started" in said
