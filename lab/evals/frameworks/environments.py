"""The environment of each framework: made once, with the versions that its requirements pin."""

import asyncio
import fcntl
import hashlib
import site
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from platformdirs import user_cache_path

HERE = Path(__file__).parent
Say = Callable[[str], None]


class NoEnvironment(RuntimeError):
    """An environment could not be made; the message says why."""


def requirements(name: str) -> Path:
    """The file with what a framework's agent needs."""
    return HERE / f"{name.replace('_', '-')}-requirements.txt"


async def python_of(wanted: Path, say: Say, *, is_over: bool = False) -> Path:
    """The Python of an environment with a file of requirements, which is made if there is none.

    With `is_over`, the environment lies over the packages of this one, and is for this one alone.

    Raises:
        NoEnvironment: it could not be made.
    """
    name = wanted.stem.removesuffix("-requirements") if wanted.stem != "requirements" else wanted.parent.name
    under = site.getsitepackages() if is_over else []
    folder = user_cache_path("replan") / "frameworks" / f"{name}-{_digest(wanted, under)}"
    python, made = folder / "bin" / "python", folder / "complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)  # other processes may make the same
        if not made.exists():
            say(f"{name}: making its environment, once")
            await _run(sys.executable, "-m", "venv", "--clear", str(folder))
            if under:
                (own,) = folder.glob("lib/python*/site-packages")
                (own / "replan.pth").write_text("\n".join(under))
            await _run(str(python), "-m", "pip", "install", "--quiet", "--requirement", str(wanted))
            made.touch()
    return python


def _digest(wanted: Path, under: Sequence[str]) -> str:
    return hashlib.sha256(wanted.read_bytes() + "\n".join([sys.version, *under]).encode()).hexdigest()[:12]


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    if process.returncode:
        last = [line for line in said.decode(errors="replace").splitlines() if line.strip()][-1:]
        raise NoEnvironment(f"{' '.join(command[1:4])} failed: {' '.join(last) or process.returncode}")
