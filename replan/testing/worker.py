"""A worker in the process of the tests, and calls of its tools, for the fixtures of `replan/pytest_plugin.py`."""

import asyncio
import logging
import os
import secrets
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from activities.boundary.failpoints import SIGNALS, BadBreak
from activities.registration import BAD_OPTIONS, Abilities, WorkerParts
from activities.storage.store import sqlite_url
from activities.toolbox.declare.tool import Tool
from client.client import Client, TaskNotCompleted
from client.start import task_of_call
from replan.plugin import serving
from runtime.client import connect
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from runtime.payloads import with_storage
from runtime.serve import CannotContinue
from runtime.settings import BadSetting, of_program
from runtime.settings_file import BadSettings, SettingsFile
from runtime.temporal_cli import Say
from workflows.account.outcome import Outcome
from workflows.account.search_attributes import TYPES
from workflows.account.task import Task
from workflows.json_values import canonical
from workflows.text import nearest

__all__ = ["AsyncCallTool", "CallTool", "RunningWorker"]

R = TypeVar("R")
T = TypeVar("T")

Arguments = BaseModel | Mapping[str, Any]
NOTHING: Mapping[str, Any] = {}
POLL_SECONDS = 0.5
"""Seconds between two checks of a call whether its worker still runs."""
BAD_SETTINGS = (*BAD_OPTIONS, BadSetting, BadSettings)
"""The exceptions for tools or settings that cannot be used; each message says what to do."""


@contextmanager
def development_server(folder: Path, say: Say) -> Iterator[str]:
    """Run a server with its database in `folder`, and yield its address; `say` gets a line on what takes minutes.

    Raises:
        ServerUnavailable: there is no `temporal` program, and none could be fetched.
    """
    # In this thread, which is the main one: with it ends the server, even if the tests are killed.
    loop = asyncio.new_event_loop()  # not asyncio.run, which would take the event loop from other plugins
    try:
        spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=TYPES)
        server = DevServer(spec, loop.run_until_complete(find_cli(say)))
        loop.run_until_complete(server.start())
        try:
            yield server.address
        finally:
            loop.run_until_complete(server.stop())
    finally:
        loop.close()


