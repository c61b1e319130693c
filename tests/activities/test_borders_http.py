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
    """The fault of a call to a server that answers so."""
    async with serving(*answers) as url:
        fault = await fault_of(url, **client)
    assert fault is not None
    return fault


STATUS_CODES = [
    (301, Code.UNEXPECTED_RESULT),
    (304, Code.UNEXPECTED_RESULT),
    (400, Code.INVALID_INPUT),
    (401, Code.UNAUTHORIZED),
    (402, Code.REFUSED),
    (403, Code.FORBIDDEN),
    (404, Code.NOT_FOUND),
    (405, Code.MALFORMED_SCHEMA),
    (407, Code.UNAUTHORIZED),
    (408, Code.TIMEOUT),
    (409, Code.CONFLICT),
    (410, Code.GONE),
    (412, Code.PRECONDITION_FAILED),
    (413, Code.INVALID_INPUT),
    (415, Code.MALFORMED_SCHEMA),
    (416, Code.INVALID_INPUT),
    (417, Code.MALFORMED_SCHEMA),
    (418, Code.REFUSED),
    (421, Code.UNREACHABLE),
    (422, Code.INVALID_INPUT),
    (423, Code.BUSY),
    (424, Code.CONFLICT),
    (425, Code.BUSY),
    (426, Code.MALFORMED_SCHEMA),
    (428, Code.PRECONDITION_FAILED),
    (429, Code.RATE_LIMITED),
    (431, Code.INVALID_INPUT),
    (451, Code.FORBIDDEN),
    (498, Code.REFUSED),
    (499, Code.UNREACHABLE),
    (500, Code.SERVER_ERROR),
    (501, Code.MALFORMED_SCHEMA),
    (502, Code.SERVER_ERROR),
    (503, Code.SERVER_ERROR),
    (504, Code.SERVER_ERROR),
    (505, Code.MALFORMED_SCHEMA),
    (507, Code.QUOTA_EXHAUSTED),
    (508, Code.NEEDS_PERSON),
    (510, Code.MALFORMED_SCHEMA),
    (511, Code.UNAUTHORIZED),
    (529, Code.OVERLOADED),
    (599, Code.SERVER_ERROR),
]


@pytest.mark.parametrize(("status", "code"), STATUS_CODES)
async def test_a_status_means_what_the_table_says(status: int, code: Code) -> None:
    """Each status has one code; those that nobody listed follow their class; the sentence names host and status."""
    fault = await answered(reply(status))

    assert fault.code is code
    assert fault.reason.startswith(f"GET 127.0.0.1 returned {status}: ") and fault.reason.endswith(".")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 -0000", 0.0),
        ("soon", None),
        ("-1", None),
        ("", None),
        ("Mon, 01 Jan 99999 00:00:00 GMT", None),
        ("1 Jan 99999999999999999999999999999 00:00:00", None),
        ("Wed, 21 Oct 2015 07:28:00 +99999999999999999999", None),
        ("9" * 400, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_read_or_left_out(status: int, header: str, seconds: float | None) -> None:
    """Seconds and dates are understood; a date that has passed means now; garbage is as good as no header."""
    assert (await answered(reply(status, retry_after=header))).retry_after == seconds


async def test_retry_after_may_be_a_date_to_come() -> None:
    """An HTTP date is the time until then."""
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    fault = await answered(reply(503, retry_after=then))

    assert fault.retry_after is not None and 80 < fault.retry_after <= 90


async def test_only_what_time_cures_has_a_retry_after() -> None:
    """A refusal that carries the header is not waited for."""
    assert (await answered(reply(404, retry_after="7"))).retry_after is None


async def test_an_answer_with_retry_after_is_no_error() -> None:
    """Recorded real 200 answers carry `retry-after`: the header alone means nothing."""
    async with serving(reply(200, b"{}", retry_after="7")) as url:
        assert await fault_of(url) is None


@pytest.mark.parametrize(
    ("body", "observed"),
    [
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
    ],
    ids=lambda value: repr(value)[:24],
)
async def test_the_body_of_a_refusal_is_what_was_observed(body: bytes, observed: JsonValue) -> None:
    """Short JSON is kept for the planner; what is long, broken or no JSON is left out and does no harm."""
    fault = await answered(reply(409, body, content_type="application/json"))

    assert (fault.code, fault.observed) == (Code.CONFLICT, observed)


@pytest.mark.parametrize("status", [401, 429, 500])
async def test_only_a_refusal_is_observed(status: int) -> None:
    """The body of an error that says nothing of the world's state is not kept: it may quote credentials."""
    assert (await answered(reply(status, b'{"key": "sk-secret"}'))).observed is None


async def test_the_body_of_a_stream_that_nobody_read_is_left_out() -> None:
    """A tool that streams gets its refusal classified as well."""
    async with serving(reply(409, b'{"free": []}')) as url, httpx2.AsyncClient(trust_env=False, verify=NO_TLS) as http:
        with pytest.raises(httpx2.HTTPStatusError) as refused:
            async with http.stream("GET", url) as answer:
                answer.raise_for_status()

    assert (classify(refused.value).code, classify(refused.value).observed) == (Code.CONFLICT, None)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (SILENCE, Code.TIMEOUT),
        (b"", Code.UNREACHABLE),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Code.UNREACHABLE),
        (reply(200, b'{"amount": 24.50}')[:-5], Code.UNREACHABLE),
        (reply(200, b"this is no gzip", content_encoding="gzip"), Code.UNEXPECTED_RESULT),
        (reply(302, location="/again"), Code.UNEXPECTED_RESULT),
        (reply(302, location="ftp://elsewhere/"), Code.INVALID_INPUT),
    ],
    ids=["silent", "closes", "no HTTP", "closes in the middle", "broken encoding", "redirects for ever", "to ftp"],
)
async def test_a_bad_answer_is_classified(answer: bytes | None, code: Code) -> None:
    """A server that is silent, breaks off or talks nonsense: time may cure the way, never a wrong answer."""
    assert (await answered(answer, timeout=0.3, follow_redirects=True)).code is code


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://name.invalid/sk-secret", Code.UNREACHABLE),
        ("http://127.0.0.1:{port}/sk-secret", Code.UNREACHABLE),
        ("http://sk-secret\x00/", Code.INVALID_INPUT),
        ("http://sk-secret:port/", Code.INVALID_INPUT),
        ("sk-secret", Code.INVALID_INPUT),
        ("ftp://sk-secret/", Code.INVALID_INPUT),
    ],
    ids=["no such name", "nobody listens", "control character", "port", "no scheme", "ftp"],
)
async def test_an_address_where_nobody_is_gives_a_sentence_without_it(url: str, code: Code) -> None:
    """A name or port that is not there may come up; an address that is none is the planner's to change."""
    fault = await fault_of(url.format(port=free_port()), timeout=5)

    assert fault is not None and fault.code is code
    assert "sk-secret" not in fault.model_dump_json()


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


