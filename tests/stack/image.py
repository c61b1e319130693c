"""The worker's image without a container engine: the Dockerfile's packages and files, in a folder in place of `/`."""

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT
from tests.whole.deploy.dockerfile import Stage, stages

ABSOLUTE = re.compile(r"(?<![\w./:])/(?=[a-z])")
LANGUAGE = {"LANG": "C.UTF-8"}
"""What the base image sets."""


class BuildFailed(RuntimeError):
    """An instruction of the Dockerfile did not work; the message is what it said."""


def placed(text: str, root: Path) -> str:
    """`text` with every absolute path in it below `root`."""
    return ABSOLUTE.sub(f"{root}/", text)


async def build(root: Path) -> None:
    """Do what the Dockerfile says, stage by stage, but for making a user. Raises BuildFailed."""
    for stage in stages():
        await asyncio.to_thread(_run, stage, root)


def environment(root: Path) -> dict[str, str]:
    *_, image = stages()
    said = {name: placed(value, root).replace("$PATH", "/usr/bin:/bin") for name, value in image.environment.items()}
    return {**LANGUAGE, **said, "HOME": said["REPLAN_STATE"]}


def folder(root: Path) -> Path:
    return _folder(stages()[-1], root)


def _folder(stage: Stage, root: Path) -> Path:
    [named] = stage.of("WORKDIR")
    return Path(placed(named, root))


def _run(stage: Stage, root: Path) -> None:
    at = _folder(stage, root)
    at.mkdir(parents=True, exist_ok=True)
    for sources, target in stage.copies:
        _copy(sources, at / target)
    for line in stage.of("RUN"):
        if "useradd" not in line:  # it would be one of this machine
            _shell(placed(line, root), at)


def _copy(sources: list[str], target: Path) -> None:
    """As COPY does: the contents of a folder, or files into a folder."""
    for source in sources:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / source, target)


def _shell(line: str, at: Path) -> None:
    python = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["sh", "-c", f'PATH="{python}:$PATH"; {line}'], cwd=at, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BuildFailed(f"RUN {line}\n{done.stdout}{done.stderr}")
