"""A worker whose store is on PostgreSQL, as a user starts it."""

import asyncio
import json
from pathlib import Path

import pytest

from evals.fakes.postgresql import Cluster
from runtime.dev_server import DevServer
from tests.processes import Processes

PLAN = {"steps": [{"id": "sign", "kind": "sign_guestbook", "args": {"name": "Ada", "message": "Good."}}]}


@pytest.fixture
def url(postgresql: Cluster) -> str:
    return postgresql.url(postgresql.create())


@pytest.fixture
def commands(server: DevServer, tmp_path: Path, url: str) -> Processes:
    return Processes(server.address, tmp_path, {"REPLAN_STORE": url})


def test_tasks_run_and_their_effects_are_there(commands: Processes, url: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    with commands.worker("--queue", "pg", "--tools", "examples/guestbook.py"):
        done = commands.starter("start", "--queue", "pg", "--plan", str(tmp_path / "plan.json"), "--id", "on-pg")
        doctor = commands.starter("doctor", "--queue", "pg")

    assert done.returncode == 0, done.stderr
    assert "postgresql+psycopg://replan:***@127.0.0.1" in doctor.stdout
    log = (tmp_path / "worker.log").read_text()
    assert "sk-secret" not in done.stdout + doctor.stdout + log and "alembic" not in log


@pytest.mark.full
async def test_a_task_waits_for_a_database_that_stopped(
    commands: Processes, postgresql: Cluster, tmp_path: Path
) -> None:
    """The step is not lost and costs no attempt; worker and starter are those of before."""
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    with commands.worker("--queue", "pg", "--tools", "examples/guestbook.py"):
        await postgresql.stop()
        try:
            words = ("start", "--queue", "pg", "--plan", str(tmp_path / "plan.json"), "--id", "on-stopped-pg")
            commands.starter(*words, "--detach")
            while '"code": "store_unavailable"' not in (tmp_path / "worker.log").read_text():
                await asyncio.sleep(0.1)
        finally:
            await postgresql.start()
        shown = commands.starter("show", "on-stopped-pg", "--follow", "--json", "--queue", "pg")

    ended = json.loads(shown.stdout)
    assert (ended["status"], ended["steps"][0]["attempts"]) == ("completed", 1)
