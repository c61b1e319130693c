"""The borders: every foreign class has a row, every row makes a sentence without foreign words, the rest is a bug."""

import builtins
import json
import pkgutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Annotated, Any, Literal
from uuid import UUID

import anthropic
import httpcore2
import httpx2
import openai
import pydantic
import pytest
import sqlalchemy.ext.asyncio.exc
import sqlalchemy.orm.exc
from anthropic._error_classes import ERROR_CLASSES
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, PydanticSerializationError
from sqlalchemy import exc

from activities.borders import classify, table_of, validation
from activities.borders.anthropic import TABLE as ANTHROPIC
from activities.borders.openai import TABLE as OPENAI
from activities.borders.table import Table, qualified
from tests.processes import ROOT
from workflows.faults.fault import Code, Quadrant

HIDDEN = "sk-secret"


def exported(module: ModuleType) -> set[type[BaseException]]:
    return {one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Exception)}


def met(package: str) -> set[type[BaseException]]:
    if package in ("httpcore2", "sqlite3"):
        return exported(sqlite3 if package == "sqlite3" else httpcore2)
    if package == "builtins":
        return {one for one in exported(builtins) if OSError in one.__mro__[1:]}
    never = ("sqlalchemy.engine.interfaces", "sqlalchemy.util.queue")  # protocols, which nobody raises
    return {one for one in below(package) if one.__module__ not in never}


@pytest.mark.parametrize("package", ["httpx2", "httpcore2", "sqlalchemy", "sqlite3", "builtins"])
def test_every_exception_of_a_package_has_a_row(package: str) -> None:
    """A class that a new version brings fails here until somebody says what it means.

    `OSError` itself is the answer to numbers that nobody named, so it covers no child.
    """
    assert len(met(package)) >= 8
    assert [one for one in met(package) if covering(one, package) in (None, "builtins.OSError")] == []


def test_httpx2_is_enumerated_whole() -> None:
    """The enumeration sees every exception that the package exports; its websockets need packages that we lack."""
    assert exported(httpx2) <= below("httpx2")
    assert "websockets" in {module.name for module in pkgutil.iter_modules(httpx2.__path__)}


OURS = ("httpx2", "httpcore2", "sqlalchemy", "sqlite3", "pydantic_core", "builtins", "socket", "json", "activities")
"""The packages of the tables whose libraries Replan itself uses, so that their exceptions can be made here."""
ROWS = [
    name
    for package in OURS
    for name in table_of(package)
    if name.partition(".")[0] == package and not name.startswith("httpx2.websockets.")  # needs a package that we lack
]


def descendants(raised: type[BaseException]) -> Iterator[type[BaseException]]:
    for child in raised.__subclasses__():
        yield child
        yield from descendants(child)


def below(package: str) -> set[type[BaseException]]:
    """The exceptions of a package that a caller can meet: no warnings, nothing private."""
    found = (one for one in descendants(Exception) if one.__module__.partition(".")[0] == package)
    return {one for one in found if not issubclass(one, Warning) and not one.__name__.startswith("_")}


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


def test_every_row_makes_a_sentence_without_foreign_words() -> None:
    """A reason is one instructive sentence of ours, whatever the foreign message carries."""
    faults = {name: classify(made(pkgutil.resolve_name(name))) for name in ROWS}

    assert [
        (name, fault)
        for name, fault in faults.items()
        if len(fault.reason) <= 10
        or not fault.reason.endswith(".")
        or "\n" in fault.reason
        or HIDDEN in fault.model_dump_json()
    ] == []


CODES: list[tuple[Exception, Code]] = [
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
    (FileNotFoundError("x"), Code.NOT_FOUND),
]


def test_the_most_specific_row_wins() -> None:
    """A child that has a row is no longer what its parent is; what a number of the system means is in test_standard."""
    assert [(error, classify(error).code) for error, _ in CODES] == CODES


class Odd(Exception):
    """An exception of the tool's own."""


def test_what_no_table_knows_is_a_bug() -> None:
    """Default deny: a person, never a retry; the sentence names the class and nothing that it said."""
    errors = [KeyError(HIDDEN), Odd(HIDDEN), ZeroDivisionError(), RecursionError(), AssertionError(HIDDEN)]
    for error in (*errors, SystemExit(HIDDEN)):
        fault = classify(error)

        assert (fault.code, fault.quadrant) == (Code.BUG, Quadrant.PERSISTENT_INFRASTRUCTURAL)
        assert type(error).__name__ in fault.reason and HIDDEN not in fault.reason


ELSEWHERE = ("anthropic.lib.tools.",)
"""Helpers that run tools for whoever uses them; Replan does not."""
TRANSIENT = {(408, None), (409, None), (429, None), (499, None), (503, None), (504, None), (529, None)}
"""Statuses that time can cure; of the codes, those below one of them that are no matter of money, and few more."""
SPENT = {"contract_spend_limit_reached", "enforced_spend_limit_reached"}
CURED = {"request_body_timeout"}


