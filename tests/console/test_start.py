"""`start`: ids, plan files, limits, and what happens when an id is taken."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from client.connection import ui_url
from client.problem import Problem
from client.remedy import as_command
from client.start import MAX_PLAN, build_task, new_id, read_plan, start
from console.arguments import read_effect
from console.exits import OF_PROBLEM
from tests.harness import step
from workflows.account.task import Task
from workflows.limits.budget import Limits
from workflows.plans.contract import AllowedEffect, Term


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("Book a slot for the team at 14:00", "book-a-slot-for-"),
        ("18% of 2450?", "18-of-2450-"),
        ("  ../../etc/passwd\n", "etc-passwd-"),
        ("预订会议室", ""),
        ("", ""),
        ("x" * 500, "x" * 60),
    ],
)
def test_an_id_reads_like_the_task_and_is_never_the_same(text: str, begins: str) -> None:
    """First words and random characters, plain enough for an address, whatever the text; a long word leaves room."""
    ids = {new_id(text) for _ in range(50)}

    assert all(re.fullmatch(r"[a-z0-9-]{4,80}", id) and id.startswith(begins) for id in ids)
    assert len(ids) == 50


def test_thousands_of_equal_tasks_have_ids_of_their_own() -> None:
    """A task that is started every few minutes does not meet itself: of 3,000 ids hardly any is taken twice."""
    ids = {new_id("call search") for _ in range(3000)}

    # Of 16 million endings 0.3 are expected twice: two are one run in thirty, five are one in a million.
    assert len(ids) >= 2996


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is not JSON ("),
        (b"{", "the file is not JSON ("),
        (b"\xff", "it is neither UTF-8 nor UTF-16"),
        (b"[]", "the file must be an object"),
        (b"{}", "'steps' is missing"),
        (b'{"steps": [{"id": "a"}]}', "'steps.0.kind' is missing"),
        (b'{"steps": [{"id": "a", "kind": "x", "arg": {}}]}', "'steps.0.arg' is not known here"),
        (b'{"steps": [], "step": 1}', "'step' is not known here"),
        (b'{"steps": []' + b" " * MAX_PLAN + b"}", "has 262157 bytes: make it smaller than 262144"),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else None,
)
def test_a_plan_that_cannot_be_used_is_a_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    """Which file, where in it, what is wrong, and what a plan looks like; nothing is sent to a server."""
    file = tmp_path / "plan.json"
    file.write_bytes(content)

    with pytest.raises(Problem) as wrong:
        read_plan(file)
    assert words in str(wrong.value) and str(file) in str(wrong.value) and "\n" not in str(wrong.value)
    assert (wrong.value.code, OF_PROBLEM[wrong.value.kind]) == ("bad_plan", 2)


@pytest.mark.parametrize("name", ["nowhere.json", "."])
def test_a_plan_that_is_not_there_is_a_sentence(tmp_path: Path, name: str) -> None:
    """A missing file, a folder."""
    with pytest.raises(Problem, match=r"cannot be read \(.+\): give plan a file that can be read"):
        read_plan(tmp_path / name)


def test_a_plan_file_is_read(tmp_path: Path) -> None:
    """Ids, kinds, arguments and needs."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"steps": [{"id": "a", "kind": "x", "args": {"n": 1}, "needs": ["b"]}]}))

    assert read_plan(file).steps == (step("a", "x", "b", n=1),)


def given(text: str | None = "a task", plan: Path | None = None, **limits: Any) -> Task:
    """What the options ask for."""
    all_limits = {"tool_calls": 100, "deadline": None, **limits}
    return build_task(text=text, plan=plan, limits=all_limits)


def test_options_become_a_task() -> None:
    """The words and the limits."""
    assert given(" a task ", deadline=7) == Task(text="a task", limits=Limits(deadline=7))


EFFECTS: list[tuple[str, AllowedEffect]] = [
    ("purchase", AllowedEffect(kind="purchase")),
    ("pay 2x amount<=50", AllowedEffect(kind="pay", count=2, args={"amount": Term(at_most=50)})),
    ("pay amount>=1 amount<=50", AllowedEffect(kind="pay", args={"amount": Term(at_least=1, at_most=50)})),
    ("book at=14:00|15:00", AllowedEffect(kind="book", args={"at": Term(values=("14:00", "15:00"))})),
    ("pay to='Ann Lee' n=3", AllowedEffect(kind="pay", args={"to": Term(values=("Ann Lee",)), "n": Term(values=(3,))})),
    ("pay iban=@read_invoice.pay.iban", AllowedEffect(kind="pay", args={"iban": Term(slot="read_invoice.pay.iban")})),
]


@pytest.mark.parametrize(("text", "effect"), EFFECTS)
def test_an_effect_of_the_contract_is_read(text: str, effect: AllowedEffect) -> None:
    """The kind, how many, and what each argument may be."""
    assert read_effect(text) == effect


WRONG_EFFECTS = {
    "": "is no effect",
    "pay to": "has no =, <= or >=",
    "pay amount<=much": "must be a number",
    "pay amount=5 amount<=7": "exclude each other",
    "pay 0x": "'count' must be at least 1",
    "pay 'x": "is no effect",
}


