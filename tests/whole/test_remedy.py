"""A remedy is data: each door says it in the words of its readers, and names what there is."""

import inspect
import re
from typing import get_args

import pytest
from fastapi.routing import APIRoute

from client.client import Client, TaskHandle
from client.problem import Problem
from client.remedy import (
    Action,
    ActionOnTask,
    Argument,
    Door,
    Remedy,
    Text,
    as_command,
    in_python,
    render,
    start_worker,
)
from client.reset import Fate
from console.app import COMMANDS
from extras.web import api
from extras.web.remedies import as_request, on_page

ON_TASK = get_args(ActionOnTask)
ACTIONS = [one for part in get_args(Action) for one in get_args(part)]
EVERY = [Remedy(one, "order 1" if one in ON_TASK else "") for one in ACTIONS if one != "worker"]

BACK = Remedy("reset", "order 1", {"to": "book"})
HOW = {
    as_command: "`python starter.py reset 'order 1' --to book`",
    in_python: "`TaskHandle.reset(to='book')` of 'order 1'",
    as_request: "an operator's `python starter.py reset 'order 1' --to book`",
    on_page: "an operator's `python starter.py reset 'order 1' --to book`",
}
STOP = Remedy("cancel", "order 1", {"undo": True})
STOPS = {
    as_command: "`python starter.py cancel 'order 1' --undo`",
    in_python: "`TaskHandle.cancel(undo=True)` of 'order 1'",
    as_request: '`POST /tasks/order%201/cancel {"undo": true}`',
    on_page: "the form below",
}
MORE = {as_command: "--tool-calls", in_python: "tool_calls", as_request: "tool_calls", on_page: "Tool calls"}
CHOSEN = {as_command: "--undo", in_python: "fate='undo'", as_request: "fate='undo'", on_page: "fate"}
WORKER = dict.fromkeys((as_command, in_python), "`python worker.py --queue big`")
WORKERS = WORKER | dict.fromkeys((as_request, on_page), "an operator's `python worker.py --queue big`")


@pytest.mark.parametrize("door", HOW, ids=lambda door: door.__name__)
@pytest.mark.parametrize(
    ("part", "words"),
    [
        (BACK, HOW),
        (STOP, STOPS),
        (Argument("tool_calls"), MORE),
        (Argument("fate", Fate.UNDO), CHOSEN),
        (start_worker("big"), WORKERS),
    ],
    ids=["reset", "cancel", "argument", "value", "worker"],
)
def test_each_door_says_a_remedy_in_its_own_words(door: Door, part: Remedy | Argument, words: dict[Door, str]) -> None:
    """A command to copy, a method, a request, a place or a label; what only an operator can do is a command."""
    assert render(Text("see ", part, ", or wait"), door) == f"see {words[door]}, or wait"


def test_a_problem_is_a_sentence_for_a_program_and_has_its_remedies_as_data() -> None:
    """Its texts are plain str; a Text in a Text keeps its parts."""
    remedy = Text(Text(BACK, " goes on"), ", or ", STOP, " stops it")
    problem = Problem("x", "It cannot go on", remedy)

    assert str(problem) == f"It cannot go on: {HOW[in_python]} goes on, or {STOPS[in_python]} stops it."
    assert (
        problem.sentence(as_command) == f"It cannot go on: {HOW[as_command]} goes on, or {STOPS[as_command]} stops it."
    )
    assert (problem.remedies, isinstance(problem.remedy, str)) == ((BACK, STOP), True)
    assert Problem("x", "No", "wait").remedies == ()


def test_what_the_doors_name_exists() -> None:
    """Each command, each method of the client, and each path of the API."""
    methods = {f"{kind.__name__}.{name}" for kind in (Client, TaskHandle) for name, _ in inspect.getmembers(kind)}
    routes = [one for one in api.router.routes if isinstance(one, APIRoute)]
    paths = {(method, route.path) for route in routes for method in route.methods or ()}
    python = {found[1] for one in EVERY if (found := re.match(r"`((?:Client|TaskHandle)\.\w+)\(", in_python(one)))}
    http = {found.groups() for one in EVERY if (found := re.match(r"`(GET|POST) (\S+?)`", as_request(one)))}

    assert {one.action for one in EVERY} <= set(COMMANDS)
    assert len(python) > 7 and python <= methods
    assert len(http) > 5 and {(method, path.replace("order%201", "{id}")) for method, path in http} <= paths
