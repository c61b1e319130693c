"""The wheel of this checkout, and a fresh virtual environment in which it is installed."""

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

from tests.processes import ROOT

_SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION: str = _SETTINGS["project"]["version"]
"""The version of this checkout."""
BUILD: list[str] = _SETTINGS["build-system"]["requires"]
"""What builds it."""


def environment(folder: Path, *packages: str) -> Path:
    """Make a virtual environment with these packages, and what they need; return the folder of its programs."""
    venv.create(folder, symlinks=True)
    command = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", *packages]
    subprocess.run(command, check=True)
    return folder / "bin"


def build(bin: Path, target: Path, *options: str, source: Path = ROOT, **variables: str) -> list[Path]:
    """Build the wheel and the archive of sources of `source` with the Hatch that is in `bin`; return the files."""
    command = [str(bin / "python"), "-m", "hatchling", "build", "--directory", str(target), *options]
    subprocess.run(command, cwd=source, env={**os.environ, **variables}, check=True)
    return sorted(target.iterdir())
