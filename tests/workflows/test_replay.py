"""Saved histories replay for ever, in a fresh process, without store or server; and a changed workflow is noticed."""

from tests.console.replaying import BESIDE_TASKS, HISTORIES, replay, replay_changed


def test_every_saved_history_replays() -> None:
    """No change to the workflow may break a history that was saved before it."""
    done = replay(*HISTORIES, *BESIDE_TASKS)
    saved = len(HISTORIES) + len(BESIDE_TASKS)

    assert (done.returncode, done.stdout.count(": ok")) == (0, saved), done.stdout + done.stderr
    assert len(HISTORIES) >= 10 and len(BESIDE_TASKS) >= 2


def test_a_changed_workflow_fails_to_replay() -> None:
    """A workflow with one more command fails on every history: the replay above can fail."""
    done = replay_changed(*HISTORIES)

    assert done.returncode == 1
    assert ": ok" not in done.stdout
