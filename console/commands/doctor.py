"""`doctor`: check everything that a task needs, and say what to do about each finding."""

import asyncio
import os
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from client import document, upgrade
from client.connection import CODEC, ui_base
from client.history.account import gathered
from client.problem import Problem
from client.remedy import as_command, render
from client.tasks import TASK_TYPE, existing
from client.text import worker
from client.workers import LOOK, RESTORED, LostRows, ask, find_lost_rows, serving
from client.workflow_task import ROLLBACK, FailingTask, failing
from console.exits import Exit
from console.options import Common
from console.render.checks import Check, Status, check_lines
from console.render.command import starter
from runtime import state_folder
from runtime.client import VALUE_TYPES, Misconfigured, NoNamespace, NotConnected, connect
from runtime.process import version
from runtime.queue_store import Record, recorded
from workflows.account.search_attributes import TYPES
from workflows.commands import WORKER
from workflows.inquiries import (
    BreakerCard,
    Capacity,
    Misfit,
    Place,
    ToolsFindings,
    ToolsInquiry,
    WorkerCard,
    WorkerFindings,
    WorkerInquiry,
)
from workflows.plans.catalogue import UNREAD, Effect, ToolSpec
from workflows.text import few

MAX_NAMED = 5
CLOCK_SECONDS = 5.0
"""Seconds: a larger difference between the clocks of console, worker and server is a warning."""
PRICES_LAST = timedelta(days=90)
"""The age up to which published prices are no warning."""
KEY_OF = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
"""By the beginning of a planner's name, the environment variable with the API key that the planner needs."""
OPTION_OF = {
    "store": "check --store, REPLAN_STORE and --state of the worker",
    "state": "check --state of the worker",
    "documents": "check --documents of the worker",
    "workspace": "check --workspace of the worker",
}
"""By the name of a store or folder, what to do when it cannot be used."""
WITHOUT = {
    "documents": "no tool can search or read documents: --documents of the worker names their folder",
    "workspace": "no tool can write files: --workspace of the worker names a folder for them",
}
"""By the name of a folder, what a worker without it cannot do, and the option that sets it."""
LACKING = {
    "observe": "observe= names the read tool that refreshes state after a rejection",
    "undo": "undo= names the tool that undoes it",
    "reconcile": "reconcile= names the read tool that finds out whether it was applied",
}
OF_WORKER = (
    "planner",
    "keys",
    "store",
    "state",
    "documents",
    "workspace",
    "clocks",
    "capacity",
    "notifications",
    "breakers",
    "people",
    "tools",
)


def skipped(names: Sequence[str], because: str) -> list[Check]:
    """For each name a check that was skipped, with the reason `because`."""
    return [Check(name, Status.SKIPPED, because) for name in names]


def of_attributes(expected: Mapping[str, str], present: Mapping[str, str]) -> Check:
    """The check whether the namespace has the search attributes `expected`; both mappings are name to type."""
    differing = {name: type for name, type in expected.items() if present.get(name, type) != type}
    other = [f"{name} is {present[name]}, not {type}" for name, type in differing.items()]
    missing = [name for name in expected if name not in present]
    if other:
        remedy = "use a namespace of its own for Replan: a type cannot be changed"
        return Check("search attributes", Status.WARN, f"unusable: {', '.join(other)}", remedy)
    if missing:
        options = " ".join(f"--name {name} --type {expected[name]}" for name in missing)
        remedy = f"start a worker that may register them, or `temporal operator search-attribute create {options}`"
        return Check("search attributes", Status.WARN, f"missing: {', '.join(missing)}", remedy)
    return Check("search attributes", Status.OK, f"all {len(expected)} are registered")


def of_workflow_tasks(failing: Sequence[FailingTask], looked_at: int, running: int) -> Check:
    """The check whether running tasks can go on: `looked_at` of `running` tasks were read, `failing` cannot."""
    of = f"{looked_at} of {running} running tasks looked at" if looked_at < running else f"{looked_at} running"
    if not failing:
        return Check("workflow tasks", Status.OK, f"none fails ({of})")
    named = few([f"{task.workflow_id} ({task.cause.replace('_', ' ')})" for task in failing], MAX_NAMED)
    shows = f"`{starter('show', failing[0].task_id)}` has the ways out"
    found = f"{len(failing)} cannot go on, since their workflow task fails: {named} ({of})"
    return Check("workflow tasks", Status.FAIL, found, f"{failing[0].cure}; {shows}")


