"""`tools` and `call`: what a worker can do, and one step of it."""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from temporalio.client import Client

from client.problem import Problem
from client.start import new_id
from client.text import one_line, printable
from client.workers import ask
from console.commands import show
from console.exits import Exit, exit_code
from console.options import Common
from console.render import document, tree
from console.render.terminal import size, wrapped
from console.render.views import Aside
from workflows import routing
from workflows.agent import AgentWorkflow
from workflows.budget import Limits
from workflows.inspect import ToolCard, ToolsInquiry
from workflows.plan import Step, nearest
from workflows.record import StepStatus
from workflows.task import Task

AN_OBJECT = """write an object, e.g. '{"query": "refund"}', or @FILE"""
MIN_ROOM = 20
"""Cells below which a column is none."""


async def tools(client: Client, common: Common, kind: str | None) -> int:
    """Print the catalogue of a live worker, or one tool with its schemas."""
    found = await ask(client, common.queue, ToolsInquiry())
    cards = {card.spec.kind: card for card in found.tools}
    if kind is not None and kind not in cards:
        reason = f"The worker has no tool {kind!r}{nearest(kind, cards)}"
        raise Problem("unknown_kind", reason, "`python starter.py tools` lists them")
    chosen = [cards[kind]] if kind else list(cards.values())
    if common.json:
        print(document.of_anything({"tools": [card.model_dump(mode="json") for card in chosen]}))
    else:
        for card in chosen:
            _head(card)
            for line in _more(card) if kind else ():
                show.say(printable(line))
        if found.left_out and kind is None:
            show.say(f"Not offered, since this worker has no model: {printable(', '.join(found.left_out))}")
    return Exit.COMPLETED


async def call(client: Client, common: Common, kind: str, arguments: dict[str, JsonValue]) -> int:
    """Run one step through the same boundary as every plan, and print what came back.

    In a pipe stdout has the result alone, so that a program can read it; what became of the call is on stderr.
    """
    plan = (Step(id="call", kind=kind, args=arguments),)
    task = Task(text=f"call {kind}", plan=plan, plan_only=True, limits=Limits(replans=0))
    handle = await client.start_workflow(
        AgentWorkflow.run, task, id=new_id(task.text), task_queue=common.queue, static_summary=f"call {kind}"
    )
    attended = show.is_attended(common)
    outcome = await show.to_the_end(client, handle, Aside(common), is_attended=attended)
    if common.json:
        print(document.of_task(outcome, handle.result_run_id, None))
        return exit_code(outcome)
    told = sys.stdout if sys.stdout.isatty() else sys.stderr
    for step in outcome.steps:
        for line in tree.step_lines(outcome, step):
            print(line, file=told)
        if step.status is StepStatus.COMPLETED:
            print(document.written(step.result))
    if not outcome.steps:
        print(one_line(outcome.reason), file=told)
    return exit_code(outcome)


def read_arguments(text: str) -> dict[str, JsonValue]:
    """Read a tool's arguments: a JSON object, or @FILE that holds one.

    Raises:
        Problem: it is neither, or nothing that can be sent.
    """
    try:
        read: Any = json.loads(_text_of(text[1:]) if text.startswith("@") else text)
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        raise Problem("bad_arguments", f"The arguments are no JSON ({error})", AN_OBJECT) from error
    if not isinstance(read, dict):
        raise Problem("bad_arguments", "The arguments must be a JSON object", AN_OBJECT)
    _require_sendable(read)
    return read


def _require_sendable(read: dict[str, Any]) -> None:
    try:
        json.dumps(read, ensure_ascii=False).encode()
        Step(id="call", kind="call", args=read).model_dump_json()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise Problem("bad_arguments", f"The arguments hold half a letter ({half})", "write it whole") from error
    except (RecursionError, ValueError) as error:  # pydantic's limit is lower than Python's
        raise _too_deep() from error


def _too_deep() -> Problem:
    return Problem("bad_arguments", "The arguments are nested too deeply", "make them flatter")


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        reason = f"The file {file!r} cannot be read ({error.strerror})"
        raise Problem("bad_arguments", reason, "check what stands behind the @") from error


def _head(card: ToolCard) -> None:
    """Print what a tool changes and what it does, on a terminal in two columns."""
    name, does = printable(f"{card.spec.kind:<16} {card.spec.effect:<14} "), printable(card.description.splitlines()[0])
    room = size(sys.stdout)[0] - len(name) if sys.stdout.isatty() else 0
    rows = wrapped(does, room).split("\n") if room >= MIN_ROOM else [does]
    print("\n".join([name + rows[0], *(" " * len(name) + row for row in rows[1:])]))


def _more(card: ToolCard) -> list[str]:
    """What a tool goes with, what it takes and returns."""
    spec, lines = card.spec, list[str]()
    related = {"looks again with": spec.observe, "is reconciled by": spec.reconcile, "is undone by": spec.undo}
    lines += [f"  {words} {other.kind}" for words, other in related.items() if other]
    lines += [f"  settles within {spec.settle:g} s"] if spec.reconcile else []
    lines += [f"  falls back to {spec.fallback}"] if spec.fallback else []
    lines += ["  returns text that anybody may have written"] if spec.untrusted else []
    lines += [f"  asks a model: {spec.tokens:,} tokens at the most"] if spec.tokens else []
    extra = f" and up to {more:g} s more, in a thread" if (more := routing.overtime(spec)) else ""
    lines += [f"  retries: {spec.retry}; {spec.timeout:g} s an attempt{extra}", "  takes"]
    for name, part in card.args_schema.get("properties", {}).items():
        needed = " (required)" if name in card.args_schema.get("required", ()) else ""
        lines.append(
            f"    {name}: {part.get('format') or part.get('type', 'any')}{needed}  {part.get('description', '')}"
        )
    return [*lines, "  returns", *_fields(card.result_schema)]


def _fields(schema: dict[str, Any]) -> list[str]:
    return [
        f"    {name}: {part.get('format') or part.get('type', 'any')}"
        for name, part in schema.get("properties", {}).items()
    ]
