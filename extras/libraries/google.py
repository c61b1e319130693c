"""gRPC and Google (`grpc`, `google.api_core`, `google.auth`, `google.protobuf`): the verdict on each exception."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

from activities.borders import service_api as api
from activities.borders.service_api import answered, behind, code_in, field, refused, some, statuses, unknown, unsent
from activities.borders.table import Cases, Proof, Row, Table, Verdict, as_words, class_names, frames, named, of_module
from activities.borders.waits import wait_of
from workflows.faults.fault import Code, Quadrant

GRPC: Mapping[str, Row] = {
    # Either side may have cancelled it, at any time.
    "CANCELLED": unknown(Code.UNREACHABLE, "The call was cancelled before its answer arrived."),
    "UNKNOWN": api.FAILED,
    "INVALID_ARGUMENT": api.INVALID,
    "DEADLINE_EXCEEDED": api.NO_ANSWER,
    "NOT_FOUND": api.MISSING,
    "ALREADY_EXISTS": refused(Code.CONFLICT, "It exists already: choose another name, or use what is there."),
    "PERMISSION_DENIED": api.FORBIDDEN,
    "RESOURCE_EXHAUSTED": unknown(Code.RATE_LIMITED, "There were too many requests, or a message was too large."),
    "FAILED_PRECONDITION": api.STALE,
    "ABORTED": refused(Code.BUSY, "The service rolled the call back because of another one at the same time."),
    "OUT_OF_RANGE": api.INVALID,
    "UNIMPLEMENTED": replace(api.UNSUPPORTED, proves=Proof.UNKNOWN),
    "INTERNAL": api.FAILED,
    "UNAVAILABLE": replace(
        unknown(Code.UNREACHABLE, "The service cannot be reached, or is not ready."), says_down=True
    ),
    "DATA_LOSS": unknown(Code.NEEDS_PERSON, "The service has lost or damaged data: ask its operator."),
    "UNAUTHENTICATED": api.CREDENTIALS,
}
"""Rows by gRPC status (https://grpc.io/docs/guides/status-codes), in the order of their numbers from 1.

A status proves something only if the client never makes it itself after the request or its answer was on its way (the
table in grpc/doc/statuscodes.md): the client makes UNAUTHENTICATED and PERMISSION_DENIED before.
"""
_BY_SERVICE: Mapping[str, Row] = {"RESOURCE_EXHAUSTED": api.THROTTLED, "UNIMPLEMENTED": api.UNSUPPORTED}
"""Rows by a status that the client can make, too, for errors whose metadata show that the service gave the status."""
_SENT_TOO_LARGE = unsent(
    Code.INVALID_INPUT,
    "The request is larger than the client may send; nothing was sent: send less, or raise the channel's"
    " grpc.max_send_message_length.",
)
_LARGE_REQUEST = unknown(Code.INVALID_INPUT, "A request is larger than a client may send: send less.")
_LARGE_ANSWER = unknown(
    Code.TOO_LARGE,
    "The answer came, and is larger than the client takes: raise the channel's grpc.max_receive_message_length.",
)
_GRPC_ROWS: Mapping[str, Row] = {
    **GRPC,
    **{f"{status} in the service's own data": row for status, row in _BY_SERVICE.items()},
    "RESOURCE_EXHAUSTED, the answer too large": _LARGE_ANSWER,
    "RESOURCE_EXHAUSTED, the request too large": _SENT_TOO_LARGE,
    "RESOURCE_EXHAUSTED, too large a part of a stream": _LARGE_REQUEST,
}


def _by_grpc_status(error: Any) -> Verdict | None:
    status = error.code()
    number = status if isinstance(status, int) else 0
    name = [*GRPC][number - 1] if 0 < number <= len(GRPC) else field(status, "name")
    row = _grpc_row(code_in(name), error)
    return answered("The gRPC call ended with", name, row, wait=_pushback(error)) if row else None


def _grpc_row(status: str, error: Any) -> Row | None:
    """The row of a gRPC status, with what `error` shows: who gave the status, and whether the call is a stream."""
    row = GRPC.get(status)
    if status in _BY_SERVICE:
        by_service = _BY_SERVICE[status] if _is_by_service(error, [*GRPC].index(status) + 1) else None
        row = by_service or (_by_size(error) if status == "RESOURCE_EXHAUSTED" else None) or row
    # A part of what a stream asked for may have been done before it was refused.
    is_open = row is not None and row.proves is Proof.REFUSED and _is_stream(error)
    return replace(row, proves=Proof.UNKNOWN) if row and is_open else row


def _is_by_service(error: Any, number: int) -> bool:
    """Whether the trailing metadata of a call, which its service writes, give status `number` or ask for a wait."""
    try:
        trailing = _trailing_metadata(error)
        details = trailing.get("grpc-status-details-bin", b"")
        is_given = len(details) <= MAX_DETAILS and _protobuf(details).get(1) == [number]
    except Exception:  # what a server sends here may be anything
        return False
    return is_given or "grpc-retry-pushback-ms" in trailing


_TOO_LARGE = re.compile(r"CLIENT: Sent message larger than max \((\d{1,20}) vs\. \d{1,20}\)")


def _by_size(error: Any) -> Row | None:
    """The row for a message that the client found too large, by the text of the details; None for any other error.

    A service may pass on the details that its own client gave for another call, so the words alone prove nothing.
    """
    try:
        details = str(error.details())
    except Exception:  # a tool may have made the exception
        return None
    if "CLIENT: Received message larger than max" in details:
        return _LARGE_ANSWER
    sent = _TOO_LARGE.fullmatch(details)
    if sent is None:
        return None
    return _SENT_TOO_LARGE if int(sent[1]) in map(_request_size, _frames(error)) else _LARGE_REQUEST


def _frames(error: Any) -> Iterator[FrameType]:
    """The frames of gRPC's clients through which an exception came; empty for a response over HTTP."""
    passed = frames(error, "grpc") if isinstance(error, BaseException) else ()
    return (frame for module, frame in passed if module in ("grpc._channel", "grpc.aio._call"))


def _request_size(frame: FrameType) -> int | None:
    """The size in bytes of a call's only request; None for a call with a stream, which has sent requests before."""
    call = frame.f_locals.get("self")
    if type(call).__name__ not in ("_UnaryUnaryMultiCallable", "UnaryUnaryCall"):
        return None
    request = frame.f_locals.get("request", field(call, "_request"))
    serialize = field(call, "_request_serializer") or bytes
    return len(serialize(request))


def _is_stream(error: Any) -> bool:
    """Whether a call sent or received a stream, or was a future: gRPC does not distinguish these."""
    calls = (error, *(frame.f_locals.get("self") for frame in _frames(error)))
    return any(re.search("Stream|Rendezvous", type(call).__name__) for call in calls)


def _pushback(error: Any) -> float | None:
    """The seconds that the trailing metadata of a gRPC call ask to wait; None if they ask for no wait."""
    try:
        trailing = _trailing_metadata(error)
        # Below 0 it means that the client library may not retry on its own.
        pushback = str(trailing.get("grpc-retry-pushback-ms", ""))
        status = trailing.get("grpc-status-details-bin", b"")
        return int(pushback) / 1000 if re.fullmatch(r"\d{1,10}", pushback) else _retry_info(status)
    except Exception:  # what a server sends here may be anything
        return None


def _trailing_metadata(error: Any) -> dict[Any, Any]:
    return dict(pair for pair in some(error.trailing_metadata()) if isinstance(pair, tuple))


MAX_DETAILS = 16 * 1024
"""The most bytes of a serialised message that are read: gRPC itself takes no more metadata by default."""


def _retry_info(status: bytes) -> float | None:
    """The seconds of `google.rpc.RetryInfo` among the details of a serialised `google.rpc.Status`; None without it."""
    if len(status) > MAX_DETAILS:
        return None
    for detail in _protobuf(status).get(3, ()):
        packed = _protobuf(detail)
        if packed[1][0] == b"type.googleapis.com/google.rpc.RetryInfo":
            delay = _protobuf(_protobuf(packed[2][0])[1][0])
            return _valid_duration(delay.get(1, [0])[0], delay.get(2, [0])[0])
    return None


def _protobuf(message: bytes) -> dict[int, list[Any]]:
    """The fields of a serialised message by their number; only those of the wire types 0 and 2 are read.

    The message is read here, since the library for it is not always installed together with gRPC.
    """
    at, found = 0, dict[int, list[Any]]()

    def varint() -> int:
        nonlocal at
        start = at
        while message[at] & 0x80:
            at += 1
        at += 1
        return sum((byte & 0x7F) << 7 * position for position, byte in enumerate(message[start:at]))

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind not in (0, 2):
            break
        value: Any = varint()
        if kind == 2:
            value, at = message[at : at + value], at + value
        found.setdefault(number, []).append(value)
    return found


def _valid_duration(seconds: Any, nanos: Any) -> float | None:
    duration = float(seconds) + float(nanos) / 1e9
    return duration if 0 <= duration < math.inf else None


_GRPC_NO_STATUS = unknown(Code.BUG, "The gRPC call failed without a status: fix the tool, or add it to `raises=`.")
_BY_GRPC_STATUS = Cases("its gRPC status", _GRPC_ROWS, _by_grpc_status, _GRPC_NO_STATUS)

_GRPC_TABLE: Table = {
    **of_module(
        "grpc",
        (
            _BY_GRPC_STATUS,
            "RpcError _channel._InactiveRpcError _channel._MultiThreadedRendezvous _interceptor._FailureOutcome"
            " _channel._Rendezvous _channel._SingleThreadedRendezvous aio._call.AioRpcError",
        ),
        (api.NO_ANSWER, "FutureTimeoutError"),
        (GRPC["CANCELLED"], "FutureCancelledError"),
        (api.CLIENT_BUG, "experimental.UsageError"),
        (api.WARNING, "experimental.ExperimentalApiWarning"),
    ),
    **of_module(
        "grpc._cython.cygrpc",
        (_BY_GRPC_STATUS, "AioRpcStatus"),
        (api.CLIENT_BUG, "BaseError AbortError ExecuteBatchError InternalError UsageError"),
        (api.BROKEN, "_ServerStoppedError _RequestCallError _WatchConnectivityFailed"),
    ),
    # The beta API, which gRPC still ships.
    **of_module(
        "grpc.framework.interfaces",
        (api.CLIENT_BUG, "face.face.AbortionError face.face.LocalError"),
        (GRPC["CANCELLED"], "face.face.CancellationError"),
        (api.NO_ANSWER, "face.face.ExpirationError"),
        (api.BROKEN, "face.face.NetworkError face.face.LocalShutdownError face.face.RemoteShutdownError"),
        (api.FAILED, "face.face.RemoteError"),
        (api.UNSUPPORTED, "face.face.NoSuchMethodError base.base.NoSuchMethodError"),
    ),
    **of_module(
        "grpc.framework.foundation",
        (api.CLIENT_BUG, "abandonment.Abandoned"),
        (GRPC["CANCELLED"], "future.CancelledError"),
        (api.NO_ANSWER, "future.TimeoutError"),
    ),
}


_GOOGLE_REASONS: Mapping[str, Row] = named(
    (api.THROTTLED, "rateLimitExceeded userRateLimitExceeded RATE_LIMIT_EXCEEDED"),
    (api.QUOTA, "quotaExceeded dailyLimitExceeded"),
)
"""Rows by the reason that some Google APIs give with status 403 for errors that are not about permissions."""


def _google_data(error: Any) -> tuple[str, dict[str, str], float | None]:
    """The reason of an error of a Google API (or ""), its reason and domain as `observed`, and the seconds to wait."""
    reasons = [error.reason, *(field(item, "reason") for item in some(error.errors) if isinstance(item, Mapping))]
    reason = next(filter(None, map(code_in, reasons)), "")
    observed = {"reason": reason, "domain": code_in(error.domain)} if reason else {}
    waits = (_google_wait(detail) for detail in some(error.details))
    header = wait_of(field(error.response, "headers"))
    return reason, observed, next((wait for wait in waits if wait is not None), header)


def _google_wait(detail: Any) -> float | None:
    """The seconds of a RetryInfo, as a message or in its JSON form; None for any other detail."""
    if isinstance(detail, Mapping):
        delay = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)s", str(detail.get("retryDelay")))
        return float(delay[1]) if delay else None
    delay = field(detail, "retry_delay")
    return None if delay is None else _valid_duration(delay.seconds, delay.nanos)


