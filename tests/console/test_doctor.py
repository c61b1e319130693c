"""`doctor` and `breakers` as a user runs them, and each check: what is found wrong, and what to do about it."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from console.commands.doctor import lacks, of_attributes, of_stores, of_tools, of_worker
from console.render.checks import Check, Status
from runtime.dev_server import DevServer, free_port
from runtime.process import version
from runtime.queue_store import NamedStore, Record
from tests.processes import ROOT, Processes
from workflows.account.search_attributes import TYPES
from workflows.inquiries import Place, ToolCard, ToolsFindings, WorkerCard, WorkerFindings
from workflows.people.approvers import Approvers
from workflows.plans.catalogue import CompanionSpec, Effect, Price, ToolSpec
from workflows.task_queues import control_queue

QUEUE = "doctor"
SECRETS = ("sk-planted-key", "sk-planted-password")
NAMES = ["server", "namespace", "web ui", "search attributes", "workflow tasks", "worker", "planner", "keys"]
PLACES = ["store", "state", "documents", "workspace"]
LAST = ["clocks", "capacity", "notifications", "breakers", "people", "tools"]
TOOLS = """
from pydantic import BaseModel

from replan import tool


class Word(BaseModel):
    word: str


@tool.idempotent
async def engrave(args: Word) -> Word:
    \"\"\"Engrave a word.\"\"\"
    return args
"""
"""A tool of the user's own that lacks an `undo`, as some tools of Replan do, which nobody can give one."""


