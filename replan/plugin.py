"""`Replan`: a plugin of Temporal's SDK, with which a worker of your own serves Replan's tasks, too."""

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, ClientConfig, HeaderCodecBehavior
from temporalio.converter import DataConverter, PayloadConverter, SerializationContext, WithSerializationContext
from temporalio.plugin import SimplePlugin
from temporalio.worker import ReplayerConfig, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

import worker as composition
from activities.registration import Abilities, WorkerParts
from activities.toolbox.declare.tool import Tool
from client.history.account import without_store
from runtime import serve
from runtime.client import as_replan, namespace_id, register_search_attributes, with_use_interceptor
from runtime.keys import with_keys
from runtime.settings import Settings, of_program
from runtime.settings_file import SettingsFile
from workflows.account.search_attributes import TYPES
from workflows.agent import AgentWorkflow
from workflows.calls.interceptor import CallInterceptor

OURS = __name__.partition(".")[0], AgentWorkflow.__module__.partition(".")[0]
PASSED_THROUGH = (*OURS, "pydantic", "pydantic_core", "annotated_types", "typing_inspection")
"""Modules that a sandbox does not import again for each workflow."""

ELSEWHERE = {
    "metrics": "the SDK's Runtime of your program metrics=",
    "codec": "it to the data converter of your connection",
}
"""Settings of a worker that a plugin does not take, and where to give what they set."""


class Replan(SimplePlugin):
    """Serves Replan's tasks beside your own workflows, in the process of your worker and with its connection.

    Give it to your Worker: `Worker(client, task_queue="orders", workflows=[...], plugins=[Replan(tools=[charge])])`.
    Replan has a task queue and slots of its own. It uses the data converter of your connection, and changes nothing of
    your worker. With the same plugin, a Replayer replays Replan's histories, too.

    With `keys=`, the file of a keyring, it encrypts the store, and what Replan's workers write at the server. Then give
    the plugin to `Client.connect`; workers of this client have it, too. The connection encrypts and decrypts, also for
    your own workflows. If the connection has a payload codec, it stays, and the keyring is for the store alone.
    """

    def __init__(
        self,
        tools: Iterable[Tool[..., Any]] = (),
        *,
        planner: str | None = None,
        queue: str | None = None,
        state: str | Path | None = None,
        store: str | None = None,
        documents: str | Path | None = None,
        workspace: str | Path | None = None,
        **settings: Any,
    ) -> None:
        """Take the tools, and settings by their names in `replan worker`; an omitted setting has the command's default.

        Raises:
            ToolMistakes, UnknownPlanner: a tool or a planner cannot be used; the message says what to do.
            TypeError: there is no such setting, or it is not for a worker of your own.
        """
        super().__init__(f"{type(self).__module__}.{type(self).__qualname__}")
        for name, where in ELSEWHERE.items():
            if name in settings:
                raise TypeError(f"{name}= is not for a plugin: give {where}, and Replan uses it.")
        named = {"planner": planner, "queue": queue, "state": state, "store": store}
        folders = {"documents": documents, "workspace": workspace}
        self._settings = of_program(os.environ, **named, **folders, **settings)
        models = SettingsFile.read(self._settings.settings_file).models
        self._abilities = Abilities.of(self._settings, os.environ, models, own=tools)

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        """With `keys`, let the connection encrypt, unless it already has a payload codec; else change nothing.

        Raises:
            BadKeys: the keyring cannot be used.
        """
        theirs = config["data_converter"]
        if self._settings.keys and theirs.payload_codec is None:
            config["data_converter"] = with_keys(theirs, self._settings.keys, config["namespace"])
            config["header_codec_behavior"] = HeaderCodecBehavior.CODEC
            config["interceptors"] = with_use_interceptor(config.get("interceptors", ()))
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run the given worker, and Replan's workers beside it until it ends.

        Raises:
            CannotContinue: Replan's workers cannot go on, e.g. since all threads are held by calls that do not return.
            OtherStore: the queue has another store.
            StoreUnavailable, BadSetting, BadKeys: the store, a folder or the keyring cannot be used.
        """
        loop, reasons = asyncio.get_running_loop(), list[str]()
        current = asyncio.current_task()

        def stop(reason: str) -> None:
            reasons.append(reason)
            if current is not None:
                current.cancel()

        def fail(reason: str) -> None:
            loop.call_soon_threadsafe(stop, reason)

        try:
            async with serving(self._settings, self._abilities, worker.client, fail):
                await next(worker)
        except asyncio.CancelledError:
            if reasons:
                raise serve.CannotContinue(reasons[0]) from None
            raise

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Let a Replayer replay Replan's histories, too."""
        config["workflows"] = [*config.get("workflows", ()), *serve.WORKFLOWS]
        config["interceptors"] = [*config.get("interceptors", ()), CallInterceptor()]
        config["data_converter"] = _both(config.get("data_converter") or DataConverter.default)
        runner = config.get("workflow_runner")
        if isinstance(runner, SandboxedWorkflowRunner):
            passed = runner.restrictions.with_passthrough_modules(*PASSED_THROUGH)
            config["workflow_runner"] = dataclasses.replace(runner, restrictions=passed)
        return config


@asynccontextmanager
async def serving(
    settings: Settings, abilities: Abilities, client: Client, fail: Callable[[str], None]
) -> AsyncIterator[WorkerParts]:
    """Serve tasks over the connection of `client` until the block ends; `fail` gets the reason if workers cannot go on.

    Raises:
        CannotContinue: this version cannot continue an unfinished task of another version.
        OtherStore: the queue has another store.
        StoreUnavailable, BadSetting, BadKeys: the store, a folder or the keyring cannot be used.
    """
    settings.make_folders()
    own = as_replan(client, settings.keys, tells_use=not settings.accept_clear)
    is_searchable = await register_search_attributes(own, TYPES)
    server = serve.Server(own, None, await namespace_id(own), is_searchable)
    async with composition.equipped(settings, abilities, server, fail) as (parts, workers), workers:
        yield parts


def _both(theirs: DataConverter) -> DataConverter:
    """A converter for replays: it converts pydantic models as Replan does, and everything else as `theirs` does."""
    converter = without_store(theirs)

    class Both(PayloadConverter, WithSerializationContext):
        def __init__(self, context: SerializationContext | None = None) -> None:
            self._models, self._others = (
                made.with_context(context) if context and isinstance(made, WithSerializationContext) else made
                for made in (converter.payload_converter_class(), theirs.payload_converter_class())
            )

        def with_context(self, context: SerializationContext) -> "Both":
            return Both(context)

        def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
            return [
                (self._models if isinstance(value, BaseModel) else self._others).to_payloads([value])[0]
                for value in values
            ]

        def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
            hints: Sequence[Any] = type_hints or [None] * len(payloads)
            return [
                (self._models if _has_model(hint) else self._others).from_payloads([payload], [hint] if hint else None)[
                    0
                ]
                for payload, hint in zip(payloads, hints, strict=True)
            ]

    return dataclasses.replace(converter, payload_converter_class=Both)


def _has_model(hint: Any) -> bool:
    """Whether a type hint is a pydantic model, or has one in its arguments, such as `list[Model]`."""
    return (isinstance(hint, type) and issubclass(hint, BaseModel)) or any(map(_has_model, get_args(hint)))
