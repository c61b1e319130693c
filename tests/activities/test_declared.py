"""What authors declare about exceptions: `raises=` of a tool, and the entry points of a company."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from sqlalchemy import text

from activities.borders.declared import Raises, mistakes
from activities.borders.described import UnknownClass, describe
from evals.fakes.http_server import reply, serving
from replan import Key, Refused, Tool, Transaction, fault, tool
from tests.activities.bench import NO_TLS, Bench
from tests.activities.mistakes import HEADER
from tests.processes import Processes
from workflows.faults.fault import Applied, Code, Fault

HIDDEN = "sk-secret"


class ShopError(Exception):
    """What a client of a shop raises."""

    status = 0


class SoldOut(ShopError):
    """Nothing is left."""


class ShopDown(Exception):
    """The shop gave no answer."""


class Word(BaseModel):
    word: str = ""


def charging(error: BaseException, raises: Any, **more: Any) -> Tool[..., Any]:
    """A tool with an effect that fails so, and declares this."""

    @tool.keyed(raises=raises, **more)
    async def charge(args: Word, key: Key) -> Word:
        """Charge something."""
        raise error

    return charge


class Sold(Refused):
    """A class of the author's below one of ours."""


class Rejection(Exception):
    """What a client raises that no table knows, with the status of the answer."""

    status_code = 402


async def fault_of(calls: Bench, error: BaseException, raises: Raises, **more: Any) -> Fault:
    """The fault of a first attempt."""
    return (await calls.fails(charging(error, raises), **more))[0]


async def answered(calls: Bench, status: int, raises: Raises) -> Fault:
    """The fault of a call whose only request is answered so."""

    @tool.unkeyed(raises=raises)
    async def charge(args: Word) -> Word:
        """Charge something."""
        async with httpx2.AsyncClient(trust_env=False, verify=NO_TLS) as client:
            (await client.post(args.word)).raise_for_status()
        return args

    async with serving(reply(status, b'{"detail": "insufficient funds"}', retry_after="7")) as url:
        return (await calls.fails(charge, word=url))[0]


def caused(status: int) -> ShopDown:
    """An exception that was raised from that of an answer."""
    request, error = httpx2.Request("POST", "https://shop.example/orders"), ShopDown()
    error.__cause__ = httpx2.HTTPStatusError("", request=request, response=httpx2.Response(status, request=request))
    return error


def nothing(error: Any) -> Any:
    """An author names the one case that differs."""
    return None


