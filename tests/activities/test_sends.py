"""What a tool has sent, with whatever client: a rejection proves no effect only if nothing else has left."""

import asyncio
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import Context
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import botocore.config
import botocore.session
import httpx2
import pytest
import requests
from pydantic import BaseModel
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError

from activities.libraries import libraries_of
from activities.sends import Sends, counted
from evals.fakes.http_server import reply, serving
from replan import Key, Refused, Tool, fault, tool
from tests.activities.bench import Bench, bench
from tests.processes import ROOT
from workflows.faults.fault import Applied, Code


class Call(BaseModel):
    """What to send, and where."""

    url: str
    methods: list[str] = ["POST"]


class Done(BaseModel):
    """Nothing to say."""


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[Bench]:
    """A boundary with a store."""
    async with bench(tmp_path) as opened:
        yield opened


def with_urllib(method: str, url: str) -> None:
    """As a script does that has no libraries."""
    sent = urllib.request.Request(url, method=method, data=b"{}" if method == "POST" else None)  # noqa: S310
    try:
        urllib.request.urlopen(sent, timeout=5).close()  # noqa: S310  # on loopback
    except urllib.error.HTTPError as error:
        error.close()
        raise


def with_requests(method: str, url: str) -> None:
    """As most scripts do."""
    requests.request(method, url, json={}, timeout=5).raise_for_status()


def with_httpx2(method: str, url: str) -> None:
    """With a client that is not the one of Replan."""
    with httpx2.Client(trust_env=False, verify=False) as own:
        own.request(method, url, json={}).raise_for_status()


async def with_aiohttp(method: str, url: str) -> None:
    """In a session of its own."""
    async with aiohttp.ClientSession(raise_for_status=True) as session, session.request(method, url, json={}):
        pass


async def with_httpx2_async(method: str, url: str) -> None:
    """On the event loop."""
    async with httpx2.AsyncClient(trust_env=False, verify=False) as own:
        (await own.request(method, url, json={})).raise_for_status()


def plain(send: Callable[[str, str], None]) -> Tool[..., Any]:
    """An unkeyed tool that sends its requests from a thread."""

    @tool.unkeyed
    def act(args: Call) -> Done:
        """Send requests."""
        for method in args.methods:
            send(method, args.url)
        return Done()

    return act


def waiting(send: Callable[[str, str], Any]) -> Tool[..., Any]:
    """An unkeyed tool that awaits its requests."""

    @tool.unkeyed
    async def act(args: Call) -> Done:
        """Send requests."""
        for method in args.methods:
            await send(method, args.url)
        return Done()

    return act


CLIENTS = {
    "urllib": plain(with_urllib),
    "requests": plain(with_requests),
    "httpx2": plain(with_httpx2),
    "aiohttp": waiting(with_aiohttp),
    "httpx2 async": waiting(with_httpx2_async),
}
OK, CONFLICT, MISSING, LIMITED = reply(200, b"{}"), reply(409), reply(404), reply(429)
EACH = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


@EACH
async def test_the_only_request_was_rejected(calls: Bench, client: Tool[..., Any]) -> None:
    """A tool needs to declare nothing for a new plan after a 409."""
    async with serving(CONFLICT) as url:
        failed, _ = await calls.fails(client, url=url)

    assert (failed.code, failed.applied) == (Code.CONFLICT, Applied.NONE)


@EACH
async def test_a_look_before_the_rejected_request_changes_nothing(calls: Bench, client: Tool[..., Any]) -> None:
    """A GET is no effect."""
    async with serving(OK, CONFLICT) as url:
        failed, _ = await calls.fails(client, url=url, methods=["GET", "POST"])

    assert (failed.code, failed.applied) == (Code.CONFLICT, Applied.NONE)


