"""AWS: what each answer, and each way of getting none, is taken for, with the real clients."""

import importlib
import json
import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest

from activities.borders import judge
from activities.borders.table import Proof, Verdict
from evals.fakes.http_server import SILENCE, endlessly, reply, serving, streaming
from runtime.dev_server import free_port
from tests.activities.libraries.verdicts import HIDDEN, NOT_SENT, REFUSED, UNKNOWN, failing, judged, outcome, raised
from workflows.faults.fault import Code

for module in ("botocore", "boto3"):
    pytest.importorskip(module)

pytestmark = pytest.mark.full

aws: Any = importlib.import_module("botocore.exceptions")
ITEM = {"TableName": "t", "Key": {"id": {"S": "1"}}}
OBJECT = {"Bucket": "b", "Key": "k"}


SESSION: Any = importlib.import_module("botocore.session").Session()
"""One for all, since each reads the descriptions of its services, which takes a second."""


def client(service: str, url: str, **config: Any) -> Any:
    """A client of botocore that makes one request, and gives up after 0.3 s."""
    once = {"retries": {"total_max_attempts": 1}, "read_timeout": 0.3, "connect_timeout": 0.3, **config}
    config_type = importlib.import_module("botocore.config").Config
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-central-1"}
    return SESSION.create_client(service, endpoint_url=url, config=config_type(**once), **keys)


def dynamodb_error(code: str, **more: Any) -> bytes:
    return json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": HIDDEN, **more}).encode()


def s3_error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{HIDDEN}</Message></Error>".encode()


async def called(service: str, operation: str, *answers: bytes | None, config: Any = None, **args: Any) -> Verdict:
    """The verdict on a call whose requests are answered so."""
    async with serving(*answers) as url:
        return judged(await failing(getattr(client(service, url, **config or {}), operation), **args))


async def get_item(*answers: bytes | None, **config: Any) -> Verdict:
    return await called("dynamodb", "get_item", *answers, config=config, **ITEM)


async def get_object(*answers: bytes | None) -> Verdict:
    return await called("s3", "get_object", *answers, **OBJECT)


@pytest.mark.parametrize(
    ("code", "status", "expected", "proves"),
    [
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
    ],
)
async def test_an_answer_of_dynamodb_is_classified_by_its_code(
    code: str, status: int, expected: Code, proves: Proof
) -> None:
    """The code of an answer decides before its status, which is 400 for nearly all; the message is kept back."""
    verdict = await get_item(reply(status, dynamodb_error(code), content_type="application/x-amz-json-1.0"))

    assert outcome(verdict) == (expected, proves)
    assert code in verdict.fault.reason


@pytest.mark.parametrize(
    ("code", "status", "expected", "proves"),
    [
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
        ("BucketAlreadyOwnedByYou", 409, Code.CONFLICT, REFUSED),
    ],
)
async def test_an_answer_of_s3_is_classified_by_its_code(code: str, status: int, expected: Code, proves: Proof) -> None:
    """The codes of XML answers are read as those of JSON."""
    verdict = await get_object(reply(status, s3_error(code), content_type="application/xml"))

    assert outcome(verdict) == (expected, proves)


async def test_an_answer_without_a_body_is_classified_by_its_status() -> None:
    """HEAD of a missing object answers only 404, and a proxy answers 503 without a code."""
    assert outcome(await called("s3", "head_object", reply(404), **OBJECT)) == (Code.NOT_FOUND, REFUSED)
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


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["None", "ConditionalCheckFailed"], Code.PRECONDITION_FAILED),
        (["TransactionConflict", "None"], Code.BUSY),
        (["ThrottlingError"], Code.RATE_LIMITED),
        (["TransactionConflict", "ConditionalCheckFailed"], Code.PRECONDITION_FAILED),
        (["ConditionalCheckFailed", "AccessDenied"], Code.FORBIDDEN),
        (["DuplicateItem"], Code.CONFLICT),
        ([], Code.CONFLICT),
    ],
)
async def test_a_cancelled_transaction_is_as_the_worst_of_its_reasons(reasons: list[str], expected: Code) -> None:
    """A transaction is cancelled as a whole, and says for each of its items why."""
    body = dynamodb_error("TransactionCanceledException", CancellationReasons=[{"Code": one} for one in reasons])
    item = {"Put": {"TableName": "t", "Item": {"id": {"S": "1"}}}}
    verdict = await called("dynamodb", "transact_write_items", reply(400, body), TransactItems=[item])

    assert outcome(verdict) == (expected, REFUSED)