@pytest.fixture(scope="module")
def well(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A worker that has everything, and secrets planted in its environment and in the URL of its store."""
    folder = tmp_path_factory.mktemp("doctor")
    store = f"sqlite+aiosqlite:///file:{folder}/store.db?uri=true&password={SECRETS[1]}"
    environment = {"ANTHROPIC_API_KEY": SECRETS[0], "OPENAI_API_KEY": "", "REPLAN_UI": server.ui_url}
    processes = Processes(server.address, folder, {**environment, "REPLAN_STORE": store})
    documents, workspace = ROOT / "examples" / "documents", folder / "workspace"
    (tools := folder / "tools.py").write_text(TOOLS)
    options = ("--documents", str(documents), "--workspace", str(workspace), "--queue", QUEUE, "--tools", str(tools))
    with processes.worker(*options):
        yield processes


def by_name(stdout: str) -> Mapping[str, Any]:
    document = json.loads(stdout)
    assert set(document) == {"schema", "checks"}
    return {check["name"]: check for check in document["checks"]}


async def test_where_all_is_well_nothing_fails(well: Processes, client: Client) -> None:
    """Every check has its line, none fails, exit code 0; of the tools only those of the user are a warning. Neither a
    key nor the store's password is printed or written into a history, where the store's path is."""
    done = await asyncio.to_thread(well.starter, "doctor", "--queue", QUEUE)
    document = await asyncio.to_thread(well.starter, "doctor", "--queue", QUEUE, "--json")
    lines, checks = done.stdout.splitlines(), by_name(document.stdout)
    texts = [document.stdout, *await histories(client)]

    assert (done.returncode, done.stderr, lines[-1]) == (0, "", "nothing failed, 1 warning")
    names = [*NAMES, *PLACES, *LAST, "tool engrave", "open tasks", "ledger"]
    assert [line[6:24].strip() for line in lines[:-1]] == names == list(checks)  # one worker is nothing to say
    assert all(set(check) == {"name", "status", "found", "remedy"} for check in checks.values())
    assert checks["worker"]["found"].startswith(f"Replan {version()}, Python 3.")
    assert checks["capacity"]["found"] == "0 of 100 slots in use, 0 of 100 threads held by calls that do not return"
    assert checks["keys"]["found"].startswith("ANTHROPIC_API_KEY set, OPENAI_API_KEY not set")
    assert all("store.db" in text for text in texts)
    assert not any(secret in text for text in (*texts, done.stdout, document.stderr) for secret in SECRETS)


@pytest.mark.full
def test_two_workers_with_different_tools_are_noticed(well: Processes) -> None:
    """A step that one of them cannot run waits for the other one: the kinds are named."""
    tools = ("--tools", str(well.folder / "tools.py"))
    with well.worker("--queue", "mixed", *tools), well.worker("--queue", "mixed"):
        mixed = by_name(well.starter("doctor", "--queue", "mixed", "--json").stdout)["workers"]
    with well.worker("--queue", "alike", *tools), well.worker("--queue", "alike", *tools):
        alike = by_name(well.starter("doctor", "--queue", "alike", "--json").stdout)["workers"]

    assert (mixed["status"], mixed["found"]) == ("warn", "2 serve the queue, with different tools: engrave")
    assert (alike["status"], alike["found"]) == ("ok", "2 serve the queue, with the same tools")


async def histories(client: Client) -> list[str]:
    """The histories of everything that was asked on our queue, as soon as the server lists something."""
    query = f"TaskQueue = '{control_queue(QUEUE)}' AND ExecutionStatus = 'Completed'"
    async with asyncio.timeout(20):
        while not (found := [one async for one in client.list_workflows(query)]):
            await asyncio.sleep(0.2)
    return [str([event async for event in client.get_workflow_handle(one.id).fetch_history_events()]) for one in found]


@pytest.fixture
def elsewhere(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Processes:
    """Commands for the shared server, far from any worker."""
    return Processes(server.address, tmp_path_factory.mktemp("elsewhere"), {"REPLAN_UI": server.ui_url})


def test_without_a_worker_the_rest_is_still_looked_at(elsewhere: Processes) -> None:
    """What needs a worker is skipped, not failed; the remedy starts one on this queue; exit code 1. A namespace that is
    missing has the command that makes it."""
    done = elsewhere.starter("doctor", "--queue", "nobody-there", "--json")
    missing = elsewhere.starter("doctor", "--namespace", "shop", "--json")
    checks, others = by_name(done.stdout), by_name(missing.stdout)

    assert (done.returncode, checks["search attributes"]["status"]) == (1, "ok")
    assert checks["worker"]["remedy"] == "start one with `python worker.py --queue nobody-there`"
    needs_worker = ("planner", "keys", *PLACES, *LAST, "open tasks", "ledger")
    assert {checks[name]["status"] for name in needs_worker} == {"skipped"}
    assert (missing.returncode, others["server"]["status"], others["namespace"]["status"]) == (1, "ok", "fail")
    assert "temporal operator namespace create -n shop" in others["namespace"]["remedy"]


def test_a_frozen_worker_does_not_hold_it_up(server: DevServer, tmp_path: Path) -> None:
    """The checks that need the worker fail, all others are made, and it ends without a traceback."""
    processes = Processes(server.address, tmp_path)
    with processes.worker("--queue", "frozen") as worker:
        processes.starter("start", "--task", "calculate 1+1", "--queue", "frozen", "--detach")
        worker.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        try:
            done = processes.starter("doctor", "--json", "--queue", "frozen")
        finally:
            worker.send_signal(signal.SIGCONT)
    checks = by_name(done.stdout)

    assert (done.returncode, done.stderr, checks["worker"]["status"]) == (1, "", "fail")
    assert checks["server"]["status"] == "ok"
    assert time.monotonic() - begun < 40


def test_without_a_server_everything_else_is_skipped(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One failure with its remedy, exit code 6, the same names as ever; an address that is none is bad usage."""
    nobody = Processes(f"localhost:{free_port()}", tmp_path_factory.mktemp("nobody"))
    done, text, nonsense = (nobody.starter("doctor", *more) for more in (["--json"], [], ["--address", "nonsense:x"]))
    server, *others = by_name(done.stdout).values()

    assert (done.returncode, server["status"], done.stderr) == (6, "fail", "")
    assert "python worker.py --dev" in server["remedy"] and "starter.py doctor" not in text.stdout
    assert {check["status"] for check in others} == {"skipped"}
    assert [check["name"] for check in others] == [*NAMES[1:], *PLACES, *LAST, "open tasks", "ledger"]
    assert (nonsense.returncode, nonsense.stderr) == (2, "")
    assert "'nonsense:x' is no address" in nonsense.stdout and "write host:port" in nonsense.stdout


@pytest.mark.full
def test_a_server_that_never_says_a_word_does_not_hold_it_up(elsewhere: Processes) -> None:
    """Within about ten seconds, whatever hangs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        done = elsewhere.starter("doctor", "--address", f"127.0.0.1:{listener.getsockname()[1]}")

    assert (done.returncode, done.stderr) == (6, "") and done.stdout.startswith("fail  server ")
    assert time.monotonic() - began < 12


ON_QUEUE = ("--queue", "breakers")
BREAKING = """
from pathlib import Path

from pydantic import BaseModel

from replan import CircuitBreaker, Unreachable, tool


class Where(BaseModel):
    file: Path


class Said(BaseModel):
    word: str


@tool.read(retry="once", breaker=CircuitBreaker(failures=1, calls=1, recovery=1000))
async def weather(args: Where) -> Said:
    \"\"\"Say the weather while a file is there.\"\"\"
    if not args.file.exists():
        raise Unreachable("no file")
    return Said(word="fine")


@tool.read(retry="once", breaker=CircuitBreaker(failures=1, calls=1, recovery=10))
async def tides(args: Where) -> Said:
    \"\"\"Say the tides while a file is there.\"\"\"
    return await weather(args)


@tool.read(breaker=None)
async def news(args: Where) -> Said:
    \"\"\"Say the news.\"\"\"
    return Said(word="none")
"""


@pytest.fixture(scope="module")
def commands(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A worker with tools whose service is down."""
    folder = tmp_path_factory.mktemp("breakers")
    (tools := folder / "tools.py").write_text(BREAKING)
    processes = Processes(server.address, folder)
    with processes.worker("--tools", str(tools), *ON_QUEUE):
        yield processes


def call(commands: Processes, kind: str, file: str = "missing") -> Any:
    """Call a tool once, and return the task's outcome."""
    args = json.dumps({"file": str(commands.folder / file)})
    return json.loads(commands.starter("call", kind, args, *ON_QUEUE, "--json").stdout)


def test_a_tool_that_is_left_alone_is_listed_until_somebody_closes_it(commands: Processes) -> None:
    """With since when, why, and when it is tried again; `doctor` warns. One without a breaker cannot be closed, with
    the nearest name and the remedy."""
    nothing = commands.starter("breakers", *ON_QUEUE)
    call(commands, "weather")
    listed, whole = commands.starter("breakers", *ON_QUEUE), commands.starter("breakers", *ON_QUEUE, "--json")
    checks = json.loads(commands.starter("doctor", *ON_QUEUE, "--json").stdout)["checks"]
    unknown, without, reset = (
        commands.starter("breakers", "--reset", kind, *ON_QUEUE) for kind in ("wether", "news", "weather")
    )
    after = commands.starter("breakers", *ON_QUEUE)

    assert (nothing.returncode, nothing.stdout) == (0, "no tool has failed\n")
    assert listed.stdout.startswith("weather  open, since 20")
    assert ", after 1 failure, the newest unreachable, a trial call in 99" in listed.stdout
    [card] = json.loads(whole.stdout)["breakers"]
    assert (card["kind"], card["state"], card["failures"], card["code"]) == ("weather", "open", 1, "unreachable")
    assert 900 < card["trial_in"] <= 1000
    [found] = [check for check in checks if check["name"] == "breakers"]
    assert (found["status"], found["found"]) == ("warn", "left alone, since they failed: weather (unreachable)")
    assert (unknown.returncode, without.returncode, reset.returncode, after.returncode) == (2, 2, 0, 0)
    assert "No tool 'wether' has a circuit breaker: did you mean weather?" in unknown.stderr
    assert "`python starter.py breakers` lists those of tools that have failed" in without.stderr
    assert reset.stdout.startswith("closed weather, which was open, since 20")
    assert after.stdout.startswith("weather  closed, since 20")


@pytest.mark.full
def test_what_is_not_as_usual_is_shown(commands: Processes) -> None:
    """By `tools KIND` and by `--check`."""
    weather, news = commands.starter("tools", "weather", *ON_QUEUE), commands.starter("tools", "news", *ON_QUEUE)
    checked = commands.asked("--tools", str(commands.folder / "tools.py"), "--check")

    assert "  has a circuit breaker with failures=1, calls=1, recovery=1000\n" in weather.stdout
    assert "  has no circuit breaker\n" in news.stdout
    assert "breaker: failures=1, calls=1, recovery=10; once" in checked.stdout
    assert "file: path, no breaker; standard" in checked.stdout


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LOOK = CompanionSpec(kind="look")


UNKEYED = {"kind": "a", "effect": Effect.UNKEYED}
ROWS: dict[str, Any] = {"kind": "a", "effect": Effect.TRANSACTIONAL}
LACKING: list[tuple[dict[str, Any], list[str]]] = [
    ({"kind": "a", "effect": Effect.READ}, []),
    ({"kind": "a", "effect": Effect.IDEMPOTENT}, ["observe", "undo"]),
    ({**ROWS, "observe": LOOK}, ["undo"]),
    ({**ROWS, "undo": LOOK}, ["observe"]),
    ({**ROWS, "observe": LOOK, "undo": LOOK}, []),
    ({**ROWS, "kind": "back", "observe": LOOK}, []),
    ({**ROWS, "kind": "back"}, ["observe"]),
    ({"kind": "a", "effect": Effect.KEYED, "observe": LOOK, "undo": LOOK}, ["reconcile"]),
    (UNKEYED, ["observe", "undo", "reconcile"]),
    ({**UNKEYED, "observe": LOOK, "undo": LOOK}, ["reconcile"]),
    ({"kind": "a", "effect": Effect.KEYED, "observe": LOOK, "undo": LOOK, "reconcile": LOOK}, []),
]


@pytest.mark.parametrize(("spec", "missing"), LACKING)
def test_a_tool_that_changes_the_world_needs_what_belongs_to_it(spec: dict[str, Any], missing: list[str]) -> None:
    """A read to look again, a way back unless it is one, and where a second call does harm a way to find out."""
    assert lacks(ToolSpec(**spec), undoing={"back"}) == missing


def findings(planner: str, *specs: ToolSpec, worker: WorkerCard | None = None) -> WorkerFindings:
    """What a worker with these tools answers."""
    tools = [ToolCard(spec=spec, description="", args_schema={}, result_schema={}) for spec in specs]
    return WorkerFindings(planner=planner, tools=tuple(tools), worker=worker or card())


def test_tools_are_counted_and_those_that_lack_something_are_named() -> None:
    """With a remedy; a tool that is undone by another needs both, and to one of Replan's nobody can give an undo. A
    worker without tools can make no plan."""
    book = ToolSpec(kind="book", effect=Effect.TRANSACTIONAL, observe=LOOK, undo=CompanionSpec(kind="cancel"))
    cancel = ToolSpec(kind="cancel", effect=Effect.TRANSACTIONAL)
    counted, lacking = of_tools(findings("offline", book, cancel))
    found = findings("offline", *(ToolSpec(kind=kind, effect=Effect.IDEMPOTENT) for kind in ("book", "write_file")))
    ours = found.tools[1].model_copy(update={"is_own": False})
    names = [check.name for check in of_tools(found.model_copy(update={"tools": (found.tools[0], ours)}))]
    page = ToolSpec(kind="page", effect=Effect.READ, untrusted=True)
    [foreign] = of_tools(findings("offline", page, ToolSpec(kind="add", effect=Effect.READ)))
    [none] = of_tools(ToolsFindings(planner="offline", tools=()))

    assert counted == Check("tools", Status.OK, "2, of which 2 change the world")
    assert (lacking.name, lacking.status) == ("tool cancel", Status.WARN) and "observe= names" in lacking.remedy
    assert names == ["tools", "tool book"]
    assert foreign.found == "2, of which 0 change the world, 1 returns untrusted content"
    assert none.status is Status.FAIL and "--tools" in none.remedy


def test_the_tools_that_no_person_has_read_are_named() -> None:
    """With the command that shows what their servers say; tools that changed since are told apart."""
    new = ToolSpec(kind="shop.new", effect=Effect.READ, unread="new")
    changed = ToolSpec(kind="shop.changed", effect=Effect.READ, unread="changed")
    _, first, second = of_tools(findings("offline", new, changed))

    assert (first.name, first.status, second.name) == ("new tools", Status.WARN, "changed tools")
    assert first.found.startswith("shop.new: no person has read") and "--write-tools FILE" in first.remedy
    assert second.found.startswith("shop.changed: what its server says of it has changed since")


ATTRIBUTES: list[tuple[dict[str, str], Status, str]] = [
    (dict(TYPES), Status.OK, "all 7 are registered"),
    ({**TYPES, "Another": "Text"}, Status.OK, "all 7 are registered"),
    ({name: type for name, type in TYPES.items() if name != "ReplanReplans"}, Status.WARN, "missing: ReplanReplans"),
    ({}, Status.WARN, "missing: ReplanStatus, "),
    ({**TYPES, "ReplanTenant": "Int"}, Status.WARN, "unusable: ReplanTenant is Int, not Keyword"),
]


@pytest.mark.parametrize(("present", "status", "words"), ATTRIBUTES)
def test_search_attributes_are_compared_by_name_and_type(present: dict[str, str], status: Status, words: str) -> None:
    """Tasks run without them, so that they are found less well: a warning, with the command that adds them."""
    check = of_attributes(TYPES, present)
    adds = "`temporal operator search-attribute create --name ReplanReplans --type Int`"

    assert check.status is status and check.found.startswith(words)
    assert (adds in check.remedy) is (words == "missing: ReplanReplans")


def card(**changed: Any) -> WorkerCard:
    """A worker for which everything is well, but for what changed."""
    well = {"version": "1", "python": "3.11", "sdk": "1.35", "places": (), "keys": {}, "clock": NOW}
    return WorkerCard(**{**well, "server_clock": NOW, **changed})


def checks(found: WorkerFindings) -> dict[str, Check]:
    """The checks of a worker that is asked now by a console of version 1."""
    made = of_worker(found, "1", restart="python worker.py", asked_at=NOW, answered_at=NOW + timedelta(seconds=1))
    return {one.name: one for one in made}


def off(**clocks: timedelta) -> dict[str, datetime]:
    return {name: NOW + by for name, by in clocks.items()}


HOUR, MORE = timedelta(hours=1), timedelta(seconds=31)
OPENAI = "OPENAI_API_KEY"
CASES: list[tuple[str, dict[str, Any], str, Status, str]] = [
    ("worker", {}, "offline", Status.OK, "Replan 1, Python 3.11, Temporal SDK 1.35"),
    ("worker", {"version": "0.9"}, "offline", Status.WARN, "this console is 1"),
    ("keys", {"keys": {OPENAI: False}}, "offline", Status.OK, "OPENAI_API_KEY not set; the offline planner"),
    ("keys", {"keys": {OPENAI: True}}, "openai:x", Status.OK, "OPENAI_API_KEY set"),
    ("keys", {"keys": {OPENAI: False}}, "openai:x", Status.FAIL, "planner needs OPENAI_API_KEY"),
    ("keys", {"keys": {OPENAI: True}}, "anthropic", Status.FAIL, "planner needs ANTHROPIC_API_KEY"),
    ("keys", {"keys": {}}, "offline, anthropic", Status.OK, "; the offline planner needs none"),
    ("store", {"places": [Place(name="store", where="sqlite:///x")]}, "offline", Status.OK, "sqlite:///x"),
    ("state", {"places": [Place(name="state", where="/x", problem="gone")]}, "offline", Status.FAIL, "/x: gone"),
    ("documents", {"places": [Place(name="documents", where=None)]}, "offline", Status.WARN, "none, so no tool can"),
    ("clocks", {}, "offline", Status.OK, "worker, server and this machine agree"),
    ("clocks", off(clock=timedelta(minutes=1)), "offline", Status.WARN, "the worker's is +60 s off"),
    ("clocks", off(clock=-HOUR, server_clock=-HOUR), "offline", Status.WARN, "this machine's is +3600 s off"),
    ("clocks", off(clock=MORE, server_clock=MORE), "offline", Status.WARN, "this machine's is -30 s off"),
]


@pytest.mark.parametrize(("name", "changed", "planner", "status", "words"), CASES)
def test_what_a_worker_says_is_judged(
    name: str, changed: dict[str, Any], planner: str, status: Status, words: str
) -> None:
    """What works is ok, what works in part is a warning, what cannot work is a failure; both have a remedy."""
    found = checks(findings(planner, worker=card(**changed)))[name]

    assert (found.status, bool(found.remedy)) == (status, status is not Status.OK)
    assert words in found.found


PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
COSTS = "3 USD for a million tokens of input, 15 of output"
NO_PRICE = "its price is not known, so --usd is refused"
OF_ONE = "the price of at least one is not known, so --usd is refused"
UPDATE = ("genai-prices", "[models.prices]")
PRICES: list[tuple[str, dict[str, Any], Status, str, tuple[str, ...]]] = [
    ("offline", {"converses": False, "price": None}, Status.OK, "offline", ()),
    ("openai:x", {}, Status.OK, f"openai:x; {COSTS}", ()),
    ("openai:x", {"price": None}, Status.WARN, f"openai:x; {NO_PRICE}", ("",)),
    ("openai:x@localhost:1", {"price": None}, Status.OK, f"openai:x@localhost:1; {NO_PRICE}", ()),
    ("anthropic:x, openai:y", {"price": None}, Status.WARN, f"anthropic:x, openai:y; {OF_ONE}", ("",)),
    ("openai:x", {"described": "openai:x (Responses)"}, Status.OK, f"openai:x (Responses); {COSTS}", ()),
    ("openai:x", {"price_date": NOW.date()}, Status.OK, f"openai:x; {COSTS}, as of 2026-01-02", ()),
    ("openai:x", {"price_date": date(2025, 10, 4)}, Status.OK, f"openai:x; {COSTS}, as of 2025-10-04", ()),
    (
        "openai:x",
        {"price_date": date(2025, 10, 3)},
        Status.WARN,
        f"openai:x; {COSTS}, as of 2025-10-03, 91 days ago",
        UPDATE,
    ),
]


@pytest.mark.parametrize(("planner", "changed", "status", "said", "remedy"), PRICES)
def test_what_a_planner_costs_is_told(
    planner: str, changed: dict[str, Any], status: Status, said: str, remedy: tuple[str, ...]
) -> None:
    """A warning where a provider's price is missing or old, as providers change them. Nobody could know what a server
    of one's own costs; a price of the settings file has no date, since who set it knows it. Beside the planner's name
    stands its API, and the name is what decides about keys."""
    given = {"converses": True, "price": PRICE, **changed}
    found = findings(planner, worker=card(keys={OPENAI: True})).model_copy(update=given)
    told = checks(found)

    assert (told["planner"].found, told["planner"].status) == (said, status)
    assert bool(told["planner"].remedy) is bool(remedy) and all(word in told["planner"].remedy for word in remedy)
    assert told["keys"].status is (Status.FAIL if planner.startswith("anthropic") else Status.OK)


STORES: dict[str, tuple[list[str], str | None, str]] = {
    "one store": (["a", "a"], "a", ""),
    "nothing on record": (["a"], None, ""),
    "an older version does not say it": (["", "a"], "a", ""),
    "two stores": (["a", "b"], "a", "workers use a, b; the queue has the store /a (id a)"),
    "another than the queue": (["b"], "a", "workers use b; the queue has the store /a (id a)"),
    "two, and nothing on record": (["b", "a"], None, "workers use a, b"),
}


@pytest.mark.parametrize(("ids", "recorded", "said"), STORES.values(), ids=STORES)
def test_workers_with_other_stores_are_a_failure(ids: list[str], recorded: str | None, said: str) -> None:
    """With the store that the queue has, and what to do."""
    record = Record(NamedStore(recorded, f"/{recorded}"), "run") if recorded else None
    found = of_stores(record, [ToolsFindings(planner="offline", store=id) for id in ids])

    assert [(check.status, check.found) for check in found] == ([(Status.FAIL, said)] if said else [])


FINANCE = Approvers(by=("role:finance",), count=2)
BOARD = Approvers(by=("role:finance", "person:ann"), after=3600, then=("role:board",))
PEOPLE: list[tuple[tuple[str, ...] | None, list[Approvers | None], Status, str]] = [
    (None, [None], Status.OK, "no tool says who must approve, so the name of who answers is a claim"),
    (("role:finance",), [None], Status.OK, "no tool says who must approve"),
    (("person:ann", "role:board", "role:finance"), [FINANCE, BOARD, None], Status.OK, "each role and person that"),
    (("role:board",), [FINANCE], Status.WARN, "nobody in the people file is meant: t0 names role:finance"),
    (("role:finance",), [FINANCE, BOARD], Status.WARN, "is meant: t1 names person:ann, role:board"),
    ((), [FINANCE, BOARD], Status.WARN, "t0 names role:finance; t1 names role:finance, person:ann, role:board"),
]


@pytest.mark.parametrize(("known", "rules", "status", "words"), PEOPLE)
def test_a_tool_whose_approvers_nobody_is_gets_a_warning(
    known: tuple[str, ...] | None, rules: list[Approvers | None], status: Status, words: str
) -> None:
    """By the people file of the worker; without one, and without such a tool, names are claims."""
    specs = [ToolSpec(kind=f"t{number}", effect=Effect.KEYED, approvers=rule) for number, rule in enumerate(rules)]
    found = checks(findings("offline", *specs, worker=card(approvers=known)))["people"]

    assert (found.status, words in found.found, bool(found.remedy)) == (status, True, status is Status.WARN)
