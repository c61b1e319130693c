"""What is read of pure steps, whose local activities are one event each: `explain`, `show`, `reset`, `export`."""

import json
from base64 import b64encode
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.boundary.boundary import MAX_LOCAL_RESULT
from client.explain import explanation, page
from client.history import fetch
from client.history.records import CallEnd
from console.commands.export import export
from console.commands.reset import reset
from console.commands.show import print_result
from console.options import Common
from replan import tool
from tests.console.desk import QUIET
from tests.console.replaying import replay
from tests.console.test_export import words
from tests.gate import sampled
from tests.harness import DONE, Proposals, outcome, plan, staged, step
from tests.workflows.test_agent_pure import Number, chain, double, lengthen, refuse
from workflows.account.records import StepStatus
from workflows.agent import AgentWorkflow


async def test_explain_tells_of_pure_steps_like_of_others(client: Client, tmp_path: Path) -> None:
    """Each is cited by its only event."""
    script: Proposals = [plan(step("a", "refuse", value=1)), plan(step("b", "double", value=1)), DONE]
    async with staged(client, tmp_path, [double, refuse], script) as stage:
        handle = await stage.start()
        await outcome(handle)
        told = page.page_lines(explanation.explain_task(await fetch.fetch_history(client, handle, journal=True)), None)
        calls = {call.id: call for call in (await fetch.fetch_history(client, handle)).calls}

    refused, doubled = (calls[id].scheduled.id for id in "ab")
    assert next(line for line in told if line.startswith(" 1.  a (refuse) was rejected")).endswith(f"[event {refused}]")
    assert f"  +  b (double) finished at its first attempt and returned: value: 2.  [event {doubled}]" in told


async def test_a_local_and_an_ordinary_activity_of_one_call_are_one_call(client: Client, tmp_path: Path) -> None:
    """The first failed only because it was local, which is no news for a person."""
    script: Proposals = [plan(step("a", "lengthen", value=MAX_LOCAL_RESULT + 1)), DONE]
    async with staged(client, tmp_path, [lengthen], script) as stage:
        handle = await stage.start()
        await outcome(handle)
        history = await fetch.fetch_history(client, handle, journal=True)

    [call] = history.of_step("a")
    assert (call.closed, call.attempt, explanation.explain_task(history).items) == (CallEnd.COMPLETED, 1, ())


@pytest.mark.parametrize("count", [1, MAX_LOCAL_RESULT + 1])
async def test_the_result_of_a_pure_step_is_printed(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    """Whichever activity returned it."""
    async with staged(client, tmp_path, [lengthen], [plan(step("a", "lengthen", value=count)), DONE]) as stage:
        handle = await stage.start()
        await outcome(handle)
        capsys.readouterr()
        await print_result(client, handle, Common(), "a")

    assert json.loads(capsys.readouterr().out) == {"text": "a" * count}


@pytest.mark.parametrize("to", sampled({to: [to] for to in ("s1", "s2", "s3")}, "s2"))
async def test_a_task_is_reset_to_a_pure_step(client: Client, tmp_path: Path, to: str) -> None:
    """The new run begins with the workflow task that ran the step, so pure steps before it may run again, too."""
    ran = list[int]()

    @tool.pure
    def double(args: Number) -> Number:
        """Double a number, and count the call."""
        ran.append(args.value)
        return Number(value=2 * args.value)

    async with staged(client, tmp_path, [double], chain("double", 3)) as stage:
        handle = await stage.start()
        await outcome(handle)
        newest = client.get_workflow_handle_for(AgentWorkflow.run, handle.id)
        code = await reset(client, newest, QUIET, to=to, why=None)
        done = await outcome(newest)

    assert (code, [one.status for one in done.steps]) == (0, [StepStatus.COMPLETED] * 3)
    assert ran == [1, 2, 4, 1, 2, 4]


async def test_an_exported_history_with_pure_steps_replays(client: Client, tmp_path: Path) -> None:
    """Redaction replaces results, and keeps the SDK's own records of the local activities."""
    script: Proposals = [plan(step("a", "lengthen", value=9), step("b", "refuse", "a", value=47110815)), DONE]
    async with staged(client, tmp_path, [lengthen, refuse], script) as stage:
        handle = await stage.start()
        await outcome(handle)
    whole, hidden = tmp_path / "whole.json", tmp_path / "hidden.json"
    newest = client.get_workflow_handle_for(AgentWorkflow.run, handle.id)
    await export(client, newest, Common(), str(whole), redact=False)
    await export(client, newest, Common(), str(hidden), redact=True)
    done = replay(whole, hidden)

    assert (done.returncode, done.stdout.count(": ok")) == (0, 2), done.stdout + done.stderr
    assert b64encode(b'{"result":{"text":"aaaaaaaaa"}}').decode() in whole.read_text()
    assert "aaaaaaaaa" not in "".join(words(json.loads(hidden.read_text())))