CLASSES = [
    (table, one)
    for table, package in ((ANTHROPIC, "anthropic"), (OPENAI, "openai"))
    for one in below(package)
    if not one.__module__.startswith(ELSEWHERE)
]


def has_row(table: Table, raised: type[BaseException]) -> bool:
    """Whether a class is in the table, or below a class in it that says more than an SDK's base does."""
    bases = {anthropic.AnthropicError, openai.OpenAIError, anthropic.APIError, openai.APIError}
    row = next((parent for parent in raised.__mro__ if qualified(parent) in table), None)
    return row is not None and (row not in bases or raised in bases or raised.__name__ in UNSEEN)


def test_every_exception_of_both_sdks_has_a_row() -> None:
    """A class that a new version brings fails here until somebody says what it means; a base covers no stranger."""
    assert [raised for table, raised in CLASSES if not has_row(table, raised)] == []


UNSEEN = {"APIRemovedInV1", "MissingDependencyError", "MutuallyExclusiveAuthError", "StreamAlreadyConsumed"}
"""Mistakes in the use of an SDK, which only a bug of ours could make: its base's row says so."""


@pytest.mark.full
def test_both_sdks_are_enumerated_whole() -> None:
    """Every exception that the packages export is among them, and every class of the provider's own table."""
    found = {raised for _, raised in CLASSES}
    exported = {
        one
        for package in (anthropic, openai)
        for name in dir(package)
        if isinstance(one := getattr(package, name), type) and issubclass(one, Exception)
        if not one.__module__.startswith(ELSEWHERE) and not name.startswith("_")
    }

    assert exported <= found
    assert set(ERROR_CLASSES.values()) <= found


def response(status: int, headers: dict[str, str] | None = None) -> httpx2.Response:
    return httpx2.Response(status, headers=headers, request=httpx2.Request("POST", "https://models.example/v1"))


def test_every_status_and_code_of_anthropic_is_told_apart() -> None:
    """Time cures load, limits and outages; never money, permissions or a malformed request."""
    wrong = []
    for (status, code), raised in ERROR_CLASSES.items():
        body = {"error": {"type": None, "message": HIDDEN, "details": {"error_code": code}}}
        fault = classify(raised(HIDDEN, response=response(status), body=body))
        is_curable = code in CURED or ((status, None) in TRANSIENT and code not in SPENT)
        is_said = HIDDEN not in fault.model_dump_json() and fault.reason.endswith(".")
        if fault.quadrant.is_transient is not is_curable or not is_said:
            wrong.append((status, code, fault))

    assert wrong == []

    faults = [classify(error) for error, _ in WITHOUT_STATUS]

    assert [fault.code for fault in faults] == [code for _, code in WITHOUT_STATUS]
    assert HIDDEN not in str(faults)


STATUSES = (400, 401, 402, 403, 404, 408, 409, 413, 418, 422, 429, 500, 502, 503, 504, 529)


@pytest.mark.parametrize("sdk", [anthropic, openai], ids=["anthropic", "openai"])
def test_a_bare_status_has_a_meaning(sdk: Any) -> None:
    """A proxy's answer has neither type nor code; a `retry-after`, which may come along with anything, is none."""
    found = []
    for status in STATUSES:
        error = sdk.APIStatusError(HIDDEN, response=response(status, {"retry-after": "3"}), body=None)
        fault = classify(error)
        found.append((status, fault.quadrant.is_transient, fault.retry_after, fault.code is Code.BUG))
    cured = [status in (408, 409, 429) or status >= 500 for status in STATUSES]

    assert found == [(*one, 3 if one[1] else None, False) for one in zip(STATUSES, cured, strict=True)]


ASKED = httpx2.Request("POST", "https://models.example")
WITHOUT_STATUS: list[tuple[Exception, Code]] = [
    (anthropic.AnthropicError(HIDDEN), Code.BUG),
    (openai.OpenAIError(HIDDEN), Code.BUG),
    (openai.InvalidWebhookSignatureError(HIDDEN), Code.BUG),
    (openai.APITimeoutError(ASKED), Code.TIMEOUT),
    (anthropic.APITimeoutError(ASKED), Code.TIMEOUT),
    (anthropic.APIConnectionError(request=ASKED), Code.UNREACHABLE),
    (anthropic.APIResponseValidationError(response(200), None), Code.SERVER_ERROR),
    (anthropic.WorkloadIdentityError(HIDDEN), Code.UNAUTHORIZED),
]