@contextmanager
def running_worker(
    address: str, state: Path, tools: Sequence[str | Tool[..., Any]], settings: Mapping[str, Any]
) -> Iterator["RunningWorker"]:
    """Serve tools in the event loop of a new thread, with the state folder `state` and further worker `settings`.

    A tool is given as a Tool, or by the name of a module or file.

    Raises:
        BAD_SETTINGS: a tool or a setting cannot be used.
        TypeError: there is no such setting.
    """
    named = [tool for tool in tools if isinstance(tool, str)]
    usual = {"queue": f"tests-{secrets.token_hex(6)}", "state": state, "planner": "offline"}
    chosen = of_program({}, **{**usual, **settings, "tools": named})  # never the store of REPLAN_STORE
    models = SettingsFile.read(chosen.settings_file).models
    abilities = Abilities.of(chosen, os.environ, models, own=[tool for tool in tools if isinstance(tool, Tool)])
    loop, failures = asyncio.new_event_loop(), list[str]()
    thread = threading.Thread(target=loop.run_forever, name="replan", daemon=True)
    thread.start()
    lines = logging.getLogger("temporalio.activity")  # a stack trace for each attempt that fails
    level = lines.level
    lines.setLevel(logging.ERROR)
    try:
        client = _run(loop, connect(address=address, plain=True))
        workers = serving(chosen, abilities, client, failures.append)
        parts = _run(loop, workers.__aenter__())
        try:
            reader = Client(with_storage(client, parts.storage), queue=chosen.queue)
            yield RunningWorker(loop, parts, reader, address, chosen.store or sqlite_url(state), failures)
        finally:
            _run(loop, workers.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        lines.setLevel(level)


class RunningWorker:
    """A worker that serves tools in this process, for as long as the tests of a module run."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        parts: WorkerParts,
        client: Client,
        address: str,
        store: str,
        failures: Sequence[str],
    ) -> None:
        """`loop` runs the worker in another thread, `client` is for this loop, `failures` has why the worker ended."""
        self.address, self.queue, self.store = address, client.queue, store
        self.call_tool, self.async_call_tool = CallTool(self), AsyncCallTool(self)
        self._loop, self._parts, self._client, self._failures = loop, parts, client, failures

    async def connect(self) -> Client:
        """Connect a client for whole tasks on this worker; the client is for the running event loop."""
        return Client(await connect(address=self.address, plain=True), queue=self.queue)

    def start(self, tool: str | Tool[..., Any], args: Arguments, break_: str | None) -> "Future[Any]":
        """Begin a call with the parameters of `CallTool`; the future has the result, or the exception of `CallTool`."""
        return asyncio.run_coroutine_threadsafe(self._call(tool, args, break_), self._loop)

    async def _call(self, tool: str | Tool[..., Any], args: Arguments, break_: str | None) -> Any:
        kind, registry = tool if isinstance(tool, str) else tool.__name__, self._parts.abilities.registry
        if kind not in registry:
            remedy = "name its module in the setting replan_tools, or override the fixture replan_tools"
            raise LookupError(f"This worker has no tool {kind!r}{nearest(kind, registry)}: {remedy}.")
        if break_ and break_.partition("@")[0] in SIGNALS:
            raise BadBreak(f"break_={break_!r} would stop the process of the tests: use a fault, e.g. worker_lost.")
        await self._parts.boundary.breakers.reset_all()  # no test fails because of the faults of another one
        arguments = args.model_dump(mode="json") if isinstance(args, BaseModel) else dict(args)
        with self._parts.abilities.faults.injected(f"{kind}={break_}") if break_ else nullcontext():
            outcome = await self._run(task_of_call(kind, arguments))
        return registry[kind].result.validate_json(canonical(outcome.steps[0].result))

    async def _run(self, task: Task) -> Outcome:
        ended = asyncio.create_task(self._client.run(task))
        while not (await asyncio.wait([ended], timeout=POLL_SECONDS))[0]:
            if self._failures:
                ended.cancel()
                raise CannotContinue(self._failures[0])
        return ended.result()


class CallTool:
    """Runs one step on a worker as `replan call` does: with validation, ledger, retries and faults as in every task."""

    def __init__(self, worker: RunningWorker) -> None:
        self._worker = worker

    @overload
    def __call__(
        self, tool: Tool[..., Coroutine[Any, Any, R]], args: Arguments = ..., *, break_: str | None = ...
    ) -> R: ...
    @overload
    def __call__(self, tool: Tool[..., R], args: Arguments = ..., *, break_: str | None = ...) -> R: ...
    @overload
    def __call__(self, tool: str, args: Arguments = ..., *, break_: str | None = ...) -> Any: ...
    def __call__(self, tool: str | Tool[..., Any], args: Arguments = NOTHING, *, break_: str | None = None) -> Any:
        """Call a tool, given as a Tool or by its kind, and return the result in the type that the tool declares.

        `break_` injects a fault into this call, as `--break KIND=FAULT[:N]` of a worker does: `conflict:1`, `503:2`.

        Raises:
            TaskNotCompleted: the call failed; `fault` says why: its quadrant, code, observed state and effect.
            LookupError: the worker has no such tool.
            ValueError: there is no such fault.
            RuntimeError: an event loop runs in this thread; use `async_call_tool` there.
        """
        __tracebackhide__ = True
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("call_tool would block the event loop of this test: await async_call_tool(...) instead.")
        try:
            return self._worker.start(tool, args, break_).result()
        except TaskNotCompleted as failed:
            raise _described(failed) from None


class AsyncCallTool:
    """Runs one step as `CallTool` does, without blocking the event loop."""

    def __init__(self, worker: RunningWorker) -> None:
        self._worker = worker

    @overload
    async def __call__(
        self, tool: Tool[..., Coroutine[Any, Any, R]], args: Arguments = ..., *, break_: str | None = ...
    ) -> R: ...
    @overload
    async def __call__(self, tool: Tool[..., R], args: Arguments = ..., *, break_: str | None = ...) -> R: ...
    @overload
    async def __call__(self, tool: str, args: Arguments = ..., *, break_: str | None = ...) -> Any: ...
    async def __call__(
        self, tool: str | Tool[..., Any], args: Arguments = NOTHING, *, break_: str | None = None
    ) -> Any:
        """Call a tool; parameters, result and exceptions are those of `CallTool`."""
        __tracebackhide__ = True
        try:
            return await asyncio.wrap_future(self._worker.start(tool, args, break_))
        except TaskNotCompleted as failed:
            raise _described(failed) from None


def _described(failed: TaskNotCompleted) -> TaskNotCompleted:
    """The exception for the report of a test: with a note on the fault, without the frames of the worker's thread."""
    if failed.fault:
        failed.add_note(f"fault: {failed.fault.quadrant}, {failed.fault.code}")
    return failed.with_traceback(None)


def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, loop).result()
