"""What the saved histories show: `python -m tests.manifest` reads it from them, and writes it to MANIFEST.

`python -m tests.manifest --covers FILE` compares it with an earlier manifest: it names each line of that one which a
history of the same name does not show now, and ends with 1 if no history here shows it. So histories that are recorded
again prove more than that the code agrees with itself.
"""

import asyncio
import json
import re
import sys
from argparse import ArgumentParser, FileType
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from client.history.reader import read_history
from client.history.records import History
from client.history.story import Story, with_values
from runtime.payloads import DATA_CONVERTER
from tests.record import FOLDER, SCENARIOS
from workflows.account.outcome import Outcome
from workflows.plans.catalogue import Effect

MANIFEST = Path(__file__).with_name("manifest.json")
PATCH = "core_patch"
"""The name of the marker of `workflow.patched`, which is no behaviour of its own."""


async def manifest(folder: Path) -> Mapping[str, list[str]]:
    """By the name of each history below a folder, what it shows."""
    return {file.stem: sorted({line async for line in _shown(file)}) for file in sorted(folder.rglob("*.json"))}


async def _shown(file: Path) -> AsyncIterator[str]:
    events = list(WorkflowHistory.from_json(file.stem, file.read_text()).events)
    for event in events:
        if event.marker_recorded_event_attributes.marker_name != PATCH:
            yield f"event: {_event(event)}"

    async def one_by_one() -> AsyncIterator[HistoryEvent]:
        for event in events:
            yield event

    if incident := next((scenario.incident for scenario in SCENARIOS if scenario.file == file), ""):
        yield f"incident: {incident}"
    history = await read_history(file.stem, one_by_one(), DATA_CONVERTER)
    for line in _of_history(history):
        yield line
    if history.outcome:
        for line in _of_outcome(with_values(history.outcome, Story(history))):
            yield line


def _event(event: HistoryEvent) -> str:
    name = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower()
    scheduled, accepted = (
        event.activity_task_scheduled_event_attributes,
        event.workflow_execution_update_accepted_event_attributes,
    )
    what = (
        scheduled.activity_type.name
        or accepted.accepted_request.input.name
        or event.workflow_execution_signaled_event_attributes.signal_name
        or event.marker_recorded_event_attributes.marker_name
    )
    # Two histories of one scenario differ in search attributes of patches alone.
    return f"{name} {what}".strip()


def _of_history(history: History) -> Iterator[str]:
    if history.task:
        given = history.task.model_dump(mode="json", exclude_defaults=True)
        yield from (f"task with: {name}" for name in given if name not in ("text", "limits"))
    if history.end:
        yield f"end: {history.end.status}"
    for call in history.calls:
        yield f"call: {call.kind} {call.closed or 'open'}"
    for timer in history.timers:
        name = timer.summary.partition(" |")[0]
        yield "timer: " + re.sub(r"[0-9]+", "N", re.sub(r"test-\w+", "a task", name))


def _of_outcome(outcome: Outcome) -> Iterator[str]:
    yield f"outcome: {outcome.status} {outcome.code or ''}".strip()
    yield f"strategy: {outcome.strategy}"
    for step in outcome.steps:
        yield f"step: {step.kind} ({step.effect}) {step.status}"
        yield from ["effect: one that may have been applied"] * (step.effect is not Effect.READ and step.attempts > 0)
        yield from ["step: replayed from the ledger"] * step.replayed
    for fault in (*outcome.faults, *outcome.own_faults):
        applied = fault.applied.value
        yield f"decision: {fault.decision} after {fault.quadrant} {fault.code} (applied: {applied})"
        yield from [f"reconciled: {fault.reconciled}"] * bool(fault.reconciled)
    for request in outcome.requests:
        ended = request.answer.choice if request.answer else request.closed
        yield f"request: {request.kind} {request.code}: {ended}"
        yield from ["request: one for several calls"] * bool(getattr(request, "others", ()))
        yield from ["request: resolved with others"] * bool(request.answer and request.answer.resolution)
    for metric, labels in (outcome.counts or {}).items():
        yield from (f"counted: {metric} {label}" for label in labels)
    for name in ("revisions", "rejections", "compactions", "failovers", "undo", "words", "extensions", "observations"):
        number = len(getattr(outcome, name, ()) or ())
        yield from [f"{name}: {'one' if number == 1 else 'several'}"] * bool(number)


def covered(before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, bool]]:
    """Each line of an earlier manifest that its history does not show now, and whether another history shows it."""
    every = {line for lines in now.values() for line in lines}
    for name, lines in before.items():
        yield from ((f"{name}: {line}", line in every) for line in lines if line not in now.get(name, every))


def main() -> int:
    """Write the manifest, or say what is missing in it."""
    parser = ArgumentParser(description=__doc__, prog="python -m tests.manifest")
    parser.add_argument("--covers", type=FileType(), help="an earlier manifest, - for stdin")
    parser.add_argument("--without", nargs="*", default=(), help="its histories of defects that were mended")
    args = parser.parse_args()
    now = asyncio.run(manifest(FOLDER))
    if args.covers is None:
        MANIFEST.write_text(written(now))
        return 0
    before = {name: lines for name, lines in json.load(args.covers).items() if name not in args.without}
    missing = dict(covered(before, now))
    for line, is_elsewhere in missing.items():
        print(f"{line} (another history shows it)" if is_elsewhere else line)
    lost = sum(not is_elsewhere for is_elsewhere in missing.values())
    print(f"{len(before)} histories, {sum(map(len, before.values()))} lines, {lost} of them in no history now")
    return int(lost > 0)


def written(shown: Mapping[str, Sequence[str]]) -> str:
    return json.dumps(shown, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