def of_open_tasks(found: upgrade.OpenTasks, misfits: Sequence[Misfit]) -> Check:
    """The check whether the worker's tools accept the next calls of open tasks; `misfits`: the calls not accepted."""
    if not misfits:
        return Check(OPEN_TASKS, Status.OK, f"{found.counted}; the tools take all their next calls")
    listed = few(list(map(upgrade.named, misfits)), MAX_NAMED, "; ")
    said = f"{found.counted}; the tools do not take {len(misfits)} next calls: {listed}"
    remedy = "answer or finish these tasks, or deploy tools that take the calls; else each asks a person, if it may"
    return Check(OPEN_TASKS, Status.WARN, said, remedy)


def of_ledger(found: LostRows) -> Check:
    """The check whether the ledgers have a row of each effect that the newest tasks count as applied."""
    newest = f"the newest {found.looked_at} tasks looked at" if found.looked_at != 1 else "the newest task looked at"
    if not found.tasks:
        return Check(LEDGER, Status.OK, f"it has the effects of {newest}")
    named = few([f"{task} ({few(steps, MAX_NAMED)})" for task, steps in found.tasks.items()], MAX_NAMED, "; ")
    text = f"no row of effects that {len(found.tasks)} of {newest} count as applied: {named}; {RESTORED}"
    first = next(iter(found.tasks))
    return Check(LEDGER, Status.WARN, text, f"`{starter('effects', first)}` lists them. {LOOK}")


def of_worker(
    found: WorkerFindings, version: str, *, restart: str, asked_at: datetime, answered_at: datetime
) -> list[Check]:
    """The checks of a worker that answered; `restart` is a command, and both times are of the console's clock."""
    card = found.worker
    nobody = "nobody is told when a task waits for a person; --notify of the worker names a receiver"
    return [
        _version(card, version, restart),
        _planner(found, answered_at.date()),
        _keys(found.planner, card.keys),
        *(_store_or_folder(place) for place in card.places),
        _clocks(card, asked_at, answered_at),
        _capacity(card.capacity),
        Check("notifications", Status.OK, card.notifies or nobody),
        _breakers(card.breakers),
        _people(found, card.approvers),
        *of_tools(found),
    ]


def of_tools(found: ToolsFindings) -> list[Check]:
    """The check with the number of tools, and a warning for each tool of the user that lacks an option of `@tool`."""
    specs = [card.spec for card in found.tools]
    changing = sum(spec.effect is not Effect.READ for spec in specs)
    untrusted = sum(spec.untrusted for spec in specs)
    if not specs:
        return [Check("tools", Status.FAIL, "the worker has none", "give it some with --tools FILE")]
    returns = "returns" if untrusted == 1 else "return"
    note = f", {untrusted} {returns} untrusted content" if untrusted else ""
    check = Check("tools", Status.OK, f"{len(specs)}, of which {changing} change the world{note}")
    return [
        check,
        *_unusable_tools(found.unusable),
        *_unread_tools(specs),
        *_lacking_tools(specs, {card.spec.kind for card in found.tools if card.is_own}),
    ]


def _unusable_tools(unusable: Mapping[str, str]) -> Iterator[Check]:
    if unusable:
        [name, *_] = unusable
        found = f"{few([*unusable], MAX_NAMED)}, e.g. since of {name} {unusable[name]}"
        yield Check("tools not offered", Status.WARN, found, "correct them at their server, or live without them")


def _unread_tools(specs: Sequence[ToolSpec]) -> Iterator[Check]:
    for state, label in UNREAD.items():
        if kinds := [spec.kind for spec in specs if spec.unread == state]:
            follows = "a task that a model plans begins as if it had read untrusted content"
            found = f"{few(kinds, MAX_NAMED)}: {label}; {follows}"
            remedy = f"read it: `{WORKER} --check --tools FILE --write-tools FILE`, and restart the worker"
            yield Check(f"{state} tools", Status.WARN, found, remedy)