NONE, UNKNOWN = Applied.NONE, Applied.UNKNOWN
BOTH: Raises = {httpx2.HTTPStatusError: "server_error", HTTPStatus.PAYMENT_REQUIRED: "conflict"}
GROUP = ExceptionGroup("both", [SoldOut(), ShopDown()])
CLASSES: list[tuple[Exception, Raises, Code, Applied]] = [
    # A rejection proves that nothing was changed, anything else proves nothing, unless the author says more
    (SoldOut(HIDDEN), {ShopError: "conflict"}, Code.CONFLICT, NONE),
    (SoldOut(HIDDEN), {ShopError: "not_found"}, Code.NOT_FOUND, NONE),
    (SoldOut(HIDDEN), {ShopError: "server_error"}, Code.SERVER_ERROR, UNKNOWN),
    (SoldOut(HIDDEN), {ShopError: "busy"}, Code.BUSY, UNKNOWN),
    (SoldOut(HIDDEN), {ShopError: "unauthorized"}, Code.UNAUTHORIZED, UNKNOWN),
    (SoldOut(HIDDEN), {ShopError: fault("conflict", applied="unknown")}, Code.CONFLICT, UNKNOWN),
    (SoldOut(HIDDEN), {ShopError: fault("server_error", applied="none")}, Code.SERVER_ERROR, NONE),
    (SoldOut(HIDDEN), {ShopError: lambda error: "gone" if error.status == 0 else "busy"}, Code.GONE, NONE),
    (SoldOut(HIDDEN), {ShopError: lambda error: fault("timeout", applied="none")}, Code.TIMEOUT, NONE),
    # The nearest class counts, as with `except`, but in any order
    (SoldOut(HIDDEN), {ShopError: "server_error", SoldOut: "gone"}, Code.GONE, NONE),
    # The author knows this service better than the tables; `Refused` says itself what it is
    (httpx2.ReadTimeout(HIDDEN), {httpx2.TimeoutException: "busy"}, Code.BUSY, UNKNOWN),
    (Sold("Sold.", code="gone"), {ShopError: "busy"}, Code.GONE, NONE),
    # What one member of a group proves, the other may not
    (GROUP, {ShopError: "conflict", ShopDown: "server_error"}, Code.CONFLICT, UNKNOWN),
    # A status of a class that nobody knows may be a number of the client's own, until the tool names the class, too
    (Rejection(), {402: "conflict"}, Code.CONFLICT, UNKNOWN),
    (Rejection(), {402: "conflict", Rejection: "server_error"}, Code.CONFLICT, NONE),
    (Rejection(), {Rejection: nothing}, Code.REFUSED, UNKNOWN),
    (caused(402), {402: "gone"}, Code.GONE, UNKNOWN),
]
STATUSES: list[tuple[int, Raises, Code, Applied]] = [
    # A 4xx says that the request changed nothing, unless the tool says that the service failed; a 5xx never does
    (402, {402: "conflict"}, Code.CONFLICT, NONE),
    (402, {402: "quota_exhausted"}, Code.QUOTA_EXHAUSTED, NONE),
    (404, {404: "busy"}, Code.BUSY, NONE),
    (422, {422: "server_error"}, Code.SERVER_ERROR, UNKNOWN),
    (422, {422: "bug"}, Code.BUG, UNKNOWN),
    (500, {500: "refused"}, Code.REFUSED, UNKNOWN),
    (500, {500: fault("refused", applied="none")}, Code.REFUSED, NONE),
    (402, {402: fault("refused", applied="unknown")}, Code.REFUSED, UNKNOWN),
    (418, {418: lambda error: "gone" if error.response.json() else None}, Code.GONE, NONE),
    # It says more than the class of its exception; every other status is what the class is, or the table says
    (402, BOTH, Code.CONFLICT, NONE),
    (404, BOTH, Code.SERVER_ERROR, UNKNOWN),
    (404, {402: "conflict"}, Code.NOT_FOUND, NONE),
    (404, {httpx2.HTTPStatusError: nothing}, Code.NOT_FOUND, NONE),
    (404, {404: nothing}, Code.NOT_FOUND, NONE),
]


async def test_a_declared_class_is_what_the_tool_says(calls: Bench) -> None:
    """The name of a class is in the reason, but nothing that it said; reason and wait may be the author's."""
    for error, raises, code, applied in CLASSES:
        found = await fault_of(calls, error, raises)

        assert (found.code, found.applied) == (code, applied), error
        assert not isinstance(error, ShopError) or "SoldOut" in found.reason or "ShopError" in found.reason
        assert found.guessed == ("Rejection.status_code" if isinstance(error, Rejection) and applied is UNKNOWN else "")
        assert HIDDEN not in found.model_dump_json()
    second = await fault_of(calls, SoldOut(), {ShopError: "conflict"}, attempt=2)
    limit = fault("rate_limited", reason="The shop takes ten orders a minute.", retry_after=6)
    limited = await fault_of(calls, ShopDown(), {ShopDown: limit})
    assert (second.code, second.applied) == (Code.CONFLICT, UNKNOWN)  # the first attempt may be its reason
    assert (limited.reason, limited.retry_after) == ("The shop takes ten orders a minute.", 6)


async def test_a_declared_status_is_what_the_tool_says_and_proves_what_the_status_proves(calls: Bench) -> None:
    """What the answer observed and how long it asks to wait stay with it."""
    for status, raises, code, applied in STATUSES:
        found = await answered(calls, status, raises)
        is_declared = status in raises and code not in (Code.BUG, Code.NOT_FOUND)
        is_observed = code in (Code.CONFLICT, Code.GONE, Code.REFUSED, Code.NOT_FOUND)

        assert (found.code, found.applied) == (code, applied), (status, raises)
        assert found.reason.startswith(f"POST 127.0.0.1 returned {status}") or code in (Code.BUG, Code.SERVER_ERROR)
        assert f"returned {status}, which the tool declares as" in found.reason or not is_declared
        assert found.observed == ({"detail": "insufficient funds"} if is_observed else None)
        assert found.retry_after == (7 if found.quadrant.is_transient and raises is not BOTH else None)


