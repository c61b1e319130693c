"""Clouds and services: what each answer, and each way of getting none, is taken for, with the real clients."""

import asyncio
import importlib
import json
import pickle
import socket
import socketserver
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from activities.borders import judge, table_of
from activities.borders.described import rows_of
from activities.borders.table import Cases, Proof, Verdict
from evals.fakes.http_server import SILENCE, endlessly, reply, serving, streaming
from runtime.dev_server import free_port
from workflows.faults.fault import Code

TABLE = {**table_of("botocore"), **table_of("google"), **table_of("stripe")}

for module in ("botocore", "boto3", "google.api_core", "google.auth", "grpc", "stripe", "redis"):
    pytest.importorskip(module)

pytestmark = pytest.mark.full

aws: Any = importlib.import_module("botocore.exceptions")
with warnings.catch_warnings(action="ignore", category=ImportWarning):  # it wants a package that is not needed
    google: Any = importlib.import_module("google.api_core.exceptions")
google_auth: Any = importlib.import_module("google.auth.exceptions")
grpc: Any = importlib.import_module("grpc")
redis: Any = importlib.import_module("redis")
redis_async: Any = importlib.import_module("redis.asyncio")
stripe: Any = importlib.import_module("stripe")

PROMISED, NOT_SENT, REFUSED, UNKNOWN = Proof


def raised(call: Callable[[], object]) -> Exception:
    """What a call raises."""
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def copied(error: Exception) -> Any:
    """An exception as another process gets it."""
    return pickle.loads(pickle.dumps(error))  # noqa: S301  # it was made here


def outcome(verdict: Verdict) -> tuple[Code, Proof]:
    return verdict.fault.code, verdict.proves


# --- AWS --------------------------------------------------------------------------------------------------------------


def client(service: str, url: str, **config: Any) -> Any:
    """A client of botocore that makes one request, and gives up after 0.3 s."""
    once = {"retries": {"total_max_attempts": 1}, "read_timeout": 0.3, "connect_timeout": 0.3, **config}
    session = importlib.import_module("botocore.session").Session()
    config_type = importlib.import_module("botocore.config").Config
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-central-1"}
    return session.create_client(service, endpoint_url=url, config=config_type(**once), **keys)


def dynamodb_error(code: str, **more: Any) -> bytes:
    return json.dumps(
        {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "nobody may read this", **more}
    ).encode()


def s3_error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>nobody may read this</Message></Error>".encode()


async def get_item(*answers: bytes | None, **config: Any) -> Verdict:
    """The verdict on a call of DynamoDB whose requests are answered so."""
    async with serving(*answers) as url:
        table = {"TableName": "t", "Key": {"id": {"S": "1"}}}
        call = client("dynamodb", url, **config).get_item
        return judge(await asyncio.to_thread(raised, lambda: call(**table)))


async def get_object(*answers: bytes | None, head: bool = False, **config: Any) -> Verdict:
    async with serving(*answers) as url:
        s3 = client("s3", url, **config)
        call = s3.head_object if head else s3.get_object
        return judge(await asyncio.to_thread(raised, lambda: call(Bucket="b", Key="k")))


DYNAMODB = [
    ("ThrottlingException", 400, Code.RATE_LIMITED, REFUSED),
    ("ProvisionedThroughputExceededException", 400, Code.RATE_LIMITED, REFUSED),
    ("RequestLimitExceeded", 400, Code.RATE_LIMITED, REFUSED),
    ("LimitExceededException", 429, Code.RATE_LIMITED, REFUSED),
    ("LimitExceededException", 400, Code.QUOTA_EXHAUSTED, REFUSED),
    ("ConditionalCheckFailedException", 400, Code.PRECONDITION_FAILED, REFUSED),
    ("TransactionConflictException", 400, Code.BUSY, REFUSED),
    ("TransactionInProgressException", 400, Code.BUSY, UNKNOWN),
    ("ResourceNotFoundException", 400, Code.NOT_FOUND, REFUSED),
    ("ResourceInUseException", 400, Code.CONFLICT, REFUSED),
    ("ValidationException", 400, Code.INVALID_INPUT, REFUSED),
    ("AccessDeniedException", 400, Code.FORBIDDEN, REFUSED),
    ("ExpiredTokenException", 400, Code.UNAUTHORIZED, REFUSED),
    ("UnrecognizedClientException", 400, Code.UNAUTHORIZED, REFUSED),
    ("InternalServerError", 500, Code.SERVER_ERROR, UNKNOWN),
    ("ServiceUnavailable", 503, Code.SERVER_ERROR, UNKNOWN),
    ("SomethingNotFoundException", 400, Code.NOT_FOUND, REFUSED),
    ("SomethingNew", 400, Code.INVALID_INPUT, REFUSED),
    ("SomethingNew", 402, Code.QUOTA_EXHAUSTED, REFUSED),
    ("SomethingNew", 500, Code.SERVER_ERROR, UNKNOWN),
]


