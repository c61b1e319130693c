"""`start --dry-run` and plans by hand: what is shown and checked, that it can be run unchanged, and what comes next."""

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.client import Client, WorkflowExecutionStatus

from activities.boundary.interceptor import HeaderInterceptor
from activities.planning.activities import Planning
from activities.planning.planner import Planner, ScriptedPlanner
from activities.toolbox import builtin
from activities.toolbox.declare.kind import Kind
from activities.toolbox.registry import Registry
from client import document
from client.problem import Problem
from client.start import build_task, read_plan
from console.commands import dry_run
from runtime import serve
from runtime.dev_server import DevServer
from tests.gate import needs_extra, sampled
from tests.harness import DONE, plan, step
from tests.processes import ROOT, Processes
from workflows.account.outcome import Ending
from workflows.account.task import Task, TaskStatus
from workflows.calls.interceptor import CallInterceptor
from workflows.inquiries import ApprovalNeed, Draft, InspectWorkflow
from workflows.planning.situation import Situation
from workflows.plans.catalogue import CompanionSpec, Effect, ToolSpec
from workflows.plans.proposal import Answer, GiveUp, NewSteps, Question, Step
from workflows.task_queues import control_queue

QUEUE = "dry-run"
TASK = "book a slot for the team at 15:00, then list the documents about returns and calculate 18% of 2450"


@pytest.fixture(scope="module")
def desk(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(server.address, tmp_path_factory.mktemp("dry-run"))
    with processes.worker("--desk", "--queue", QUEUE, "--documents", str(ROOT / "examples")):
        yield processes


def starter(processes: Processes, *words: str, queue: str = QUEUE) -> tuple[int, str, str]:
    """Run a command of the console on a queue: exit code, stdout, stderr."""
    done = processes.starter(*words, "--queue", queue)
    return done.returncode, done.stdout, done.stderr


@needs_extra("web")
def test_a_condition_is_evaluated_for_the_arguments_that_are_known(server: DevServer, tmp_path: Path) -> None:
    """Where it needs the result of another step, a person may be asked. `tools KIND` says when a tool asks."""
    steps = [
        {"id": "small", "kind": "charge", "args": {"amount": 5}},
        {"id": "large", "kind": "charge", "args": {"amount": 501}},
        {"id": "open", "kind": "charge", "args": {"amount": {"$from": "small", "path": "id"}}},
    ]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"steps": steps}))
    processes, tools = Processes(server.address, tmp_path), str(ROOT / "extras" / "web" / "tests" / "tools.py")
    with processes.worker("--queue", "asks", "--tools", tools):
        code, said, _ = starter(processes, "start", "--plan", str(file), "--dry-run", "--json", queue="asks")
        _, tool, _ = starter(processes, "tools", "charge", queue="asks")

    asks = {id: effects["approval"]["asks"] for id, effects in json.loads(said)["effects"].items()}
    assert (code, asks) == (0, {"small": "no", "large": "yes", "open": "may"})
    assert "  asks a person before a call if the amount is above 500\n" in tool


def test_the_plan_is_shown_and_nothing_is_run(desk: Processes) -> None:
    """The steps, what they change, the sum; afterwards nothing is booked. `--dry-run --json > FILE`, then `--plan
    FILE`, runs the same steps, and the task has its words."""
    code, said, errors = starter(desk, "start", "--task", TASK, "--dry-run")
    _, booked, _ = starter(desk, "call", "list_bookings", '{"name": "team"}')
    _, document, _ = starter(desk, "--task", TASK, "--documents", "documents", "--dry-run", "--json")
    (file := desk.folder / "plan.json").write_text(document)
    ended, ran, _ = starter(desk, "--plan", str(file), "--json")
    shown, outcome = json.loads(document), json.loads(ran)

    assert (code, errors, said.splitlines()[0]) == (0, "", "The plan of the offline planner")
    assert said.splitlines()[-1].startswith("3 steps: 1 changes the world (book), each can be undone by hand; ")
    assert '"bookings": []' in booked
    assert (ended, outcome["status"], outcome["task"], outcome["replans"]) == (0, "completed", TASK, 0)
    assert [one["id"] for one in outcome["steps"]] == [one["id"] for one in shown["steps"]]