async def test_a_call_of_aws_without_an_answer_proves_only_what_it_must() -> None:
    """A refused connection sent nothing; a silent or closed one may have carried the request out."""
    late = aws.ConnectTimeoutError(endpoint_url="http://localhost/", error=HIDDEN)
    nobody = raised(client("s3", f"http://127.0.0.1:{free_port()}").list_buckets)

    assert outcome(late) == outcome(nobody) == (Code.UNREACHABLE, NOT_SENT)
    assert outcome(await get_object(SILENCE)) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(await get_object(b"")) == (Code.UNREACHABLE, UNKNOWN)


async def test_a_certificate_that_is_not_trusted_needs_a_person() -> None:
    """No retry makes a certificate valid."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(Path(__file__).parents[3] / "tests" / "site.example.pem")
    async with streaming(lambda _head: endlessly(reply(200), b""), tls=tls) as server:
        error = await failing(client("s3", server.url).list_buckets)

    assert type(error) is aws.SSLError
    assert outcome(error) == (Code.NEEDS_PERSON, NOT_SENT)


async def test_a_class_that_a_client_makes_at_run_time_is_a_client_error() -> None:
    """`client.exceptions.NoSuchKey` exists nowhere but in its client, and is a ClientError after pickling."""
    async with serving(reply(404, s3_error("NoSuchKey"))) as url:
        s3 = client("s3", url)
        error = await failing(s3.get_object, **OBJECT)

    assert isinstance(error, s3.exceptions.NoSuchKey)
    assert judge(error) == judge(pickle.loads(pickle.dumps(error)))  # noqa: S301  # it was made here


def test_missing_credentials_and_wrong_arguments_are_found_before_a_request() -> None:
    """Nothing is sent without credentials or with arguments that the operation does not have."""
    wrong = raised(lambda: client("dynamodb", "http://127.0.0.1:1").get_item(TableName=1))

    assert outcome(aws.NoCredentialsError()) == (Code.UNAUTHORIZED, NOT_SENT)
    assert outcome(wrong) == (Code.INVALID_INPUT, NOT_SENT)


async def test_a_waiter_is_late_or_has_seen_a_failure() -> None:
    """A waiter that ran out of attempts is a timeout, one that saw an error is that error; neither proves anything."""
    async with serving(reply(404)) as url:
        wait = client("s3", url).get_waiter("bucket_exists").wait
        late = await failing(wait, Bucket="b", WaiterConfig={"Delay": 0, "MaxAttempts": 2})
    async with serving(reply(403)) as url:
        denied = await failing(client("s3", url).get_waiter("object_exists").wait, **OBJECT)
    failed = aws.WaiterError("x", "Waiter encountered a terminal failure state: For expression", {"Stacks": []})

    assert outcome(late) == (Code.TIMEOUT, UNKNOWN)
    assert outcome(denied) == (Code.FORBIDDEN, UNKNOWN)
    assert outcome(failed) == (Code.CONFLICT, UNKNOWN)


def test_an_error_within_a_stream_proves_nothing() -> None:
    """An event of a stream reports an error of a request that was accepted before."""
    event = aws.EventStreamError({"Error": {"Code": "throttlingException"}}, "InvokeModelWithResponseStream")

    assert outcome(event) == (Code.RATE_LIMITED, UNKNOWN)


async def test_an_upload_of_boto3_is_as_the_error_that_it_hides(tmp_path: Path) -> None:
    """boto3 wraps the ClientError of an upload into its own class, whose only data is a sentence."""
    (tmp_path / "f").write_bytes(b"x")
    transfer: Any = importlib.import_module("boto3.s3.transfer")
    async with serving(reply(403, s3_error("AccessDenied"))) as url:
        upload = transfer.S3Transfer(client("s3", url)).upload_file
        error = await failing(upload, str(tmp_path / "f"), "b", "k")

    assert type(error).__name__ == "S3UploadFailedError"
    assert outcome(error) == (Code.FORBIDDEN, REFUSED)