@pytest.mark.parametrize(("code", "status", "expected", "proves"), DYNAMODB)
async def test_an_answer_of_dynamodb_is_classified_by_its_code(
    code: str, status: int, expected: Code, proves: Proof
) -> None:
    """The code of an answer decides before its status, which is 400 for nearly all; the message is kept back."""
    verdict = await get_item(reply(status, dynamodb_error(code), content_type="application/x-amz-json-1.0"))

    assert outcome(verdict) == (expected, proves)
    assert code in verdict.fault.reason and "nobody" not in verdict.fault.model_dump_json()


S3 = [
    ("NoSuchKey", 404, Code.NOT_FOUND, REFUSED),
    ("NoSuchBucket", 404, Code.NOT_FOUND, REFUSED),
    ("AccessDenied", 403, Code.FORBIDDEN, REFUSED),
    ("SignatureDoesNotMatch", 403, Code.UNAUTHORIZED, REFUSED),
    ("PreconditionFailed", 412, Code.PRECONDITION_FAILED, REFUSED),
    ("SlowDown", 503, Code.OVERLOADED, REFUSED),
    ("InternalError", 500, Code.SERVER_ERROR, UNKNOWN),
    ("RequestTimeout", 400, Code.TIMEOUT, UNKNOWN),
    ("OperationAborted", 409, Code.BUSY, REFUSED),
    ("BucketAlreadyExists", 409, Code.CONFLICT, REFUSED),
]


@pytest.mark.parametrize(("code", "status", "expected", "proves"), S3)
async def test_an_answer_of_s3_is_classified_by_its_code(code: str, status: int, expected: Code, proves: Proof) -> None:
    """The codes of XML answers are read as those of JSON."""
    verdict = await get_object(reply(status, s3_error(code), content_type="application/xml"))

    assert outcome(verdict) == (expected, proves)


async def test_an_answer_without_a_body_is_classified_by_its_status() -> None:
    """HEAD of a missing object answers only 404, and a proxy answers 503 without a code."""
    assert outcome(await get_object(reply(404), head=True)) == (Code.NOT_FOUND, REFUSED)
    assert outcome(await get_item(reply(503, b"<html>"))) == (Code.SERVER_ERROR, UNKNOWN)


async def test_a_throttle_carries_the_wait_and_a_rejection_its_codes() -> None:
    """Retry-After counts where a retry follows; a new plan gets the code and the operation."""
    throttled = await get_item(reply(400, dynamodb_error("ThrottlingException"), retry_after="7"))
    missing = await get_object(reply(404, s3_error("NoSuchKey")))

    assert (throttled.fault.retry_after, throttled.fault.observed) == (7.0, None)
    assert missing.fault.observed == {"code": "NoSuchKey", "operation": "GetObject"}


async def test_a_refusal_after_a_retry_of_the_client_proves_nothing() -> None:
    """The client repeats a request after 500, which may have been carried out before the second one was refused."""
    failed = reply(500, dynamodb_error("InternalServerError"))
    refused = reply(400, dynamodb_error("ConditionalCheckFailedException"))
    verdict = await get_item(failed, refused, retries={"total_max_attempts": 2})

    assert outcome(verdict) == (Code.PRECONDITION_FAILED, UNKNOWN)


CANCELLED = [
    (["None", "ConditionalCheckFailed"], Code.PRECONDITION_FAILED),
    (["TransactionConflict", "None"], Code.BUSY),
    (["ThrottlingError"], Code.RATE_LIMITED),
    (["TransactionConflict", "ConditionalCheckFailed"], Code.PRECONDITION_FAILED),
    (["ConditionalCheckFailed", "AccessDenied"], Code.FORBIDDEN),
    (["DuplicateItem"], Code.CONFLICT),
    ([], Code.CONFLICT),
]


@pytest.mark.parametrize(("reasons", "expected"), CANCELLED)
async def test_a_cancelled_transaction_is_as_the_worst_of_its_reasons(reasons: list[str], expected: Code) -> None:
    """A transaction is cancelled as a whole, and says for each of its items why."""
    body = dynamodb_error("TransactionCanceledException", CancellationReasons=[{"Code": one} for one in reasons])
    async with serving(reply(400, body)) as url:
        call = client("dynamodb", url).transact_write_items
        item = {"Put": {"TableName": "t", "Item": {"id": {"S": "1"}}}}
        verdict = judge(await asyncio.to_thread(raised, lambda: call(TransactItems=[item])))

    assert outcome(verdict) == (expected, REFUSED)


