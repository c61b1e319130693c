"""The clients, and what they run with: made once in the user's cache, with the versions that are pinned."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from evals.frameworks.environments import NoEnvironment, python_of

HERE = Path(__file__).parent
PAYERS, FRAMEWORKS = HERE / "payers", HERE.parent / "frameworks"
GO_SDK, NODE_SDK = "github.com/modelcontextprotocol/go-sdk", "@modelcontextprotocol/sdk"
GO_VERSION, NODE_VERSION = "v1.8.0", "1.32.2"
INSTALL_SECONDS = 600.0


def say(line: str) -> None:
    """Show progress."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


class NoProgram(RuntimeError):
    """A client cannot be run here; the message says why."""


@dataclass(frozen=True)
class Client:
    """A client of MCP."""

    name: str
    """That of its program in the folder of the payers."""
    title: str
    """What it is, with the version that is tried."""
    requirements: Path | None = None
    """What a client in Python needs."""

    async def command(self) -> Sequence[str]:
        """The command that starts it. Raises NoProgram."""
        if self.name == "go_sdk":
            return [str(_go_program())]
        if self.name == "typescript_sdk":
            return ["node", str(_node_program())]
        if self.requirements is None:
            raise NoProgram(f"{self.name} names no requirements")
        try:
            python = await python_of(self.requirements, say)
        except NoEnvironment as problem:
            raise NoProgram(str(problem)) from problem
        return [str(python), str(PAYERS / f"{self.name}.py")]


CLIENTS: Sequence[Client] = (
    Client("python_sdk_1", "Python SDK 1.30.0", HERE / "python-sdk-1-requirements.txt"),
    Client("python_sdk_2", "Python SDK 2.3.0", HERE / "python-sdk-2-requirements.txt"),
    Client("typescript_sdk", f"TypeScript SDK {NODE_VERSION}"),
    Client("go_sdk", f"Go SDK {GO_VERSION.removeprefix('v')}"),
    Client("pydantic_ai_client", "pydantic-ai 2.68.0", FRAMEWORKS / "pydantic-ai-requirements.txt"),
    Client("openai_agents_client", "openai-agents 0.24.0", FRAMEWORKS / "openai-agents-requirements.txt"),
    Client("langgraph_client", "langchain-mcp-adapters 0.3.2", FRAMEWORKS / "langgraph-requirements.txt"),
    Client("google_adk_client", "google-adk 2.13.0", HERE / "google-adk-requirements.txt"),
    Client("agno_client", "agno 3.1.10", HERE / "agno-requirements.txt"),
)


def _go_program() -> Path:
    """The client with the Go SDK, compiled. Raises NoProgram."""
    folder = _folder("go")
    source, built = folder / "main.go", folder / "client"
    if built.exists() and source.read_bytes() == (PAYERS / "go_sdk.go").read_bytes():
        return built
    shutil.copy(PAYERS / "go_sdk.go", source)
    if not (folder / "go.mod").exists():
        _run(["go", "mod", "init", "client"], folder)
    _run(["go", "get", f"{GO_SDK}/mcp@{GO_VERSION}"], folder)
    _run(["go", "build", "-o", str(built), "."], folder)
    return built


def _node_program() -> Path:
    """The client with the TypeScript SDK, beside its packages. Raises NoProgram."""
    folder = _folder("node")
    shutil.copy(PAYERS / "typescript_sdk.mjs", folder / "client.mjs")
    if not (folder / "node_modules" / NODE_SDK).exists():
        options = ["--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        _run(["npm", "install", *options, f"{NODE_SDK}@{NODE_VERSION}"], folder)
    return folder / "client.mjs"


def _folder(name: str) -> Path:
    version = {"go": GO_VERSION, "node": NODE_VERSION}[name]
    folder = user_cache_path("replan") / "mcp-clients" / f"{name}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(  # noqa: S603  # a package manager or a compiler, with fixed versions
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoProgram(f"{command[0]} cannot be run here ({type(error).__name__})") from None
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise NoProgram(f"{' '.join(command[:3])} failed: {said[-1] if said else done.returncode}")