def written(*steps: dict[str, Any]) -> dict[str, Any]:
    """A plan of steps with the ids a and b."""
    return {"steps": [{"id": id, **given} for id, given in zip("ab", steps, strict=False)]}


SHORT, ADDS = {"kind": "summarise", "args": {"text": "x"}}, {"kind": "calculate", "args": {"expression": "1+1"}}
REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "kind": (written({"kind": "sumarise"}), (), "there is no kind 'sumarise': did you mean summarise?"),
    "reference": (
        written({"kind": "summarise", "args": {"text": {"$from": "b"}}}),
        (),
        "step 'a' needs 'b', which does not exist",
    ),
    "argument": (written({"kind": "summarise", "args": {"text": "x", "limt": 3}}), (), "has no argument 'limt'"),
    "circle": (written({**SHORT, "needs": ["a"]}), (), "steps need each other in a circle"),
    "budget": (written(ADDS, ADDS), ("--tool-calls", "1"), "2 steps, but only 1 tool calls are left"),
}


@pytest.mark.parametrize(("plan", "more", "words"), sampled(REFUSED, "kind", "circle", "budget"))
def test_a_hand_written_plan_is_checked_as_when_it_is_run(
    desk: Processes, plan: dict[str, Any], more: tuple[str, ...], words: str
) -> None:
    """Bad usage, with the reason; nothing is run."""
    file = desk.folder / "wrong.json"
    file.write_text(json.dumps(plan))
    code, said, errors = starter(desk, "--plan", str(file), "--dry-run", *more)

    assert (code, errors) == (2, "")
    assert said.startswith("The plan was rejected: ") and words in said and said.endswith("Nothing was run\n")


def test_a_task_that_has_no_plan_is_refused(desk: Processes) -> None:
    """One that is not understood: the planner's reason, exit code 1, as a document with the same. And one whose folder
    of documents is not there."""
    code, said, _ = starter(desk, "--task", "make me a sandwich", "--dry-run")
    coded, document, _ = starter(desk, "--task", "make me a sandwich", "--dry-run", "--json")
    folder, nowhere, _ = starter(desk, "--task", TASK, "--documents", "nowhere", "--dry-run")

    assert (code, coded, folder) == (1, 1, 2)
    assert said.startswith("The offline planner gives up: 'make me a sandwich' is not")
    assert (json.loads(document)["code"], json.loads(document)["steps"]) == ("gave_up", [])
    assert nowhere.startswith("There is no folder 'nowhere' below the worker's documents")


@asynccontextmanager
async def planning(client: Client, planner: Planner) -> AsyncIterator[str]:
    """The queue of a worker that plans and does nothing else."""
    queue = f"planning-{uuid.uuid4().hex[:8]}"
    activities = Planning(planner, Registry(builtin.tools(has_model=False)), searchable=True).activities()
    interceptors = [CallInterceptor(), HeaderInterceptor()]
    worker = serve.build(client, queue, workflows=[InspectWorkflow], activities=activities, interceptors=interceptors)
    async with worker:
        yield queue


UNKNOWN = plan(step("a", "no_such_kind"))
GOOD = plan(step("a", "calculate", expression="1+1"))
SCRIPTS: dict[str, tuple[Sequence[NewSteps | Answer | Question | GiveUp], int, str]] = {
    "answer": ([Answer(result="42")], 0, "The scripted planner answers at once; nothing was run\n42\n"),
    "question": ([Question(text="Which day?")], 3, "The planner asks: Which day?\nNothing was run\n"),
    "mended": ([UNKNOWN, GOOD], 0, "1 step: none changes the world; nothing was run\n"),
    "rejected": ([UNKNOWN] * 3, 3, "The planner made 3 proposals that cannot be run; the last: "),
}


