"""What the README promises is what happens: its commands, its tool, its plan."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.dev_server import free_port
from tests.processes import ROOT, Processes

README, START = ((ROOT / name).read_text() for name in ("README.md", "docs/start-task.md"))
"""The README, and its page for those who begin with nothing."""


def block(language: str, containing: str, page: str = README) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)
    return next(str(text) for text in blocks if containing in text)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("by-hand")
    (folder / "my_tools.py").write_text(block("python", "get_price", START))
    processes = Processes(f"localhost:{free_port()}", folder)
    with processes.worker("--dev", "--tools", str(folder / "my_tools.py")):
        yield processes


def test_the_task_meets_a_changed_world_and_replans_once(by_hand: Processes) -> None:
    """With 14:00 taken. A replan is provably not a retry: no later step makes the call that was refused."""
    [task] = re.findall(r'starter.py --task "(book .*)"', README)
    done = by_hand.starter("--task", task, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    [refused] = [step for step in document["steps"] if step["status"] == "failed"]
    others = [step for step in document["steps"] if step is not refused]

    assert (document["status"], document["replans"]) == ("completed", 1)
    assert (refused["attempts"], refused["fault"]["code"]) == (1, "conflict")
    assert all((step["kind"], step["args"]) != (refused["kind"], refused["args"]) for step in others)


def test_a_hand_written_plan_runs_and_the_tool_is_accepted(by_hand: Processes) -> None:
    checked = by_hand.asked("--check", "--tools", str(by_hand.folder / "my_tools.py"))
    file = by_hand.folder / "plan.json"
    file.write_text(block("json", "steps", START))
    done = by_hand.starter("--plan", str(file), "--json")

    assert done.returncode == 0, done.stdout + done.stderr
    assert [step["status"] for step in json.loads(done.stdout)["steps"]] == ["completed", "completed"]
    assert (checked.returncode, "get_price" in checked.stdout) == (0, True), checked.stderr


@pytest.mark.timeout(240)
def test_make_demo_shows_a_replan_and_leaves_nothing_behind(tmp_path: Path) -> None:
    here = {**os.environ, "TMPDIR": str(tmp_path)}  # so that what is left behind is known from other demos
    done = subprocess.run(["make", "demo"], cwd=ROOT, env=here, capture_output=True, text=True, timeout=200)
    left = subprocess.run(["pgrep", "-f", f"{tmp_path}/replan-demo-"], capture_output=True, text=True).stdout

    assert done.returncode == 0, done.stdout + done.stderr
    assert all(words in done.stdout for words in ("Plan 1", "Plan 2  because book was rejected", "Completed in"))
    assert left == ""


def test_the_tool_of_the_readme_is_that_of_the_example() -> None:
    example = {line.split("  #")[0].strip() for line in (ROOT / "examples" / "cards.py").read_text().splitlines()}
    shown = {line.split("  #")[0].strip() for line in block("python", "find_charge").splitlines()}

    assert {"async def find_charge(args: Charge) -> Charge:", "return args"} <= shown
    assert shown - example == set()


def test_every_command_of_the_readme_exists() -> None:
    targets = set(re.findall(r"^make (\w+)", README, flags=re.MULTILINE))
    known = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))

    assert targets
    assert targets <= known