async def test_a_function_that_gives_no_fault_is_a_bug(calls: Bench) -> None:
    """Nothing is known then, so nothing is retried; a person reads it at night."""
    functions: dict[str, Any] = {
        "it raised AttributeError": lambda error: error.nothing,
        "a NoneType is no fault": lambda error: None,
        "there is no code 'conflct' for a tool": lambda error: "conflct",
    }
    for said, function in functions.items():
        found = await fault_of(calls, ShopDown(HIDDEN), {ShopDown: function})

        assert (found.code, found.applied) == (Code.BUG, UNKNOWN)
        assert said in found.reason and "correct the function" in found.reason.lower()

    found = await fault_of(calls, ShopDown(HIDDEN), {})

    assert found.code is Code.BUG and HIDDEN not in found.reason
    assert "charge raised ShopDown at test_declared.py:" in found.reason
    assert 'raises={ShopDown: "server_error"}' in found.reason


async def test_a_wrong_result_is_not_what_the_function_raised(calls: Bench) -> None:
    """pydantic's error about a result is a ValueError, too, but the effect has been applied."""

    @tool.keyed(raises={ValueError: "refused"})
    async def charge(args: Word, key: Key) -> Word:
        """Charge something."""
        return {"word": 7}  # type: ignore[return-value]  # that is the mistake

    found, _ = await calls.fails(charge)

    assert (found.code, found.applied) == (Code.UNEXPECTED_RESULT, Applied.APPLIED)


async def test_the_timer_of_an_attempt_is_no_exception_of_the_tool(calls: Bench) -> None:
    """Its TimeoutError proves nothing, whatever the tool says about its own, or a thread raises later."""

    @tool.keyed(raises={TimeoutError: fault("conflict", applied="none")}, timeout=0.3)
    async def charge(args: Word, key: Key) -> Word:
        """Charge something."""
        await asyncio.sleep(30)
        return args

    @tool.keyed(raises={ShopError: "conflict"}, timeout=0.3)
    def charge_late(args: Word, key: Key) -> Word:
        """Charge something, late."""
        time.sleep(0.6)
        raise SoldOut(HIDDEN)

    found, _ = await calls.fails(charge)
    late, _ = await calls.fails(charge_late)
    await asyncio.sleep(0.5)

    assert (found.code, found.applied, found.still_running) == (Code.TIMEOUT, Applied.UNKNOWN, False)
    assert (late.code, late.applied, late.still_running) == (Code.TIMEOUT, Applied.UNKNOWN, True)


WRONG: Mapping[str, Any] = {
    "must be a dict": [ShopError],
    "has the key 'ShopError', which is no class": {"ShopError": "conflict"},
    "names Exception, which is every error": {Exception: "conflict"},
    "names Refused, which says itself": {Refused: "conflict"},
    "names KeyboardInterrupt, which ends a process": {KeyboardInterrupt: "conflict"},
    "there is no code 'conflit' for a tool: did you mean conflict?": {ShopError: "conflit"},
    "there is no code 'worker_lost' for a tool": {ShopError: "worker_lost"},
    "a int is no fault": {ShopError: 409},
    "applied='yes' must be": {ShopError: fault("conflict", applied="yes")},  # type: ignore[arg-type]
    "reason= must be a sentence": {ShopError: fault("conflict", reason=" ")},
    "retry_after=-1 must be": {ShopError: fault("busy", retry_after=-1)},
    "402: there is no code 'conflit' for a tool: did you mean conflict?": {402: "conflit"},
    "402: there is no code 'worker_lost' for a tool": {402: "worker_lost"},
    "has the key 4002, which is no HTTP status of an error: did you mean 402 or 400?": {4002: "conflict"},
    "has the key 200, which is no HTTP status of an error": {200: "conflict"},
    "has the key '402', which is no HTTP status of an error: did you mean 402": {"402": "conflict"},
    "has the key True, which is no class": {True: "conflict"},
    "409: a int is no fault": {409: 409},
}


