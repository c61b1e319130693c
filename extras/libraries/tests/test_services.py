"""Stripe, Slack and Redis: what each answer, and each way of getting none, is taken for, with the real clients."""

import importlib
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from activities.borders.table import Proof, Verdict
from evals.fakes.http_server import SILENCE, reply, serving
from runtime.dev_server import free_port
from tests.activities.libraries.verdicts import (
    HIDDEN,
    NOT_SENT,
    REFUSED,
    UNKNOWN,
    Outcome,
    failing,
    judged,
    outcome,
    raised,
)
from workflows.faults.fault import Code

for module in ("stripe", "slack_sdk", "redis"):
    pytest.importorskip(module)

pytestmark = pytest.mark.full

redis: Any = importlib.import_module("redis")
redis_async: Any = importlib.import_module("redis.asyncio")
slack_sdk: Any = importlib.import_module("slack_sdk")
stripe: Any = importlib.import_module("stripe")

# --- Stripe -----------------------------------------------------------------------------------------------------------


async def charge(*answers: bytes | None) -> Verdict:
    """The verdict on a call of Stripe, without retries, that is answered so."""
    async with serving(*answers) as url:
        http = stripe.RequestsClient(timeout=0.3)
        api = stripe.StripeClient("sk_test_1", base_addresses={"api": url}, max_network_retries=0, http_client=http)
        return judged(await failing(api.v1.charges.retrieve, "ch_1"))


@pytest.mark.parametrize(
    ("status", "error", "expected", "proves"),
    [
        (400, {"type": "invalid_request_error"}, Code.INVALID_INPUT, REFUSED),
        (400, {"type": "invalid_request_error", "code": "charge_already_refunded"}, Code.CONFLICT, REFUSED),
        (404, {"type": "invalid_request_error", "code": "resource_missing"}, Code.NOT_FOUND, REFUSED),
        (400, {"type": "idempotency_error"}, Code.CONFLICT, REFUSED),
        (409, {"type": "idempotency_error", "code": "idempotency_key_in_use"}, Code.BUSY, UNKNOWN),
        (409, {"type": "api_error"}, Code.CONFLICT, REFUSED),
        (401, {"type": "invalid_request_error"}, Code.UNAUTHORIZED, REFUSED),
        (402, {"type": "card_error", "code": "card_declined"}, Code.REFUSED, REFUSED),
        (403, {"type": "invalid_request_error"}, Code.FORBIDDEN, REFUSED),
        (429, {"type": "invalid_request_error"}, Code.RATE_LIMITED, REFUSED),
        (429, {"type": "invalid_request_error", "code": "lock_timeout"}, Code.BUSY, REFUSED),
        (500, {"type": "api_error"}, Code.SERVER_ERROR, UNKNOWN),
    ],
)
async def test_an_answer_of_stripe_is_classified_by_its_code_and_class(
    status: int, error: dict[str, str], expected: Code, proves: Proof
) -> None:
    """The code decides before the class; the message is kept back."""
    body = json.dumps({"error": {"message": HIDDEN, **error}}).encode()
    verdict = await charge(reply(status, body, retry_after="5"))

    assert outcome(verdict) == (expected, proves)
    assert verdict.fault.retry_after == (5.0 if verdict.fault.quadrant.is_transient else None)


async def test_a_declined_card_tells_its_codes() -> None:
    """The planner gets the code of Stripe and that of the bank."""
    codes = {"code": "card_declined", "decline_code": "insufficient_funds"}
    verdict = await charge(reply(402, json.dumps({"error": {"type": "card_error", **codes}}).encode()))

    assert verdict.fault.observed == codes


async def test_a_call_of_stripe_without_an_answer_proves_nothing() -> None:
    """Stripe's client has one class for a silent server, a closed connection and an address without a server."""
    page = await charge(reply(200, b"<html>"))

    assert outcome(await charge(SILENCE)) == outcome(await charge(b"")) == (Code.UNREACHABLE, UNKNOWN)
    assert outcome(page) == (Code.UNEXPECTED_RESULT, UNKNOWN)
    assert outcome(stripe.APIError("m")) == (Code.SERVER_ERROR, UNKNOWN)


