"""`show`: print a task once, follow it, or print one result. `start` follows its new task with this module, too."""

import asyncio
import functools
import json
import os
import sys
from typing import Annotated

import typer
from pydantic import JsonValue
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionDescription

from client import document, people, tasks, tree
from client.connection import ui_url_of
from client.explain import prose, world
from client.follow import Follower, View, fetch_standing
from client.history import fetch
from client.history.decoder import calls_in
from client.history.records import CallEnd
from client.problem import Problem, ProblemKind
from client.remedy import Remedy, Text, as_command, render
from client.reset import reference_of
from client.task_document import task_document
from client.tasks import Handle
from client.text import cut, one_line, printable, worker
from client.tree import WIDTH
from client.vouching import Voucher
from client.workers import ask
from client.workflow_task import UNREADABLE
from console.exits import Exit, exit_code
from console.options import Common, Identity, Jsonl, Stream, TaskId, voucher_of
from console.prompt import PromptView
from console.render import requests
from console.render.closing import MAX_CLOSING_REASON, closing_lines
from console.render.command import starter
from console.render.live import LiveView
from console.render.terminal import print_lines, terminal_size
from console.render.views import EventsView, LinesView, StderrView
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.agent import AgentWorkflow
from workflows.inquiries import PayloadInquiry
from workflows.plans.catalogue import Effect
from workflows.plans.contract import contract_text
from workflows.text import nearest


async def show_command(
    *,
    id: TaskId = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the task ends.")] = False,
    result: Annotated[str | None, typer.Option(metavar="STEP", help="Only the whole result of this step.")] = None,
    jsonl: Jsonl = False,
    stream: Stream = False,
    identity: Identity = None,
    common: Common,
) -> int:
    check(common, jsonl=jsonl, stream=stream, follows=follow)
    voucher = voucher_of(identity)
    client = await common.connected()
    handle = await tasks.find_task(client, id)
    if result is not None:
        return await print_result(client, handle, await common.at(handle), result)
    if follow:
        return await follow_task(client, handle, common, voucher, jsonl=jsonl, stream=stream)
    return await show(client, handle, common)


async def print_result(client: Client, handle: Handle, common: Common, step: str) -> int:
    """Print the result of a step as JSON; if the history only refers to it, a worker reads it from its store."""
    payload = _returned(handle.id, [event async for event in handle.fetch_history_events()], step)
    reference = reference_of(payload)
    if reference is None:
        try:
            value: JsonValue = (await tasks.converter_of(client, handle.id).decode([payload]))[0]
        except UNREADABLE as error:
            reason = f"The result of step {step!r} cannot be read here (a worker's payload codec encrypted it)"
            remedy = "give --keys or set REPLAN_CODEC as that worker has"
            raise Problem("unreadable", reason, remedy, ProblemKind.FAILED) from error
    else:
        claim = dict(reference.claim_data)
        size, digest = payload.external_payloads[0].size_bytes, claim.get("digest") or claim.get("hash_value")
        print(f"{size} bytes, sha256 {digest}, from a worker's store", file=sys.stderr)
        inquiry = PayloadInquiry(driver=reference.driver_name, claim=claim)
        value = (await ask(client, common.queue, inquiry)).payload
    print(document.written(value.get("result") if isinstance(value, dict) else value))
    return Exit.COMPLETED


def _returned(task: str, events: list[HistoryEvent], step: str) -> Payload:
    """The result of the last completed call of the step. Raises Problem if no call has completed."""
    completed = [found for found in calls_in(events) if found.call.closed is CallEnd.COMPLETED]
    returned = {found.call.id: found.payloads for found in completed}
    if not returned.get(step):
        reason = f"No step {step!r} of this run has a result{nearest(step, returned)}"
        raise Problem("unknown_step", reason, Text(Remedy("show", task), " shows its steps"))
    return returned[step][0]


def check(common: Common, *, jsonl: bool, stream: bool, follows: bool) -> None:
    """Raise Problem for options that do not go together, or need a task to follow; call it before connecting."""
    if jsonl and common.json:
        raise Problem("usage", "--json is one document and --jsonl one event per line", "give one of them")
    if jsonl and not follows:
        reason = "--jsonl prints what happens while a task is followed, and nothing is followed here"
        raise Problem("usage", reason, "leave it out, or follow the task")
    if stream and (common.json or not follows):
        reason = "--stream shows what models say while a task is followed"
        missing = "and --json is one document" if common.json else "and nothing is followed here"
        raise Problem("usage", f"{reason}, {missing}", "leave it out, or follow the task without --json")


async def follow_task(
    client: Client,
    handle: Handle,
    common: Common,
    voucher: Voucher | None = None,
    *,
    jsonl: bool = False,
    stream: bool = False,
) -> int:
    """Follow a task until it ends, with the view that the options and the terminal need; returns the exit code.

    A `voucher` signs the answers that are typed meanwhile.
    """
    view = await _view(client, handle, await common.at(handle), voucher, jsonl=jsonl)
    is_watched = is_attended(common, jsonl=jsonl)
    outcome = await to_the_end(client, handle, view, is_attended=is_watched, with_words=stream)
    if isinstance(view, EventsView):
        view.close(json.loads(await _document(client, handle, outcome)))
    elif common.json:
        print(await _document(client, handle, outcome))
    return exit_code(outcome)


