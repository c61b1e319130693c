"""`http_request`: what it sends, whereto it does not, and what each answer means."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import JsonValue

from activities import deadline
from activities.borders.http import STATUS
from activities.deadline import DeadlinePassed
from activities.toolbox.declare.tool import Tool, ToolOptions
from activities.toolbox.http.http_request import MAX_JSON, MAX_READ, MAX_TEXT, HttpRequest, http_request
from activities.toolbox.http.network import Patience, Reach, Resolve, Web, resolve
from activities.toolbox.http.services import Services
from evals.fakes.http_server import SILENCE, endlessly, reply, serving, streaming
from replan import Key
from runtime.dev_server import free_port
from tests.activities.bench import Bench, bench
from tests.activities.pages import HERE, offline, stands_for, whole
from tests.activities.payments import Payments, payments
from workflows.faults.fault import Applied, Code, Fault
from workflows.plans.proposal import StepReturn

UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
JSON = {"content_type": "application/json"}


def services(
    *allowed: str,
    headers: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    private: Sequence[str] = HERE,
    resolve: Resolve = resolve,
) -> Services:
    return Services.of(allowed, headers, environment or {}, Web(Reach.of(private), resolve))


@asynccontextmanager
async def sending(folder: Path, given: Services) -> AsyncIterator[Bench]:
    async with bench(folder, services=given) as calls:
        yield calls


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[Bench]:
    async with sending(tmp_path, services(*HERE)) as ready:
        yield ready


@pytest.fixture
def service() -> Iterator[Payments]:
    with payments() as running:
        yield running


async def post(calls: Bench, url: str, **more: Any) -> StepReturn:
    return await calls.call(http_request, **{"method": "POST", "url": url, **more})


async def fault_of(calls: Bench, url: str, **more: Any) -> Fault:
    fault, _ = await calls.fails(http_request, **{"method": "POST", "url": url, **more})
    return fault


async def answered(calls: Bench, *answers: bytes | None, **more: Any) -> Any:
    async with serving(*answers) as url:
        return (await post(calls, url, **more)).result


async def refused(calls: Bench, *answers: bytes | None, **more: Any) -> Fault:
    async with serving(*answers) as url:
        return await fault_of(calls, url, **more)


async def test_what_is_sent_is_what_was_given(calls: Bench, service: Payments) -> None:
    """Body and key arrive, and the answer comes back as JSON; one that was lost is asked for again."""
    back = await post(calls, service.url, run="r", body={"amount": "24.50", "note": "für A-17"})
    charge = {"id": 1, "key": "r/a", "amount": "24.50", "note": "für A-17"}

    assert service.charges == [charge]
    assert back.result == {"status": 200, "headers": {}, "body": json.dumps(charge), "cut": ""}

    service.plan = ["503", "drop"]
    faults = [await fault_of(calls, service.url, run="r", attempt=attempt, body={}) for attempt in (1, 2)]
    await post(calls, service.url, run="r", attempt=3, body={})

    assert [(fault.code, fault.applied) for fault in faults] == [
        (Code.SERVER_ERROR, Applied.UNKNOWN),
        (Code.UNREACHABLE, Applied.UNKNOWN),
    ]
    assert [charge["key"] for charge in service.charges] == ["r/a"]


async def test_each_method_that_changes_something_sends_the_key(calls: Bench) -> None:
    """One header, whatever the method; a GET changes nothing, and has neither. JSON has more than one media type."""
    async with streaming(lambda _head: whole(reply(200, b"[1]", **JSON))) as server:
        for method in UNSAFE:
            await calls.call(http_request, run="r", method=method, url=f"{server.url}/a?b=c", body={"a": 1})
        got = await calls.call(http_request, method="GET", url=server.url)
    *heads, get = [head.decode().lower() for head in server.requests]

    for method, head in zip(UNSAFE, heads, strict=True):
        assert head.startswith(f"{method.lower()} /a?b=c http/1.1\r\n")
        assert "idempotency-key: r/a\r\n" in head and "content-type: application/json\r\n" in head
    assert isinstance(got.result, dict) and got.result["body"] == [1]
    assert not [word for word in ("idempotency-key", "content-length", "content-type") if word in get]

    given: JsonValue = {"If-Match": '"v1"', "Content-Type": "application/merge-patch+json"}
    async with streaming(lambda _head: whole(reply(200))) as server:
        await calls.call(http_request, method="PATCH", url=server.url, headers=given, body={})

    head = server.requests[0].decode()
    assert 'if-match: "v1"\r\n' in head and "content-type: application/merge-patch+json\r\n" in head
    assert head.lower().count("content-type") == 1


SECRET, OURS = "may carry a secret, which no plan may hold", "is not yours to write: leave it out"
FORBIDDEN_HEADERS = {
    "authorization": SECRET,
    "Cookie": SECRET,
    "Proxy-Authorization": SECRET,
    "X-Api-Key": SECRET,
    "X-Auth-Token": SECRET,
    "host": OURS,
    "Connection": OURS,
    "Transfer-Encoding": OURS,
    "Content-Length": OURS,
    "Idempotency-Key": OURS,
}
SPLITTING: list[dict[str, str]] = [
    {"x": "a\r\nidempotency-key: b"},
    {"x": "a\nb"},
    {"x": "a\rb"},
    {"x": "a\x00b"},
    {"x\r\ny": "a"},
    {"x y": "a"},
    {"": "a"},
    {"x": "a\n"},
    {"x:": "a"},
    {"x": "ü"},
]
NO_REQUESTS: list[dict[str, Any]] = [
    {"method": "TRACE"},
    {"method": "post"},
    {"method": "GET", "body": {}},
    {"headers": {"content-type": "text/plain"}},
    {"url": "file:///etc/passwd"},
    {"url": "http://127.0.0.1:99999/"},
    {"url": "no address"},
    {"url": "http://me:secret@127.0.0.1/"},
    {"url": "http://127.0.0.1/\r\nx: y"},
]


async def test_what_is_no_request_or_holds_what_no_plan_may_write_is_refused(calls: Bench) -> None:
    """Nothing is sent: neither a header that could become two, nor one that may hold a secret."""
    wrong: list[tuple[dict[str, Any], str]] = [
        *(({"headers": {name: "hunter2"}}, words) for name, words in FORBIDDEN_HEADERS.items()),
        *(({"headers": headers}, "") for headers in SPLITTING),
        *((more, "") for more in NO_REQUESTS),
    ]
    async with streaming(lambda _head: whole(reply(200))) as server:
        for more, words in wrong:
            fault = await fault_of(calls, **{"url": server.url, **more})

            assert (fault.code, fault.applied) == (Code.INVALID_INPUT, Applied.NONE), more
            assert words in fault.reason and "hunter2" not in fault.model_dump_json()

    assert server.requests == []


FORBIDDEN_HOSTS: list[tuple[tuple[str, ...], str]] = [
    (("api.example",), "http://other.example/"),
    ((), "http://127.0.0.1/"),
    (("api.example",), "http://www.api.example/"),
    (("api.example",), "http://api.example.other.example/"),
    (("api.example:8443",), "http://api.example/"),
    (("127.0.0.1",), "http://2130706433/"),  # the same address, spelt otherwise
]


async def test_a_host_that_nobody_named_is_for_a_person(tmp_path: Path) -> None:
    """By default nothing may be sent anywhere; nobody's DNS opens this network."""
    for number, (allowed, url) in enumerate(FORBIDDEN_HOSTS):
        (folder := tmp_path / f"{number}").mkdir()
        async with sending(folder, services(*allowed, resolve=stands_for("127.0.0.1"))) as calls:
            fault = await fault_of(calls, url)

        assert (fault.code, fault.applied) == (Code.FORBIDDEN, Applied.NONE)
        assert "start it with --allow-request" in fault.reason

    given = services("api.example", private=(), resolve=stands_for("10.0.0.1"))
    async with sending(tmp_path, given) as calls:
        fault = await fault_of(calls, "https://api.example/")

    assert (fault.code, fault.applied) == (Code.INVALID_INPUT, Applied.NONE)
    assert "--allow-host" in fault.reason


