"""The HTTP border, against a real server: what each answer, and each way of getting none, is classified as."""

import asyncio
import http.client
import http.cookiejar
import http.cookies
import socket
import ssl
import urllib.request
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.error import ContentTooShortError, HTTPError, URLError

import httpx2
import pytest
from pydantic import JsonValue

from activities.borders import classify, judge
from activities.borders.http import MAX_BODY, is_unsent
from activities.borders.table import Proof, Verdict
from evals.fakes.http_server import SILENCE, endlessly, reply, serving, streaming
from runtime.dev_server import free_port
from tests.activities.bench import NO_TLS
from workflows.faults.fault import Code, Fault

PEM = Path(__file__).parents[1] / "site.example.pem"


async def verdict_of(url: str, method: str = "GET", **options: Any) -> Verdict | None:
    """The verdict on a tool's call of `url`; None when nothing went wrong."""
    try:
        async with httpx2.AsyncClient(trust_env=False, **{"verify": NO_TLS, **options}) as client:
            (await client.request(method, url)).raise_for_status()
    except Exception as error:
        return judge(error)
    return None


async def fault_of(url: str, **client: Any) -> Fault | None:
    """What a tool's call of `url` is classified as; None when nothing went wrong."""
    verdict = await verdict_of(url, **client)
    return verdict.fault if verdict else None


async def answered(*answers: bytes | None, **client: Any) -> Fault:
    async with serving(*answers) as url:
        fault = await fault_of(url, **client)
    assert fault is not None
    return fault


STATUSES = {
    Code.UNEXPECTED_RESULT: [301, 304],
    Code.INVALID_INPUT: [400, 413, 416, 422, 431],
    Code.UNAUTHORIZED: [401, 407, 511],
    Code.FORBIDDEN: [403, 451],
    Code.REFUSED: [402, 418, 498],
    Code.NOT_FOUND: [404],
    Code.GONE: [410],
    Code.CONFLICT: [409, 424],
    Code.PRECONDITION_FAILED: [412, 428],
    Code.MALFORMED_SCHEMA: [405, 415, 417, 426, 501, 505, 510],
    Code.BUSY: [423, 425],
    Code.RATE_LIMITED: [429],
    Code.TIMEOUT: [408],
    Code.UNREACHABLE: [421, 499],
    Code.SERVER_ERROR: [500, 502, 503, 504, 599],
    Code.OVERLOADED: [529],
    Code.QUOTA_EXHAUSTED: [507],
    Code.NEEDS_PERSON: [508],
}


async def test_a_status_means_what_the_table_says() -> None:
    """Each status has one code; those that nobody listed follow their class; the sentence names host and status."""
    expected = {status: code for code, statuses in STATUSES.items() for status in statuses}
    async with serving(*map(reply, expected)) as url:
        faults = {status: await fault_of(url) for status in expected}

    assert {status: fault and fault.code for status, fault in faults.items()} == expected
    for status, fault in faults.items():
        assert fault is not None and fault.reason.endswith(".")
        assert fault.reason.startswith(f"GET 127.0.0.1 returned {status}: ")


WAITS = {
    "7": 7.0,
    " 7 ": 7.0,
    "0": 0.0,
    "Wed, 21 Oct 2015 07:28:00 GMT": 0.0,
    "Wed, 21 Oct 2015 07:28:00 -0000": 0.0,
    "soon": None,
    "-1": None,
    "": None,
    "Mon, 01 Jan 99999 00:00:00 GMT": None,
    "1 Jan 99999999999999999999999999999 00:00:00": None,
    "Wed, 21 Oct 2015 07:28:00 +99999999999999999999": None,
    "9" * 400: None,
    "9" * 300: 86_400.0,
    "1e400": None,
}


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_read_or_left_out(status: int) -> None:
    """Seconds and dates are understood, a date that has passed means now, and garbage is as good as no header.

    A timer of 10^300 seconds would fail the workflow task for ever.
    """
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    faults = [await answered(reply(status, retry_after=header)) for header in WAITS]
    to_come = (await answered(reply(status, retry_after=then))).retry_after

    assert dict(zip(WAITS, [fault.retry_after for fault in faults], strict=True)) == WAITS
    assert to_come is not None and 80 < to_come <= 90


async def test_only_what_time_cures_has_a_retry_after() -> None:
    """A refusal that carries the header is not waited for; real 200 answers carry it, and it means nothing there."""
    assert (await answered(reply(404, retry_after="7"))).retry_after is None
    async with serving(reply(200, b"{}", retry_after="7")) as url:
        assert await fault_of(url) is None