async def test_whatever_the_planner_proposes_is_shown(client: Client, desk: Processes) -> None:
    """With the exit code that the task would have had; a proposal that cannot be run goes back, twice at the most."""
    for script, code, words in SCRIPTS.values():
        async with planning(client, ScriptedPlanner(script)) as queue:
            ended, said, errors = await asyncio.to_thread(starter, desk, "--task", "x", "--dry-run", queue=queue)

        assert (ended, errors, words in said) == (code, "", True), said


class Slow:
    """Thinks for longer than a worker may take to begin."""

    name = "slow"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Answer:
        await asyncio.sleep(self.seconds)
        return Answer(result="at last")


@pytest.mark.full
async def test_a_slow_planner_is_waited_for(client: Client, desk: Processes) -> None:
    """A worker that has begun is there."""
    async with planning(client, Slow(6)) as queue:
        code, said, errors = await asyncio.to_thread(starter, desk, "--task", "x", "--dry-run", queue=queue)

    assert (code, said.splitlines()[-1]) == (0, "at last")
    assert errors == "still waiting for the planner; Ctrl-C stops asking\n"


async def ended_in(client: Client, queue: str) -> WorkflowExecutionStatus | None:
    """How the one question on a queue ended, as soon as the server lists it."""
    async with asyncio.timeout(20):
        while True:
            async for one in client.list_workflows(
                f"TaskQueue = '{control_queue(queue)}' AND ExecutionStatus != 'Running'"
            ):
                return one.status
            await asyncio.sleep(0.2)


@pytest.mark.full
async def test_ctrl_c_withdraws_the_question(client: Client, desk: Processes) -> None:
    """Exit code 130, no traceback, and the planner need not think any longer."""
    async with planning(client, Slow(60)) as queue:
        command = [str(ROOT / "starter.py"), "--task", "x", "--dry-run", "--queue", queue]
        environment = {**os.environ, "TEMPORAL_ADDRESS": desk.address}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        waiting = await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said, errors = await process.communicate()

        assert (process.returncode, said, errors, waiting[:5]) == (130, b"", b"", b"still")
        assert await ended_in(client, queue) is WorkflowExecutionStatus.TERMINATED


@pytest.mark.full
async def test_without_a_worker_nobody_is_asked_later(client: Client, desk: Processes) -> None:
    """One sentence, exit code 6, and no question stays behind for which a planner would work when nobody listens."""
    queue = f"nobody-{uuid.uuid4().hex[:8]}"
    code, said, errors = await asyncio.to_thread(starter, desk, "--task", "x", "--dry-run", queue=queue)

    assert (code, said, errors.count("\n")) == (6, "", 1) and f"No worker answers on queue {queue}: " in errors
    assert await ended_in(client, queue) is WorkflowExecutionStatus.TERMINATED


DETACHED = {
    "nobody said": (("--approve", "effects"), True),
    "all": (("--approve", "all"), True),
    "said": (("--approve", "effects", "--on-escalation", "end"), False),
    "waits": (("--approve", "effects", "--on-escalation", "wait"), False),
    "declared": ((), False),
}


@pytest.mark.parametrize(("options", "is_warned"), sampled(DETACHED, "nobody said", "waits"))
def test_where_nobody_is_asked_it_is_said_that_the_task_will_end(
    desk: Processes, options: Sequence[str], is_warned: bool
) -> None:
    """With `--approve` a person shall be asked, so the option that lets the task wait is named."""
    code, said, errors = starter(desk, "start", "--task", TASK, "--detach", *options)

    assert (code, errors.count("\n"), "`--on-escalation wait`" in errors) == (0, is_warned, is_warned)
    assert "started" in said


MISSING = {"id": "first", "kind": "cancel_booking", "args": {"booking": 999_999}}
SUM = {"id": "then", "kind": "calculate", "args": {"expression": "1 + 1"}}


def task_of(folder: Path, written: object, **options: Any) -> Task:
    """The task that a plan file asks for."""
    file = folder / "plan.json"
    file.write_text(json.dumps(written))
    return build_task(plan=file, **options)


STEP = {"id": "a", "kind": "x"}
OTHER = {"id": "b", "kind": "x"}