@pytest.mark.parametrize(("text", "reason"), WRONG_EFFECTS.items())
def test_a_text_that_is_no_effect_says_what_to_write(text: str, reason: str) -> None:
    """With the forms that there are."""
    with pytest.raises(Problem, match="NAME<=NUMBER") as problem:
        read_effect(text)

    assert reason in str(problem.value)


def test_a_plan_alone_names_the_task(tmp_path: Path) -> None:
    """Without words the file's name has to do."""
    file = tmp_path / "plan.json"
    file.write_text('{"steps": []}')

    assert given(None, file).text == "the plan plan.json"


def test_a_field_that_a_task_does_not_have_is_a_mistake_of_the_caller() -> None:
    """A misspelt `approve` must not start a task that asks nobody."""
    with pytest.raises(TypeError, match="no field aprove"):
        build_task(text="x", aprove="all")


def test_what_nobody_said_is_left_to_the_task() -> None:
    """Strategy, planner and schema are the task's own where the command line names none."""
    task = build_task(text="x", strategy="react", result_schema={"type": "string"})

    assert task == Task(text="x", strategy="react", result_schema={"type": "string"})


@pytest.mark.parametrize(
    ("said", "planner"), [({}, "offline"), ({"planner": "openai:x"}, "openai:x")], ids=["kept", "said anew"]
)
def test_a_plan_file_keeps_what_the_task_was_asked_with(tmp_path: Path, said: dict[str, Any], planner: str) -> None:
    """What `--dry-run --json` printed is run as it was shown, but for what the command line says."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"steps": [], "options": {"strategy": "react", "planner": "offline"}}))
    read = build_task(text="x", plan=file, **said)

    assert (read.strategy, read.planner) == ("react", planner)


@pytest.mark.parametrize(
    ("text", "limits", "words"),
    [
        (
            None,
            {},
            'There is nothing to do, since neither --task nor --plan says what: give --task "..." or --plan FILE.',
        ),
        (
            " \n",
            {},
            'There is nothing to do, since neither --task nor --plan says what: give --task "..." or --plan FILE.',
        ),
        ("x" * 20_000, {}, "--task must have at most 16000 characters: give another --task."),
        ("x", {"deadline": 0}, "--deadline must be more than 0, not 0: give another --deadline."),
        ("x", {"deadline": float("nan")}, "--deadline must be "),
        ("x", {"tool_calls": 0}, "--tool-calls must be at least 1"),
    ],
    ids=["nothing", "blank", "long", "deadline 0", "deadline nan", "no calls"],
)
def test_what_makes_no_task_is_a_sentence(text: str | None, limits: dict[str, Any], words: str) -> None:
    """The option by its name, what is wrong, what to do."""
    with pytest.raises(Problem) as wrong:
        given(text, **limits)

    assert words in wrong.value.sentence(as_command)


@pytest.fixture
async def running(client: Client) -> AsyncIterator[str]:
    """The id of a task that waits for a worker."""
    id = new_id("waits for a worker")
    await start(client, given("waits"), id=id, queue="nobody-serves-this", again=False)
    yield id
    await client.get_workflow_handle(id).terminate()


async def test_the_same_task_under_the_same_id_is_joined(client: Client, running: str) -> None:
    """A repeated command follows what it started."""
    handle = await start(client, given("waits"), id=running, queue="nobody-serves-this", again=False)

    assert (await handle.describe()).id == running


@pytest.mark.parametrize("again", [False, True])
async def test_another_task_under_a_running_id_is_refused(client: Client, running: str, again: bool) -> None:
    """Nothing that runs is replaced."""
    with pytest.raises(Problem, match="is running and was asked something else: choose another id"):
        await start(client, given("something else"), id=running, queue="nobody-serves-this", again=again)


async def test_a_closed_id_is_refused_unless_wanted_again(client: Client, running: str) -> None:
    """An id is used twice only on purpose."""
    await client.get_workflow_handle(running).terminate()

    with pytest.raises(Problem, match="has ended already: add again=True to run it anew"):
        await start(client, given("waits"), id=running, queue="nobody-serves-this", again=False)
    assert (await start(client, given("waits"), id=running, queue="nobody-serves-this", again=True)).id == running


@pytest.mark.parametrize(
    ("host", "id", "url"),
    [
        ("localhost:7233", "a", "http://localhost:8233/namespaces/default/workflows/a"),
        ("127.0.0.1:9000", "a b/c", "http://localhost:10000/namespaces/default/workflows/a%20b%2Fc"),
        ("temporal.example:7233", "a", None),
        ("x.tmprl.cloud:7233", "a", "https://cloud.temporal.io/namespaces/default/workflows/a"),
    ],
)
def test_the_web_ui_is_named_where_it_is_known(host: str, id: str, url: str | None) -> None:
    """A local server's by the Temporal CLI's rule, Cloud's by its name, no guess elsewhere."""
    assert ui_url(host, "default", id) == url