async def test_a_host_that_was_named_is_reached() -> None:
    """With or without its port, in any spelling of its letters."""
    async with streaming(lambda _head: whole(reply(201))) as server:
        args = HttpRequest(method="POST", url=f"http://site.example:{server.port}/")
        for allowed in ("site.example", "Site.Example.", f"site.example:{server.port}"):
            back = await http_request(args, Key("r/a"), services(allowed, resolve=offline))
            assert back.status == 201


REFUSALS = [status for status in range(400, 500) if status not in (408, 499)]


@pytest.mark.parametrize(
    "statuses", [(401, 404, 409, 418, 429), pytest.param(REFUSALS, marks=pytest.mark.full)], ids=["some", "all"]
)
async def test_every_refusal_means_what_the_table_says(calls: Bench, statuses: Sequence[int]) -> None:
    """And that nothing happened, as long as it is the only attempt."""
    faults = {status: await refused(calls, reply(status)) for status in statuses}

    assert {status: fault.code for status, fault in faults.items()} == {
        status: STATUS[status][0] if status in STATUS else Code.REFUSED for status in statuses
    }
    assert {fault.applied for fault in faults.values()} == {Applied.NONE}


OPEN = {
    499: Code.UNREACHABLE,  # of a gateway: its client went away, and the service may go on
    500: Code.SERVER_ERROR,
    501: Code.MALFORMED_SCHEMA,
    503: Code.SERVER_ERROR,
    599: Code.SERVER_ERROR,
    302: Code.UNEXPECTED_RESULT,
    304: Code.UNEXPECTED_RESULT,
}


