"""`benchmarks.flames`: what is counted of the samples, and that the picture is small."""

from pathlib import Path

import pytest

RUN = "Handle._run (asyncio/events.py:78)"
SAMPLES = [
    f"thread (8): MainThread;run (asyncio/x.py:1);{RUN};work (workflows/agent.py:5);show (workflows/agent.py:9) 3",
    f"thread (8): MainThread;{RUN};work (workflows/agent.py:7) 1",
    f"thread (9): tools;{RUN};call (activities/boundary/boundary.py:2) 2",
    "thread (8): MainThread;run (asyncio/runners.py:160) 5",
    f"thread (10): another;{RUN};work (workflows/agent.py:5) 7",
]


def test_only_what_an_event_loop_of_a_worker_runs_is_counted(tmp_path: Path) -> None:
    """By function, whatever the line; the picture fits the documentation."""
    pytest.importorskip("matplotlib")
    from benchmarks import flames

    tree = flames.read(SAMPLES)
    work = tree.called["the worker's loop"].called["work (workflows/agent.py)"]
    flames.draw(tree, tmp_path / "worker.png")

    assert (tree.samples, work.samples, work.called["show (workflows/agent.py)"].samples) == (6, 4, 3)
    assert 0 < (tmp_path / "worker.png").stat().st_size < 150_000
