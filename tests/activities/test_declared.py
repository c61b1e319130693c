"""What authors declare about exceptions: `raises=` of a tool, and the entry points of a company."""

import asyncio
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
    """An argument."""

    word: str = ""


def charging(error: BaseException, raises: Any, **more: Any) -> Tool[..., Any]:
    """A tool with an effect that fails so, and declares this."""

    @tool.keyed(raises=raises, **more)
    async def charge(args: Word, key: Key) -> Word:
        """Charge something."""
        raise error

    return charge


async def fault_of(calls: Bench, error: BaseException, raises: Raises, **more: Any) -> Fault:
    """The fault of a first attempt."""
    return (await calls.fails(charging(error, raises), **more))[0]


@pytest.mark.parametrize(
    ("declared", "code", "applied"),
    [
        ("conflict", Code.CONFLICT, Applied.NONE),
        ("not_found", Code.NOT_FOUND, Applied.NONE),
        ("server_error", Code.SERVER_ERROR, Applied.UNKNOWN),
        ("busy", Code.BUSY, Applied.UNKNOWN),
        ("unauthorized", Code.UNAUTHORIZED, Applied.UNKNOWN),
        (fault("conflict", applied="unknown"), Code.CONFLICT, Applied.UNKNOWN),
        (fault("server_error", applied="none"), Code.SERVER_ERROR, Applied.NONE),
        (lambda error: "gone" if error.status == 0 else "busy", Code.GONE, Applied.NONE),
        (lambda error: fault("timeout", applied="none"), Code.TIMEOUT, Applied.NONE),
    ],
)
async def test_a_declared_class_is_what_the_tool_says(
    calls: Bench, declared: Any, code: Code, applied: Applied
) -> None:
    """A rejection proves that nothing was changed, anything else proves nothing, unless the author says more."""
    found = await fault_of(calls, SoldOut(HIDDEN), {ShopError: declared})

    assert (found.code, found.applied) == (code, applied)
    assert "SoldOut" in found.reason or "ShopError" in found.reason
    assert HIDDEN not in found.model_dump_json()


async def test_a_rejection_after_an_unknown_outcome_proves_nothing(calls: Bench) -> None:
    """The first attempt may be the reason of the conflict."""
    found = await fault_of(calls, SoldOut(), {ShopError: "conflict"}, attempt=2)

    assert (found.code, found.applied) == (Code.CONFLICT, Applied.UNKNOWN)


async def test_the_nearest_class_counts(calls: Bench) -> None:
    """As with `except`, but in any order."""
    found = await fault_of(calls, SoldOut(), {ShopError: "server_error", SoldOut: "gone"})

    assert found.code is Code.GONE


async def test_what_the_tool_declares_comes_before_the_tables(calls: Bench) -> None:
    """The author knows this service better."""
    found = await fault_of(calls, httpx2.ReadTimeout("late"), {httpx2.TimeoutException: "busy"})

    assert found.code is Code.BUSY


async def test_reason_and_wait_are_the_authors(calls: Bench) -> None:
    """They reach the planner and the timer."""
    said = fault("rate_limited", reason="The shop takes ten orders a minute.", retry_after=6)
    found = await fault_of(calls, ShopDown(), {ShopDown: said})

    assert (found.reason, found.retry_after) == ("The shop takes ten orders a minute.", 6)


async def test_what_a_tool_raises_of_ours_stays_what_it_is(calls: Bench) -> None:
    """`Refused` says itself what it is."""

    class Sold(Refused):
        """A class of the author's."""

    found = await fault_of(calls, Sold("Sold.", code="gone"), {ShopError: "busy"})

    assert found.code is Code.GONE


async def test_a_wrong_result_is_not_what_the_function_raised(calls: Bench) -> None:
    """pydantic's error about a result is a ValueError, too, but the effect has been applied."""

    @tool.keyed(raises={ValueError: "refused"})
    async def charge(args: Word, key: Key) -> Word:
        """Charge something."""
        return {"word": 7}  # type: ignore[return-value]  # that is the mistake

    found, _ = await calls.fails(charge)

    assert (found.code, found.applied) == (Code.UNEXPECTED_RESULT, Applied.APPLIED)


async def test_the_timer_of_an_attempt_is_no_exception_of_the_tool(calls: Bench) -> None:
    """Its TimeoutError proves nothing, whatever the tool says about its own."""

    @tool.keyed(raises={TimeoutError: fault("conflict", applied="none")}, timeout=0.3)
    async def charge(args: Word, key: Key) -> Word:
        """Charge something."""
        await asyncio.sleep(30)
        return args

    found, _ = await calls.fails(charge)

    assert (found.code, found.applied) == (Code.TIMEOUT, Applied.UNKNOWN)