def lacks(spec: ToolSpec, undoing: Collection[str]) -> list[str]:
    """The needed options of `@tool` that `spec` lacks; a tool in `undoing`, which undoes others, needs no `undo`."""
    if spec.effect is Effect.READ:
        return []
    needed = ["observe"] if spec.kind in undoing else ["observe", "undo"]
    needed += ["reconcile"] if spec.effect in (Effect.KEYED, Effect.UNKEYED) else []
    return [name for name in needed if getattr(spec, name) is None]


def _lacking_tools(specs: Sequence[ToolSpec], own_kinds: Collection[str]) -> Iterator[Check]:
    undoing = {spec.undo.kind for spec in specs if spec.undo}
    for spec in specs:
        missing = lacks(spec, undoing) if spec.kind in own_kinds else []
        if missing:
            remedy = "; ".join(LACKING[name] for name in missing)
            yield Check(f"tool {spec.kind}", Status.WARN, f"{spec.effect}, without {' and '.join(missing)}", remedy)


def _version(card: WorkerCard, version: str, restart: str) -> Check:
    found = f"Replan {card.version}, Python {card.python}, Temporal SDK {card.sdk}"
    if card.version == version:
        return Check("worker", Status.OK, found)
    remedy = f"bring both to one version: `{restart}`"
    return Check("worker", Status.WARN, f"{found}; this console is {version}", remedy)


def _planner(found: WorkerFindings, today: date) -> Check:
    planner = found.described or found.planner
    if not found.converses:
        return Check("planner", Status.OK, planner)
    if found.price is not None:
        price = f"{found.price.input:g} USD for a million tokens of input, {found.price.output:g} of output"
        return _planner_with_price(f"{planner}; {price}", found.price_date, today)
    whose = "the price of at least one" if "," in found.planner else "its price"
    detail = f"{planner}; {whose} is not known, so --usd is refused"
    if "@" in found.planner:  # a server of the user's own, which often has no price
        return Check("planner", Status.OK, detail)
    return Check("planner", Status.WARN, detail, "[models.prices] of the worker's settings file gives it")


def _planner_with_price(detail: str, price_date: date | None, today: date) -> Check:
    if price_date is None:  # the settings file has the price
        return Check("planner", Status.OK, detail)
    if today - price_date <= PRICES_LAST:
        return Check("planner", Status.OK, f"{detail}, as of {price_date}")
    remedy = (
        "`pip install --upgrade genai-prices` where the worker runs and restart it, or set the prices in"
        " [models.prices] of its settings file"
    )
    found = f"{detail}, as of {price_date}, {(today - price_date).days} days ago"
    return Check("planner", Status.WARN, found, remedy)


def _needed(planner: str) -> str | None:
    """The variable of the key that the first of these planners needs; None without a model, or for `openai...@HOST`."""
    first = planner.partition(",")[0]
    if first.startswith("openai") and "@" in first:
        return None
    return next((key for begins, key in KEY_OF.items() if first.startswith(begins)), None)


def _keys(planner: str, keys: Mapping[str, bool]) -> Check:
    found = ", ".join(f"{name} {'set' if is_set else 'not set'}" for name, is_set in keys.items()) or "none is known"
    needed = _needed(planner)
    if needed is None:
        return Check("keys", Status.OK, f"{found}; the {planner.partition(',')[0]} planner needs none")
    if keys.get(needed):
        return Check("keys", Status.OK, found)
    remedy = f"set {needed} in the environment of the worker and restart it"
    return Check("keys", Status.FAIL, f"{found}; the {planner} planner needs {needed}", remedy)


def _store_or_folder(place: Place) -> Check:
    if place.where is None:
        found, _, remedy = WITHOUT.get(place.name, "not configured").partition(": ")
        return Check(place.name, Status.WARN, f"none, so {found}" if remedy else found, remedy)
    if place.problem:
        remedy = OPTION_OF.get(place.name, "check the options of the worker")
        return Check(place.name, Status.FAIL, f"{place.where}: {place.problem}", remedy)
    return Check(place.name, Status.OK, place.where)


