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
from collections.abc import Callable, Iterator
from contextvars import Context
from functools import partial
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
from tests.activities.bench import Bench
from tests.gate import needs_extra
from tests.processes import ROOT
from workflows.faults.fault import Applied, Code


class Call(BaseModel):
    url: str
    methods: list[str] = ["POST"]


class Done(BaseModel):
    """Nothing to say."""


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


def plain(work: Callable[[Call], object], **options: Any) -> Tool[..., Any]:
    """An unkeyed tool that does this in a thread."""

    @tool.unkeyed(**options)
    def act(args: Call) -> Done:
        """Do it."""
        work(args)
        return Done()

    return act


def waiting(work: Callable[[Call], Any], **options: Any) -> Tool[..., Any]:
    """An unkeyed tool that does this on the event loop."""

    @tool.unkeyed(**options)
    async def act(args: Call) -> Done:
        """Do it."""
        await work(args)
        return Done()

    return act


def each(send: Callable[[str, str], None]) -> Tool[..., Any]:
    """A tool that sends a request for each of its methods from a thread."""

    def work(args: Call) -> None:
        for method in args.methods:
            send(method, args.url)

    return plain(work)


def each_async(send: Callable[[str, str], Any]) -> Tool[..., Any]:
    """A tool that sends a request for each of its methods on the event loop."""

    async def work(args: Call) -> None:
        for method in args.methods:
            await send(method, args.url)

    return waiting(work)


CLIENTS = {
    "urllib": each(with_urllib),
    "requests": each(with_requests),
    "httpx2": each(with_httpx2),
    "aiohttp": each_async(with_aiohttp),
    "httpx2 async": each_async(with_httpx2_async),
}
OK, CONFLICT, MISSING, LIMITED = reply(200, b"{}"), reply(409), reply(404), reply(429)
ORDERS = {
    "the only request": (["POST"], [CONFLICT], Applied.NONE),
    "after a look, which is no effect": (["GET", "POST"], [OK, CONFLICT], Applied.NONE),
    "a look after it, 404": (["POST", "GET"], [OK, MISSING], Applied.UNKNOWN),
    "a look after it, 429": (["POST", "GET"], [OK, LIMITED], Applied.UNKNOWN),
    "a second one": (["POST", "POST"], [OK, CONFLICT], Applied.UNKNOWN),
}
"""Which request was rejected: methods, answers, and what is known of the effect."""


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize(("methods", "answers", "effect"), ORDERS.values(), ids=ORDERS)
async def test_a_rejection_proves_something_of_the_only_request(
    calls: Bench, client: Tool[..., Any], methods: list[str], answers: list[bytes], effect: Applied
) -> None:
    """A tool needs to declare nothing for a new plan after a 409; what it wrote before is there."""
    async with serving(*answers) as url:
        failed, error = await calls.fails(client, url=url, methods=methods)

    assert (failed.applied, error.non_retryable) == (effect, True)
    assert failed.code in (Code.CONFLICT, Code.NOT_FOUND, Code.RATE_LIMITED)


async def effect_of(calls: Bench, act: Tool[..., Any], *answers: bytes, **given: Any) -> tuple[Code, Applied]:
    """How a call failed at a service that answers so."""
    async with serving(*answers) as url:
        failed, _ = await calls.fails(act, url=url, **given)
    return failed.code, failed.applied


def upload(args: Call) -> None:
    """Send a body in many parts; each is an event of its own, and only the head counts."""
    requests.post(args.url, data=iter([b"one", b"two", b"three"]), timeout=5).raise_for_status()


async def test_a_body_in_parts_and_a_redirected_request_are_one_effect(calls: Bench) -> None:
    """307 says that nothing was done here."""
    moved = reply(307, location="/there")

    assert await effect_of(calls, plain(upload), CONFLICT) == (Code.CONFLICT, Applied.NONE)
    assert await effect_of(calls, each(with_requests), moved, CONFLICT) == (Code.CONFLICT, Applied.NONE)


# A library that repeats a request by itself.


def put_item(args: Call) -> None:
    """Write with botocore as it comes, which repeats what it got no answer for."""
    session = botocore.session.get_session()
    session.set_credentials("a", "b")
    settings = botocore.config.Config(connect_timeout=1, read_timeout=1, retries={"mode": "standard"})
    client: Any = session.create_client("dynamodb", region_name="eu-west-1", endpoint_url=args.url, config=settings)
    client.put_item(TableName="t", Item={"id": {"S": "1"}})


