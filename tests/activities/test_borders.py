"""The borders: every foreign class has a row, every row makes a sentence, what nobody knows is a bug."""

import builtins
import errno
import json
import pkgutil
import socket
import sqlite3
import ssl
from collections.abc import Iterator
from typing import Any

import httpcore2
import httpx2
import pydantic
import pytest
import sqlalchemy.ext.asyncio.exc
import sqlalchemy.orm.exc
from pydantic_core import PydanticSerializationError
from sqlalchemy import exc

from activities.borders import classify, table_of
from activities.borders.table import qualified
from replan import Busy, NeedsPerson, Refused, Unreachable
from workflows.faults.fault import Code, Quadrant

HIDDEN = "sk-secret"

OS_ERRORS = {one for one in vars(builtins).values() if isinstance(one, type) and issubclass(one, OSError)} - {OSError}

EXPORTED_BY_HTTPCORE = [one for one in vars(httpcore2).values() if isinstance(one, type) and issubclass(one, Exception)]

OURS = ("httpx2", "httpcore2", "sqlalchemy", "sqlite3", "pydantic_core", "builtins", "socket", "json", "activities")
"""The packages of the tables whose libraries Replan itself uses, so that their exceptions can be made here."""
ROWS = [
    name
    for package in OURS
    for name in table_of(package)
    if name.partition(".")[0] == package and not name.startswith("httpx2.websockets.")  # needs a package that we lack
]


def descendants(raised: type[BaseException]) -> Iterator[type[BaseException]]:
    """All classes below one that are loaded now."""
    for child in raised.__subclasses__():
        yield child
        yield from descendants(child)


def below(package: str) -> list[type[BaseException]]:
    """The exceptions of a package that a caller can meet: no warnings, nothing private."""
    found = {
        one
        for one in descendants(Exception)
        if one.__module__.partition(".")[0] == package
        and not issubclass(one, Warning)
        and not one.__name__.startswith("_")
    }
    return sorted(found, key=lambda one: one.__name__)


def covering(raised: type[BaseException], package: str) -> str | None:
    """The row that an exception of this class ends in, among its own library's classes."""
    parents = [qualified(one) for one in raised.__mro__ if one.__module__.partition(".")[0] == package]
    return next((one for one in parents if one in table_of(package)), None)


def made(raised: type[Any]) -> BaseException:
    """An exception of this class whose every word is a secret."""
    if raised is httpx2.HTTPStatusError:
        request = httpx2.Request("GET", f"http://shop.example/{HIDDEN}")
        response = httpx2.Response(404, text=HIDDEN, request=request)
        return httpx2.HTTPStatusError(HIDDEN, request=request, response=response)
    if raised is pydantic.ValidationError:
        with pytest.raises(pydantic.ValidationError) as wrong:
            pydantic.TypeAdapter(int).validate_python(HIDDEN)
        return wrong.value
    if issubclass(raised, exc.DBAPIError):
        return raised(f"SELECT '{HIDDEN}'", {"key": HIDDEN}, Exception(HIDDEN))
    if raised is json.JSONDecodeError:
        return json.JSONDecodeError(HIDDEN, HIDDEN, 0)
    error: BaseException = raised(HIDDEN)
    return error


@pytest.mark.parametrize("raised", below("httpx2"), ids=lambda one: one.__name__)
def test_every_exception_of_httpx2_has_a_row(raised: type[BaseException]) -> None:
    """A class that a new version brings fails here until somebody says what it means."""
    assert covering(raised, "httpx2") is not None


@pytest.mark.parametrize("raised", EXPORTED_BY_HTTPCORE, ids=lambda one: one.__name__)
def test_every_exception_of_httpcore2_has_a_row(raised: type[BaseException]) -> None:
    """The library below it, whose exceptions reach a tool that goes without `httpx2`."""
    assert covering(raised, "httpcore2") is not None


def test_httpx2_is_enumerated_whole() -> None:
    """The enumeration sees every exception that the package exports; its websockets need packages that we lack."""
    exported = {one for one in vars(httpx2).values() if isinstance(one, type) and issubclass(one, Exception)}

    assert exported <= set(below("httpx2"))
    assert "websockets" in {module.name for module in pkgutil.iter_modules(httpx2.__path__)}


@pytest.mark.parametrize("raised", below("sqlalchemy"), ids=lambda one: one.__name__)
def test_every_exception_of_sqlalchemy_has_a_row(raised: type[BaseException]) -> None:
    """The ORM's and asyncio's classes too; the protocols of `engine.interfaces` and `util.queue` are never raised."""
    inner = raised.__module__ in ("sqlalchemy.engine.interfaces", "sqlalchemy.util.queue")

    assert inner or covering(raised, "sqlalchemy") is not None


@pytest.mark.parametrize(
    "raised", [one for one in vars(sqlite3).values() if isinstance(one, type) and issubclass(one, Exception)]
)
def test_every_exception_of_sqlite3_has_a_row(raised: type[BaseException]) -> None:
    """Also a tool that uses the standard library's SQLite."""
    assert covering(raised, "sqlite3") is not None