async def test_another_answer_leaves_open_what_happened(calls: Bench) -> None:
    """The service took the request, and did not say that it refused it; only a refused connection proves something."""
    faults = {status: await refused(calls, reply(status, location="/there", retry_after="7")) for status in OPEN}

    assert {status: fault.code for status, fault in faults.items()} == OPEN
    assert {fault.applied for fault in faults.values()} == {Applied.UNKNOWN}
    assert faults[503].retry_after == 7

    fault = await fault_of(calls, f"http://127.0.0.1:{free_port()}/")

    assert (fault.code, fault.applied) == (Code.UNREACHABLE, Applied.NONE)

    async with serving(SILENCE) as url:
        fault, _ = await calls.fails(HASTY, method="POST", url=url)

    assert (fault.code, fault.applied) == (Code.TIMEOUT, Applied.UNKNOWN)


async def test_an_effect_is_not_sent_on(calls: Bench) -> None:
    """The planner learns where the thing is now; 303 says that it was done (RFC 9110, section 15.4.4)."""
    for status in (301, 307, 308):
        fault = await refused(calls, reply(status, location="/there"))
        assert (fault.code, fault.applied) == (Code.UNEXPECTED_RESULT, Applied.NONE)
        assert isinstance(fault.observed, dict) and str(fault.observed["location"]).endswith("/there")
    taken = await refused(calls, reply(409, b'{"free": ["14:30"]}', **JSON))
    done = await answered(calls, reply(303, location="/orders/7"))
    assert (taken.code, taken.observed) == (Code.CONFLICT, {"free": ["14:30"]})
    assert (done["status"], done["headers"]["location"]) == (303, "/orders/7")


