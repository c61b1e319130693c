"""A Decimal at the terminal is the number that it is, with all its digits; for programs it stays a text in JSON."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.client import Client

from client.schemas import plain, with_numbers
from runtime.dev_server import DevServer
from tests.console.terminal import Terminal, starter
from tests.processes import ROOT, Processes
from workflows.json_values import canonical

AMOUNT = "12345678901234567890.50"
"""More digits than a float has."""
PAID = {"amount": AMOUNT, "parts": ["1.10"], "fee": None, "reference": "0815"}
TOOLS = str(Path(__file__).with_name("paying.py"))
DECIMAL: dict[str, JsonValue] = {"anyOf": [{"type": "number"}, {"type": "string"}]}
SHOWN: Mapping[str, tuple[dict[str, JsonValue], JsonValue, str]] = {
    "a decimal": (DECIMAL, "640.50", "640.50"),
    "below zero": (DECIMAL, "-0.1", "-0.1"),
    "no number of JSON": (DECIMAL, "007", '"007"'),
    "not finite": (DECIMAL, "NaN", '"NaN"'),
    "a text": ({"type": "string"}, "640.50", '"640.50"'),
    "unknown": ({}, "640.50", '"640.50"'),
    "perhaps null": ({"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]}, "5", "5"),
    "in a list": ({"type": "array", "items": DECIMAL}, ["1.10", "2"], "[1.10,2]"),
    "in a table": ({"type": "object", "additionalProperties": DECIMAL}, {"a": "1.10"}, '{"a":1.10}'),
    "by reference": ({"$ref": "#/$defs/Sum", "$defs": {"Sum": DECIMAL}}, "3.20", "3.20"),
    "a number": (DECIMAL, 5, "5"),
}


@pytest.mark.parametrize("case", SHOWN)
def test_only_what_the_schema_says_is_a_number_is_shown_as_one(case: str) -> None:
    """With each of its digits; any other text keeps its quotes."""
    schema, value, words = SHOWN[case]

    assert with_numbers(canonical, value, schema) == words


@pytest.mark.parametrize(("others", "may_be_null"), [([], False), ([{"type": "null"}], True)])
def test_a_field_may_be_null_only_if_its_schema_says_so(others: list[dict[str, JsonValue]], may_be_null: bool) -> None:
    """A single option is no reason."""
    assert plain({"anyOf": [{"type": "string"}, *others]}, {}).get("nullable", False) is may_be_null


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
