"""What a user expects of the exceptions that tools meet most: a code, and what it proves, one row for each.

Each exception is raised by its library where that is cheap, and else made as the library's source makes it.
"""

import asyncio
import email.message
import http.client
import importlib
import inspect
import json
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from activities.borders import judge
from activities.borders.table import Proof
from runtime.dev_server import free_port
from workflows.faults.fault import Code

pytestmark = pytest.mark.full

PROMISED, NOT_SENT, REFUSED, UNKNOWN = Proof
NOWHERE = "name.invalid"
TEXT = "what the library says"


@dataclass(frozen=True)
class Expected:
    """A row: what a library raises, and what it is taken for."""

    libraries: str
    """The modules that `make` gets; the row is skipped where one of them is missing."""
    what: str
    make: Callable[..., Any]
    """Raises the exception, or returns it; it may be a coroutine function."""
    code: Code
    proves: Proof

    def __str__(self) -> str:
        return f"{self.libraries.split()[0]}: {self.what}"


def raised(make: Callable[..., Any], *modules: Any) -> BaseException:
    """The exception that `make` raises or returns."""
    try:
        made = make(*modules)
        found = asyncio.run(made) if inspect.iscoroutine(made) else made
    except Exception as error:
        return error
    assert isinstance(found, BaseException)
    return found


def rows(libraries: str, *found: tuple[str, Callable[..., Any], Code, Proof]) -> list[Expected]:
    return [Expected(libraries, *row) for row in found]


def refused_url() -> str:
    return f"http://127.0.0.1:{free_port()}/"


def from_(error: BaseException, cause: BaseException) -> BaseException:
    """The exception as `raise error from cause` leaves it."""
    error.__cause__ = cause
    return error


# --- HTTP -------------------------------------------------------------------------------------------------------------


def requests_over(name: str, inner: Callable[[Any], BaseException]) -> Callable[[Any, Any], Any]:
    """An exception of requests over one of urllib3, as `requests.adapters` makes it."""

    def make(requests: Any, urllib3: Any) -> Any:
        request = requests.Request("POST", "http://localhost/").prepare()
        return getattr(requests.exceptions, name)(inner(urllib3.exceptions), request=request)

    return make


def max_retries(reason: Callable[[Any], BaseException]) -> Callable[[Any], BaseException]:
    return lambda urllib3: urllib3.MaxRetryError(None, "/", reason(urllib3))


def requests_status(status: int) -> Callable[[Any, Any], None]:
    def make(requests: Any, _urllib3: Any) -> None:
        response = requests.Response()
        response.status_code, response.url = status, "http://localhost/"
        response.request = requests.Request("POST", response.url).prepare()
        response.raise_for_status()

    return make


def requests_json(requests: Any, _urllib3: Any) -> None:
    response = requests.Response()
    response._content = b"<html>"
    response.json()


STATUSES = {
    401: (Code.UNAUTHORIZED, REFUSED),
    404: (Code.NOT_FOUND, REFUSED),
    409: (Code.CONFLICT, REFUSED),
    429: (Code.RATE_LIMITED, REFUSED),
    500: (Code.SERVER_ERROR, UNKNOWN),
    503: (Code.SERVER_ERROR, UNKNOWN),
}


def by_status(libraries: str, make: Callable[[int], Callable[..., Any]]) -> list[Expected]:
    return rows(libraries, *((f"status {status}", make(status), *expected) for status, expected in STATUSES.items()))


