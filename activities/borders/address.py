"""Which host and port a client tried to reach, when a call failed because nothing answered there.

Only data of the libraries is read, never the text of an exception: fields of the exception, and the variables of the
functions that were connecting. A URL may hold a password, so only its host and port are used.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from activities.borders.table import attribute, carried, frames
from workflows.text import stream_safe

_CONNECT = (
    *("socket", "asyncio", "anyio", "http", "httpcore", "httpcore2", "urllib3", "aiohttp", "websockets"),
    *("smtplib", "ftplib", "imaplib", "poplib", "redis", "valkey", "kafka", "aiokafka"),
    *("sqlalchemy", "psycopg", "psycopg2", "asyncpg", "pymysql", "aiomysql", "oracledb"),
)
"""The packages whose functions connect, so that their variables name where to."""
_PORTS: Mapping[str, int] = {
    "http": 80,
    "https": 443,
    "ws": 80,
    "wss": 443,
    "postgresql": 5432,
    "mysql": 3306,
    "mariadb": 3306,
    "oracle": 1521,
    "mssql": 1433,
    "redis": 6379,
    "rediss": 6379,
}
"""The usual port, by the scheme of a URL."""
_PAIRS = (("host", "port"), ("remote_host", "remote_port"), ("_host", "_port"))
_OWNERS = ("self", "conn", "connection", "pool", "h")
_TUPLES = ("address", "addr", "sa")
_URLS = ("dsn", "conninfo")
_MAPPINGS = ("cparams", "attempt", "params", "kwargs")


def address_of(error: BaseException) -> str:
    """The address that a client could not reach, such as `pay.example:443` or `[::1]:80`; empty if nothing tells it."""
    try:
        chain = [error, *carried(error)]
        found = (address for read in (_of_frames, _of_fields) for exception in chain for address in read(exception))
        return next(found, "")
    except Exception:  # a variable may hold anybody's object, which may raise when it is asked
        return ""


def written(host: object, port: object) -> str:
    """A host and a port as an address; empty if one of them is none."""
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    number = int(port) if isinstance(port, str) and re.fullmatch("[0-9]{1,5}", port) else port
    # A server may redirect to a host whose name is a sentence.
    is_host = isinstance(name, str) and re.fullmatch(r"[\w.:-]{1,253}", name, re.ASCII)
    if not is_host or isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 65536:
        return ""
    return f"[{name}]:{number}" if ":" in str(name) else f"{name}:{number}"


def of_url(url: object) -> str:
    """The address in a URL, as a text or as an object of a library; empty if it has none."""
    try:
        parts = urlsplit(stream_safe(url)) if isinstance(url, str) else url
        scheme = next(_texts(parts, "scheme", "drivername"), "").partition("+")[0]
        port = parts.port if isinstance(parts, SplitResult) else attribute(parts, "port")
        hosts = _texts(parts, "hostname", "host")
        return written(next(hosts, None), _PORTS.get(scheme) if port is None else port)
    except ValueError:
        return ""


def _texts(thing: object, *names: str) -> Iterator[str]:
    """Yield those attributes of `thing` that are texts; a client of MongoDB has any attribute, which is no text."""
    for name in names:
        value = attribute(thing, name)
        if isinstance(value, str | bytes):
            yield value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _of_frames(error: BaseException) -> Iterator[str]:
    """Yield the addresses in the variables of the functions through which an exception came, outermost first."""
    for _, frame in frames(error, *_CONNECT):
        local = frame.f_locals
        owners = [local.get(name) for name in _OWNERS]
        found = [
            *(written(local.get(host), local.get(port)) for host, port in _PAIRS),
            *(of_url(local.get(name)) for name in _URLS),
            *(written(*value[:2]) for value in map(local.get, _TUPLES) if isinstance(value, tuple) and len(value) > 1),
            *(
                written(value.get("host"), value.get("port"))
                for name in _MAPPINGS
                if (value := _mapping(local.get(name)))
            ),
            *(written(attribute(owner, host), attribute(owner, port)) for owner in owners for host, port in _PAIRS),
            *(of_url(attribute(owner, *path)) for owner in owners for path in (("url",), ("engine", "url"))),
        ]
        yield from filter(None, found)


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _of_fields(error: BaseException) -> Iterator[str]:
    """Yield the addresses in the fields of an exception."""
    found = [
        of_url(attribute(error, "request", "url")),
        of_url(attribute(error, "request_info", "url")),
        of_url(_mapping(attribute(error, "kwargs")).get("endpoint_url")),  # of botocore
        *(written(attribute(error, *path, "host"), attribute(error, *path, "port")) for path in ((), ("pool",))),
    ]
    yield from filter(None, found)