async def test_a_call_of_aws_without_an_answer_proves_only_what_it_must() -> None:
    """A refused connection sent nothing; a silent or closed one may have carried the request out."""
    nobody = client("s3", f"http://127.0.0.1:{free_port()}").list_buckets
    silent = await get_object(SILENCE)
    closed = await get_object(b"")

    assert outcome(judge(raised(nobody))) == (Code.UNREACHABLE, NOT_SENT)
    assert outcome(silent) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(closed) == (Code.UNREACHABLE, UNKNOWN)


async def test_a_certificate_that_is_not_trusted_needs_a_person() -> None:
    """No retry makes a certificate valid."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(Path(__file__).parents[2] / "site.example.pem")
    async with streaming(lambda _head: endlessly(reply(200), b""), tls=tls) as server:
        call = client("s3", server.url).list_buckets
        error = await asyncio.to_thread(raised, call)

    assert type(error) is aws.SSLError
    assert outcome(judge(error)) == (Code.NEEDS_PERSON, NOT_SENT)


async def test_a_class_that_a_client_makes_at_run_time_is_a_client_error() -> None:
    """`client.exceptions.NoSuchKey` exists nowhere but in its client, and is a ClientError after pickling."""
    async with serving(reply(404, s3_error("NoSuchKey"))) as url:
        s3 = client("s3", url)
        error = await asyncio.to_thread(raised, lambda: s3.get_object(Bucket="b", Key="k"))

    assert isinstance(error, s3.exceptions.NoSuchKey)
    assert judge(error) == judge(copied(error))


def test_missing_credentials_and_wrong_arguments_are_found_before_a_request() -> None:
    """Nothing is sent without credentials or with arguments that the operation does not have."""
    wrong = raised(lambda: client("dynamodb", "http://127.0.0.1:1").get_item(TableName=1))

    assert outcome(judge(aws.NoCredentialsError())) == (Code.UNAUTHORIZED, NOT_SENT)
    assert outcome(judge(wrong)) == (Code.INVALID_INPUT, NOT_SENT)


async def test_a_waiter_is_late_or_has_seen_a_failure() -> None:
    """A waiter that ran out of attempts is a timeout, one that saw an error is that error; neither proves anything."""
    async with serving(reply(404)) as url:
        wait = client("s3", url).get_waiter("bucket_exists").wait
        late = await asyncio.to_thread(raised, lambda: wait(Bucket="b", WaiterConfig={"Delay": 0, "MaxAttempts": 2}))
    async with serving(reply(403)) as url:
        wait = client("s3", url).get_waiter("object_exists").wait
        denied = await asyncio.to_thread(raised, lambda: wait(Bucket="b", Key="k"))
    failed = aws.WaiterError("x", "Waiter encountered a terminal failure state: For expression", {"Stacks": []})

    assert outcome(judge(late)) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(judge(denied)) == (Code.FORBIDDEN, UNKNOWN)
    assert outcome(judge(failed)) == (Code.CONFLICT, UNKNOWN)


def test_an_error_within_a_stream_proves_nothing() -> None:
    """An event of a stream reports an error of a request that was accepted before."""
    event = aws.EventStreamError({"Error": {"Code": "throttlingException"}}, "InvokeModelWithResponseStream")

    assert outcome(judge(event)) == (Code.RATE_LIMITED, UNKNOWN)


async def test_an_upload_of_boto3_is_as_the_error_that_it_hides(tmp_path: Any) -> None:
    """boto3 wraps the ClientError of an upload into its own class, whose only data is a sentence."""
    (tmp_path / "f").write_bytes(b"x")
    transfer: Any = importlib.import_module("boto3.s3.transfer")
    async with serving(reply(403, s3_error("AccessDenied"))) as url:
        upload = transfer.S3Transfer(client("s3", url)).upload_file
        error = await asyncio.to_thread(raised, lambda: upload(str(tmp_path / "f"), "b", "k"))

    assert type(error).__name__ == "S3UploadFailedError"
    assert outcome(judge(error)) == (Code.FORBIDDEN, REFUSED)


# --- gRPC -------------------------------------------------------------------------------------------------------------

STATUSES = [
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
]
RETRY_INFO = bytes.fromhex(
    "08081a300a28747970652e676f6f676c65617069732e636f6d2f676f6f676c652e7270632e5265747279496e666f12040a020803"
)


@contextmanager
def grpc_server() -> Iterator[str]:
    """A server that ends each call with the status that the request names, and the trailing metadata of its name.

    It answers OK with as many bytes as the request names.
    """

    def answer(request: bytes, context: Any) -> bytes:
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
        context.abort(grpc.StatusCode[name], "nobody may read this")
        return b""

    class Any_(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc is untyped here
        def service(self, details: Any) -> Any:
            if details.method == "/t/stream":
                return grpc.unary_stream_rpc_method_handler(answer)
            if details.method == "/t/upload":
                return grpc.stream_unary_rpc_method_handler(lambda requests, _: b"".join(requests))
            return grpc.unary_unary_rpc_method_handler(answer) if details.method == "/t/call" else None

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Any_()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@pytest.fixture(scope="module")
def grpc_target() -> Iterator[str]:
    with grpc_server() as target:
        yield target


@pytest.mark.parametrize(("status", "expected", "proves"), STATUSES)
async def test_a_call_of_grpc_is_classified_by_its_status(
    grpc_target: str, status: str, expected: Code, proves: Proof
) -> None:
    """The three kinds of call, blocking, streaming and asyncio, have one verdict; the details are kept back.

    A stream proves nothing: a part of it may have been done before it was refused.
    """
    with grpc.insecure_channel(grpc_target) as channel:
        blocking = judge(raised(lambda: channel.unary_unary("/t/call")(status.encode())))
        streaming = judge(raised(lambda: [*channel.unary_stream("/t/stream")(status.encode())]))
    async with grpc.aio.insecure_channel(grpc_target) as channel:
        try:
            await channel.unary_unary("/t/call")(status.encode())
        except grpc.RpcError as error:
            awaited, again = judge(error), judge(copied(error))

    assert {outcome(one) for one in (blocking, awaited, again)} == {(expected, proves)}
    assert outcome(streaming) == (expected, UNKNOWN)
    assert status in blocking.fault.reason and "nobody" not in blocking.fault.model_dump_json()


@pytest.mark.parametrize(
    ("request_", "wait"),
    [("UNAVAILABLE 1500", 1.5), ("RESOURCE_EXHAUSTED info", 3.0), ("UNAVAILABLE -1", None), ("UNAVAILABLE soon", None)],
)
def test_a_wait_in_the_trailing_metadata_of_grpc_counts(grpc_target: str, request_: str, wait: float | None) -> None:
    """A server asks for a wait by its pushback, or by a serialised RetryInfo; nonsense is no wait."""
    with grpc.insecure_channel(grpc_target) as channel:
        fault = judge(raised(lambda: channel.unary_unary("/t/call")(request_.encode()))).fault

    assert fault.retry_after == wait


def by_google(call: Callable[..., object], request_: bytes) -> None:
    """Make a call as Google's clients make it."""
    with warnings.catch_warnings(action="ignore", category=ImportWarning):
        helpers: Any = importlib.import_module("google.api_core.grpc_helpers")
        helpers.wrap_errors(call)(request_)