@EACH
@pytest.mark.parametrize("answer", [MISSING, LIMITED], ids=["404", "429"])
async def test_a_rejected_look_proves_nothing_of_the_request_before(
    calls: Bench, client: Tool[..., Any], answer: bytes
) -> None:
    """The tool has written, then read with a client of its own: what it wrote is there."""
    async with serving(OK, answer) as url:
        failed, error = await calls.fails(client, url=url, methods=["POST", "GET"])

    assert (failed.applied, error.non_retryable) == (Applied.UNKNOWN, True)


@EACH
async def test_a_second_rejected_request_proves_nothing_of_the_first(calls: Bench, client: Tool[..., Any]) -> None:
    """One effect a tool; the second is the one that was rejected."""
    async with serving(OK, CONFLICT) as url:
        failed, _ = await calls.fails(client, url=url, methods=["POST", "POST"])

    assert failed.applied is Applied.UNKNOWN


@tool.unkeyed
def upload(args: Call) -> Done:
    """Send a body in many parts."""
    requests.post(args.url, data=iter([b"one", b"two", b"three"]), timeout=5).raise_for_status()
    return Done()


async def test_a_body_in_parts_is_one_request(calls: Bench) -> None:
    """Each part is an event of its own, and only the head counts."""
    async with serving(CONFLICT) as url:
        failed, _ = await calls.fails(upload, url=url)

    assert (failed.code, failed.applied) == (Code.CONFLICT, Applied.NONE)


@tool.unkeyed
def move(args: Call) -> Done:
    """Follow a redirect that repeats the request elsewhere."""
    requests.post(args.url, json={}, timeout=5).raise_for_status()
    return Done()


async def test_a_redirected_request_that_is_rejected_is_one_effect(calls: Bench) -> None:
    """307 says that nothing was done here."""
    async with serving(reply(307, location="/there"), CONFLICT) as url:
        failed, _ = await calls.fails(move, url=url)

    assert (failed.code, failed.applied) == (Code.CONFLICT, Applied.NONE)


# A library that repeats a request by itself.


def put_item(url: str) -> None:
    """Write with botocore as it comes, which repeats what it got no answer for."""
    session = botocore.session.get_session()
    session.set_credentials("a", "b")
    settings = botocore.config.Config(connect_timeout=1, read_timeout=1, retries={"mode": "standard"})
    client: Any = session.create_client("dynamodb", region_name="eu-west-1", endpoint_url=url, config=settings)
    client.put_item(TableName="t", Item={"id": {"S": "1"}})


@tool.unkeyed
def store_item(args: Call) -> Done:
    """Write one item."""
    put_item(args.url)
    return Done()


def once(listener: socket.socket, heads: list[bytes]) -> None:
    """Take one request, and go away with its answer."""
    connection, _ = listener.accept()
    with connection:
        heads.append(connection.recv(65536))
        listener.close()


async def test_a_request_that_botocore_repeats_in_vain_proves_nothing_of_the_first(calls: Bench) -> None:
    """Its last exception says that no connection could be made, which is true of the repeated request."""
    heads = list[bytes]()
    listener = socket.create_server(("127.0.0.1", 0))
    serves = threading.Thread(target=once, args=(listener, heads))
    serves.start()
    failed, error = await calls.fails(store_item, url=f"http://127.0.0.1:{listener.getsockname()[1]}")
    serves.join()

    assert len(heads) == 1
    assert (failed.code, failed.applied, error.non_retryable) == (Code.UNREACHABLE, Applied.UNKNOWN, True)


@tool.unkeyed
def insist(args: Call) -> Done:
    """Repeat a request, and raise what its last attempt raised, as tenacity does with `reraise=True`."""
    for left in (1, 0):
        try:
            requests.post(args.url, json={}, timeout=5).raise_for_status()
        except requests.RequestException:
            if not left:
                raise
    return Done()


async def test_a_request_that_the_tool_repeats_in_vain_proves_nothing_of_the_first(calls: Bench) -> None:
    """503 says nothing of the first, and 409 only something of the second."""
    async with serving(reply(503), CONFLICT) as url:
        failed, _ = await calls.fails(insist, url=url)

    assert (failed.code, failed.applied) == (Code.CONFLICT, Applied.UNKNOWN)


