"""`call`: run one step as a task of its own."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from client.problem import Problem
from client.start import new_id
from client.tasks import CALL_MEMO
from client.text import one_line
from console.commands import show
from console.exits import exit_code
from console.options import Common
from console.render import document, tree
from console.render.live import CallView
from console.render.views import StderrView
from workflows.agent import AgentWorkflow
from workflows.budget import Limits
from workflows.plan import Step
from workflows.record import StepStatus
from workflows.task import Task

AN_OBJECT = """write an object, e.g. '{"query": "refund"}', or @FILE"""


async def call_command(
    *,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The tool.")],
    arguments: Annotated[str, typer.Argument(metavar="JSON", help="Its arguments as JSON, or @FILE.")] = "{}",
    common: Common,
) -> int:
    """Run one tool call as a step of a task of its own.

    If stdout is no terminal, it gets only the result of the call, and stderr gets the line about the step.
    """
    read = read_arguments(arguments)  # a mistake is reported without connecting
    client = await common.connected()
    plan = (Step(id="call", kind=kind, args=read),)
    task = Task(text=f"call {kind}", plan=plan, plan_only=True, limits=Limits(replans=0))
    handle = await client.start_workflow(
        AgentWorkflow.run,
        task,
        id=new_id(task.text),
        task_queue=common.queue,
        static_summary=f"call {kind}",
        memo={CALL_MEMO: kind},
    )
    is_drawn = show.draws_in_place() and not common.json
    view = CallView(common, handle.id, None, sys.stdout) if is_drawn else StderrView(common)
    outcome = await show.to_the_end(client, handle, view, is_attended=show.is_attended(common))
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
    """Read a tool's arguments: a JSON object, or @FILE with a JSON object; raise Problem for anything else."""
    read = read_json(text, "The arguments are", AN_OBJECT)
    if not isinstance(read, dict):
        raise Problem("bad_arguments", "The arguments must be a JSON object", AN_OBJECT)
    return read


def read_json(text: str, name: str, example: str) -> JsonValue:
    """Read JSON that can be sent, or @FILE with such JSON; raise Problem for anything else.

    `name` begins the sentence about what is wrong, as in `The arguments are`; `example` says what to write.
    """
    try:
        read: JsonValue = json.loads(_text_of(text[1:]) if text.startswith("@") else text)
    except RecursionError as error:
        raise _too_deep(name) from error
    except ValueError as error:
        raise Problem("bad_arguments", f"{name} not JSON ({error})", example) from error
    # Python's JSON reader accepts what the server or pydantic cannot take.
    try:
        json.dumps(read, ensure_ascii=False).encode()
        Step(id="call", kind="call", args={"": read}).model_dump_json()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        reason = f"{name} no valid text, with a lone surrogate ({half})"
        raise Problem("bad_arguments", reason, "write the whole character") from error
    except (RecursionError, ValueError) as error:  # pydantic's limit is lower than Python's
        raise _too_deep(name) from error
    return read


def _too_deep(name: str) -> Problem:
    return Problem("bad_arguments", f"{name} nested too deeply", "make them flatter")


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        reason = f"The file {file!r} cannot be read ({error.strerror})"
        raise Problem("bad_arguments", reason, "check the path after the @") from error