@pytest.mark.parametrize("raised", sorted(OS_ERRORS, key=repr))
def test_every_builtin_os_error_has_a_row_of_its_own(raised: type[BaseException]) -> None:
    """`OSError` itself is the answer to numbers that nobody named, so it covers no child."""
    row = covering(raised, "builtins")

    assert row not in (None, "builtins.OSError")


@pytest.mark.parametrize("name", ROWS)
def test_every_row_makes_a_sentence_without_foreign_words(name: str) -> None:
    """A reason is one instructive sentence of ours, whatever the foreign message carries."""
    fault = classify(made(pkgutil.resolve_name(name)))

    assert len(fault.reason) > 10 and fault.reason.endswith(".") and fault.reason.count("\n") == 0
    assert HIDDEN not in fault.model_dump_json()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx2.ReadError("x"), Code.UNREACHABLE),
        (httpx2.WriteTimeout("x"), Code.TIMEOUT),
        (httpx2.ConnectTimeout("x"), Code.UNREACHABLE),
        (httpx2.StreamConsumed(), Code.BUG),
        (exc.NoResultFound("x"), Code.NOT_FOUND),
        (exc.MultipleResultsFound("x"), Code.CONFLICT),
        (exc.TimeoutError("x"), Code.BUSY),
        (exc.ProgrammingError("x", {}, Exception("x")), Code.BUG),
        (sqlalchemy.orm.exc.StaleDataError("x"), Code.PRECONDITION_FAILED),
        (sqlalchemy.ext.asyncio.exc.AsyncContextNotStarted("x"), Code.BUG),
        (sqlite3.InterfaceError("x"), Code.BUG),
        (PydanticSerializationError("x"), Code.UNSERIALISABLE),
        (TimeoutError("x"), Code.TIMEOUT),
        (ConnectionResetError("x"), Code.UNREACHABLE),
        (BrokenPipeError("x"), Code.UNREACHABLE),
        (FileNotFoundError("x"), Code.NOT_FOUND),
        (FileExistsError("x"), Code.CONFLICT),
        (IsADirectoryError("x"), Code.INVALID_INPUT),
        (PermissionError("x"), Code.FORBIDDEN),
        (OSError(errno.ENOSPC, "x"), Code.QUOTA_EXHAUSTED),
        (OSError(errno.EMFILE, "x"), Code.QUOTA_EXHAUSTED),
        (OSError(errno.EHOSTUNREACH, "x"), Code.UNREACHABLE),
        (OSError(errno.ENAMETOOLONG, "x"), Code.INVALID_INPUT),
        (OSError(errno.EIO, "x"), Code.NEEDS_PERSON),
        (OSError(errno.EINVAL, "x"), Code.BUG),
        (OSError("x"), Code.BUG),
        (socket.gaierror(socket.EAI_NONAME, "x"), Code.UNREACHABLE),
        (ssl.SSLCertVerificationError(1, "x"), Code.NEEDS_PERSON),
    ],
    ids=repr,
)
def test_the_most_specific_row_wins(error: Exception, code: Code) -> None:
    """A child that has a row is no longer what its parent is."""
    assert classify(error).code is code


class Odd(Exception):
    """An exception of the tool's own."""


@pytest.mark.parametrize(
    "error",
    [KeyError(HIDDEN), Odd(HIDDEN), ZeroDivisionError(), RecursionError(), AssertionError(HIDDEN), SystemExit(HIDDEN)],
    ids=lambda error: type(error).__name__,
)
def test_what_no_table_knows_is_a_bug(error: BaseException) -> None:
    """Default deny: a person, never a retry; the sentence names the class and nothing that it said."""
    fault = classify(error)

    assert (fault.code, fault.quadrant) == (Code.BUG, Quadrant.PERSISTENT_INFRASTRUCTURAL)
    assert type(error).__name__ in fault.reason and HIDDEN not in fault.reason


def test_an_exception_of_one_task_of_a_group_is_what_it_is_alone() -> None:
    """`asyncio.TaskGroup` wraps what a tool's task raised: a lone 503 in it is still to be retried."""
    group = ExceptionGroup("unhandled errors in a TaskGroup", [httpx2.ReadTimeout("x")])

    assert classify(group).code is Code.TIMEOUT


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("No."), Code.REFUSED),
        (Refused("No.", code="no_results"), Code.NO_RESULTS),
        (Busy("Later."), Code.BUSY),
        (Unreachable("Cut."), Code.UNREACHABLE),
        (NeedsPerson("Help."), Code.NEEDS_PERSON),
    ],
    ids=repr,
)
def test_what_a_tool_raises_on_purpose_is_its_own_fault(error: Exception, code: Code) -> None:
    """No table is asked about the four classes of ours."""
    assert (classify(error).code, classify(error).reason) == (code, str(error))