BODIES: list[tuple[bytes, JsonValue]] = [
    (b'{"free": ["14:30", "15:00"]}', {"free": ["14:30", "15:00"]}),
    ('{"größe": "ü"}'.encode(), {"größe": "ü"}),
    (b"null", None),
    (b"", None),
    (b"<html>409</html>", None),
    (b"\xff\xfe\x00", None),
    (b'{"a": ', None),
    (b'{"a": NaN}', None),
    (rb'{"a": "\ud800"}', None),
    (b"[" * MAX_BODY, None),
    (b'"' + b"x" * (MAX_BODY - 2) + b'"', "x" * (MAX_BODY - 2)),
    (b'"' + b"x" * (MAX_BODY - 1) + b'"', None),
]


async def test_the_body_of_a_refusal_is_what_was_observed() -> None:
    """Short JSON is kept; what is long, broken, unread or no JSON is left out, and what may quote credentials."""
    faults = [await answered(reply(409, body, content_type="application/json")) for body, _ in BODIES]
    others = [await answered(reply(status, b'{"key": "sk-secret"}')) for status in (401, 429, 500)]

    assert [(fault.code, fault.observed) for fault in faults] == [(Code.CONFLICT, observed) for _, observed in BODIES]
    assert [fault.observed for fault in others] == [None] * 3

    async with serving(reply(409, b'{"free": []}')) as url, httpx2.AsyncClient(trust_env=False, verify=NO_TLS) as http:
        with pytest.raises(httpx2.HTTPStatusError) as refused:
            async with http.stream("GET", url) as answer:
                answer.raise_for_status()

    assert (classify(refused.value).code, classify(refused.value).observed) == (Code.CONFLICT, None)


BAD: list[tuple[bytes | None, Code]] = [
    (SILENCE, Code.TIMEOUT),
    (b"", Code.UNREACHABLE),
    (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Code.UNREACHABLE),
    (reply(200, b'{"amount": 24.50}')[:-5], Code.UNREACHABLE),
    (reply(200, b"this is no gzip", content_encoding="gzip"), Code.UNEXPECTED_RESULT),
    (reply(302, location="/again"), Code.UNEXPECTED_RESULT),
    (reply(302, location="ftp://elsewhere/"), Code.INVALID_INPUT),
]
NOWHERE = {
    "http://name.invalid/sk-secret": Code.UNREACHABLE,
    "http://127.0.0.1:{port}/sk-secret": Code.UNREACHABLE,
    "http://sk-secret\x00/": Code.INVALID_INPUT,
    "http://sk-secret:port/": Code.INVALID_INPUT,
    "sk-secret": Code.INVALID_INPUT,
    "ftp://sk-secret/": Code.INVALID_INPUT,
}


async def test_a_bad_answer_or_address_is_classified() -> None:
    """A server that breaks off, or a name that is not there, may come up; an address that is none is the planner's.

    Time may cure the way, never a wrong answer, and nothing of the address is in the sentence.
    """
    answers = [(answer, await answered(answer, timeout=0.3, follow_redirects=True)) for answer, _ in BAD]
    faults = {url: await fault_of(url.format(port=free_port()), timeout=5) for url in NOWHERE}

    assert [(answer, fault.code) for answer, fault in answers] == BAD
    assert {url: fault and fault.code for url, fault in faults.items()} == NOWHERE
    assert "sk-secret" not in str([fault and fault.model_dump_json() for fault in faults.values()])


async def test_a_full_pool_is_busy() -> None:
    """A worker whose connections are all in use waits for itself, and has sent nothing."""
    limits = httpx2.Limits(max_connections=1)
    async with (
        serving(SILENCE) as url,
        httpx2.AsyncClient(trust_env=False, limits=limits, timeout=httpx2.Timeout(0.5, pool=0.1)) as http,
    ):
        stream = http.build_request("GET", url)
        async with serving(reply(200, b"x" * 1_000_000)) as long:
            held = await http.send(http.build_request("GET", long), stream=True)
            with pytest.raises(httpx2.PoolTimeout) as full:
                await http.send(stream)
            await held.aclose()

    assert classify(full.value).code is Code.BUSY


PROVEN: list[tuple[str, list[bytes], Proof]] = [
    ("POST", [reply(404)], Proof.REFUSED),
    ("POST", [reply(408)], Proof.REFUSED),
    ("POST", [reply(503)], Proof.UNKNOWN),
    ("POST", [reply(501)], Proof.UNKNOWN),
    ("POST", [reply(304)], Proof.UNKNOWN),
    ("POST", [reply(303, location="/order/1"), reply(404)], Proof.UNKNOWN),
    ("POST", [reply(307, location="/orders/"), reply(409)], Proof.REFUSED),
    ("GET", [reply(302, location="/order/1"), reply(404)], Proof.REFUSED),
    ("POST", [reply(303, location="http://127.0.0.1:9/")], Proof.UNKNOWN),
    ("POST", [reply(307, location="http://127.0.0.1:9/")], Proof.NOT_SENT),
    ("POST", [b""], Proof.UNKNOWN),
]