REQUESTS = [
    *rows(
        "requests urllib3",
        (
            "ConnectionError, refused",
            lambda requests, _: requests.post(refused_url(), timeout=5),
            Code.UNREACHABLE,
            NOT_SENT,
        ),
        (
            "ConnectionError, no such name",
            lambda requests, _: requests.post(f"http://{NOWHERE}/", timeout=5),
            Code.UNREACHABLE,
            NOT_SENT,
        ),
        (
            "ConnectionError, closed",
            requests_over(
                "ConnectionError",
                lambda urllib3: urllib3.ProtocolError("Connection aborted.", http.client.RemoteDisconnected(TEXT)),
            ),
            Code.UNREACHABLE,
            UNKNOWN,
        ),
        (
            "ConnectTimeout",
            requests_over("ConnectTimeout", max_retries(lambda urllib3: urllib3.ConnectTimeoutError(None, TEXT))),
            Code.UNREACHABLE,
            NOT_SENT,
        ),
        (
            "ReadTimeout",
            requests_over("ReadTimeout", lambda urllib3: urllib3.ReadTimeoutError(None, "/", TEXT)),
            Code.TIMEOUT,
            UNKNOWN,
        ),
        (
            "ChunkedEncodingError",
            requests_over(
                "ChunkedEncodingError",
                lambda urllib3: urllib3.ProtocolError(TEXT, urllib3.IncompleteRead(2, 3)),
            ),
            Code.UNREACHABLE,
            UNKNOWN,
        ),
        (
            "SSLError",
            requests_over("SSLError", max_retries(lambda urllib3: urllib3.SSLError(ssl.SSLEOFError(8, TEXT)))),
            Code.UNREACHABLE,
            NOT_SENT,
        ),
        (
            "SSLError, certificate",
            requests_over(
                "SSLError", max_retries(lambda urllib3: urllib3.SSLError(ssl.SSLCertVerificationError(1, TEXT)))
            ),
            Code.NEEDS_PERSON,
            NOT_SENT,
        ),
        ("JSONDecodeError", requests_json, Code.UNEXPECTED_RESULT, UNKNOWN),
    ),
    *by_status("requests urllib3", requests_status),
]


def httpx_status(status: int) -> Callable[[Any], None]:
    return lambda httpx: httpx.Response(status, request=httpx.Request("POST", "http://localhost/")).raise_for_status()


def httpx_rows(library: str) -> list[Expected]:
    return [
        *rows(
            library,
            (
                "ConnectError, refused",
                lambda httpx: httpx.post(refused_url(), trust_env=False),
                Code.UNREACHABLE,
                NOT_SENT,
            ),
            (
                "ConnectError, no such name",
                lambda httpx: httpx.post(f"http://{NOWHERE}/", trust_env=False),
                Code.UNREACHABLE,
                NOT_SENT,
            ),
            ("ReadTimeout", lambda httpx: httpx.ReadTimeout(TEXT), Code.TIMEOUT, UNKNOWN),
            ("ReadError", lambda httpx: httpx.ReadError(TEXT), Code.UNREACHABLE, UNKNOWN),
        ),
        *by_status(library, httpx_status),
    ]


async def aiohttp_refused(aiohttp: Any) -> None:
    async with aiohttp.ClientSession() as session:
        await session.post(refused_url())


def aiohttp_dns(aiohttp: Any) -> BaseException:
    key = importlib.import_module("aiohttp.client_reqrep").ConnectionKey(NOWHERE, 80, False, True, None, None, None)
    failed = socket.gaierror(socket.EAI_NONAME, TEXT)
    return from_(aiohttp.ClientConnectorDNSError(key, failed), failed)


def aiohttp_status(status: int) -> Callable[[Any], Any]:
    def make(aiohttp: Any) -> Any:
        url = importlib.import_module("yarl").URL("http://localhost/")
        info = aiohttp.RequestInfo(url, "POST", {}, url)
        return aiohttp.ClientResponseError(info, (), status=status, message=TEXT, headers={})

    return make


AIOHTTP = [
    *rows(
        "aiohttp",
        ("ClientConnectorError", aiohttp_refused, Code.UNREACHABLE, NOT_SENT),
        ("ClientConnectorDNSError", aiohttp_dns, Code.UNREACHABLE, NOT_SENT),
        (
            "ConnectionTimeoutError",
            lambda aiohttp: from_(aiohttp.ConnectionTimeoutError(TEXT), TimeoutError()),
            Code.UNREACHABLE,
            NOT_SENT,
        ),
        ("ServerDisconnectedError", lambda aiohttp: aiohttp.ServerDisconnectedError(), Code.UNREACHABLE, UNKNOWN),
        ("ClientPayloadError", lambda aiohttp: aiohttp.ClientPayloadError(TEXT), Code.UNREACHABLE, UNKNOWN),
        ("ClientOSError", lambda aiohttp: aiohttp.ClientOSError(104, TEXT), Code.UNREACHABLE, UNKNOWN),
        ("ServerTimeoutError", lambda aiohttp: aiohttp.SocketTimeoutError(TEXT), Code.TIMEOUT, UNKNOWN),
    ),
    *by_status("aiohttp", aiohttp_status),
]


def urllib_status(status: int) -> Callable[[], Any]:
    return lambda: urllib.error.HTTPError("http://localhost/", status, TEXT, email.message.Message(), None)


