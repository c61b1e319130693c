"""Two benchmarks on the stack: their figures for production settings stand beside the development server's."""

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import URL

from tests.processes import ROOT
from tests.stack.stack import Stack
from tests.whole.deploy.composition import services

ROUNDS = 2
TASKS = os.environ.get("CROWD_TASKS", "200")
"""How many tasks the crowd has; the figures in docs/performance.md are of 2000, which take many minutes."""


async def show(module: str, words: list[str], figures: list[str], settings: Mapping[str, str]) -> None:
    if importlib.util.find_spec("benchmarks") is None:
        pytest.skip("there is no lab/benchmarks/ in this checkout")
    command = [sys.executable, "-m", module, *words]
    environment = {**os.environ, "COLUMNS": "120", **settings}
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    figures.extend(done.stdout.splitlines())

    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(600)
async def test_the_steps_benchmark(stack: Stack, figures: list[str], tmp_path: Path) -> None:
    words = ["--address", stack.places.address, "--rounds", str(ROUNDS), "--json", str(tmp_path / "steps.json")]
    await show("benchmarks.steps", words, figures, {})


@pytest.fixture
def store(stack: Stack) -> str:
    given = services()["postgresql"].environment
    user, password = given["POSTGRES_USER"], given["POSTGRES_PASSWORD"]
    admin = URL.create("postgresql", user, password, "127.0.0.1", stack.places.database, "postgres")
    with psycopg.connect(admin.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute("CREATE DATABASE crowd")
    return admin.set(drivername="postgresql+psycopg", database="crowd").render_as_string(hide_password=False)


@pytest.mark.timeout(3600)
async def test_the_crowd_benchmark(stack: Stack, store: str, figures: list[str]) -> None:
    words = ["--address", stack.places.address, "--tasks", TASKS]
    await show("benchmarks.crowd", words, figures, {"REPLAN_STORE": store})