def once(listener: socket.socket, heads: list[bytes]) -> None:
    """Take one request, and go away with its answer."""
    connection, _ = listener.accept()
    with connection:
        heads.append(connection.recv(65536))
        listener.close()


@needs_extra("libraries")
async def test_a_request_that_botocore_repeats_in_vain_proves_nothing_of_the_first(calls: Bench) -> None:
    """Its last exception says that no connection could be made, which is true of the repeated request."""
    heads = list[bytes]()
    listener = socket.create_server(("127.0.0.1", 0))
    serves = threading.Thread(target=once, args=(listener, heads))
    serves.start()
    failed, error = await calls.fails(plain(put_item), url=f"http://127.0.0.1:{listener.getsockname()[1]}")
    serves.join()

    assert len(heads) == 1
    assert (failed.code, failed.applied, error.non_retryable) == (Code.UNREACHABLE, Applied.UNKNOWN, True)


# What nobody can count.


def insist(args: Call) -> None:
    """Repeat a request, and raise what its last attempt raised, as tenacity does with `reraise=True`."""
    for left in (1, 0):
        try:
            with_requests("POST", args.url)
        except requests.RequestException:
            if not left:
                raise


def note_and_ask(args: Call) -> None:
    """Write to a database of its own, then ask a service."""
    with sqlite3.connect(args.methods[0], isolation_level=None) as own:
        own.execute("INSERT INTO words VALUES ('a')")
    with_requests("GET", args.url)


def run_and_ask(args: Call) -> None:
    """Run a program, then ask a service."""
    subprocess.run([sys.executable, "-c", ""], check=True)
    with_requests("GET", args.url)


def delegate_and_ask(args: Call) -> None:
    """Send a request from a thread of its own, then ask a service."""
    sends = threading.Thread(target=with_requests, args=("POST", args.url))
    sends.start()
    sends.join()
    with_requests("GET", args.url)


async def talk_and_ask(args: Call) -> None:
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


def write_and_look(args: Call) -> None:
    """Send one request that may change something, and one that is rejected."""
    with_requests("POST", args.url)
    with_requests("GET", args.url)


@tool.keyed(requests=1)
async def break_promise(args: Call, key: Key) -> Done:
    """Send two requests that may change something, and promise one."""
    for _ in range(2):
        await with_httpx2_async("POST", args.url)
    return Done()


UNSEEN = {
    "it was sent before, and got a 503": (plain(insist), [reply(503), CONFLICT]),
    "a database": (plain(note_and_ask), [MISSING]),
    "a program": (plain(run_and_ask), [MISSING]),
    "a thread": (plain(delegate_and_ask), [OK, MISSING]),
    "a socket": (waiting(talk_and_ask), [OK, MISSING]),
    "two were counted, whatever was promised": (break_promise, [OK, CONFLICT]),
    "one was counted, which is not the rejected one": (plain(write_and_look, requests=1), [OK, CONFLICT]),
}


@pytest.mark.parametrize(("act", "answers"), UNSEEN.values(), ids=UNSEEN)
async def test_what_cannot_be_counted_makes_a_rejection_worthless(
    calls: Bench, words: Path, act: Tool[..., Any], answers: list[bytes]
) -> None:
    """Something else has left; and a promise does not hide what was seen."""
    code, effect = await effect_of(calls, act, *answers, methods=[str(words)])

    assert (code in (Code.NOT_FOUND, Code.CONFLICT), effect) == (True, Applied.UNKNOWN)


class OwnAdapter(requests.adapters.BaseAdapter):
    """Sends in a way that nobody sees."""

    def send(self, request: Any, *_args: Any, **_options: Any) -> requests.Response:
        """Answer with a rejection."""
        answer = requests.Response()
        answer.status_code, answer.request, answer.url = 409, request, request.url
        return answer

    def close(self) -> None:
        """Nothing is open."""


def send_unseen(args: Call) -> None:
    """Send with an adapter of its own."""
    with requests.Session() as session:
        session.mount("http://", OwnAdapter())
        session.post(args.url, json={}).raise_for_status()


async def test_a_rejection_of_a_request_that_nobody_saw_proves_nothing(calls: Bench) -> None:
    """It was sent, and so may have been others."""
    failed, _ = await calls.fails(plain(send_unseen), url="http://shop.example/")

    assert (failed.code, failed.applied) == (Code.CONFLICT, Applied.UNKNOWN)