@pytest.mark.parametrize(
    ("answers", "method", "proves"),
    [
        ([reply(404)], "POST", Proof.REFUSED),
        ([reply(408)], "POST", Proof.REFUSED),
        ([reply(503)], "POST", Proof.UNKNOWN),
        ([reply(501)], "POST", Proof.UNKNOWN),
        ([reply(304)], "POST", Proof.UNKNOWN),
        ([reply(303, location="/order/1"), reply(404)], "POST", Proof.UNKNOWN),
        ([reply(307, location="/orders/"), reply(409)], "POST", Proof.REFUSED),
        ([reply(302, location="/order/1"), reply(404)], "GET", Proof.REFUSED),
        ([reply(303, location="http://127.0.0.1:9/")], "POST", Proof.UNKNOWN),
        ([reply(307, location="http://127.0.0.1:9/")], "POST", Proof.NOT_SENT),
        ([b""], "POST", Proof.UNKNOWN),
    ],
)
async def test_what_an_answer_proves(answers: list[bytes], method: str, proves: Proof) -> None:
    """A rejection proves that nothing was changed, but not what an earlier request of the same call did."""
    async with serving(*answers) as url:
        verdict = await verdict_of(url, method, follow_redirects=True)

    assert verdict is not None and verdict.proves is proves


async def test_a_rejection_speaks_of_one_request() -> None:
    """Replan counts the requests of a tool's client: an earlier one may have had an effect."""
    async with serving(reply(404)) as url:
        read, written = await verdict_of(url), await verdict_of(url, "POST")

    assert read is not None and written is not None
    assert (read.requests, written.requests) == (0, 1)


async def test_a_certificate_that_is_not_trusted_needs_a_person() -> None:
    """It is looked at before anything is sent; no retry and no plan makes it valid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    async with streaming(lambda _head: endlessly(reply(200), b""), tls=context) as server:
        verdict = await verdict_of(server.url, "POST")

    assert verdict is not None and (verdict.fault.code, verdict.proves) == (Code.NEEDS_PERSON, Proof.NOT_SENT)


NAME = socket.gaierror(socket.EAI_NONAME, "sk-secret")
CERTIFICATE = ssl.SSLCertVerificationError(1, "sk-secret")


@pytest.mark.parametrize(
    ("error", "code", "proves"),
    [
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
    ],
    ids=repr,
)
def test_an_exception_is_what_its_row_says(error: Exception, code: Code, proves: Proof) -> None:
    """Also one that a tool or another process has made, which has no traceback."""
    verdict = judge(error)

    assert (verdict.fault.code, verdict.proves) == (code, proves)
    assert "sk-secret" not in verdict.fault.model_dump_json()


async def test_urllib_s_status_is_read_from_the_exception_itself() -> None:
    """With its host and headers, and without its body, which may not have arrived."""
    async with serving(reply(429, b'{"left": 0}', retry_after="7")) as url:
        with pytest.raises(HTTPError) as limited:
            await asyncio.to_thread(urllib.request.urlopen, f"{url}/sk-secret", b"", 5)
    verdict = judge(limited.value)
    limited.value.close()

    assert (verdict.fault.code, verdict.proves, verdict.fault.retry_after) == (Code.RATE_LIMITED, Proof.REFUSED, 7.0)
    assert verdict.fault.reason == "POST 127.0.0.1 returned 429: there were too many requests."


def test_only_the_exception_of_a_client_can_be_unsent() -> None:
    """The SDKs of models pass on the cause of their own exception, which may be missing."""
    assert is_unsent(httpx2.ConnectError("x")) and is_unsent(httpx2.PoolTimeout("x"))
    assert not any(map(is_unsent, (None, httpx2.ReadError("x"), KeyError("x"))))


async def test_credentials_in_an_address_stay_out_of_the_reason() -> None:
    """User, password, path and query of a refused call are not copied."""
    async with serving(reply(404, b'"no"')) as url:
        fault = await fault_of(url.replace("http://", "http://me:sk-secret@") + "/sk-secret?key=sk-secret")

    assert fault is not None and "sk-secret" not in fault.model_dump_json()


@pytest.mark.parametrize(("asked", "wait"), [("9" * 300, 86_400.0), ("1e400", None), ("-5", None), ("0", 0.0)])
async def test_no_service_asks_for_a_wait_beyond_a_step(asked: str, wait: float | None) -> None:
    """A timer of 10^300 seconds would fail the workflow task for ever."""
    fault = await answered(reply(429, retry_after=asked))

    assert fault.retry_after == wait