async def verdicts(target: str, request_: bytes, **options: int) -> list[Verdict]:
    """The verdicts on one request by the blocking client, by Google's, and by that of asyncio."""
    settings = [(f"grpc.{name}", value) for name, value in options.items()]
    with grpc.insecure_channel(target, options=settings) as channel:
        call = channel.unary_unary("/t/call")
        found = [judge(raised(lambda: call(request_))), judge(raised(lambda: by_google(call, request_)))]
    async with grpc.aio.insecure_channel(target, options=settings) as channel:
        try:
            await channel.unary_unary("/t/call")(request_)
        except grpc.RpcError as error:
            found.append(judge(error))
    return found


async def test_an_answer_over_the_clients_limit_proves_nothing(grpc_target: str) -> None:
    """The service has done it; RESOURCE_EXHAUSTED is the client's own word, with which a retry would end again."""
    found = await verdicts(grpc_target, b"OK 5000000")

    assert [outcome(one) for one in found] == [(Code.TOO_LARGE, UNKNOWN)] * 3
    assert "grpc.max_receive_message_length" in found[0].fault.reason


async def test_metadata_over_the_clients_limit_prove_nothing(grpc_target: str) -> None:
    """The client says it of the answer in the words in which a service says it of the request."""
    found = await verdicts(grpc_target, b"OK 1", max_metadata_size=1, absolute_max_metadata_size=1)

    assert [outcome(one) for one in found] == [(Code.RATE_LIMITED, UNKNOWN)] * 3


async def test_a_request_over_the_clients_limit_was_not_sent(grpc_target: str) -> None:
    """No retry makes it smaller, and the planner can."""
    found = await verdicts(grpc_target, b"OK 1" + b" " * 2000, max_send_message_length=1000)

    assert [outcome(one) for one in found] == [(Code.INVALID_INPUT, NOT_SENT)] * 3


async def test_a_part_of_a_stream_over_the_clients_limit_proves_nothing(grpc_target: str) -> None:
    """The parts before it were sent."""
    options = [("grpc.max_send_message_length", 1000)]
    with grpc.insecure_channel(grpc_target, options=options) as channel:
        error = raised(lambda: channel.stream_unary("/t/upload")(iter([b"x", b"x" * 2000])))

    assert outcome(judge(error)) == (Code.INVALID_INPUT, UNKNOWN)


