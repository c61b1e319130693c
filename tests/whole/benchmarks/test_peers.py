"""The benchmark beside others: what its service does to an arm, and what its table says."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from benchmarks.peers.__main__ import ARMS, HERE, WORKS, Run, RunFailed, page
from benchmarks.peers.service import Service


async def asked(service: Service, *paths: str) -> list[bool]:
    """Whether the service answers each request with 200."""
    found = list[bool]()
    for path in paths:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(f"POST /{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        found.append(b" 200 " in (await reader.read())[:20])
        writer.close()
    return found


async def test_the_service_fails_counts_and_kills_once() -> None:
    caller = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    service = Service(fails=2, kill_at=2)
    async with service.serving():
        first = await asked(service, f"begin/{caller.pid}", "step/t/0", "step/t/0", "step/t/0", "step/t/1")
        ended = await caller.wait()
        again = await asked(service, "step/t/1", "step/t/2", "end")

    assert first == [True, False, False, True, False] and all(again) and ended == -signal.SIGKILL
    assert service.steps == {"t/0": 1, "t/1": 2, "t/2": 1}
    assert service.begun <= service.first <= service.killed <= service.ended


def test_the_table_marks_the_best_value_and_says_how_often_bare_temporal_it_is() -> None:
    table = page({"temporal": {"chain": [200.0, 100.0, 300.0]}, "dbos": {"chain": [100.0]}, "langgraph": {}})

    assert "| a chain of 20 steps, ms | **200 (100-300)** | **100**, 0.50 | - |" in table


def test_each_arm_has_a_program() -> None:
    assert {path.stem.removesuffix("_arm") for path in HERE.glob("*_arm.py")} == {*ARMS}


async def test_an_arm_that_ends_before_its_work_is_done_has_failed(tmp_path: Path) -> None:
    run = Run("dbos", Path(sys.executable), tmp_path / "chain", None)  # without its packages
    with pytest.raises(RunFailed, match=r"(?s)dbos ended with 1: .*No module named 'dbos'"):
        await run.play(WORKS["chain"])


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_an_arm_that_is_killed_goes_on(tmp_path: Path) -> None:
    """The function floor, which needs no server."""
    run = Run("replan_functions", Path(sys.executable), tmp_path / "killed", None)
    await run.play(WORKS["killed"])
    found = dict(run.figures("killed"))

    assert found["resumed"] > 0 and found["again"] == 1