# --- Slack ------------------------------------------------------------------------------------------------------------


async def posted(answer: bytes) -> Verdict:
    """The verdict on what a message raises."""
    async with serving(answer) as url:
        client = slack_sdk.WebClient(HIDDEN, base_url=f"{url}/api/", retry_handlers=[], timeout=5)
        error = await failing(client.chat_postMessage, channel="C1", text="hello")

    assert type(error) is slack_sdk.errors.SlackApiError
    return judged(error)


@pytest.mark.parametrize(
    ("error", "code", "proves"),
    [
        ("channel_not_found", Code.NOT_FOUND, REFUSED),
        ("not_in_channel", Code.CONFLICT, REFUSED),
        ("is_archived", Code.CONFLICT, REFUSED),
        ("msg_too_long", Code.INVALID_INPUT, REFUSED),
        ("invalid_auth", Code.UNAUTHORIZED, REFUSED),
        ("missing_scope", Code.FORBIDDEN, REFUSED),
        ("ratelimited", Code.RATE_LIMITED, REFUSED),
        ("fatal_error", Code.SERVER_ERROR, UNKNOWN),
        ("internal_error", Code.SERVER_ERROR, UNKNOWN),
        ("an_error_of_tomorrow", Code.REFUSED, UNKNOWN),
        ("words that are no code", Code.REFUSED, UNKNOWN),
    ],
)
async def test_the_code_of_slack_decides(error: str, code: Code, proves: Proof) -> None:
    """The status is 200; a code that nobody knows is a rejection that proves nothing."""
    body = json.dumps({"ok": False, "error": error}).encode()
    verdict = await posted(reply(200, body, content_type="application/json"))

    assert (*outcome(verdict), verdict.fault.guessed) == (code, proves, "")
    assert "words" not in verdict.fault.model_dump_json()


async def test_a_status_of_slack_says_how_long_to_wait_or_that_a_gateway_failed() -> None:
    """A limit has a status of its own, and what stands before Slack answers without a code."""
    body = b'{"ok": false, "error": "ratelimited"}'
    limited = await posted(reply(429, body, content_type="application/json", retry_after="30"))
    gateway = await posted(reply(503, b"<html>", content_type="text/html"))

    assert (limited.fault.code, limited.fault.retry_after) == (Code.RATE_LIMITED, 30)
    assert outcome(gateway) == (Code.SERVER_ERROR, UNKNOWN)


# --- Redis ------------------------------------------------------------------------------------------------------------


