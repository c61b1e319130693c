"""`--break` on a tool of the user's own: each quadrant is met, and what follows is what the taxonomy says."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from runtime.dev_server import free_port
from tests.processes import Processes

HEADER = '''
from pathlib import Path

from pydantic import BaseModel

from replan import Refused, tool

FILE = Path(__file__).with_name("lines")


class Words(BaseModel):
    words: str


class Topics(BaseModel):
    suggestions: list[str]


@tool.read
async def list_topics(args: Words) -> Topics:
    """List what there is to search for."""
    return Topics(suggestions=["refund policy"])
'''
TOOL = '''

@tool.read(observe=list_topics)
async def {kind}(args: Words) -> Words:
    """Look for some words."""
    return args
'''
UNKEYED = '''

@tool.read
async def find_line(args: Words) -> Words:
    """Look whether a line is there."""
    if args.words not in FILE.read_text().splitlines():
        raise Refused("There is no such line.", code="not_found")
    return args


@tool.unkeyed(reconcile=find_line.using(words="args.words"), settle=0)
async def add_line(args: Words) -> Words:
    """Add a line."""
    with FILE.open("a") as file:
        file.write(args.words + "\\n")
    return args
'''


class Broken(NamedTuple):
    exit: int
    attempts: int
    faults: list[tuple[str, str]]
    """The code of each fault, and the decision that followed."""
    words: str
    """What a person reads."""


BROKEN = {
    "conflict:1": Broken(1, 1, [("conflict", "replan")], "the same call would fail again -> no retry"),
    "429:1": Broken(0, 2, [("rate_limited", "retry")], "rate_limited once, waited "),
    "503:2": Broken(0, 3, [("server_error", "retry"), ("server_error", "wait")], "waiting, then the same step again"),
    "timeout:1": Broken(0, 2, [("timeout", "retry")], "timeout once, waited "),
    "lost:1": Broken(0, 2, [("unreachable", "retry")], "unreachable once, waited "),
    "401": Broken(
        3, 1, [("unauthorized", "escalate")], "neither a retry nor a new plan can help -> a person has to act"
    ),
}
"""By FAULT; N is per worker, so that each test has a kind of its own."""


def kind_of(fault: str, test: str) -> str:
    return f"{test}_{fault.partition(':')[0]}"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("broken")
    wanted = [(kind_of(fault, test), fault) for fault in BROKEN for test in ("shown", "data")]
    wanted.append(("search_mine", "conflict:1"))
    more = [("purchase", "lost:1"), ("add_line", "lost:1")]
    tools = folder / "my_tools.py"
    tools.write_text(HEADER + "".join(TOOL.format(kind=kind) for kind, _ in wanted) + UNKEYED)
    breaks = [word for kind, fault in [*wanted, *more] for word in ("--break", f"{kind}={fault}")]
    processes = Processes(f"localhost:{free_port()}", folder)
    with processes.worker("--dev", "--tools", str(tools), *breaks):
        yield processes


@pytest.mark.parametrize("fault", BROKEN)
def test_a_person_and_a_program_see_what_follows(broken: Processes, fault: str) -> None:
    """In words and by the exit code; and in the document, with attempts and each fault with its decision."""
    expected = BROKEN[fault]
    done = broken.starter("call", kind_of(fault, "shown"), '{"words": "refund"}')
    data = broken.starter("call", kind_of(fault, "data"), '{"words": "refund"}', "--json")
    document: dict[str, Any] = json.loads(data.stdout)

    assert done.returncode == expected.exit, done.stdout + done.stderr
    assert expected.words in done.stderr
    assert [(one["code"], one["decision"]) for one in document["faults"]] == expected.faults
    assert document["steps"][0]["attempts"] == expected.attempts


def test_a_task_answers_a_conflict_with_a_new_plan(broken: Processes) -> None:
    file = broken.folder / "plan.json"
    file.write_text(json.dumps({"steps": [{"id": "look", "kind": "search_mine", "args": {"words": "refund"}}]}))
    document: dict[str, Any] = json.loads(broken.starter("--plan", str(file), "--json").stdout)

    assert (document["status"], document["replans"]) == ("completed", 1)
    assert [(one["status"], one["attempts"], one["args"]["words"]) for one in document["steps"]] == [
        ("failed", 1, "refund"),
        ("completed", 1, "refund policy"),
    ]


def test_a_write_whose_answer_is_lost_happens_once(broken: Processes) -> None:
    done = broken.starter("call", "purchase", '{"sku": "A-17", "at_most": "30"}', "--json")
    effects = broken.starter("effects", json.loads(done.stdout)["task_id"], "--json")
    orders = broken.starter("call", "list_orders", '{"sku": "A-17"}', "--json")
    step = json.loads(done.stdout)["steps"][0]
    found = [order["id"] for order in json.loads(orders.stdout)["steps"][0]["result"]["orders"]]

    assert (done.returncode, step["attempts"], step["replayed"]) == (0, 2, True)
    [card] = json.loads(effects.stdout)["effects"]

    assert (card["step"], card["kind"], card["result"]) == ("call", "purchase", step["result"])
    assert (found[0], found.count(step["result"]["id"])) == (step["result"]["id"], 1)


def test_an_unkeyed_call_whose_answer_is_lost_is_found_out(broken: Processes) -> None:
    """`lost` on an unkeyed tool with a reconcile: what was done is found, and not done again; nobody is asked."""
    done = broken.starter("call", "add_line", '{"words": "hello"}', "--json")
    document: dict[str, Any] = json.loads(done.stdout)

    assert (done.returncode, (broken.folder / "lines").read_text()) == (0, "hello\n"), done.stdout
    assert [one["decision"] for one in document["faults"]] == ["reconcile"]
