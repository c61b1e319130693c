"""The worker: `python worker.py --dev`. It reads the settings, opens what they name, and serves a task queue."""

from runtime import process

process.require_packages()
if __name__ != "__mp_main__":  # a process of a tool, which has them in its environment
    process.read_secrets()

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from temporalio.client import Client
from temporalio.service import RPCError

from activities.boundary.breakers.admitting import telling
from activities.boundary.intact import OwnProcess, failure
from activities.boundary.interceptor import HeaderInterceptor
from activities.registration import BAD_OPTIONS, Abilities, WorkerParts, open_parts
from activities.storage.store import Peeked, note_checked, peek, sqlite_url
from activities.toolbox.declare.arguments import misfits
from activities.words import Words
from runtime import prometheus, queue_store, serve, telemetry, tracing
from runtime.client import Misconfigured, NotConnected
from runtime.dev_server import ServerUnavailable
from runtime.keys import BadKeys, cipher_of
from runtime.payloads import s3, with_storage
from runtime.people_file import BadPeople, KnownPeople
from runtime.settings import BadSetting, Settings, with_settings
from runtime.settings_file import BadSettings, SettingsFile
from workflows.calls.interceptor import CallInterceptor
from workflows.text import few

if TYPE_CHECKING:
    from client.upgrade import OpenTasksReport

BAD_USAGE = (*BAD_OPTIONS, BadKeys, BadPeople, BadSetting, BadSettings, Misconfigured, queue_store.OtherStore)
UNREACHABLE = (NotConnected, ServerUnavailable, RPCError)
MAX_UNFINISHED = 200
"""The most unfinished tasks whose histories a worker replays before its version serves a queue for the first time."""
MAX_NAMED = 5


@with_settings
def main(settings: Settings) -> None:
    """Serve tasks until Ctrl-C; a second Ctrl-C quits at once."""
    own = OwnProcess()
    try:
        telemetry.configure(settings.log, settings.metrics_address)
        models = SettingsFile.read(settings.settings_file).models
        abilities = Abilities.of(settings, os.environ, models, front_desk().TOOLS if settings.has_desk else ())
        _ = known_people(settings)
        own.require(lambda: [f"Loading {', '.join(settings.tools or ())}"])
        if reason := failure():
            raise serve.CannotContinue(reason)
        if answer := abilities.answer(settings):
            typer.echo(answer)
            if settings.check:
                found = process.run(open_tasks(settings, abilities))
                typer.echo(found.text)
                if settings.strict and not found.fits:
                    process.leave(1 if found.fits is False else 6)
        else:
            asyncio.run(run(settings, abilities))
    except (*BAD_USAGE, *UNREACHABLE, serve.CannotContinue) as error:
        typer.echo(error, err=True)
        process.leave(2 if isinstance(error, BAD_USAGE) else 6 if isinstance(error, UNREACHABLE) else 1)
    except asyncio.CancelledError:
        process.leave(130)
    except Exception:
        if not (reason := failure()):
            raise
        typer.echo(reason, err=True)
        process.leave(1)
    process.leave(0)


async def open_tasks(settings: Settings, abilities: Abilities) -> "OpenTasksReport":
    """The lines of `--check` about the queue's open tasks: whether the tools of `abilities` accept their next calls."""
    from client import upgrade  # not at the top: no worker that serves needs it

    def show(done: int, all: int) -> None:
        if sys.stderr.isatty():
            typer.echo(f"\r{done} of {all} open tasks" + "\n" * (done == all), nl=False, err=True)

    return await upgrade.report(settings.queue, settings.state, partial(misfits, abilities.registry), show)


def front_desk() -> Any:
    """The module with the tools and the data of the demo desk."""
    from examples import desk  # not at the top: it defines tables, which other stores must not get

    return desk


async def run(settings: Settings, abilities: Abilities) -> None:
    """Connect to a server, open what the worker needs, print `ready`, serve until stopped, and close all in order."""
    stop = serve.Stop()  # first, so that Ctrl-C closes what is open already
    settings.prepare()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serve.joined(settings, typer.echo, stop.fail))
        parts, worker = await stack.enter_async_context(equipped(settings, abilities, server, stop.fail))
        if settings.has_desk:
            await front_desk().seed(parts.databases.store, datetime.now(UTC).date())
        typer.echo(serve.ready_line(server, settings, abilities.selection.described, tools=len(abilities.registry)))
        await serve.serve(worker, stop, parts.boundary.running, typer.echo)
        typer.echo(await serve.goodbye(server.client, settings.queue))


