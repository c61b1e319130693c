"""What `tools KIND` calls the types of arguments and results."""

from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, TypeAdapter

from console.commands.tools import type_text


class Currency(StrEnum):
    """Some."""

    EUR = "EUR"
    USD = "USD"


class Line(BaseModel):
    """A line of an order."""

    sku: str


TYPES = [
    (Decimal, "decimal"),
    (Decimal | None, "decimal | null"),
    (date | None, "date | null"),
    (Currency, "EUR | USD"),
    (Currency | None, "EUR | USD | null"),
    (Literal["a"], "a"),
    (list[Decimal], "list of decimal"),
    (list[Line], "list of object"),
    (list[Any], "array"),
    (int | str, "integer | string"),
    (float, "number"),
    (Line, "object"),
    (Any, "any"),
]


@pytest.mark.parametrize(("annotation", "words"), TYPES, ids=str)
def test_a_type_has_the_name_that_a_person_expects(annotation: Any, words: str) -> None:
    """Whatever JSON schema stands for it."""
    whole = TypeAdapter(tuple[annotation]).json_schema()

    assert type_text(whole["prefixItems"][0], whole) == words
