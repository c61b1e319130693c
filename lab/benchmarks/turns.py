"""`python -m benchmarks.turns`: a ReAct task of 100 turns beside a bare twin with the same arguments and results."""

import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.message import Message
from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json
from rich.table import Table
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from benchmarks import processes, report
from benchmarks.report import Machine, Report, Verdict
from benchmarks.work import TEXT
from evals.fakes.anthropic_api import AnthropicApi
from evals.fakes.model_api import running
from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, calls
from runtime.client import connect
from runtime.process import leave
from workflows.account.task import Task
from workflows.limits.budget import Limits

TURNS = 100
OURS, BARE = "turns-replan", "turns-bare01"
"""The queues: names of one length, since each event repeats them."""
EVENTS = 12
"""Of a turn: one question to a model and one call of a tool, each an activity with the workflow task after it."""
OF_TWIN = 1.6
FLAT = 1.10
"""The limit of the last fifth of the turns over the first."""
MODELS = ("plan", "replan", "model")
"""Activities that ask a model, in Replan and in the twin; all others are tools."""
COMMON = "what every workflow has"
ELSE = "other events"
PARTS: Mapping[str, str] = {
    "header": "header",
    "user_metadata": "summary",
    "non_retryable_error_types": "errors that are not retried",
}
"""What Replan adds, by the field that holds it."""

Turns = Sequence[Sequence[HistoryEvent]]


def turns_of(events: Sequence[HistoryEvent]) -> list[Sequence[HistoryEvent]]:
    """The events of each turn: from one question to a model to the next; the last one is the answer's."""
    asked = [number for number, event in enumerate(events) if _kind(event) in MODELS]
    return [events[first:end] for first, end in pairwise([*asked, len(events)])]


def size(events: Sequence[HistoryEvent]) -> int:
    """Bytes."""
    return sum(event.ByteSize() for event in events)


def parts_of(events: Sequence[HistoryEvent]) -> Counter[str]:
    """Bytes of each part of the events."""
    found, scheduled = Counter[str](), dict[int, str]()
    for event in events:
        named = Counter(dict(_parts(event, scheduled)))
        found += named
        found[COMMON] += event.ByteSize() - named.total()
    return found


def _parts(event: HistoryEvent, scheduled: dict[int, str]) -> Iterator[tuple[str, int]]:
    """The parts of one event; `scheduled` says for each event that scheduled an activity of what it was."""
    which = event.WhichOneof("attributes") or ""
    attributes = getattr(event, which)
    if which == "activity_task_scheduled_event_attributes":
        scheduled[event.event_id] = "model" if _kind(event) in MODELS else "tool"
        yield f"arguments of the {scheduled[event.event_id]}", _bytes(attributes, "input")
        yield PARTS["header"], _bytes(attributes, "header")
        yield PARTS["user_metadata"], _bytes(event, "user_metadata")
        yield PARTS["non_retryable_error_types"], _bytes(attributes.retry_policy, "non_retryable_error_types")
    elif which == "activity_task_completed_event_attributes":
        yield f"result of the {scheduled[attributes.scheduled_event_id]}", _bytes(attributes, "result")
    elif not which.startswith(("activity_task", "workflow_task")):
        yield ELSE, event.ByteSize()


def _kind(event: HistoryEvent) -> str:
    """The activity that an event schedules; empty for every other event."""
    return event.activity_task_scheduled_event_attributes.activity_type.name


def _bytes(message: Message, field: str) -> int:
    """Bytes that a field takes of its message."""
    without = type(message)()
    without.CopyFrom(message)
    without.ClearField(field)
    return message.ByteSize() - without.ByteSize()


class Dialogue(BaseModel):
    """The activities of a task, in the order in which they were scheduled, with their payloads as JSON."""

    model_config = ConfigDict(frozen=True)

    turns: tuple[tuple[str, ...], ...]
    """The arguments of each turn: the model's, then those of its tools."""
    results: tuple[str, ...]
    """Of all activities."""

    @classmethod
    def of(cls, events: Sequence[HistoryEvent]) -> "Dialogue":
        """That of a history in which every activity completed."""
        results = dict[int, str]()
        for event in events:
            if event.HasField("activity_task_completed_event_attributes"):
                completed = event.activity_task_completed_event_attributes
                results[completed.scheduled_event_id] = completed.result.payloads[0].data.decode()
        scheduled = [[event for event in turn if _kind(event)] for turn in turns_of(events)]
        return cls(
            turns=tuple(tuple(map(_arguments, turn)) for turn in scheduled),
            results=tuple(results[event.event_id] for turn in scheduled for event in turn),
        )


def _arguments(event: HistoryEvent) -> str:
    return event.activity_task_scheduled_event_attributes.input.payloads[0].data.decode()


