"""Each extra can be left out, its folder or its packages: the rest works, and what needs it says so."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from console.exits import Exit
from console.options import EXTRAS as PACKAGES
from extras import COMMAND_OF, plugins
from tests.processes import ROOT

EXTRAS = tuple(plugins())
NEEDS: Mapping[str, Sequence[str]] = {"gateway": ("mcp",)}
"""The extras that an extra may import."""
NEEDED_BY: Mapping[str, tuple[Sequence[str], str]] = {
    "audit": (("starter.py", "audit", "a.json"), "The command audit is in extras/audit, which is not in this copy"),
    "documents": (("worker.py", "--check", "--documents", "."), ""),
    "gateway": (("starter.py", "mcp", "--", "true"), "The command mcp is in extras/gateway, which is not in this copy"),
    "libraries": (("worker.py", "--classify", "botocore.exceptions.ClientError"), ""),
    "mcp": (("worker.py", "--check", "--tools", "examples/git.toml"), "needs extras/mcp, which is not in this copy"),
    "web": (("starter.py", "serve"), "The command serve is in extras/web, which is not in this copy"),
}
"""By extra, a command that needs it, and what that says without it; empty if it does without."""
OPENED = """
import sys
import worker, activities.registration
from activities.registration import Abilities
from runtime.settings import Settings
from runtime.settings_file import Models
Abilities.of(Settings(), {}, Models())
print(*sorted(name for name in sys.modules if name.startswith("extras.")))
"""


def copied(folder: Path, *left_out: str) -> Path:
    """The checkout without these extras."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in names:
        if name and (ROOT / name).is_file() and not name.startswith(tuple(f"extras/{extra}/" for extra in left_out)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def run(folder: Path, *words: str, seconds: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python WORDS` in a copy, with its modules and no others of Replan's."""
    paths = {"PYTHONPATH": os.pathsep.join([str(folder), str(folder / "lab")]), **environment}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **paths}, capture_output=True, text=True, timeout=seconds, check=False
    )


def passing(folder: Path, *words: str) -> str:
    """The last lines of a run of the quick tests of a copy; they must pass."""
    options = ("-m", "pytest", "-m", "not full", "-p", "no:cacheprovider", "--numprocesses=auto", "--dist=loadscope")
    done = run(folder, *options, "--no-loadscope-reorder", *words, seconds=3_000)
    # 5: all were skipped, as those of libraries that are not installed.
    assert done.returncode in (0, 5), "\n".join(done.stdout.splitlines()[-40:])
    return done.stdout.splitlines()[-1]


MISSING = {
    "report": (["report", "--html", "a.html"], "--html needs pygal and jinja2, which are"),
    "web": (["serve"], "`serve` needs fastapi and uvicorn and jinja2 and itsdangerous, which are"),
}


@pytest.mark.parametrize("extra", MISSING)
def test_without_its_extra_a_command_says_what_to_install(tmp_path: Path, extra: str) -> None:
    """In an environment that has all packages of this one but those of the extra; the tables of a report need none."""
    words, said = MISSING[extra]
    venv.create(tmp_path, symlinks=True, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path), "platbase": str(tmp_path)}))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name not in PACKAGES[extra]:
            (packages / entry.name).symlink_to(entry)
    command = [str(tmp_path / "bin" / "python"), "starter.py", *words, "--address", "127.0.0.1:1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    installs = f"run `pip install 'replan[{extra}]'`, in a checkout `pip install --editable '.[{extra}]'`."

    assert (done.returncode, done.stderr) == (Exit.BAD_USAGE, f"{said} not installed: {installs}\n")


def test_every_extra_is_tried_here() -> None:
    assert {*NEEDED_BY} == {*EXTRAS}
    assert {name: extra for extra, plugin in plugins().items() for name in plugin.commands} == COMMAND_OF


def test_a_worker_loads_an_extra_only_when_it_is_used() -> None:
    """Of what it does not use, only what each plugin says."""
    loaded = set(run(ROOT, "-c", OPENED).stdout.split())
    used = {name for name in loaded if name.startswith("extras.documents")}

    assert {f"extras.{extra}.plugin" for extra in EXTRAS} <= loaded
    assert {name for name in loaded - used if not name.endswith(".plugin") and name.count(".") > 1} == set()


@pytest.mark.full
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.timeout(600)
def test_the_rest_works_without_it(tmp_path: Path, extra: str) -> None:
    """The help names none of its commands, what needs it says so, and the demo and the README's first task run."""
    folder = copied(tmp_path / "copy", extra)
    named = run(folder, "starter.py", "--help").stdout
    words, says = NEEDED_BY[extra]
    refused = run(folder, *words)
    demo = run(folder, "-m", "console.demo", seconds=300)

    assert [name for name in plugins()[extra].commands if f"│ {name} " in named] == []
    assert says in " ".join((refused.stderr + refused.stdout).split())
    assert (refused.returncode == 0) == (not says), refused.stderr
    assert demo.returncode == 0 and "because book was rejected" in demo.stdout, demo.stdout + demo.stderr
    assert passing(folder, "tests/whole/test_readme.py::test_the_task_meets_a_changed_world_and_replans_once")


@pytest.mark.full
@pytest.mark.timeout(3_600)
def test_the_core_needs_no_extra(tmp_path: Path) -> None:
    """Its tests pass in a copy that has none. Saved histories, too, replay there."""
    folder = copied(tmp_path / "copy", *EXTRAS)
    histories = [str(file) for file in sorted((folder / "tests" / "histories").glob("*.json"))]
    replayed = run(folder, "starter.py", "replay", *histories, "--json")

    assert replayed.returncode == 0 and json.loads(replayed.stdout), replayed.stderr
    assert passing(folder, "tests", *(f"--ignore=tests/{name}" for name in ("whole", "stack", "containers")))


@pytest.mark.full
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.timeout(3_600)
def test_an_extra_needs_only_the_core(tmp_path: Path, extra: str) -> None:
    """Its tests pass in a copy without all others, but those that it may import."""
    folder = copied(tmp_path / "copy", *({*EXTRAS} - {extra, *NEEDS.get(extra, ())}))

    assert passing(folder, f"extras/{extra}")