# What nobody can count.


@tool.unkeyed
def note_and_ask(args: Call) -> Done:
    """Write to a database of its own, then ask a service."""
    with sqlite3.connect(args.methods[0], isolation_level=None) as own:
        own.execute("INSERT INTO words VALUES ('a')")
    with_requests("GET", args.url)
    return Done()


@tool.unkeyed
def run_and_ask(args: Call) -> Done:
    """Run a program, then ask a service."""
    subprocess.run([sys.executable, "-c", ""], check=True)
    with_requests("GET", args.url)
    return Done()


@tool.unkeyed
def delegate_and_ask(args: Call) -> Done:
    """Send a request from a thread of its own, then ask a service."""
    sends = threading.Thread(target=with_requests, args=("POST", args.url))
    sends.start()
    sends.join()
    with_requests("GET", args.url)
    return Done()


@tool.unkeyed
async def talk_and_ask(args: Call) -> Done:
    """Speak a protocol of its own, then ask a service."""
    to = urlsplit(args.url)
    _, writer = await asyncio.open_connection(to.hostname, to.port)
    try:
        writer.write(b"POST / HTTP/1.1\r\n\r\n")
        await writer.drain()
        await with_httpx2_async("GET", args.url)
    finally:
        writer.close()
        await writer.wait_closed()
    return Done()


UNSEEN = {
    "a database": (note_and_ask, [MISSING]),
    "a program": (run_and_ask, [MISSING]),
    "a thread": (delegate_and_ask, [OK, MISSING]),
    "a socket": (talk_and_ask, [OK, MISSING]),
}


@pytest.mark.parametrize(("act", "answers"), UNSEEN.values(), ids=UNSEEN)
async def test_what_cannot_be_counted_makes_a_rejection_worthless(
    calls: Bench, tmp_path: Path, act: Tool[..., Any], answers: list[bytes]
) -> None:
    """Something has left that no count has."""
    file = tmp_path / "words.db"
    with sqlite3.connect(file) as own:
        own.execute("CREATE TABLE words (word TEXT)")
    async with serving(*answers) as url:
        failed, _ = await calls.fails(act, url=url, methods=[str(file)])

    assert (failed.code, failed.applied) == (Code.NOT_FOUND, Applied.UNKNOWN)


class OwnAdapter(requests.adapters.BaseAdapter):
    """Sends in a way that nobody sees."""

    def send(self, request: Any, *_args: Any, **_options: Any) -> requests.Response:
        """Answer with a rejection."""
        answer = requests.Response()
        answer.status_code, answer.request, answer.url = 409, request, request.url
        return answer

    def close(self) -> None:
        """Nothing is open."""


@tool.unkeyed
def send_unseen(args: Call) -> Done:
    """Send with an adapter of its own."""
    with requests.Session() as session:
        session.mount("http://", OwnAdapter())
        session.post(args.url, json={}).raise_for_status()
    return Done()


async def test_a_rejection_of_a_request_that_nobody_saw_proves_nothing(calls: Bench) -> None:
    """It was sent, and so may have been others."""
    failed, _ = await calls.fails(send_unseen, url="http://shop.example/")

    assert (failed.code, failed.applied) == (Code.CONFLICT, Applied.UNKNOWN)


async def test_what_the_worker_sends_itself_belongs_to_no_call(calls: Bench) -> None:
    """Such as a notification: a rejection of the only request of a call proves that nothing was applied."""
    async with serving(OK) as receiver, serving(CONFLICT) as url:

        @tool.unkeyed
        async def ask(args: Call) -> Done:
            """Ask a service, while the worker tells somebody something."""
            telling = asyncio.get_running_loop().create_task(with_httpx2_async("POST", receiver), context=Context())
            await telling
            await with_httpx2_async("POST", args.url)
            return Done()

        failed, _ = await calls.fails(ask, url=url)

    assert (failed.code, failed.applied) == (Code.CONFLICT, Applied.NONE)


