"""Saved histories replay for ever, in a fresh process, without store or server; and a changed workflow is noticed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HISTORIES = sorted((ROOT / "tests" / "histories").glob("*.json"))


def replay(*options: str) -> subprocess.CompletedProcess[str]:
    """Replay all saved histories in a process of its own."""
    command = [sys.executable, "-m", "tests.replay", *options, *map(str, HISTORIES)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_saved_history_replays() -> None:
    """No change to the workflow may break a history that was saved before it."""
    done = replay()

    assert (done.returncode, done.stdout.count(": ok")) == (0, len(HISTORIES)), done.stdout + done.stderr
    assert len(HISTORIES) >= 10


def test_a_patched_change_has_a_history_of_each_behaviour() -> None:
    """CONTRIBUTING shows the code as it is, and names the histories before and after the change."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    source = (ROOT / "workflows" / "scheduling.py").read_text()
    before, after = re.findall(r"`tests/histories/(\w+\.json)`", page)
    marked = {file.name for file in HISTORIES if "core_patch" in file.read_text()}

    assert [part for part in code.split("\n\n\n") if part.strip() not in source] == []
    assert (before in marked, after in marked, {file.name for file in HISTORIES} >= {before, after}) == (
        False,
        True,
        True,
    )


def test_users_replay_their_tasks_as_the_page_says(tmp_path: Path) -> None:
    """The test in docs/operations.md passes on histories that replay, and fails on one that does not."""
    page = (ROOT / "docs" / "operations.md").read_text()
    [source] = re.findall(r"```python\n(# test_histories.py\n.*?)```", page, flags=re.DOTALL)
    (tmp_path / "test_histories.py").write_text(source)
    (tmp_path / "histories").mkdir()
    shutil.copy(HISTORIES[0].with_name("straight.json"), tmp_path / "histories")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    passed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    [history] = (tmp_path / "histories").iterdir()
    history.write_text(history.read_text().replace('"plan"', '"another"'))
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (passed.returncode, failed.returncode) == (0, 1), passed.stdout + failed.stdout
    assert "Nondeterminism" in failed.stdout


def test_a_changed_workflow_fails_to_replay() -> None:
    """A workflow with one more command fails on every history: the replay above can fail."""
    done = replay("--changed")

    assert done.returncode == 1
    assert ": ok" not in done.stdout
