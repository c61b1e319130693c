"""requirements/*.txt hold what pyproject.toml asks for, each package by its hashes, and are kept up to date."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.processes import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
IN_IMAGE = ("documents", "otel", "postgresql", "web")
ASKED = {
    # Those of the image, in which nobody can install an extra later.
    "runtime": [*PROJECT["project"]["dependencies"], *(one for extra in IN_IMAGE for one in EXTRAS[extra])],
    "dev": [one for extra in EXTRAS.values() for one in extra],
    "build": PROJECT["build-system"]["requires"],
    "release": re.findall(r"^[^#\n]+$", (ROOT / "requirements" / "release.in").read_text(), flags=re.MULTILINE),
}
"""Lock to the requirements that it answers."""


def path(lock: str) -> Path:
    """The file of a lock."""
    return ROOT / "requirements" / f"{lock}.txt"


def locked(lock: str) -> dict[str, set[str]]:
    """Package to versions: more than one where a newer one has left a Python behind that we support."""
    found = dict[str, set[str]]()
    for name, version in re.findall(r"^(\S+?)==(\S+)", path(lock).read_text(encoding="utf-8"), flags=re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


@pytest.mark.parametrize("lock", ASKED)
def test_a_lock_satisfies_what_is_asked_of_it(lock: str) -> None:
    """What pyproject.toml asks for is there, in a version that it allows, and each package with its hashes.

    So nothing else can be installed under its name; and no index is named, so that everybody uses their own. Each
    begins with a command that Renovate can repeat: options with `=`, and none that names a folder of ours.
    """
    text, versions = path(lock).read_text(encoding="utf-8"), locked(lock)
    packages = re.split(r"^(?=\S+==)", text, flags=re.MULTILINE)[1:]
    command = text.splitlines()[1]
    asked = map(Requirement, [*ASKED[lock], *(ASKED["runtime"] if lock == "dev" else [])])
    found = {one: versions.get(canonicalize_name(one.name), set()) for one in asked}

    assert {one: there for one, there in found.items() if not there} == {}, "run `make lock`"
    assert [one for one, there in found.items() if not all(map(one.specifier.contains, there))] == [], "run `make lock`"
    assert packages
    assert [one.split()[0] for one in packages if "--hash=sha256:" not in one] == []
    assert "://" not in text
    assert command.startswith("#    uv pip compile --universal")
    assert [word for word in command.split() if word.startswith("/")] == []


@pytest.mark.parametrize("lock", ["dev", "build", "release"])
def test_the_locks_agree(lock: str) -> None:
    """What is tested is what runs: a package has one version in all of them."""
    other = locked(lock)

    assert {
        name: versions for name, versions in locked("runtime").items() if other.get(name, versions) != versions
    } == {}


def test_the_settings_of_renovate_conform_to_its_schema() -> None:
    """Renovate would skip the project otherwise."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.renovate", "renovate.json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
