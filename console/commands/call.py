"""`call`: run one step as a task of its own."""

import functools
import sys
from typing import Annotated

import typer

from client import document, people, tree
from client.encrypted import require_key_of_queue
from client.schemas import with_numbers
from client.start import new_id, signed, task_of_call
from client.task_document import task_document
from client.tasks import CALL_MEMO
from client.text import one_line
from client.workers import tools_of
from console.arguments import read_arguments
from console.commands import show
from console.completion import kinds
from console.exits import exit_code
from console.options import Common, Identity, voucher_of
from console.prompt import CallView
from console.render.views import StderrView
from workflows.account.records import StepStatus
from workflows.agent import AgentWorkflow
from workflows.web_ui import summary


async def call_command(
    *,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The tool.", autocompletion=kinds)],
    arguments: Annotated[str, typer.Argument(metavar="JSON", help="Its arguments as JSON, or @FILE.")] = "{}",
    identity: Identity = None,
    common: Common,
) -> int:
    """Run one tool call as a task of its own. If stdout is no terminal, it gets only the result."""
    read = read_arguments(arguments)  # a mistake is reported without connecting
    voucher = voucher_of(identity)
    client = await common.connected()
    await require_key_of_queue(client, common.queue)
    asks = {"on_escalation": "wait"} if common.is_interactive else {}
    task = task_of_call(kind, read).model_copy(update=asks | {"by": people.login_name()})
    id = new_id(task.text)
    handle = await client.start_workflow(
        AgentWorkflow.run,
        signed(task, voucher, client.namespace, id),
        id=id,
        task_queue=common.queue,
        static_summary=summary(f"call {kind}"),
        memo={CALL_MEMO: kind},
    )
    is_drawn = show.draws_in_place() and not common.json
    answer = functools.partial(people.answer, handle, voucher=voucher)
    view = CallView(common, handle.id, None, sys.stdout, answer) if is_drawn else StderrView(common)
    outcome = await show.to_the_end(client, handle, view, is_attended=show.is_attended(common))
    if common.json:
        print(document.of_anything(await task_document(client, handle, outcome)))
        return exit_code(outcome)
    stream = sys.stdout if sys.stdout.isatty() else sys.stderr
    # A program gets the JSON of the result, in which a Decimal is a text.
    results = [step.result for step in outcome.steps] if sys.stdout.isatty() else []
    tools = await tools_of(client, common.queue, results)
    for step in outcome.steps:
        for line in tree.step_lines(outcome, step):
            print(line, file=stream)
        if step.status is StepStatus.COMPLETED:
            schema = tools[step.kind].result_schema if step.kind in tools else {}
            print(with_numbers(document.written, step.result, schema))
    if not outcome.steps:
        print(one_line(outcome.reason), file=stream)
    return exit_code(outcome)