async def test_what_the_worker_sends_itself_belongs_to_no_call(calls: Bench) -> None:
    """Such as a notification: a rejection of the only request of a call proves that nothing was applied."""
    async with serving(OK) as receiver:

        async def ask(args: Call) -> None:
            """Ask a service, while the worker tells somebody something."""
            await asyncio.get_running_loop().create_task(with_httpx2_async("POST", receiver), context=Context())
            await with_httpx2_async("POST", args.url)

        assert await effect_of(calls, waiting(ask), CONFLICT) == (Code.CONFLICT, Applied.NONE)


# What a tool promises.


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A database with a table of words."""
    with sqlite3.connect(tmp_path / "words.db") as own:
        own.execute("CREATE TABLE words (word TEXT)")
    return tmp_path / "words.db"


def note(args: Call) -> None:
    """Write to a database of which another connection holds the lock."""
    with sqlite3.connect(args.url, isolation_level=None, timeout=0) as own:
        own.execute("INSERT INTO words VALUES ('a')")


@pytest.mark.parametrize(("act", "effect"), [(plain(note), Applied.UNKNOWN), (plain(note, requests=1), Applied.NONE)])
async def test_a_tool_may_promise_that_it_sends_one_request(
    calls: Bench, words: Path, act: Tool[..., Any], effect: Applied
) -> None:
    """Then a rejection is of that one, and nothing was applied."""
    with sqlite3.connect(words) as own:
        own.execute("BEGIN IMMEDIATE")
        failed, _ = await calls.fails(act, url=str(words))

    assert (failed.code, failed.applied) == (Code.BUSY, effect)


class SoldOut(Exception):
    """An exception of the tool's own."""


def buy(args: Call, error: Exception, times: int = 1) -> None:
    """Buy, and look whether it worked."""
    for _ in range(times):
        with_requests("POST", args.url)
    raise error


async def test_the_tool_s_own_word_is_believed(calls: Bench) -> None:
    """It knows what it has sent: a declared code or effect after a request, and Replan's own class after two."""
    sold = partial(buy, error=SoldOut())
    refused = plain(partial(buy, error=Refused("Sold out.", code="conflict"), times=2))
    for raises in ({SoldOut: "conflict"}, {SoldOut: fault("conflict", applied="none")}):
        assert await effect_of(calls, plain(sold, raises=raises), OK) == (Code.CONFLICT, Applied.NONE)
    assert await effect_of(calls, refused, OK, OK) == (Code.CONFLICT, Applied.NONE)


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


@pytest.mark.parametrize(("words", "effect"), [(["a"], Applied.NONE), (["b", "a"], Applied.UNKNOWN)])
async def test_statements_are_counted(calls: Bench, shelf: str, words: list[str], effect: Applied) -> None:
    """A row that breaks a constraint is not written; one before it is."""
    insert(shelf, ["a"])
    shelve = plain(lambda args: insert(args.url, args.methods))
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
    def write(self) -> object:
        """Write with a library that nobody counts."""
        return sqlite3.connect("")


KEEPER, NOTE = Keeper(), plain(note)


def through_a_body(args: Call) -> object:
    """Import where it is needed."""
    import smtplib

    return smtplib.SMTP()


def test_a_library_is_found_where_it_is_named() -> None:
    """In the function, or in what that names of its program; a file may have tools for several services."""
    connect = sqlite3.connect
    through: list[Callable[..., object]] = [lambda _: KEEPER.write(), lambda args: NOTE(args), lambda: connect("")]
    other = libraries_of(lambda args: requests.get(args.url, timeout=5))

    assert [one for one in through if "sqlite3" not in (libraries_of(one) or ())] == []
    assert "smtplib" in (libraries_of(through_a_body) or ())
    assert other is not None and "requests" in other and not {"sqlite3", "smtplib"} & other


class Frozen:
    """What a program may put in the place of a module: it has no dictionary."""

    __slots__ = ("get",)


def through_no_module(args: Call) -> object:
    """Import what is no module."""
    import frozen_settings  # type: ignore[import-not-found]

    return frozen_settings.get(args.url)


def test_what_is_no_module_has_no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may put any object into `sys.modules`; None blocks an import."""
    for value in (Frozen(), None):
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
