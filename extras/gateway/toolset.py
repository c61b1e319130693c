"""What a holder offers to its agents, and what makes their calls: the store of effects, or the servers themselves."""

import asyncio
import os
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from mcp import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import JsonValue
from pydantic_core import from_json, to_json

from activities.toolbox.registry import ToolMistakes
from extras.gateway.attending import RequestState
from extras.gateway.local_tools import LocalTools
from extras.gateway.offers import OF_STORE, OF_TASKS, Offer, OwnTool, offers_of
from extras.gateway.request import AgentRequest, Report
from workflows.plans.catalogue import Effect

if TYPE_CHECKING:  # at run time only in the background: its imports take half a second
    from extras.gateway.effect_calls import EffectCalls
    from extras.gateway.queue_tools import QueueTools
    from extras.gateway.tasks import Tasks

log = structlog.get_logger("replan.gateway")


class Toolset:
    """The tools of a holder's process."""

    def __init__(self, tools: "LocalTools | QueueTools", tasks: "Tasks | None" = None) -> None:
        """With `tasks`, calls with an effect are tasks; of a queue's tools, all calls."""
        self.own_tools: Mapping[str, OwnTool] = OF_TASKS if tasks else OF_STORE
        self.offers: Mapping[str, Offer] = {}
        self.servers: Mapping[str, Mapping[str, Any]] = {}
        """By name, what each MCP server reported about itself."""
        self.left_out: Mapping[str, str] = {}
        """The tools of servers that cannot be offered, each with the reason."""
        self.on_notification = dict[str, Callable[[str, dict[str, Any]], None]]()
        """By connection, the function that passes notifications of the servers on to the connection."""
        self.is_ready = asyncio.Event()
        """Set when the tools are known."""
        self._wrong = ""
        self.is_over = asyncio.Event()
        """Set when the tools cannot be served."""
        self._tools, self._tasks = tools, tasks
        self._calls: asyncio.Future[EffectCalls] = asyncio.get_running_loop().create_future()
        self._connections = dict[str, Callable[[], bool]]()
        """By connection, what says whether it is lost: that may not have been noticed yet."""

    @property
    def problem(self) -> str:
        """Why the tools cannot be served, or not yet; empty if they can."""
        return self._wrong or self._tools.problem

    @property
    def running(self) -> int:
        """How many calls are under way, also those whose agent has left."""
        calls = self._known_calls()
        return calls.running if calls else 0

    @asynccontextmanager
    async def opened(self, store: str, url: str, keys: str | None) -> AsyncIterator[None]:
        """Load the tools, and then open the store, until the block ends; `is_over` is set if the tools are wrong.

        `store` is the store of effects, `url` the same database with a driver for event loops. `keys` is the file of a
        keyring, which encrypts what is recorded.
        """
        opening = asyncio.create_task(self._open(store, url, keys))
        try:
            yield
        finally:
            opening.cancel()
            await asyncio.wait([opening])

    async def _open(self, store: str, url: str, keys: str | None) -> None:
        """Open everything, and keep it open until this is cancelled."""
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(self._tools.loaded(self._offer, self.notify))
                await self._open_store(stack, store, url, keys)
                await asyncio.Event().wait()
        except ToolMistakes as mistakes:
            self.fail(" ".join(mistakes.mistakes))
        except Exception as error:
            traceback.print_exception(error)  # into the log of the holder
            log.error("gateway_failed", error=type(error).__name__)
            self.fail(f"{type(error).__name__}: {error}")

    def _offer(self, found: Mapping[str, Any]) -> None:
        self.offers = {offer.name: offer for offer in offers_of(found["tools"])}
        self.servers, self.left_out = found["servers"], found["left_out"]
        log.info("gateway_tools", tools=len(self.offers))
        self.is_ready.set()
        self.notify("notifications/tools/list_changed", {})
        with suppress(OSError):  # the next list during a slow start is then older, or not there
            _keep_list(self._tools.list_file, found["tools"])

    @cached_property
    def last_offers(self) -> Mapping[str, Offer]:
        """The tools as they were listed the last time, for a list before they are known; empty if nobody knows."""
        file = self._tools.list_file
        with suppress(OSError, ValueError, LookupError, TypeError):  # another version of Replan may have written it
            return {offer.name: offer for offer in offers_of(from_json(file.read_bytes()))} if file else {}
        return {}

    def fail(self, why: str) -> None:
        """Serve nobody: `why` says what is wrong."""
        self._wrong = why.rstrip(".")
        log.error("gateway_cannot_serve", reason=self._wrong)
        self.is_over.set()

    async def _open_store(self, stack: AsyncExitStack, store: str, url: str, keys: str | None) -> None:
        effect_calls, cipher = await asyncio.to_thread(_prepared, keys)
        opened = await asyncio.to_thread(effect_calls.open_store, store, cipher)
        stack.push_async_callback(asyncio.to_thread, opened.close)
        make = await asyncio.to_thread(_task_calls, self._tasks) if self._tasks else effect_calls.AgentCall
        calls = effect_calls.EffectCalls(opened, self._tools, make)
        stack.callback(calls.wait_no_longer)
        await stack.enter_async_context(self._tools.opened(url, cipher))
        for connection in self._connections:
            calls.connection_opened(connection)
        self._calls.set_result(calls)

    async def ready(self, seconds: float) -> bool:
        """Wait at most `seconds` until the tools are known; returns whether they are. Ends early if they are wrong."""
        if self.is_ready.is_set():
            return True
        waits = [asyncio.ensure_future(each.wait()) for each in (self.is_ready, self.is_over)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self.is_ready.is_set()

    async def call(self, offer: Offer, args: dict[str, JsonValue], request: AgentRequest) -> dict[str, Any]:
        """Make a call, once if it has an effect, and return its CallToolResult. Raises AgentGone."""
        calls = await asyncio.shield(self._calls)
        if offer.effect is not Effect.READ:
            self._notice_lost()
            found = await calls.call(offer, args, request)
            if offer.server and isinstance(self._tools, LocalTools) and self._tasks is None:
                return self._tools.with_news(offer.server, found)
            return found
        calls.went_on(request.connection, request.arrived)
        if self._tasks and (offer.asks or not isinstance(self._tools, LocalTools)):
            from extras.gateway.task_calls import ReadCall

            return await calls.call(offer, args, request, make=ReadCall.of(self._tasks))
        return await calls.read(offer, args)

    def _notice_lost(self) -> None:
        """Note which agents have left: of two sockets, the end of one may be read after what its successor says."""
        for connection, is_lost in list(self._connections.items()):
            if is_lost():
                self.connection_closed(connection)

    async def call_own(self, name: str, args: dict[str, JsonValue], request: AgentRequest) -> dict[str, Any]:
        """Call a tool of the gateway itself, and return its CallToolResult."""
        calls = await asyncio.shield(self._calls)
        if self._tasks:
            from extras.gateway import own_tools  # as in `_prepared`

            return await own_tools.BY_NAME[name](own_tools.Asked(calls, request, args, self._tasks))
        from extras.gateway import effect_tools

        return await effect_tools.BY_NAME[name](effect_tools.AskedOfStore(calls, request, args))

    async def resume(
        self, offer: Offer, args: dict[str, JsonValue], state: str, said: Any, request: AgentRequest
    ) -> Any:
        """Continue a call after the client asked its person: pass on the answer, and return the result of the call.

        `state` is what came with the question, `said` the client's answer.
        """
        calls, asked = await asyncio.shield(self._calls), RequestState.read(state)
        if asked is None or request.attended is None:
            raise MCPError(INVALID_PARAMS, "This session has not asked for this input")
        if asked.request and self._tasks:
            from extras.gateway import task_calls

            is_structured = "outputSchema" in offer.tool
            resumed = await task_calls.resume(self._tasks, asked, said, request, is_structured=is_structured)
            if resumed is not None:
                return resumed
            answered = True
        else:
            answered = await calls.answer(asked, said, request)
        # The same call again; after an answer that cannot be used, other people are asked.
        request = replace(request, resent=asked.call, attended=request.attended if answered else None)
        return await self.call(offer, args, request)

    async def pass_on(self, method: str, params: Mapping[str, Any], server: str, report: Report | None) -> Any:
        """Send a request that changes nothing to one server, and return the result.

        Raises MCPError for an error, or without an answer.
        """
        if method == "resources/unsubscribe" and len(self._connections) > 1:
            return {}  # another agent may have subscribed to it
        return await self._tools.pass_on(method, params, server, report)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Pass a notification on to all connections."""
        for tell in list(self.on_notification.values()):
            tell(method, params)

    # What is known of the delivery of answers.

    def _known_calls(self) -> "EffectCalls | None":
        return self._calls.result() if self._calls.done() and not self._calls.cancelled() else None

    def connection_opened(self, connection: str, is_lost: Callable[[], bool]) -> None:
        """Note that an agent can be answered on this connection, as long as `is_lost` says that it is not lost."""
        self._connections[connection] = is_lost
        if calls := self._known_calls():
            calls.connection_opened(connection)

    def connection_closed(self, connection: str) -> None:
        """Note that the agent has left, or was lost: nobody knows whether it has read its last answers."""
        if connection in self._connections and (calls := self._known_calls()):
            calls.connection_closed(connection)
        self._connections.pop(connection, None)

    def went_on(self, connection: str, at: float) -> None:
        """Note that the agent has asked for something else on this connection: it has the answers given before `at`."""
        if calls := self._known_calls():
            calls.went_on(connection, at)

    def answer_failed(self, request: str) -> None:
        """Note that the answer to a request did not reach the agent, or that the agent does not wait for it."""
        if calls := self._known_calls():
            calls.answer_failed(request)


def _task_calls(tasks: "Tasks") -> Any:
    """What makes calls as tasks; its imports take a second."""
    from extras.gateway.task_calls import TaskCall

    return TaskCall.of(tasks)


def _keep_list(file: Path | None, listed: Any) -> None:
    """Keep a list of tools, of which `offers_of` makes offers, for `last_offers`. Raises OSError."""
    if file is None:
        return
    new = file.with_name(f"{file.name}.{os.getpid()}")  # sessions share it
    with open(new, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as written:
        written.write(to_json(listed, inf_nan_mode="null"))
    new.replace(file)


def _prepared(keys: str | None) -> tuple[Any, Any]:
    """Import what makes calls, which takes half a second; the first list does not wait for it. Raises BadKeys."""
    from extras.gateway import effect_calls, effect_tools  # noqa: F401  # also for `call_own`
    from runtime import telemetry
    from runtime.keys import cipher_of
    from runtime.settings import LogStyle

    telemetry.configure(LogStyle.TEXT, None)
    return effect_calls, cipher_of(keys)