def urllib_post(url: str) -> None:
    urllib.request.urlopen(url, b"", timeout=5)  # noqa: S310  # http


def no_certificate() -> ssl.SSLCertVerificationError:
    return ssl.SSLCertVerificationError(1, TEXT)


STANDARD = [
    *by_status("urllib.request", lambda status: lambda _: urllib_status(status)()),
    *rows(
        "urllib.request",
        ("URLError, refused", lambda _: urllib_post(refused_url()), Code.UNREACHABLE, NOT_SENT),
        (
            "URLError, no such name",
            lambda _: urllib_post(f"http://{NOWHERE}/"),
            Code.UNREACHABLE,
            NOT_SENT,
        ),
    ),
    *rows(
        "http.client",
        ("IncompleteRead", lambda client: client.IncompleteRead(b"", 5), Code.UNREACHABLE, UNKNOWN),
        ("RemoteDisconnected", lambda client: client.RemoteDisconnected(TEXT), Code.UNREACHABLE, UNKNOWN),
    ),
    *rows(
        "ssl",
        # Without a traceback, it is taken for one of the handshake. One that broke a connection in use proves nothing.
        ("SSLError", lambda ssl: ssl.SSLError(1, TEXT), Code.UNREACHABLE, NOT_SENT),
        ("SSLCertVerificationError", lambda _: no_certificate(), Code.NEEDS_PERSON, NOT_SENT),
    ),
    *rows(
        "subprocess",
        (
            "TimeoutExpired",
            lambda _: subprocess.run([sys.executable, "-c", "input()"], timeout=0.01, stdin=subprocess.PIPE),
            Code.TIMEOUT,
            UNKNOWN,
        ),
    ),
    *rows(
        "builtins",
        # What is missing stays missing, so no retry; and what was done is found out before a new plan.
        (
            "ExceptionGroup, unknown and refused",
            lambda _: ExceptionGroup(TEXT, [urllib_status(404)(), urllib_status(503)()]),
            Code.NOT_FOUND,
            UNKNOWN,
        ),
        (
            "ExceptionGroup, a person before a plan",
            lambda _: ExceptionGroup(TEXT, [urllib_status(404)(), urllib_status(401)()]),
            Code.UNAUTHORIZED,
            REFUSED,
        ),
        (
            "ExceptionGroup, a plan before a retry",
            lambda _: ExceptionGroup(TEXT, [urllib_status(429)(), urllib_status(409)()]),
            Code.CONFLICT,
            REFUSED,
        ),
        (
            "ExceptionGroup, refused and not sent",
            lambda _: ExceptionGroup(TEXT, [ConnectionRefusedError(), urllib_status(429)()]),
            Code.UNREACHABLE,
            REFUSED,
        ),
        (
            "ExceptionGroup in a group",
            lambda _: ExceptionGroup(TEXT, [urllib_status(429)(), ExceptionGroup(TEXT, [no_certificate()])]),
            Code.NEEDS_PERSON,
            REFUSED,
        ),
    ),
]


# --- Databases --------------------------------------------------------------------------------------------------------

CLOSED = "server closed the connection unexpectedly\n\tThis probably means the server terminated abnormally"
SQLSTATES = {
    "SerializationFailure": ("40001", Code.BUSY, REFUSED),
    "DeadlockDetected": ("40P01", Code.BUSY, REFUSED),
    "UniqueViolation": ("23505", Code.CONFLICT, REFUSED),
    "QueryCanceled": ("57014", Code.TIMEOUT, REFUSED),
    "AdminShutdown": ("57P01", Code.UNREACHABLE, UNKNOWN),
}


def by_sqlstate(libraries: str, make: Callable[[str], Callable[..., Any]]) -> list[Expected]:
    return rows(
        libraries,
        *((name, make(state), code, proves) for name, (state, code, proves) in SQLSTATES.items()),
    )


def psycopg_error(state: str) -> Callable[..., Any]:
    return lambda psycopg, *_: psycopg.errors.lookup(state)(TEXT)


def psycopg2_error(state: str) -> Callable[..., Any]:
    return lambda psycopg2, *_: importlib.import_module("psycopg2.errors").lookup(state)(TEXT)


def asyncpg_error(state: str) -> Callable[..., Any]:
    return lambda asyncpg, *_: asyncpg.PostgresError.new({"S": "ERROR", "C": state, "M": TEXT})