class Side(BaseModel):
    """What the turns of one side take in its history."""

    model_config = ConfigDict(frozen=True)

    turns: int
    fewest: int
    most: int
    """Events of a turn."""
    first: float
    last: float
    """Bytes of a turn, the mean over the first and the last fifth."""
    mean: float
    """Bytes of a turn."""
    parts: dict[str, float]
    """Bytes of a turn by part, the largest first."""

    @classmethod
    def of(cls, turns: Turns) -> "Side":
        """Sum the turns up."""
        events, bytes = [len(turn) for turn in turns], [size(turn) for turn in turns]
        fifth = max(1, len(turns) // 5)
        found = parts_of([event for turn in turns for event in turn])
        return cls(
            turns=len(turns),
            fewest=min(events),
            most=max(events),
            first=_mean(bytes[:fifth]),
            last=_mean(bytes[-fifth:]),
            mean=_mean(bytes),
            parts={name: round(whole / len(turns), 1) for name, whole in found.most_common()},
        )


class TurnsReport(Report):
    """A ReAct task and its bare twin, with the same arguments and results."""

    replan: Side
    bare: Side
    goals: tuple[Verdict, ...]

    @classmethod
    def of(cls, replan: Side, bare: Side) -> "TurnsReport":
        """Compare the two."""
        goals = (
            Verdict.of("events of a turn, at most 12", EVENTS, replan.most),
            Verdict.of("bytes of a turn, at most 1.6 times bare", OF_TWIN, replan.mean / bare.mean),
            Verdict.of(
                "bytes of a turn in the last fifth, at most 1.10 times the first", FLAT, replan.last / replan.first
            ),
        )
        return cls(machine=Machine.this(), replan=replan, bare=bare, goals=goals)

    def table(self) -> Table:
        """Events and bytes of a turn, then the bytes of each part."""
        table = Table("of a turn", "bare", "Replan", "of bare")
        ours, bare = self.replan, self.bare
        table.add_row("events", _span(bare), _span(ours), f"{ours.most / bare.most:.2f}")
        for name in ("mean", "first", "last"):
            title = "bytes" if name == "mean" else f"bytes, {name} fifth"
            table.add_row(title, *_compared(getattr(bare, name), getattr(ours, name)))
        for name in ours.parts:
            table.add_row(f"  {name}", *_compared(bare.parts.get(name, 0.0), ours.parts[name]))
        return table


def _mean(values: Sequence[int]) -> float:
    return round(sum(values) / len(values), 1)


def _span(side: Side) -> str:
    return f"{side.most}" if side.fewest == side.most else f"{side.fewest}-{side.most}"


def _compared(bare: float, ours: float) -> tuple[str, str, str]:
    return f"{bare:.0f}" if bare else "", f"{ours:.0f}", f"{ours / bare:.2f}" if bare else ""


def main(
    turns: Annotated[int, typer.Option(min=1, help="Turns of the task; the answer comes after them.")] = TURNS,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    address: Annotated[str | None, typer.Option(help="A server to use in place of one with our settings.")] = None,
) -> None:
    """Count events and bytes of ReAct turns against a bare workflow with the same payloads."""
    found = processes.finish(run(turns, address))
    report.show(found.table(), [f"{found.replan.turns} turns on {found.machine}"], found.goals)
    report.write(found, json)
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
        async with processes.our_server(folder / "server", address) as server:
            client = await connect(address=server.address, plain=True)
            ours = await replan(client, server.address, folder, turns)
            bare = await twin(client, server.address, folder, Dialogue.of(ours))
    return TurnsReport.of(Side.of(turns_of(ours)[:-1]), Side.of(turns_of(bare)[:-1]))


async def replan(client: Client, address: str, folder: Path, turns: int) -> Sequence[HistoryEvent]:
    """The history of a task whose model calls one cheap tool in each turn, and answers after the last."""

    def model(request: ReceivedRequest) -> ModelReply:
        if request.turn >= turns:
            return ModelReply(text=f"That were {turns} turns.")
        return calls(ModelCall("echo", {"text": f"{request.turn + 1}. {TEXT}"}))  # never the same arguments

    async with running(AnthropicApi([model])) as api:
        environment = {"ANTHROPIC_API_KEY": api.key, "ANTHROPIC_BASE_URL": api.url}
        words = processes.replan_worker(OURS, "--planner", f"anthropic:{api.model}")
        log, state = folder / "replan.log", folder / "state"
        async with processes.worker(words, address, state, log, environment):
            task = Task(text=f"{turns} turns", strategy="react", limits=Limits(tool_calls=2 * turns))
            events = await _history(client, "AgentWorkflow", task, OURS)
    if api.violations:
        raise RuntimeError(f"Replan broke rules of the model's protocol: {api.violations[:3]}")
    return events


async def twin(client: Client, address: str, folder: Path, dialogue: Dialogue) -> Sequence[HistoryEvent]:
    """The history of the same turns without Replan."""
    file = folder / "results.json"
    file.write_bytes(to_json(dialogue.results))
    words = ["-m", "benchmarks.twin", BARE, str(file)]
    async with processes.worker(words, address, folder, folder / "twin.log"):
        return await _history(client, "Twin", dialogue.turns, BARE)


async def _history(client: Client, workflow: str, argument: object, queue: str) -> Sequence[HistoryEvent]:
    handle = await client.start_workflow(workflow, argument, id=f"turns-{uuid.uuid4().hex[:12]}", task_queue=queue)
    await handle.result()
    return (await handle.fetch_history()).events


if __name__ == "__main__":
    typer.run(main)
