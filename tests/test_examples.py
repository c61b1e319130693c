"""The tools files in `examples/`: each is accepted, and each does through the real boundary what it promises."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Protocol

import httpx2
import pytest
from temporalio.client import Client

from activities.toolbox.registry import tools_in
from evals.fakes import http_server
from examples import guestbook, quotes, textfiles
from runtime.dev_server import DevServer, free_port
from tests.gate import sampled
from tests.harness import DONE, plan, staged, step
from tests.processes import ROOT, Processes
from workflows.account.outcome import Outcome
from workflows.account.task import TaskStatus
from workflows.faults.fault import Code
from workflows.plans.proposal import NewSteps

FILES = sorted(
    path for path in (ROOT / "examples").glob("*.py") if path.stem not in ("__init__", "service", "approvals")
)


class Played(Protocol):
    async def __call__(self, module: ModuleType, *proposals: NewSteps) -> Outcome: ...


@pytest.fixture
def played(client: Client, tmp_path: Path) -> Played:
    async def play(module: ModuleType, *proposals: NewSteps) -> Outcome:
        async with staged(client, tmp_path, tools_in(module), [*proposals, DONE]) as worker:
            return await worker.run()

    return play


def fault_codes(ended: Outcome) -> list[tuple[Code, str]]:
    return [(fault.code, fault.decision) for fault in ended.faults]


@pytest.mark.parametrize("file", sampled({file.stem: [file] for file in FILES}, "quotes"))
def test_each_example_is_accepted(tmp_path: Path, file: Path) -> None:
    """`worker.py --check` finds nothing wrong, on a machine where nothing is set up."""
    done = Processes("localhost:1", tmp_path).asked("--check", "--tools", str(file.relative_to(ROOT)))

    assert (done.returncode, done.stderr) == (0, "")


def test_each_example_fits_on_a_screen() -> None:
    """It stays something that one copies."""
    assert [file.name for file in FILES if len(file.read_text().splitlines()) >= 60] == []


def quote(symbol: str = "ACME", price: str = "24.50") -> bytes:
    return http_server.reply(200, f'{{"symbol": "{symbol}", "price": {price}, "currency": "EUR"}}'.encode())


ANSWERS = {
    "a price": ([quote()], TaskStatus.COMPLETED, []),
    "503 twice": (
        [http_server.reply(503), http_server.reply(503), quote()],
        TaskStatus.COMPLETED,
        [(Code.SERVER_ERROR, "retry"), (Code.SERVER_ERROR, "wait")],
    ),
    "404": ([http_server.reply(404)], TaskStatus.COMPLETED, [(Code.NOT_FOUND, "replan")]),
    "401": ([http_server.reply(401)], TaskStatus.ESCALATED, [(Code.UNAUTHORIZED, "escalate")]),
    "price 0": ([quote(price="0")], TaskStatus.COMPLETED, [(Code.UNEXPECTED_RESULT, "replan")]),
    "another share": ([quote("OTHER")], TaskStatus.COMPLETED, [(Code.UNEXPECTED_RESULT, "replan")]),
    "no JSON": ([http_server.reply(200, b"<html>")], TaskStatus.COMPLETED, [(Code.UNEXPECTED_RESULT, "replan")]),
}


@pytest.mark.parametrize(("answers", "status", "faults"), sampled(ANSWERS, "503 twice", "401", "price 0"))
async def test_a_quote_needs_no_code_for_what_goes_wrong(
    played: Played,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[bytes],
    status: TaskStatus,
    faults: list[tuple[Code, str]],
) -> None:
    async with http_server.serving(*answers) as url:
        monkeypatch.setenv("QUOTES_URL", url)
        ended = await played(quotes, plan(step("price", "get_quote", symbol="ACME")))

    assert (ended.status, fault_codes(ended)) == (status, faults)


async def test_a_quote_without_a_service_asks_a_person(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that is missing is nothing that a planner or time could mend."""
    monkeypatch.delenv("QUOTES_URL", raising=False)
    ended = await played(quotes, plan(step("price", "get_quote", symbol="ACME")))

    assert (ended.status, fault_codes(ended)) == (TaskStatus.ESCALATED, [(Code.NEEDS_PERSON, "escalate")])