@pytest.mark.parametrize(
    "written",
    [
        {"steps": [STEP], "revisions": [{"steps": [OTHER]}, {"type": "answer", "result": "done"}]},
        [{"type": "steps", "steps": [STEP]}, {"type": "steps", "steps": [OTHER]}, {"type": "answer", "result": "done"}],
    ],
    ids=["plan file", "script"],
)
def test_a_plan_file_carries_what_comes_next(tmp_path: Path, written: object) -> None:
    """Beside its steps, or as the list of proposals that a scripted planner takes; all of it may be used. Three plans
    for rejections are three replans, although nobody gives a number."""
    task = task_of(tmp_path, written)
    later = {"steps": [STEP], "revisions": [{"steps": [OTHER]}] * 3 + [DONE.model_dump(mode="json")]}
    limits = [task_of(tmp_path, later, limits=given).limits for given in ({}, {"replans": 1})]

    assert task.plan == (step("a", "x"),)
    assert task.revisions == (plan(step("b", "x")), Answer(result="done"))
    assert [(one.replans, one.fruitless) for one in limits] == [(3, None), (1, None)]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"steps": [STEP], "revisions": [{"result": "done"}]}, "'revisions.0' does not say which of its forms it has"),
        ({"steps": [STEP], "revisions": [{"steps": [{"id": "b"}]}]}, "'revisions.0.steps.steps.0.kind' is missing"),
        ([{"type": "answer", "result": "done"}], "is not usable: the file must be "),
        ([], "is not usable: the file must be "),
    ],
)
def test_what_is_no_revision_is_a_sentence(tmp_path: Path, written: object, says: str) -> None:
    """Where it is, and what to write."""
    with pytest.raises(Problem) as wrong:
        task_of(tmp_path, written)

    assert says in wrong.value.reason
    assert (wrong.value.code, '"revisions"' in wrong.value.remedy) == ("bad_plan", True)


def test_the_next_plan_of_the_file_follows_a_rejection(desk: Processes) -> None:
    """The record, the live view and `explain` say that a person wrote both; no planner was asked for a plan. A person
    may write the end, too: then `explain` has the reason."""
    file = desk.folder / "next.json"
    file.write_text(json.dumps({"steps": [MISSING], "revisions": [{"steps": [SUM]}]}))
    _, followed, _ = starter(desk, "--plan", str(file), "--id", "written", "--again")
    _, said, _ = starter(desk, "show", "written", "--json")
    _, why, _ = starter(desk, "explain", "written")
    outcome = json.loads(said)
    file.write_text(json.dumps([{"steps": [MISSING]}, {"type": "give_up", "reason": "Then not."}]))
    code, _, _ = starter(desk, "--plan", str(file), "--id", "ended", "--again")
    _, ended, _ = starter(desk, "explain", "ended")

    assert (outcome["status"], outcome["planner"], outcome["replans"]) == ("completed", "by hand", 1)
    assert [one["planner"] for one in outcome["revisions"]] == ["by hand", "by hand"]
    assert "written  planned by hand" in followed
    assert "The next plan was written by hand: plan 2 " in " ".join(why.split())
    assert "1 planning call" not in why
    assert (code, "The task ended as failed: Then not." in " ".join(ended.split())) == (1, True)


def test_a_dry_run_checks_and_keeps_the_revisions(desk: Processes) -> None:
    """Its JSON works for `--plan`, with all of them; a mistake in one of them is told."""
    file, shown = desk.folder / "dry.json", desk.folder / "shown.json"
    file.write_text(json.dumps({"steps": [MISSING], "revisions": [{"steps": [SUM]}]}))
    code, said, _ = starter(desk, "--plan", str(file), "--dry-run")
    _, shown_json, _ = starter(desk, "--plan", str(file), "--dry-run", "--json")
    shown.write_text(shown_json)
    file.write_text(json.dumps([{"steps": [MISSING]}, {"steps": [{"id": "then", "kind": "calcluate"}]}]))
    wrong, refused, _ = starter(desk, "--plan", str(file), "--dry-run")

    assert (code, "1 revision for what comes next" in said) == (0, True)
    assert build_task(plan=shown).revisions[0].type == "steps"
    assert (wrong, "revisions.0: step 'then': there is no kind 'calcluate'" in refused) == (2, True)


