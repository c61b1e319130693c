"""`start`: ids, plan files, what a task may spend, and what happens when an id is taken."""

import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from client.connection import ui_url
from client.problem import Problem
from client.remedy import as_command
from client.start import MAX_PLAN, build_task, new_id, read_plan, start
from console.arguments import read_effect
from console.commands.start import MAX_SCHEMA, read_schema
from console.exits import OF_PROBLEM
from tests.console.terminal import Terminal
from tests.gate import sampled
from tests.harness import step
from tests.processes import ROOT, Processes
from workflows.account.task import Task
from workflows.limits.budget import Limits
from workflows.plans.contract import AllowedEffect, Term

IDS = [
    ("Book a slot for the team at 14:00", "book-a-slot-for-"),
    ("18% of 2450?", "18-of-2450-"),
    ("  ../../etc/passwd\n", "etc-passwd-"),
    ("预订会议室", ""),
    ("", ""),
    ("x" * 500, "x" * 60),
]


@pytest.mark.parametrize(("text", "begins"), IDS)
def test_an_id_reads_like_the_task_and_is_never_the_same(text: str, begins: str) -> None:
    """First words and random characters, plain enough for an address, whatever the text; a long word leaves room."""
    ids = {new_id(text) for _ in range(3000)}

    assert all(re.fullmatch(r"[a-z0-9-]{4,80}", id) and id.startswith(begins) for id in ids)
    # Of 16 million endings 0.3 are expected twice: two are one run in thirty, five are one in a million.
    assert len(ids) >= 2996


DRAFT_7 = b'"$schema": "http://json-schema.org/draft-07/schema#"'
PLANS: list[tuple[bytes | str | None, str]] = [
    (b"", "the file is not JSON ("),
    (b"{", "the file is not JSON ("),
    (b"\xff", "it is neither UTF-8 nor UTF-16"),
    (b"[]", "the file must be an object"),
    (b"{}", "'steps' is missing"),
    (b'{"steps": [{"id": "a"}]}', "'steps.0.kind' is missing"),
    (b'{"steps": [{"id": "a", "kind": "x", "arg": {}}]}', "'steps.0.arg' is not known here"),
    (b'{"steps": [], "step": 1}', "'step' is not known here"),
    (b'{"steps": []' + b" " * MAX_PLAN + b"}", "has 262157 bytes: make it smaller than 262144"),
    (None, "(No such file or directory): give plan a file that can be read"),
    (".", "(Is a directory): give plan a file that can be read"),
]
SCHEMAS: list[tuple[bytes | str | None, str]] = [
    (b"", "it is not JSON (Expecting value"),
    (b"\xff", "it is not JSON ('utf-8' codec"),
    (b'{"minimum": NaN}', "it is not JSON (NaN is not a number in JSON)"),
    (b'{"minimum": 1e999}', "it is not JSON (Out of range"),
    (b'{"const": "\\ud800"}', "it is not JSON ('utf-8' codec"),
    (b"[]", "it is not a JSON object: write a JSON schema"),
    (b"true", "it is not a JSON object: write a JSON schema"),
    (b'{"type": "objekt"}', "type: 'objekt' is not valid"),
    (b'{"properties": {"a": {"minimum": "1"}}}', "properties.a.minimum: '1' is not of type 'number'"),
    (b"{" + DRAFT_7 + b', "items": [{}]}', "items: [{}] is not of type"),
    (b'{"pattern": "("}', "pattern: '(' is not a 'regex'"),
    (b'{"$ref": "#/$defs/a"}', "$ref '#/$defs/a' refers to nothing: refer only to what is in the file"),
    (b'{"items": {"$ref": "http://x.example/y"}}', "$ref 'http://x.example/y' refers to nothing"),
    (b'{"$ref": "#"}', "it refers to itself without end"),
    (b'{"not": ' * 900 + b"{}" + b"}" * 900, "nested too deeply: make it flatter"),
    (b"[" * 30_000, "it is nested too deeply: make it flatter"),
    (b'{"title": "\x1b[31m"}', "it is not JSON (Invalid control character"),
    (b'{"type": "\\u001b[31m"}', "type: '"),
    (b" " * MAX_SCHEMA + b"{}", f"it has more than {MAX_SCHEMA} bytes: make it smaller"),
    (None, "(No such file or directory): give --result-schema"),
    (".", "(Is a directory): give --result-schema"),
]
FILES: list[tuple[Callable[[Path], object], str, bytes | str | None, str]] = [
    *((read_plan, "bad_plan", content, words) for content, words in PLANS),
    *((read_schema, "bad_schema", content, words) for content, words in SCHEMAS),
]


