"""The log of real worker processes: every line is in the table, nothing is logged twice, and no value is logged."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from evals.fakes.script import ModelError, asks, finishes, proposes, step as planned
from runtime.dev_server import DevServer
from runtime.telemetry import COMMON
from tests.harness import outcome, plan, step
from tests.log_lines import lines_of, wrong
from tests.processes import Processes
from tests.providers.test_worker import environment, prepared
from tests.runtime.logging_tools import PLANTED
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.agent import AgentWorkflow
from workflows.limits.budget import Limits
from workflows.plans.proposal import Answer

TOOLS = Path(__file__).with_name("logging_tools.py")
QUEUE = "logging"
Handle = WorkflowHandle[AgentWorkflow, Outcome]


class Log:
    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def text(self) -> str:
        return self._file.read_text(encoding="utf-8")

    @property
    def lines(self) -> list[dict[str, Any]]:
        return lines_of(self._file)

    async def has(self, count: int, **fields: Any) -> None:
        """Wait until so many lines have these fields; pytest-timeout ends it."""
        while len(self.of(**fields)) < count:
            await asyncio.sleep(0.05)

    def ended(self, task: str) -> list[dict[str, Any]]:
        """The lines of a task's end, without what other lines have, too."""
        found = self.of(event="task", task=task)
        return [{name: line[name] for name in line if name not in (*COMMON, "task", "run")} for line in found]

    def decided(self, task: str) -> Counter[tuple[str, str, str]]:
        found = [line for line in self.of(event="decision", task=task) if line["kind"] in KINDS]
        return Counter((line["step"], line["code"], line["decision"]) for line in found)

    def counted(self, task: str) -> int:
        found = [line for line in self.of(event="step", task=task) if line["kind"] in KINDS]
        return sum(line.get("code") not in ("worker_shutdown", "circuit_open") for line in found)

    def of(self, **fields: Any) -> list[dict[str, Any]]:
        whole = self.text.rpartition("\n")[0].splitlines()
        return [line for line in map(json.loads, whole) if fields.items() <= line.items()]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "worker.log")


async def start(client: Client, id: str, *kinds: str, **more: Any) -> Handle:
    steps = [
        step(kind.partition(" ")[0], kind.partition(" ")[0], word=kind.partition(" ")[2] or PLANTED) for kind in kinds
    ]
    given = {"plan": steps, "limits": Limits(), **more} if kinds else more
    task = Task(text=f"Do it for {PLANTED}", **given)
    return await client.start_workflow(AgentWorkflow.run, task, id=id, task_queue=QUEUE)


SEEN = {
    *("step", "decision", "task", "proposal_rejected", "request_opened", "request_closed", "rollback"),
    *("signal_dropped", "model", "model_failed", "breaker_opened", "notified"),
}
KINDS = ("say", "flaky", "find", "book", "bug", "reach", "linger")


@pytest.mark.full
async def test_every_line_is_in_the_table_once_and_without_a_value(
    server: DevServer, client: Client, tmp_path: Path, log: Log
) -> None:
    """With all quadrants, a model, people, a breaker, a cancel, and a worker that stops while a call runs.

    Each attempt, each decision and each end has exactly one line, which agrees with the outcome of the task.
    """
    say, unknown = proposes(planned("say", "say", word=PLANTED)), proposes(planned("x", "nope", word=PLANTED))
    overloaded = ModelError(529, "overloaded_error", f"no room for {PLANTED}")
    async with prepared("anthropic", overloaded, unknown, asks(f"{PLANTED}?", PLANTED), say, finishes(PLANTED)) as api:
        processes = Processes(server.address, tmp_path, environment("anthropic", api))
        options = ("--tools", str(TOOLS), "--queue", QUEUE, "--log", "json", "--notify", "true")
        later = (plan(step("again", "say", word=PLANTED)), Answer(result=PLANTED))
        with processes.worker(*options):
            asked = await start(client, "asked", on_escalation="wait")
            anew = await start(client, "planned-anew", "flaky", "book", revisions=later)
            refused = await start(client, "refused", f"find {api.url}/{PLANTED}")
            broken = await start(client, "broken", "bug", on_escalation="undo")
            held = await start(client, "held", "bug", on_escalation="wait")
            stopped = await start(client, "stopped", "reach")
            await log.has(1, event="decision", task="stopped", decision="wait")
            await stopped.cancel()
            ended = [await outcome(one) for one in (anew, refused, broken, stopped)]
            await log.has(2, event="request_opened")
            await log.has(2, event="notified")
            cut_off = await start(client, "cut-off", "linger")
            await log.has(1, event="lingers")
        with processes.worker(*options):
            await asked.signal("resolve", {PLANTED: PLANTED})
            await asked.execute_update("reply", {"text": PLANTED})
            await held.execute_update("abort", {"reason": PLANTED})
            await log.has(2, event="lingers")
            await cut_off.cancel()
            ended += [await outcome(one) for one in (asked, held, cut_off)]
            await log.has(4, event="notified")

    assert [problem for problem in map(wrong, log.lines) if problem] == []
    assert PLANTED not in log.text and api.key not in log.text
    assert {line["event"] for line in log.lines} >= SEEN
    assert {one.task_id: one.status.value for one in ended} == {
        **{"planned-anew": "completed", "refused": "escalated", "broken": "escalated", "stopped": "cancelled"},
        **{"asked": "completed", "held": "failed", "cut-off": "cancelled"},
    }
    assert {one.task_id: log.ended(one.task_id) for one in ended} == {one.task_id: [_end(one)] for one in ended}
    assert {one.task_id: log.decided(one.task_id) for one in ended} == {one.task_id: _decided(one) for one in ended}
    assert {one.task_id: log.counted(one.task_id) for one in ended} == {
        one.task_id: one.spent.tool_calls for one in ended
    }


def _end(ended: Outcome) -> dict[str, Any]:
    about = {"status": ended.status.value, "code": ended.code, "replans": ended.replans, "wasted": 0}
    return {**about, "revision": ended.revisions[-1].number if ended.revisions else 0, **ended.spent.model_dump()}


def _decided(ended: Outcome) -> Counter[tuple[str, str, str]]:
    """What followed each fault of a step, before a person changed it."""
    is_asked = bool(ended.requests)
    return Counter(
        (fault.step_id, fault.code.value, "ask" if is_asked and fault.decision == "escalate" else fault.decision)
        for fault in ended.faults
    )


@pytest.mark.full
async def test_a_worker_that_logs_values_says_so(server: DevServer, client: Client, tmp_path: Path, log: Log) -> None:
    with Processes(server.address, tmp_path).worker("--tools", str(TOOLS), "--queue", QUEUE, "--log-values"):
        ended = [await outcome(await start(client, f"shown-{kind}", kind)) for kind in ("say", "bug")]
    [said] = log.of(event="step", kind="say")
    [failed] = log.of(event="step", kind="bug")

    assert [one.status.value for one in ended] == ["completed", "escalated"]
    assert log.lines[0]["event"] == "values_logged" and [one for one in map(wrong, log.lines) if one] == []
    assert said["args"] == said["result"] == f"Word(word='{PLANTED}')"
    assert failed["message"] == f"KeyError: '{PLANTED}'"
