"""A backup, made and put back by the very lines of docs/operations.md."""

import re

import pytest

from tests.containers.composed import Composed
from tests.processes import ROOT

pytestmark = pytest.mark.timeout(900)


def blocks(heading: str) -> list[list[str]]:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition(f"\n{heading}\n")[2].partition("\n#")[0]
    return [block.splitlines() for block in re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)]


async def test_a_backup_brings_everything_back(composed: Composed) -> None:
    [backup, restore] = blocks("### Backups")
    before = await composed.starter("--id", "backed-up", "--task", "book a slot for the team at 16:00")
    for command in backup:
        await composed.line(command)
    await composed.compose("down", "--volumes")
    await composed.up()
    for command in restore:
        await composed.line(command)
    await composed.is_healthy()
    shown = await composed.starter("effects", "backed-up", "--json")
    after = await composed.starter("--id", "after-the-backup", "--task", "book a slot for the team at 16:30")

    assert before.returncode == 0, before.stdout + before.stderr
    assert shown.returncode == 0 and "book_slot" in shown.stdout, shown.stdout + shown.stderr
    assert after.returncode == 0, after.stdout + after.stderr