def is_attended(common: Common, *, jsonl: bool = False) -> bool:
    """Whether a person watches the output, and can act if the task cannot go on."""
    return sys.stdout.isatty() and not (common.json or jsonl)


def draws_in_place() -> bool:
    """Whether stdout is a terminal that can draw in place, which a dumb terminal cannot."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


async def to_the_end(
    client: Client, handle: Handle, view: View, *, is_attended: bool, with_words: bool = False
) -> Outcome:
    """Follow a task with a view until it ends; Ctrl-C leaves the task running and prints how to follow it again.

    `with_words` also passes the unfinished replies of models to the view.
    """
    follower = Follower(client, handle, view, is_attended=is_attended, with_words=lambda: with_words)
    try:
        with view:
            return await follower.to_the_end()
    except asyncio.CancelledError:  # of Ctrl-C
        ways = {"Follow": starter("show", handle.id, "--follow"), "Stop": starter("cancel", handle.id)}
        goes_on = "running"
        if follower.snapshot and any(request.is_open for request in follower.snapshot.outcome.requests):
            goes_on, ways = "waiting for an answer", {"Answer": starter("answer", handle.id), **ways}
        if sys.stderr.isatty():
            hints = "".join(f"\n{f'{way}:':<8}{command}" for way, command in ways.items())
        else:
            hints = " " + "  ".join(f"{way}: {command}" for way, command in ways.items())
        print(f"\ndetached; still {goes_on}.{hints}", file=sys.stderr)
        raise


async def show(client: Client, handle: Handle, common: Common) -> int:
    """Print the state of a task as it is now."""
    outcome, snapshot = await fetch_standing(client, handle)
    if common.json:
        print(await _document(client, handle, outcome))
        return exit_code(outcome)
    description, ended_at = await handle.describe(), outcome.ended_at
    rolled_back = await fetch.rollback(client, handle.id, ended_at) if ended_at else None
    live = tree.LiveState.of(snapshot) if snapshot else None
    lines = tree.body(outcome, ui_url_of(client, handle.id), _width(), live)
    lines += map(tree.activity_line, snapshot.doing if snapshot else ())
    lines += [*tree.waiting_lines(outcome), *tree.paused_lines(outcome), *requests.lines(outcome)]
    lines += [cut(one_line(contract_text(outcome.contract)), MAX_CLOSING_REASON)] if outcome.contract else []
    lines += closing_lines(outcome)
    if snapshot and snapshot.is_replayed:
        start = worker(description.task_queue)
        lines.append(f"No worker answers, so this is what its history tells: `{start}` goes on with it.")
    lines += [printable(render(prose.rolled_back(handle.id, rolled_back), as_command))] if rolled_back else []
    print_lines(lines + await _effects(client, handle, description, outcome, is_rolled_back=bool(rolled_back)))
    return exit_code(outcome)


async def _effects(
    client: Client, handle: Handle, description: WorkflowExecutionDescription, outcome: Outcome, *, is_rolled_back: bool
) -> list[str]:
    """Lines about effects that the outcome does not show: of cancelled steps, and of runs before a reset."""
    # The whole history is read only in these two cases.
    has_earlier = description.raw_description.workflow_execution_info.first_run_id not in ("", description.run_id)
    was_cut = any(step.status is StepStatus.CANCELLED and step.effect is not Effect.READ for step in outcome.steps)
    is_unknown = was_cut and not is_rolled_back
    if not has_earlier and not is_unknown:
        return []
    story = await fetch.fetch_story(client, handle)
    sentences = [*(world.unknown(story) if is_unknown else ()), *world.earlier(story)]
    resets = [prose.moment(reset.at) for reset in story.history.resets]
    timed = [f"It was reset at {at}; its time counts from the start." for at in resets[-1:]]
    lines = [printable(render(sentence.text, as_command)) for sentence in sentences]
    lines += [f"See what stands: {starter('effects', handle.id)}"] if lines else []
    return [*timed, *lines]


async def detached(client: Client, handle: Handle, common: Common) -> int:
    """Print that a task was started and how to follow it; returns exit code 0."""
    ui_url = ui_url_of(client, handle.id)
    if common.json:
        print(document.of_start(handle.id, handle.result_run_id, ui_url))
    else:
        say(printable("  ".join(filter(None, [handle.id, "started", ui_url]))))
        say(f"Follow: {starter('show', handle.id, '--follow')}")
    return Exit.COMPLETED


async def _view(client: Client, handle: Handle, common: Common, voucher: Voucher | None, *, jsonl: bool) -> View:
    ui_url = ui_url_of(client, handle.id)
    if jsonl:
        return EventsView(common, (await handle.describe()).run_id, ui_url, sys.stdout)
    if common.json:
        return StderrView(common)
    if draws_in_place() and common.is_interactive:
        newest = client.get_workflow_handle_for(AgentWorkflow.run, handle.id)  # also after a reset
        answer = functools.partial(people.answer, newest, voucher=voucher)
        return PromptView(common, handle.id, ui_url, sys.stdout, answer)
    if draws_in_place():
        return LiveView(common, handle.id, ui_url, sys.stdout)
    return LinesView(common, ui_url, say, _width())


async def _document(client: Client, handle: Handle, outcome: Outcome) -> str:
    return document.of_anything(await task_document(client, handle, outcome))


def _width() -> int:
    return terminal_size(sys.stdout)[0] if sys.stdout.isatty() else WIDTH


def say(line: str) -> None:
    """Print a line, wrapped on a terminal."""
    print_lines([line])
