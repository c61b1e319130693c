"""docs/errors.md, docs/console.md and the JSON document: each code, command, option and key, and none that is gone."""

import ast
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest
import typer
from typer.main import get_command

import worker
from activities.effects import errors
from activities.effects.calls import State
from client import document
from client.explain import remedies
from client.follow import Silent
from client.problem import Problem, ProblemKind
from client.remedy import as_command, render
from client.task_document import task_fields
from console import app as application
from console.app import app
from console.entry import BROKEN_PIPE
from console.exits import OF_PROBLEM, Exit, exit_code
from tests.console.outcomes import RECEIPT, fault, outcome, step
from tests.documentation import sections, tables
from tests.processes import ROOT
from workflows.account.journal import TaskClosed
from workflows.account.outcome import Ending
from workflows.account.progress import Progress
from workflows.account.records import (
    Compaction,
    Failover,
    Pause,
    PlannerWait,
    Rejection,
    Revision,
    StepStatus,
    UndoRecord,
    WithheldCall,
)
from workflows.account.task import Task, TaskStatus
from workflows.faults import retries
from workflows.faults.decision import DECISIONS, Remaining, decide
from workflows.faults.fault import QUADRANT, Applied, Code, Fault, Quadrant
from workflows.limits import spending
from workflows.limits.budget import Limits
from workflows.people.approvers import Approvers
from workflows.people.requests import UNANSWERED, Choice, HumanAnswer, HumanRequest, ProposedCall, RequestKind
from workflows.planning.proposing import MAX_REJECTIONS
from workflows.plans.catalogue import Effect, ToolSpec
from workflows.plans.contract import AllowedEffect

ROOMS = ("workflows", "client", "console")
ENDS, PROBLEM = ("TaskEnded", "Ending"), "Problem"
"""What ends a task, and what ends a command, in the source."""

ERRORS = sections((ROOT / "docs" / "errors.md").read_text(encoding="utf-8"))
CONSOLE = sections((ROOT / "docs" / "console.md").read_text(encoding="utf-8"))
GROUP = {
    Quadrant.TRANSIENT_INFRASTRUCTURAL: "Transient, infrastructural: the service or the connection failed",
    Quadrant.TRANSIENT_SEMANTIC: "Transient, semantic: the service is busy",
    Quadrant.PERSISTENT_INFRASTRUCTURAL: "Persistent, infrastructural: the deployment is broken",
    Quadrant.PERSISTENT_SEMANTIC: "Persistent, semantic: the call is rejected",
}
FAULTS = {row[0]: row[1:] for group in GROUP.values() for row in tables(ERRORS[group])["code"]}
ENDINGS = {row[0]: row[1:] for row in tables(ERRORS["Endings of a task"])["code"]}
PROBLEMS = {row[0]: row[1:] for row in tables(ERRORS["Problems of a command"])["code"]}


class Said(NamedTuple):
    """A code in the source, and what stands beside it."""

    where: str
    code: str
    beside: str


LIMITS = {
    "limit": list(get_args(get_type_hints(spending.turn_limit_reached)["return"])),
    "execution.reached_limit": list(get_args(get_type_hints(spending.step_limit_reached)["return"])),
    "UNANSWERED": [UNANSWERED],
}
"""The codes that are computed, or defined elsewhere, by the names under which they end a task."""


def calls(name: str, *rooms: str) -> Iterator[tuple[ast.Module, ast.Call, str]]:
    """Each call of a name in some rooms, with its file as read and where it is."""
    for room in rooms:
        for file in [ROOT / room] if room.endswith(".py") else sorted((ROOT / room).rglob("*.py")):
            module = ast.parse(file.read_text(encoding="utf-8"))
            for node in ast.walk(module):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                    yield module, node, f"{file.relative_to(ROOT)}:{node.lineno}"


