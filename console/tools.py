"""`tools` and `call`: what a worker can do, and one step of it."""

import json
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from console import document, tree
from console.options import Common
from console.outcome import ended, exit_code
from console.problem import Exit, Problem
from console.start import new_id
from workflows.agent import AgentWorkflow
from workflows.budget import Limits
from workflows.inspect import Findings, Inquiry, InspectWorkflow, ToolCard
from workflows.plan import Step, nearest
from workflows.task import StepStatus, Task

PATIENCE = timedelta(seconds=5)


async def tools(client: Client, common: Common, kind: str | None) -> int:
    """Print the catalogue of a live worker, or one tool with its schemas."""
    found = await ask(client, common, Inquiry())
    cards = {card.spec.kind: card for card in found.tools}
    if kind is not None and kind not in cards:
        reason = f"The worker has no tool {kind!r}{nearest(kind, cards)}"
        raise Problem("unknown_kind", reason, "`python starter.py tools` lists them")
    chosen = [cards[kind]] if kind else list(cards.values())
    if common.json:
        print(document.of_anything({"tools": [card.model_dump(mode="json") for card in chosen]}))
    else:
        for card in chosen:
            print("\n".join(_lines(card, whole=kind is not None)))
    return Exit.COMPLETED


async def call(client: Client, common: Common, kind: str, arguments: dict[str, JsonValue]) -> int:
    """Run one step through the same boundary as every plan, and print what came back."""
    plan = (Step(id="call", kind=kind, args=arguments),)
    task = Task(text=f"call {kind}", plan=plan, plan_only=True, limits=Limits(replans=0))
    handle = await client.start_workflow(
        AgentWorkflow.run, task, id=new_id(task.text), task_queue=common.queue, static_summary=f"call {kind}"
    )
    outcome = await ended(handle)
    if common.json:
        print(document.of_task(outcome, handle.result_run_id, None))
        return exit_code(outcome)
    for step in outcome.steps:
        for line in tree.step_lines(outcome, step):
            print(line)
        if step.status is StepStatus.COMPLETED:
            print(json.dumps(step.result, ensure_ascii=False, indent=2))
    if not outcome.steps:
        print(outcome.reason)
    return exit_code(outcome)


def read_arguments(text: str) -> dict[str, JsonValue]:
    """Read a tool's arguments: a JSON object, or @FILE that holds one.

    Raises:
        Problem: it is neither.
    """
    try:
        read: Any = json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except (OSError, ValueError) as error:
        remedy = """write an object, e.g. '{"query": "refund"}', or @FILE"""
        raise Problem("bad_arguments", f"The arguments are no JSON ({error})", remedy) from error
    if not isinstance(read, dict):
        raise Problem("bad_arguments", "The arguments must be a JSON object", """write e.g. '{"query": "refund"}'""")
    return read


async def ask(client: Client, common: Common, inquiry: Inquiry) -> Findings:
    """What a live worker answers.

    Raises:
        Problem: none answers, or it cannot.
    """
    try:
        return await client.execute_workflow(
            InspectWorkflow.run,
            inquiry,
            id=f"inspect-{secrets.token_hex(4)}",
            task_queue=common.queue,
            execution_timeout=PATIENCE,
            static_summary=f"the console asks for {inquiry.about}",
        )
    except WorkflowFailureError as failure:
        if isinstance(failure.cause, ApplicationError):
            raise Problem(
                "refused", failure.cause.message.rstrip("."), "see the worker's log", Exit.FAILED
            ) from failure
        reason = f"No worker answers on queue {common.queue}"
        raise Problem(
            "no_worker", reason, f"start one with `python worker.py{common.at_queue}`", Exit.UNREACHABLE
        ) from failure


def _lines(card: ToolCard, *, whole: bool) -> list[str]:
    """A tool for people: what it does, what it changes, what it takes."""
    spec = card.spec
    lines = [f"{spec.kind:<16} {spec.effect:<14} {card.description.splitlines()[0]}"]
    if not whole:
        return lines
    related = {"looks again with": spec.observe, "is undone by": spec.undo}
    lines += [f"  {words} {other.kind}" for words, other in related.items() if other]
    lines += [f"  falls back to {spec.fallback}"] if spec.fallback else []
    lines += [f"  retries: {spec.retry}; {spec.timeout:g} s an attempt", "  takes"]
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
