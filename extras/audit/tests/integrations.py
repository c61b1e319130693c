"""Runs the agents of programs/ against a server, with planted faults: `python -m extras.audit.tests.integrations`.

It writes their histories to histories.zip, which the quick tests audit. `NAME...` runs only these agents.
"""

import asyncio
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory

from evals.frameworks.environments import NoEnvironment, python_of
from extras.audit.findings import findings_in
from extras.audit.record import Recording
from extras.audit.tests.shop import Shop, shop
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from tests.processes import ROOT

PROGRAMS = Path(__file__).with_name("programs")
SAVED = Path(__file__).with_name("histories.zip")
SECONDS = 120.0
AGAIN, NOTHING = "ran_again_after_unknown_outcome", "retried_for_nothing"
LIMIT, NO_PLAN = "limit_not_waited_for", "no_new_plan"

EXPECTED: Mapping[str, Mapping[str, Collection[str]]] = {
    "pydantic_ai": {
        "clean": (),
        "lost": (AGAIN,),
        "killed": (AGAIN,),
        "conflict": (NOTHING, NO_PLAN),
        "unauthorized": (NOTHING,),
        "limited": (LIMIT,),
        "model_key": (),  # it raises these as non-retryable
        "model_quota": (),
    },
    "openai_agents": {
        "clean": (),
        "lost": (AGAIN,),
        "killed": (AGAIN,),
        "conflict": (NOTHING, NO_PLAN),
        "unauthorized": (NOTHING,),
        "limited": (LIMIT,),
        "model_key": (),  # it raises this as non-retryable
        "model_quota": (NOTHING,),
    },
    "mcp": {
        "clean": (),
        "lost": (AGAIN,),
        "killed": (AGAIN,),
        "model_key": (NOTHING,),
        "model_quota": (NOTHING,),
    },
    "home_made": {
        "clean": (),
        "lost": (AGAIN,),
        "killed": (AGAIN,),
        "conflict": (NOTHING,),
        "unauthorized": (NOTHING,),
        "limited": (LIMIT,),
        "model_key": (NOTHING,),
        "model_quota": (LIMIT,),  # its client keeps the status of an answer, not the code in it
    },
}
"""By agent and scenario (shop.py), the findings that an audit of the history must make, and no others."""
EFFECTS = {"clean": 1, "lost": 2, "killed": 2}
"""How often the shop charged, by scenario: what these findings are about did happen."""


class Run(NamedTuple):
    """What a run of an agent left."""

    history: WorkflowHistory
    charges: int


def requirements(program: str) -> Path:
    """The file with what the environment of an agent needs."""
    return PROGRAMS / f"{program.replace('_', '-')}-requirements.txt"


async def python_for(program: str) -> Path:
    """The Python of an agent; where it cannot be made, the test is skipped."""
    try:
        return await python_of(requirements(program), print)
    except NoEnvironment as error:
        pytest.skip(f"The packages of {program} cannot be installed: {error}")


def found_in(events: Iterable[HistoryEvent]) -> set[str]:
    """The names of what an audit finds in a history."""
    recording = Recording("history")
    for event in events:
        recording.add(event)
    return {finding.name for finding, _ in findings_in(recording.record)}


@asynccontextmanager
async def server() -> AsyncIterator[Client]:
    """A client of a development server of its own."""
    with tempfile.TemporaryDirectory() as folder:
        spec = ServerSpec(Path(folder), port=free_port(), ui_port=free_port(), attributes={})
        async with DevServer(spec, await find_cli(lambda _: None)) as running:
            yield await Client.connect(running.address)


async def run(client: Client, python: Path, program: str, scenario: str, file: Path | None = None) -> Run:
    """Run an agent to its end; in the scenario `killed` its worker is killed once, while the shop charges.

    `file` takes the place of the agent's own program.
    """
    with shop() as opened:
        id = f"{program}-{scenario}" + (f"-{uuid4().hex[:8]}" if file else "")
        address = client.service_client.config.target_host
        file = file or PROGRAMS / f"{program}_agent.py"
        command = [str(python), str(file), address, f"{opened.url}/{scenario}", id]
        if scenario == "killed":
            await _killed(command, opened)
        worker = await _started(command)
        try:
            await asyncio.wait_for(worker.wait(), SECONDS)
        finally:
            if worker.returncode is None:
                worker.kill()
        history = await client.get_workflow_handle(id).fetch_history()
        return Run(history, opened.charges[scenario])


async def _killed(command: list[str], opened: Shop) -> None:
    worker = await _started(command)
    await asyncio.wait_for(asyncio.to_thread(opened.is_waiting.wait), SECONDS)
    worker.kill()
    await worker.wait()


async def _started(command: list[str]) -> asyncio.subprocess.Process:
    nowhere, here = asyncio.subprocess.DEVNULL, {**os.environ, "PYTHONPATH": str(ROOT)}
    return await asyncio.create_subprocess_exec(*command, stdout=nowhere, stderr=nowhere, env=here)


def portable(text: str) -> str:
    """A history without the names of this machine: the folders of tracebacks, and what a worker calls itself."""
    text = re.sub(r'File \\"[^"\\]*/((?:site|dist)-packages|python3\.\d+)/', r'File \\"/lib/\1/', text)
    text = re.sub(r'File \\"[^"\\]*/extras/audit/tests/programs/', r'File \\"/app/', text)
    return re.sub(r'"identity": "[^"]*"', '"identity": "worker"', text)


async def main(programs: Iterable[str]) -> None:
    found = dict[str, str]()
    if SAVED.exists():
        with zipfile.ZipFile(SAVED) as saved:
            found = {name: saved.read(name).decode() for name in saved.namelist()}
    async with server() as client:
        for program in programs:
            python = await python_of(requirements(program), print)
            for scenario in EXPECTED[program]:
                done = await run(client, python, program, scenario)
                print(f"{program}-{scenario}: {len(done.history.events)} events, {done.charges} charges")
                found[f"{program}-{scenario}.json"] = portable(done.history.to_json())
    with zipfile.ZipFile(SAVED, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as saving:
        for name, text in sorted(found.items()):
            saving.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or EXPECTED))