def literals(module: ast.Module, node: ast.expr) -> list[str]:
    """The strings that an expression may be; of a name, those that its file gives it."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp(body=body, orelse=orelse):
            return [*literals(module, body), *literals(module, orelse)]
        case ast.Name(id=name):
            given = [one.value for one in ast.walk(module) if isinstance(one, ast.Assign) and _names(one) == [name]]
            return [text for value in given for text in literals(module, value)]
        case _:
            return []


def _names(assignment: ast.Assign) -> list[str]:
    return [ast.unparse(target) for target in assignment.targets]


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """An argument of a call, however it is given."""
    named = next((one.value for one in call.keywords if one.arg == name), None)
    return call.args[position] if len(call.args) > position else named


@cache
def endings() -> list[Said]:
    """Every ending in the source that has a code of its own: one that is not a fault's."""
    found = list[Said]()
    for module, call, where in [one for name in ENDS for one in calls(name, *ROOMS)]:
        status, code = argument(call, 0, "status"), argument(call, 2, "code")
        texts = literals(module, code) if code is not None else []
        texts = texts or (LIMITS.get(ast.unparse(code), []) if code is not None else [])
        found += [Said(where, text, ast.unparse(status) if status else "") for text in texts]
    return [one for one in found if one.code not in set(Code)]


@cache
def problems() -> list[Said]:
    """Every problem in the source, with its exit code."""
    found = list[Said]()
    for module, call, where in calls(PROBLEM, *ROOMS):
        code, kind = argument(call, 0, "code"), argument(call, 3, "kind")
        texts = literals(module, code) if code is not None else []
        assert texts, f"{where}: the code of this Problem is no literal, so nobody can look for it"
        given = ast.unparse(kind) if kind else "ProblemKind.BAD_REQUEST"
        exits = {str(one): f"Exit.{OF_PROBLEM[one].name}" for one in ProblemKind}
        exit = exits.get(given.removeprefix("ProblemKind.").lower(), given)
        found += [Said(where, text, exit) for text in texts]
    return found


class Course(NamedTuple):
    """What follows a fault without effect, from the first attempt to the last way out."""

    retried: bool
    """By Temporal, within the same activity execution."""
    while_left: str
    """While attempts and patience are left."""
    used_up: str
    """When none are left."""
    no_fallback: str
    """When none are left and the kind has no fallback."""
    no_replan: str
    """When there is no fallback and no new plan is allowed."""


def course(code: Code) -> Course:
    """Ask the code that decides."""
    fault = Fault.of(code, "", uncounted=code is Code.WORKER_LOST)
    bare = ToolSpec(kind="x", effect=Effect.READ)
    covered = bare.model_copy(update={"fallback": "y"})
    some = Remaining(attempts=1, patience=60, losses=1)
    none = Remaining(attempts=0, patience=60, waited=60, losses=retries.MAX_LOSSES + 1)
    asked = ((covered, some), (covered, none), (bare, none), (bare, none.model_copy(update={"replans": False})))
    return Course(fault.retryable(), *(decide(fault, spec, left).action for spec, left in asked))


STANDARD, PATIENT = retries.PROFILES["standard"].attempts, retries.PROFILES["patient"].attempts
NEVER_COUNTED = "does not count as an attempt"
FOLLOWS = {
    Course(True, "wait", "fallback", "replan", "escalate"): (
        f'{STANDARD} attempts in all ({PATIENT} with `retry="patient"`)',
        f"over {retries.LONGEST_RETRY_AFTER:g} s",
    ),
    Course(False, "wait", "fallback", "replan", "escalate"): (
        f"a timer of {retries.circuit_wait(0):g} s doubling to {retries.circuit_wait(99) / 60:g} min",
        "No attempt is used",
    ),
    Course(True, "wait", "escalate", "escalate", "escalate"): (
        f"no heartbeat for {retries.HEARTBEAT.total_seconds():g} s",
        f"a timer of {retries.loss_wait(1):g} s, doubling. It {NEVER_COUNTED}",
        f"After {retries.MAX_LOSSES} of them in one step, a person",
    ),
    Course(False, "wait", "wait", "wait", "wait"): ("the same call at once", NEVER_COUNTED),
    Course(False, "wait", "escalate", "escalate", "escalate"): (
        f"timers for {retries.MISSING_TOOL_PATIENCE:g} s in all",
        "then a person",
    ),
    Course(False, "replan", "replan", "replan", "replan"): ("No retry.", "asks the planner for a new plan"),
    Course(False, "escalate", "escalate", "escalate", "escalate"): ("No retry and no new plan.", "(exit code 3)"),
}
"""What the page says of each course: of a group, or of a code in it that takes another one."""


