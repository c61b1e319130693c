"""The loop on a real server, when all goes well or nearly so: scripted proposals, tools of the test's own."""

from pathlib import Path

from temporalio.client import Client

from replan import Unreachable, tool
from tests.harness import DONE, plan, staged, step
from tests.workflows.props import Said, Word, echo
from workflows.account.task import TaskStatus


async def test_a_plan_runs_and_its_answer_completes_the_task(client: Client, tmp_path: Path) -> None:
    """Steps run in the order of their needs, results flow through references, the answer ends the task."""
    second = step("b", "echo", word={"$from": "a", "path": "said"})
    async with staged(client, tmp_path, [echo], [plan(step("a", "echo", word="hi"), second), DONE]) as stage:
        outcome = await stage.run()

    assert outcome.status is TaskStatus.COMPLETED
    assert [(one.id, one.result) for one in outcome.steps] == [("a", {"said": "hi"}), ("b", {"said": "hi"})]


async def test_a_transient_fault_is_retried_and_leads_to_no_replan(client: Client, tmp_path: Path) -> None:
    """Two failures and then an answer: three attempts, no replan, and the reasons of the first two are known."""
    calls = []

    @tool.read
    async def flaky(args: Word) -> Said:
        """Fail twice."""
        calls.append(args)
        if len(calls) < 3:
            raise Unreachable("It failed.", code="server_error")
        return Said(said="at last")

    async with staged(client, tmp_path, [flaky], [plan(step("a", "flaky")), DONE]) as stage:
        outcome = await stage.run()

    assert (outcome.steps[0].attempts, outcome.replans) == (3, 0)
    assert [(fault.code, fault.decision) for fault in outcome.faults] == [("server_error", "retry")] * 2