def _clocks(card: WorkerCard, asked_at: datetime, answered_at: datetime) -> Check:
    worker = (card.clock - card.server_clock).total_seconds()
    console = _outside(card.server_clock, asked_at, answered_at)
    wrong = {"the worker's": worker, "this machine's": console}
    offsets = [f"{whose} is {seconds:+.0f} s off" for whose, seconds in wrong.items() if abs(seconds) > CLOCK_SECONDS]
    if not offsets:
        return Check("clocks", Status.OK, "worker, server and this machine agree")
    found = f"measured by the server's, {' and '.join(offsets)}"
    return Check("clocks", Status.WARN, found, "set them, e.g. with NTP: deadlines and times follow the server's clock")


def _breakers(breakers: Sequence[BreakerCard] | None) -> Check:
    if breakers is None:
        return Check("breakers", Status.SKIPPED, "the worker cannot say")
    left = [card for card in breakers if card.trial_in is not None]
    if not left:
        return Check("breakers", Status.OK, "no tool is left alone")
    named = few([f"{card.kind} ({card.code or 'unknown'})" for card in left], MAX_NAMED)
    remedy = f"check what they call; `{starter('breakers')}` says since when"
    return Check("breakers", Status.WARN, f"left alone, since they failed: {named}", remedy)


def _people(found: ToolsFindings, known: Sequence[str] | None) -> Check:
    """The check whether people are known, and whether somebody is meant by each role and name in a rule."""
    rules = {card.spec.kind: card.spec.approvers for card in found.tools if card.spec.approvers}
    if known is None:
        claims = "no tool says who must approve, so the name of who answers is a claim (docs/approvers.md)"
        return Check("people", Status.OK, claims)
    of_nobody = {kind: [name for name in (*rule.by, *rule.then) if name not in known] for kind, rule in rules.items()}
    unknown = [f"{kind} names {', '.join(names)}" for kind, names in of_nobody.items() if names]
    if not unknown:
        said = "each role and person that a tool names is known" if rules else "no tool says who must approve"
        return Check("people", Status.OK, said)
    remedy = f"`{starter('people', 'change', 'NAME', '--roles', 'ROLES')}` gives a role, or correct by= of the tool"
    return Check("people", Status.WARN, f"nobody in the people file is meant: {few(unknown, MAX_NAMED, '; ')}", remedy)


def _capacity(capacity: Capacity | None) -> Check:
    if capacity is None:
        return Check("capacity", Status.SKIPPED, "the worker cannot say")
    found = f"{capacity.calls} of {capacity.slots} slots in use"
    found += f", {capacity.outlived} of {capacity.threads} threads held by calls that do not return"
    if capacity.calls < capacity.slots:
        return Check("capacity", Status.OK, found)
    return Check("capacity", Status.WARN, found, "give the worker more --slots, or start another worker")


def of_stores(record: Record | None, answers: Sequence[ToolsFindings]) -> list[Check]:
    """A failed check if workers use another store than each other, or than the queue has; else none."""
    ids = sorted({answer.store for answer in answers if answer.store})
    if len(ids) < 2 and (record is None or set(ids) <= {record.store.id}):
        return []
    found = f"workers use {few(ids, MAX_NAMED)}" + (f"; the queue has the store {record.store}" if record else "")
    remedy = "end the workers with another store: each would apply a task's effects that the others do not know"
    return [Check("stores", Status.FAIL, found, remedy)]


def of_workers(count: int, answers: Sequence[ToolsFindings]) -> Check:
    """The check whether all `count` workers of a queue have the same tools, as far as `answers` tell."""
    cards = [{card.spec.kind: card for card in answer.tools} for answer in answers]
    kinds = sorted({kind for card in cards for kind in card})
    different = [kind for kind in kinds if any(card.get(kind) != cards[0].get(kind) for card in cards)]
    if not different:
        return Check("workers", Status.OK, f"{count} serve the queue, with the same tools")
    found = f"{count} serve the queue, with different tools: {few(different, MAX_NAMED)}"
    remedy = "start all workers of a queue with the same --tools and options, or give each its own --queue"
    return Check("workers", Status.WARN, found, remedy)


def _outside(moment: datetime, first: datetime, last: datetime) -> float:
    """The least number of seconds by which our clock is ahead; negative if it is behind, 0 if the clocks may agree.

    The other clock showed `moment` at a time between `first` and `last` of our clock.
    """
    if moment < first:
        return (first - moment).total_seconds()
    return min(0.0, (last - moment).total_seconds())


