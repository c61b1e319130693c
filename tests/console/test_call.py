"""`call` and `tools`: arguments that cannot be sent are a sentence, results go into pipes, words are not broken."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from temporalio.client import Client

from client.problem import Problem
from console.arguments import read_arguments
from console.exits import OF_PROBLEM
from replan import tool
from runtime.dev_server import DevServer
from tests.console.terminal import Terminal, starter
from tests.console.test_prompt import prompts
from tests.gate import sampled
from tests.harness import DONE, staged
from tests.processes import ROOT, Processes

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


@pytest.fixture
def commands(server: DevServer, tmp_path: Path) -> Processes:
    """Commands for the shared server."""
    return Processes(server.address, tmp_path)


async def test_a_person_sees_that_the_call_runs(commands: Processes, queue: str) -> None:
    """At a terminal, with the line of other commands; when the call has ended, only its own lines are left.

    `call ... | jq` gets the result alone; what became of the call is on stderr.
    """
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