async def test_what_a_service_passes_on_of_its_own_client_proves_nothing(grpc_target: str) -> None:
    """It may have done a part of the call before it asked another service."""
    found = await verdicts(grpc_target, b"CLIENT Sent message larger than max (2000 vs. 1000)")

    assert [outcome(one) for one in found] == [(Code.INVALID_INPUT, UNKNOWN)] * 3


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"RESOURCE_EXHAUSTED status", Code.RATE_LIMITED),
        (b"RESOURCE_EXHAUSTED 1500", Code.RATE_LIMITED),
        (b"UNIMPLEMENTED status", Code.MALFORMED_SCHEMA),
    ],
)
async def test_a_status_in_the_metadata_of_the_answer_is_the_services(
    grpc_target: str, request_: bytes, expected: Code
) -> None:
    """As Google's APIs send it (`google.rpc.Status`): so the service itself refused the call."""
    found = await verdicts(grpc_target, request_)

    assert [outcome(one) for one in found] == [(expected, REFUSED)] * 3


def test_an_answer_that_cannot_be_read_proves_nothing(grpc_target: str) -> None:
    """The service has done it: the status is that of a service that failed."""
    with grpc.insecure_channel(grpc_target) as channel:
        call = channel.unary_unary("/t/call", response_deserializer=lambda _: 1 / 0)
        error = raised(lambda: call(b"OK 1"))

    assert outcome(judge(error)) == (Code.SERVER_ERROR, UNKNOWN)


async def test_a_server_of_grpc_that_is_not_there_is_unreachable() -> None:
    """The status of a refused connection is that of a broken one, so it proves nothing."""
    with grpc.insecure_channel(f"127.0.0.1:{free_port()}") as channel:
        error = raised(lambda: channel.unary_unary("/t/call")(b""))
        late = raised(lambda: grpc.channel_ready_future(channel).result(timeout=0.01))

    assert outcome(judge(error)) == (Code.UNREACHABLE, UNKNOWN)
    assert outcome(judge(late)) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(judge(grpc.RpcError())) == (Code.BUG, UNKNOWN)


# --- Google -----------------------------------------------------------------------------------------------------------

GOOGLE = [
    ("Aborted", Code.BUSY, REFUSED),
    ("AlreadyExists", Code.CONFLICT, REFUSED),
    ("BadRequest", Code.INVALID_INPUT, REFUSED),
    ("Cancelled", Code.UNREACHABLE, UNKNOWN),
    ("Conflict", Code.CONFLICT, REFUSED),
    ("DataLoss", Code.NEEDS_PERSON, UNKNOWN),
    ("DeadlineExceeded", Code.TIMEOUT, UNKNOWN),
    ("FailedPrecondition", Code.PRECONDITION_FAILED, REFUSED),
    ("Forbidden", Code.FORBIDDEN, REFUSED),
    ("InternalServerError", Code.SERVER_ERROR, UNKNOWN),
    ("InvalidArgument", Code.INVALID_INPUT, REFUSED),
    ("NotFound", Code.NOT_FOUND, REFUSED),
    ("PreconditionFailed", Code.PRECONDITION_FAILED, REFUSED),
    ("ResourceExhausted", Code.RATE_LIMITED, UNKNOWN),
    ("ServiceUnavailable", Code.UNREACHABLE, UNKNOWN),
    ("TooManyRequests", Code.RATE_LIMITED, REFUSED),
    ("Unauthenticated", Code.UNAUTHORIZED, REFUSED),
    ("Unauthorized", Code.UNAUTHORIZED, REFUSED),
    ("Unknown", Code.SERVER_ERROR, UNKNOWN),
]


@pytest.mark.parametrize(("name", "expected", "proves"), GOOGLE)
def test_an_error_of_a_google_api_is_classified_by_its_class(name: str, expected: Code, proves: Proof) -> None:
    """Each class stands for one status, of HTTP or of gRPC."""
    assert outcome(judge(getattr(google, name)("nobody may read this"))) == (expected, proves)


def google_answer(status: int, error: dict[str, Any], **headers: str) -> Exception:
    """What google-api-core makes of an answer of HTTP."""
    requests: Any = importlib.import_module("requests")
    response = requests.Response()
    response.status_code, response._content = status, json.dumps({"error": error}).encode()
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    response.request = requests.Request("POST", "https://example.test/v1").prepare()
    made: Exception = google.from_http_response(response)
    return made


def test_an_answer_of_google_over_http_tells_the_wait_and_its_reason() -> None:
    """RetryInfo and Retry-After are waits; a 403 about a rate is no permission; a status without a class is itself."""
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s"}
    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "STOCKOUT", "domain": "example.test"}
    limited = judge(google_answer(429, {"message": "m", "details": [info]}))
    header = judge(google_answer(503, {"message": "m"}, Retry_After="9"))
    usage = judge(google_answer(403, {"message": "m", "errors": [{"reason": "userRateLimitExceeded"}]}))
    conflict = judge(google_answer(409, {"message": "m", "details": [reason]}))
    locked = judge(google_answer(423, {"message": "m"}))

    assert (outcome(limited), limited.fault.retry_after) == ((Code.RATE_LIMITED, REFUSED), 3.5)
    assert (header.fault.retry_after, outcome(usage)) == (9.0, (Code.RATE_LIMITED, REFUSED))
    assert conflict.fault.observed == {"reason": "STOCKOUT", "domain": "example.test"}
    assert outcome(locked) == (Code.BUSY, REFUSED)