async def require_continuable(server: serve.Server, queue: str) -> None:
    """Replay the histories of up to MAX_UNFINISHED unfinished tasks of the queue with this version.

    Raises:
        CannotContinue: this version cannot continue at least one of these tasks.
    """
    from client import replay  # not at the top: a version looks once
    from client.wording import count

    converter = server.client.data_converter
    histories = replay.unfinished(server.client, queue, MAX_UNFINISHED)
    with telemetry.quiet("temporalio"):  # each replay that fails would be logged with a traceback
        stuck = [found.task_id async for found in replay.replayed(histories, converter=converter) if found.is_stuck]
    if stuck:
        named = few(stuck, MAX_NAMED)
        raise serve.CannotContinue(
            f"{count(len(stuck), 'unfinished task')} of another version of Replan cannot go on with this one"
            f" ({process.version()}): {named}. Nothing was called and nothing is lost: finish or cancel them with"
            " a worker of the version that began them, then start this one again."
        )


async def replaceable(
    client: Client, queue: str, peeked: Peeked, look: Callable[[], Awaitable[Peeked]]
) -> queue_store.Record | None:
    """The queue's record of another store than the `peeked` one, if this worker may replace it; None without such one.

    `look` peeks again: of two workers that start together, the other one may have made the store since.

    Raises:
        OtherStore: a task of the other store is unfinished, or a worker of it serves the queue.
    """
    found = await queue_store.recorded(client, queue)
    if found is not None and peeked.id is None:
        peeked = await look()
    if peeked.is_checked if found is None else found.store.id == peeked.id:
        return None
    from client import taking_over  # not at the top: it looks only at a queue that has not this worker's store yet

    await taking_over.require_free(client, queue, queue_store.NamedStore(peeked.id or "", peeked.place), found)
    return found


def known_people(settings: Settings) -> KnownPeople | None:
    """The people file of a worker; None without one. Raises BadPeople if it cannot be used."""
    return KnownPeople(Path(settings.people)) if settings.people else None


@asynccontextmanager
async def equipped(
    settings: Settings, abilities: Abilities, server: serve.Server, fail: Callable[[str], None]
) -> AsyncIterator[tuple[WorkerParts, serve.Workers]]:
    """Yield the workers of one process, not started yet, with the open parts that they use; close the parts at the end.

    `fail` is called with the reason when the workers cannot go on.

    Raises:
        CannotContinue: as `require_continuable`.
        OtherStore: the queue has another store.
        StoreUnavailable, BadKeys, BadPeople, BadReach: the store, the keyring, the people file or an option cannot be
            used.
    """
    async with AsyncExitStack() as stack:
        buckets = [await stack.enter_async_context(s3(settings.payloads))] if settings.payloads else []
        cipher = cipher_of(settings.keys)
        people = known_people(settings)
        where = server.namespace_id, server.is_searchable, buckets, process.version()
        checked = server.namespace_id, settings.queue, process.version()
        look = partial(peek, settings.store or sqlite_url(settings.state), *checked)
        peeked = await look()  # before the store is opened, which migrates it
        if not peeked.is_checked:
            await require_continuable(server, settings.queue)
        replaced = await replaceable(server.client, settings.queue, peeked, look)
        parts = await stack.enter_async_context(open_parts(abilities, settings, *where, fail, cipher, people))
        own = queue_store.NamedStore(parts.store_id, peeked.place)
        await stack.enter_async_context(queue_store.assigned(server.client, settings.queue, own, replaced, fail))
        if not peeked.is_checked:
            await note_checked(parts.databases.store, *checked)
        client, breakers = with_storage(server.client, parts.storage), parts.boundary.breakers
        sampled = prometheus.sampled(client, settings.queue, breakers.samples, server.is_searchable)
        await stack.enter_async_context(sampled)
        await stack.enter_async_context(telling(breakers, client, prometheus.meter_of(client, settings.queue)))
        await stack.enter_async_context((words := Words(parts.databases.store)).exchanged())
        await stack.enter_async_context(parts.catalogues.published())
        spans = stack.enter_context(tracing.recorded(parts.step_spans))
        interceptors = [CallInterceptor(), HeaderInterceptor(logs_values=settings.log_values), words, *spans]
        given: dict[str, Any] = {"workflows": serve.WORKFLOWS, "slots": settings.slots, "interceptors": interceptors}
        yield parts, serve.build(client, settings.queue, activities=parts.activities(), **given)


if __name__ == "__main__":
    main()