async def test_what_an_answer_proves() -> None:
    """A rejection proves that nothing was changed, but not what an earlier request of the same call did."""
    found = []
    for method, answers, _ in PROVEN:
        async with serving(*answers) as url:
            verdict = await verdict_of(url, method, follow_redirects=True)
        found.append((method, answers, verdict and verdict.proves))

    assert found == PROVEN

    async with serving(reply(404)) as url:
        read, written = await verdict_of(url), await verdict_of(url, "POST")

    assert read is not None and written is not None
    assert (read.requests, written.requests) == (0, 1)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    async with streaming(lambda _head: endlessly(reply(200), b""), tls=context) as server:
        verdict = await verdict_of(server.url, "POST")

    assert verdict is not None and (verdict.fault.code, verdict.proves) == (Code.NEEDS_PERSON, Proof.NOT_SENT)


NAME = socket.gaierror(socket.EAI_NONAME, "sk-secret")
CERTIFICATE = ssl.SSLCertVerificationError(1, "sk-secret")


EXCEPTIONS: list[tuple[Exception, Code, Proof]] = [
    (ssl.SSLError(1, "sk-secret"), Code.UNREACHABLE, Proof.NOT_SENT),
    (CERTIFICATE, Code.NEEDS_PERSON, Proof.NOT_SENT),
    (ssl.SSLZeroReturnError(6, "sk-secret"), Code.UNREACHABLE, Proof.UNKNOWN),
    (ssl.SSLWantReadError(2, "sk-secret"), Code.BUG, Proof.UNKNOWN),
    (URLError(ConnectionRefusedError(111, "sk-secret")), Code.UNREACHABLE, Proof.NOT_SENT),
    (URLError(NAME), Code.UNREACHABLE, Proof.NOT_SENT),
    (URLError(CERTIFICATE), Code.NEEDS_PERSON, Proof.NOT_SENT),
    (URLError(ConnectionResetError(104, "sk-secret")), Code.UNREACHABLE, Proof.UNKNOWN),
    (URLError(TimeoutError("sk-secret")), Code.TIMEOUT, Proof.UNKNOWN),
    (URLError("unknown url type: sk-secret"), Code.INVALID_INPUT, Proof.NOT_SENT),
    (ContentTooShortError("sk-secret", ("sk-secret", Message())), Code.UNREACHABLE, Proof.UNKNOWN),
    (http.client.IncompleteRead(b"sk-secret"), Code.UNREACHABLE, Proof.UNKNOWN),
    (http.client.RemoteDisconnected("sk-secret"), Code.UNREACHABLE, Proof.UNKNOWN),
    (http.client.InvalidURL("sk-secret"), Code.INVALID_INPUT, Proof.NOT_SENT),
    (http.client.CannotSendRequest("sk-secret"), Code.BUG, Proof.UNKNOWN),
    (http.cookies.CookieError("sk-secret"), Code.BUG, Proof.UNKNOWN),
    (http.cookiejar.LoadError("sk-secret"), Code.NEEDS_PERSON, Proof.UNKNOWN),
    (httpx2.ProxyError("sk-secret"), Code.UNREACHABLE, Proof.NOT_SENT),
]


def test_an_exception_is_what_its_row_says() -> None:
    """Also one that a tool or another process has made; the SDKs of models pass on a cause, which may be missing."""
    verdicts = [(error, judge(error)) for error, _, _ in EXCEPTIONS]

    assert [(error, one.fault.code, one.proves) for error, one in verdicts] == EXCEPTIONS
    assert "sk-secret" not in str([one.fault.model_dump_json() for _, one in verdicts])

    assert is_unsent(httpx2.ConnectError("x")) and is_unsent(httpx2.PoolTimeout("x"))
    assert not any(map(is_unsent, (None, httpx2.ReadError("x"), KeyError("x"))))


async def test_urllib_s_status_is_read_from_the_exception_itself() -> None:
    """With its host and headers, but neither body nor what the address holds."""
    async with serving(reply(429, b'{"left": 0}', retry_after="7")) as url:
        with pytest.raises(HTTPError) as limited:
            await asyncio.to_thread(urllib.request.urlopen, f"{url}/sk-secret", b"", 5)
    verdict = judge(limited.value)
    limited.value.close()

    assert (verdict.fault.code, verdict.proves, verdict.fault.retry_after) == (Code.RATE_LIMITED, Proof.REFUSED, 7.0)
    assert verdict.fault.reason == "POST 127.0.0.1 returned 429: there were too many requests."

    async with serving(reply(404, b'"no"')) as url:
        fault = await fault_of(url.replace("http://", "http://me:sk-secret@") + "/sk-secret?key=sk-secret")

    assert fault is not None and "sk-secret" not in fault.model_dump_json()
