"""A row of a table is seen on every screen, and docs/architecture.md says which files change for a new one."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from console.commands import extend
from tests.documentation import sections
from tests.processes import PATIENCE, ROOT
from workflows.limits.budget import LIMITS, Amounts, Limits
from workflows.people.requests import CHOICES, Choice

ROOMS = ("activities", "client", "console", "extras", "replan", "runtime", "workflows")
PEOPLE = {
    '    EXTEND = "extend"\n': '    EXTEND = "extend"\n    HOLD = "hold"\n',
    "class ChoiceRow(": """class GivenHold(GivenWithCode):
    until: Annotated[Words, Option("when it is released", '"Monday"')] = ""
    loudly: Annotated[bool, Option("tell everybody", "true", "switch")] = False


class ChoiceRow(""",
    "CHOICES: Mapping[Choice, ChoiceRow] = {\n": """CHOICES: Mapping[Choice, ChoiceRow] = {
    Choice.HOLD: ChoiceRow(GivenHold, "Hold it", "keep it until it is released", needs_option=True, ends_task=True),
""",
}
BUDGET = {
    "    deadline: float | None": "    watts: int | None = Field(default=9, ge=1)\n    deadline: float | None",
    "LIMITS: Mapping[str, LimitRow] = {\n": """LIMITS: Mapping[str, LimitRow] = {
    "watts": LimitRow("watt", "5", why="It was dark after {count}.", remedy="Buy some with `{option}`."),
""",
    "    tool_calls: Annotated[": """    watts: Annotated[int, LIMITS["watts"].option] = Field(default=0, ge=0)
    tool_calls: Annotated[""",
}
"""A new row of each table, by the text of its only file that it replaces."""
SCREENS = """
import json
from datetime import UTC, datetime
from temporalio import workflow
from activities.notification import body
from client.explain import remedies
from client.remedy import as_command, render
from console import answers
from console.app import load
from console.commands.answer import ANSWERS
from console.render import requests
from extras.web.page import cards, rendering
from extras.web.api import Extension, NewAnswer
from extras.web.remedies import FIELDS
from workflows.agent import AgentWorkflow
from workflows.limits.budget import LIMITS, Limits
from workflows.people.card import Asker
from workflows.people.notifications import Event, Notification
from workflows.people.requests import Choice, HumanRequest, ProposedCall, RequestKind
from workflows.limits.spending import limit_message

now = datetime(2026, 11, 25, tzinfo=UTC)
updates = workflow._Definition.must_from_class(AgentWorkflow).updates

def shown(kind, code, choice):
    given = {"kind": RequestKind(kind), "code": code, "since": now, "until": now}
    given["choices"] = (Choice(choice), Choice.ABORT)
    call = ProposedCall(kind="pay", effect="keyed", args={"amount": 900}, code="1f0c")
    task = Asker("t", "a task")
    request = HumanRequest(id="r1", reason="Which?", call=call if kind == "approval" else None, **given)
    told = Notification(id="n", event=Event.OPENED, at=now, task="t", queue="q", request="r1", step=None, **given)
    card = rendering.environment().get_template("request.html").module.shown(cards.card_of(task, request, None, None))
    return {
        "terminal": requests.choices(request, task, is_alone=True),
        "prompt": [*answers.typed_answers(request), answers.text_option(request, Choice(choice)).asks],
        "page": str(card),
        "field": FIELDS.get(code, ""),
        "web UI": updates[choice].description,
        "notification": json.loads(body(told, "default"))["data"]["commands"],
        "help": {one.opts[0]: getattr(one, "help", "") for name in ("answer", "extend") for one in load(name).params},
        "answers": ANSWERS,
        "api": [*NewAnswer.model_fields, *Extension.model_fields],
        "remedy": render(remedies.OF_ENDING.get(code, ""), as_command),
        "ending": limit_message(Limits(), code) if code in LIMITS else "",
    }

requests_shown = {"hold": shown("approval", "approval", "hold"), "watts": shown("budget", "watts", "extend")}
print(json.dumps({"file": cards.__file__, **requests_shown}))
"""
"""Prints what each screen shows of a request that takes the new choice, and of one about the new limit."""


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What SCREENS prints in a copy of the product in which each table has one more row, and nothing else changed."""
    folder = tmp_path_factory.mktemp("changed")
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room)  # with what is compiled, which saves seconds
    for file, edits in {"people/requests.py": PEOPLE, "limits/budget.py": BUDGET}.items():
        path = folder / "workflows" / file
        text = path.read_text()
        for old, new in edits.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path.write_text(text)
    command, environment = [sys.executable, "-c", SCREENS], {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    assert shown["file"].startswith(str(folder))
    return shown


def test_a_new_choice_is_on_every_screen(screens: dict[str, Any]) -> None:
    shown = screens["hold"]

    assert shown["terminal"][-4:-2] == [
        "    python starter.py answer t hold --until TEXT [--loudly]",
        "        keep it until it is released",
    ]
    assert shown["prompt"] == ["hold", "abort", "hold --loudly", "abort --undo", "when it is released"]
    for part in ("<summary>Hold it</summary>", 'name="until"', 'name="loudly"', "When it is released", 'value="1f0c"'):
        assert part in shown["page"].partition("<summary>End the task")[0]
    assert shown["web UI"] == (
        'Keep it until it is released. Argument: {"call": CODE, "until": "Monday", "loudly": true}. '
        "The details show CODE."
    )
    assert shown["notification"]["hold"] == "python starter.py answer t"
    assert shown["help"]["--until"] == "With hold: when it is released."
    assert shown["help"]["--loudly"] == "With hold: tell everybody."
    assert "hold" in shown["answers"] and {"until", "loudly"} <= set(shown["api"])


def test_a_new_limit_is_on_every_screen(screens: dict[str, Any]) -> None:
    shown = screens["watts"]

    assert "    python starter.py extend t --watts +5" in shown["terminal"]
    assert shown["prompt"][-1] == "how many watts more, e.g. +5"
    assert '<label>How many watts more <input name="watts" value="5"' in shown["page"]
    assert shown["field"] == "Watts"
    assert '"watts": 5,' in shown["web UI"]
    assert shown["notification"]["extend"] == "python starter.py extend t --request r1 --watts +5"
    assert shown["help"]["--watts"] == "How many watts more, e.g. +5."
    assert "watts" in shown["api"]
    assert shown["remedy"] == "Buy some with `--watts`."
    assert shown["ending"] == "All 9 watts are used up: give more, e.g. --watts 18."


def test_the_tables_are_complete() -> None:
    assert set(CHOICES) == set(Choice)
    assert set(LIMITS) == set(Limits.model_fields) - {"fruitless"}
    assert {name for name, limit in LIMITS.items() if limit.example} == set(Amounts.model_fields)
    assert [one.name for one in extend.OPTIONS] == list(Amounts.model_fields)


LISTS: Mapping[str, int | None] = {"A choice": 3, "A limit": None, "A decision": 5, "A field of the Outcome": 3}
"""By heading of docs/architecture.md, the most files that a new row may touch; None for any number."""


@pytest.mark.parametrize("heading", LISTS)
def test_the_files_that_a_new_row_touches_exist(heading: str) -> None:
    below = sections((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))[heading]
    files = re.findall(r"`(\w+(?:/\w+)+\.(?:py|md))`", below)

    assert files and [file for file in files if not (ROOT / file).is_file()] == []
    assert len(files) <= (LISTS[heading] or len(files))
