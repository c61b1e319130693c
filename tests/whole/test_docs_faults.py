"""What docs/faults.md shows is what happens: each recipe runs with the real package, and retries what can succeed."""

import asyncio
import inspect
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from activities.borders.meaning import Next, follows
from evals.frameworks.environments import NoEnvironment, python_of
from replan import FaultsPlugin
from replan.faults import Applied, classify
from replan.faults_plugin import EFFECTS
from tests import documentation
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
FILES = documentation.files(PAGE)
COMPANIONS = ROOT / "tests" / "faults" / "companions"
SECONDS = 600.0
ENDINGS = {
    "get_price/404": ("HTTPStatusError", 1),
    "get_price/402": ("HTTPStatusError", 1),
    "get_price/sold_out": ("ShopError", 1),
    "get_price/503-200": ("done", 2),
    "get_price/busy-200": ("done", 2),
    "get_price/429-200": ("done", 2),
    "make_charge/409": ("HTTPStatusError", 1),
    "make_charge/503-200": ("HTTPStatusError", 1),
    "make_charge/lost-200": ("RemoteProtocolError", 1),
    "make_charge/429-200": ("done", 2),
}
"""By scenario, how the call ends, and how many attempts are made."""
HEEDS_THE_WAIT = ("with_loop", "with_tenacity")
"""The recipes that wait as long as Retry-After says: a second."""


class Service:
    def __init__(self) -> None:
        self.url = ""
        self.times = dict[str, list[float]]()
        """When requests came, by scenario."""


class Handler(BaseHTTPRequestHandler):
    def __init__(self, service: Service, *args: Any) -> None:
        self.service = service
        super().__init__(*args)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.strip("/")
        came = self.service.times.setdefault(path, [])
        came.append(time.monotonic())
        words = path.rpartition("/")[2].split("-")
        word = words[min(len(came), len(words)) - 1]
        if word == "lost":
            return
        self.send_response(int(word) if word.isdecimal() else 200)
        if word == "429":
            self.send_header("retry-after", "1")
        self.end_headers()
        self.wfile.write(b"done" if word.isdecimal() else word.replace("_", " ").encode())


@contextmanager
def serving() -> Iterator[Service]:
    service = Service()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, service))
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()


async def python_for(package: str) -> Path:
    """The Python that has a package: this one, or that of an environment for it alone. Skips if there is none."""
    if find_spec(package):
        return Path(sys.executable)
    wanted = COMPANIONS / f"{package}-requirements.txt"
    if not wanted.exists():
        pytest.skip(f"{package} is not installed: it is in the extra `dev`")
    try:
        return await python_of(wanted, print)
    except NoEnvironment as error:
        pytest.skip(f"{package} cannot be installed: {error}")


def test_the_page_names_the_versions_that_were_tried_and_each_option_and_effect() -> None:
    """Those of the environments, and of the lock file; with what follows an unknown outcome of each effect."""
    pinned = [COMPANIONS / f"{name}-requirements.txt" for name in ("langgraph", "dbos", "prefect")]
    lines = [line for file in (*pinned, ROOT / "requirements" / "dev.txt") for line in file.read_text().splitlines()]
    versions = dict(re.findall(r"^(langgraph|dbos|prefect|tenacity)==(\S+)", "\n".join(lines), flags=re.MULTILINE))
    told = re.findall(r"^### (\w+)\n\nTried with (\S+)\. ", PAGE, re.MULTILINE)
    tables, doubtful = documentation.tables(PAGE), classify(TimeoutError())
    words = {Next.RETRY: "retried", Next.ASK: "not retried"}

    assert {name.lower(): version for name, version in told} == versions
    assert {row[0].partition("=")[0] for row in tables["option"]} == {*inspect.signature(FaultsPlugin).parameters}
    assert doubtful.applied is Applied.UNKNOWN
    assert {row[0]: row[2] for row in tables["effect"]} == {
        effect: words[follows(doubtful, effect)] for effect in EFFECTS
    }


@pytest.mark.parametrize(
    ("recipe", "package"),
    [
        ("with_loop", "httpx2"),
        ("with_tenacity", "tenacity"),
        *(
            pytest.param(f"with_{package}", package, marks=[pytest.mark.full, pytest.mark.timeout(900)])
            for package in ("langgraph", "dbos", "prefect")
        ),
    ],
)
async def test_a_recipe_makes_the_attempts_that_can_help(recipe: str, package: str, tmp_path: Path) -> None:
    """One for a persistent error; more for a transient one, but not for a call that may have had its effect."""
    python = await python_for(package)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    here = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "240",  # on a busy machine its server takes a minute
        "DO_NOT_TRACK": "1",
    }
    with serving() as service:
        command = [str(python), str(COMPANIONS / "recipe.py"), recipe, service.url, *ENDINGS]
        # Files, not pipes: Prefect starts a server, which would keep these open after the end of the program.
        with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
            process = await asyncio.create_subprocess_exec(
                *command, cwd=tmp_path, env=here, stdout=out, stderr=err, start_new_session=True
            )
        try:
            await asyncio.wait_for(process.wait(), SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # of the program, and of its server
        assert process.returncode == 0, (tmp_path / "err").read_text()[-3000:]
        ended: dict[str, str] = json.loads((tmp_path / "out").read_text().splitlines()[-1])

    times = service.times
    assert {scenario: (how, len(times.get(scenario, ()))) for scenario, how in ended.items()} == ENDINGS
    if recipe in HEEDS_THE_WAIT:
        first, second = times["get_price/429-200"]
        assert second - first >= 1.0
