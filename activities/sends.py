"""Counts what the function of a tool sends: a rejection of one request proves nothing about other requests.

A tool may have sent another request before the rejected one, with any client: its library may repeat a request by
itself, and the tool may write first and then read. So the requests of each call are counted where they are sent:

    http.client         urllib, requests, urllib3, botocore: the audit event of each head that is sent
    httpcore, httpcore2 httpx, httpx2: the trace of each pool
    aiohttp             each request that is written to a connection
    SQLAlchemy          each statement
    MCP servers         each call of a tool: calls share the connection, so its requests belong to no call

Anything else that may send something makes the count incomplete: a process that is started, a socket of an unknown
client, a request of no call (of a thread that the tool has started), and a library whose requests nobody can count.
"""

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, wraps
from types import FrameType
from typing import Any

_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"})
"""Methods whose requests change nothing (RFC 9110, section 9.2.1); CONNECT only opens a tunnel through a proxy."""
_HARMLESS_SQL = frozenset({"SELECT", "SHOW", "EXPLAIN", "SET", "SAVEPOINT", "RELEASE", "ROLLBACK"})
"""First words of statements that change nothing that another session can see."""
_HEAD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) \S+ HTTP/1\.[01]\r\n")
"""The first line of a request. A body that looks like a request is counted, too; a higher count never proves more."""

_UNCOUNTED = {
    "databases, whose connections stay open, so that no event tells of a statement": (
        "psycopg psycopg2 psycopg_pool asyncpg pymysql MySQLdb mysql mariadb aiomysql asyncmy sqlite3 aiosqlite duckdb"
        " pyodbc aioodbc oracledb cx_Oracle pymssql cassandra neo4j clickhouse_driver redis valkey coredis aioredis"
        " pymongo motor aerospike"
    ),
    "messages": "kafka confluent_kafka aiokafka pika aio_pika kombu celery nats zmq paho aiomqtt stomp",
    "other protocols, and clients that use no sockets of Python": (
        "grpc grpclib google pycurl curl_cffi paramiko asyncssh fabric smtplib aiosmtplib ftplib imaplib poplib"
        " telnetlib socket ctypes cffi websockets websocket h2 aioquic"
    ),
}
UNCOUNTED = frozenset(name for names in _UNCOUNTED.values() for name in names.split())
"""Top-level packages whose requests are not counted."""
_CONNECTORS = frozenset(
    {"http", "urllib3", "httpcore", "httpcore2", "anyio", "aiohttp", "aiohappyeyeballs", "sqlalchemy"}
)
"""Top-level packages that connect for requests that are counted."""
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn")
"""Python's audit events of processes that are started: what they send is not counted."""
_TELEMETRY = ("Otel", "sentry", "ddtrace", "datadog")
"""Beginnings of the names of threads that send telemetry of the process, which belongs to no call."""


@dataclass
class Sends:
    """What the function of one tool has sent since it was called."""

    all: int = 0
    """The number of counted requests and statements."""
    changes: int = 0
    """The number of counted requests and statements that may have changed something; a GET, for example, cannot."""
    is_uncounted: bool = False
    """Whether the function may have sent something else, which is not counted."""
    strays: int = 0
    """How many requests of this process had belonged to no call when the function was called."""
    on_process: Callable[[], None] = lambda: None
    """Called when the function starts a process, which may go on when this one is dead."""

    def add(self, changes: bool) -> None:
        """Count a request or a statement; `changes`: it may have changed something."""
        self.all += 1
        self.changes += 1 if changes else 0

    @property
    def is_complete(self) -> bool:
        """Whether the count includes everything that may have been sent, as far as this process can see."""
        process = _process()
        return not (self.is_uncounted or process.strays > self.strays or process.unwatched_libraries())


_SENDS: ContextVar[Sends | None] = ContextVar("replan_sends", default=None)


def start() -> None:
    """Begin to count in this process; what the current thread sends outside of calls does not count as a stray.

    Python's audit hook, and the hooks in libraries, stay until the process ends.
    """
    _process().exempt_thread()
    _process().watch_libraries()


@contextmanager
def counted(sends: Sends) -> Iterator[Sends]:
    """Count in `sends` what the code inside the `with` block sends, also its tasks and the threads of its context."""
    process = _process()
    process.watch_libraries()
    sends.strays = process.strays
    token = _SENDS.set(sends)
    try:
        yield sends
    finally:
        _SENDS.reset(token)


def add(*, changes: bool) -> None:
    """Count, for the current call, a request on a shared connection; `changes`: it may have changed something."""
    if (sends := _SENDS.get()) is not None:
        sends.add(changes)


def has_changed() -> bool:
    """Whether this call has sent something that may have changed something."""
    sends = _SENDS.get()
    return sends is not None and sends.changes > 0


def may_change(method: str) -> bool:
    """Whether a request with this HTTP method may change something."""
    return method not in _HARMLESS


def statement_may_change(statement: str) -> bool:
    """Whether an SQL statement may change something; a SELECT counts as harmless, like a GET."""
    first = statement.split(maxsplit=1)[:1]
    return not first or first[0].upper() not in _HARMLESS_SQL


