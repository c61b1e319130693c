"""The log: what the code logs is in the table of events, the page says the same, and repeated lines are counted."""

import ast
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import pytest

from runtime.repeated_lines import OncePer
from runtime.telemetry import COMMON, IDS
from tests.documentation import tables
from tests.log_events import EVENTS
from tests.log_lines import Fields
from tests.processes import ROOT
from tests.workflows.test_rooms import SOURCES, calls, named, tree

OF_OTHERS = ("replan/faults_plugin.py",)
"""Files that write into the log of a worker of somebody else; docs/faults.md tells of their lines."""
OF_ENTRIES = (
    "workflows/account/journal.py",
    "workflows/account/entries_of_steps.py",
    "workflows/account/entries_of_people.py",
    "workflows/people/requests.py",
)
"""Files with entries of a journal, whose lines `Progress.apply` writes."""
LEVELS = ("log", "debug", "info", "warning", "error", "critical", "exception")


class Logged(NamedTuple):
    where: str
    logger: str
    level: str
    event: str
    fields: frozenset[str]
    """The fields that are named where the line is written."""


def _logger_of(module: ast.Module) -> str:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "structlog.get_logger":
            return str(ast.literal_eval(node.args[0]))
    return ""


def logged() -> Iterator[Logged]:
    for file in (file for file in SOURCES if named(file) not in OF_OTHERS):
        module = tree(file)
        for name, call in calls(file):
            owner, _, level = name.rpartition(".")
            events = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if owner in ("log", "workflow.logger") and level in LEVELS and events:
                fields = frozenset(filter(None, (one.arg for one in call.keywords))) - {"extra"}
                logger = _logger_of(module) if owner == "log" else "replan.workflow"
                yield Logged(f"{named(file)}:{call.lineno}", logger, level, events[0], fields)
        if named(file) in OF_ENTRIES:
            yield from _of_entries(file)


def _of_entries(file: Path) -> Iterator[Logged]:
    for node in ast.walk(tree(file)):
        pair = node.value if isinstance(node, ast.Yield | ast.Return) else None
        if isinstance(pair, ast.Tuple) and isinstance(first := pair.elts[0], ast.Constant) and first.value in EVENTS:
            fields = frozenset(name for name in _names(pair.elts[1]) if isinstance(name, str))
            yield Logged(named(file), "replan.workflow", "info", str(first.value), fields)


def _names(fields: ast.expr) -> Sequence[object]:
    keys = fields.keys if isinstance(fields, ast.Dict) else ()
    return [key.value for key in keys if isinstance(key, ast.Constant)]


def test_what_the_code_logs_is_in_the_table_and_nothing_else() -> None:
    """Events, their loggers, levels and fields; without an event that nobody writes."""
    found = list(logged())
    wrong = [
        one
        for one in found
        if one.event not in EVENTS
        or one.logger != EVENTS[one.event].logger
        or one.level not in ("log", *EVENTS[one.event].levels.split())
        or not one.fields <= {*EVENTS[one.event].fields}
    ]

    assert wrong == []
    assert {one.event for one in found} == {*EVENTS}


def test_each_field_has_an_event_and_each_event_only_known_fields() -> None:
    """A name that is in no line would be documented for nothing."""
    used = {name for event in EVENTS.values() for name in event.fields} | {*COMMON}

    assert used == {*_fields()} and {*IDS} <= used


def test_the_page_says_what_is_in_the_table() -> None:
    found = tables((ROOT / "docs" / "observability.md").read_text(encoding="utf-8"))
    events = [
        [name, one.levels.replace(" ", ", "), _in_page([own for own in one.fields if own not in IDS])]
        for name, one in EVENTS.items()
    ]
    fields = [[name, one.__metadata__[0].description] for name, one in _fields().items()]

    assert [[name, levels, own] for name, levels, _, own in found["event"]] == events
    assert all(meaning for _, _, meaning, _ in found["event"])
    assert found["field"] == fields


def _in_page(names: Sequence[str]) -> str:
    quoted = ", ".join(f"`{name}`" for name in names)
    return quoted if len(names) > 1 else quoted.strip("`")


def _fields() -> dict[str, Any]:
    return get_type_hints(Fields, include_extras=True)


def records(*given: tuple[str, str]) -> list[logging.LogRecord]:
    return [logging.LogRecord("asyncio", logging.ERROR, __file__, 1, words, (more,), None) for words, more in given]


def passed(filter: OncePer, *given: tuple[str, str]) -> list[str]:
    return [one.getMessage() for one in records(*given) if filter.filter(one)]


def test_equal_lines_are_written_once() -> None:
    """They are equal if they differ only in what is inserted, or below the first line."""
    given = [(f"no files for %s\nsocket {number}", str(number)) for number in range(1000)]

    assert passed(OncePer(), *given, ("other %s", "line")) == ["no files for 0\nsocket 0", "other line"]


def test_the_next_line_says_how_many_were_left_out() -> None:
    """After its time, so that nobody takes a thousand for one."""
    once = OncePer(seconds=0.0)
    once._passed["asyncio", "full %s", type(None), None] = (0.0, 41)

    assert passed(once, ("full %s", "now")) == ["full now (41 more such lines were left out)"]


def test_faults_of_different_places_are_different_lines() -> None:
    """A traceback of another line of code is not left out because of one that was written."""
    once = OncePer()
    faults = [raised(json.loads, "{"), raised(json.loads, "{,"), raised([].pop)]
    found = [once.filter(failed(one)) for fault in faults for one in (fault, fault)]

    assert found == [True, False, False, False, True, False]


def raised(code: Callable[..., Any], *given: str) -> Exception:
    """What the code raises."""
    with pytest.raises(Exception) as caught:
        code(*given)
    return caught.value


def failed(error: Exception) -> logging.LogRecord:
    caused = (type(error), error, error.__traceback__)
    return logging.LogRecord("uvicorn.error", logging.ERROR, __file__, 1, "Exception", (), caused)


def test_what_is_remembered_is_bounded() -> None:
    once = OncePer()
    for number in range(5000):
        once.filter(*records((f"{number} %s", "")))

    assert len(once._passed) <= 1000
