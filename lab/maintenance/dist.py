"""`make dist`: builds the wheel and the archive of sources of the last commit into dist/, and checks them.

dist/ then has both, beside them the list of the packages with which the wheel was tested (an SBOM of CycloneDX, which
is also in the wheel, as PEP 770 says), and SHA256SUMS. The same commit gives the same bytes, wherever and whenever it
is built: what is built is what git has, all tools are those of requirements/, and every time is that of the commit.
Exit code 1: nothing was built, or a check failed, and dist/ is as it was.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maintenance.wheel import SBOM

LOCK = "requirements/runtime.txt"
"""The packages with which the wheel is tested, and which the image installs."""
TOOLS = ("requirements/build.txt", "requirements/release.txt")
ROOT_COMPONENT = "root-component"
"""What the SBOM's generator calls the package that the SBOM is about."""
SUMS = "SHA256SUMS"


class Stopped(Exception):
    """The release cannot be built; the message says what to do."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the wheel and the archive of sources of the last commit.")
    parser.add_argument("folder", nargs="?", default="dist", type=Path, help="where to put them [default: dist]")
    try:
        made = make(Path.cwd(), parser.parse_args().folder)
    except Stopped as error:
        print(error, file=sys.stderr)
        return 1
    print(made)
    return 0


def make(checkout: Path, target: Path) -> str:
    """Build the last commit of a checkout, check it, and put it into `target`; returns the sums of what was built.

    Raises:
        Stopped: something is not committed, a tool failed, or a check did.
    """
    if changed := _run("git", "status", "--porcelain", "--untracked-files=no", cwd=checkout).decode():
        raise Stopped(f"The last commit is what is built, and this is in none: commit or stash it.\n{changed.rstrip()}")
    with tempfile.TemporaryDirectory(prefix="replan-dist-") as folder:
        sources, built = Path(folder) / "sources", Path(folder) / "built"
        export(checkout, sources)
        times = {"SOURCE_DATE_EPOCH": _run("git", "log", "-1", "--format=%ct", cwd=checkout).decode().strip()}
        print("[1/3] tools", flush=True)  # each takes the better part of a minute
        locks = [f"--requirement={sources / lock}" for lock in TOOLS]
        programs = environment(Path(folder) / "tools", "--no-deps", "--require-hashes", *locks)
        print("[2/3] packages", flush=True)
        (sources / SBOM).write_text(sbom(programs, sources, times), encoding="utf-8")
        _run(programs / "python", "-m", "hatchling", "build", "--directory", built, cwd=sources, variables=times)
        [wheel], [archive] = built.glob("*.whl"), built.glob("*.tar.gz")
        _run(programs / "python", "-m", "twine", "check", "--strict", wheel, archive, cwd=sources)
        version = wheel.name.split("-")[1]
        print("[3/3] install", flush=True)
        check(wheel, version, sources, Path(folder) / "installed")
        shutil.copyfile(sources / SBOM, built / f"replan-{version}.cdx.json")
        return put(built, target)


def export(checkout: Path, sources: Path) -> None:
    """Write the files of the last commit, and no others, with the modes that git has."""
    packed = sources.with_suffix(".tar")
    packed.write_bytes(_run("git", "archive", "--format=tar", "HEAD", cwd=checkout))
    with tarfile.open(packed) as files:
        files.extractall(sources, filter="data")


def environment(folder: Path, *packages: str) -> Path:
    """Make a virtual environment with these packages, as `pip install` takes them; return its folder of programs."""
    venv.create(folder, symlinks=os.name != "nt")
    _run(sys.executable, "-m", "pip", "--python", folder, "install", "--quiet", "--no-compile", *packages)
    return folder / ("Scripts" if os.name == "nt" else "bin")


def sbom(programs: Path, sources: Path, times: Mapping[str, str]) -> str:
    """The SBOM of the locked packages and of what needs them, as JSON; `times` are environment variables."""
    command = ("-m", "cyclonedx_py", "requirements", "--output-reproducible", "--mc-type=library", "--short-PURLs")
    lock = sources / LOCK
    # Of the graph, of which it warns, this generator reads nothing from a lock.
    said = ("-W", "ignore::UserWarning", *command, "--pyproject", sources / "pyproject.toml", lock)
    made: dict[str, Any] = json.loads(_run(programs / "python", *said, variables=times))
    needed = needs(lock.read_text(encoding="utf-8"))
    names = {component["bom-ref"]: component["name"] for component in made["components"]}
    refs: dict[str, list[str]] = {}
    for ref, name in names.items():
        refs.setdefault(name, []).append(ref)
    by_whom = {ROOT_COMPONENT: "replan", **names}
    made["dependencies"] = [
        {"ref": ref, "dependsOn": sorted(one for name in needed if whom in needed[name] for one in refs[name])}
        for ref, whom in by_whom.items()
    ]
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def needs(lock: str) -> Mapping[str, set[str]]:
    """For each package of a lock, the names of what needs it: other packages, or the project that the lock is for."""
    found: dict[str, set[str]] = {}
    for block in re.split(r"^(?=\S+==)", lock, flags=re.MULTILINE)[1:]:
        whom = re.findall(r"^    #(?: via)? +(?!-[cr] )([\w.-]+)", block, flags=re.MULTILINE)
        found.setdefault(block.partition("==")[0], set()).update({*whom} - {"via"})
    return found


def check(wheel: Path, version: str, sources: Path, folder: Path) -> None:
    """Install a wheel into a new environment in `folder`, as users do, and run the installed `replan --version`.

    Raises:
        Stopped: the command prints another version, or CHANGELOG.md has no heading of this one.
    """
    if f"\n## {version}\n" not in (sources / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise Stopped(f"CHANGELOG.md has no heading `## {version}`: write what is new in it.")
    programs = environment(folder, str(wheel))
    for words in (["--version"], ["worker", "--version"]):
        if (said := _run(programs / "replan", *words).decode()) != f"Replan {version}\n":
            raise Stopped(f"`replan {' '.join(words)}` of {wheel.name} says {said!r}: it must be {version}.")


def put(built: Path, target: Path) -> str:
    """Copy what was built, and its SHA-256 sums, to a folder in place of an earlier build; return the sums."""
    files = sorted(built.iterdir())
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    target.mkdir(parents=True, exist_ok=True)
    for old in (*target.glob("replan-*"), *target.glob(SUMS)):
        old.unlink()
    for file in files:
        shutil.copyfile(file, target / file.name)
    (target / SUMS).write_text(sums, encoding="utf-8")
    return sums.rstrip()


def _run(*command: str | Path, cwd: Path | None = None, variables: Mapping[str, str] | None = None) -> bytes:
    """Run a program, and return what it printed. Raises Stopped if it failed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **(variables or {})}, capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise Stopped(f"`{' '.join(words)}` ended with {done.returncode}: correct what it says, then again.\n{said}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
