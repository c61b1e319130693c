"""`python -m benchmarks.turns`: a ReAct task of 100 turns beside a bare twin that is told and answers the same."""

import asyncio
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic_core import to_json
from rich.console import Console
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from benchmarks import anatomy, servers, workers
from benchmarks.dialogue import Dialogue
from benchmarks.turns_report import TurnsReport
from benchmarks.work import TEXT
from replan.testing.anthropic_api import AnthropicApi
from replan.testing.model_api import ModelApi, running
from replan.testing.script import ModelCall, ModelReply, ReceivedRequest, calls
from runtime.client import NotConnected, connect
from runtime.dev_server import ServerUnavailable
from runtime.ending import leave
from workflows.budget import Limits
from workflows.task import Task

TURNS = 100
OURS, BARE = "turns-replan", "turns-bare01"
"""The queues: names of one length, since each event repeats them."""


def main(
    turns: Annotated[int, typer.Option(min=1, help="Turns of the task; the answer comes after them.")] = TURNS,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    address: Annotated[str | None, typer.Option(help="A server to use in place of one with our settings.")] = None,
) -> None:
    """Count events and bytes of ReAct turns against a bare workflow with the same payloads."""
    try:
        report = asyncio.run(run(turns, address))
    except (NotConnected, ServerUnavailable, workers.WorkerUnavailable) as problem:
        typer.echo(problem, err=True)
        leave(6)
    except KeyboardInterrupt:
        leave(130)
    show(report)
    if json:
        json.write_text(report.model_dump_json(indent=2, by_alias=True))
    leave(0)


async def run(turns: int, address: str | None) -> TurnsReport:
    """Start a server and a model, run both tasks, end everything.

    Raises:
        NotConnected, ServerUnavailable, WorkerUnavailable: server or worker are not there.
        WorkflowFailureError: a task did not complete.
        RuntimeError: Replan broke a rule of the model's protocol.
    """
    with tempfile.TemporaryDirectory(prefix="replan-turns-") as name:
        folder = Path(name)
        async with servers.ours(folder / "server", address) as server:
            client = await connect(address=server.address, plain=True)
            ours = await replan(client, server.address, folder, turns)
            bare = await twin(client, server.address, folder, Dialogue.of(ours))
    return TurnsReport.of(anatomy.turns(ours)[:-1], anatomy.turns(bare)[:-1])


async def replan(client: Client, address: str, folder: Path, turns: int) -> Sequence[HistoryEvent]:
    """The history of a task whose model calls one cheap tool in each turn, and answers after the last."""
    async with running(AnthropicApi([lambda heard: _model(heard, turns)])) as api:
        environment = {"ANTHROPIC_API_KEY": api.key, "ANTHROPIC_BASE_URL": api.url}
        words = workers.replan(OURS, "--planner", f"anthropic:{api.model}")
        log, state = folder / "replan.log", folder / "state"
        async with workers.running(words, address, state, log, environment):
            task = Task(text=f"{turns} turns", strategy="react", limits=Limits(tool_calls=2 * turns))
            events = await _history(client, "AgentWorkflow", task, OURS)
    _require_peace(api)
    return events


def _model(heard: ReceivedRequest, turns: int) -> ModelReply:
    """One call a turn, with arguments that are never the same."""
    if heard.turn >= turns:
        return ModelReply(text=f"That were {turns} turns.")
    return calls(ModelCall("echo", {"text": f"{heard.turn + 1}. {TEXT}"}))


def _require_peace(api: ModelApi) -> None:
    if api.violations:
        raise RuntimeError(f"Replan broke rules of the model's protocol: {api.violations[:3]}")


async def twin(client: Client, address: str, folder: Path, dialogue: Dialogue) -> Sequence[HistoryEvent]:
    """The history of the same turns without Replan."""
    file = folder / "results.json"
    file.write_bytes(to_json(dialogue.results))
    words = ["-m", "benchmarks.twin", BARE, str(file)]
    async with workers.running(words, address, folder, folder / "twin.log"):
        turns = [list(turn) for turn in dialogue.turns]
        return await _history(client, "Twin", turns, BARE)


async def _history(client: Client, workflow: str, given: object, queue: str) -> Sequence[HistoryEvent]:
    handle = await client.start_workflow(workflow, given, id=f"turns-{uuid.uuid4().hex[:12]}", task_queue=queue)
    await handle.result()
    return (await handle.fetch_history()).events


def show(report: TurnsReport) -> None:
    """Print the table and the verdicts; plain text where stdout is no terminal."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(report.table())
    console.print(f"{report.replan.turns} turns on {report.machine}")
    for verdict in report.goals:
        console.print(str(verdict), highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)