@pytest.mark.parametrize(
    ("read", "code", "content", "words"), FILES, ids=lambda value: value[:24] if isinstance(value, bytes) else None
)
def test_a_file_that_cannot_be_used_is_a_sentence(
    tmp_path: Path, read: Callable[[Path], object], code: str, content: bytes | str | None, words: str
) -> None:
    """Which file, where in it, what is wrong, and what to do; nothing is sent to a server or fetched from one."""
    file = tmp_path / content if isinstance(content, str) else tmp_path / "given.json"
    if isinstance(content, bytes):
        file.write_bytes(content)

    with pytest.raises(Problem) as wrong:
        read(file)
    assert words in str(wrong.value) and str(file) in str(wrong.value) and str(wrong.value).isprintable()
    assert (wrong.value.code, OF_PROBLEM[wrong.value.kind]) == (
        code if isinstance(content, bytes) else code.replace("bad", "no"),
        2,
    )


TOTAL = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
READ: dict[str, dict[str, Any]] = {
    "object": TOTAL,
    "text": {"type": "string", "maxLength": 5},
    "reference": {"$defs": {"a": {"type": "integer"}}, "items": {"$ref": "#/$defs/a"}},
    "draft 7": json.loads(b"{" + DRAFT_7 + b', "definitions": {"a": {}}, "items": {"$ref": "#/definitions/a"}}'),
    "a field named $ref": {"properties": {"$ref": {"type": "string"}}},
    "anything": {},
}


@pytest.mark.parametrize("schema", READ.values(), ids=READ)
def test_a_schema_is_read_as_it_is(tmp_path: Path, schema: dict[str, Any]) -> None:
    """Of an object or of anything else."""
    (file := tmp_path / "schema.json").write_text(json.dumps(schema))

    assert read_schema(file) == schema


def test_options_and_a_plan_file_become_a_task(tmp_path: Path) -> None:
    """Words, limits, ids, kinds, arguments and needs; a plan alone names the task, and the rest is the task's own. A
    misspelt `approve` must not start a task that asks nobody."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"steps": [{"id": "a", "kind": "x", "args": {"n": 1}, "needs": ["b"]}]}))
    schema = {"type": "string"}
    with pytest.raises(TypeError, match="no field aprove"):
        build_task(text="x", aprove="all")

    assert read_plan(file).steps == (step("a", "x", "b", n=1),)
    assert given(None, file).text == "the plan plan.json"
    assert given(" a task ", deadline=7) == Task(text="a task", limits=Limits(deadline=7))
    asked = build_task(text="x", strategy="react", result_schema=schema)
    assert asked == Task(text="x", strategy="react", result_schema=schema)


def given(text: str | None = "a task", plan: Path | None = None, **limits: Any) -> Task:
    all_limits = {"tool_calls": 100, "deadline": None, **limits}
    return build_task(text=text, plan=plan, limits=all_limits)


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


@pytest.mark.parametrize(
    ("said", "planner"), [({}, "offline"), ({"planner": "openai:x"}, "openai:x")], ids=["kept", "said anew"]
)
def test_a_plan_file_keeps_what_the_task_was_asked_with(tmp_path: Path, said: dict[str, Any], planner: str) -> None:
    """What `--dry-run --json` printed is run as it was shown, but for what the command line says."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"steps": [], "options": {"strategy": "react", "planner": "offline"}}))
    read = build_task(text="x", plan=file, **said)

    assert (read.strategy, read.planner) == ("react", planner)


NOTHING = 'There is nothing to do, since neither --task nor --plan says what: give --task "..." or --plan FILE.'
NO_TASKS: list[tuple[str | None, dict[str, Any], str]] = [
    (None, {}, NOTHING),
    (" \n", {}, NOTHING),
    ("x" * 20_000, {}, "--task must have at most 16000 characters: give another --task."),
    ("x", {"deadline": 0}, "--deadline must be more than 0, not 0: give another --deadline."),
    ("x", {"deadline": float("nan")}, "--deadline must be "),
    ("x", {"tool_calls": 0}, "--tool-calls must be at least 1"),
]


@pytest.mark.parametrize(("text", "limits", "words"), NO_TASKS, ids=["none", "blank", "long", "0", "nan", "no calls"])
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


async def test_an_id_is_used_twice_only_on_purpose(client: Client, running: str) -> None:
    """A repeated command follows what it started; nothing that runs is replaced; what has ended may be run anew."""

    async def begin(text: str, again: bool = False) -> str:
        return (await start(client, given(text), id=running, queue="nobody-serves-this", again=again)).id

    assert await begin("waits") == running
    for again in (False, True):
        with pytest.raises(Problem, match="is running and was asked something else: choose another id"):
            await begin("something else", again)
    await client.get_workflow_handle(running).terminate()
    with pytest.raises(Problem, match="has ended already: add again=True to run it anew"):
        await begin("waits")
    assert await begin("waits", again=True) == running


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


