"""What a model is told when a person rejects a call that it wants, or edits its arguments."""

from datetime import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, Response, calls, finishes, proposes, step
from replan import Tool, tool
from tests.harness import outcome
from tests.providers.acting import acting
from tests.providers.test_questions import opened, waiting
from workflows.account.task import TaskStatus


class Slot(BaseModel):
    """A slot of a day."""

    at: time


@tool.idempotent(approve="always")
async def reserve(args: Slot) -> Slot:
    """Reserve a slot."""
    return args


TOOLS: list[Tool[..., Any]] = [reserve]
TIMES = ("14:00", "15:00")


def by_turns(heard: ReceivedRequest) -> Response:
    """A model that wants one slot, and then another."""
    return calls(ModelCall("reserve", {"at": TIMES[heard.turn]})) if heard.turn < 2 else ModelReply(text="Reserved.")


def by_plans(heard: ReceivedRequest) -> Response:
    """The same with whole plans."""
    return proposes(step(f"slot-{heard.turn}", "reserve", at=TIMES[heard.turn])) if heard.turn < 2 else finishes("x")


@pytest.mark.parametrize("strategy", ["plan", "react"])
async def test_a_model_is_told_what_a_person_decided(
    client: Client, tmp_path: Path, provider: str, strategy: str
) -> None:
    """The reason of a rejection in the words of the person, and the arguments that were really used."""
    script = by_turns if strategy == "react" else by_plans
    async with acting(client, tmp_path, provider, script, tools=TOOLS) as one:
        handle = await one.stage.start(waiting(strategy))
        await opened(handle)
        await handle.execute_update("reject", {"request": "r1", "reason": "Rather later."})
        second = await opened(handle, 2)
        assert second.call is not None
        edit = {"request": "r2", "call": second.call.code, "args": {"at": "16:00"}}
        await handle.execute_update("edit", edit)
        ended = await outcome(handle)
    rejected, edited = ("\n".join(result.text for result in heard.results) for heard in one.api.requests[1:3])

    assert (ended.status, [one.status for one in ended.steps]) == (TaskStatus.COMPLETED, ["failed", "completed"])
    assert "A person rejected the call of reserve: Rather later." in rejected
    assert "Rather later." in one.api.requests[1].last_text
    assert "A person changed arguments of " in edited and '"16:00"' in edited
    assert one.api.violations == []