# What a tool promises.


def locked(file: str) -> None:
    """Write to a database of which another connection holds the lock."""
    with sqlite3.connect(file, isolation_level=None, timeout=0) as own:
        own.execute("INSERT INTO words VALUES ('a')")


@tool.unkeyed
def note(args: Call) -> Done:
    """Write one row."""
    locked(args.url)
    return Done()


@tool.unkeyed(requests=1)
def note_once(args: Call) -> Done:
    """Write one row, and promise that it is all."""
    locked(args.url)
    return Done()


@tool.keyed(requests=1)
async def break_promise(args: Call, key: Key) -> Done:
    """Send two requests that may change something, and promise one."""
    for _ in range(2):
        await with_httpx2_async("POST", args.url)
    return Done()


@pytest.mark.parametrize(("act", "effect"), [(note, Applied.UNKNOWN), (note_once, Applied.NONE)])
async def test_a_tool_may_promise_that_it_sends_one_request(
    calls: Bench, tmp_path: Path, act: Tool[..., Any], effect: Applied
) -> None:
    """Then a rejection is of that one, and nothing was applied."""
    file = tmp_path / "words.db"
    with sqlite3.connect(file) as own:
        own.execute("CREATE TABLE words (word TEXT)")
        own.commit()
        own.execute("BEGIN IMMEDIATE")
        failed, _ = await calls.fails(act, url=str(file))

    assert (failed.code, failed.applied) == (Code.BUSY, effect)


@tool.unkeyed(requests=1)
def write_and_look(args: Call) -> Done:
    """Send one request that may change something, and promise one."""
    with_requests("POST", args.url)
    with_requests("GET", args.url)
    return Done()


@pytest.mark.parametrize("act", [break_promise, write_and_look])
async def test_a_promise_does_not_hide_what_was_seen(calls: Bench, act: Tool[..., Any]) -> None:
    """Two requests were counted, or the one that was rejected is not the one that may have changed something."""
    async with serving(OK, CONFLICT) as url:
        failed, _ = await calls.fails(act, url=url)

    assert failed.applied is Applied.UNKNOWN


class SoldOut(Exception):
    """An exception of the tool's own."""


@tool.unkeyed(raises={SoldOut: "conflict"})
def buy(args: Call) -> Done:
    """Buy, and look whether it worked."""
    with_requests("POST", args.url)
    raise SoldOut


@tool.unkeyed(raises={SoldOut: fault("conflict", applied="none")})
def buy_or_not(args: Call) -> Done:
    """Know that nothing was bought."""
    with_requests("POST", args.url)
    raise SoldOut


@tool.unkeyed
def buy_and_refuse(args: Call) -> Done:
    """Say so in Replan's own words."""
    with_requests("POST", args.url)
    with_requests("POST", args.url)
    raise Refused("Sold out.", code="conflict")


DECLARED = {
    "a declared code, after a request": (buy, Applied.NONE),
    "a declared effect": (buy_or_not, Applied.NONE),
    "Replan's own class": (buy_and_refuse, Applied.NONE),
}


@pytest.mark.parametrize(("act", "effect"), DECLARED.values(), ids=DECLARED)
async def test_the_tool_s_own_word_is_believed(calls: Bench, act: Tool[..., Any], effect: Applied) -> None:
    """It knows what it has sent."""
    async with serving(OK) as url:
        failed, _ = await calls.fails(act, url=url)

    assert (failed.code, failed.applied) == (Code.CONFLICT, effect)


# SQL, by the events of SQLAlchemy.


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[str]:
    """A database with a table whose words are unique."""
    url = f"sqlite:///{tmp_path}/shelf.db"
    engine = create_engine(url)
    with engine.begin() as own:
        own.execute(text("CREATE TABLE words (word TEXT PRIMARY KEY)"))
    yield url
    engine.dispose()


