"""One run: an agent is killed while it pays, started again, and resumes by its own means."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel

from activities.effects.database import Database
from activities.effects.desk import Desk
from evals.fakes.model_api import KEY, Json
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.script import ModelCall, ModelReply, Response, calls
from evals.gateway.place import end_holders
from runtime.child import end, last_line, spawn
from runtime.dev_server import free_port

HERE = Path(__file__).parent
PATIENCE_SECONDS = 180.0
WRITING_SECONDS = 0.3
"""Seconds after which an answer that is recorded is written to the agent."""
NOTE = "Not done again"
POLL_SECONDS = 0.05


class TrialFailed(RuntimeError):
    """A run did not come to where it is killed or to its end; the message says why."""


class Way(StrEnum):
    """How the agent reaches the tool."""

    DIRECT = "the server's command"
    STDIO = "replan mcp --session"
    HTTP = "replan mcp --http"


class Moment(StrEnum):
    """When the agent is killed: the effect is in the world, and not in the agent's record."""

    CALLING = "killed during the call"
    UNREAD = "killed before it read the answer"
    NEVER = "not killed, pays twice"
    """It makes two equal calls, which it means."""


class Trial(BaseModel):
    """A run, and what it came to."""

    framework: str
    way: Way
    moment: Moment
    has_keys: bool
    effects: int = 0
    answer: str = ""
    """What the agent printed in the end."""

    @property
    def is_asked(self) -> bool:
        """Whether the agent was told that a person is asked."""
        return "Do not call it again meanwhile" in self.answer

    @property
    def receipt(self) -> int:
        """The number of the payment whose answer the agent got; 0 without an answer."""
        found = re.search(r"paid ann, receipt (\d+)", self.answer)
        return int(found[1]) if found and not self.is_asked else 0

    def __str__(self) -> str:
        got = "asks a person" if self.is_asked else "answer" if self.receipt else "no answer"
        return f"{self.effects} paid, {got}{' and note' if NOTE in self.answer else ''}"

    @property
    def is_broken(self) -> bool:
        """Whether the gateway repeated or lost an effect, lost an answer, or asked.

        Without keys, it may take two equal calls for one if no process had both, and says so.
        """
        if self.way is Way.DIRECT:
            return False
        is_two = self.moment is Moment.NEVER and (self.has_keys or NOTE not in self.answer)
        wanted = 2 if is_two else 1
        return self.effects != wanted or self.receipt != wanted


class ShopModel(OpenAIApi):
    """Calls `pay` in its first turns, and then says what the last call returned; it allows what frameworks send."""

    payments = 1

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Response:
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        if len(results) < self.payments:
            return calls(ModelCall("pay", {"who": "ann"}))
        return ModelReply(text=str(results[-1]))


def sdk(model: OpenAIApi) -> dict[str, str]:
    """The variables by which an SDK calls `model`."""
    return {"OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_API_KEY": KEY, "OPENAI_AGENTS_DISABLE_TRACING": "1"}


def without_keys() -> dict[str, str]:
    """The environment of this process without what an agent must not get from it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("REPLAN_", "OPENAI_"))}


@dataclass
class Stage:
    """The shop, the model and the gateways of all runs."""

    folder: Path
    model: ShopModel
    number: int = 0

    def __post_init__(self) -> None:
        self._book, self._gate = self.folder / "book", self.folder / "gate"
        self._shop = (sys.executable, str(HERE / "shop.py"), str(self._book), str(self._gate))
        self._replan = (sys.executable, "-m", "replan", "mcp")
        self._states = {Way.STDIO: self.folder / "stdio", Way.HTTP: self.folder / "http"}
        self._port = 0

    async def play(self, trial: Trial, python: Path) -> None:
        """Fill in what a run comes to. Raises TrialFailed."""
        self.number += 1
        session = f"order-{self.number}"
        self._book.write_text("")
        self._gate.unlink(missing_ok=True)
        agent = [str(python), str(HERE / f"{trial.framework}_agent.py"), str(self.folder / session)]
        agent += ["keys" if trial.has_keys else "no-keys", *await self._command(trial.way, session)]
        self.model.payments = 2 if trial.moment is Moment.NEVER else 1
        if trial.moment is not Moment.NEVER:
            await self._kill_first(trial, agent, session)
        self._gate.touch()
        process = await self._start(agent, f"{session}.log", output=asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            raise TrialFailed(f"{trial.framework} did not end: {last_line(self.folder / f'{session}.log')}") from None
        if process.returncode:
            raise TrialFailed(f"{trial.framework} failed: {last_line(self.folder / f'{session}.log')}")
        trial.effects, trial.answer = self._paid, said.decode()

    async def _kill_first(self, trial: Trial, agent: Sequence[str], session: str) -> None:
        """Start an agent, and kill it after its payment."""
        process = await self._start(agent, log := f"{session}-killed.log")
        try:
            await self._until(lambda: bool(self._paid), process, log)
            if trial.moment is Moment.UNREAD:
                process.send_signal(signal.SIGSTOP)
                self._gate.touch()
                await self._until(lambda: self._is_recorded(trial.way, session), process, log)
                await asyncio.sleep(WRITING_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _start(self, command: Sequence[str], log: str, output: int | None = None) -> asyncio.subprocess.Process:
        with (self.folder / log).open("wb") as errors:
            return await asyncio.create_subprocess_exec(
                *command,
                env={**without_keys(), **sdk(self.model)},
                cwd=self.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=errors if output is None else output,
                stderr=errors,
            )

    async def _until(self, holds: Callable[[], bool], agent: asyncio.subprocess.Process, log: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not holds() and agent.returncode is None:  # noqa: ASYNC110  # no event tells
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise TrialFailed(f"The agent did not come to where it is killed: {last_line(self.folder / log)}") from None
        if agent.returncode is not None:
            raise TrialFailed(f"The agent ended before it was killed: {last_line(self.folder / log)}")

    @property
    def _paid(self) -> int:
        return len(self._book.read_text().split())

    def _is_recorded(self, way: Way, session: str) -> bool:
        """Whether the gateway has recorded the result of the session's call."""
        database = Database(str(self._states[way] / "store.db"))
        try:
            return any(call.has_result for call in Desk(database).calls(session))
        finally:
            database.close()

    async def _command(self, way: Way, session: str) -> Sequence[str]:
        """What an agent is configured with: the command of its server, or an address."""
        match way:
            case Way.DIRECT:
                return self._shop
            case Way.STDIO:
                options = ("--state", str(self._states[way]), "--session", session)
                return (*self._replan, *options, "--idle", "60", "--", *self._shop)
            case Way.HTTP:
                return (f"http://127.0.0.1:{self._port}/mcp/{session}",)

    @asynccontextmanager
    async def serving(self, *, is_http: bool) -> AsyncIterator[None]:
        """Serve over HTTP, if a run needs it, and end all gateways with the block. Raises TrialFailed."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(end_holders, self._states[Way.STDIO])
            if is_http:
                await stack.enter_async_context(self._serving_http())
            yield

    @asynccontextmanager
    async def _serving_http(self) -> AsyncIterator[None]:
        self._port = free_port()
        log, state = self.folder / "http.log", str(self._states[Way.HTTP])
        process = spawn([*self._replan, "--http", f"127.0.0.1:{self._port}", "--state", state, "--", *self._shop], log)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while "ready" not in log.read_text(errors="replace"):
                    if process.poll() is not None:
                        raise TrialFailed(f"The gateway over HTTP did not start: {last_line(log)}")
                    await asyncio.sleep(POLL_SECONDS)
            yield
        finally:
            await end(process)