def _google(status: str = "") -> Cases:
    """The entry for a class of errors of a Google API, by gRPC or HTTP `status`; if that is "", by each error's own."""
    row_of_status = GRPC.get(status) or (api.by_status(int(status)) if status else None)

    def decide(error: Any) -> Verdict | None:
        name, code = code_in(field(error.grpc_status_code, "name")), error.code
        called = status or (name if name in GRPC else f"{code:d}" if isinstance(code, int) else "")
        row = row_of_status or (api.by_status(int(called)) if called.isdecimal() else None)
        if called in GRPC:
            row = _grpc_row(called, error.response)
        try:
            reason, observed, wait = _google_data(error)
        except Exception:  # an API may send anything as details
            reason, observed, wait = "", {}, None
        if code == 403:
            row = _GOOGLE_REASONS.get(reason, row)
        waits = _pushback(error.response) if wait is None else wait
        verdict = answered("The Google API answered with", called, row, observed or None, waits) if row else None
        return replace(verdict, words=as_words(field(error, "message"))) if verdict else None

    own = {name: row for name, row in _GRPC_ROWS.items() if status and name.startswith(status)}
    rows = own or ({status: row_of_status} if row_of_status else {**_GRPC_ROWS, **statuses()})
    return Cases("its status and reason", rows, decide, row_of_status or api.NO_CODE)


