"""docs/errors.md: every fault, every ending, every problem."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from console.outcome import exit_code
from console.problem import Exit
from console.reference.endings import ENDINGS
from console.reference.entry import cell, filled
from console.reference.faults import FAULTS
from console.reference.following import WORDS, Course, course
from console.reference.problems import PROBLEMS
from console.reference.starting import STARTING
from workflows.faults import QUADRANT, Code, Quadrant
from workflows.outcome import Ending
from workflows.progress import Progress
from workflows.task import Task, TaskStatus

INTRODUCTION = """\
# Errors

<!-- Generated: python -m console.reference errors > docs/errors.md -->

Whatever goes wrong has a code, and each code has its place here. `python starter.py explain ID` tells what became of it
in one task.

- [Faults of a step](#faults-of-a-step): `faults[].code` and `steps[].fault.code` of the
  [JSON document](console.md#the-json-document).
- [Endings of a task](#endings-of-a-task): its `code`, beside `status`.
- [Problems of a command](#problems-of-a-command): `error.code`.
- [When the worker does not start](#when-the-worker-does-not-start)
"""
FAULTS_BEGIN = """\
## Faults of a step

Four cells; the cell decides what follows. One rule comes before: when nobody knows whether a call changed the world
(`"effect": "unknown"`), it is not planned around, and it is made again only where that is safe: by its key, by the
ledger, or because twice is the same as once. When its attempts are used up, and at once for `@tool.unkeyed`, the tool's
`reconcile=` finds out: what had happened is the result of the step, what had not may be done. Where nobody can tell, a
person looks (`python starter.py effects ID` has the key). [guarantees.md](guarantees.md) says what holds when.
"""
CELLS: Mapping[Quadrant, str] = {
    Quadrant.TRANSIENT_INFRASTRUCTURAL: "Transient, infrastructural: the way to the tool failed",
    Quadrant.TRANSIENT_SEMANTIC: "Transient, semantic: the tool says later",
    Quadrant.PERSISTENT_INFRASTRUCTURAL: "Persistent, infrastructural: the deployment is broken",
    Quadrant.PERSISTENT_SEMANTIC: "Persistent, semantic: the world says no",
}
ENDINGS_BEGIN = """\
## Endings of a task

A completed task has no code. One that a fault ended has the fault's code: `escalated` where a person must act, and
`failed` where a `call` was refused, which has no plan to change. All others:
"""
PROBLEMS_BEGIN = """\
## Problems of a command

A command that cannot do what was asked says why and what to do, in one sentence on stderr or, with `--json`, as
`{"schema": 1, "error": {"code", "reason", "remedy"}}`.
"""
STARTING_BEGIN = """\
## When the worker does not start

It says why and what to do in one sentence on stderr.

| What is wrong | Exit code | Remedy |
|---|---|---|"""


def page() -> str:
    """The page, from the enums and their words."""
    parts = (INTRODUCTION, FAULTS_BEGIN, *_faults(), ENDINGS_BEGIN, *_endings(), PROBLEMS_BEGIN, *_problems())
    return "\n".join((*parts, STARTING_BEGIN, *_starting())) + "\n"


def _faults() -> Iterator[str]:
    above: Course | None = None
    for quadrant, title in CELLS.items():
        codes = [code for code in Code if QUADRANT[code] is quadrant]
        usual = course(codes[0])
        follows = "The same." if usual == above else WORDS[usual]
        above = usual
        yield from (f"### {title}\n", filled(f"*What follows:* {follows}"), "")
        for code in codes:
            entry, own = FAULTS[code], course(code)
            other = "" if own == usual else f" *What follows:* {WORDS[own]}"
            yield from (f"#### {code}\n", filled(f"{entry.means}{other} *Do:* {entry.do}"), "")


def _endings() -> Iterator[str]:
    for code, ended in ENDINGS.items():
        stands = " or ".join(f"`{status}` (exit code {_exit(status, code):d})" for status in ended.statuses)
        yield from (f"### {code}\n", filled(f"{ended.means} *Status:* {stands}. *Do:* {ended.do}"), "")


def _exit(status: TaskStatus, code: str) -> Exit:
    began = datetime.fromtimestamp(0, UTC)
    account = Progress(task=Task(text="any"), task_id="any", started_at=began)
    account.end(Ending(status=status, code=code), began)
    return exit_code(account.outcome(began))


def _problems() -> Iterator[str]:
    for code, stopped in PROBLEMS.items():
        exits = " or ".join(str(int(exit)) for exit in stopped.exits)
        yield from (f"### error {code}\n", filled(f"{stopped.means} *Exit code* {exits}."), "")


def _starting() -> Iterator[str]:
    for exit, (means, do) in STARTING.values():
        yield f"| {cell(means)} | {exit:d} | {cell(do)} |"
