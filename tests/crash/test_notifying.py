"""A worker that dies or stops while it tells a receiver: the receiver is told again, by the next worker."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from runtime.dev_server import DevServer
from tests.activities.test_notification import SLEEPS, runs, until as happened
from tests.gate import sampled
from tests.processes import Processes
from tests.receiving import receiver

ASKS = ("--task", "book a slot for the team at 14:00", "--on-escalation", "wait", "--replans", "0", "--detach")


@pytest.mark.full
async def test_a_worker_that_is_killed_meanwhile_is_followed_by_another(server: DevServer, tmp_path: Path) -> None:
    """The second post has the id of the first."""
    processes = Processes(server.address, tmp_path)
    queue = ("--queue", tmp_path.name)
    async with receiver(None, 204) as mailbox:
        with processes.worker("--desk", "--notify", mailbox.url, *queue) as worker:
            began = processes.starter(*ASKS, *queue, "--json")
            await mailbox.has(1)
            worker.kill()
        with processes.worker("--desk", "--notify", mailbox.url, *queue):
            await mailbox.has(2)
            id = json.loads(began.stdout)["task_id"]
            aborted = processes.starter("answer", id, "abort", *queue)
            await mailbox.has(3)

    assert aborted.returncode == 0, aborted.stderr
    assert mailbox.types == ["request.opened r1", "request.opened r1", "request.closed r1"]
    assert mailbox.posted[0] == mailbox.posted[1]
    assert "of-the-team" not in (tmp_path / "worker.log").read_text()


@pytest.mark.full
async def test_a_worker_that_stops_takes_its_command_with_it(server: DevServer, tmp_path: Path) -> None:
    """And the children of the command."""
    (file := tmp_path / "sleeps.py").write_text(SLEEPS.format(folder=str(tmp_path)))
    processes, pids = Processes(server.address, tmp_path), tmp_path / "pids"
    queue = ("--queue", tmp_path.name)
    with processes.worker("--desk", "--notify", shlex.join([sys.executable, str(file)]), *queue):
        began = processes.starter(*ASKS, *queue, "--json")
        await happened(lambda: pids.exists() and pids.read_text().endswith("end"))
    left = [pid for pid in map(int, pids.read_text().split()[:2]) if runs(pid)]
    ended = processes.starter("show", json.loads(began.stdout)["task_id"], *queue, "--json")

    assert left == []
    assert ended.returncode in (0, 3, 6)


CHECKED = {
    "a URL": ("https://hooks.example/hidden", 0, "Requests to people are told to https://hooks.example.\n"),
    "no command": ("page-on-call hidden", 2, "--notify: there is no command 'page-on-call': give a URL that begins"),
}


@pytest.mark.parametrize(("given", "exit", "says"), sampled(CHECKED, "no command"))
def test_check_says_who_is_told(tmp_path: Path, given: str, exit: int, says: str) -> None:
    """Or what is wrong, without a server; the environment names it as well as the option."""
    by_option = Processes("localhost:1", tmp_path).asked("--check", "--notify", given)
    other = Processes("localhost:1", tmp_path, {"REPLAN_NOTIFY": given})
    by_variable = other.asked("--check")

    for done in (by_option, by_variable):
        assert done.returncode == exit
        assert (done.stdout or done.stderr).startswith(says)
        assert "hidden" not in done.stdout + done.stderr