class _Process:
    """Counts HTTP requests for the current call, or as strays if they have no call; and the SQL statements of calls."""

    def __init__(self) -> None:
        self.strays = 0
        self._exempt_threads = set[int]()
        self._watched, self._unknown = set[str](), set[str]()
        sys.addaudithook(_hook(self))

    def exempt_thread(self) -> None:
        """Exempt the current thread: its requests without a call are Replan's own or its program's, and no strays."""
        self._exempt_threads.add(threading.get_ident())

    def add(self, method: str) -> None:
        """Count a request for the current call; without a call, count a request that may change something as a stray.

        A request of another activity, of telemetry, or of an exempt thread (`exempt_thread`) is no stray.
        """
        if (sends := _SENDS.get()) is not None:
            sends.add(may_change(method))
        elif not (threading.get_ident() in self._exempt_threads or _is_in_activity() or _is_telemetry_thread()):
            self.strays += 1 if may_change(method) else 0

    def watch_libraries(self) -> None:
        for name in set(self.unwatched_libraries()) - self._unknown:
            try:
                _LIBRARIES[name](sys.modules[name], self)
            except AttributeError:  # a version without what we watch: while it is there, no count is complete
                self._unknown.add(name)
            else:
                self._watched.add(name)

    def unwatched_libraries(self) -> list[str]:
        """The libraries whose requests are not counted yet: they were imported after the last call had begun."""
        return [name for name in _LIBRARIES if name not in self._watched and _is_imported(name)]


@cache  # an audit hook cannot be removed
def _process() -> _Process:
    return _Process()


def _is_imported(name: str) -> bool:
    module = sys.modules.get(name)
    # While another thread imports it, it has no classes yet.
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def _is_in_activity() -> bool:
    """Whether the current code runs in an activity of Temporal, which a program need not have."""
    activity = sys.modules.get("temporalio.activity")
    return activity is not None and bool(activity.in_activity())


def _is_telemetry_thread() -> bool:
    return threading.current_thread().name.startswith(_TELEMETRY)


def _hook(process: _Process) -> Callable[[str, tuple[Any, ...]], None]:
    """Make the audit hook: Python calls the hook for many events, and the hook reacts to a few."""

    def on_http(args: tuple[Any, ...]) -> None:
        # The parts of a body are sent by the same function.
        if isinstance(args[1], bytes | bytearray) and (head := _HEAD.match(args[1])):
            process.add(head[1].decode())

    def on_connect(args: tuple[Any, ...]) -> None:
        if _SENDS.get() is not None and not _is_of_counted_client():
            on_uncounted(args)

    def on_uncounted(_args: tuple[Any, ...]) -> None:
        if (sends := _SENDS.get()) is not None:
            sends.is_uncounted = True

    def on_process(args: tuple[Any, ...]) -> None:
        if (sends := _SENDS.get()) is not None:
            sends.on_process()
        on_uncounted(args)

    def on_message(args: tuple[Any, ...]) -> None:
        if args[1] is not None:  # else it goes over a connection, whose requests are counted
            on_uncounted(args)

    find = {
        "http.client.send": on_http,
        "socket.connect": on_connect,
        "socket.sendmsg": on_message,
        "socket.sendto": on_uncounted,
        **dict.fromkeys(_PROCESSES, on_process),
    }.get

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if (react := find(event)) is not None:
            react(args)

    return hook


def _is_of_counted_client() -> bool:
    """Whether a function of a package in _CONNECTORS is on the current stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _CONNECTORS:
            return True
        frame = frame.f_back
    return False


def _watch_pools(module: Any, process: _Process) -> None:
    """Count the requests of httpcore's pools when the head of each is sent, since connecting may fail before."""

    def note(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            process.add(info["request"].method.decode())

    def trace(_pool: object, request: Any) -> None:
        then = request.extensions.get("trace")

        def traced(event: str, info: Mapping[str, Any]) -> None:
            if then is not None:  # first, since it may prevent the request
                then(event, info)
            note(event, info)

        request.extensions = {**request.extensions, "trace": traced}

    def trace_async(_pool: object, request: Any) -> None:
        then = request.extensions.get("trace")

        async def traced(event: str, info: Mapping[str, Any]) -> None:
            if then is not None:
                await then(event, info)
            note(event, info)

        request.extensions = {**request.extensions, "trace": traced}

    _call_before(module.ConnectionPool, "handle_request", trace)
    _call_before(module.AsyncConnectionPool, "handle_async_request", trace_async)


def _watch_aiohttp(module: Any, process: _Process) -> None:
    _call_before(module.ClientRequest, "send", lambda request, *_, **__: process.add(request.method))


def _watch_statements(module: Any, _process: _Process) -> None:
    """Count the SQL statements of calls; without a call, a statement is Replan's own."""

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if (sends := _SENDS.get()) is not None:
            sends.add(statement_may_change(statement))

    module.event.listen(module.engine.Engine, "before_cursor_execute", note)


def _call_before(owner: Any, name: str, before: Callable[..., None]) -> None:
    """Replace the method `name` of `owner` by one that first calls `before` with the same arguments."""
    method = getattr(owner, name)

    @wraps(method)
    def wrapped(*args: Any, **named: Any) -> Any:  # as the library, or a program, calls it
        before(*args, **named)
        return method(*args, **named)

    setattr(owner, name, wrapped)


_LIBRARIES: Mapping[str, Callable[[Any, _Process], None]] = {
    "httpcore": _watch_pools,
    "httpcore2": _watch_pools,
    "aiohttp": _watch_aiohttp,
    "sqlalchemy": _watch_statements,
}
"""The functions that begin to count a library's requests, by library, where Python itself has no audit event."""
