"""Clouds and services (`botocore`, `boto3`, `google`, `grpc`, `stripe`, `redis`): the verdict on each exception.

Their clients retry on their own. What an exception proves is said of the final request only where nothing tells of
those before it: a tool whose effect may not be repeated turns these retries off.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from activities.borders import http
from activities.borders.table import MAX_CARRIED, Choice, Entry, Proof, Row, Table, Verdict, carried, qualified
from workflows.faults import QUADRANT, Code, Quadrant

_Rows = tuple[tuple[Entry, str], ...]
"""Entries, each with the names of the classes or codes that it is for."""


def _named(rows: _Rows, module: str = "") -> dict[str, Any]:
    return {f"{module}.{name}" if module else name: entry for entry, names in rows for name in names.split()}


def _behind(error: BaseException) -> list[BaseException]:
    """The exceptions that an exception wraps or follows, since these libraries raise in an `except` without a cause."""
    found = [error]
    for one in found:
        more = (*carried(one), *([one.__context__] if one.__context__ else []))
        found += [other for other in more if all(other is not seen for seen in found)][: MAX_CARRIED - len(found)]
    return found[1:]


def _field(value: Any, *names: str) -> Any:
    """What the keys or attributes `names` lead to; None if one of them is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def _code(value: Any) -> str:
    """An error code of a service, which is a word; empty if it is none, since it might then be text from outside."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.:/-]{1,80}", value, re.ASCII) else ""


def _answered(who: str, code: str, row: Row, observed: Any = None, wait: float | None = None) -> Verdict:
    """The verdict of a row on the answer of a service, with its code, and what it says for a wait or a new plan."""
    cell = QUADRANT[row.code]
    return row.verdict(
        reason=f"{who} {code or 'without a code'}. {row.reason[:1].upper()}{row.reason[1:]}",
        observed=observed if cell is Quadrant.PERSISTENT_SEMANTIC else None,
        retry_after=wait if cell.is_transient else None,
    )


def _retry_after(headers: Any) -> float | None:
    """The seconds of a header Retry-After, in whatever case the client keeps its name."""
    items = headers.items() if isinstance(headers, Mapping) else ()
    value = next((value for key, value in items if isinstance(key, str) and key.lower() == "retry-after"), None)
    return http.seconds(value) if isinstance(value, str) else None


def _statuses() -> dict[str, Row]:
    return {str(status): http.by_status(status) for status in http.STATUS}


def _unsent(code: Code, reason: str) -> Row:
    return Row(code, reason, Proof.NOT_SENT)


def _refused(code: Code, reason: str) -> Row:
    return Row(code, reason, Proof.REFUSED)


def _unknown(code: Code, reason: str) -> Row:
    return Row(code, reason, Proof.UNKNOWN)


_CERTIFICATE = _unsent(
    Code.NEEDS_PERSON, "The certificate of the service is not trusted: check the address and the worker's certificates."
)
_BROKEN = _unknown(Code.UNREACHABLE, "The connection to the service broke.")
_NO_ANSWER = _unknown(Code.TIMEOUT, "The service did not answer in time.")
_UNREADABLE = _unknown(Code.UNEXPECTED_RESULT, "The answer of the service cannot be read.")
_CLIENT_BUG = _unknown(Code.BUG, "The tool uses the client of the service wrongly: fix the tool.")
_CLIENT_BUG_UNSENT = _unsent(
    Code.BUG, "The tool uses the client of the service wrongly; nothing was sent: fix the tool."
)
_WARNING = _unknown(Code.BUG, "A warning of the service's client was raised as an error: fix the tool.")


# --- AWS --------------------------------------------------------------------------------------------------------------

_THROTTLED = _refused(Code.RATE_LIMITED, "There were too many requests.")
_OVERLOADED = _refused(Code.OVERLOADED, "The service has too little capacity at the moment.")
_MISSING = _refused(Code.NOT_FOUND, "There is no such thing: look for it under another name.")
_FORBIDDEN = _refused(Code.FORBIDDEN, "The credentials do not allow it: ask for the permission.")
_CREDENTIALS = _refused(Code.UNAUTHORIZED, "The credentials are not accepted, or have expired: renew them.")
_STALE = _refused(Code.PRECONDITION_FAILED, "A condition of the call does not hold: read the state and choose again.")
_CONFLICT = _refused(Code.CONFLICT, "The call contradicts the current state: observe it and choose again.")
_INVALID = _refused(Code.INVALID_INPUT, "The service does not accept these values: change the arguments.")
_BUSY = _refused(Code.BUSY, "Another change is in progress, or the resource is not ready yet.")
_QUOTA = _refused(Code.QUOTA_EXHAUSTED, "A quota of the account is used up: ask for a larger one, or delete something.")
_UNSUPPORTED = _refused(Code.MALFORMED_SCHEMA, "The service does not support this operation: fix the tool.")
_REJECTED = _refused(Code.REFUSED, "The service rejected the request: choose again.")
_FAILED = _unknown(Code.SERVER_ERROR, "The service failed.")
_WRONG_REGION = _refused(Code.BUG, "The client uses the wrong region or endpoint: configure the right one.")
_NO_CODE = _unknown(Code.BUG, "No table knows this error: add it to `raises=` of the tool.")

AWS: Mapping[str, Row] = _named(
    (
        (
            _THROTTLED,
            "Throttling ThrottlingException ThrottledException RequestThrottled RequestThrottledException"
            " TooManyRequestsException TooManyRequests ProvisionedThroughputExceededException RequestLimitExceeded"
            " BandwidthLimitExceeded EC2ThrottledException LimitExceededThrottling ReplicatedWriteThrottling"
            " ResourceProvisionedThroughputExceededException KMSThrottlingException ThrottlingError"
            " ProvisionedThroughputExceeded",
        ),
        (_OVERLOADED, "SlowDown InsufficientInstanceCapacity InsufficientCapacity InsufficientCapacityException"),
        (
            _MISSING,
            "NoSuchKey NoSuchBucket NoSuchUpload NoSuchVersion NoSuchEntity ResourceNotFoundException NotFoundException"
            " NotFound NonExistentQueue QueueDoesNotExist UnknownResourceException StreamingDistributionNotFound",
        ),
        (
            _FORBIDDEN,
            "AccessDenied AccessDeniedException UnauthorizedOperation UnauthorizedAccess ForbiddenException"
            " AuthorizationError AuthorizationErrorException AuthorizationFailure InsufficientPrivilegesException"
            " OptInRequired OptInRequiredException SubscriptionRequiredException AllAccessDisabled AccountProblem"
            " AccountSuspendedException PendingVerification RegionDisabledException SNSNoAuthorization"
            " OperationNotPermitted OperationNotPermittedException KMSAccessDeniedException",
        ),
        (
            _CREDENTIALS,
            "ExpiredToken ExpiredTokenException RequestExpired InvalidClientTokenId SignatureDoesNotMatch"
            " UnrecognizedClientException InvalidAccessKeyId InvalidSignatureException InvalidToken IncompleteSignature"
            " IncompleteSignatureException MissingAuthenticationToken MissingAuthenticationTokenException AuthFailure"
            " RequestTimeTooSkewed TokenRefreshRequired InvalidSecurity NotSignedUp UnauthorizedException"
            " UnauthorizedClientException NotAuthorized NotAuthorizedException InvalidIdentityToken"
            " InvalidIdentityTokenException IDPRejectedClaim AccessTokenExpired",
        ),
        (
            _STALE,
            "ConditionalCheckFailed ConditionalCheckFailedException PreconditionFailed PreconditionFailedException"
            " PreconditionNotMetException InvalidIfMatchVersion VersionMismatchException StaleDataException"
            " WAFStaleDataException UpdateOutOfSyncException",
        ),
        (
            _CONFLICT,
            "ConflictException Conflict BucketAlreadyExists BucketAlreadyOwnedByYou BucketNotEmpty DeleteConflict"
            " ResourceInUseException ResourceInUse ResourceConflictException DuplicateItem DuplicateItemException"
            " IdempotentParameterMismatch IdempotentParameterMismatchException InvalidStateException InvalidState"
            " InvalidObjectState DependencyViolation IncorrectState IncorrectInstanceState"
            " KMSInvalidStateException InvalidBucketState",
        ),
        (
            _INVALID,
            "ValidationException ValidationError ValidationErrorException InvalidParameterValue InvalidArgument"
            " BadRequestException BadRequest InvalidRequest MalformedXML EntityTooLarge EntityTooSmall KeyTooLongError"
            " MissingParameter ItemCollectionSizeLimitExceeded ItemCollectionSizeLimitExceededException"
            " RequestEntityTooLargeException BatchRequestTooLong TooManyEntriesInBatchRequest",
        ),
        (
            _BUSY,
            "TransactionConflict TransactionConflictException TransactionInProgressException OperationAborted"
            " ConditionalRequestConflict PriorRequestNotComplete ConcurrentModification ConcurrentModificationException"
            " ConcurrentUpdateException EntityTemporarilyUnmodifiable EntityTemporarilyUnmodifiableException"
            " ResourceNotReadyException ResourceNotReady ModelNotReadyException OperationInProgress"
            " ENILimitReachedRetry RetryLatestCommitFailedException",
        ),
        (_QUOTA, "LimitExceeded LimitExceededException ServiceQuotaExceededException ServiceQuotaExceeded"),
        (
            _UNSUPPORTED,
            "UnsupportedOperation UnsupportedOperationException InvalidAction UnknownOperationException NotImplemented"
            " MethodNotAllowed MethodNotAllowedException OperationNotSupportedException",
        ),
        (_REJECTED, "MessageRejected SendingPausedException MailFromDomainNotVerifiedException DryRunOperation"),
        (
            _FAILED,
            "InternalError InternalFailure InternalServerError InternalServerException InternalServiceError"
            " InternalServerErrorException InternalFailureException ServiceUnavailable ServiceUnavailableException"
            " ServiceException ServerException ServiceFailureException DependencyFailureException Unavailable",
        ),
        # S3 says that the body did not arrive in time, others that the answer was not ready: the latter proves nothing.
        (_NO_ANSWER, "RequestTimeout RequestTimeoutException OperationTimeoutException DependencyTimeoutException"),
        (_refused(Code.UNREACHABLE, "The body of the request did not arrive as a whole."), "IncompleteBody BadDigest"),
        (_WRONG_REGION, "PermanentRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException"),
    )
)
"""Rows by AWS error code; services share most codes (botocore/data/*/service-2.json, and the guides of S3 and EC2)."""

_AWS_PATTERNS: tuple[tuple[str, Row], ...] = (
    (r"Throttl|TooManyRequests|RequestRateExceeded", _THROTTLED),
    (r"^NoSuch|^Unknown|^Nonexistent|NotFound|(DoesNot|Not|Non)Exist", _MISSING),
    (r"AlreadyExists?|Exists$|^Duplicate|Duplicate$|InUse|Conflict|Already|NotEmpty", _CONFLICT),
    (r"(Limit|Quota)\w*Exceeded|LimitReached|^TooMany", _QUOTA),
    (r"AccessDenied|Unauthorized|NotAuthorized|Forbidden|NotPermitted|PermissionDenied", _FORBIDDEN),
    (r"^ExpiredToken", _CREDENTIALS),
    (r"InProgress|NotReady|Locked|Concurrent", _BUSY),
    (r"^Invalid\w*State$|^Incorrect\w*State$", _CONFLICT),
    (
        r"^Invalid|^Malformed|Unsupported|NotSupported|^Missing|^Illegal|^Bad|Validation|Mismatch|TooLarge|TooLong",
        _INVALID,
    ),
    (
        r"^Internal|Internal(Server|Service)?(Error|Failure)?$|^Server(Internal|$)|Unavailable|^Service(Failure|Error)?$",
        _FAILED,
    ),
    (r"Timeout$|TimedOut$", _NO_ANSWER),
)
"""Rows by the words of which AWS makes error codes, without the ending Exception, Fault or Error; the first one that
fits counts. Most services answer any error with status 400, so that only its code tells."""


def _aws_row(code: str, status: Any) -> Row | None:
    """The row of an AWS error code; without one that we know, that of a telling HTTP status; None if nothing tells."""
    short = code.rpartition(".")[2]  # InvalidInstanceID.NotFound, AWS.SimpleQueueService.NonExistentQueue
    # The events of a stream carry their shape's name, which begins with a small letter.
    row = next((AWS[name] for name in (code, short, code[:1].upper() + code[1:]) if name in AWS), None)
    if row is _QUOTA and status == 429:  # some services limit their rate under this name
        return _THROTTLED
    if row:
        return row
    told = int(code) if code.isdecimal() else status if isinstance(status, int) else 0  # HEAD has only a status
    if told > 400:
        return http.by_status(told)
    stem = re.sub(r"(Exception|Fault|Error)$", "", short)
    by_words = next((row for words, row in _AWS_PATTERNS if re.search(words, stem)), None)
    return by_words or (http.by_status(told) if told >= 300 else None)


def _aws(error: Any) -> Verdict | None:
    verdict = _aws_response(error.response, error.operation_name)
    tries = _field(error.response, "ResponseMetadata", "RetryAttempts")
    # The answer is that to the final request; one before it may have been lost after it was carried out.
    return replace(verdict, proves=Proof.UNKNOWN) if verdict and tries else verdict


def _aws_response(response: Any, operation: Any) -> Verdict | None:
    code, operation = _code(_field(response, "Error", "Code")), _code(operation) or "The call"
    row = _aws_row(code, _field(response, "ResponseMetadata", "HTTPStatusCode"))
    reasons = [_code(_field(one, "Code")) for one in _field(response, "CancellationReasons") or ()]
    if code == "TransactionCanceledException":
        row = _worst(AWS.get(reason, _REJECTED) for reason in reasons if reason not in ("", "None")) or _CONFLICT
    observed = {"code": code, "operation": operation} | ({"reasons": reasons[:40]} if reasons else {})
    wait = _retry_after(_field(response, "ResponseMetadata", "HTTPHeaders"))
    return _answered(f"AWS answered {operation} with", code, row, observed, wait) if row else None


def _worst(rows: Iterable[Row]) -> Row | None:
    """Of the reasons of a cancelled transaction the one that needs most: a person before a plan before a retry."""
    return min(rows, key=lambda row: (QUADRANT[row.code].is_transient, QUADRANT[row.code].is_semantic), default=None)


def _aws_event(error: Any) -> Verdict | None:
    verdict = _aws(error)
    return replace(verdict, proves=Proof.UNKNOWN) if verdict else None


def _waiter(error: Any) -> Verdict | None:
    reason = str(_field(error.kwargs, "reason"))  # botocore's own words: there is no field that tells them apart
    if reason.startswith("Max attempts exceeded"):
        return None
    known = _aws_response(error.last_response, _field(error.kwargs, "name")) or _WAITER_FAILED.verdict()
    # The waiter only reads, but the call that it waits for was answered before.
    return replace(known, proves=Proof.UNKNOWN)


_WAITED = _unknown(Code.TIMEOUT, "What the waiter waits for was not reached in time.")
_WAITER_FAILED = _unknown(Code.CONFLICT, "What the waiter waits for has failed: observe the state and choose again.")


def _by_certificate(error: Any) -> Verdict | None:
    untrusted = any(qualified(type(one)) == "ssl.SSLCertVerificationError" for one in _behind(error))
    return _CERTIFICATE.verdict() if untrusted else None


def _by_carried(error: Any) -> Verdict | None:
    """The verdict on the first exception of botocore that an exception carries."""
    inner = (one for one in _behind(error) if qualified(type(one)).startswith("botocore."))
    entries = ((TABLE[name], one) for one in inner for name in map(qualified, type(one).__mro__) if name in TABLE)
    entry, one = next(entries, (None, None))
    return entry(one) if entry and one else None


_AWS_STATUSES = {**AWS, **_statuses()}
_NO_CREDENTIALS = _unsent(Code.UNAUTHORIZED, "The worker has no valid AWS credentials: configure or renew them.")
_AWS_CONFIG = _unsent(Code.BUG, "The AWS client is configured wrongly: correct the region, profile, or options.")
_AWS_USE = _unsent(Code.BUG, "The tool uses botocore wrongly; nothing was sent: fix the tool.")
_AWS_ARGUMENTS = _unsent(
    Code.INVALID_INPUT, "The arguments do not fit the AWS operation; nothing was sent: change them."
)
_AWS_CUT = _unsent(Code.UNREACHABLE, "No connection to AWS could be made; nothing was sent.")

_BOTOCORE: _Rows = (
    (Choice("its error code, else its HTTP status", _AWS_STATUSES, _aws, _NO_CODE), "ClientError"),
    # It arrives in the middle of a response, so the request was accepted.
    (
        Choice(
            "its error code",
            {code: replace(row, proves=Proof.UNKNOWN) for code, row in AWS.items()},
            _aws_event,
            _FAILED,
        ),
        "EventStreamError",
    ),
    (
        Choice("the error code of its last response", {"a failed state": _WAITER_FAILED, **AWS}, _waiter, _WAITED),
        "WaiterError",
    ),
    # botocore makes these before a request is written; they do not tell whether it retried one that was.
    (_AWS_CUT, "ConnectionError EndpointConnectionError ConnectTimeoutError ProxyConnectionError"),
    (Choice("whether the certificate was rejected", {"rejected": _CERTIFICATE}, _by_certificate, _BROKEN), "SSLError"),
    (_NO_ANSWER, "ReadTimeoutError"),
    (_BROKEN, "HTTPClientError ConnectionClosedError ResponseStreamingError IncompleteReadError"),
    (_unknown(Code.UNREACHABLE, "The answer of AWS arrived damaged."), "ChecksumError FlexibleChecksumError"),
    # The client's own limit of retries, so an attempt was made before.
    (_unknown(Code.RATE_LIMITED, "The client waits before further retries."), "CapacityNotAvailableError"),
    (
        _NO_CREDENTIALS,
        "NoCredentialsError PartialCredentialsError CredentialRetrievalError NoAuthTokenError TokenRetrievalError"
        " SSOError SSOTokenLoadError UnauthorizedSSOTokenError RefreshWithMFAUnsupportedError UnknownCredentialError",
    ),
    (
        _unsent(Code.UNREACHABLE, "The service for the worker's AWS credentials does not answer; nothing was sent."),
        "MetadataRetrievalError",
    ),
    (
        _AWS_ARGUMENTS,
        "ParamValidationError MissingParametersError ValidationError UnknownKeyError RangeError InvalidDNSNameError"
        " UnsupportedS3ArnError UnsupportedS3ControlArnError InvalidHostLabelError UnsupportedOutpostResourceError"
        " EndpointResolutionError",
    ),
    (_unknown(Code.UNEXPECTED_RESULT, "AWS sent the same page twice."), "PaginationError"),
    (
        _AWS_CONFIG,
        "DataNotFoundError UnknownServiceError UnknownRegionError ApiVersionNotFoundError InvalidIMDSEndpointError"
        " InvalidIMDSEndpointModeError UnknownSignatureVersionError ServiceNotInRegionError BaseEndpointResolverError"
        " NoRegionError EndpointVariantError UnknownEndpointError UnknownFIPSEndpointError ProfileNotFound"
        " ConfigParseError ConfigNotFound InvalidRegionError UnsupportedSignatureVersionError"
        " InvalidS3AddressingStyleError UnsupportedS3ConfigurationError UnsupportedS3AccesspointConfigurationError"
        " UnsupportedS3ControlConfigurationError InvalidEndpointDiscoveryConfigurationError"
        " InvalidRetryConfigurationError InvalidMaxRetryAttemptsError InvalidRetryModeError"
        " InvalidS3UsEast1RegionalEndpointConfigError InvalidSTSRegionalEndpointsConfigError InvalidConfigError"
        " InfiniteLoopConfigError InvalidProxiesConfigError InvalidDefaultsMode InvalidEndpointConfigurationError"
        " EndpointProviderError UnknownEndpointResolutionBuiltInName InvalidChecksumConfigError"
        " UnsupportedServiceProtocolsError MD5UnavailableError MissingDependencyException",
    ),
    (
        _AWS_USE,
        "UnknownParameterError AliasConflictParameterError UnknownServiceStyle OperationNotPageableError"
        " InvalidExpressionError WaiterConfigError UnknownClientMethodError UndefinedModelAttributeError"
        " MissingServiceIdError StubResponseError StubAssertionError UnStubbedResponseError",
    ),
    # The body is rewound for a second request, so a first one was sent.
    (_CLIENT_BUG, "BotoCoreError UnseekableStreamError AwsChunkedWrapperError"),
    (_WARNING, "UnsupportedTLSVersionWarning ImminentRemovalWarning"),
)

_S3_UPLOAD = _unknown(Code.SERVER_ERROR, "The upload to S3 failed.")

_AWS_TABLE: Table = {
    **_named(_BOTOCORE, "botocore.exceptions"),
    **_named(
        (
            (_AWS_USE, "EndpointDiscoveryException EndpointDiscoveryRequired"),
            (_AWS_CUT, "EndpointDiscoveryRefreshFailed"),
        ),
        "botocore.discovery",
    ),
    **_named(
        (
            (
                _UNREADABLE,
                "ParserError ChecksumMismatch DuplicateHeader InvalidHeadersLength InvalidPayloadLength"
                " NoInitialResponseError",
            ),
        ),
        "botocore.eventstream",
    ),
    "botocore.parsers.ResponseParserError": _UNREADABLE,
    **_named(
        ((_AWS_USE, "InvalidShapeError InvalidShapeReferenceError NoShapeFoundError OperationNotFoundError"),),
        "botocore.model",
    ),
    **_named(
        (
            (_AWS_ARGUMENTS, "InvalidArnException"),
            (_NO_CREDENTIALS, "BadIMDSRequestError _RetriesExceededError"),  # of the machine's metadata
        ),
        "botocore.utils",
    ),
    # A bug on purpose: only their subclasses above are raised, which have rows of their own.
    "botocore.vendored.requests.exceptions.RequestException": _CLIENT_BUG,
    "botocore.vendored.requests.packages.urllib3.exceptions.HTTPError": _CLIENT_BUG,
    "botocore.vendored.requests.packages.urllib3.exceptions.HTTPWarning": _WARNING,
    **_named(
        (
            (_CLIENT_BUG_UNSENT, "Boto3Error ResourceLoadException NoVersionFound UnknownAPIVersionError"),
            (_CLIENT_BUG_UNSENT, "ResourceNotExistsError DynamoDBOperationNotSupportedError"),
            (_CLIENT_BUG_UNSENT, "DynamoDBNeedsConditionError DynamoDBNeedsKeyConditionError"),
            (_BROKEN, "RetriesExceededError"),  # of a download
            (
                Choice("the ClientError that it carries", _AWS_STATUSES, _by_carried, _S3_UPLOAD),
                "S3TransferFailedError S3UploadFailedError",
            ),
            (_WARNING, "PythonDeprecationWarning"),
        ),
        "boto3.exceptions",
    ),
    **_named(
        (
            (_BROKEN, "RetriesExceededError"),
            (Choice("the ClientError that it carries", _AWS_STATUSES, _by_carried, _S3_UPLOAD), "S3UploadFailedError"),
            (_unknown(Code.BUSY, "The object in S3 changed during the download."), "S3DownloadFailedError"),
            (_UNREADABLE, "S3ValidationError"),
            # Another part of the transfer failed first.
            (_BROKEN, "FatalError"),
            (_CLIENT_BUG, "InvalidSubscriberMethodError TransferNotDoneError"),
        ),
        "s3transfer.exceptions",
    ),
    # Nobody outside of s3transfer sees these.
    **_named(
        ((_BROKEN, "QueueShutdownError bandwidth.RequestExceededException utils.NoResourcesAvailable"),), "s3transfer"
    ),
}


# --- gRPC -------------------------------------------------------------------------------------------------------------

GRPC: Mapping[str, Row] = {
    # Either side may have cancelled it, at any time.
    "CANCELLED": _unknown(Code.UNREACHABLE, "The call was cancelled before its answer arrived."),
    "UNKNOWN": _FAILED,
    "INVALID_ARGUMENT": _INVALID,
    "DEADLINE_EXCEEDED": _NO_ANSWER,
    "NOT_FOUND": _MISSING,
    "ALREADY_EXISTS": _refused(Code.CONFLICT, "It exists already: choose another name, or use what is there."),
    "PERMISSION_DENIED": _FORBIDDEN,
    "RESOURCE_EXHAUSTED": _THROTTLED,
    "FAILED_PRECONDITION": _STALE,
    "ABORTED": _refused(Code.BUSY, "The service rolled the call back because of another one at the same time."),
    "OUT_OF_RANGE": _INVALID,
    "UNIMPLEMENTED": _UNSUPPORTED,
    "INTERNAL": _FAILED,
    "UNAVAILABLE": _unknown(Code.UNREACHABLE, "The service cannot be reached, or is not ready."),
    "DATA_LOSS": _unknown(Code.NEEDS_PERSON, "The service has lost or damaged data: ask its operator."),
    "UNAUTHENTICATED": _CREDENTIALS,
}
"""Rows by gRPC status (https://grpc.io/docs/guides/status-codes), in the order of their numbers from 1."""


def _grpc(error: Any) -> Verdict | None:
    status = error.code()
    number = status if isinstance(status, int) else 0
    name = [*GRPC][number - 1] if 0 < number <= len(GRPC) else _field(status, "name")
    row = GRPC.get(_code(name))
    return _answered("The gRPC call ended with", name, row, wait=_pushback(error)) if row else None


def _pushback(error: Any) -> float | None:
    """The seconds that the trailing metadata of a gRPC call ask to wait; None if they ask for no wait."""
    try:
        trailing = dict([*(error.trailing_metadata() or ())])
        # Below 0 it means that the client library may not retry on its own.
        asked = str(trailing.get("grpc-retry-pushback-ms", ""))
        status = trailing.get("grpc-status-details-bin", b"")
        return int(asked) / 1000 if re.fullmatch(r"\d{1,10}", asked) else _retry_info(status)
    except Exception:  # what a server sends here may be anything
        return None


def _retry_info(status: bytes) -> float | None:
    """The seconds of `google.rpc.RetryInfo` among the details of a serialised `google.rpc.Status`."""
    for detail in _protobuf(status).get(3, ()):
        packed = _protobuf(detail)
        if packed[1][0] == b"type.googleapis.com/google.rpc.RetryInfo":
            delay = _protobuf(_protobuf(packed[2][0])[1][0])
            return _span(delay.get(1, [0])[0], delay.get(2, [0])[0])
    return None


def _protobuf(message: bytes) -> dict[int, list[Any]]:
    """The fields of a serialised message by their number; only those of the wire types 0 and 2 are read.

    It is read here, since the library that could is not always installed together with gRPC.
    """
    at, found = 0, dict[int, list[Any]]()

    def varint() -> int:
        nonlocal at
        start = at
        while message[at] & 0x80:
            at += 1
        at += 1
        return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(message[start:at]))

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind not in (0, 2):
            break
        value: Any = varint()
        if kind == 2:
            value, at = message[at : at + value], at + value
        found.setdefault(number, []).append(value)
    return found


def _span(seconds: Any, nanos: Any = 0) -> float | None:
    span = float(seconds) + float(nanos) / 1e9
    return span if 0 <= span < math.inf else None


_GRPC_NO_STATUS = _unknown(Code.BUG, "The gRPC call failed without a status: fix the tool, or add it to `raises=`.")
_BY_GRPC_STATUS = Choice("its gRPC status", GRPC, _grpc, _GRPC_NO_STATUS)

_GRPC_TABLE: Table = {
    **_named(
        (
            (
                _BY_GRPC_STATUS,
                "RpcError _channel._InactiveRpcError _channel._MultiThreadedRendezvous _interceptor._FailureOutcome"
                " _channel._Rendezvous _channel._SingleThreadedRendezvous aio._call.AioRpcError",
            ),
            (_NO_ANSWER, "FutureTimeoutError"),
            (GRPC["CANCELLED"], "FutureCancelledError"),
            (_CLIENT_BUG, "experimental.UsageError"),
            (_WARNING, "experimental.ExperimentalApiWarning"),
        ),
        "grpc",
    ),
    **_named(
        (
            (_BY_GRPC_STATUS, "AioRpcStatus"),
            (_CLIENT_BUG, "BaseError AbortError ExecuteBatchError InternalError UsageError"),
            (_BROKEN, "_ServerStoppedError _RequestCallError _WatchConnectivityFailed"),
        ),
        "grpc._cython.cygrpc",
    ),
    # The beta API, which gRPC still ships.
    **_named(
        (
            (_CLIENT_BUG, "face.face.AbortionError face.face.LocalError"),
            (GRPC["CANCELLED"], "face.face.CancellationError"),
            (_NO_ANSWER, "face.face.ExpirationError"),
            (_BROKEN, "face.face.NetworkError face.face.LocalShutdownError face.face.RemoteShutdownError"),
            (_FAILED, "face.face.RemoteError"),
            (_UNSUPPORTED, "face.face.NoSuchMethodError base.base.NoSuchMethodError"),
        ),
        "grpc.framework.interfaces",
    ),
    **_named(
        (
            (_CLIENT_BUG, "abandonment.Abandoned"),
            (GRPC["CANCELLED"], "future.CancelledError"),
            (_NO_ANSWER, "future.TimeoutError"),
        ),
        "grpc.framework.foundation",
    ),
}


# --- Google -----------------------------------------------------------------------------------------------------------

_GOOGLE_REASONS: Mapping[str, Row] = {
    "rateLimitExceeded": _THROTTLED,
    "userRateLimitExceeded": _THROTTLED,
    "RATE_LIMIT_EXCEEDED": _THROTTLED,
    "quotaExceeded": _QUOTA,
    "dailyLimitExceeded": _QUOTA,
}
"""Reasons that some Google APIs give with status 403, where they are not about permissions."""


def _google_data(error: Any) -> tuple[str, dict[str, str], float | None]:
    """The reason, the reason with its domain, and the seconds to wait, of an error of a Google API."""
    reasons = [error.reason, *(_field(one, "reason") for one in error.errors if isinstance(one, Mapping))]
    reason = next(filter(None, map(_code, reasons)), "")
    observed = {"reason": reason, "domain": _code(error.domain)} if reason else {}
    waits = (_google_wait(detail) for detail in error.details)
    header = _retry_after(_field(error.response, "headers"))
    return reason, observed, next((wait for wait in waits if wait is not None), header)


def _google_wait(detail: Any) -> float | None:
    """The seconds of a RetryInfo: a message, or the JSON form of one."""
    if isinstance(detail, Mapping):
        delay = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)s", str(detail.get("retryDelay")))
        return float(delay[1]) if delay else None
    delay = _field(detail, "retry_delay")
    return None if delay is None else _span(delay.seconds, delay.nanos)


def _google(status: str = "") -> Choice:
    """The entry for a class of errors of a Google API, of one gRPC or HTTP status; without one, that of the error."""
    given = GRPC.get(status) or (http.by_status(int(status)) if status else None)

    def decide(error: Any) -> Verdict | None:
        name, code = _code(_field(error.grpc_status_code, "name")), error.code
        named = status or (name if name in GRPC else f"{code:d}" if isinstance(code, int) else "")
        row = given or GRPC.get(named) or (http.by_status(int(named)) if named else None)
        try:
            reason, observed, wait = _google_data(error)
        except Exception:  # an API may send anything as details
            reason, observed, wait = "", {}, None
        if code == 403:
            row = _GOOGLE_REASONS.get(reason, row)
        waits = _pushback(error.response) if wait is None else wait
        return _answered("The Google API answered with", named, row, observed or None, waits) if row else None

    rows = {status: given} if given else {**GRPC, **_statuses()}
    return Choice("its status and reason", rows, decide, given or _NO_CODE)


def _google_retry(error: Any) -> Verdict | None:
    """The verdict on what the client retried in vain, of which each request may have had its effect."""
    cause = next((one for one in (error.cause, *_behind(error)) if isinstance(one, BaseException)), None)
    entry = next((TABLE[name] for name in map(qualified, type(cause).__mro__) if name in TABLE), None)
    known = entry(cause) if entry and cause else None
    if known is None or known.fault.quadrant is Quadrant.TRANSIENT_INFRASTRUCTURAL:
        return _RETRIED.verdict(retry_after=known.fault.retry_after if known else None)
    return replace(known, proves=Proof.UNKNOWN)


_RETRIED = _unknown(Code.TIMEOUT, "The Google client retried until its deadline, without success.")
_GOOGLE_CREDENTIALS = _unsent(Code.UNAUTHORIZED, "The worker has no valid Google credentials: configure or renew them.")
_TOKEN_LATER = _refused(Code.UNREACHABLE, "The token cannot be renewed at the moment.")
_TOKEN = _refused(Code.UNAUTHORIZED, "The token cannot be renewed: check the Google credentials of the worker.")


def _google_refresh(error: Any) -> Verdict | None:
    return _TOKEN_LATER.verdict() if error.retryable is True else None


_GOOGLE_TABLE: Table = {
    **{
        f"google.api_core.exceptions.{name}": _google(status)
        for name, status in {
            "GoogleAPICallError": "",
            "ClientError": "",
            "ServerError": "",
            "Redirection": "",
            "MovedPermanently": "301",
            "NotModified": "304",
            "TemporaryRedirect": "307",
            "ResumeIncomplete": "308",
            "BadRequest": "400",
            "InvalidArgument": "INVALID_ARGUMENT",
            "FailedPrecondition": "FAILED_PRECONDITION",
            "OutOfRange": "OUT_OF_RANGE",
            "Unauthorized": "401",
            "Unauthenticated": "UNAUTHENTICATED",
            "Forbidden": "403",
            "PermissionDenied": "PERMISSION_DENIED",
            "NotFound": "NOT_FOUND",
            "MethodNotAllowed": "405",
            "Conflict": "409",
            "AlreadyExists": "ALREADY_EXISTS",
            "Aborted": "ABORTED",
            "LengthRequired": "411",
            "PreconditionFailed": "412",
            "RequestRangeNotSatisfiable": "416",
            "TooManyRequests": "429",
            "ResourceExhausted": "RESOURCE_EXHAUSTED",
            "Cancelled": "CANCELLED",
            "InternalServerError": "INTERNAL",
            "Unknown": "UNKNOWN",
            "DataLoss": "DATA_LOSS",
            "MethodNotImplemented": "UNIMPLEMENTED",
            "BadGateway": "502",
            "ServiceUnavailable": "UNAVAILABLE",
            "GatewayTimeout": "504",
            "DeadlineExceeded": "DEADLINE_EXCEEDED",
        }.items()
    },
    **_named(
        (
            (Choice("the error that was retried", {**GRPC, **_statuses()}, _google_retry, _RETRIED), "RetryError"),
            (_CLIENT_BUG, "GoogleAPIError UnseekableStreamError"),
            (_CLIENT_BUG_UNSENT, "DuplicateCredentialArgs AsyncRestUnsupportedParameterError"),
            (_BROKEN, "ResumableTransferError UploadCancelledError"),
            (_unknown(Code.TIMEOUT, "The upload became too slow."), "TransferStalledError"),
            (_UNREADABLE, "MissingStatusHeaderError"),
        ),
        "google.api_core.exceptions",
    ),
    **_named(
        (
            (_CLIENT_BUG_UNSENT, "_feature_gating_helpers.FeatureGatingError iam.InvalidOperationException"),
            (_CLIENT_BUG_UNSENT, "universe.EmptyUniverseError universe.UniverseMismatchError"),
            (_NO_ANSWER, "future.polling._OperationNotComplete future.async_future._OperationNotComplete"),
        ),
        "google.api_core",
    ),
    **_named(
        (
            # The asyncio session raises the first three for the call itself, others only for the token.
            (_BROKEN, "TransportError"),
            (_NO_ANSWER, "TimeoutError"),
            (_UNREADABLE, "ResponseError"),
            # After an answer 401 the token is renewed, so the call itself may have been sent and refused.
            (
                Choice("whether it says that a retry can help", {"a retry can": _TOKEN_LATER}, _google_refresh, _TOKEN),
                "RefreshError ReauthFailError ReauthSamlChallengeFailError OAuthError",
            ),
            (
                _GOOGLE_CREDENTIALS,
                "DefaultCredentialsError UserAccessTokenError MutualTLSChannelError ClientCertError MalformedError"
                " InvalidResource InvalidOperation InvalidValue InvalidType OSError",
            ),
            (_unknown(Code.UNAUTHORIZED, "The Google credentials of the worker cannot be used."), "GoogleAuthError"),
        ),
        "google.auth.exceptions",
    ),
    "google.auth.transport._mtls_helper._MemfdCreationError": _GOOGLE_CREDENTIALS,
    **_named(
        (
            (_UNREADABLE, "message.DecodeError json_format.ParseError json_format.EnumStringValueParseError"),
            (_UNREADABLE, "text_format.ParseError"),
            (_CLIENT_BUG, "message.Error message.EncodeError message.FrozenInstanceError json_format.Error"),
            (_CLIENT_BUG, "json_format.SerializeToJsonError text_format.Error runtime_version.VersionError"),
            (_CLIENT_BUG, "descriptor.Error descriptor.TypeTransformationError descriptor_database.Error"),
            (_CLIENT_BUG, "descriptor_database.DescriptorDatabaseConflictingDefinitionError"),
        ),
        "google.protobuf",
    ),
}


# --- Stripe -----------------------------------------------------------------------------------------------------------

_ENDED = _refused(Code.GONE, "It has expired: begin it anew.")
_NOT_ENABLED = _refused(Code.FORBIDDEN, "The account may not do this: enable the feature at Stripe.")
_DECLINED = _refused(Code.REFUSED, "The payment was declined: use another way to pay, or ask for less.")

STRIPE: Mapping[str, Row] = _named(
    (
        (_refused(Code.BUSY, "Another request has the object locked."), "lock_timeout"),
        # The request of an earlier attempt still runs, and may take effect.
        (_unknown(Code.BUSY, "Another request with this idempotency key is still running."), "idempotency_key_in_use"),
        (_THROTTLED, "rate_limit"),
        (_MISSING, "resource_missing not_found"),
        (
            _CONFLICT,
            "resource_already_exists charge_already_captured charge_already_refunded"
            " charge_disputed bank_account_exists payment_intent_unexpected_state"
            " setup_intent_unexpected_state payment_method_unexpected_state",
        ),
        (_CREDENTIALS, "api_key_expired platform_api_key_expired secret_key_required publishable_key_not_allowed"),
        (_FORBIDDEN, "account_invalid livemode_mismatch testmode_charges_only account_closed"),
        (_DECLINED, "balance_insufficient insufficient_funds card_declined expired_card incorrect_cvc"),
    )
)
"""Rows by Stripe's error code (https://docs.stripe.com/error-codes); any other code is as its class."""

_STRIPE_CLASSES: tuple[tuple[Row, str], ...] = (
    (_THROTTLED, "RateLimitError"),
    (_DECLINED, "CardError InsufficientFundsError"),
    (_INVALID, "InvalidRequestError InvalidPaymentMethodError InvalidPayoutMethodError InvalidVaultedCredentialError"),
    (_CREDENTIALS, "AuthenticationError"),
    (_FORBIDDEN, "PermissionError"),
    # This request did nothing: its key belongs to an earlier one, which had other arguments.
    (_refused(Code.CONFLICT, "The idempotency key was used before with other arguments."), "IdempotencyError"),
    (
        _CONFLICT,
        "AlreadyCanceledError NotCancelableError ControlledByAlternateResourceError FinancialAccountNotOpenError",
    ),
    (_REJECTED, "BlockedByStripeError CannotProceedError RecipientNotNotifiableError VerificationAttemptFailedError"),
    (_NOT_ENABLED, "CapabilityNotEnabledError FeatureNotEnabledError"),
    (_STALE, "FxQuoteNeedsRefreshError VerificationNotInitiatedError"),
    (_ENDED, "TemporarySessionExpiredError VerificationExpiredError"),
    (_QUOTA, "QuotaExceededError"),
)
_STRIPE_OAUTH: tuple[tuple[Row, str], ...] = (
    (_CREDENTIALS, "OAuthError InvalidClientError"),
    (_INVALID, "InvalidGrantError InvalidRequestError InvalidScopeError"),
    (_UNSUPPORTED, "UnsupportedGrantTypeError UnsupportedResponseTypeError"),
)


def _stripe(otherwise: Row, *, by_status: bool = False) -> Choice:
    """The entry for a class of errors of Stripe: by their code, else `by_status` if that is asked for, else a row."""

    def decide(error: Any) -> Verdict | None:
        body = _field(error.json_body, "error")
        code = _code(error.code) or _code(_field(body, "code"))  # the client leaves the code of some classes out
        row, status = STRIPE.get(code, otherwise), error.http_status
        if row is otherwise and by_status and isinstance(status, int):
            row = _UNREADABLE if status < 300 else http.by_status(status)
        if status == 404 and row is _INVALID:
            row = _MISSING
        codes = {
            "code": code,
            "decline_code": _code(_field(body, "decline_code")),
            "reason": _code(_field(error, "reason")),
        }
        observed = {name: value for name, value in codes.items() if value} or None
        called = code or type(error).__name__
        return _answered("Stripe answered with", called, row, observed, _retry_after(error.headers))

    return Choice("its code", {**STRIPE, **(_statuses() if by_status else {})}, decide, otherwise)


_STRIPE_TABLE: Table = {
    **_named(
        (
            # Its retries keep the idempotency key, but the final one tells nothing about those before it.
            (_unknown(Code.UNREACHABLE, "Stripe cannot be reached, or the connection broke."), "APIConnectionError"),
            *((_stripe(row), names) for row, names in _STRIPE_CLASSES),
            # For 409 and 5xx, and for what is no answer of Stripe; 5xx leaves the effect open.
            (_stripe(_FAILED, by_status=True), "APIError"),
            (_stripe(_NO_CODE, by_status=True), "StripeError StripeErrorWithParamCode"),
            (
                _unsent(Code.UNAUTHORIZED, "The signature of the webhook does not fit: check its secret."),
                "SignatureVerificationError",
            ),
        ),
        "stripe._error",
    ),
    **_named(tuple((_stripe(row), names) for row, names in _STRIPE_OAUTH), "stripe.oauth_error"),
}


# --- Redis ------------------------------------------------------------------------------------------------------------

REDIS: Mapping[str, Row] = {
    "BUSY": _refused(Code.BUSY, "Redis runs a script at the moment."),
    "LOADING": _refused(Code.BUSY, "Redis loads its data at the moment."),
    "INPROG": _BUSY,
    "TRYAGAIN": _refused(Code.BUSY, "The cluster moves these keys at the moment."),
    "WRONGTYPE": _refused(Code.CONFLICT, "The key holds another type of value: choose another key."),
    "BUSYKEY": _refused(Code.CONFLICT, "The key exists already: choose another one."),
    "BUSYGROUP": _refused(Code.CONFLICT, "The consumer group exists already."),
    "NOGROUP": _refused(Code.NOT_FOUND, "There is no such consumer group or stream: create it first."),
    "NOREPLICAS": _refused(Code.UNREACHABLE, "Redis has too few replicas to accept a write."),
    "MISCONF": _refused(Code.NEEDS_PERSON, "Redis cannot save its data, so it accepts no write: check its disk."),
    "DENIED": _refused(Code.FORBIDDEN, "Redis accepts only connections from its own machine: configure it."),
    "NOPERM": _FORBIDDEN,
    "NOAUTH": _CREDENTIALS,
    "UNBLOCKED": _unknown(Code.UNREACHABLE, "The instance changed its role during the call."),
    "IOERR": _unknown(Code.TIMEOUT, "The other instance did not answer Redis in time."),
}
"""Rows by the error code with which an answer of Redis begins."""

# A script that fails has done its first steps, and Redis does not roll them back.
_COMMAND = _unknown(Code.BUG, "Redis rejected the command: fix the tool.")
_IN_PIPELINE = "in a pipeline"


def _redis(row: Row, codes: Mapping[str, Row] = {}) -> Choice:
    """The entry for an answer of Redis: by its code if that is in `codes`, else `row`."""

    def decide(error: Any) -> Verdict | None:
        first = str(error.args[0]).partition(" ")[0] if error.args else ""
        code = first if first in codes else _code(_field(error, "status_code"))
        if first == "Command":  # redis-py puts the command of a pipeline there; others of them may have been done
            return replace(row.verdict(), proves=Proof.UNKNOWN)
        return codes.get(code, row).verdict()

    return Choice("its error code", {**codes, _IN_PIPELINE: replace(row, proves=Proof.UNKNOWN)}, decide, row)


def _redis_connection(row: Row) -> Choice:
    """The entry for a lost connection: no command was sent if the client was still waiting for a connection."""
    unsent = replace(row, proves=Proof.NOT_SENT, reason="No connection to Redis could be made; nothing was sent.")

    def decide(error: Any) -> Verdict | None:
        if type(error).__name__ == "ConnectionError" and _field(error, "status_code") == "ERR":
            return _REDIS_FULL.verdict()
        names = [*_frames(error, "redis")]
        # A retry connects anew without the pool; the client of a cluster or of several databases may ask a second one.
        if "get_connection" not in names or any(re.search("cluster|multidb", name) for name in names):
            return row.verdict()
        waited = row.code is Code.UNREACHABLE and any(map(_is_waited, _behind(error)))
        return (_REDIS_NO_CONNECTION if waited else unsent).verdict()

    rows = {"no connection": unsent, "no free connection": _REDIS_NO_CONNECTION, "too many clients": _REDIS_FULL}
    return Choice("whether there was a connection", rows, decide, row)


def _is_waited(error: BaseException) -> bool:
    """Whether an exception says that no connection of a pool became free; the network's timeouts have an errno."""
    return qualified(type(error)) == "_queue.Empty" or (isinstance(error, TimeoutError) and error.errno is None)


def _frames(error: BaseException, package: str) -> Iterator[str]:
    """The names of a package's modules and functions through which an exception passed."""
    trace = error.__traceback__
    while trace:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == package:
            yield from (module, trace.tb_frame.f_code.co_name)
        trace = trace.tb_next


def _redis_lock(error: Any) -> Verdict | None:
    """The verdict on a lock: it was not free, unless something else than `with` failed with it."""
    names = [*_frames(error, "redis")]
    return _LOCKED.verdict() if {"__enter__", "__aenter__"} & {*names} else None


def _redis_cluster(error: Any) -> Verdict | None:
    down = any(
        qualified(type(one)).startswith(("redis.exceptions.ConnectionError", "redis.exceptions.TimeoutError"))
        or isinstance(one, OSError)
        for one in _behind(error)
    )
    return _CLUSTER_DOWN.verdict() if down else None


def _redis_http(error: Any) -> Verdict | None:
    status = error.status
    return _answered("Redis Enterprise answered with", f"HTTP {status}", http.by_status(status)) if status else None


_REDIS_FULL = _refused(Code.BUSY, "Redis has as many clients as it accepts.")
_REDIS_NO_CONNECTION = _unsent(Code.BUSY, "All connections of the pool are in use; nothing was sent.")
_LOCKED = _unsent(Code.BUSY, "The lock was not free in time; nothing was done.")
_CLUSTER_DOWN = _unknown(Code.UNREACHABLE, "The Redis cluster cannot be reached, or lacks a node.")
_OUT_OF_DATE = _refused(Code.UNREACHABLE, "The instance lost its primary, or became a replica.")

_REDIS_LOST = _redis_connection(_unknown(Code.UNREACHABLE, "The connection to Redis broke."))

_REDIS_TABLE: Table = {
    **_named(
        (
            (_REDIS_LOST, "ConnectionError"),
            (_redis_connection(_unknown(Code.TIMEOUT, "Redis did not answer in time.")), "TimeoutError"),
            (_REDIS_NO_CONNECTION, "MaxConnectionsError"),
            (_redis(_COMMAND, REDIS), "ResponseError"),
            (_redis(REDIS["LOADING"]), "BusyLoadingError"),
            # A replica after a failover: the next connection finds the primary.
            (_redis(_OUT_OF_DATE), "ReadOnlyError ClusterDownError MasterDownError"),
            (_redis(_CREDENTIALS), "AuthenticationError AuthenticationWrongNumberOfArgsError"),
            (_redis(_FORBIDDEN), "AuthorizationError NoPermissionError"),
            (
                _redis(_refused(Code.UNREACHABLE, "The service by which Redis checks credentials is down.")),
                "ExternalAuthProviderError",
            ),
            (
                _redis(_refused(Code.QUOTA_EXHAUSTED, "The memory of Redis is full: free some, or raise the limit.")),
                "OutOfMemoryError",
            ),
            (_redis(_refused(Code.BUG, "Redis does not know the script: let the tool load it.")), "NoScriptError"),
            # Nothing of the transaction was done.
            (_refused(Code.CONFLICT, "A watched key has changed: read it and choose again."), "WatchError"),
            (_refused(Code.BUG, "A command of the transaction is wrong: fix the tool."), "ExecAbortError"),
            (_redis(REDIS["TRYAGAIN"]), "TryAgainError AskError NoSuchFieldsetError"),
            (_redis(_refused(Code.BUG, "This is a cluster: use the cluster client.")), "MovedError"),
            (
                _redis(_refused(Code.BUG, "The keys are in several slots: give them one hash tag.")),
                "ClusterCrossSlotError",
            ),
            (_redis(_refused(Code.BUG, "The module of Redis rejected the command: fix the tool.")), "ModuleError"),
            (Choice("where it was raised", {"with lock": _LOCKED}, _redis_lock, _CLIENT_BUG), "LockError"),
            # The lock ended before the work under it did.
            (_unknown(Code.BUSY, "The lock expired too early: give it a longer timeout."), "LockNotOwnedError"),
            (_UNREADABLE, "InvalidResponse InvalidPipelineStack"),
            (_CLIENT_BUG_UNSENT, "DataError ChildDeadlockedError CrossSlotTransactionError IncorrectPolicyType"),
            (_CLIENT_BUG, "RedisError PubSubError"),
            (
                Choice("whether a connection failed", {"it failed": _CLUSTER_DOWN}, _redis_cluster, _CLIENT_BUG),
                "RedisClusterException",
            ),
            (_CLUSTER_DOWN, "ClusterError SlotNotCoveredError"),
        ),
        "redis.exceptions",
    ),
    **_named(
        (
            (
                _unsent(Code.UNAUTHORIZED, "No token for Redis could be had: check the credentials."),
                "RequestTokenErr InvalidTokenSchemaErr TokenRenewalErr",
            ),
        ),
        "redis.auth.err",
    ),
    **_named(((_REDIS_LOST, "MasterNotFoundError SlaveNotFoundError"),), "redis.sentinel"),
    **_named(((_REDIS_LOST, "MasterNotFoundError SlaveNotFoundError"),), "redis.asyncio.sentinel"),
    "redis.event.EventException": _unknown(Code.UNAUTHORIZED, "The token for Redis could not be renewed."),
    "redis.http.http_client.HttpError": Choice("its HTTP status", _statuses(), _redis_http, _FAILED),
    **_named(
        (
            (
                _CLUSTER_DOWN,
                "NoValidDatabaseException UnhealthyDatabaseException TemporaryUnavailableException"
                " InitialHealthCheckFailedError",
            ),
        ),
        "redis.multidb.exception",
    ),
}


TABLE: Table = {**_AWS_TABLE, **_GRPC_TABLE, **_GOOGLE_TABLE, **_STRIPE_TABLE, **_REDIS_TABLE}
