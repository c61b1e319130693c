"""`doctor`: look at everything that has to work, and say of each thing how it stands and what to do."""

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from console import checks, document
from console.cells import one_line, wrapped
from console.checks import Check, Status
from console.connection import ui_base
from console.finding import TASK_TYPE
from console.options import Common
from console.problem import Exit, Problem
from console.screen import size
from console.tools import ask
from console.workflow_task import ROLLBACK, FailingTask, failing
from runtime.client import VALUE_TYPES, Misconfigured, NoNamespace, NotConnected, connect
from runtime.packages import version
from workflows.attributes import TYPES
from workflows.inspect import Inquiry

PATIENCE_SECONDS = 8.5
"""For everything together; starting Python takes another second."""
UI_SECONDS = 2.0
RPC_TIMEOUT = timedelta(seconds=4)
AT_ONCE, MAX_LOOKED_AT = 20, 100
"""Running tasks that are looked at, at the same time and in all."""
REPORTED = "TemporalReportedProblems IS NOT NULL"
"""What a server from 1.30 on finds itself, though only after several failures."""
OF_NAMESPACE = ("web ui", "search attributes", "workflow tasks", "worker", *checks.OF_WORKER)
"""What can only be looked at in a namespace that is there."""
WIDEST_NAME = 22


async def doctor(common: Common) -> int:
    """Look, print, and return 0 when nothing failed, 6 without a server, 2 for settings that name none, else 1."""
    found, exit = await _examine(common)
    if common.json:
        print(document.of_anything({"checks": [asdict(check) for check in found]}))
    else:
        print("\n".join(_lines(found)))
    return exit


async def _examine(common: Common) -> tuple[list[Check], Exit]:
    until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    try:
        client = await connect(address=common.address, namespace=common.namespace, profile=common.profile)
    except NoNamespace as error:
        answers = Check("server", Status.OK, "answers")
        missing = Check("namespace", Status.FAIL, error.reason, error.remedy)
        return [answers, missing, *checks.skipped(OF_NAMESPACE, "needs the namespace")], Exit.FAILED
    except NotConnected as error:
        failed = Check("server", Status.FAIL, error.reason, error.remedy)
        exit = Exit.BAD_USAGE if isinstance(error, Misconfigured) else Exit.UNREACHABLE
        return [failed, *checks.skipped(("namespace", *OF_NAMESPACE), "needs the server")], exit
    looks = {"server": _server(client), "web ui": _web_ui(client), "search attributes": _attributes(client)}
    looks["workflow tasks"] = _workflow_tasks(client, common.queue)
    worker = _within(until, "worker", _worker(client, common))
    seen = await asyncio.gather(*(_within(until, name, look) for name, look in looks.items()), worker)
    server, *others = seen
    found = [*server, Check("namespace", Status.OK, client.namespace), *(check for one in others for check in one)]
    return found, Exit.FAILED if any(check.status is Status.FAIL for check in found) else Exit.COMPLETED


async def _within(until: float, name: str, look: Coroutine[Any, Any, list[Check]]) -> list[Check]:
    """One look; a server that falls silent meanwhile is a failed check, and nobody waits for it any longer."""
    try:
        async with asyncio.timeout_at(until):
            return await look
    except TimeoutError:
        found = "no answer in time"
    except RPCError as error:
        found = f"the server did not answer ({error.status.name.lower()})"
    failed = Check(name, Status.FAIL, found, "see whether the server is overloaded, and try again")
    return [failed, *(checks.skipped(checks.OF_WORKER, "needs a worker") if name == "worker" else [])]


async def _server(client: Client) -> list[Check]:
    said = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=RPC_TIMEOUT)
    return [Check("server", Status.OK, f"{_host(client)}, Temporal {said.server_version or '(version not said)'}")]


async def _attributes(client: Client) -> list[Check]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    said = await client.operator_service.list_search_attributes(request, timeout=RPC_TIMEOUT)
    names = {number: name for name, number in VALUE_TYPES.items()}
    present = {name: names.get(number, "another type") for name, number in said.custom_attributes.items()}
    return [checks.of_attributes(TYPES, present)]


async def _workflow_tasks(client: Client, queue: str) -> list[Check]:
    """Whether the tasks of the queue that run can go on: the newest, and those that the server itself complains of."""
    running = f'WorkflowType IN ("{TASK_TYPE}", "{ROLLBACK}") AND TaskQueue = "{queue}" AND ExecutionStatus = "Running"'
    newest = [row async for row in client.list_workflows(running, limit=MAX_LOOKED_AT)]
    try:
        reported = [row async for row in client.list_workflows(f"{running} AND {REPORTED}", limit=MAX_LOOKED_AT)]
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:  # the server does not know the search attribute
            raise
        reported = []
    ids, look = list(dict.fromkeys(row.id for row in (*newest, *reported))), asyncio.Semaphore(AT_ONCE)
    found = await asyncio.gather(*(_failing(client, id, look) for id in ids))
    running_in_all = (await client.count_workflows(running, rpc_timeout=RPC_TIMEOUT)).count
    return [checks.of_workflow_tasks([one for one in found if one], len(ids), running_in_all)]


async def _failing(client: Client, id: str, look: asyncio.Semaphore) -> FailingTask | None:
    async with look:
        try:
            return await failing(client, await client.get_workflow_handle(id).describe())
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:  # deleted since the list was made
                return None
            raise


async def _web_ui(client: Client) -> list[Check]:
    base = ui_base(_host(client))
    if base is None:
        return [Check("web ui", Status.WARN, f"not known for {_host(client)}", "set REPLAN_UI to its address")]
    if await _answers(base):
        return [Check("web ui", Status.OK, base)]
    return [Check("web ui", Status.WARN, f"nobody answers at {base}", "set REPLAN_UI to its address")]


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
    asked, start = datetime.now(UTC), f"python worker.py{common.at_queue}"
    try:
        said = await ask(client, common, Inquiry(about="worker"))
    except Problem as none:
        failed = Check("worker", Status.FAIL, none.reason, none.remedy)
        return [failed, *checks.skipped(checks.OF_WORKER, "needs a worker")]
    return checks.of_worker(said, version(), restart=start, asked=asked, answered=datetime.now(UTC))


def _host(client: Client) -> str:
    return client.service_client.config.target_host


def _lines(found: Sequence[Check]) -> list[str]:
    width = min(WIDEST_NAME, max(len(check.name) for check in found))
    lines = [_line(check, width) for check in found]
    failed, warnings = (sum(check.status is status for check in found) for status in (Status.FAIL, Status.WARN))
    return [*lines, f"{failed or 'nothing'} failed, {warnings or 'no'} warning{'' if warnings == 1 else 's'}"]


def _line(check: Check, width: int) -> str:
    """One line, wrapped below its last column on a terminal."""
    head = f"{check.status[:4]:<4}  {one_line(check.name):<{width}}  "  # `skip`
    remedy = f" -> {check.remedy}" if check.remedy else ""
    line = " " * len(head) + one_line(check.found + remedy)
    if sys.stdout is not None and sys.stdout.isatty():
        line = wrapped(line, size(sys.stdout)[0])
    return head + line[len(head) :]
