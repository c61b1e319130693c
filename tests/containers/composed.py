"""docker-compose.yml, brought up; all that is done with it is done by `docker compose`, or by commands of the host."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.containers import images
from tests.containers.engine import PROJECT, Engine
from tests.processes import ROOT
from tests.whole.deploy.composition import FILE, services

HERE = Path(__file__).parent
HEALTHY_SECONDS = 240
LEDGER = """
import json, sqlite3
store = sqlite3.connect("file:/var/lib/replan/store.db?mode=ro", uri=True)
print(json.dumps([store.execute(question).fetchall() for question in {questions!r}]))
"""


class Composed:
    """The composition of the file; `folder` has what tests write, and the state of commands of the host."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        override = HERE / "override.yml"
        ours = {name: value for name, value in engine.environment.items() if not name.startswith(FOREIGN)}
        self._engine = replace(
            engine,
            environment={
                **ours,
                "COMPOSE_FILE": f"{FILE}{os.pathsep}{override}",
                "COMPOSE_DISABLE_ENV_FILE": "1",  # it may have keys of models
                "REPLAN_STATE": str(folder / "state"),
                "REPLAN_TOKEN": TOKEN,
                "KEY": str(folder / "key"),
            },
        )
        self.folder = folder
        self.key = folder / "key"
        """The file of the key in `key.yml`."""

    async def up(self, *more: str) -> None:
        """Bring it up as README.md says, with images that are there already."""
        # What runs stays; with podman, Compose takes each image for another one than before.
        await self.compose(
            "up", "--detach", "--no-build", "--no-recreate", *more, *images.started(self._engine), seconds=600
        )

    async def compose(self, *words: str, seconds: float = 300) -> str:
        """What a command of `docker compose` printed. Raises EngineFailed."""
        return await self._engine.run("docker", "compose", *words, seconds=seconds)

    async def with_key(self, *words: str) -> str:
        files = [word for file in (FILE, HERE / "override.yml", HERE / "key.yml") for word in ("--file", str(file))]
        return await self.compose(*files, *words)

    async def line(self, text: str) -> str:
        """What a command line of the pages printed, in the test's folder. Raises EngineFailed."""
        return await self._engine.run("sh", "-ec", text, folder=self.folder)

    async def exec(self, service: str, *words: str) -> str:
        """What a command inside the first container of a service printed. Raises EngineFailed."""
        return await self.compose("exec", "-T", service, *words)

    async def host(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the machine that publishes the ports, to its end."""
        return await self._engine.result(*words)

    async def starter(self, *words: str) -> subprocess.CompletedProcess[str]:
        return await self.host(sys.executable, str(ROOT / "starter.py"), *words)

    async def get(self, url: str) -> str:
        """What an address of that machine answers. Raises EngineFailed."""
        return await self._engine.run(sys.executable, "-c", FETCH, url)

    async def containers(self, service: str = "") -> list[dict[str, Any]]:
        """What the engine knows of the containers of a service, or of all, also of those that ended."""
        ids = (await self.compose("ps", "--all", "--quiet", *([service] if service else []))).split()
        if not ids:
            return []
        found: list[dict[str, Any]] = json.loads(await self._engine.run(self._engine.program, "inspect", *ids))
        return found

    async def health(self) -> Mapping[str, str]:
        """By container, `healthy` or what it is instead; of one that ended well, nothing."""
        said = {one["Name"].lstrip("/"): one["State"] for one in await self.containers()}
        return {name: _health(state) for name, state in said.items() if state.get("ExitCode") or state["Running"]}

    async def is_healthy(self) -> None:
        """Wait until every container is. Raises AssertionError after HEALTHY_SECONDS."""
        for _ in range(HEALTHY_SECONDS):
            health = await self.health()
            if set(health.values()) == {"healthy"}:
                return
            await asyncio.sleep(1)
        raise AssertionError(f"{health}: {await self.keep_logs()}")

    async def ask_store(self, *questions: str) -> list[list[list[Any]]]:
        """The rows that the workers' store has for each query."""
        answers: list[list[list[Any]]] = json.loads(
            await self.exec("worker", "python", "-c", LEDGER.format(questions=questions))
        )
        return answers

    async def kill(self, container: str) -> None:
        """Kill a container, as `docker kill` does; it stays down."""
        await self._engine.run(self._engine.program, "kill", container)

    async def kill_process(self, container: str) -> None:
        """Kill the process of a container, as a lack of memory does: the engine starts it again."""
        await self._engine.result(self._engine.program, "exec", container, "sh", "-c", "kill -9 -1")

    async def working(self, task: str) -> str:
        """The container whose worker runs a step of this task, as soon as one does."""
        while True:
            words = ("temporal", "workflow", "describe", "--workflow-id", task, "--output", "json")
            pending = json.loads(await self.exec("temporal", *words)).get("pendingActivities", [])
            if pending and pending[0].get("lastWorkerIdentity"):
                return str(pending[0]["lastWorkerIdentity"].partition("@")[2])
            await asyncio.sleep(0.5)

    async def log_of(self, *words: str) -> int:
        """How many bytes the engine keeps of what a command in a worker's container writes."""
        name = (await self.compose("run", "--detach", "--no-deps", "--entrypoint", "sh", "worker", *words)).split()[-1]
        await self._engine.run(self._engine.program, "wait", name)
        one = await self.container(name)
        path = one.get("LogPath") or one["HostConfig"]["LogConfig"]["Path"]
        sizes = await self._engine.run("sh", "-c", f"cat {path}* | wc -c")
        await self.remove(name)
        return int(sizes)

    async def container(self, name: str) -> dict[str, Any]:
        [found] = json.loads(await self._engine.run(self._engine.program, "inspect", name))
        return dict(found)

    async def said(self, name: str) -> str:
        done = await self._engine.result(self._engine.program, "logs", name)
        return done.stdout + done.stderr

    async def ended(self, name: str) -> tuple[int, str]:
        """How a container ended, and what it wrote; then it is removed."""
        await self._engine.run(self._engine.program, "wait", name)
        code, text = (await self.container(name))["State"]["ExitCode"], await self.said(name)
        await self.remove(name)
        return int(code), text

    async def remove(self, name: str) -> None:
        await self._engine.run(self._engine.program, "rm", "--force", name)

    async def keep_logs(self) -> Path:
        """Write what the containers said to a file, and return it."""
        file = self.folder / "containers.log"
        file.write_text(await self.compose("ps", "--all") + await self.compose("logs", "--no-color"))
        return file

    async def left(self) -> list[str]:
        """What the engine still has of the project: containers, volumes, networks."""
        label = f"--filter=label=com.docker.compose.project={PROJECT}"
        program = self._engine.program
        found = [
            await self._engine.run(program, *words, "--quiet", label)
            for words in (["ps", "--all"], ["volume", "ls"], ["network", "ls"])
        ]
        return "".join(found).split()


TOKEN = "a-token-for-the-tests-only"  # noqa: S105  # of no server but this one
FOREIGN = ("ANTHROPIC_", "OPENAI_", "REPLAN_", "TEMPORAL_")
FETCH = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=20).read().decode())"


def _health(state: Mapping[str, Any]) -> str:
    health = state.get("Health") or state.get("Healthcheck") or {}
    return str(health.get("Status") or f"exit code {state['ExitCode']}" if not state["Running"] else health["Status"])


def published() -> Mapping[str, tuple[int, ...]]:
    """By service, the ports of the host that the file publishes."""
    return {
        name: tuple(int(port.split(":")[1]) for port in service.said.get("ports", []))
        for name, service in services().items()
    }