def test_mistakes_in_raises_are_named() -> None:
    """Each says what to write. An entry point names classes only: a status is what one service means by it."""
    for said, raises in WRONG.items():
        [sentence] = mistakes(raises)
        assert said in sentence and sentence.endswith(".")
    [sentence] = mistakes({402: "conflict"}, takes_statuses=False)
    assert "402" in sentence and "only raises= of a tool" in sentence


SHOP = '''
class ShopError(Exception):
    """What the shop's client raises."""


class ShopDown(ShopError):
    """No answer."""
'''
TOOLS = (
    HEADER
    + '''
from shop import ShopError


@tool.idempotent{raises}
async def order(args: Slot) -> Free:
    """Order something."""
'''
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder for Python's path with a package `shop`, which nobody knows yet."""
    (package := tmp_path / "site").mkdir()
    (package / "shop.py").write_text(SHOP)
    return package


def worker(folder: Path, site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the worker with these options, and with the package installed."""
    place = Processes("localhost:1", folder, {"PYTHONPATH": str(site)})
    return place.asked(*words)


def declare(site: Path, **mappings: str) -> None:
    """Install the company's package with these entry points, each with the code of its module."""
    (info := site / "shop-1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    for name, code in mappings.items():
        (site / f"{name}.py").write_text(f"import shop\n{code}\n")
    points = [f"shop = {name}:FAULTS\n" for name in mappings]
    (info / "entry_points.txt").write_text("[replan.faults]\n" + "".join(points))


def tools(folder: Path, raises: str = "") -> tuple[str, str]:
    """A tools file that uses the shop, as the worker's options."""
    (file := folder / "tools.py").write_text(TOOLS.replace("{raises}", raises))
    return "--tools", str(file)


def test_check_names_a_library_that_no_table_knows(tmp_path: Path, site: Path) -> None:
    """Before the first night with it; where somebody declares it, in `raises=` or an entry point, it is settled."""
    unknown = worker(tmp_path, site, "--check", *tools(tmp_path))
    raised = worker(tmp_path, site, "--check", *tools(tmp_path, '(raises={ShopError: "conflict"})'))
    declare(site, shop_faults='FAULTS = {shop.ShopError: "conflict"}')
    installed = worker(tmp_path, site, "--check", *tools(tmp_path))

    assert [done.returncode for done in (unknown, raised, installed)] == [0, 0, 0]
    assert "No table knows the exceptions of shop (ShopError), so each is a bug" in " ".join(unknown.stdout.split())
    assert "No table knows" not in raised.stdout + installed.stdout


def test_classify_says_what_a_company_declares(tmp_path: Path, site: Path) -> None:
    """The nearest class of a package's mapping decides; a tool's own declaration is shown before the table's."""
    before = worker(tmp_path, site, "--classify", "shop.ShopDown")
    declare(site, shop_faults='FAULTS = {shop.ShopError: "conflict", shop.ShopDown: "server_error"}')
    after = worker(tmp_path, site, "--classify", "shop.ShopDown")

    assert "no table knows it, so it is a bug" in before.stdout
    assert "becomes  server_error" in after.stdout and (before.returncode, after.returncode) == (0, 0)

    options = tools(tmp_path, '(raises={ShopError: "gone"})')
    done = worker(tmp_path, site, "--classify", "ShopError", *options)

    assert "in order, by raises=" in done.stdout and "becomes  gone (persistent, semantic)" in done.stdout


BROKEN = {
    "misspelt": 'FAULTS = {shop.ShopError: "conflit"}',
    "exits": "raise SystemExit(3)",
    "raises": "raise ValueError('sk-secret')",
    "number": "FAULTS = 7",
    "foreign": 'FAULTS = {shop.ShopError: "conflict", TimeoutError: "busy"}',
}


def test_a_broken_entry_point_is_said_and_left_out(tmp_path: Path, site: Path) -> None:
    """It is code of another package, and runs while an attempt needs a fault: its exceptions stay a bug."""
    declare(site, **BROKEN)
    done = worker(tmp_path, site, "--classify", "shop.ShopError", "--log", "json")
    said = [json.loads(line) for line in done.stderr.splitlines() if "faults_not_loaded" in line]
    shutil.rmtree(site / "shop-1.0.dist-info")
    declare(site, first='FAULTS = {shop.ShopError: "conflict"}', later='FAULTS = {shop.ShopError: "gone"}')
    twice = worker(tmp_path, site, "--classify", "shop.ShopError", "--log", "json")

    assert "no table knows it" in done.stdout and done.returncode == 0
    assert [line["entry_point"] for line in said] == [f"{name}:FAULTS" for name in BROKEN]
    assert "did you mean conflict?" in str(said[0]) and "builtins.TimeoutError is not of shop" in str(said[-1])
    assert "sk-secret" not in done.stderr
    assert "becomes  conflict" in twice.stdout and "faults_declared_twice" in twice.stderr


async def test_a_declared_rejection_in_a_transaction_rolls_it_back(calls: Bench) -> None:
    """A declaration says what the exception is, and never that the work before it stays."""

    @tool.transactional(raises={ShopError: "conflict"})
    async def note(args: Word, tx: Transaction) -> Word:
        """Write a note, then fail."""
        await tx.execute(text("INSERT INTO notes VALUES ('a')"))
        raise SoldOut(HIDDEN)

    found, _ = await calls.fails(note)

    assert (found.code, found.applied) == (Code.CONFLICT, Applied.NONE)
    assert (
        await calls.rows("SELECT count(*) FROM notes") == [0] == await calls.rows("SELECT count(*) FROM replan_ledger")
    )


async def test_what_a_task_group_and_except_star_leave_is_what_the_tool_declares(calls: Bench) -> None:
    @tool.idempotent(raises={ShopError: "conflict", ShopDown: "server_error"})
    async def order(args: Word) -> Word:
        """Order several things at once."""

        async def fail(error: Exception) -> None:
            raise error

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail(SoldOut(HIDDEN)))
                group.create_task(fail(ShopDown(HIDDEN)))
        except* ShopDown:
            pass
        return args

    found, _ = await calls.fails(order)

    assert found.code is Code.CONFLICT and HIDDEN not in found.model_dump_json()


FOLLOWS = {
    "httpx2.ReadTimeout": "becomes  timeout (transient, infrastructural)",
    "FileNotFoundError": "becomes  one of these, by where it was raised",
    "httpx2.HTTPStatusError": "becomes  one of these, by its HTTP status",
    "KeyError": "so it is a bug: no retry and no new plan: a person",
    "replan.Refused": "says itself what it is",
    "ExceptionGroup": "as bad as the worst of its members",
    "asyncio.CancelledError": "cancels a call: it is no fault",
    "SystemExit": "so it is a bug",
    "KeyboardInterrupt": "so it is a bug",
    "GeneratorExit": "so it is a bug",
}
NO_CLASSES = ["httpx2.ReadTimeot", "nowhere.Error", "os.path", "", "a..b", "\udcff.x"]


def test_classify_says_what_follows(tmp_path: Path) -> None:
    """Without a server, a store, or a line of code; of no class it says what to write, in one sentence."""
    said = {name: describe(name, {}) for name in FOLLOWS}
    done, wrong = (
        worker(tmp_path, tmp_path, "--classify", name) for name in ("httpx2.ReadTimeout", "httpx2.ReadTimeot")
    )

    assert {name: text for name, text in said.items() if FOLLOWS[name] not in text} == {}
    assert said["httpx2.ReadTimeout"] in done.stdout and done.returncode == 0
    assert wrong.returncode == 2 and "write package.module.Class" in wrong.stderr and "Traceback" not in wrong.stderr
    for name in NO_CLASSES:
        with pytest.raises(UnknownClass, match=r"write package\.module\.Class"):
            describe(name, {})