async def test_a_guest_signs_once_is_read_and_erased(played: Played) -> None:
    """What one step commits, the next one reads; a conflict and what is not there lead to a new plan, never a retry."""
    signed = step("sign", "sign_guestbook", name="Ada", message="Hello")
    read = step("read", "read_guestbook", "sign")
    again = step("again", "sign_guestbook", "read", name="Ada", message="Hello again")
    erased = plan(step("erase", "erase_entry", entry=1), step("twice", "erase_entry", "erase", entry=1))
    ended = await played(guestbook, plan(signed, read, again), erased, plan(step("left", "read_guestbook", count=1)))
    results = {one.id: (one.attempts, one.result) for one in ended.steps}

    assert fault_codes(ended) == [(Code.CONFLICT, "replan"), (Code.NOT_FOUND, "replan")]
    assert results["read"] == (1, [{"id": 1, "name": "Ada", "message": "Hello"}]) and results["left"] == (1, [])
    assert (results["again"], results["twice"]) == ((1, None), (1, None))


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The shared drive and the outbox."""
    drive, outbox = tmp_path / "drive", tmp_path / "outbox"
    for variable, folder in (("TEXTS_DRIVE", drive), ("TEXTS_OUTBOX", outbox)):
        folder.mkdir()
        monkeypatch.setenv(variable, str(folder))
    return drive, outbox


MINUTES = plan(step("save", "save_text", name="minutes.txt", text="All agreed: 1 €."))


async def test_a_text_is_saved_or_goes_to_the_outbox_while_the_drive_is_locked(
    played: Played, folders: tuple[Path, Path]
) -> None:
    """When the retries are used up, the fallback does the step, marked as such."""
    await played(textfiles, MINUTES)
    saved = [(path.name, path.read_text()) for path in folders[0].iterdir()]
    (folders[0] / "backup.lock").touch()
    ended = await played(textfiles, MINUTES)

    assert saved == [("minutes.txt", "All agreed: 1 €.")]
    assert [(one.kind, one.is_fallback, one.status) for one in ended.steps] == [("keep_text", True, "completed")]
    assert (folders[1] / "minutes.txt").read_text() == "All agreed: 1 €."


@pytest.fixture
def shop(server: DevServer, tmp_path: Path) -> Processes:
    points = {"LOYALTY_DB": f"sqlite+aiosqlite:///{tmp_path}/loyalty.db", "PYTHONPATH": str(ROOT)}
    processes = Processes(server.address, tmp_path, points)
    processes.run([sys.executable, "examples/loyalty.py"]).check_returncode()
    return processes


def rows(file: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(statement).fetchall()


def points(id: str, kind: str, number: int, *needs: str) -> dict[str, object]:
    return {"id": id, "kind": kind, "args": {"customer": "Ada", "points": number}, "needs": needs}


def test_points_change_in_a_database_of_their_own(shop: Processes, tmp_path: Path) -> None:
    """Points and ledger are there and nowhere else; one that is refused by the constraint leaves neither."""
    steps = [points("give", "give_points", 10), points("spend", "spend_points", 4, "give")]
    (tmp_path / "plan.json").write_text(json.dumps({"steps": [*steps, points("more", "spend_points", 7, "spend")]}))
    queue = ("--queue", tmp_path.name)
    with shop.worker("--tools", "examples/loyalty.py", *queue):
        done = shop.starter("start", "--plan", str(tmp_path / "plan.json"), "--json", *queue)
    ended, ledger = json.loads(done.stdout), "SELECT step FROM replan_ledger ORDER BY at"

    assert [fault["code"] for fault in ended["faults"]] == ["conflict"]
    assert rows(tmp_path / "loyalty.db", "SELECT * FROM points") == [("Ada", 6)]
    assert rows(tmp_path / "loyalty.db", ledger) == [("give",), ("spend",)]
    assert rows(tmp_path / "state" / "store.db", ledger) == []


@pytest.mark.full
def test_points_whose_answer_is_lost_are_given_once(shop: Processes, tmp_path: Path) -> None:
    alone = Processes(f"localhost:{free_port()}", tmp_path, shop.environment)
    with alone.worker("--dev", "--tools", "examples/loyalty.py", "--break", "give_points=lost:1"):
        done = alone.starter("call", "give_points", '{"customer": "Ada", "points": 10}', "--json")
    [step] = json.loads(done.stdout)["steps"]

    assert (step["attempts"], step["result"]) == (2, {"customer": "Ada", "points": 10})
    assert rows(tmp_path / "loyalty.db", "SELECT * FROM points") == [("Ada", 10)]


async def test_an_example_is_tried_by_calling_it(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit test needs neither server nor worker; what a worker would give is given by hand."""
    async with http_server.serving(quote()) as url, httpx2.AsyncClient() as http:
        monkeypatch.setenv("QUOTES_URL", url)
        found = await quotes.get_quote(quotes.QuoteOf(symbol="ACME"), http)

    assert (found.symbol, found.price) == ("ACME", Decimal("24.5"))
    assert textfiles.save_text(textfiles.Text(name="a.txt", text="abc")).bytes == 3


FAULTS = ROOT / "examples" / "faults"


@pytest.mark.full
def test_the_template_of_a_package_with_faults_passes_its_own_test(tmp_path: Path) -> None:
    declared = tomllib.loads((FAULTS / "pyproject.toml").read_text())["project"]
    shutil.copy(FAULTS / "ftp_faults.py", tmp_path)
    (info := tmp_path / "ftp_faults-0.1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ftp-faults\nVersion: 0.1.0\n")
    points = [f"{name} = {value}" for name, value in declared["entry-points"]["replan.faults"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[replan.faults]", *points]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(FAULTS), str(FAULTS)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def test_the_page_about_errors_shows_the_template() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    mapping, project = (FAULTS / "ftp_faults.py").read_text(), (FAULTS / "pyproject.toml").read_text()
    entry_point = project[project.index("[project.entry-points") :].split("\n\n")[0]

    assert mapping[mapping.index("FAULTS = {") :].strip() in page
    assert entry_point in page
