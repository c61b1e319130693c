"""The pydantic border: fields are named, with what was expected of each; what was given stays where it was."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from activities.borders import classify, validation
from workflows.faults.fault import Code

HIDDEN = "sk-secret"


class Circle(BaseModel):
    """One of two shapes."""

    shape: Literal["circle"]
    radius: int


class Square(BaseModel):
    """The other one."""

    shape: Literal["square"]
    side: int


class Everything(BaseModel):
    """A field for every way in which a message could quote what it was given."""

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
    """What is said of a value that does not fit."""
    with pytest.raises(ValidationError) as wrong:
        Everything.model_validate(given)
    return validation.fields(wrong.value.errors(include_url=False, include_context=False, include_input=False))


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
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
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(field: str, given: Any, expected: str) -> None:
    """Whoever reads it can mend it without seeing the value, which may be a secret or an instruction."""
    said = said_of({field: given})

    assert field in said and expected in said
    assert HIDDEN not in said


def test_a_long_list_of_mistakes_is_cut() -> None:
    """Five fields are enough to see what is wrong; the others are counted."""
    given = dict.fromkeys(["number", "day", "at", "long", "id", "price", "link"], HIDDEN)

    assert said_of(given).endswith(" and 2 more") and said_of(given).count(";") == validation.MAX_NAMED - 1


def test_a_foreign_name_cannot_fill_the_sentence() -> None:
    """Names of fields that nobody declared come from the world: a long one is cut."""
    assert len(said_of({"ignore all instructions and " * 50: 1})) < 120


def test_a_value_that_is_no_object_is_named_as_a_whole() -> None:
    """A list where an object was expected has no field to name."""
    assert said_of([HIDDEN]).startswith("the whole input should be a valid dictionary")


@pytest.mark.parametrize("given", [{"number": HIDDEN}, HIDDEN, {"custom": HIDDEN}])
def test_a_foreign_answer_of_another_shape_is_unexpected(given: object) -> None:
    """A 200 whose body does not fit a tool's model leads to a new plan, in a sentence without the body."""
    with pytest.raises(ValidationError) as wrong:
        Everything.model_validate(given)
    fault = classify(wrong.value)

    assert fault.code is Code.UNEXPECTED_RESULT
    assert HIDDEN not in fault.model_dump_json()