PATIENCE_SECONDS = 8.5
"""Seconds for all checks together; starting Python takes another second."""
UI_SECONDS = 2.0
RPC_TIMEOUT = timedelta(seconds=4)
ASKED_EACH, MAX_ASKED = 5, 20
"""ASKED_EACH: how many inquiries are sent for each worker of a queue. MAX_ASKED: the most inquiries in all."""
AT_ONCE, MAX_LOOKED_AT = 20, 100
"""AT_ONCE: how many running tasks are checked at the same time. MAX_LOOKED_AT: how many tasks are read of each list."""
REPORTED = "TemporalReportedProblems IS NOT NULL"
"""A list filter for failing tasks: servers from 1.30 on set the attribute after several failures of a workflow task."""
OPEN_TASKS = "open tasks"
OPEN_SECONDS = 4.0
"""Seconds after which no further open task is looked at."""
LEDGER = "ledger"
MAX_COMPARED = 20
"""How many of the newest tasks are compared with the ledgers."""
OF_NAMESPACE = ("web ui", "search attributes", "workflow tasks", "worker", *OF_WORKER, OPEN_TASKS, LEDGER)


async def doctor_command(*, common: Common) -> int:
    """Run and print all checks; return 0 if no check failed, 6 without a server, 2 for unusable settings, else 1."""
    found, exit = await _examine(common)
    if common.json:
        print(document.of_anything({"checks": [asdict(check) for check in found]}))
    else:
        print("\n".join(check_lines(found)))
    return exit


async def _examine(common: Common) -> tuple[list[Check], Exit]:
    until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    try:
        client = await connect(
            address=common.address,
            namespace=common.namespace,
            profile=common.profile,
            state=state_folder.default(),
            keys=common.keys,
            codec=os.environ.get(CODEC),
        )
    except NoNamespace as error:
        answers = Check("server", Status.OK, "answers")
        missing = Check("namespace", Status.FAIL, error.reason, error.remedy)
        return [answers, missing, *skipped(OF_NAMESPACE, "needs the namespace")], Exit.FAILED
    except NotConnected as error:
        failed = Check("server", Status.FAIL, error.reason, error.remedy)
        exit = Exit.BAD_USAGE if isinstance(error, Misconfigured) else Exit.UNREACHABLE
        return [failed, *skipped(("namespace", *OF_NAMESPACE), "needs the server")], exit
    looks = {"server": _server(client), "web ui": _web_ui(client), "search attributes": _attributes(client)}
    looks |= {"workflow tasks": _workflow_tasks(client, common.queue), "worker": _worker(client, common)}
    looks |= {OPEN_TASKS: _open_tasks(client, common.queue), LEDGER: _ledger(client, common.queue)}
    server, *others = await gathered(*(_within(until, name, look) for name, look in looks.items()))
    found = [*server, Check("namespace", Status.OK, client.namespace), *(check for other in others for check in other)]
    return found, Exit.FAILED if any(check.status is Status.FAIL for check in found) else Exit.COMPLETED


async def _within(until: float, name: str, look: Coroutine[Any, Any, list[Check]]) -> list[Check]:
    """The results of one check; a failed check if it has no result before `until`, a time of the event loop."""
    task = asyncio.create_task(look)
    # asyncio.timeout would wait until the cancelled check has ended, and a replay in it may never end.
    done, _ = await asyncio.wait([task], timeout=max(0.0, until - asyncio.get_running_loop().time()))
    found = "no answer in time"
    try:
        if done:
            return task.result()
        task.cancel()
    except TimeoutError:
        pass
    except RPCError as error:
        found = f"the server did not answer ({error.status.name.lower()})"
    failed = Check(name, Status.FAIL, found, "see whether the server is overloaded, and try again")
    return [failed, *(skipped(OF_WORKER, "needs a worker") if name == "worker" else [])]


async def _server(client: Client) -> list[Check]:
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=RPC_TIMEOUT)
    found = f"{_server_address(client)}, Temporal {info.server_version or '(version not said)'}"
    return [Check("server", Status.OK, found)]


