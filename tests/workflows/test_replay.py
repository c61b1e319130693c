"""Saved histories replay for ever, in a fresh process, without store or server; and a changed workflow is noticed."""

import re

from tests.console.replaying import BESIDE_TASKS, HISTORIES, replay, replay_changed
from tests.processes import ROOT


def test_every_saved_history_replays() -> None:
    """No change to the workflow may break a history that was saved before it."""
    done = replay(*HISTORIES, *BESIDE_TASKS)
    saved = len(HISTORIES) + len(BESIDE_TASKS)

    assert (done.returncode, done.stdout.count(": ok")) == (0, saved), done.stdout + done.stderr
    assert len(HISTORIES) >= 10 and len(BESIDE_TASKS) >= 2


def test_a_patched_change_has_a_history_of_each_behaviour() -> None:
    """CONTRIBUTING shows the code as it is, and names the histories before and after the change."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    source = (ROOT / "workflows" / "calls" / "scheduling.py").read_text()
    before, after = re.findall(r"`tests/histories/(\w+\.json)`", page)
    marked = {file.name for file in HISTORIES if "core_patch" in file.read_text()}

    assert [part for part in code.split("\n\n\n") if part.strip() not in source] == []
    assert (before in marked, after in marked, {file.name for file in HISTORIES} >= {before, after}) == (
        False,
        True,
        True,
    )


def test_a_changed_workflow_fails_to_replay() -> None:
    """A workflow with one more command fails on every history: the replay above can fail."""
    done = replay_changed(*HISTORIES)

    assert done.returncode == 1
    assert ": ok" not in done.stdout
