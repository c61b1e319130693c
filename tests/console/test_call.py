"""`call` and `tools`: arguments, results, types and exact numbers, in pipes and at a terminal."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import date
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, JsonValue, TypeAdapter
from temporalio.client import Client

from client.problem import Problem
from client.schemas import plain, with_numbers
from console.arguments import read_arguments
from console.commands.tools import type_text
from console.exits import OF_PROBLEM
from replan import tool
from runtime.dev_server import DevServer
from tests.console.terminal import Terminal, starter
from tests.console.test_prompt import prompts
from tests.gate import sampled
from tests.harness import DONE, staged
from tests.processes import ROOT, Processes
from workflows.json_values import canonical

SURROGATE = r"The arguments are no valid text, with a lone surrogate ('\ud800'): write the whole character."
DEEP = "The arguments are nested too deeply: make them flatter."
NAN = "The arguments are not JSON (NaN is not a number in JSON), but '{\"a\": NaN}': write an object"
WRONG = {
    "no JSON": ("{", "The arguments are not JSON ("),
    "no object": ("[]", "The arguments must be a JSON object, not '[]': write an object"),
    "half a letter": (r'{"text": "\ud800"}', SURROGATE),
    "open": ("[" * 50_000, DEEP),
    "deep": ('{"a": ' + "[" * 600 + "]" * 600 + "}", DEEP),
    "NaN": ('{"a": NaN}', NAN),
    "infinite": ('{"a": 1e999}', "The arguments are not JSON (Out of range"),
    "many digits": ('{"a": ' + "9" * 5000 + "}", "The arguments are not JSON (Exceeds the limit"),
    "no file": ("@/nope", "The file '/nope' cannot be read (No such file or directory): check the path after the @."),
    "a folder": ("@/", "The file '/' cannot be read (Is a directory)"),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_arguments_that_cannot_be_sent_are_a_sentence(text: str, words: str) -> None:
    """What is wrong with them, before anything is connected."""
    with pytest.raises(Problem) as wrong:
        read_arguments(text)

    assert str(wrong.value).startswith(words)
    assert (wrong.value.code, OF_PROBLEM[wrong.value.kind]) == ("bad_arguments", 2)


class Words(BaseModel):
    words: str = ""


@tool.read
async def echo(args: Words) -> Words:
    """Say it again."""
    return args


@tool.read
async def dawdle(args: Words) -> Words:
    """Say it again, after a while."""
    await asyncio.sleep(2)
    return args


@tool.read(approve="always")
async def ask_first(args: Words) -> Words:
    """Say it again, if a person agrees."""
    return args


@pytest.fixture
async def queue(client: Client, tmp_path: Path) -> AsyncIterator[str]:
    """The queue of a worker with these tools."""
    async with staged(client, tmp_path, [echo, dawdle, ask_first], [DONE]) as stage:
        yield stage.queue


async def test_a_person_sees_that_the_call_runs(commands: Processes, queue: str) -> None:
    """At a terminal, with the line of other commands; when the call has ended, only its own lines are left. `call ... |
    jq` gets the result alone; what became of the call is on stderr."""
    given = ("call", "echo", '{"words": "a\\u202eb"}', "--queue", queue)
    piped = await asyncio.to_thread(commands.starter, *given)
    command = starter(ROOT, "call", "dawdle", "--queue", queue)
    with Terminal(command, {"TEMPORAL_ADDRESS": commands.address}, ROOT) as window:
        await window.until("0 of 1 step, 0 tool calls  (Ctrl-C detaches)")
        code = await window.ended()

    assert (piped.returncode, json.loads(piped.stdout)) == (0, {"words": "a\u202eb"})
    assert "✓ call echo" in piped.stderr and "\u202e" not in piped.stdout
    assert (code, window.shown.text[0].split()[:3]) == (0, ["✓", "call", "dawdle"])
    assert json.loads("".join(window.shown.text[1:])) == {"words": ""}


async def test_a_person_who_calls_is_asked(commands: Processes, queue: str) -> None:
    """The answer is typed below the call, as below a task; a pipe, at which nobody is, gets the end at once."""
    words = ("call", "ask_first", "--queue", queue)
    piped = await asyncio.to_thread(commands.starter, *words)
    with Terminal(starter(ROOT, *words), {"TEMPORAL_ADDRESS": commands.address}, ROOT, (100, 30)) as window:
        await window.until("Type approve")
        await prompts(window, "? r1 call: may this call be made?")
        window.press("approve\n")
        code = await window.ended()

    assert (piped.returncode != 0, "nobody has approved it" in piped.stderr) == (True, True)
    assert (code, window.shown.text[0].split()[:3]) == (0, ["✓", "call", "ask_first"])
    assert json.loads("".join(window.shown.text[3:])) == {"words": ""}


MISTAKES = {
    "kind": (("nope",), "The call was rejected: there is no kind 'nope': there are ask_first, dawdle, echo."),
    "almost": (("eco",), "The call was rejected: there is no kind 'eco': did you mean echo?"),
    "argument": (("echo", '{"text": "a"}'), "The call was rejected: echo: has no argument 'text': it takes words."),
}


@pytest.mark.parametrize(("words", "said"), sampled(MISTAKES, "kind", "argument"))
async def test_a_mistake_is_one_of_the_call(commands: Processes, queue: str, words: tuple[str, ...], said: str) -> None:
    """A person who calls one tool has written no plan and no step, and reads of none: neither here nor in `explain`."""
    done = await asyncio.to_thread(commands.starter, "call", *words, "--queue", queue)
    again = await asyncio.to_thread(commands.starter, "call", *words, "--queue", queue, "--json")
    explained = await asyncio.to_thread(commands.starter, "explain", json.loads(again.stdout)["task_id"])

    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{said}\n")
    assert said in explained.stdout and "A mistake in a call is not sent" in explained.stdout


@pytest.mark.full
async def test_words_are_not_broken_at_80_columns(commands: Processes) -> None:
    """What a tool does stays in its column."""
    with commands.worker("--desk", "--queue", "columns"):
        command = starter(ROOT, "tools", "book_slot", "--queue", "columns")
        with Terminal(command, {"TEMPORAL_ADDRESS": commands.address}, ROOT) as window:
            code = await window.ended()
    first, second, third, *_ = window.shown.text
    does = "Book one free slot of the calendar in the name of a person or team."

    assert (code, first.split()[:2]) == (0, ["book_slot", "transactional"])
    assert f"{first[32:]} {second[32:]}" == does and not second[:32].strip() and third.startswith("  observes")


AMOUNT = "12345678901234567890.50"
"""More digits than a float has."""
PAID = {"amount": AMOUNT, "parts": ["1.10"], "fee": None, "reference": "0815"}
TOOLS = str(Path(__file__).with_name("paying.py"))
DECIMAL: dict[str, JsonValue] = {"anyOf": [{"type": "number"}, {"type": "string"}]}


TEXT: dict[str, JsonValue] = {"type": "string"}
SINGLE: dict[str, JsonValue] = {"anyOf": [TEXT]}
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
    assert [plain(one, {}).get("nullable", False) for one in (SINGLE, OPTIONAL)] == [False, True]


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
    EUR = "EUR"
    USD = "USD"


class Line(BaseModel):
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
