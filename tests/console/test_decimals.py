"""What schemas make of values at the terminal: a Decimal is the number that it is, a type has the name of people."""

import json
from datetime import date
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, JsonValue, TypeAdapter
from temporalio.client import Client

from client.schemas import plain, with_numbers
from console.commands.tools import type_text
from runtime.dev_server import DevServer
from tests.console.terminal import Terminal, starter
from tests.processes import ROOT, Processes
from workflows.json_values import canonical

AMOUNT = "12345678901234567890.50"
"""More digits than a float has."""
PAID = {"amount": AMOUNT, "parts": ["1.10"], "fee": None, "reference": "0815"}
TOOLS = str(Path(__file__).with_name("paying.py"))
DECIMAL: dict[str, JsonValue] = {"anyOf": [{"type": "number"}, {"type": "string"}]}


TEXT: dict[str, JsonValue] = {"type": "string"}
OPTIONAL: dict[str, JsonValue] = {"anyOf": [{"type": "number"}, TEXT, {"type": "null"}]}
SHOWN: list[tuple[dict[str, JsonValue], JsonValue, str]] = [
    (DECIMAL, "640.50", "640.50"),
    (DECIMAL, "-0.1", "-0.1"),
    (DECIMAL, "007", '"007"'),
    (DECIMAL, "NaN", '"NaN"'),
    (TEXT, "640.50", '"640.50"'),
    ({}, "640.50", '"640.50"'),
    (OPTIONAL, "5", "5"),
    ({"type": "array", "items": DECIMAL}, ["1.10", "2"], "[1.10,2]"),
    ({"type": "object", "additionalProperties": DECIMAL}, {"a": "1.10"}, '{"a":1.10}'),
    ({"$ref": "#/$defs/Sum", "$defs": {"Sum": DECIMAL}}, "3.20", "3.20"),
    (DECIMAL, 5, "5"),
]


@pytest.mark.parametrize(("schema", "value", "words"), SHOWN)
def test_only_what_the_schema_says_is_a_number_is_shown_as_one(
    schema: dict[str, JsonValue], value: JsonValue, words: str
) -> None:
    """With each of its digits; any other text keeps its quotes. A field may be null only if its schema says so."""
    assert with_numbers(canonical, value, schema) == words
    assert [plain(one, {}).get("nullable", False) for one in ({"anyOf": [TEXT]}, OPTIONAL)] == [False, True]


async def test_a_decimal_is_a_number_on_every_screen(server: DevServer, client: Client, tmp_path: Path) -> None:
    """In a dry run, in effects and, at a terminal, in the result of a call; a pipe gets the JSON of the result."""
    processes, queue = Processes(server.address, tmp_path), ("--queue", "decimals")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"steps": [{"id": "t", "kind": "transfer", "args": PAID}]}))
    with processes.worker(*queue, "--tools", TOOLS):
        dry = processes.starter("start", "--plan", str(plan), "--dry-run", *queue).stdout
        piped = processes.starter("call", "transfer", json.dumps(PAID), *queue).stdout
        document = json.loads(processes.starter("call", "transfer", json.dumps(PAID), *queue, "--json").stdout)
        effects = processes.starter("effects", document["task_id"], *queue).stdout
        with Terminal(
            starter(ROOT, "call", "transfer", json.dumps(PAID), *queue), {"TEMPORAL_ADDRESS": server.address}, ROOT
        ) as window:
            code = await window.ended()
    called = "".join(window.shown.text[1:])

    assert f"amount={AMOUNT}, parts=[1.10], " in dry and 'reference="0815"' in dry
    assert json.loads(piped) == PAID
    assert f'"amount":{AMOUNT}' in effects and '"parts":[1.10]' in effects and '"reference":"0815"' in effects
    assert code == 0 and f'"amount": {AMOUNT},' in called and '"reference": "0815"' in called


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