PSYCOPG = [
    *by_sqlstate("psycopg", psycopg_error),
    *rows(
        "psycopg",
        (
            "OperationalError, server closed",
            lambda psycopg: psycopg.OperationalError(f"consuming input failed: {CLOSED}"),
            Code.UNREACHABLE,
            UNKNOWN,
        ),
        (
            "OperationalError, refused",
            lambda psycopg: psycopg.connect(host="127.0.0.1", port=free_port()),
            Code.UNREACHABLE,
            NOT_SENT,
        ),
        (
            "ConnectionTimeout",
            lambda psycopg: psycopg.errors.ConnectionTimeout("connection timeout expired"),
            Code.UNREACHABLE,
            NOT_SENT,
        ),
    ),
    *by_sqlstate("psycopg2", psycopg2_error),
    *rows(
        "psycopg2",
        (
            "OperationalError, server closed",
            lambda psycopg2: psycopg2.OperationalError(CLOSED),
            Code.UNREACHABLE,
            UNKNOWN,
        ),
        (
            "OperationalError, refused",
            lambda psycopg2: psycopg2.connect(host="127.0.0.1", port=free_port()),
            Code.UNREACHABLE,
            NOT_SENT,
        ),
        (  # psycopg2 has no class of its own for it
            "OperationalError, connection timeout",
            lambda psycopg2: psycopg2.OperationalError(
                'connection to server at "192.0.2.1", port 5432 failed: timeout expired\n'
            ),
            Code.UNREACHABLE,
            NOT_SENT,
        ),
    ),
    *rows(
        "psycopg_pool",
        (
            "PoolTimeout",
            lambda pool: pool.PoolTimeout("couldn't get a connection after 30.00 sec"),
            Code.BUSY,
            NOT_SENT,
        ),
    ),
]

ASYNCPG = [
    *by_sqlstate("asyncpg", asyncpg_error),
    *rows(
        "asyncpg",
        (
            "ConnectionDoesNotExistError",
            lambda asyncpg: asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
            Code.UNREACHABLE,
            UNKNOWN,
        ),
        (
            "InterfaceError, closed",
            lambda asyncpg: asyncpg.InterfaceError("connection is closed"),
            Code.UNREACHABLE,
            UNKNOWN,
        ),
        ("CannotConnectNowError", asyncpg_error("57P03"), Code.UNREACHABLE, NOT_SENT),
        ("TooManyConnectionsError", asyncpg_error("53300"), Code.BUSY, NOT_SENT),
    ),
]


def wrapped(driver: str, make: Callable[..., BaseException], sqlalchemy: Any, statement: str) -> Any:
    """SQLAlchemy's exception over a driver's, as a connection makes it."""
    dbapi = importlib.import_module(driver)
    inner = make(dbapi)
    dialect = importlib.import_module("sqlalchemy.engine").make_url(f"{WRAPPED[driver]}://").get_dialect()
    adapted: Any = dialect.import_dbapi()
    if driver == "asyncpg":
        known = adapted._asyncpg_error_translate
        outer = next(known[parent] for parent in type(inner).__mro__ if parent in known)
        inner = from_(outer(str(inner), inner), inner)
    return sqlalchemy.exc.DBAPIError.instance(statement, (), inner, adapted.Error, dialect=dialect())


WRAPPED = {"psycopg": "postgresql+psycopg", "psycopg2": "postgresql", "asyncpg": "postgresql+asyncpg"} | {
    "pymysql": "mysql+pymysql"
}
"""The drivers, and how SQLAlchemy's URLs for them begin."""


def over(driver: str, make: Callable[..., BaseException]) -> Callable[..., Any]:
    return lambda sqlalchemy, *_: wrapped(driver, make, sqlalchemy, "UPDATE seats SET name = 'ann'")


def lost(dbapi: Any) -> Any:
    return dbapi.OperationalError(CLOSED)


def not_connected(dbapi: Any) -> BaseException:
    return raised(lambda: dbapi.connect(host="127.0.0.1", port=free_port()))


def mysql_error(number: int) -> Callable[..., Any]:
    """An exception of PyMySQL, by the parser of the server's error packets."""

    def make(pymysql: Any) -> None:
        packet = b"\xff" + number.to_bytes(2, "little") + b"#HY000" + TEXT.encode()
        importlib.import_module("pymysql.err").raise_mysql_exception(packet)

    return make


def mysql_lost(pymysql: Any) -> Any:
    return pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")