ANSWERS: list[tuple[bytes, dict[str, str], JsonValue]] = [
    (b"", {}, None),
    (b'{"id": 7}', JSON, {"id": 7}),
    (b"null", JSON, None),
    (b'{"id": 7}', {"content_type": "application/problem+json; charset=utf-8"}, {"id": 7}),
    (b"done", {"content_type": "text/plain"}, "done"),
    (b'{"id": 7', JSON, '{"id": 7'),
    (b"NaN", JSON, "NaN"),
    (b'"\\ud800"', JSON, '"\\ud800"'),
    (b"[" * 100 + b"]" * 100, JSON, "[" * 100 + "]" * 100),
    (b"[" * 9000, JSON, "[" * 9000),
    (b"9" * 6000, JSON, "9" * 6000),
    (b"\xff\xfe\x00garbage\x1b[31m", JSON, None),
    (b"caf\xe9", {"content_type": "text/plain; charset=latin-1"}, "café"),
    (b"caf\xe9", {"content_type": "text/plain; charset=no-such"}, "caf\ufffd"),
    (b"no gzip", {**JSON, "content_encoding": "gzip"}, None),
]


async def test_whatever_is_answered_is_a_result(calls: Bench) -> None:
    """The effect happened: JSON as JSON, what is none as text, and no more is read than is wanted."""
    for body, headers, read in ANSWERS:
        result = await answered(calls, reply(200, body, **headers))

        assert result["status"] == 200
        assert read is None or result["body"] == read

    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"
    endless = b"HTTP/1.1 100 Continue\r\nx: " + b"y" * 60_000 + b"\r\n\r\n"
    async with streaming(lambda _head: endlessly(head, b"x" * 60_000)) as server:
        back = await post(calls, server.url)
    async with streaming(lambda _head: endlessly(b"", endless)) as server:
        fault = await fault_of(calls, server.url)

    assert isinstance(back.result, dict) and back.result["cut"] == f"cut after {MAX_READ:,} bytes"
    assert (fault.code, fault.applied) == (Code.UNREACHABLE, Applied.UNKNOWN)


async def test_one_service_that_is_down_does_not_stop_requests_to_another(calls: Bench) -> None:
    """Each host and port has a breaker of its own."""
    async with serving(*[reply(503)] * 3) as down, serving(reply(200, b"{}")) as other:
        failed = [await fault_of(calls, down, run=f"r{number}") for number in range(4)]
        done = await post(calls, other)

    assert [one.code for one in failed] == [Code.SERVER_ERROR] * 3 + [Code.CIRCUIT_OPEN]
    assert failed[3].reason.startswith(f"{urlsplit(down).netloc} is left alone")
    assert isinstance(done.result, dict) and done.result["status"] == 200


HUGE = [
    json.dumps(["x" * MAX_JSON]).encode(),
    json.dumps(["\U0001f388" * MAX_JSON], ensure_ascii=False).encode(),
    b'"' * MAX_READ * 4,
    b"\\" * MAX_READ,
    b"[" + b"1," * MAX_READ,
]


@pytest.mark.parametrize("media", ["application/json", pytest.param("text/plain", marks=pytest.mark.full)])
async def test_a_huge_answer_is_cut(calls: Bench, media: str) -> None:
    """It fits into what an effect may return, and says that it is not all."""
    for body in HUGE:
        result = await answered(calls, reply(200, body, content_type=media, etag="e" * 9000))

        assert len(result["body"]) == MAX_TEXT and result["cut"].startswith("cut after")
        assert len(result["headers"]["etag"]) == 300


HASTY = Tool(http_request.function, http_request.effect, ToolOptions(timeout=0.5))


async def test_nothing_is_sent_after_the_deadline() -> None:
    """A process that was frozen while it looked up the host goes on too late, and sends nothing."""

    async def frozen(host: str, port: int) -> Sequence[str]:
        time.sleep(0.3)  # noqa: ASYNC251  # neither does anything else of the process go on
        return HERE

    async with streaming(lambda _head: whole(reply(200))) as server:
        args = HttpRequest(method="POST", url=f"http://site.example:{server.port}/")
        with deadline.within(0.2), pytest.raises(DeadlinePassed):
            await http_request(args, Key("r/a"), services("site.example", resolve=frozen))

    assert server.requests == []