PROFILE = """
from console.commands.start import profile_name
from console.options import Common
for given in ("", "json", "jsonl", "detach"):
    print(profile_name(Common(json=given == "json"), detach=given == "detach", jsonl=given == "jsonl"))
"""


USUAL = Limits(tool_calls=100, tokens=500_000, replans=2)
FILE = 'usd = 2.5\ndeadline = 60\ntokens = "unlimited"\nreplans = 1\n'
GIVEN: dict[str, tuple[str, str, Limits]] = {
    "as a task that was started by hand": ("", "", USUAL),
    "with react every refusal is a new plan": ("--strategy react", "", USUAL.model_copy(update={"replans": 20})),
    "react with a number": ("--strategy react --replans 3", "", Limits(replans=3, fruitless=None)),
    "a number of replans that was given rules alone": ("--replans 4", "", Limits(replans=4, fruitless=None)),
    "also one of the settings file": ("--settings {}", "replans = 4\n", Limits(replans=4, fruitless=None)),
    "the command line goes before the file, a word for no limit, and the usual": (
        "--settings {} --usd 0.25 --replans 7",
        FILE,
        Limits(tool_calls=100, tokens=None, usd=0.25, deadline=60, replans=7, fruitless=None),
    ),
    "the environment names the file": ("", "tool_calls = 3\n", USUAL.model_copy(update={"tool_calls": 3})),
}


@pytest.mark.parametrize(("words", "settings", "limits"), GIVEN.values(), ids=GIVEN)
async def test_a_task_has_the_limits_that_somebody_gave_or_the_usual_ones(
    client: Client, commands: Processes, words: str, settings: str, limits: Limits
) -> None:
    """100 tool calls, 500,000 tokens, 2 replans of which two in a row may finish no step, no limit of money or time."""
    file = commands.folder / "mine.toml"
    file.write_text(f"[budgets.background]\n{settings}")
    if settings and not words:
        commands.environment["REPLAN_SETTINGS"] = str(file)
    given = words.format(file).split()
    began = commands.starter("start", "--task", "anything", "--detach", "--json", "--queue", "nobody", *given)
    handle = client.get_workflow_handle(json.loads(began.stdout)["task_id"])
    begun = (await handle.fetch_history()).events[0]
    await handle.terminate()
    payload = begun.workflow_execution_started_event_attributes.input.payloads[0]

    assert Task.model_validate_json(payload.data).limits == limits
    assert Task.model_validate_json('{"text": "by hand"}').limits == USUAL


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--settings", "none.toml"], "bad_settings", "There is no settings file 'none.toml'"),
        (["--usd", "nan"], "usage", "--usd must be a finite number"),
        (["--usd", "0"], "usage", "--usd must be more than 0"),
        (["--deadline", "-1"], "usage", "--deadline must be more than 0"),
    ],
)
def test_a_budget_that_cannot_be_used_is_said_before_anything_is_connected(
    commands: Processes, options: list[str], code: str, words: str
) -> None:
    """One sentence and exit code 2, without a server."""
    ended = commands.starter("start", "--task", "x", "--json", "--address", "localhost:1", *options)
    error: dict[str, Any] = json.loads(ended.stdout)["error"]

    assert (ended.returncode, error["code"]) == (2, code)
    assert error["reason"].startswith(words)


async def test_at_a_terminal_a_task_is_interactive_unless_nobody_waits(tmp_path: Path) -> None:
    """Both ends are a terminal, and what is written is for people."""
    with Terminal([sys.executable, "-c", PROFILE], {"PYTHONPATH": str(ROOT)}, tmp_path) as terminal:
        code = await terminal.ended()

    assert (code, terminal.shown.text) == (0, ["interactive", *["background"] * 3])


CLOSED = {"a pipe": [""], "closed": ["0<&-"], "empty": ["</dev/null"]}


@pytest.mark.parametrize("closed", sampled(CLOSED, "empty"))
def test_without_a_terminal_at_both_ends_nobody_waits(commands: Processes, closed: str) -> None:
    """A pipe, an empty input and a closed one are no person."""
    ended = commands.run(["sh", "-c", f'exec "$@" {closed} 2>/dev/null', "sh", sys.executable, "-c", PROFILE])

    assert ended.stdout.split() == ["background"] * 4