def _google_retry(error: Any) -> Verdict | None:
    """The verdict on an error that the client retried without success; each request may have had its effect."""
    cause = next(
        (exception for exception in (error.cause, *behind(error)) if isinstance(exception, BaseException)), None
    )
    entry = next((TABLE[name] for name in class_names(type(cause)) if name in TABLE), None)
    known = entry(cause) if entry and cause else None
    if known is None or known.fault.quadrant is Quadrant.TRANSIENT_INFRASTRUCTURAL:
        return _RETRIED.verdict(retry_after=known.fault.retry_after if known else None)
    return replace(known, proves=Proof.UNKNOWN)


_RETRIED = unknown(Code.TIMEOUT, "The Google client retried until its deadline, without success.")
_GOOGLE_CREDENTIALS = unsent(Code.UNAUTHORIZED, "The worker has no valid Google credentials: configure or renew them.")
_TOKEN_LATER = refused(Code.UNREACHABLE, "The token cannot be renewed at the moment.")
_TOKEN = refused(Code.UNAUTHORIZED, "The token cannot be renewed: check the Google credentials of the worker.")


def _by_retryable(error: Any) -> Verdict | None:
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
    **of_module(
        "google.api_core.exceptions",
        (Cases("the error that was retried", {**_GRPC_ROWS, **statuses()}, _google_retry, _RETRIED), "RetryError"),
        (api.CLIENT_BUG, "GoogleAPIError UnseekableStreamError"),
        (api.CLIENT_BUG_UNSENT, "DuplicateCredentialArgs AsyncRestUnsupportedParameterError"),
        (api.BROKEN, "ResumableTransferError UploadCancelledError"),
        (unknown(Code.TIMEOUT, "The upload became too slow."), "TransferStalledError"),
        (api.UNREADABLE, "MissingStatusHeaderError"),
    ),
    **of_module(
        "google.api_core",
        (api.CLIENT_BUG_UNSENT, "_feature_gating_helpers.FeatureGatingError iam.InvalidOperationException"),
        (api.CLIENT_BUG_UNSENT, "universe.EmptyUniverseError universe.UniverseMismatchError"),
        (api.NO_ANSWER, "future.polling._OperationNotComplete future.async_future._OperationNotComplete"),
    ),
    **of_module(
        "google.auth.exceptions",
        # The asyncio session raises the first three for the call itself, others only for the token.
        (api.BROKEN, "TransportError"),
        (api.NO_ANSWER, "TimeoutError"),
        (api.UNREADABLE, "ResponseError"),
        # After an answer 401 the token is renewed, so the call itself may have been sent and refused.
        (
            Cases("whether it says that a retry can help", {"a retry can": _TOKEN_LATER}, _by_retryable, _TOKEN),
            "RefreshError ReauthFailError ReauthSamlChallengeFailError OAuthError",
        ),
        (
            _GOOGLE_CREDENTIALS,
            "DefaultCredentialsError UserAccessTokenError MutualTLSChannelError ClientCertError MalformedError"
            " InvalidResource InvalidOperation InvalidValue InvalidType OSError",
        ),
        (unknown(Code.UNAUTHORIZED, "The Google credentials of the worker cannot be used."), "GoogleAuthError"),
    ),
    "google.auth.transport._mtls_helper._MemfdCreationError": _GOOGLE_CREDENTIALS,
    **of_module(
        "google.protobuf",
        (api.UNREADABLE, "message.DecodeError json_format.ParseError json_format.EnumStringValueParseError"),
        (api.UNREADABLE, "text_format.ParseError"),
        (api.CLIENT_BUG, "message.Error message.EncodeError message.FrozenInstanceError json_format.Error"),
        (api.CLIENT_BUG, "json_format.SerializeToJsonError text_format.Error runtime_version.VersionError"),
        (api.CLIENT_BUG, "descriptor.Error descriptor.TypeTransformationError descriptor_database.Error"),
        (api.CLIENT_BUG, "descriptor_database.DescriptorDatabaseConflictingDefinitionError"),
    ),
}


TABLE: Table = {**_GRPC_TABLE, **_GOOGLE_TABLE}