async def test_a_group_is_as_bad_as_its_worst_member(calls: Bench) -> None:
    """What one member proves, the other may not."""
    group = ExceptionGroup("both", [SoldOut(), ShopDown()])
    found = await fault_of(calls, group, {ShopError: "conflict", ShopDown: "server_error"})

    assert (found.code, found.applied) == (Code.CONFLICT, Applied.UNKNOWN)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda error: error.nothing, "it raised AttributeError"),
        (lambda error: None, "a NoneType is no fault"),
        (lambda error: "conflct", "there is no code 'conflct' for a tool"),
    ],
)
async def test_a_function_that_gives_no_fault_is_a_bug(calls: Bench, function: Any, said: str) -> None:
    """Nothing is known then, so nothing is retried."""
    found = await fault_of(calls, ShopDown(HIDDEN), {ShopDown: function})

    assert (found.code, found.applied) == (Code.BUG, Applied.UNKNOWN)
    assert said in found.reason and "correct the function" in found.reason.lower()


async def test_an_unknown_exception_names_the_line_and_the_remedy(calls: Bench) -> None:
    """A person reads it at night."""
    found = await fault_of(calls, ShopDown(HIDDEN), {})

    assert found.code is Code.BUG and HIDDEN not in found.reason
    assert "charge raised ShopDown at test_declared.py:" in found.reason
    assert 'raises={ShopDown: "server_error"}' in found.reason


def paying(effect: str, **options: Any) -> Tool[..., Any]:
    """A tool that sends one request, and passes on what its client raises."""

    async def charge(args: Word) -> Word:
        """Charge something."""
        async with httpx2.AsyncClient(trust_env=False, verify=NO_TLS) as client:
            (await client.post(args.word)).raise_for_status()
        return args

    made: Tool[..., Any] = getattr(tool, effect)(**options)(charge)
    return made


async def answered(calls: Bench, status: int, raises: Raises, *, effect: str = "unkeyed") -> Fault:
    """The fault of a call whose only request is answered so."""
    async with serving(reply(status, b'{"detail": "insufficient funds"}', retry_after="7")) as url:
        return (await calls.fails(paying(effect, raises=raises), word=url))[0]


@pytest.mark.parametrize(
    ("status", "declared", "code", "applied"),
    [
        (402, "conflict", Code.CONFLICT, Applied.NONE),
        (402, "quota_exhausted", Code.QUOTA_EXHAUSTED, Applied.NONE),
        (404, "busy", Code.BUSY, Applied.NONE),
        (422, "server_error", Code.SERVER_ERROR, Applied.UNKNOWN),
        (422, "bug", Code.BUG, Applied.UNKNOWN),
        (500, "refused", Code.REFUSED, Applied.UNKNOWN),
        (500, fault("refused", applied="none"), Code.REFUSED, Applied.NONE),
        (402, fault("refused", applied="unknown"), Code.REFUSED, Applied.UNKNOWN),
        (418, lambda error: "gone" if error.response.json() else None, Code.GONE, Applied.NONE),
    ],
)
async def test_a_declared_status_is_what_the_tool_says_and_proves_what_the_status_proves(
    calls: Bench, status: int, declared: Any, code: Code, applied: Applied
) -> None:
    """A 4xx says that the request changed nothing, unless the tool says that the service failed; a 5xx never does."""
    found = await answered(calls, status, {status: declared})

    assert (found.code, found.applied) == (code, applied)
    assert found.reason.startswith(f"POST 127.0.0.1 returned {status}, which the tool declares as") or code is Code.BUG
    assert found.observed == (
        {"detail": "insufficient funds"} if code in (Code.CONFLICT, Code.GONE, Code.REFUSED) else None
    )
    assert found.retry_after == (7 if found.quadrant.is_transient else None)


async def test_a_status_that_the_tool_does_not_name_stays_what_the_table_says(calls: Bench) -> None:
    """One line changes one status."""
    assert (await answered(calls, 404, {402: "conflict"})).code is Code.NOT_FOUND


async def test_a_declared_status_comes_before_the_class_of_its_exception(calls: Bench) -> None:
    """It says more; every other status is what the tool says of the class."""
    raises: Raises = {httpx2.HTTPStatusError: "server_error", HTTPStatus.PAYMENT_REQUIRED: "conflict"}
    one, other = await answered(calls, 402, raises), await answered(calls, 404, raises)

    assert (one.code, one.applied) == (Code.CONFLICT, Applied.NONE)
    assert (other.code, other.applied) == (Code.SERVER_ERROR, Applied.UNKNOWN)


