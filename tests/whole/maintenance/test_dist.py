"""What `make dist` builds: the same bytes from the same commit, with the list of its packages, and checked."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from maintenance import dist
from tests.installation import VERSION, build, environment
from tests.processes import ROOT
from tests.whole.deploy.test_locks import locked

LOCK = """# made by a tool
a==1.0 ; python_version < '3.12' \\
    --hash=sha256:00
    # via
    #   -c requirements/dev.txt
    #   b
    #   replan (pyproject.toml)
a==2.0 ; python_version >= '3.12' \\
    --hash=sha256:01
    # via
    #   b
b-c.d==3 \\
    --hash=sha256:02
    # via a
b==1 \\
    --hash=sha256:03
    # via -r requirements/build.in
"""


def test_a_lock_says_what_needs_a_package() -> None:
    assert dict(dist.needs(LOCK)) == {"a": {"b", "replan"}, "b-c.d": {"a"}, "b": set()}


def test_an_earlier_build_is_replaced(tmp_path: Path) -> None:
    built, target = tmp_path / "built", tmp_path / "dist"
    for file in (built / "replan-2.whl", target / "replan-1.whl", target / "notes.txt"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(file.name)
    sums = dist.put(built, target)

    assert sums == f"{hashlib.sha256(b'replan-2.whl').hexdigest()}  replan-2.whl"
    assert {file.name for file in target.iterdir()} == {"replan-2.whl", "notes.txt", "SHA256SUMS"}
    assert (target / "SHA256SUMS").read_text() == f"{sums}\n"


def test_the_version_is_the_same_everywhere() -> None:
    files = ("CHANGELOG.md", "docker-compose.yml", "docs/operations.md")
    changelog, *others = ((ROOT / name).read_text(encoding="utf-8") for name in files)
    newest = re.findall(r"^## (.*)$", changelog, flags=re.MULTILINE)[0]

    assert newest in (VERSION, "Unreleased")
    assert {*re.findall(r"\breplan:(\d[\w.]*)", "".join(others))} == {VERSION}


def git(folder: Path, *words: str) -> bytes:
    who = ("-c", "user.name=Tester", "-c", "user.email=tester@example.com")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True).stdout


def committed(folder: Path) -> Path:
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Release")
    return folder


def run(checkout: Path, target: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "maintenance.dist", str(target)]
    given = {**os.environ, **environment}
    return subprocess.run(words, cwd=checkout, env=given, capture_output=True, text=True, check=False)


def test_what_is_not_committed_is_not_built(tmp_path: Path) -> None:
    checkout = committed(tmp_path / "checkout")
    (checkout / "worker.py").write_text("# changed\n")
    done = run(checkout, tmp_path / "dist")

    assert (done.returncode, done.stdout) == (1, "")
    assert "commit or stash it.\n M worker.py" in done.stderr
    assert not (tmp_path / "dist").exists()


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    first = committed(tmp_path_factory.mktemp("first"))
    other = tmp_path_factory.mktemp("other") / "a" / "deep" / "folder"
    git(ROOT, "clone", "--quiet", str(first), str(other))
    made = list[Path]()
    for checkout, mask, zone, seed in ((first, 0o022, "UTC", "1"), (other, 0o077, "Asia/Tokyo", "2")):
        made.append(checkout / "dist")
        before = os.umask(mask)
        try:
            done = run(checkout, made[-1], TZ=zone, PYTHONHASHSEED=seed)
        finally:
            os.umask(before)
        assert done.returncode == 0, done.stderr
    return made


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_same_commit_gives_the_same_bytes(twice: list[Path]) -> None:
    one, other = ({file.name: file.read_bytes() for file in folder.iterdir()} for folder in twice)
    lines = (line.split("  ") for line in one["SHA256SUMS"].decode().splitlines())
    sums = {name: digest for digest, name in lines}

    assert {*sums} == {f"replan-{VERSION}{end}" for end in ("-py3-none-any.whl", ".tar.gz", ".cdx.json")}
    assert [name for name in one if one[name] != other[name]] == []
    assert {name: hashlib.sha256(one[name]).hexdigest() for name in sums} == sums
    assert set(sums) == {*one} - {"SHA256SUMS"}


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_archive_of_sources_builds_the_released_wheel(twice: list[Path], tmp_path: Path) -> None:
    """Byte for byte, without git: it has the list of packages, and every time is that of the commit."""
    [archive], [wheel] = twice[0].glob("*.tar.gz"), twice[0].glob("*.whl")
    with tarfile.open(archive) as sources:
        sources.extractall(tmp_path / "sources", filter="data")
        times = {member.mtime for member in sources.getmembers()}
    [source] = (tmp_path / "sources").iterdir()
    [time] = times
    hatch = environment(tmp_path / "hatch", "--require-hashes", "--requirement", str(ROOT / "requirements/build.txt"))
    [again] = build(hatch, tmp_path / "again", "--target", "wheel", source=source, SOURCE_DATE_EPOCH=str(int(time)))

    assert again.read_bytes() == wheel.read_bytes()


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_wheel_lists_its_packages(twice: list[Path]) -> None:
    [wheel], [beside] = twice[0].glob("*.whl"), twice[0].glob("*.cdx.json")
    with zipfile.ZipFile(wheel) as files:
        [inside] = [files.read(name) for name in files.namelist() if ".dist-info/sboms/" in name]
    listed = json.loads(inside)
    needed = {ref for row in listed["dependencies"] for ref in row["dependsOn"]}
    versions = dict[str, set[str]]()
    for one in listed["components"]:
        versions.setdefault(one["name"], set()).add(one["version"])

    assert inside == beside.read_bytes()
    assert (listed["bomFormat"], listed["metadata"]["component"]["name"]) == ("CycloneDX", "replan")
    assert versions == locked("runtime")
    assert [one["name"] for one in listed["components"] if one["bom-ref"] not in needed] == []


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_an_index_shows_the_readme_without_links_into_a_checkout(twice: list[Path]) -> None:
    [wheel] = twice[0].glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        [metadata] = [files.read(name).decode() for name in files.namelist() if name.endswith(".dist-info/METADATA")]
    head, _, shown = metadata.partition("\n\n")

    assert re.findall(r"\]\((?!https://)[^)]*\)", shown) == []
    assert "](https://temporal.io)" in shown and "# Replan\n" in shown
    assert {"Classifier: Typing :: Typed", "Requires-Python: >=3.11", "License-File: LICENSE"} <= {*head.splitlines()}
