"""An environment of these tests' own: the libraries of requirements.txt, which lie over the packages of this one."""

import hashlib
import os
import site
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
MINUTES = 10
"""How long one library may take to be installed."""


@dataclass(frozen=True)
class Environment:
    """A Python with the libraries."""

    python: Path
    missing: Mapping[str, str]
    """The distributions that could not be installed, in lower case, and why."""


def wanted(file: Path) -> Mapping[str, str]:
    """The requirement by the name of each distribution, in lower case."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {line.partition("==")[0].lower(): line for line in lines}


CACHE = platformdirs.user_cache_path("replan") / "provocations"
"""Where environments and programs stay."""


def digest(*parts: str) -> str:
    """The end of a name in CACHE for what was made from these parts."""
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]


def prepared(file: Path) -> Environment:
    """The environment with the packages of a file, made where it is missing; it stays until the file changes."""
    folder = CACHE / digest(sys.prefix, sys.version, file.read_text())
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(folder, with_pip=True, symlinks=os.name != "nt")
        own = Path(_said(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
        (own / "replan_tests.pth").write_text("\n".join(site.getsitepackages()))
    missing = dict[str, str]()
    for name, requirement in wanted(file).items():
        marker = folder / f"{requirement}.installed"
        if marker.exists():
            continue
        done = _said(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", requirement)
        if done.returncode == 0:
            marker.touch()
        else:
            missing[name] = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
    return Environment(python, missing)


def _said(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, *words], capture_output=True, text=True, check=False, timeout=MINUTES * 60)