class Rejection(Exception):
    """What a client raises that no table knows, with the status of the answer."""

    status_code = 402


async def test_a_declared_status_of_a_class_that_nobody_knows_stays_a_guess(calls: Bench) -> None:
    """The number may be one of the client's own, so it proves nothing until the tool names the class, too."""
    guessed = await fault_of(calls, Rejection(), {402: "conflict"})
    known = await fault_of(calls, Rejection(), {402: "conflict", Rejection: "server_error"})

    assert (guessed.code, guessed.applied, guessed.guessed) == (
        Code.CONFLICT,
        Applied.UNKNOWN,
        "Rejection.status_code",
    )
    assert (known.code, known.applied, known.guessed) == (Code.CONFLICT, Applied.NONE, "")


async def test_a_declared_status_holds_for_the_cause_of_an_exception_too(calls: Bench) -> None:
    """A tool gives a failure another name."""
    request = httpx2.Request("POST", "https://shop.example/orders")
    error = ShopDown()
    error.__cause__ = httpx2.HTTPStatusError("", request=request, response=httpx2.Response(402, request=request))

    assert (await fault_of(calls, error, {402: "gone"})).code is Code.GONE


@pytest.mark.parametrize("key", [httpx2.HTTPStatusError, 404])
async def test_a_function_that_returns_none_leaves_the_exception_to_the_tables(calls: Bench, key: Any) -> None:
    """An author names the one case that differs."""
    found = await answered(calls, 404, {key: lambda error: None})

    assert (found.code, found.applied) == (Code.NOT_FOUND, Applied.NONE)
    assert found.reason.startswith("POST 127.0.0.1 returned 404: ")


async def test_a_function_that_returns_none_leaves_an_unknown_class_to_its_status(calls: Bench) -> None:
    """As without the declaration."""
    assert (await fault_of(calls, Rejection(), {Rejection: lambda error: None})).code is Code.REFUSED


def test_an_entry_point_names_classes_only() -> None:
    """A status is what one service means by it."""
    [sentence] = mistakes({402: "conflict"}, takes_statuses=False)

    assert "402" in sentence and "only raises= of a tool" in sentence


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


@pytest.mark.parametrize("said", WRONG)
def test_mistakes_in_raises_are_named(said: str) -> None:
    """Each says what to write."""
    [sentence] = mistakes(WRONG[said])

    assert said in sentence and sentence.endswith(".")


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


def declare(site: Path, mapping: str) -> None:
    """Install the company's package with its entry point."""
    (site / "shop_faults.py").write_text(f"import shop\nFAULTS = {mapping}\n")
    (info := site / "shop-1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[replan.faults]\nshop = shop_faults:FAULTS\n")


def tools(folder: Path, raises: str = "") -> tuple[str, str]:
    """A tools file that uses the shop, as the worker's options."""
    (file := folder / "tools.py").write_text(TOOLS.replace("{raises}", raises))
    return "--tools", str(file)


def test_check_names_a_library_that_no_table_knows(tmp_path: Path, site: Path) -> None:
    """Before the first night with it."""
    done = worker(tmp_path, site, "--check", *tools(tmp_path))

    assert done.returncode == 0
    assert "No table knows the exceptions of shop (ShopError), so each is a bug" in " ".join(done.stdout.split())


@pytest.mark.parametrize("how", ["raises", "entry point"])
def test_check_is_silent_about_a_library_that_somebody_declares(tmp_path: Path, site: Path, how: str) -> None:
    """It is settled."""
    if how == "entry point":
        declare(site, '{shop.ShopError: "conflict"}')
    done = worker(tmp_path, site, "--check", *tools(tmp_path, '(raises={ShopError: "conflict"})' * (how == "raises")))

    assert done.returncode == 0 and "No table knows" not in done.stdout


def test_classify_says_what_a_company_declares(tmp_path: Path, site: Path) -> None:
    """The nearest class of the package's mapping decides."""
    before = worker(tmp_path, site, "--classify", "shop.ShopDown")
    declare(site, '{shop.ShopError: "conflict", shop.ShopDown: "server_error"}')
    after = worker(tmp_path, site, "--classify", "shop.ShopDown")

    assert "no table knows it, so it is a bug" in before.stdout
    assert "becomes  server_error" in after.stdout and (before.returncode, after.returncode) == (0, 0)