async def _attributes(client: Client) -> list[Check]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    response = await client.operator_service.list_search_attributes(request, timeout=RPC_TIMEOUT)
    names = {number: name for name, number in VALUE_TYPES.items()}
    present = {name: names.get(number, "another type") for name, number in response.custom_attributes.items()}
    return [of_attributes(TYPES, present)]


async def _workflow_tasks(client: Client, queue: str) -> list[Check]:
    """The check of the newest running tasks, and of those that the server reports as failing."""
    running = f'WorkflowType IN ("{TASK_TYPE}", "{ROLLBACK}") AND TaskQueue = "{queue}" AND ExecutionStatus = "Running"'
    newest = [row async for row in client.list_workflows(running, limit=MAX_LOOKED_AT)]
    try:
        reported = [row async for row in client.list_workflows(f"{running} AND {REPORTED}", limit=MAX_LOOKED_AT)]
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:  # the server does not know the search attribute
            raise
        reported = []
    ids, at_once = list(dict.fromkeys(row.id for row in (*newest, *reported))), asyncio.Semaphore(AT_ONCE)
    found = await asyncio.gather(*(existing(_failing(client, id, at_once)) for id in ids))  # one may be deleted by now
    running_in_all = (await client.count_workflows(running, rpc_timeout=RPC_TIMEOUT)).count
    return [of_workflow_tasks([task for task in found if task], len(ids), running_in_all)]


async def _failing(client: Client, id: str, at_once: asyncio.Semaphore) -> FailingTask | None:
    async with at_once:
        return await failing(client, await client.get_workflow_handle(id).describe())


async def _web_ui(client: Client) -> list[Check]:
    base = ui_base(_server_address(client))
    if base is not None and await _answers(base):
        return [Check("web ui", Status.OK, base)]
    found = f"nothing answers at {base}" if base else f"not known for {_server_address(client)}"
    return [Check("web ui", Status.WARN, found, "set REPLAN_UI to its address")]


async def _answers(url: str) -> bool:
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(UI_SECONDS):
            port = parts.port or (443 if parts.scheme == "https" else 80)
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, ValueError):  # TimeoutError is an OSError; a port that is no number is a ValueError
        return False
    writer.close()
    return True


async def _worker(client: Client, common: Common) -> list[Check]:
    asked_at, start = datetime.now(UTC), worker(common.queue)
    record = await recorded(client, common.queue)
    try:
        findings = await ask(client, common.queue, WorkerInquiry())
    except Problem as none:
        whose = f"; the queue has the store {record.store}" if record else ""
        failed = Check("worker", Status.FAIL, none.reason + whose, render(none.remedy, as_command))
        return [failed, *skipped(OF_WORKER, "needs a worker")]
    checks = of_worker(findings, version(), restart=start, asked_at=asked_at, answered_at=datetime.now(UTC))
    if (count := await serving(client, common.queue)) < 2:
        return [*checks, *of_stores(record, [findings])]
    # The server chooses who answers, so more questions are asked than there are workers.
    questions = [ask(client, common.queue, ToolsInquiry()) for _ in range(min(count * ASKED_EACH, MAX_ASKED))]
    answers = await asyncio.gather(*questions, return_exceptions=True)
    tools = [findings, *(answer for answer in answers if isinstance(answer, ToolsFindings))]
    return [*checks, of_workers(count, tools), *of_stores(record, tools)]


async def _open_tasks(client: Client, queue: str) -> list[Check]:
    if not await serving(client, queue):
        return skipped([OPEN_TASKS], "needs a worker")
    found = await upgrade.open_tasks(client, queue, limit=MAX_LOOKED_AT, seconds=OPEN_SECONDS)
    try:
        return [of_open_tasks(found, await upgrade.misfits_of_worker(client, queue, found.calls))]
    except Problem as none:
        return skipped([OPEN_TASKS], none.reason)


async def _ledger(client: Client, queue: str) -> list[Check]:
    if not await serving(client, queue):
        return skipped([LEDGER], "needs a worker")
    return [of_ledger(await find_lost_rows(client, queue, MAX_COMPARED, OPEN_SECONDS))]


def _server_address(client: Client) -> str:
    return client.service_client.config.target_host