@pytest.mark.parametrize("quadrant", Quadrant)
def test_every_fault_is_in_its_group(quadrant: Quadrant) -> None:
    """In the order of the enum, once."""
    rows = tables(ERRORS[GROUP[quadrant]])["code"]

    assert [row[0] for row in rows] == [code for code in Code if QUADRANT[code] is quadrant]


@pytest.mark.parametrize("code", Code)
def test_what_follows_a_fault_is_what_is_decided(code: Code) -> None:
    """The words of its group, or its own where it takes another course than the first of the group."""
    usual = next(one for one in Code if QUADRANT[one] is QUADRANT[code])
    group, own = ERRORS[GROUP[QUADRANT[code]]].partition("|")[0], FAULTS[code][0]
    said = own if "*Next:*" in own else " ".join(group.split())

    assert ("*Next:*" in own) == (course(code) != course(usual))
    assert [words for words in FOLLOWS[course(code)] if words not in said] == []


def test_every_code_of_the_gateway_is_explained() -> None:
    """Those of faults, and those that only calls without a task have; of a call, also each of its states."""
    rows = tables(ERRORS["Calls without a task"])["code"]
    explained = {code for row in rows for code in row[0].replace("`", "").split(", ")}
    files = (ROOT / "extras" / "gateway").glob("*.py")
    given = {
        word.value.value
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == "code" and isinstance(word.value, ast.Constant)
    }

    assert given - {*Code} <= explained
    assert {state.value for state in State} - {State.UNKNOWN} <= explained
    assert {row[1] for row in rows} - {"-"} <= {name for name in dir(errors) if name[0].isupper()}


def test_every_ending_and_every_problem_is_explained() -> None:
    """Each code that ends a task or a command, and none that is gone; each exit code, with that of a closed pipe."""
    for found, explained in ((endings(), ENDINGS), (problems(), PROBLEMS)):
        assert [one for one in found if one.code not in explained] == []
        assert set(explained) == {one.code for one in found}
    assert [int(code) for code, _ in tables(CONSOLE["Exit codes"])["code"]] == [*Exit, BROKEN_PIPE]


CLOSED = {"TaskStatus.FAILED", "TaskStatus.CANCELLED"}


@pytest.mark.parametrize("code", ENDINGS)
def test_an_ending_has_the_status_and_the_exit_code_that_the_page_names(code: str) -> None:
    """Wherever a task ends so; `closed` takes its status from the server, which client/tasks.py reads."""
    named = {TaskStatus(status): int(exit) for status, exit in re.findall(r"`(\w+)` \((\d)\)", ENDINGS[code][0])}
    said = {one.beside for one in endings() if one.code == code} if code != "closed" else CLOSED
    began, exits = datetime.fromtimestamp(0, UTC), {}
    for status in named:
        account = Progress(task=Task(text="any"), task_id="any", started_at=began)
        TaskClosed(at=began, ending=Ending(status=status, code=code)).apply(account)
        exits[status] = exit_code(account.outcome(began))

    assert said == {f"TaskStatus.{status.name}" for status in named}
    assert named == exits


def test_a_limit_of_an_ending_is_the_one_on_the_page() -> None:
    """Both count in a row."""
    for code, number in (("proposals_rejected", 1 + MAX_REJECTIONS), ("no_progress", Limits().fruitless)):
        assert re.search(rf"\b{number} .* in a row", ENDINGS[code][1])


def test_explain_and_the_page_name_the_same_remedy() -> None:
    """The last column; `explain` leaves out its links, and a new code cannot be forgotten."""
    pages = {code: re.sub(r" \(\[[^]]*\]\([^)]*\)\)", "", row[-1]) for code, row in {**FAULTS, **ENDINGS}.items()}
    found = [*remedies.OF_FAULT.items(), *remedies.OF_ENDING.items()]
    said = {str(code): render(does, as_command) for code, does in found}

    assert {code: pages[code] for code in said} == said
    assert (set(remedies.OF_FAULT), set(remedies.OF_ENDING)) == (set(Code), set(ENDINGS))