def test_a_broken_entry_point_is_said_and_left_out(tmp_path: Path, site: Path) -> None:
    """Its exceptions stay a bug, and the worker's log says why."""
    declare(site, '{shop.ShopError: "conflit"}')
    done = worker(tmp_path, site, "--classify", "shop.ShopError", "--log", "json")

    assert "no table knows it" in done.stdout
    assert "faults_not_loaded" in done.stderr and "did you mean conflict?" in done.stderr


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "raise ValueError('sk-secret')", "FAULTS = 7"])
def test_an_entry_point_that_cannot_be_loaded_stops_nothing(tmp_path: Path, site: Path, code: str) -> None:
    """It is code of another package, and runs while an attempt needs a fault."""
    declare(site, "{}")
    (site / "shop_faults.py").write_text(f"{code}\n")
    done = worker(tmp_path, site, "--classify", "shop.ShopError", "--log", "json")

    assert "no table knows it" in done.stdout and done.returncode == 0
    assert "faults_not_loaded" in done.stderr and "sk-secret" not in done.stderr


def test_of_two_packages_that_declare_a_class_the_first_on_the_path_counts(tmp_path: Path, site: Path) -> None:
    """The log names the other one."""
    declare(site, '{shop.ShopError: "conflict"}')
    (site / "later.py").write_text('import shop\nFAULTS = {shop.ShopError: "gone"}\n')
    (site / "shop-1.0.dist-info" / "entry_points.txt").write_text(
        "[replan.faults]\nshop = shop_faults:FAULTS\nshop = later:FAULTS\n"
    )
    done = worker(tmp_path, site, "--classify", "shop.ShopError", "--log", "json")

    assert "becomes  conflict" in done.stdout and "faults_declared_twice" in done.stderr


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
    """Both wrap exceptions in groups."""

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


async def test_what_a_thread_raises_after_its_attempt_does_not_say_how_that_ended(calls: Bench) -> None:
    """Nobody knew it then."""

    @tool.keyed(raises={ShopError: "conflict"}, timeout=0.3)
    def charge(args: Word, key: Key) -> Word:
        """Charge something, late."""
        time.sleep(0.6)
        raise SoldOut(HIDDEN)

    found, _ = await calls.fails(charge)
    await asyncio.sleep(0.5)

    assert (found.code, found.applied, found.still_running) == (Code.TIMEOUT, Applied.UNKNOWN, True)


def test_an_entry_point_for_the_classes_of_another_package_is_said(tmp_path: Path, site: Path) -> None:
    """It would never be asked about them."""
    declare(site, '{shop.ShopError: "conflict", TimeoutError: "busy"}')
    done = worker(tmp_path, site, "--classify", "shop.ShopError", "--log", "json")

    assert "no table knows it" in done.stdout and "builtins.TimeoutError is not of shop" in done.stderr


def test_classify_knows_the_classes_and_raises_of_a_tools_file(tmp_path: Path, site: Path) -> None:
    """The tool's own declaration is shown before the table's."""
    options = tools(tmp_path, '(raises={ShopError: "gone"})')
    done = worker(tmp_path, site, "--classify", "ShopError", *options)

    assert "in order, by raises=" in done.stdout and "becomes  gone (persistent, semantic)" in done.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("httpx2.ReadTimeout", "becomes  timeout (transient, infrastructural)"),
        pytest.param("FileNotFoundError", "becomes  one of these, by where it was raised", marks=pytest.mark.full),
        pytest.param("httpx2.HTTPStatusError", "becomes  one of these, by its HTTP status", marks=pytest.mark.full),
        pytest.param("KeyError", "so it is a bug: no retry and no new plan: a person", marks=pytest.mark.full),
        pytest.param("replan.Refused", "says itself what it is", marks=pytest.mark.full),
        pytest.param("ExceptionGroup", "as bad as the worst of its members", marks=pytest.mark.full),
        pytest.param("asyncio.CancelledError", "cancels a call: it is no fault", marks=pytest.mark.full),
        pytest.param("SystemExit", "so it is a bug", marks=pytest.mark.full),
    ],
)
def test_classify_says_what_follows(tmp_path: Path, name: str, said: str) -> None:
    """Without a server, a store, or a line of code."""
    done = Processes("localhost:1", tmp_path).asked("--classify", name)

    assert said in done.stdout and done.returncode == 0


@pytest.mark.parametrize(
    "name", ["httpx2.ReadTimeot", "nowhere.Error", "os.path", "", "a..b", "idlelib.__main__.X", "\udcff.x"]
)
def test_classify_of_no_class_says_what_to_write(tmp_path: Path, name: str) -> None:
    """Bad usage, in one sentence."""
    done = worker(tmp_path, tmp_path, "--classify", name)

    assert done.returncode == 2 and "write package.module.Class" in done.stderr and "Traceback" not in done.stderr
