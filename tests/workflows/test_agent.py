"""The loop on a real server: scripted proposals, tools of the test's own, every quadrant of the taxonomy."""

import asyncio
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel
from temporalio.client import Client

from activities.toolbox import Busy, NeedsPerson, Refused, Unreachable, tool
from tests.harness import DONE, plan, staged, step
from workflows.plan import Answer, GiveUp, NewSteps
from workflows.task import StepStatus, TaskStatus


class Word(BaseModel):
    """An argument."""

    word: str = ""


class Said(BaseModel):
    """A result."""

    said: str


@tool.read
async def echo(args: Word) -> Said:
    """Say the word."""
    return Said(said=args.word)


async def test_a_plan_runs_and_its_answer_completes_the_task(client: Client, tmp_path: Path) -> None:
    """Steps run in the order of their needs, results flow through references, the answer ends the task."""
    second = step("b", "echo", word={"$from": "a", "path": "said"})
    async with staged(client, tmp_path, [echo], [plan(step("a", "echo", word="hi"), second), DONE]) as stage:
        outcome = await stage.run()

    assert outcome.status is TaskStatus.COMPLETED
    assert [(one.id, one.result) for one in outcome.steps] == [("a", {"said": "hi"}), ("b", {"said": "hi"})]


async def test_a_transient_fault_is_retried_and_leads_to_no_replan(client: Client, tmp_path: Path) -> None:
    """Two 503s and then an answer: three attempts, no replan, and the reasons of the first two are known."""
    calls = []

    @tool.read
    async def flaky(args: Word) -> Said:
        """Fail twice."""
        calls.append(args)
        if len(calls) < 3:
            raise Unreachable("The line is cut.")
        return Said(said="at last")

    async with staged(client, tmp_path, [flaky], [plan(step("a", "flaky")), DONE]) as stage:
        outcome = await stage.run()

    assert (outcome.steps[0].attempts, outcome.replans) == (3, 0)
    assert [(fault.code, fault.decision) for fault in outcome.faults] == [("unreachable", "retry")] * 2
