"""Each extra can be left out: without its folder the rest works, and what needs it says so."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from extras import plugins
from tests.processes import ROOT

EXTRAS = tuple(plugins())
NEEDS: Mapping[str, Sequence[str]] = {"gateway": ("mcp",)}
"""The extras that an extra may import."""
NEEDED_BY: Mapping[str, tuple[Sequence[str], str]] = {
    "audit": (("starter.py", "audit", "a.json"), "No such command 'audit'"),
    "documents": (("worker.py", "--check", "--documents", "."), ""),
    "gateway": (("starter.py", "mcp", "--", "true"), "No such command 'mcp'"),
    "libraries": (("worker.py", "--classify", "botocore.exceptions.ClientError"), ""),
    "mcp": (("worker.py", "--check", "--tools", "examples/git.toml"), "needs extras/mcp, which is not in this copy"),
    "web": (("starter.py", "serve"), "No such command 'serve'"),
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


def test_every_extra_is_tried_here() -> None:
    assert {*NEEDED_BY} == {*EXTRAS}


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