@pytest.mark.parametrize("code", PROBLEMS)
def test_a_problem_has_the_exit_codes_that_the_page_names(code: str) -> None:
    """Wherever it arises; of one that is computed, the page's word is taken."""
    said = {one.beside for one in problems() if one.code == code}
    named = {f"Exit.{Exit(int(exit)).name}" for exit in PROBLEMS[code][0].split(", ")}
    computed = {beside for beside in said if not beside.startswith("Exit.")}

    assert said - computed <= named
    assert computed or len(said) == len(named)


STARTING = {
    "ToolMistakes": "A tools file",
    "UnknownClass": "`--classify`",
    "BadBreak": "`--break`",
    "BadReach": "`--allow-host`",
    "BadReceiver": "`--notify`",
    "BadKeys": "`--keys`",
    "BadPeople": "`--people`",
    "BadSetting": "A folder",
    "BadSettings": "The settings file",
    "OtherStore": "The queue",
    "StoreUnavailable": "The store",
    "UnknownPlanner": "`--planner`",
    "Misconfigured": "An address",
    "NotConnected": "No server",
    "ServerUnavailable": "`--dev`",
    "RPCError": "The connection to the server broke",
}
"""How the page begins to tell of each exception that ends worker.py."""


def test_whatever_keeps_a_worker_from_starting_is_named() -> None:
    """With the exit code that worker.py gives it."""
    wanted = {STARTING[error.__name__]: Exit.BAD_USAGE for error in worker.BAD_USAGE}
    wanted |= {STARTING[error.__name__]: Exit.UNREACHABLE for error in worker.UNREACHABLE}
    rows = tables(ERRORS["When the worker does not start"])["what is wrong"]
    named = {begins: int(row[1]) for row in rows for begins in STARTING.values() if row[0].startswith(f"{begins} ")}

    assert named == wanted
    assert len(rows) == len(wanted)


ROOT_COMMAND: Any = get_command(app)  # Typer keeps the classes of its commands private
COMMANDS: dict[str, Any] = {name: application.load(name) for name in application.COMMANDS}
ON_STORE: list[Any] = [application.load_on_store(name) for name in application.ON_STORE]
COMMON = {row[0].split()[0] for row in tables(CONSOLE["The console"])["option"]}


def test_every_command_is_in_its_group() -> None:
    """In the order of `--help`."""
    by_group = groupby(application.COMMANDS.items(), key=lambda one: one[1].group)
    words = [word for group, members in by_group for word in (group, *(name for name, _ in members))]

    assert [heading for heading in CONSOLE if heading in words] == words
    others = {"The console", "Exit codes", "Without a server", "The JSON document", "Completion"}
    assert set(CONSOLE) == {*words, *others}


def taken(name: str, kind: str) -> list[Any]:
    return [one for one in COMMANDS[name].params if one.param_type_name == kind]


def default(parameter: Any) -> str:
    """As the page shows it; empty for a switch, and where none is."""
    shown = parameter.get_help_record(typer.Context(ROOT_COMMAND, resilient_parsing=True))
    return "".join(re.findall(r"default: ([^;\]]*)", shown[1] if shown else ""))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_argument_is_explained(name: str) -> None:
    """Under every name that it has, in the order of `--help`; those of all commands are explained once. Of an argument,
    how it is written and what it is; what an ID is stands at the beginning."""
    rows = {tuple(re.findall(r"(?<!\S)-[\w-]+", row[0])): row[1] for row in tables(CONSOLE[name]).get("option", [])}
    own = {tuple(sorted(one.opts, key=len)): default(one) for one in taken(name, "option") if one.opts[0] not in COMMON}
    arguments = [one.metavar if one.required else f"[{one.metavar}]" for one in taken(name, "argument")]
    explained = [row[0] for row in tables(CONSOLE[name]).get("argument", [])]

    assert list(rows) == list(own)
    assert {option: "".join(re.findall(r"\[default: (.*)]", meaning)) for option, meaning in rows.items()} == own
    if name not in ("keys", "people", "settle"):  # they need no server
        assert {option for one in taken(name, "option") for option in one.opts} >= COMMON
    assert not arguments or " ".join([f"`{name}", *arguments]) + "`:" in CONSOLE[name]
    assert explained == [one.metavar for one in taken(name, "argument") if one.metavar != "ID"]