async def test_an_answer_that_takes_its_time_is_waited_for(tmp_path: Path) -> None:
    """A service may take longer than a web server may to connect: until the attempt ends."""

    async def working(_head: bytes) -> AsyncIterator[bytes]:
        await asyncio.sleep(0.5)
        yield reply(200)

    impatient = Web(Reach.of(HERE), patience=Patience(silence=0.2))
    async with sending(tmp_path, Services.of(HERE, (), {}, impatient)) as calls, streaming(working) as server:
        posted = await post(calls, server.url)
        got = await calls.call(http_request, method="GET", url=server.url)

    assert [back.result["status"] for back in (posted, got) if isinstance(back.result, dict)] == [200, 200]


async def test_a_get_follows_redirects(calls: Bench) -> None:
    """As often as a page does; whatever goes wrong with it, nothing happened."""
    async with serving(reply(302, location="/there"), reply(200, b"[1]", **JSON)) as url:
        back = await calls.call(http_request, method="GET", url=url)
    async with serving(reply(302, location="/again")) as url:
        fault, _ = await calls.fails(http_request, method="GET", url=url)

    assert isinstance(back.result, dict) and back.result["body"] == [1]
    assert fault.code is Code.UNEXPECTED_RESULT and "more than 5 times" in fault.reason

    for answer in (reply(503), reply(429), reply(302), reply(599), b"garbage\r\n\r\n", b""):
        async with serving(answer) as url:
            fault, _ = await calls.fails(http_request, method="GET", url=url)
        assert fault.applied is Applied.NONE, answer


async def test_a_get_follows_no_redirect_to_a_host_that_nobody_named(tmp_path: Path) -> None:
    """The host is refused before it is looked up, and no person is asked for what a service made up."""
    given = services("site.example", resolve=offline)
    async with sending(tmp_path, given) as calls, serving(reply(302, location="http://169.254.169.254/")) as url:
        port = url.rpartition(":")[2]
        fault, _ = await calls.fails(http_request, method="GET", url=f"http://site.example:{port}/")

    assert (fault.code, fault.applied) == (Code.UNEXPECTED_RESULT, Applied.NONE)
    assert "redirects to a host that this worker may not send to" in fault.reason


TOLD: dict[str, Any] = {"environment": {"SHOP": "Bearer hunter2"}, "resolve": offline}


async def test_a_header_of_the_worker_is_sent_to_its_host_alone(tmp_path: Path) -> None:
    """The value comes from the environment: no argument, no result and no history has it."""
    given = services("127.0.0.1", "site.example", headers=["127.0.0.1=Authorization:SHOP"], **TOLD)
    async with streaming(lambda _head: whole(reply(200, b"[]", **JSON))) as other:
        redirect = reply(302, location=f"http://site.example:{other.port}/")
        async with sending(tmp_path, given) as calls, streaming(lambda _head: whole(redirect)) as server:
            back = await calls.call(http_request, method="GET", url=server.url, headers={"X-Note": "mine"})

    assert b"authorization: Bearer hunter2\r\n" in server.requests[0]
    assert "hunter2" not in repr(back) + repr(given)
    assert len(other.requests) == 1 and b"hunter2" not in other.requests[0] and b"mine" not in other.requests[0]


async def test_a_header_of_the_worker_needs_https(tmp_path: Path) -> None:
    """A plan that writes http:// does not spell the secret out to the network."""
    given = services("site.example", headers=["site.example=Authorization:SHOP"], **TOLD)
    async with sending(tmp_path, given) as calls, streaming(lambda _head: whole(reply(200))) as server:
        fault = await fault_of(calls, f"http://site.example:{server.port}/")

    assert (fault.code, server.requests) == (Code.INVALID_INPUT, []) and "https://" in fault.reason