def insert(url: str, words: list[str]) -> None:
    """Write each word in a transaction of its own."""
    engine = create_engine(url)
    try:
        for word in words:
            with engine.begin() as own:
                own.execute(text("INSERT INTO words VALUES (:word)"), {"word": word})
    finally:
        engine.dispose()


@tool.unkeyed
def shelve(args: Call) -> Done:
    """Write words."""
    insert(args.url, args.methods)
    return Done()


@pytest.mark.parametrize(("words", "effect"), [(["a"], Applied.NONE), (["b", "a"], Applied.UNKNOWN)])
async def test_statements_are_counted(calls: Bench, shelf: str, words: list[str], effect: Applied) -> None:
    """A row that breaks a constraint is not written; one before it is."""
    insert(shelf, ["a"])
    failed, _ = await calls.fails(shelve, url=shelf, methods=words)

    assert (failed.code, failed.applied) == (Code.CONFLICT, effect)


def test_a_statement_counts_where_it_is_executed(shelf: str) -> None:
    """A SELECT changes nothing, and what fails was sent all the same."""
    with counted(Sends()) as sends:
        engine = create_engine(shelf)
        with engine.connect() as own:
            own.execute(text("SELECT 1"))
        with pytest.raises(IntegrityError):
            insert(shelf, ["c", "c"])
        engine.dispose()

    assert (sends.all, sends.changes, sends.is_complete) == (3, 2, True)


# Which libraries a tool can use.


class Keeper:
    """Keeps a connection."""

    def write(self) -> object:
        """Write with a library that nobody counts."""
        return sqlite3.connect("")


KEEPER = Keeper()


def through_a_value(args: Call) -> object:
    """Use a value of the module."""
    return KEEPER.write()


def through_a_body(args: Call) -> object:
    """Import where it is needed."""
    import smtplib

    return smtplib.SMTP()


def through_a_tool(args: Call) -> object:
    """Call another tool."""
    return note(args)


def through_a_closure() -> Callable[[], object]:
    """Make a function that keeps what it needs."""
    connect = sqlite3.connect
    return lambda: connect("")


def nothing_of_it(args: Call) -> object:
    """Use another library of the same module."""
    return requests.get(args.url, timeout=5)


@pytest.mark.parametrize(
    ("function", "library"),
    [
        (through_a_value, "sqlite3"),
        (through_a_body, "smtplib"),
        (through_a_tool, "sqlite3"),
        (through_a_closure(), "sqlite3"),
    ],
)
def test_a_library_is_found_where_it_is_named(function: Callable[..., object], library: str) -> None:
    """In the function, or in what that names of its program."""
    found = libraries_of(function)

    assert found is not None and library in found


def test_another_tool_s_libraries_are_not_this_one_s() -> None:
    """A file may have tools for several services."""
    found = libraries_of(nothing_of_it)

    assert found is not None and "requests" in found and not {"sqlite3", "smtplib"} & found


class Frozen:
    """What a program may put in the place of a module: it has no dictionary."""

    __slots__ = ("get",)


def through_no_module(args: Call) -> object:
    """Import what is no module."""
    import frozen_settings  # type: ignore[import-not-found]

    return frozen_settings.get(args.url)


@pytest.mark.parametrize("value", [Frozen(), None])
def test_what_is_no_module_has_no_libraries(monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    """A program may put any object into `sys.modules`; None blocks an import."""
    monkeypatch.setitem(sys.modules, "frozen_settings", value)

    assert libraries_of(through_no_module) is not None


def test_a_library_of_an_unknown_version_makes_no_count_complete(tmp_path: Path) -> None:
    """What is watched in others is not there: nothing fails, and nothing is proven."""
    (tmp_path / "aiohttp.py").write_text("class ClientRequest:\n    pass\n")
    code = (
        "import aiohttp\nfrom activities import sends\nsends.start()\n"
        "with sends.counted(sends.Sends()) as sent: print(sent.is_complete)"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )

    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr
