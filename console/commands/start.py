"""`start`: give a task to the workers and follow it; `--continue` carries on the conversation of an earlier task."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import JsonValue
from temporalio.client import Client, WorkflowExecutionStatus

from client import start as starting
from client import tasks
from client.problem import Problem
from client.start import TaskOptions
from client.tasks import final_outcome
from client.text import cut, one_line, starter
from console.commands import show
from console.commands.dry_run import show_plan
from console.options import Common, Jsonl
from console.render.tree import CLOSED, is_undo
from runtime.settings_file import BadSettings, Profile, SettingsFile
from workflows.outcome import Outcome, OutcomeStep
from workflows.plan import Step, canonical
from workflows.record import StepRecord, StepStatus
from workflows.task import Remains, Task, TaskStatus


async def start_command(
    *,
    task: Annotated[str | None, typer.Option(help="What to do, in words.")] = None,
    plan: Annotated[Path | None, typer.Option(help="A hand-written plan: JSON, used instead of the planner's.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of the task; else made from its words.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Start anew under the id of a task that has ended.")] = False,
    documents: Annotated[str | None, typer.Option(help="A folder below the worker's --documents.")] = None,
    strategy: Annotated[
        Literal["plan", "react"] | None,
        typer.Option(help="A whole plan at a time (plan, the default), or one move of a model (react)."),
    ] = None,
    planner: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Who plans, as the worker's --planner; else the worker's own.")
    ] = None,
    result_schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A JSON schema that the answer keeps; else it is a text.")
    ] = None,
    continues: Annotated[
        str | None,
        typer.Option("--continue", metavar="ID", help="Carry on the conversation of an ended task; or `newest`."),
    ] = None,
    tool_calls: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Calls of tools that it may make: 25 at a terminal, else 200."),
    ] = None,
    replans: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="New plans that it may make after a refusal: 2, with react 20."),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens of models that it may use: 50000 at a terminal, else 500000."),
    ] = None,
    usd: Annotated[
        float | None, typer.Option(metavar="USD", help="US dollars that models may cost; else no limit.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="When it ends at the latest; else no limit.")
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(envvar="REPLAN_SETTINGS", metavar="FILE", help="Other limits than these; else replan.toml."),
    ] = None,
    on_escalation: Annotated[
        Literal["end", "undo"],
        typer.Option(help="What becomes of its effects when it needs a person: stay, or undone."),
    ] = "end",
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="KINDS", help="Kinds that may change the world even after foreign text was read."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and return at once.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and what it would change, run nothing; JSON for --plan.")
    ] = False,
    jsonl: Jsonl = False,
    common: Common,
) -> int:
    """`start`, with its options."""
    show.check(common, jsonl=jsonl, follows=not (detach or dry_run))
    starting.check(id, detach=detach, dry_run=dry_run)
    given = {"tool_calls": tool_calls, "replans": replans, "tokens": tokens, "usd": usd, "deadline": deadline}
    options = TaskOptions(
        text=task,
        plan=plan,
        documents=documents,
        strategy=strategy,
        planner=planner,
        result_schema=read_schema(result_schema) if result_schema is not None else None,
        on_escalation=on_escalation,
        allow=starting.kinds(allow),
        limits=limits_for(settings, profile_name(common, detach=detach, jsonl=jsonl), given),
    )
    wanted = starting.build_task(options)
    client = await common.connected()
    if continues is not None:
        wanted = await continued(client, wanted, continues)
    if dry_run:
        return await show_plan(client, wanted, common)
    handle = await starting.start(client, wanted, id=id, queue=common.queue, again=again)
    if detach:
        return await show.detached(client, handle, common)
    return await show.follow_task(client, handle, common, jsonl=jsonl)


def limits_for(path: Path | None, profile: Profile, given: Mapping[str, Any]) -> dict[str, Any]:
    """The limits of a task; `given` is what its command line says, None for what it does not.

    Raises:
        Problem: the settings file cannot be used.
    """
    try:
        return SettingsFile.read(path).limits(profile, given)
    except BadSettings as wrong:
        raise Problem("bad_settings", wrong.reason, wrong.remedy) from wrong


def profile_name(common: Common, *, detach: bool, jsonl: bool) -> Profile:
    """`interactive` where somebody sits at a terminal and waits for the task."""
    waits = not (common.json or jsonl or detach)
    at_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    return "interactive" if waits and at_terminal else "background"


MAX_SCHEMA = 32 * 1024
"""Bytes of a schema file: the model is shown it in every request."""
MAX_WORDS = 200
"""Cells of what is wrong with a schema."""
AN_EXAMPLE = """write a JSON schema, e.g. {"type": "object", "properties": {"total": {"type": "number"}}}"""


def read_schema(path: Path) -> dict[str, JsonValue]:
    """Read the JSON schema of an answer, of an object or of anything else.

    Raises:
        Problem: the file cannot be read, is too large, or holds no schema that an answer can be held against.
    """
    schema = _parsed(path, _bytes_of(path))
    if not isinstance(schema, dict):
        raise _unusable(path, "it is no JSON object", AN_EXAMPLE)
    try:
        _check(path, schema)
    except RecursionError as error:
        raise _unusable(path, "it refers to itself without end, or is nested too deeply", "make it flatter") from error
    return schema


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            read = file.read(MAX_SCHEMA + 1)
    except OSError as error:
        reason = f"The schema {str(path)!r} cannot be read ({error.strerror})"
        raise Problem("no_schema", reason, "check --result-schema") from error
    if len(read) > MAX_SCHEMA:
        raise _unusable(path, f"it has more than {MAX_SCHEMA} bytes", "make it smaller: the model reads it each time")
    return read


def _parsed(path: Path, read: bytes) -> Any:
    try:
        parsed = json.loads(read, parse_constant=_no_constant)
        json.dumps(parsed, ensure_ascii=False, allow_nan=False).encode()  # half a letter, or 1e999, cannot be sent
    except RecursionError as error:
        raise _unusable(path, "it is nested too deeply", "make it flatter") from error
    except ValueError as error:
        raise _unusable(path, f"it is no JSON ({error})", AN_EXAMPLE) from error
    return parsed


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _check(path: Path, schema: dict[str, Any]) -> None:
    """Hold it against the schema of schemas, follow its references, and hold one value against it."""
    from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]  # ships no types
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        Draft202012Validator.check_schema(schema)  # the dialect by which the worker checks the answer
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path)) or "the whole"
        raise _unusable(path, f"{where}: {error.message}", "mend it; --result-schema takes a JSON schema") from error
    root = DRAFT202012.create_resource(schema)
    resolver = Registry().with_resource("", root).crawl().resolver()
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable as error:
            remedy = "refer only to what is in the file, as in #/$defs/NAME"
            raise _unusable(path, f"$ref {reference!r} leads nowhere", remedy) from error
    Draft202012Validator(schema).is_valid(None)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _unusable(path: Path, wrong: str, remedy: str) -> Problem:
    return Problem("bad_schema", f"The schema {str(path)!r} is not usable: {cut(one_line(wrong), MAX_WORDS)}", remedy)


NEWEST = "newest"
"""What stands for the task that was started last, since an option cannot be left empty."""
MAX_REMAINS = 256 * 1024
"""Bytes; the task is a workflow's input, of which the server takes 2 MB."""
SAID_LAST = ("question", "gave_up", "proposals_rejected")
"""How a task ends, beside completing it, whose planner was told everything before."""