UNDO = CompanionSpec(kind="back")
SPECS = {
    "look": ToolSpec(kind="look", effect=Effect.READ, retry="once"),
    "book": ToolSpec(kind="book", effect=Effect.TRANSACTIONAL, undo=UNDO, observe=CompanionSpec(kind="look")),
    "mail": ToolSpec(kind="mail", effect=Effect.UNKEYED, fallback="letter", retry="patient"),
    "wire": ToolSpec(kind="wire", effect=Effect.KEYED, approve="always"),
    "pay": ToolSpec(kind="pay", effect=Effect.KEYED, approve="args.amount > 500"),
}
ASKED_FOR = Task(text="do it", documents="papers")


def drafted(*steps: Step, because: str = "") -> Draft:
    return Draft(planner="offline", proposal=plan(*steps, because=because), specs=SPECS)


def lines(found: Draft, task: Task = ASKED_FOR) -> list[str]:
    return dry_run.draft_lines(task, found, dry_run.ending_of(found))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"$from": "hits"}, "hits"),
        ({"$from": "hits", "path": "documents.0.name"}, "hits.documents[0].name"),
        ({"$from": "hits", "path": "0"}, "hits[0]"),
        ("hits.name", '"hits.name"'),
        (["a", {"$from": "hits", "path": "n"}, 1.5, None], '["a", hits.n, 1.5, null]'),
        ({"to": {"$from": "who"}, "cc": []}, '{"to": who, "cc": []}'),
        ({"$from": "hits", "more": 1}, '{"$from": "hits", "more": 1}'),
        ("\x1b[31m", '"\\u001b[31m"'),
    ],
)
def test_an_argument_is_shown_so_that_a_reference_reads_like_one(value: JsonValue, words: str) -> None:
    """As JSON, but for references, which are no text in quotes; what would draw on the terminal is spelt out."""
    assert dry_run.shown_value(value) == words


def test_steps_are_shown_in_the_order_of_their_needs() -> None:
    """However they were written; those that could start together stay in the order of the plan."""
    steps = [step("c", "look", "b"), step("b", "look", text={"$from": "a"}), step("d", "look"), step("a", "look")]

    assert [one.id for one in dry_run.in_order(steps)] == ["d", "a", "b", "c"]


def test_a_step_says_what_it_may_do() -> None:
    """Its effect, the way back, the look after a refusal, what takes over, how often it is tried, what it needs. The
    planner comes first, with its reason, or that somebody wrote the plan; programs get the same by the step's id."""
    found = drafted(
        step("b", "book"), step("m", "mail", "b", to="x"), step("l", "look"), because="It is enough\nto look."
    )
    told, written = lines(found), lines(found, Task(text="x", plan=(step("l", "look"),)))
    effects = json.loads(json.dumps(dry_run.draft_fields(ASKED_FOR, found, dry_run.ending_of(found))["effects"]))

    assert told[:2] == ["The plan of the offline planner", "    It is enough to look."]
    assert written[0] == "The plan as it was written"
    for words in (
        "changes the world (transactional); back would undo it (by hand); look observes after a rejection",
        "after b; changes the world (unkeyed); cannot be undone; letter takes over",
        "reads only; one attempt",
        "8 attempts (patient)",
    ):
        assert any(words in line for line in told), words
    companions = {"undo": None, "observe": None, "fallback": "letter"}
    retries = {"retry": "patient", "attempts": 8, "approval": {"asks": "no", "why": ""}}
    assert effects["m"] == {"effect": "unkeyed", "changes_world": True, **companions, **retries}


SUMS = [
    (["look"], "1 step: none changes the world; nothing was run"),
    (["look", "book"], "2 steps: 1 changes the world (s1), each can be undone by hand; nothing was run"),
    (["book", "book"], "2 steps: 2 change the world (s0, s1), each can be undone by hand; nothing was run"),
    (
        ["book", "look", "mail"],
        "3 steps: 2 change the world (s0, s2), 1 of these cannot be undone (s2); nothing was run",
    ),
]