def test_every_option_that_the_pages_name_exists() -> None:
    """Of a command or of the worker; those of `temporal` are not ours."""
    text = "".join([*ERRORS.values(), *CONSOLE.values()])
    named = re.findall(r"(?<![\w-])--[a-z][\w-]*", re.sub(r"`temporal .*?`", "", text))
    commands = [*COMMANDS.values(), *ON_STORE, get_command(app), get_command(worker.main)]

    assert set(named) <= {option for command in commands for one in command.params for option in one.opts}


def parts() -> dict[str, dict[str, Any]]:
    """Each kind of object in the JSON document of a task that has all of them, by its place."""
    refused = fault().model_copy(update={"words": "Sold out."})
    withheld = WithheldCall(step="book", kind="book_slot", args={})
    given = HumanAnswer(choice=Choice.RETRY, at=refused.at)
    calls = [ProposedCall(kind="book_slot", effect="transactional", code="1f0c", step=step) for step in ("", "second")]
    about: dict[str, Any] = {"id": "r1", "kind": "question", "code": "question", "reason": "Which?", "words": "Sold."}
    about |= {"choices": tuple(Choice), "since": refused.at, "until": refused.at, "options": ("a",), "closed": "ended"}
    about |= {"call": calls[0], "others": (calls[1],), "refused": "No.", "cause": "charge/unauthorized", "after": "1"}
    parts_of: dict[str, tuple[Any, ...]] = {
        "revisions": (Revision(number=1),),
        "undo": (UndoRecord(step_id="book"),),
        "compactions": (Compaction(turn=2, turns=1, planner="openai:x", tokens=9),),
        "failovers": (Failover(planner="openai:x", code="unauthorized", reason="No.", turn=1),),
        "rejections": (Rejection(turn=2, reasons=("No.",), steps=("book",), withheld=(withheld,)),),
        "requests": (HumanRequest(**about, approvers=Approvers(), needed=2, endorsed=(given,), answer=given),),
        "paused": (Pause(activity="a", kind="x", since=refused.at, by="ann", resume="it", deadline=refused.at),),
    }
    also: dict[str, Any] = {"waiting": PlannerWait(until=refused.at, code="overloaded", reason="Later."), "by": "dora"}
    also |= {"contract": (AllowedEffect(kind="pay"),), "extensions": (given,), "question_options": ("a",)}
    also |= {"result_misfit": "no JSON", "own_faults": (refused,), "limits": Limits()}
    also |= {"counts": {"retries": {"book_slot/busy": 1}}}
    whole = outcome(steps=(step(fault=refused, silent=1),), faults=(refused,), **also, **parts_of)
    told = json.loads(document.of_anything(task_fields(whole, RECEIPT, None, None)))
    listed = {f"{name}[]": told[name][0] for name in ("steps", "faults", *parts_of)}
    return {"key": told, **listed, "waiting": told["waiting"], "spent": told["spent"], "receipt": told["receipt"]}


DOCUMENT = tables(CONSOLE["The JSON document"])


@pytest.mark.parametrize(("place", "keys"), parts().items())
def test_every_key_of_the_document_is_explained(place: str, keys: dict[str, Any]) -> None:
    assert [row[0] for row in DOCUMENT[place]] == list(keys)


WORDS = [
    ("key", "status", TaskStatus),
    ("steps[]", "status", StepStatus),
    ("steps[]", "effect", Effect),
    ("faults[]", "quadrant", Quadrant),
    ("faults[]", "applied", Applied),
    ("requests[]", "kind", RequestKind),
    ("requests[]", "choices", Choice),
    ("faults[]", "decision", [name for name, words in DECISIONS.items() if words.is_recorded]),
]