def test_a_wait_reaches_an_error_of_google_over_grpc(grpc_target: str) -> None:
    """google-api-core keeps the call of gRPC as the response, and its details as messages if it can read them."""
    details: Any = importlib.import_module("google.rpc.error_details_pb2")
    with grpc.insecure_channel(grpc_target) as channel:
        error = raised(lambda: channel.unary_unary("/t/call")(b"RESOURCE_EXHAUSTED info"))
    with warnings.catch_warnings(action="ignore", category=ImportWarning):
        wrapped = google.from_grpc_error(error)
    info = details.RetryInfo()
    info.retry_delay.FromMilliseconds(2500)
    message = google.ResourceExhausted("m", details=[info])

    assert (outcome(judge(wrapped)), judge(wrapped).fault.retry_after) == ((Code.RATE_LIMITED, REFUSED), 3.0)
    assert judge(message).fault.retry_after == 2.5


def test_retries_of_google_in_vain_prove_nothing() -> None:
    """The client made several requests, and what the last one met tells what follows."""
    retry: Any = importlib.import_module("google.api_core.retry")
    unavailable = retry.Retry(initial=0.01, timeout=0.02)(lambda: (_ for _ in ()).throw(google.ServiceUnavailable("m")))
    retried = raised(lambda: unavailable())

    assert outcome(judge(retried)) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(judge(google.RetryError("m", None))) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(judge(google.RetryError("m", google.TooManyRequests("m")))) == (Code.RATE_LIMITED, UNKNOWN)
    assert outcome(judge(google.RetryError("m", google.NotFound("m")))) == (Code.NOT_FOUND, UNKNOWN)


def test_credentials_of_google_are_for_an_operator_unless_a_retry_helps() -> None:
    """The token server's own failures are marked as retryable."""
    refused, later = google_auth.RefreshError("m"), google_auth.RefreshError("m", retryable=True)

    assert outcome(judge(refused)) == (Code.UNAUTHORIZED, REFUSED)
    assert outcome(judge(later)) == (Code.UNREACHABLE, REFUSED)
    assert outcome(judge(google_auth.DefaultCredentialsError("m"))) == (Code.UNAUTHORIZED, NOT_SENT)
    assert outcome(judge(google_auth.TransportError("m"))) == (Code.UNREACHABLE, UNKNOWN)


# --- Stripe -----------------------------------------------------------------------------------------------------------

STRIPE = [
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
]


async def charge(*answers: bytes | None) -> Verdict:
    """The verdict on a call of Stripe, without retries, that is answered so."""
    async with serving(*answers) as url:
        http = stripe.RequestsClient(timeout=0.3)
        api = stripe.StripeClient("sk_test_1", base_addresses={"api": url}, max_network_retries=0, http_client=http)
        return judge(await asyncio.to_thread(raised, lambda: api.v1.charges.retrieve("ch_1")))


@pytest.mark.parametrize(("status", "error", "expected", "proves"), STRIPE)
async def test_an_answer_of_stripe_is_classified_by_its_code_and_class(
    status: int, error: dict[str, str], expected: Code, proves: Proof
) -> None:
    """The code decides before the class; the message is kept back."""
    body = json.dumps({"error": {"message": "nobody may read this", **error}}).encode()
    verdict = await charge(reply(status, body, retry_after="5"))

    assert outcome(verdict) == (expected, proves)
    assert verdict.fault.retry_after == (5.0 if verdict.fault.quadrant.is_transient else None)
    assert "nobody" not in verdict.fault.model_dump_json()


async def test_a_declined_card_tells_its_codes() -> None:
    """The planner gets the code of Stripe and that of the bank."""
    error = {"type": "card_error", "code": "card_declined", "decline_code": "insufficient_funds"}
    verdict = await charge(reply(402, json.dumps({"error": error}).encode()))

    assert verdict.fault.observed == {"code": "card_declined", "decline_code": "insufficient_funds"}


async def test_a_call_of_stripe_without_an_answer_proves_nothing() -> None:
    """Stripe's client has one class for a silent server, a closed connection and an address without a server."""
    page = await charge(reply(200, b"<html>"))

    assert outcome(await charge(SILENCE)) == outcome(await charge(b"")) == (Code.UNREACHABLE, UNKNOWN)
    assert outcome(page) == (Code.UNEXPECTED_RESULT, UNKNOWN)
    assert outcome(judge(stripe.APIError("m"))) == (Code.SERVER_ERROR, UNKNOWN)


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


