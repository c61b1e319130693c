"""A container engine for the tests: podman in namespaces of its own, which end with the test, or docker.

What the tests run there they run with `docker compose`, as the pages say; podman gets a Docker Compose built with Go.
"""

import asyncio
import fcntl
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import user_cache_path

from runtime.child import POLL_SECONDS, end, exited, last_line, spawn
from runtime.temporal_cli import Say
from tests.processes import ROOT
from tests.stack.programs import Source, built

VARIABLE = "CONTAINERS"
PROJECT = "replan-test"
"""In the place of the file's own name, whose volumes belong to the user."""
COMPOSE = Source("docker-compose", "github.com/docker/compose/v2", ["./cmd"])
COMPOSE_VERSION = "v2.40.3"
NEEDED = ("podman", "crun", "debootstrap", "catatonit", "iptables", "ip", "nsenter", "unshare", "go")
HELPERS = ("netavark", "aardvark-dns")
"""Programs of podman that are not on PATH."""
PACKAGE_OF = {"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "go": "golang"}
"""The Debian packages of programs, for those with another name."""
OPTIONAL = "TESTS_OPTIONAL"
"""The variable with which `make test-all` skips these tests where they cannot run; else that is an error."""
START_SECONDS = 60
MOST_LINES = 40
"""Of what a command said that failed."""
NAMESPACES = ("--mount", "--net", "--pid", "--ipc")


class EngineFailed(RuntimeError):
    """The engine, or a command for it, did not work; the message is what it said."""


@dataclass(frozen=True)
class Engine:
    program: str
    """`podman` or `docker`."""
    prefix: Sequence[str] = ()
    """What a command begins with to run where containers publish their ports."""
    outside: Sequence[str] = ()
    """What a command begins with to have this machine's network and the engine's file systems."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_docker(self) -> bool:
        return self.program == "docker"

    async def run(self, *words: str, folder: Path = ROOT, seconds: float = 300) -> str:
        """The standard output of a command on the engine's machine. Raises EngineFailed where it fails."""
        done = await self.result(*words, folder=folder, seconds=seconds)
        if done.returncode != 0:
            raise EngineFailed(_said(words, done))
        return done.stdout

    async def result(self, *words: str, folder: Path = ROOT, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """How a command ended on the engine's machine, and what it said."""
        return await self._ended(self.prefix, words, folder, seconds)

    async def build(self, *words: str) -> str:
        """What the engine's program printed that needs this machine's network. Raises EngineFailed."""
        done = await self._ended(self.outside, words, ROOT, 1200)
        if done.returncode != 0:
            raise EngineFailed(_said(words, done))
        return done.stdout

    async def _ended(
        self, prefix: Sequence[str], words: Sequence[str], folder: Path, seconds: float
    ) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(
            subprocess.run,
            [*prefix, f"--wd={folder}", "--", *words] if prefix else words,
            cwd=folder,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )


def _said(words: Sequence[str], done: subprocess.CompletedProcess[str]) -> str:
    last = "\n".join((done.stdout + done.stderr).splitlines()[-MOST_LINES:])
    return f"{' '.join(words)}: exit code {done.returncode}\n{last}"


def missing() -> str | None:
    """Why no engine can be had here, None where one can."""
    if asked() == "docker":
        absent_docker = "which is not installed: `apt-get install docker.io docker-compose-v2`."
        return None if shutil.which("docker") else f"{VARIABLE}=docker asks for docker, {absent_docker}"
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return (
            "Containers need root here, for podman's namespaces: `sudo make test-containers`, or set CONTAINERS=docker."
        )
    absent = [name for name in NEEDED if shutil.which(name) is None]
    absent += [name for name in HELPERS if not any(Path(root, name).exists() for root in _LIBRARIES)]
    if absent:
        packages = sorted({PACKAGE_OF.get(name, name) for name in absent})
        return f"Containers need {', '.join(absent)}: `apt-get install {' '.join(packages)}`; or set CONTAINERS=docker."
    return None


_LIBRARIES = ("/usr/lib/podman", "/usr/libexec/podman")


def may_be_skipped() -> bool:
    """Whether whoever runs the tests asks for all that can run here, and not for these."""
    return bool(os.environ.get(OPTIONAL))


def asked() -> str:
    """The engine that whoever runs the tests wants."""
    return os.environ.get(VARIABLE) or "podman"


def cache() -> Path:
    return user_cache_path("replan") / "containers"


async def compose(say: Say) -> Path:
    """The program of Docker Compose. Raises ProgramMissing."""
    return await built(COMPOSE, COMPOSE_VERSION, say) / "cmd"


@asynccontextmanager
async def running(say: Say) -> AsyncIterator[Engine]:
    """The engine; podman's ends with everything in it. Raises EngineFailed, ProgramMissing."""
    settings = {**os.environ, "COMPOSE_PROJECT_NAME": PROJECT, "COMPOSE_PROGRESS": "plain", "COMPOSE_ANSI": "never"}
    if asked() == "docker":
        yield Engine("docker", environment=settings)
        return
    program = await compose(say)
    with _alone(), tempfile.TemporaryDirectory(prefix="replan-containers-") as name:
        folder = Path(name)
        settings |= _settings(folder, program)
        process = spawn(_command(folder), folder / "engine.log", environment=settings)
        try:
            enter = [_which("nsenter"), "--target", await _started(process, folder)]
            engine = Engine("podman", [*enter, *NAMESPACES], [*enter, "--mount", "--pid", "--ipc"], settings)
            for words in (["rm", "--all"], ["volume", "prune"], ["network", "prune"]):  # of a run that was killed
                await engine.run("podman", *words, "--force")
            yield engine
        finally:
            await end(process)
            _remove_cgroups()


@contextmanager
def _alone() -> Iterator[None]:
    """The cache for this run only: podman of another one would not see its locks. Raises EngineFailed."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EngineFailed(f"Another run of these tests uses {cache()}: try again after its end.") from None
        yield


def _remove_cgroups() -> None:
    for kind in Path("/sys/fs/cgroup").iterdir():
        for group in sorted(kind.glob("libpod_parent/**"), reverse=True):
            with suppress(OSError):  # another podman of this machine is in it
                group.rmdir()


def _command(folder: Path) -> list[str]:
    isolated = [_which("unshare"), *NAMESPACES, "--fork", "--kill-child", "--propagation=private"]
    return [*isolated, "/bin/sh", str(Path(__file__).with_name("namespace.sh")), str(folder), sys.executable]


async def _started(process: subprocess.Popen[bytes], folder: Path) -> str:
    for _ in range(int(START_SECONDS / POLL_SECONDS)):
        if (folder / "podman").exists():
            return (folder / "pid").read_text().strip()
        if await exited(process, POLL_SECONDS):
            break
    raise EngineFailed(f"podman did not start: {last_line(folder / 'engine.log')}")


def _which(name: str) -> str:
    found = shutil.which(name)
    assert found is not None
    return found


def _settings(folder: Path, program: Path) -> dict[str, str]:
    """The environment of podman and compose, with the files that it names."""
    kept = cache()
    for name in ("storage", "networks"):
        (kept / name).mkdir(parents=True, exist_ok=True)
    (folder / "containers.conf").write_text(
        f"[containers]\ndefault_ulimits = [{_limit('nofile', 20000)}, {_limit('nproc', 16384)}]\n"
        '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "crun"\nevents_logger = "file"\n'
        f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{kept / "networks"}"\n'
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{kept / "storage"}"\nrunroot = "/run/containers/storage"\n'
    )
    (folder / "registries.conf").write_text('unqualified-search-registries = ["docker.io"]\n')
    docker = folder / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f'#!/bin/sh\nshift\nexec "{program}" "$@"\n')  # of `docker`, the pages use only `docker compose`
    docker.chmod(0o755)
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
        "DOCKER_HOST": f"unix://{folder / 'podman'}",
        "PATH": f"{docker.parent}{os.pathsep}{os.environ['PATH']}",
    }


def _limit(name: str, most: int) -> str:
    """As podman's settings have it; it asks for more than it may have where root may not raise its own limits."""
    _, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
    number = most if hard == resource.RLIM_INFINITY else min(hard, most)
    return f'"{name}={number}:{number}"'