MYSQL = {
    "deadlock": (lambda pymysql: raised(mysql_error(1213), pymysql), Code.BUSY, REFUSED),
    # The server rejects the login, so no statement was sent.
    "access denied": (lambda pymysql: raised(mysql_error(1045), pymysql), Code.UNAUTHORIZED, NOT_SENT),
    "lost connection": (mysql_lost, Code.UNREACHABLE, UNKNOWN),
    "duplicate": (lambda pymysql: raised(mysql_error(1062), pymysql), Code.CONFLICT, REFUSED),
}

SQL = [
    *PSYCOPG,
    *ASYNCPG,
    *rows(
        "sqlalchemy psycopg psycopg2",
        *(
            (f"{driver}, server closed", over(driver, lost), Code.UNREACHABLE, UNKNOWN)
            for driver in ("psycopg", "psycopg2")
        ),
        *(
            (f"{driver}, refused", over(driver, not_connected), Code.UNREACHABLE, NOT_SENT)
            for driver in ("psycopg", "psycopg2")
        ),
    ),
    *rows("pymysql", *((name, *row) for name, row in MYSQL.items())),
    *rows("sqlalchemy pymysql", *((f"PyMySQL, {n}", over("pymysql", m), c, p) for n, (m, c, p) in MYSQL.items())),
    *by_sqlstate("sqlalchemy psycopg", lambda state: over("psycopg", psycopg_error(state))),
    *by_sqlstate("sqlalchemy psycopg2", lambda state: over("psycopg2", psycopg2_error(state))),
    *by_sqlstate("sqlalchemy asyncpg", lambda state: over("asyncpg", asyncpg_error(state))),
]


# --- Clouds and services ----------------------------------------------------------------------------------------------


def aws_error(code: str, status: int = 400) -> Callable[[Any], Any]:
    answer = {
        "Error": {"Code": code, "Message": TEXT},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0},
    }
    return lambda aws: aws.ClientError(answer, "PutItem")


AWS = rows(
    "botocore.exceptions",
    ("ThrottlingException", aws_error("ThrottlingException"), Code.RATE_LIMITED, REFUSED),
    ("SlowDown", aws_error("SlowDown", 503), Code.OVERLOADED, REFUSED),
    ("NoSuchKey", aws_error("NoSuchKey", 404), Code.NOT_FOUND, REFUSED),
    ("AccessDenied", aws_error("AccessDenied", 403), Code.FORBIDDEN, REFUSED),
    (
        "ConditionalCheckFailedException",
        aws_error("ConditionalCheckFailedException"),
        Code.PRECONDITION_FAILED,
        REFUSED,
    ),
    ("InternalError", aws_error("InternalError", 500), Code.SERVER_ERROR, UNKNOWN),
    (
        "EndpointConnectionError",
        lambda aws: aws.EndpointConnectionError(endpoint_url="http://localhost/", error=TEXT),
        Code.UNREACHABLE,
        NOT_SENT,
    ),
    (
        "ConnectTimeoutError",
        lambda aws: aws.ConnectTimeoutError(endpoint_url="http://localhost/", error=TEXT),
        Code.UNREACHABLE,
        NOT_SENT,
    ),
    (
        "ReadTimeoutError",
        lambda aws: aws.ReadTimeoutError(endpoint_url="http://localhost/", error=TEXT),
        Code.TIMEOUT,
        UNKNOWN,
    ),
    ("NoCredentialsError", lambda aws: aws.NoCredentialsError(), Code.UNAUTHORIZED, NOT_SENT),
)


def redis_refused(redis: Any) -> None:
    redis.Redis(port=free_port(), retry=None).set("a", "b")


REDIS = rows(
    "redis",
    ("ConnectionError", lambda redis: redis.ConnectionError("Connection closed by server."), Code.UNREACHABLE, UNKNOWN),
    # The class alone proves nothing, but where it was raised does: the pool had no connection to send on.
    ("ConnectionError, refused", redis_refused, Code.UNREACHABLE, NOT_SENT),
    ("TimeoutError", lambda redis: redis.TimeoutError("Timeout reading from socket"), Code.TIMEOUT, UNKNOWN),
    # Not raised by a command, they may be of a pipeline.
    ("BusyLoadingError", lambda redis: redis.BusyLoadingError(TEXT), Code.BUSY, UNKNOWN),
    ("ReadOnlyError", lambda redis: redis.ReadOnlyError(TEXT), Code.UNREACHABLE, UNKNOWN),
    ("AuthenticationError", lambda redis: redis.AuthenticationError(TEXT), Code.UNAUTHORIZED, UNKNOWN),
    ("WatchError", lambda redis: redis.WatchError("Watched variable changed."), Code.BUSY, REFUSED),
)

