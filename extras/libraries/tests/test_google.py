"""gRPC and Google's APIs: what each status, and each limit of a client, is taken for, on a real server."""

import importlib
import json
import pickle
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from activities.borders.table import Proof
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

for module in ("google.api_core", "google.auth", "grpc"):
    pytest.importorskip(module)

pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore::ImportWarning"),  # it wants a package that is not needed
]

with warnings.catch_warnings(action="ignore", category=ImportWarning):
    google: Any = importlib.import_module("google.api_core.exceptions")
google_auth: Any = importlib.import_module("google.auth.exceptions")
grpc: Any = importlib.import_module("grpc")

RETRY_INFO = bytes.fromhex(
    "08081a300a28747970652e676f6f676c65617069732e636f6d2f676f6f676c652e7270632e5265747279496e666f12040a020803"
)


def answer(request: bytes, context: Any) -> bytes:
    """End the call with the status that the request names, and the trailing metadata of its name.

    The answer to OK has as many bytes as the request names.
    """
    name, _, asked = request.decode().partition(" ")
    if name == "OK":
        context.set_trailing_metadata([("applied", "yes")])
        return b"x" * int(asked)
    if name == "CLIENT":  # as a service that passes on what its own client said
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"CLIENT: {asked}")
    if asked == "info":
        context.set_trailing_metadata([("grpc-status-details-bin", RETRY_INFO)])
    elif asked == "status":
        number = grpc.StatusCode[name].value[0]
        context.set_trailing_metadata([("grpc-status-details-bin", bytes([8, number]))])
    elif asked:
        context.set_trailing_metadata([("grpc-retry-pushback-ms", asked)])
    context.abort(grpc.StatusCode[name], HIDDEN)
    return b""


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """The address of a server that answers so."""
    methods = {
        "call": grpc.unary_unary_rpc_method_handler(answer),
        "stream": grpc.unary_stream_rpc_method_handler(answer),
        "upload": grpc.stream_unary_rpc_method_handler(lambda requests, _: b"".join(requests)),
    }
    server = grpc.server(ThreadPoolExecutor(2), handlers=[grpc.method_handlers_generic_handler("t", methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def blocking(target: str, request: bytes, **options: Any) -> BaseException:
    """What the blocking client raises."""
    with grpc.insecure_channel(target) as channel:
        return raised(lambda: channel.unary_unary("/t/call", **options)(request))


async def by_all(target: str, request: bytes, **options: int) -> list[BaseException]:
    """What the blocking client raises, Google's around it, and that of asyncio."""
    settings = [(f"grpc.{name}", value) for name, value in options.items()]
    helpers: Any = importlib.import_module("google.api_core.grpc_helpers")
    with grpc.insecure_channel(target, options=settings) as channel:
        call = channel.unary_unary("/t/call")
        found = [raised(lambda: call(request)), raised(lambda: helpers.wrap_errors(call)(request))]

    async def in_asyncio() -> None:
        async with grpc.aio.insecure_channel(target, options=settings) as channel:
            await channel.unary_unary("/t/call")(request)

    return [*found, await failing(in_asyncio)]


@pytest.mark.parametrize(
    ("status", "expected", "proves"),
    [
        ("CANCELLED", Code.UNREACHABLE, UNKNOWN),
        ("UNKNOWN", Code.SERVER_ERROR, UNKNOWN),
        ("INVALID_ARGUMENT", Code.INVALID_INPUT, REFUSED),
        ("DEADLINE_EXCEEDED", Code.TIMEOUT, UNKNOWN),
        ("NOT_FOUND", Code.NOT_FOUND, REFUSED),
        ("ALREADY_EXISTS", Code.CONFLICT, REFUSED),
        ("PERMISSION_DENIED", Code.FORBIDDEN, REFUSED),
        ("RESOURCE_EXHAUSTED", Code.RATE_LIMITED, UNKNOWN),
        ("FAILED_PRECONDITION", Code.PRECONDITION_FAILED, REFUSED),
        ("ABORTED", Code.BUSY, REFUSED),
        ("OUT_OF_RANGE", Code.INVALID_INPUT, REFUSED),
        ("UNIMPLEMENTED", Code.MALFORMED_SCHEMA, UNKNOWN),
        ("INTERNAL", Code.SERVER_ERROR, UNKNOWN),
        ("UNAVAILABLE", Code.UNREACHABLE, UNKNOWN),
        ("DATA_LOSS", Code.NEEDS_PERSON, UNKNOWN),
        ("UNAUTHENTICATED", Code.UNAUTHORIZED, REFUSED),
    ],
)
async def test_a_call_of_grpc_is_classified_by_its_status(
    target: str, status: str, expected: Code, proves: Proof
) -> None:
    """All kinds of call, blocking, Google's and asyncio's, have one verdict; the details are kept back.

    A stream proves nothing: a part of it may have been done before it was refused.
    """
    with grpc.insecure_channel(target) as channel:
        streaming = raised(lambda: [*channel.unary_stream("/t/stream")(status.encode())])
    plain, of_google, awaited = await by_all(target, status.encode())
    again = pickle.loads(pickle.dumps(awaited))  # noqa: S301  # as another process gets it

    assert {outcome(one) for one in (plain, of_google, awaited, again)} == {(expected, proves)}
    assert outcome(streaming) == (expected, UNKNOWN)
    assert status in judged(plain).fault.reason


@pytest.mark.parametrize(
    ("request_", "wait"),
    [("UNAVAILABLE 1500", 1.5), ("RESOURCE_EXHAUSTED info", 3.0), ("UNAVAILABLE -1", None), ("UNAVAILABLE soon", None)],
)
def test_a_wait_in_the_trailing_metadata_of_grpc_counts(target: str, request_: str, wait: float | None) -> None:
    """A server asks for a wait by its pushback, or by a serialised RetryInfo; nonsense is no wait."""
    assert judged(blocking(target, request_.encode())).fault.retry_after == wait


LIMITS: dict[str, tuple[bytes, dict[str, int], Outcome]] = {
    # The service has done it; RESOURCE_EXHAUSTED is the client's own word, with which a retry would end again.
    "an answer over the client's limit": (b"OK 5000000", {}, (Code.TOO_LARGE, UNKNOWN)),
    # The client says it of the answer in the words in which a service says it of the request.
    "metadata over the client's limit": (
        b"OK 1",
        {"max_metadata_size": 1, "absolute_max_metadata_size": 1},
        (Code.RATE_LIMITED, UNKNOWN),
    ),
    # No retry makes it smaller, and the planner can.
    "a request over the client's limit": (
        b"OK 1" + b" " * 2000,
        {"max_send_message_length": 1000},
        (Code.INVALID_INPUT, NOT_SENT),
    ),
    # It may have done a part of the call before it asked another service.
    "what a service passes on of its own client": (
        b"CLIENT Sent message larger than max (2000 vs. 1000)",
        {},
        (Code.INVALID_INPUT, UNKNOWN),
    ),
    # As Google's APIs send it (`google.rpc.Status`): so the service itself refused the call.
    "a status in the metadata": (b"RESOURCE_EXHAUSTED status", {}, (Code.RATE_LIMITED, REFUSED)),
    "a wait in the metadata": (b"RESOURCE_EXHAUSTED 1500", {}, (Code.RATE_LIMITED, REFUSED)),
    "no such method, by the service": (b"UNIMPLEMENTED status", {}, (Code.MALFORMED_SCHEMA, REFUSED)),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_what_a_client_says_itself_is_told_from_what_the_service_said(target: str, name: str) -> None:
    """By the blocking client, by Google's, and by that of asyncio."""
    request, options, expected = LIMITS[name]
    found = await by_all(target, request, **options)

    assert [outcome(one) for one in found] == [expected] * 3


def test_a_part_of_a_stream_over_the_clients_limit_proves_nothing(target: str) -> None:
    """The parts before it were sent."""
    with grpc.insecure_channel(target, options=[("grpc.max_send_message_length", 1000)]) as channel:
        error = raised(lambda: channel.stream_unary("/t/upload")(iter([b"x", b"x" * 2000])))

    assert outcome(error) == (Code.INVALID_INPUT, UNKNOWN)


def test_an_answer_that_cannot_be_read_proves_nothing(target: str) -> None:
    """The service has done it: the status is that of a service that failed."""
    error = blocking(target, b"OK 1", response_deserializer=lambda _: 1 / 0)

    assert outcome(error) == (Code.SERVER_ERROR, UNKNOWN)


def test_a_server_of_grpc_that_is_not_there_is_unreachable() -> None:
    """The status of a refused connection is that of a broken one, so it proves nothing."""
    with grpc.insecure_channel(f"127.0.0.1:{free_port()}") as channel:
        error = raised(lambda: channel.unary_unary("/t/call")(b""))
        ready = grpc.channel_ready_future(channel)
        late = raised(lambda: ready.result(timeout=0.01))
        ready.cancel()  # else its thread may look at the channel that is closed

    assert outcome(error) == (Code.UNREACHABLE, UNKNOWN)
    assert outcome(late) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(grpc.RpcError()) == (Code.BUG, UNKNOWN)


# --- Google -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected", "proves"),
    [
        ("BadRequest", Code.INVALID_INPUT, REFUSED),
        ("Conflict", Code.CONFLICT, REFUSED),
        ("Forbidden", Code.FORBIDDEN, REFUSED),
        ("InternalServerError", Code.SERVER_ERROR, UNKNOWN),
        ("NotFound", Code.NOT_FOUND, REFUSED),
        ("PreconditionFailed", Code.PRECONDITION_FAILED, REFUSED),
        ("ServiceUnavailable", Code.UNREACHABLE, UNKNOWN),
        ("TooManyRequests", Code.RATE_LIMITED, REFUSED),
        ("Unauthorized", Code.UNAUTHORIZED, REFUSED),
    ],
)
def test_an_error_of_a_google_api_is_classified_by_its_class(name: str, expected: Code, proves: Proof) -> None:
    """Each class stands for one status of HTTP; those of gRPC are made of its calls."""
    assert outcome(getattr(google, name)(HIDDEN)) == (expected, proves)


def http_answer(status: int, error: dict[str, Any], **headers: str) -> BaseException:
    """What google-api-core makes of an answer of HTTP."""
    requests: Any = importlib.import_module("requests")
    response = requests.Response()
    response.status_code, response._content = status, json.dumps({"error": {"message": HIDDEN, **error}}).encode()
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    response.request = requests.Request("POST", "https://example.test/v1").prepare()
    made: BaseException = google.from_http_response(response)
    return made


def test_an_answer_of_google_over_http_tells_the_wait_and_its_reason() -> None:
    """RetryInfo and Retry-After are waits; a 403 about a rate is no permission; a status without a class is itself."""
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s"}
    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "STOCKOUT", "domain": "example.test"}
    limited = judged(http_answer(429, {"details": [info]}))
    header = judged(http_answer(503, {}, Retry_After="9"))
    usage = http_answer(403, {"errors": [{"reason": "userRateLimitExceeded"}]})
    conflict = judged(http_answer(409, {"details": [reason]}))

    assert (outcome(limited), limited.fault.retry_after) == ((Code.RATE_LIMITED, REFUSED), 3.5)
    assert (header.fault.retry_after, outcome(usage)) == (9.0, (Code.RATE_LIMITED, REFUSED))
    assert conflict.fault.observed == {"reason": "STOCKOUT", "domain": "example.test"}
    assert outcome(http_answer(423, {})) == (Code.BUSY, REFUSED)


def test_a_wait_reaches_an_error_of_google_over_grpc(target: str) -> None:
    """google-api-core keeps the call of gRPC as the response, and its details as messages if it can read them."""
    wrapped = judged(google.from_grpc_error(blocking(target, b"RESOURCE_EXHAUSTED info")))
    info = importlib.import_module("google.rpc.error_details_pb2").RetryInfo()
    info.retry_delay.FromMilliseconds(2500)

    assert (outcome(wrapped), wrapped.fault.retry_after) == ((Code.RATE_LIMITED, REFUSED), 3.0)
    assert judged(google.ResourceExhausted("m", details=[info])).fault.retry_after == 2.5


def test_retries_of_google_in_vain_prove_nothing() -> None:
    """The client made several requests, and what the last one met tells what follows."""
    retry: Any = importlib.import_module("google.api_core.retry")
    unavailable: Callable[[], object] = retry.Retry(initial=0.01, timeout=0.02)(
        lambda: (_ for _ in ()).throw(google.ServiceUnavailable("m"))
    )

    assert outcome(raised(unavailable)) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(google.RetryError("m", None)) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(google.RetryError("m", google.TooManyRequests("m"))) == (Code.RATE_LIMITED, UNKNOWN)
    assert outcome(google.RetryError("m", google.NotFound("m"))) == (Code.NOT_FOUND, UNKNOWN)


def test_credentials_of_google_are_for_an_operator_unless_a_retry_helps() -> None:
    """The token server's own failures are marked as retryable."""
    assert outcome(google_auth.RefreshError("m")) == (Code.UNAUTHORIZED, REFUSED)
    assert outcome(google_auth.RefreshError("m", retryable=True)) == (Code.UNREACHABLE, REFUSED)
    assert outcome(google_auth.DefaultCredentialsError("m")) == (Code.UNAUTHORIZED, NOT_SENT)
    assert outcome(google_auth.TransportError("m")) == (Code.UNREACHABLE, UNKNOWN)