@pytest.mark.parametrize(("kinds", "words"), SUMS)
def test_the_last_line_counts(kinds: list[str], words: str) -> None:
    """Which steps change the world and for which there is no way back."""
    assert lines(drafted(*(step(f"s{number}", kind) for number, kind in enumerate(kinds))))[-1] == words


YES, NO = ApprovalNeed(asks="yes", why="the amount is above 500"), ApprovalNeed(asks="no")
ASKED = [
    ("look", None, "declared", None),
    ("look", None, "effects", None),
    ("look", None, "all", "asks a person: the task asks before each call"),
    ("book", None, "effects", "asks a person: the task asks before each call that changes something"),
    ("wire", None, "declared", "asks a person: the tool asks before each call"),
    ("pay", YES, "declared", "asks a person: the amount is above 500"),
    ("pay", YES, "all", "asks a person: the amount is above 500"),
    ("pay", NO, "declared", None),
    ("pay", NO, "effects", "asks a person: the task asks before each call that changes something"),
    ("pay", None, "declared", "may ask a person: if args.amount > 500"),
]


@pytest.mark.parametrize(("kind", "declared", "approve", "words"), ASKED)
def test_it_is_said_which_calls_a_person_is_asked_about(
    kind: str, declared: ApprovalNeed | None, approve: str, words: str | None
) -> None:
    """With the reason, in the lines and in the document: the tool declares it, or the task asks for it."""
    task = Task.model_validate({"text": "x", "approve": approve})
    draft = drafted(step("a", kind)).model_copy(update={"approvals": {"a": declared} if declared else {}})
    *told, last = lines(draft, task)
    approval = dry_run.draft_fields(task, draft, dry_run.ending_of(draft))["effects"]["a"]["approval"]

    assert [line.strip() for line in told if "a person" in line] == ([words] if words else [])
    assert {"yes": "1 asks a person (a)", "may": "1 may ask a person (a)", "no": "; nothing"}[approval["asks"]] in last
    assert (approval["why"] in (words or "")) and ("ask" in last) == bool(words)


REJECTED = Ending(status=TaskStatus.FAILED, reason="The plan was rejected: x.", code="c")
ENDINGS: list[tuple[dict[str, Any], str, str]] = [
    ({"proposal": Answer(result="42")}, "completed", "The p planner answers at once; nothing was run\n42"),
    ({"proposal": Answer(result={"a": 1})}, "completed", '{"a":1}'),
    ({"proposal": Question(text="Which\nday?")}, "escalated", "The planner asks: Which day?"),
    ({"proposal": GiveUp(reason="Too hard.")}, "failed", "The p planner gives up: Too hard."),
    ({"ending": REJECTED}, "failed", "The plan was rejected: x."),
]


@pytest.mark.parametrize(("more", "status", "words"), ENDINGS)
def test_where_there_is_no_plan_it_is_said_why(more: dict[str, Any], status: str, words: str) -> None:
    """An answer, a question, a planner that gives up, a refusal; each on one line, and that nothing was run."""
    found = Draft(planner="p", **more)
    told = "\n".join(lines(found))

    assert dry_run.ending_of(found).status == status and "nothing was run" in told.lower() and words in told


def test_control_characters_of_a_plan_do_not_reach_the_terminal() -> None:
    """Titles, reasons and texts come from a model."""
    evil = Step(id="l", kind="look", title="a\x1b[31mb\nc", args={"x\x1b": "\x07"})
    told = "".join(lines(drafted(evil, because="\x1b]0;title\x07")))

    assert all(char.isprintable() for char in told)


def test_the_document_is_a_plan_file(tmp_path: Path) -> None:
    """As it was printed; task and documents go with it, and every field of a step."""
    found = drafted(step("b", "book", text={"$from": "l"}), Step(id="l", kind="look", title="Look"))
    file = tmp_path / "plan.json"
    file.write_text(document.of_anything(dry_run.draft_fields(ASKED_FOR, found, dry_run.ending_of(found))))
    read = read_plan(file)

    assert (read.steps, read.task, read.documents) == (dry_run.proposed(found), "do it", "papers")
