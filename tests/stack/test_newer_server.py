"""A server that is newer than the CLI's can pause a whole workflow, a status that the SDK does not know."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.api.workflowservice.v1 import (
    PauseWorkflowExecutionRequest,
    RegisterNamespaceRequest,
    UnpauseWorkflowExecutionRequest,
)
from temporalio.client import Client, WorkflowExecutionStatus

from client.client import Client as Replan
from client.events import Paused
from runtime.child import POLL_SECONDS, end, spawn
from runtime.client import NotConnected, connect, register_search_attributes
from tests.console.test_paused import Service
from tests.harness import DONE, outcome, plan, staged, step
from tests.processes import Processes
from tests.stack.places import free_ports
from tests.stack.programs import NEWER, SERVER, built
from workflows.account import search_attributes

FRONTEND = "frontend"
PATIENCE = 60


def configuration(folder: Path, ports: list[int]) -> dict[str, Any]:
    memory = {"mode": "memory", "cache": "shared", "setup": "true"}
    names = (FRONTEND, "matching", "history", "worker")
    address = f"127.0.0.1:{ports[0]}"
    database = {"pluginName": "sqlite", "connectAddr": "localhost", "connectProtocol": "tcp", "maxConns": 1}
    stores = {
        name: {"sql": {**database, "databaseName": name, "connectAttributes": memory}} for name in ("main", "seen")
    }
    serves = {
        name: {"rpc": {"grpcPort": ports[at], "membershipPort": ports[at + 4], "bindOnLocalHost": True}}
        for at, name in enumerate(names)
    }
    cluster = {"enabled": True, "initialFailoverVersion": 1, "rpcName": FRONTEND, "rpcAddress": address}
    return {
        "log": {"stdout": True, "level": "warn"},
        "persistence": {"defaultStore": "main", "visibilityStore": "seen", "numHistoryShards": 1, "datastores": stores},
        "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": "127.0.0.1"}},
        "services": serves,
        "clusterMetadata": {
            "failoverVersionIncrement": 10,
            "masterClusterName": "active",
            "currentClusterName": "active",
            "clusterInformation": {"active": cluster},
        },
        "dynamicConfigClient": {"filepath": str(folder / "dynamic.yaml"), "pollInterval": "10s"},
    }


@asynccontextmanager
async def newer(folder: Path) -> AsyncIterator[Client]:
    program, ports = await built(SERVER, NEWER, lambda _: None) / "server", free_ports(8)
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "development.yaml").write_text(json.dumps(configuration(folder, ports)))
    (folder / "dynamic.yaml").write_text(json.dumps({"frontend.WorkflowPauseEnabled": [{"value": True}]}))
    command = [str(program), "--root", str(folder), "--config", "config", "--env", "development", "--allow-no-auth"]
    process = spawn([*command, "start"], folder / "log")
    try:
        async with asyncio.timeout(PATIENCE):
            yield await _serving(f"127.0.0.1:{ports[0]}")
    finally:
        await end(process)


async def _serving(address: str) -> Client:
    while True:
        try:
            bare = await Client.connect(address)
            asked = RegisterNamespaceRequest(namespace="default")
            asked.workflow_execution_retention_period.FromSeconds(86400)
            await bare.workflow_service.register_namespace(asked)
            break
        except RuntimeError:  # it does not listen yet
            await asyncio.sleep(POLL_SECONDS)
    while True:
        try:
            client = await connect(address=address, plain=True)
            await register_search_attributes(client, search_attributes.TYPES)
            return client
        except NotConnected:  # a new namespace is known after a while
            await asyncio.sleep(POLL_SECONDS)


async def test_a_task_that_is_paused_as_a_whole_is_paused(tmp_path: Path) -> None:
    service = Service(hangs=1)
    (tmp_path / "server").mkdir()
    async with (
        newer(tmp_path / "server") as client,
        staged(client, tmp_path, service.tools(), [plan(step("a", "charge")), DONE]) as stage,
    ):
        commands = Processes(client.service_client.config.target_host, tmp_path)
        handle = await stage.start()
        id = handle.id
        while not service.calls["charge"]:
            await asyncio.sleep(POLL_SECONDS)
        which = {"namespace": "default", "workflow_id": id, "identity": "ann", "request_id": str(uuid.uuid4())}
        pausing = PauseWorkflowExecutionRequest(**which, reason="the bank is down")
        await client.workflow_service.pause_workflow_execution(pausing)
        async with asyncio.timeout(PATIENCE):
            while not (listed := [one async for one in client.list_workflows("ExecutionStatus = 'Paused'")]):
                await asyncio.sleep(POLL_SECONDS)
        words = [["list"], ["show", id], ["explain", id], ["answer", id], ["list", "--status", "paused", "--json"]]
        program = Replan(await Client.connect(commands.address))
        found = [one.status for one in await program.list(status="paused")]
        events = (await program.task(id)).follow()
        async with asyncio.timeout(PATIENCE):
            while not isinstance(await anext(events), Paused):
                pass
        said = [await asyncio.to_thread(commands.starter, *one) for one in [*words, ["show", id, "--json"]]]
        refused = await asyncio.to_thread(commands.starter, "extend", id, "--tool-calls", "+1")
        resuming = UnpauseWorkflowExecutionRequest(**{**which, "request_id": str(uuid.uuid4())})
        await client.workflow_service.unpause_workflow_execution(resuming)
        service.free.set()
        ended = await outcome(handle)

    assert [one.status for one in listed] == [WorkflowExecutionStatus.RUNNING]
    assert found == ["paused"]
    assert [(one.returncode, one.stderr) for one in said] == [(0, "")] * 6
    table, shown, explained, asked, listing, document = (one.stdout for one in said)
    line = f"temporal workflow unpause --workflow-id {id} --address {commands.address}"
    assert "paused" in table and "the task paused since" in table
    assert "by ann: the bank is down" in shown and f"Resume: {line}" in shown and "Paused for" in shown
    assert f"{id} is paused: 1 plan" in explained and f"`{line}` resumes it." in explained
    assert "asks nothing now" in asked
    assert [one["status"] for one in json.loads(listing)["tasks"]] == ["paused"]
    told = json.loads(document)
    assert (told["status"], told["code"], told["paused"][0]["resume"]) == ("paused", "untold", line)
    assert refused.returncode == 1 and "is paused, and takes no answer" in refused.stderr
    assert ended.status == "completed"
