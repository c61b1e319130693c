"""The worker: `python worker.py --dev`. Composition root: settings, store, planner, tools; register; run."""

from runtime import packages

packages.require()

import asyncio
import os
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from temporalio.service import RPCError

from activities import deadline
from activities.boundary.attempt import HeaderInterceptor
from activities.boundary.failpoints import BadBreak, Breaks
from activities.inspection import Host
from activities.planning.planner import UnknownPlanner
from activities.planning.roster import Roster
from activities.providers.prices import Rates
from activities.registration import activities
from activities.storage.store import Datasources, StoreUnavailable, open_store, sqlite_url, store_id
from activities.storage.vault import Vault
from activities.toolbox import builtin, desk
from activities.toolbox.desk import world
from activities.toolbox.http.network import BadReach, Reach, Web
from activities.toolbox.http.services import Services
from activities.toolbox.injection import Resources
from activities.toolbox.registry import Registry, ToolMistakes, load_all
from runtime import keys, options, serve, telemetry
from runtime.client import NotConnected
from runtime.dev_server import ServerUnavailable
from runtime.ending import leave
from runtime.joining import joined
from runtime.payloads import storing
from runtime.s3 import s3
from runtime.settings import DEFAULT_QUEUE, DEFAULT_STATE, BadSetting, Settings
from runtime.settings_file import BadSettings, SettingsFile
from workflows.agent import AgentWorkflow
from workflows.attributes import TYPES
from workflows.header import CallInterceptor
from workflows.inspect import InspectWorkflow
from workflows.undoing import UndoWorkflow

BAD_USAGE = (ToolMistakes, BadBreak, BadReach, BadSetting, BadSettings, StoreUnavailable, UnknownPlanner)
UNREACHABLE = (NotConnected, ServerUnavailable, RPCError)
EXAMPLES = Path(__file__).parent / "examples" / "documents"


def main(
    dev: options.Dev = False,
    fresh: options.Fresh = False,
    tools: options.Tools = None,
    check: options.Check = False,
    documents: options.Documents = None,
    allow_host: options.AllowHost = None,
    allow_request: options.AllowRequest = None,
    http_header: options.HttpHeader = None,
    workspace: options.Workspace = None,
    state: options.State = DEFAULT_STATE,
    store: options.Store = None,
    payloads: options.Payloads = None,
    queue: options.Queue = DEFAULT_QUEUE,
    planner: options.Planner = None,
    base_url: options.BaseUrl = None,
    break_: options.Break = None,
    settings_file: options.SettingsFile = None,
    log: options.Log = None,
) -> None:
    """Serve tasks until Ctrl-C; a second Ctrl-C quits at once."""
    telemetry.configure(log)
    try:
        chosen = documents or (EXAMPLES if dev else None)
        files = workspace or (state / "workspace" if dev else None)
        hosts = {"allow_hosts": allow_host or (), "allow_requests": allow_request or ()}
        more = {"breaks": break_ or (), "http_headers": http_header or (), **hosts}
        settings = Settings(state, store, chosen, queue, dev, fresh, workspace=files, payloads=payloads, **more)
        models = SettingsFile.read(settings_file).models
        rates = Rates(models.known_prices, models.windows, models.compact_at)
        roster = Roster(planner, os.environ, base_url, rates)
        has_model = roster.model is not None
        given = {"builtin": builtin.tools(has_model=has_model), "demo": desk.TOOLS if settings.demo else ()}
        registry = Registry(load_all(tools or ()), **given, has_model=has_model)
        breaks = Breaks(settings.breaks, {name: kind.spec for name, kind in registry.items()})
        if check:
            typer.echo(registry.catalogue())
        else:
            asyncio.run(run(settings, registry, breaks, roster))
    except (*BAD_USAGE, *UNREACHABLE) as wrong:
        typer.echo(wrong, err=True)
        leave(2 if isinstance(wrong, BAD_USAGE) else 6)
    except asyncio.CancelledError:
        leave(130)
    leave(0)


async def run(settings: Settings, registry: Registry, breaks: Breaks, roster: Roster) -> None:
    """Open what the worker needs, say `ready`, serve, and close everything in order."""
    stop = serve.Stop()
    settings.prepare()
    async with AsyncExitStack() as opened:
        server = await opened.enter_async_context(joined(settings, TYPES, typer.echo))
        engine = await open_store(settings.store or sqlite_url(settings.state))
        opened.push_async_callback(engine.dispose)
        if settings.demo:
            await world.seed(engine, datetime.now(UTC).date())
        datasources = Datasources(engine, [kind.datasource for kind in registry.values()])
        await datasources.open(opened)
        http = await opened.enter_async_context(deadline.client())
        folders: dict[str, Any] = {"documents": settings.documents, "workspace": settings.workspace}
        web = Web(Reach.of(settings.allow_hosts))
        services = Services.of(settings.allow_requests, settings.http_headers, os.environ, web)
        models: dict[str, Any] = {"model": roster.model, "price": roster.price}
        resources = Resources(engine, http, **folders, allow_hosts=settings.allow_hosts, services=services, **models)
        host = Host(engine, {"state": settings.state, **folders}, keys.given(), packages.version(), datasources)
        vault = Vault(engine, server.namespace)
        elsewhere = [await opened.enter_async_context(s3(settings.payloads))] if settings.payloads else []
        worker = serve.build(
            storing(server.client, [*elsewhere, vault]),
            settings.queue,
            workflows=[AgentWorkflow, InspectWorkflow, UndoWorkflow],
            activities=activities(
                registry,
                roster,
                resources,
                host,
                vault,
                elsewhere,
                ledgers=datasources,
                store=await store_id(engine),
                breaks=breaks,
                searchable=server.searchable,
                namespace=server.namespace,
            ),
            interceptors=[CallInterceptor(), HeaderInterceptor()],
        )
        typer.echo(serve.ready_line(server.client, server.local, settings, roster.planner.name, tools=len(registry)))
        await serve.serve(worker, stop)
        typer.echo(await serve.goodbye(server.client, settings.queue))


if __name__ == "__main__":
    typer.run(main)