@pytest.mark.parametrize(("place", "key", "words"), WORDS)
def test_the_words_of_a_key_are_those_that_it_may_have(place: str, key: str, words: Any) -> None:
    """From a closed list each."""
    assert re.findall(r"`(\w+)`", dict(DOCUMENT[place])[key]) == list(words)


def test_every_event_is_explained() -> None:
    """Those that the source writes or returns, by name or by who is silent."""
    found = [*calls("self._write_line", "console/render/views.py"), *calls("document.of_event", "console/entry.py")]
    written = {text for module, call, _ in found for text in literals(module, call.args[0])}
    events = ast.parse((ROOT / "client" / "events.py").read_text(encoding="utf-8"))
    returned = [one.value for one in ast.walk(events) if isinstance(one, ast.Return)]
    names = [one.elts[0] for one in returned if isinstance(one, ast.Tuple)]
    written |= {str(one.value) for one in names if isinstance(one, ast.Constant)}

    assert {row[0] for row in DOCUMENT["event"]} == {*written, *Silent}


TASK = """
schema task_id run_id task status reason code result question planner strategy revisions replans steps faults omitted
undo compactions failovers rejections requests is_tainted spent started_at ended_at ui_url receipt
"""
OF_RECEIPT = ["wasted", "helped", "not_helped", "replayed", "reconciled", "not_made", "paid"]


def test_the_keys_of_a_task_are_a_promise() -> None:
    """A key may be added at the end of its group, none may go: programs of others read them."""
    told = json.loads(document.of_anything(task_fields(outcome(), RECEIPT, "a-run", "http://localhost:8233/x")))

    assert [list(told), list(told["receipt"])] == [TASK.split(), OF_RECEIPT]
    assert list(told["receipt"]["wasted"]) == ["number", "events"]
    assert list(told["receipt"]["paid"]["planning"]) == ["tokens", "usd", "events"]


def test_a_problem_and_a_detached_task_have_documents_of_their_own() -> None:
    """The first has one shape for every command; the other has what a program needs to come back to the task."""
    problem = Problem("unknown_id", "There is no task 'x' here", "check the id")
    error = {"code": "unknown_id", "reason": "There is no task 'x' here", "remedy": "check the id"}
    begun = {"schema": 1, "task_id": "an-id", "run_id": "a-run", "status": "running", "ui_url": None}

    assert json.loads(document.of_problem(problem, as_command)) == {"schema": 1, "error": error}
    assert json.loads(document.of_start("an-id", "a-run", None)) == begun


@pytest.mark.parametrize("char", ["\u202e", "\x9b", "\x7f", "\u200f", "\u2028", "\U000e0001", "\ud800"], ids=ascii)
def test_what_draws_is_escaped(char: str) -> None:
    """Nothing reaches a terminal that moves or turns, and programs read the same value."""
    text = document.of_anything({f"a{char}": [f"{char}ü"]})

    assert char not in text and "ü" in text
    assert json.loads(text)[f"a{char}"] == [f"{char}ü"]


def test_foreign_letters_stay_readable() -> None:
    """No escapes where none are needed, and line breaks inside a string never break the document."""
    text = document.of_anything(task_fields(outcome(result="Größe 😀\n\x1b[31m"), RECEIPT, None, None))

    assert "Größe 😀" in text and "\x1b" not in text


EXITS = {"running": 0, "waiting": 3, "completed": 0, "escalated": 3, "over_budget": 4, "cancelled": 5, "failed": 1}


def test_the_exit_code_says_how_a_task_stands() -> None:
    """Scripts branch on it; a plan file or a folder with a mistake is the caller's to mend."""
    refused = [exit_code(outcome(status=TaskStatus.FAILED, code=code)) for code in ("plan_refused", "task_refused")]

    assert {status: exit_code(outcome(status=status)) for status in TaskStatus if status in EXITS} == EXITS
    assert refused == [Exit.BAD_USAGE] * 2
