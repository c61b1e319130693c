"""Prometheus with the files of deploy/prometheus, and what it is asked."""

import asyncio
import json
import math
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from runtime.child import end, last_line, spawn
from runtime.dev_server import free_port
from tests.processes import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
MISSING = "Prometheus is not installed: `apt-get install prometheus`, or put `prometheus` and `promtool` on PATH."


def program(name: str) -> str:
    """The path of a program of Prometheus; where there is none, the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(MISSING)
    return found


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a check of `promtool` in the folder of our files."""
    command = [program("promtool"), *map(str, words)]
    return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)


def document(name: str) -> Any:
    """A file of the folder as data."""
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


class Prometheus:
    """A server that answers at a port of the loopback interface."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: str) -> Any:
        """What the server answers to a request of its API."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as page:  # noqa: S310  # its scheme is that of `self.url`
            return json.load(page)["data"]

    def values(self, expression: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """The labels and values of an expression now; not what is no number."""
        found = self.ask("query", query=expression)["result"]
        numbers = [(one["metric"], float(one["value"][1])) for one in found]
        return [(labels, number) for labels, number in numbers if not math.isnan(number)]

    def states(self) -> Mapping[str, str]:
        """The state of each alert: `inactive`, `pending` or `firing`."""
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
        return {rule["name"]: rule["state"] for rule in rules if rule["type"] == "alerting"}


@asynccontextmanager
async def running(folder: Path, target: str) -> AsyncIterator[Prometheus]:
    """A Prometheus with our configuration, but that it scrapes one `target`, each second."""
    config = document("prometheus.yml")
    [job] = config["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [target]}]
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(FOLDER / name) for name in config["rule_files"]]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    server, log = Prometheus(port := free_port()), folder / "prometheus.log"
    options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    process = spawn([program("prometheus"), *options, f"--web.listen-address=127.0.0.1:{port}"], log)
    try:
        while not _is_ready(server):
            assert process.poll() is None, last_line(log)
            await asyncio.sleep(0.1)
        yield server
    finally:
        await end(process)


def _is_ready(server: Prometheus) -> bool:
    try:
        return bool(server.ask("query", query="1"))
    except OSError:
        return False