def redis_client(port: int, **options: Any) -> Any:
    """A client without retries that gives up after 0.3 s."""
    retry = importlib.import_module("redis.retry").Retry(importlib.import_module("redis.backoff").NoBackoff(), 0)
    return redis.Redis(port=port, protocol=2, **{"retry": retry, "socket_timeout": 0.3, **options})


REDIS = [
    ("LOADING Redis is loading the dataset in memory", Code.BUSY, REFUSED),
    ("BUSY Redis is busy running a script", Code.BUSY, REFUSED),
    ("READONLY You can't write against a read only replica.", Code.UNREACHABLE, REFUSED),
    ("OOM command not allowed when used memory > 'maxmemory'.", Code.QUOTA_EXHAUSTED, REFUSED),
    ("NOSCRIPT No matching script.", Code.BUG, REFUSED),
    ("NOAUTH Authentication required.", Code.UNAUTHORIZED, REFUSED),
    ("NOPERM this user has no permissions", Code.FORBIDDEN, REFUSED),
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
]


@pytest.mark.parametrize(("answer", "expected", "proves"), REDIS)
def test_an_error_of_redis_is_classified_by_its_code(answer: str, expected: Code, proves: Proof) -> None:
    """The first word of an error is its code; the rest of it is kept back."""
    with redis_server(f"-{answer}\r\n".encode()) as port, redis_client(port) as client_:
        verdict = judge(raised(lambda: client_.incr("k")))

    assert outcome(verdict) == (expected, proves)
    assert answer.partition(" ")[2] not in verdict.fault.reason


WRONG_TYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"


@pytest.mark.parametrize(
    "script",
    [
        lambda client_: client_.eval("return redis.call('INCR', KEYS[1])", 1, "k"),
        lambda client_: client_.evalsha("0" * 40, 1, "k"),
        lambda client_: client_.fcall("charge", 1, "k"),
        lambda client_: client_.execute_command(b"eval", "return 1", 0),
        lambda client_: client_.register_script("return redis.call('INCR', KEYS[1])")(keys=["k"]),
    ],
    ids=["eval", "evalsha", "fcall", "bytes", "register_script"],
)
def test_an_error_of_a_script_proves_nothing(script: Callable[[Any], object]) -> None:
    """It may have counted before it met a wrong type, and Redis keeps what it did."""
    with redis_server(WRONG_TYPE) as port, redis_client(port) as client_:
        verdict = judge(raised(lambda: script(client_)))

    assert outcome(verdict) == (Code.CONFLICT, UNKNOWN)


def test_an_error_of_a_script_proves_nothing_in_asyncio_either() -> None:
    """The same wire, and other functions."""

    async def run(command: str) -> None:
        async with redis_async.Redis(port=port, protocol=2) as client_:
            await (client_.eval("return redis.call('INCR', KEYS[1])", 1, "k") if command else client_.incr("k"))

    with redis_server(WRONG_TYPE, WRONG_TYPE) as port:
        script, plain = raised(lambda: asyncio.run(run("EVAL"))), raised(lambda: asyncio.run(run("")))

    assert outcome(judge(script)) == (Code.CONFLICT, UNKNOWN)
    assert outcome(judge(plain)) == (Code.CONFLICT, REFUSED)


def test_an_error_among_the_results_of_a_pipeline_proves_nothing() -> None:
    """The tool raises it, and nothing in it tells that other commands were done."""
    with redis_server(b":1\r\n" + WRONG_TYPE) as port, redis_client(port) as client_:
        done, error = client_.pipeline(transaction=False).incr("a").incr("b").execute(raise_on_error=False)

    assert (done, outcome(judge(error))) == (1, (Code.CONFLICT, UNKNOWN))


def test_a_refusal_after_a_lost_connection_proves_nothing() -> None:
    """The client repeats the command, which may have been done, and have changed what the second meets."""
    retry = importlib.import_module("redis.retry").Retry(importlib.import_module("redis.backoff").NoBackoff(), 1)
    with redis_server(None, WRONG_TYPE) as port, redis_client(port, retry=retry) as client_:
        verdict = judge(raised(lambda: client_.incr("k")))

    assert outcome(verdict) == (Code.CONFLICT, UNKNOWN)


def test_an_error_within_a_pipeline_proves_nothing() -> None:
    """The commands before the failed one were done."""
    with redis_server(b"+OK\r\n-OOM command not allowed\r\n") as port, redis_client(port) as client_:
        pipe = client_.pipeline(transaction=False).set("a", 1).set("b", 1)
        verdict = judge(raised(pipe.execute))

    assert outcome(verdict) == (Code.QUOTA_EXHAUSTED, UNKNOWN)


