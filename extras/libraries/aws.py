"""AWS (`botocore`, `boto3`, `s3transfer`): the verdict on each exception, by the error code of the response."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from activities.borders import service_api as api
from activities.borders.service_api import answered, behind, code_in, field, refused, some, statuses, unknown, unsent
from activities.borders.table import (
    Cases,
    Proof,
    Row,
    Table,
    Verdict,
    as_words,
    class_names,
    named,
    of_module,
    qualified,
)
from activities.borders.waits import wait_of
from workflows.faults.fault import QUADRANT, Code

AWS: Mapping[str, Row] = named(
    (
        api.THROTTLED,
        "Throttling ThrottlingException ThrottledException RequestThrottled RequestThrottledException"
        " TooManyRequestsException TooManyRequests ProvisionedThroughputExceededException RequestLimitExceeded"
        " BandwidthLimitExceeded EC2ThrottledException LimitExceededThrottling ReplicatedWriteThrottling"
        " ResourceProvisionedThroughputExceededException KMSThrottlingException ThrottlingError"
        " ProvisionedThroughputExceeded",
    ),
    (api.OVERLOADED, "SlowDown InsufficientInstanceCapacity InsufficientCapacity InsufficientCapacityException"),
    (
        api.MISSING,
        "NoSuchKey NoSuchBucket NoSuchUpload NoSuchVersion NoSuchEntity ResourceNotFoundException NotFoundException"
        " NotFound NonExistentQueue QueueDoesNotExist UnknownResourceException StreamingDistributionNotFound",
    ),
    (
        api.FORBIDDEN,
        "AccessDenied AccessDeniedException UnauthorizedOperation UnauthorizedAccess ForbiddenException"
        " AuthorizationError AuthorizationErrorException AuthorizationFailure InsufficientPrivilegesException"
        " OptInRequired OptInRequiredException SubscriptionRequiredException AllAccessDisabled AccountProblem"
        " AccountSuspendedException PendingVerification RegionDisabledException SNSNoAuthorization"
        " OperationNotPermitted OperationNotPermittedException KMSAccessDeniedException",
    ),
    (
        api.CREDENTIALS,
        "ExpiredToken ExpiredTokenException RequestExpired InvalidClientTokenId SignatureDoesNotMatch"
        " UnrecognizedClientException InvalidAccessKeyId InvalidSignatureException InvalidToken IncompleteSignature"
        " IncompleteSignatureException MissingAuthenticationToken MissingAuthenticationTokenException AuthFailure"
        " RequestTimeTooSkewed TokenRefreshRequired InvalidSecurity NotSignedUp UnauthorizedException"
        " UnauthorizedClientException NotAuthorized NotAuthorizedException InvalidIdentityToken"
        " InvalidIdentityTokenException IDPRejectedClaim AccessTokenExpired",
    ),
    (
        api.STALE,
        "ConditionalCheckFailed ConditionalCheckFailedException PreconditionFailed PreconditionFailedException"
        " PreconditionNotMetException InvalidIfMatchVersion VersionMismatchException StaleDataException"
        " WAFStaleDataException UpdateOutOfSyncException",
    ),
    (
        api.CONFLICT,
        "ConflictException Conflict BucketAlreadyExists BucketAlreadyOwnedByYou BucketNotEmpty DeleteConflict"
        " ResourceInUseException ResourceInUse ResourceConflictException DuplicateItem DuplicateItemException"
        " IdempotentParameterMismatch IdempotentParameterMismatchException InvalidStateException InvalidState"
        " InvalidObjectState DependencyViolation IncorrectState IncorrectInstanceState"
        " KMSInvalidStateException InvalidBucketState",
    ),
    (
        api.INVALID,
        "ValidationException ValidationError ValidationErrorException InvalidParameterValue InvalidArgument"
        " BadRequestException BadRequest InvalidRequest MalformedXML EntityTooLarge EntityTooSmall KeyTooLongError"
        " MissingParameter ItemCollectionSizeLimitExceeded ItemCollectionSizeLimitExceededException"
        " RequestEntityTooLargeException BatchRequestTooLong TooManyEntriesInBatchRequest",
    ),
    (
        api.BUSY,
        "TransactionConflict TransactionConflictException OperationAborted"
        " ConditionalRequestConflict PriorRequestNotComplete ConcurrentModification ConcurrentModificationException"
        " ConcurrentUpdateException EntityTemporarilyUnmodifiable EntityTemporarilyUnmodifiableException"
        " ResourceNotReadyException ResourceNotReady ModelNotReadyException OperationInProgress"
        " ENILimitReachedRetry RetryLatestCommitFailedException",
    ),
    # A request with the same token, of an earlier attempt, still runs, and may take effect.
    (unknown(Code.BUSY, "Another request with this token is still running."), "TransactionInProgressException"),
    (api.QUOTA, "LimitExceeded LimitExceededException ServiceQuotaExceededException ServiceQuotaExceeded"),
    (
        api.UNSUPPORTED,
        "UnsupportedOperation UnsupportedOperationException InvalidAction UnknownOperationException NotImplemented"
        " MethodNotAllowed MethodNotAllowedException OperationNotSupportedException",
    ),
    (api.REJECTED, "MessageRejected SendingPausedException MailFromDomainNotVerifiedException DryRunOperation"),
    (
        api.FAILED,
        "InternalError InternalFailure InternalServerError InternalServerException InternalServiceError"
        " InternalServerErrorException InternalFailureException ServiceException ServerException"
        " ServiceFailureException DependencyFailureException",
    ),
    (api.UNAVAILABLE, "ServiceUnavailable ServiceUnavailableException Unavailable"),
    # S3 says that the body did not arrive in time, others that the answer was not ready: the latter proves nothing.
    (api.NO_ANSWER, "RequestTimeout RequestTimeoutException OperationTimeoutException DependencyTimeoutException"),
    (refused(Code.UNREACHABLE, "The body of the request did not arrive as a whole."), "IncompleteBody BadDigest"),
    (api.WRONG_REGION, "PermanentRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException"),
)
"""Rows by AWS error code; services share most codes (botocore/data/*/service-2.json, and the guides of S3 and EC2)."""

_AWS_PATTERNS: tuple[tuple[str, Row], ...] = (
    (r"Throttl|TooManyRequests|RequestRateExceeded", api.THROTTLED),
    (r"^NoSuch|^Unknown|^Nonexistent|NotFound|(DoesNot|Not|Non)Exist", api.MISSING),
    (r"AlreadyExists?|Exists$|^Duplicate|Duplicate$|InUse|Conflict|Already|NotEmpty", api.CONFLICT),
    (r"(Limit|Quota)\w*Exceeded|LimitReached|^TooMany", api.QUOTA),
    (r"AccessDenied|Unauthorized|NotAuthorized|Forbidden|NotPermitted|PermissionDenied", api.FORBIDDEN),
    (r"^ExpiredToken", api.CREDENTIALS),
    (r"InProgress|NotReady|Locked|Concurrent", api.BUSY),
    (r"^Invalid\w*State$|^Incorrect\w*State$", api.CONFLICT),
    (
        r"^Invalid|^Malformed|Unsupported|NotSupported|^Missing|^Illegal|^Bad|Validation|Mismatch|TooLarge|TooLong",
        api.INVALID,
    ),
    (
        r"^Internal|Internal(Server|Service)?(Error|Failure)?$|^Server(Internal|$)|Unavailable|^Service(Failure|Error)?$",
        api.FAILED,
    ),
    (r"Timeout$|TimedOut$", api.NO_ANSWER),
)
"""Rows by a pattern of error codes, without the ending Exception, Fault or Error; the first pattern that matches
counts. Most services answer any error with status 400, so that only the code distinguishes errors."""


def _aws_row(code: str, status: Any) -> Row | None:
    """The row by a known error code, else by a status above 400, words in the code, or a status from 300; else None."""
    short = code.rpartition(".")[2]  # InvalidInstanceID.NotFound, AWS.SimpleQueueService.NonExistentQueue
    # The events of a stream carry their shape's name, which begins with a small letter.
    row = next((AWS[name] for name in (code, short, code[:1].upper() + code[1:]) if name in AWS), None)
    if row is api.QUOTA and status == 429:  # some services limit their rate under this name
        return api.THROTTLED
    if row:
        return row
    number = int(code) if code.isdecimal() else status if isinstance(status, int) else 0  # HEAD has only a status
    if number > 400:
        return api.by_status(number)
    stem = re.sub(r"(Exception|Fault|Error)$", "", short)
    by_pattern = next((row for pattern, row in _AWS_PATTERNS if re.search(pattern, stem)), None)
    return by_pattern or (api.by_status(number) if number >= 300 else None)


def _client_error(error: Any) -> Verdict | None:
    verdict = _aws_response(error.response, error.operation_name)
    tries = field(error.response, "ResponseMetadata", "RetryAttempts")
    # The answer is that to the final request; one before it may have been lost after it was carried out.
    return replace(verdict, proves=Proof.UNKNOWN) if verdict and tries else verdict


def _aws_response(response: Any, operation: Any) -> Verdict | None:
    """The verdict on an error response to an operation; None if no row fits."""
    code, operation = code_in(field(response, "Error", "Code")), code_in(operation) or "The call"
    row = _aws_row(code, field(response, "ResponseMetadata", "HTTPStatusCode"))
    reasons = [code_in(field(reason, "Code")) for reason in some(field(response, "CancellationReasons"))]
    if code == "TransactionCanceledException":
        row = _worst(AWS.get(reason, api.REJECTED) for reason in reasons if reason not in ("", "None")) or api.CONFLICT
    observed = {"code": code, "operation": operation} | ({"reasons": reasons[:40]} if reasons else {})
    wait = wait_of(field(response, "ResponseMetadata", "HTTPHeaders"))
    verdict = answered(f"AWS answered {operation} with", code, row, observed, wait) if row else None
    return replace(verdict, words=as_words(field(response, "Error", "Message"))) if verdict else None


def _worst(rows: Iterable[Row]) -> Row | None:
    """The most serious row: one that needs a person before one that needs a new plan before one that needs a retry."""
    return min(rows, key=lambda row: (QUADRANT[row.code].is_transient, QUADRANT[row.code].is_semantic), default=None)


def _aws_event(error: Any) -> Verdict | None:
    """The verdict on an error in a stream of events, which proves nothing; None if no row fits."""
    verdict = _client_error(error)
    return replace(verdict, proves=Proof.UNKNOWN) if verdict else None


def _waiter(error: Any) -> Verdict | None:
    """The verdict on a waiter by its last response; None if the waiter has used all its attempts."""
    reason = str(field(error.kwargs, "reason"))  # botocore's own words: there is no field that tells them apart
    if reason.startswith("Max attempts exceeded"):
        return None
    known = _aws_response(error.last_response, field(error.kwargs, "name")) or _WAITER_FAILED.verdict()
    # The waiter only reads, but the call that it waits for was answered before.
    return replace(known, proves=Proof.UNKNOWN)


_WAITED = unknown(Code.TIMEOUT, "What the waiter waits for was not reached in time.")
_WAITER_FAILED = unknown(Code.CONFLICT, "What the waiter waits for has failed: observe the state and choose again.")


def _by_certificate(error: Any) -> Verdict | None:
    """The verdict on an untrusted certificate; None for any other error of TLS."""
    untrusted = any(qualified(type(exception)) == "ssl.SSLCertVerificationError" for exception in behind(error))
    return api.CERTIFICATE.verdict() if untrusted else None


def _by_carried(error: Any) -> Verdict | None:
    """The verdict on the first exception of botocore that an exception carries."""
    inner = (exception for exception in behind(error) if qualified(type(exception)).startswith("botocore."))
    entries = (
        (TABLE[name], exception) for exception in inner for name in class_names(type(exception)) if name in TABLE
    )
    entry, wrapped = next(entries, (None, None))
    return entry(wrapped) if entry and wrapped else None


_AWS_STATUSES = {**AWS, **statuses()}
_NO_CREDENTIALS = unsent(Code.UNAUTHORIZED, "The worker has no valid AWS credentials: configure or renew them.")
_AWS_USE = unsent(Code.BUG, "The tool uses botocore wrongly; nothing was sent: fix the tool.")
_AWS_ARGUMENTS = unsent(
    Code.INVALID_INPUT, "The arguments do not fit the AWS operation; nothing was sent: change them."
)
_AWS_CUT = unsent(Code.UNREACHABLE, "No connection to AWS could be made; nothing was sent.")

_S3_UPLOAD = Cases(
    "the ClientError that it carries",
    _AWS_STATUSES,
    _by_carried,
    otherwise=unknown(Code.SERVER_ERROR, "The upload to S3 failed."),
)

TABLE: Table = {
    **of_module(
        "botocore.exceptions",
        (Cases("its error code, else its HTTP status", _AWS_STATUSES, _client_error, api.NO_CODE), "ClientError"),
        # It arrives in the middle of a response, so the request was accepted.
        (
            Cases(
                "its error code",
                {code: replace(row, proves=Proof.UNKNOWN) for code, row in AWS.items()},
                _aws_event,
                api.FAILED,
            ),
            "EventStreamError",
        ),
        (
            Cases("the error code of its last response", {"a failed state": _WAITER_FAILED, **AWS}, _waiter, _WAITED),
            "WaiterError",
        ),
        # botocore makes these before a request is written; they do not tell whether it retried one that was.
        (_AWS_CUT, "ConnectionError EndpointConnectionError ConnectTimeoutError ProxyConnectionError"),
        (
            Cases("whether the certificate was rejected", {"rejected": api.CERTIFICATE}, _by_certificate, api.BROKEN),
            "SSLError",
        ),
        (api.NO_ANSWER, "ReadTimeoutError"),
        (api.BROKEN, "HTTPClientError ConnectionClosedError ResponseStreamingError IncompleteReadError"),
        (unknown(Code.UNREACHABLE, "The answer of AWS arrived damaged."), "ChecksumError FlexibleChecksumError"),
        # The client's own limit of retries, so an attempt was made before.
        (unknown(Code.RATE_LIMITED, "The client waits before further retries."), "CapacityNotAvailableError"),
        (
            _NO_CREDENTIALS,
            "NoCredentialsError PartialCredentialsError CredentialRetrievalError NoAuthTokenError TokenRetrievalError"
            " SSOError SSOTokenLoadError UnauthorizedSSOTokenError RefreshWithMFAUnsupportedError"
            " UnknownCredentialError",
        ),
        (
            unsent(Code.UNREACHABLE, "The service for the worker's AWS credentials does not answer; nothing was sent."),
            "MetadataRetrievalError",
        ),
        (
            _AWS_ARGUMENTS,
            "ParamValidationError MissingParametersError ValidationError UnknownKeyError RangeError InvalidDNSNameError"
            " UnsupportedS3ArnError UnsupportedS3ControlArnError InvalidHostLabelError UnsupportedOutpostResourceError"
            " EndpointResolutionError",
        ),
        (unknown(Code.UNEXPECTED_RESULT, "AWS sent the same page twice."), "PaginationError"),
        (
            unsent(Code.BUG, "The AWS client is configured wrongly: correct the region, profile, or options."),
            "DataNotFoundError UnknownServiceError UnknownRegionError ApiVersionNotFoundError"
            " InvalidIMDSEndpointError InvalidIMDSEndpointModeError UnknownSignatureVersionError"
            " ServiceNotInRegionError BaseEndpointResolverError NoRegionError EndpointVariantError"
            " UnknownEndpointError UnknownFIPSEndpointError ProfileNotFound ConfigParseError ConfigNotFound"
            " InvalidRegionError UnsupportedSignatureVersionError InvalidS3AddressingStyleError"
            " UnsupportedS3ConfigurationError UnsupportedS3AccesspointConfigurationError"
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
        (api.CLIENT_BUG, "BotoCoreError UnseekableStreamError AwsChunkedWrapperError"),
        (api.WARNING, "UnsupportedTLSVersionWarning ImminentRemovalWarning"),
    ),
    **of_module(
        "botocore.discovery",
        (_AWS_USE, "EndpointDiscoveryException EndpointDiscoveryRequired"),
        (_AWS_CUT, "EndpointDiscoveryRefreshFailed"),
    ),
    **of_module(
        "botocore.eventstream",
        (
            api.UNREADABLE,
            "ParserError ChecksumMismatch DuplicateHeader InvalidHeadersLength InvalidPayloadLength"
            " NoInitialResponseError",
        ),
    ),
    "botocore.parsers.ResponseParserError": api.UNREADABLE,
    **of_module(
        "botocore.model",
        (_AWS_USE, "InvalidShapeError InvalidShapeReferenceError NoShapeFoundError OperationNotFoundError"),
    ),
    **of_module(
        "botocore.utils",
        (_AWS_ARGUMENTS, "InvalidArnException"),
        (_NO_CREDENTIALS, "BadIMDSRequestError _RetriesExceededError"),  # of the machine's metadata
    ),
    # A bug on purpose: only their subclasses above are raised, which have rows of their own.
    "botocore.vendored.requests.exceptions.RequestException": api.CLIENT_BUG,
    "botocore.vendored.requests.packages.urllib3.exceptions.HTTPError": api.CLIENT_BUG,
    "botocore.vendored.requests.packages.urllib3.exceptions.HTTPWarning": api.WARNING,
    **of_module(
        "boto3.exceptions",
        (api.CLIENT_BUG, "Boto3Error"),  # for the classes of newer versions
        (api.CLIENT_BUG_UNSENT, "ResourceLoadException NoVersionFound UnknownAPIVersionError"),
        (api.CLIENT_BUG_UNSENT, "ResourceNotExistsError DynamoDBOperationNotSupportedError"),
        (api.CLIENT_BUG_UNSENT, "DynamoDBNeedsConditionError DynamoDBNeedsKeyConditionError"),
        (api.BROKEN, "RetriesExceededError"),  # of a download
        (_S3_UPLOAD, "S3TransferFailedError S3UploadFailedError"),
        (api.WARNING, "PythonDeprecationWarning"),
    ),
    **of_module(
        "s3transfer.exceptions",
        (api.BROKEN, "RetriesExceededError"),
        (_S3_UPLOAD, "S3UploadFailedError"),
        (unknown(Code.BUSY, "The object in S3 changed during the download."), "S3DownloadFailedError"),
        (api.UNREADABLE, "S3ValidationError"),
        # Another part of the transfer failed first.
        (api.BROKEN, "FatalError"),
        (api.CLIENT_BUG, "InvalidSubscriberMethodError TransferNotDoneError"),
    ),
    # Nobody outside of s3transfer sees these.
    **of_module(
        "s3transfer", (api.BROKEN, "QueueShutdownError bandwidth.RequestExceededException utils.NoResourcesAvailable")
    ),
}