GRPC_STATUSES = {
    "UNAVAILABLE": (Code.UNREACHABLE, UNKNOWN),
    "DEADLINE_EXCEEDED": (Code.TIMEOUT, UNKNOWN),
    "NOT_FOUND": (Code.NOT_FOUND, REFUSED),
    "RESOURCE_EXHAUSTED": (Code.RATE_LIMITED, UNKNOWN),
    "ALREADY_EXISTS": (Code.CONFLICT, REFUSED),
}


def grpc_error(status: str) -> Callable[[Any], Any]:
    def make(grpc: Any) -> Any:
        channel = importlib.import_module("grpc._channel")
        state = channel._RPCState((), (), (), getattr(grpc.StatusCode, status), TEXT)
        return channel._InactiveRpcError(state)

    return make


def grpc_aio_error(status: str) -> Callable[[Any], Any]:
    def make(aio: Any) -> Any:
        code = getattr(importlib.import_module("grpc").StatusCode, status)
        return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), details=TEXT)

    return make


GRPC = [
    *rows("grpc", *((status, grpc_error(status), *row) for status, row in GRPC_STATUSES.items())),
    *rows("grpc.aio", *((status, grpc_aio_error(status), *row) for status, row in GRPC_STATUSES.items())),
]

GOOGLE = rows(
    "google.api_core.exceptions grpc",
    (
        "Aborted",
        lambda google, grpc: google.from_grpc_status(grpc.StatusCode.ABORTED, TEXT),
        Code.BUSY,
        REFUSED,
    ),
    ("TooManyRequests", lambda google, _: google.from_http_status(429, TEXT), Code.RATE_LIMITED, REFUSED),
    ("Forbidden", lambda google, _: google.from_http_status(403, TEXT), Code.FORBIDDEN, REFUSED),
    (
        "RetryError",
        lambda google, _: google.RetryError(TEXT, cause=google.from_http_status(503, TEXT)),
        Code.TIMEOUT,
        UNKNOWN,
    ),
)


def stripe_error(status: int, **error: str) -> Callable[[Any], Any]:
    """What the client raises for an answer."""

    def make(stripe: Any) -> None:
        body = {"error": {"message": TEXT, **error}}
        requestor = importlib.import_module("stripe._api_requestor")._APIRequestor()
        requestor.handle_error_response(json.dumps(body), status, body, {}, "V1")

    return make


STRIPE = rows(
    "stripe",
    ("APIConnectionError", lambda stripe: stripe.APIConnectionError(TEXT), Code.UNREACHABLE, UNKNOWN),
    ("RateLimitError", stripe_error(429), Code.RATE_LIMITED, REFUSED),
    ("APIError", stripe_error(500, type="api_error"), Code.SERVER_ERROR, UNKNOWN),
    ("CardError", stripe_error(402, type="card_error", code="card_declined"), Code.REFUSED, REFUSED),
    ("InvalidRequestError", stripe_error(400, type="invalid_request_error"), Code.INVALID_INPUT, REFUSED),
    ("AuthenticationError", stripe_error(401), Code.UNAUTHORIZED, REFUSED),
    ("IdempotencyError", stripe_error(400, type="idempotency_error"), Code.CONFLICT, REFUSED),
)

EXPECTED = [
    *REQUESTS,
    *httpx_rows("httpx"),
    *httpx_rows("httpx2"),
    *AIOHTTP,
    *STANDARD,
    *SQL,
    *AWS,
    *REDIS,
    *GRPC,
    *GOOGLE,
    *STRIPE,
]


@pytest.mark.filterwarnings("ignore::ImportWarning")  # google wants a package that is not needed
@pytest.mark.parametrize("row", EXPECTED, ids=str)
def test_an_exception_is_taken_for_what_a_user_expects(row: Expected) -> None:
    """The fault leads to the reaction that its user wants, and never repeats an effect that may be there."""
    modules = [pytest.importorskip(name) for name in row.libraries.split()]
    verdict = judge(raised(row.make, *modules))

    assert (verdict.fault.code, verdict.proves) == (row.code, row.proves), verdict