def test_a_changed_key_discards_the_transaction() -> None:
    """EXEC answers nil if a watched key has changed, and then did nothing: the same call may be made again."""
    with redis_server(b"+OK\r\n", b"+OK\r\n", b"+QUEUED\r\n", b"*-1\r\n") as port, redis_client(port) as client_:
        pipe = client_.pipeline()
        pipe.watch("k")
        pipe.multi()
        pipe.incr("k")
        error = raised(pipe.execute)

    assert outcome(judge(error)) == (Code.BUSY, REFUSED)


def test_a_refused_connection_to_redis_sent_nothing() -> None:
    """A connection that could not be made carried no command, in the blocking client and in that of asyncio."""
    port = free_port()
    blocking = raised(redis_client(port).ping)

    async def ping() -> None:
        retry = importlib.import_module("redis.asyncio.retry").Retry(
            importlib.import_module("redis.backoff").NoBackoff(), 0
        )
        async with redis_async.Redis(port=port, retry=retry) as client_:
            await client_.ping()

    awaited = raised(lambda: asyncio.run(ping()))

    assert outcome(judge(blocking)) == outcome(judge(awaited)) == (Code.UNREACHABLE, NOT_SENT)


def test_a_lost_connection_to_redis_proves_nothing() -> None:
    """The command may have been carried out before the connection broke, or before the client lost its patience."""
    with redis_server(None) as port, redis_client(port) as client_:
        broken = raised(lambda: client_.incr("k"))
    with redis_server(b"") as port, redis_client(port) as client_:
        silent = raised(lambda: client_.incr("k"))

    assert outcome(judge(broken)) == (Code.UNREACHABLE, UNKNOWN)
    assert outcome(judge(silent)) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(judge(redis.ConnectionError("m"))) == (Code.UNREACHABLE, UNKNOWN)
    assert outcome(judge(redis.TimeoutError("m"))) == (Code.TIMEOUT, UNKNOWN)


def test_a_retry_of_the_client_after_a_lost_connection_proves_nothing() -> None:
    """The client sent a command, lost the connection, and then found nobody there: the command may have been done."""
    retry = importlib.import_module("redis.retry").Retry(importlib.import_module("redis.backoff").NoBackoff(), 2)
    listening = socket.create_server(("127.0.0.1", 0))

    def once() -> None:
        connection, _ = listening.accept()
        while b"INCR" not in connection.recv(10_000):
            connection.sendall(b"+OK\r\n")
        listening.close()
        connection.close()

    thread = threading.Thread(target=once)
    thread.start()
    error = raised(lambda: redis_client(listening.getsockname()[1], retry=retry, socket_timeout=2).incr("k"))
    thread.join()

    assert "refused" in str(error)
    assert outcome(judge(error)) == (Code.UNREACHABLE, UNKNOWN)


def test_a_full_pool_and_a_taken_lock_are_busy() -> None:
    """Nothing was sent for the call that found no free connection, or for the work under a lock that was not free."""
    with redis_server() as port, redis_client(port, max_connections=1) as client_:
        client_.connection_pool.get_connection()
        full = raised(client_.ping)
    with redis_server(b"$-1\r\n", b"$-1\r\n") as port, redis_client(port) as client_:
        pool = redis.BlockingConnectionPool(port=port, protocol=2, max_connections=1, timeout=0.01)
        pool.get_connection()
        waiting = raised(redis.Redis(connection_pool=pool).ping)
        taken = raised(client_.lock("l", blocking_timeout=0.01).__enter__)

    assert [outcome(judge(one)) for one in (full, waiting, taken)] == [(Code.BUSY, NOT_SENT)] * 3


# --- All --------------------------------------------------------------------------------------------------------------


class Nonsense(Exception):
    """An exception whose attributes are something else than the library's own ever are."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "value":
            raise AttributeError(name)
        return self.value


class Broken:
    """An object that cannot even be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self) -> Any:
        raise RuntimeError


NONSENSE: list[Any] = [
    None,
    0,
    -1,
    10**400,
    float("nan"),
    "",
    "x" * 9_000,
    "\ud800",
    b"\xff",
    [],
    [[]],
    {},
    {"Error": 7},
    Broken(),
    print,
]


def test_no_entry_fails_whatever_the_exception_carries() -> None:
    """The tables are asked while a call fails, and then nothing else may fail."""
    choices = {id(entry): entry for entry in TABLE.values() if isinstance(entry, Cases)}
    verdicts = [entry(error) for entry in choices.values() for error in [*map(Nonsense, NONSENSE), Exception()]]

    assert all(len(one.fault.model_dump_json()) < 2_000 for one in verdicts)


def test_every_reason_is_a_sentence_of_ours() -> None:
    """A reason begins with a capital letter and ends with a full stop."""
    rows = [row for entry in TABLE.values() for _, row in rows_of(entry)]
    odd = {row.reason for row in rows if not row.reason.endswith(".") or "  " in row.reason}

    assert odd == set()