@contextmanager
def redis_server(*answers: bytes | None) -> Iterator[int]:
    """A server that answers CLIENT with OK, and other commands with the answers in turn; None closes the connection."""
    left = list(answers)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline():
                words = [self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
                answer = b"+OK\r\n" if words[0] == b"CLIENT" else left.pop(0) if left else b"+OK\r\n"
                if answer is None:
                    return
                self.wfile.write(answer)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def retrying(times: int, module: str = "redis.retry") -> Any:
    return importlib.import_module(module).Retry(importlib.import_module("redis.backoff").NoBackoff(), times)


def redis_client(port: int, **options: Any) -> Any:
    """A client without retries that gives up after 0.3 s."""
    return redis.Redis(port=port, protocol=2, **{"retry": retrying(0), "socket_timeout": 0.3, **options})


def answered(call: Callable[[Any], object], *answers: bytes | None, **options: Any) -> Outcome:
    """What the exception of a call with a client is taken for, which a server answers so."""
    with redis_server(*answers) as port, redis_client(port, **options) as client:
        return outcome(raised(lambda: call(client)))


@pytest.mark.parametrize(
    ("answer", "expected", "proves"),
    [
        ("LOADING Redis is loading the dataset in memory", Code.BUSY, REFUSED),
        ("BUSY Redis is busy running a script", Code.BUSY, REFUSED),
        ("READONLY You can't write against a read only replica.", Code.UNREACHABLE, REFUSED),
        ("OOM command not allowed when used memory > 'maxmemory'.", Code.QUOTA_EXHAUSTED, REFUSED),
        ("NOSCRIPT No matching script.", Code.BUG, REFUSED),
        ("NOAUTH Authentication required.", Code.UNAUTHORIZED, REFUSED),
        ("WRONGPASS invalid username-password pair or user is disabled.", Code.UNAUTHORIZED, REFUSED),
        ("NOPERM this user has no permissions", Code.FORBIDDEN, REFUSED),
        ("NOGROUP No such key 'stream' or consumer group", Code.NOT_FOUND, REFUSED),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", Code.CONFLICT, REFUSED),
        ("BUSYGROUP Consumer Group name already exists", Code.CONFLICT, REFUSED),
        ("MISCONF Redis is configured to save RDB snapshots", Code.NEEDS_PERSON, REFUSED),
        ("NOREPLICAS Not enough good replicas to write.", Code.UNREACHABLE, REFUSED),
        ("CLUSTERDOWN The cluster is down", Code.UNREACHABLE, REFUSED),
        ("MASTERDOWN Link with MASTER is down", Code.UNREACHABLE, REFUSED),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Code.BUSY, REFUSED),
        ("MOVED 3999 127.0.0.1:6381", Code.BUG, REFUSED),
        ("ASK 3999 127.0.0.1:6381", Code.BUSY, REFUSED),
        ("CROSSSLOT Keys in request don't hash to the same slot", Code.BUG, REFUSED),
        ("EXECABORT Transaction discarded because of previous errors.", Code.BUG, REFUSED),
        ("ERR max number of clients reached", Code.BUSY, REFUSED),
        ("ERR value is not an integer or out of range", Code.BUG, UNKNOWN),
    ],
)
def test_an_error_of_redis_is_classified_by_its_code(answer: str, expected: Code, proves: Proof) -> None:
    """The first word of an error is its code; the rest of it is kept back."""
    with redis_server(f"-{answer}\r\n".encode()) as port, redis_client(port) as client:
        verdict = judged(raised(lambda: client.incr("k")))

    assert outcome(verdict) == (expected, proves)
    assert answer.partition(" ")[2] not in verdict.fault.reason


WRONG_TYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
INCR = "return redis.call('INCR', KEYS[1])"


@pytest.mark.parametrize(
    "script",
    [
        lambda client: client.eval(INCR, 1, "k"),
        lambda client: client.evalsha("0" * 40, 1, "k"),
        lambda client: client.fcall("charge", 1, "k"),
        lambda client: client.execute_command(b"eval", "return 1", 0),
        lambda client: client.register_script(INCR)(keys=["k"]),
    ],
    ids=["eval", "evalsha", "fcall", "bytes", "register_script"],
)
def test_an_error_of_a_script_proves_nothing(script: Callable[[Any], object]) -> None:
    """It may have counted before it met a wrong type, and Redis keeps what it did."""
    assert answered(script, WRONG_TYPE) == (Code.CONFLICT, UNKNOWN)


async def test_an_error_of_a_script_proves_nothing_in_asyncio_either() -> None:
    """The same wire, and other functions."""
    with redis_server(WRONG_TYPE, WRONG_TYPE) as port:
        async with redis_async.Redis(port=port, protocol=2) as client:
            script, plain = await failing(client.eval, INCR, 1, "k"), await failing(client.incr, "k")

    assert outcome(script) == (Code.CONFLICT, UNKNOWN)
    assert outcome(plain) == (Code.CONFLICT, REFUSED)


def test_an_error_of_a_pipeline_proves_nothing() -> None:
    """Commands before it were done; one among the results, which the tool raises, does not even tell that."""
    with redis_server(b":1\r\n" + WRONG_TYPE) as port, redis_client(port) as client:
        done, error = client.pipeline(transaction=False).incr("a").incr("b").execute(raise_on_error=False)
    within = answered(
        lambda client: client.pipeline(transaction=False).set("a", 1).set("b", 1).execute(),
        b"+OK\r\n-OOM command not allowed\r\n",
    )

    assert (done, outcome(error)) == (1, (Code.CONFLICT, UNKNOWN))
    assert within == (Code.QUOTA_EXHAUSTED, UNKNOWN)