async def continued(client: Client, task: Task, id: str) -> Task:
    """The task with the conversation of another, given by its id or the beginning of it, that it carries on.

    Raises:
        Problem: there is no such task, or it runs.
    """
    earlier = await tasks.find_task(client, None if id == NEWEST else id)
    seen = await earlier.describe()
    if seen.status is WorkflowExecutionStatus.RUNNING:
        reason = f"Task {seen.id!r} is running: its conversation is not over"
        raise Problem("still_running", reason, f"wait for its end with `{starter('show', seen.id, '--follow')}`")
    run = await tasks.first_run(earlier)
    return task.model_copy(update={"continues": run, "remains": remains(await final_outcome(earlier))})


def remains(outcome: Outcome) -> Remains | None:
    """What the planner of an ended task does not know of it yet; None where nobody does."""
    if outcome.code == CLOSED:
        return None
    last = outcome.revisions[-1].number if outcome.revisions else 0
    untold = last if not _knows_all(outcome) else None
    steps = [step for step in outcome.steps if _is_untold(step, untold)]
    ids = {step.id for step in steps}
    faults = tuple(fault for fault in outcome.faults if fault.revision == last and fault.step_id in ids)
    whole = Remains(records=tuple(map(_record, steps)), faults=faults, is_tainted=outcome.is_tainted)
    return _fitting(whole)


def _is_untold(step: OutcomeStep, revision: int | None) -> bool:
    """Whether the planner does not know how a step stands: of the plan `revision`, or taken back at the end."""
    return not is_undo(step) and (step.revision == revision or step.status is StepStatus.UNDONE)


def _knows_all(outcome: Outcome) -> bool:
    """Whether the planner spoke last."""
    if outcome.status is TaskStatus.OVER_BUDGET:
        return outcome.result is not None
    return outcome.status is TaskStatus.COMPLETED or outcome.code in SAID_LAST


def _record(step: OutcomeStep) -> StepRecord:
    return StepRecord(
        step=Step(id=step.id, kind=step.kind, args=step.args, needs=step.needs, title=step.title),
        revision=step.revision,
        effect=step.effect,
        status=step.status,
        attempts=step.attempts,
        kind=step.kind,
        result=step.result,
        left_out=step.result_bytes if step.result_omitted else 0,
    )


def _fitting(whole: Remains) -> Remains:
    """The same without its largest results, as far as it would be too large."""
    sizes = {record.step.id: len(canonical(record.result).encode()) for record in whole.records}
    over, dropped = len(whole.model_dump_json().encode()) - MAX_REMAINS, dict[str, int]()
    for id in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if over > 0:
            dropped[id], over = sizes[id], over - sizes[id]
    records = (_without(record, dropped.get(record.step.id, 0)) for record in whole.records)
    return whole.model_copy(update={"records": tuple(records)})


def _without(record: StepRecord, size: int) -> StepRecord:
    return record.model_copy(update={"result": None, "left_out": size}) if size else record
