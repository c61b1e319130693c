"""`http_request` as a user has it: options of the worker, a call, and what a history keeps of it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.dev_server import DevServer
from tests.activities.payments import Payments, payments
from tests.gate import sampled
from tests.processes import Processes

PLANTED = "Bearer planted-secret"


@pytest.fixture
def service() -> Iterator[Payments]:
    with payments() as running:
        yield running


def processes(server: DevServer, folder: Path) -> Processes:
    return Processes(server.address, folder, {"SHOP_AUTHORIZATION": PLANTED})


ALLOWED = ("--allow-host", "127.0.0.1", "--allow-request", "127.0.0.1")
TOLD = ("--http-header", "127.0.0.1=Authorization:SHOP_AUTHORIZATION")


def request(url: str) -> str:
    return json.dumps({"method": "POST", "url": url, "body": {"amount": "24.50"}})


def test_a_charge_is_made_once_with_a_header_that_nobody_sees(
    server: DevServer, tmp_path: Path, service: Payments
) -> None:
    service.plan = ["503", "drop"]
    mine, queue = processes(server, tmp_path), ("--queue", tmp_path.name)
    with mine.worker(*ALLOWED, *TOLD, *queue):
        called = json.loads(mine.starter("call", "http_request", request(service.url), "--json", *queue).stdout)
        history = mine.starter("export", called["task_id"], "-").stdout
    [charge], [step] = service.charges, called["steps"]

    assert (called["status"], step["attempts"], charge["key"].endswith("/call")) == ("completed", 3, True)
    assert "24.50" in history and "planted-secret" not in history + (tmp_path / "worker.log").read_text()


STARTS: dict[str, tuple[tuple[str, ...], str]] = {
    "no host": (("--allow-request", "http://api.example"), "--allow-request: 'http://api.example' is no host"),
    "no variable": (("--allow-request", "a.example", "--http-header", "a.example=X:NOWHERE"), "has no NOWHERE: set it"),
    "no header": (("--http-header", "a.example"), "is not HOST=NAME:VARIABLE"),
}


@pytest.mark.parametrize(("options", "words"), sampled(STARTS, "no variable"))
def test_a_worker_that_may_not_send_what_it_should_does_not_start(
    server: DevServer, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    mine = processes(server, tmp_path)
    with pytest.raises(AssertionError) as ended, mine.worker(*options):
        pass

    assert words in str(ended.value)


@pytest.mark.full
def test_by_default_a_person_is_asked(server: DevServer, tmp_path: Path, service: Payments) -> None:
    """Nothing is sent anywhere until a person has named the host."""
    mine, queue = processes(server, tmp_path), ("--queue", tmp_path.name)
    with mine.worker(*queue):
        done = mine.starter("call", "http_request", request(service.url), "--json", *queue)
    [fault] = json.loads(done.stdout)["faults"]

    assert (done.returncode, fault["code"], fault["applied"], service.charges) == (3, "forbidden", "none", [])
    assert "--allow-request 127.0.0.1" in fault["reason"]