def test_a_refusal_after_a_lost_connection_proves_nothing() -> None:
    """The client repeats the command, which may have been done, and have changed what the second meets."""
    found = answered(lambda client: client.incr("k"), None, WRONG_TYPE, retry=retrying(1))

    assert found == (Code.CONFLICT, UNKNOWN)


def test_a_changed_key_discards_the_transaction() -> None:
    """EXEC answers nil if a watched key has changed, and then did nothing: the same call may be made again."""

    def change(client: Any) -> None:
        pipe = client.pipeline()
        pipe.watch("k")
        pipe.multi()
        pipe.incr("k")
        pipe.execute()

    assert answered(change, b"+OK\r\n", b"+OK\r\n", b"+QUEUED\r\n", b"*-1\r\n") == (Code.BUSY, REFUSED)


async def test_a_refused_connection_to_redis_sent_nothing() -> None:
    """A connection that could not be made carried no command, in the blocking client and in that of asyncio."""
    port = free_port()
    async with redis_async.Redis(port=port, retry=retrying(0, "redis.asyncio.retry")) as client:
        awaited = await failing(client.incr, "k")

    assert outcome(raised(redis_client(port).ping)) == outcome(awaited) == (Code.UNREACHABLE, NOT_SENT)


def test_a_lost_connection_to_redis_proves_nothing() -> None:
    """The command may have been carried out before the connection broke, or before the client lost its patience."""
    assert answered(lambda client: client.incr("k"), None) == (Code.UNREACHABLE, UNKNOWN)
    assert answered(lambda client: client.incr("k"), b"") == (Code.TIMEOUT, UNKNOWN)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ConnectionError", (Code.UNREACHABLE, UNKNOWN)),
        ("TimeoutError", (Code.TIMEOUT, UNKNOWN)),
        ("BusyLoadingError", (Code.BUSY, UNKNOWN)),
        ("ReadOnlyError", (Code.UNREACHABLE, UNKNOWN)),
        ("AuthenticationError", (Code.UNAUTHORIZED, UNKNOWN)),
    ],
)
def test_an_error_that_no_command_raised_proves_nothing(name: str, expected: Outcome) -> None:
    """It may be of a pipeline."""
    assert outcome(getattr(redis, name)(HIDDEN)) == expected


def test_a_retry_of_the_client_after_a_lost_connection_proves_nothing() -> None:
    """The client sent a command, lost the connection, and then found nobody there: the command may have been done."""
    listening = socket.create_server(("127.0.0.1", 0))

    def once() -> None:
        connection, _ = listening.accept()
        while b"INCR" not in connection.recv(10_000):
            connection.sendall(b"+OK\r\n")
        listening.close()
        connection.close()

    thread = threading.Thread(target=once)
    thread.start()
    error = raised(lambda: redis_client(listening.getsockname()[1], retry=retrying(2), socket_timeout=2).incr("k"))
    thread.join()

    assert "refused" in str(error)
    assert outcome(error) == (Code.UNREACHABLE, UNKNOWN)


def test_a_full_pool_and_a_taken_lock_are_busy() -> None:
    """Nothing was sent for the call that found no free connection, or for the work under a lock that was not free."""
    with redis_server() as port, redis_client(port, max_connections=1) as client:
        client.connection_pool.get_connection()
        full = raised(client.ping)
    with redis_server(b"$-1\r\n", b"$-1\r\n") as port, redis_client(port) as client:
        pool = redis.BlockingConnectionPool(port=port, protocol=2, max_connections=1, timeout=0.01)
        pool.get_connection()
        waiting = raised(redis.Redis(connection_pool=pool).ping)
        taken = raised(client.lock("l", blocking_timeout=0.01).__enter__)

    assert [outcome(one) for one in (full, waiting, taken)] == [(Code.BUSY, NOT_SENT)] * 3