@pytest.mark.full
def test_no_sdk_is_loaded_before_a_model_is_asked() -> None:
    """A worker without keys starts as fast as ever: classifying and choosing a planner import neither."""
    code = (
        "import sys; from activities.borders import classify;"
        "from activities.planning.selection import PlannerSelection;"
        "PlannerSelection('anthropic,openai,offline', {'ANTHROPIC_API_KEY': 'x', 'OPENAI_API_KEY': 'y'});"
        "classify(KeyError()); sys.exit(bool({'anthropic', 'openai'} & sys.modules.keys()))"
    )

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


class Circle(BaseModel):
    shape: Literal["circle"]
    radius: int


class Square(BaseModel):
    shape: Literal["square"]
    side: int


class Everything(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int = 0
    word: str = Field(default="", max_length=3, pattern="^[a-z]{0,3}$")
    choice: Literal["red", "green", "blue"] = "red"
    day: date | None = None
    at: datetime | None = None
    long: timedelta | None = None
    id: UUID | None = None
    price: Decimal | None = None
    share: float = Field(default=0, le=1, multiple_of=0.5)
    link: HttpUrl | None = None
    either: int | list[int] = 0
    many: list[int] = Field(default_factory=list, max_length=2)
    shape: Annotated[Circle | Square, Field(discriminator="shape")] | None = None
    own: str = ""
    custom: str = ""
    typed: str = ""

    @field_validator("own", "custom", "typed")
    @classmethod
    def _refuse(cls, value: str, info: ValidationInfo) -> str:
        if info.field_name == "own":
            raise ValueError(f"{value} is not allowed")
        if info.field_name == "typed":
            raise PydanticCustomError(value, "is not allowed")  # a rule whose name is no word
        raise PydanticCustomError("my_error", "{value} is not allowed", {"value": value})


def said_of(given: object) -> str:
    with pytest.raises(ValidationError) as wrong:
        Everything.model_validate(given)
    return validation.fields(wrong.value.errors(include_url=False, include_context=False, include_input=False))


WRONG_FIELDS: list[tuple[str, Any, str]] = [
    ("number", HIDDEN, "input should be a valid integer"),
    ("word", HIDDEN, "string should have at most 3 characters"),
    ("word", "A-1", "string should match pattern '^[a-z]{0,3}$'"),
    ("choice", HIDDEN, "input should be 'red', 'green' or 'blue'"),
    ("day", HIDDEN, "input should be a valid date or datetime"),
    ("day", f"2026-11-21 {HIDDEN}", "input should be a valid date or datetime"),
    ("at", HIDDEN, "input should be a valid datetime or date"),
    ("long", HIDDEN, "input should be a valid timedelta"),
    ("id", HIDDEN, "input should be a valid UUID"),
    ("price", HIDDEN, "input should be a valid decimal"),
    ("share", 7.25, "input should be a multiple of 0.5"),
    ("link", HIDDEN, "input should be a valid URL"),
    ("link", f"ftp://{HIDDEN}", "URL scheme should be 'http' or 'https'"),
    ("many", [1, HIDDEN], "input should be a valid integer"),
    ("many", [1, 2, 3], "list should have at most 2 items after validation"),
    ("shape", {"shape": HIDDEN}, "has a value that is not allowed (union_tag_invalid)"),
    ("shape", {}, "unable to extract tag using discriminator 'shape'"),
    ("own", HIDDEN, "has a value that is not allowed (value_error)"),
    ("custom", HIDDEN, "has a value that is not allowed (my_error)"),
    ("typed", HIDDEN, "has a value that is not allowed"),
    ("nothing", HIDDEN, "extra inputs are not permitted"),
]


def test_a_wrong_field_is_named_with_what_was_expected() -> None:
    """Whoever reads it can mend it without seeing the value; five fields are enough, and a foreign name is cut."""
    said = [(field, expected, said_of({field: given})) for field, given, expected in WRONG_FIELDS]

    assert [one for one in said if one[0] not in one[2] or one[1] not in one[2] or HIDDEN in one[2]] == []

    given = dict.fromkeys(["number", "day", "at", "long", "id", "price", "link"], HIDDEN)

    assert said_of(given).endswith(" and 2 more") and said_of(given).count(";") == validation.MAX_NAMED - 1
    assert len(said_of({"ignore all instructions and " * 50: 1})) < 120
    assert said_of([HIDDEN]).startswith("the whole input should be a valid dictionary")


def test_a_foreign_answer_of_another_shape_is_unexpected() -> None:
    """A 200 whose body does not fit a tool's model leads to a new plan, in a sentence without the body."""
    for given in ({"number": HIDDEN}, HIDDEN, {"custom": HIDDEN}):
        with pytest.raises(pydantic.ValidationError) as wrong:
            Everything.model_validate(given)
        fault = classify(wrong.value)
        assert fault.code is Code.UNEXPECTED_RESULT and HIDDEN not in fault.model_dump_json()
