"""Who may answer, through which door: each person at each door with each answer that makes a call, as one table.

The doors are the API, the page, a program with a key of its own, the console, an Update of any Temporal client, and one
with a statement that was changed. What is forged in the header of a call is in tests/activities/test_approved.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import httpx2
import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

from client.client import Client as Replan
from client.problem import Problem
from extras.web.tests.serving import TOKEN, asked, path_of, standing
from extras.web.tests.test_people import Office, desk, office, queue, signed_in
from runtime.people_file import PeopleFile, Signer
from tests.processes import Processes

__all__ = ["desk", "office", "queue"]  # fixtures
MAY: Mapping[str, bool] = {
    "ann": True,
    "cleo": False,  # who started the task
    "bob": False,  # in sales
    "fay": False,  # has left
    "whole": False,  # a program
    "operator": False,  # a claim
}
"""By who answers, whether they may: a person in finance who did not start the task."""
ANSWERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "approve": ("refund", {}),
    "edit": ("refund", {"args": {"amount": 700}}),
    "provide": ("broken", {"result": {"amount": 900}}),
}
"""By answer, the tool whose call waits for it, and what is given with it."""


class Cell(NamedTuple):
    """An answer to a request of a task, by somebody."""

    who: str
    choice: str
    task: str
    request: Mapping[str, Any]
    given: Mapping[str, Any]

    @property
    def code(self) -> dict[str, str]:
        """What repeats the call that was shown; a result by hand repeats none."""
        return {} if self.choice == "provide" else {"call": self.request["call"]["code"]}


Door = Callable[[Office, Client, Cell], Awaitable[bool]]
"""Whether the answer was taken at this door."""


async def at_api(office: Office, _: Client, cell: Cell) -> bool:
    async with office.visit(cell.who, **({"x_user": "ann-as-claimed"} if cell.who == "operator" else {})) as program:
        body = {"choice": cell.choice, "request": cell.request["id"], **cell.code, **cell.given, "by": "ann"}
        return (await program.post(path_of(cell.task, "answers"), json=body)).status_code == 200


async def at_page(office: Office, _: Client, cell: Cell) -> bool:
    async with office.visit("") as browser:
        await signed_in(browser, TOKEN if cell.who == "operator" else office.tokens[cell.who], "ann")
        form = {**cell.code, "confirmed": "yes", "by": "ann"}
        form |= {"number.amount": "700"} if cell.choice == "edit" else {}
        form |= {"number.amount": "900", "result": '{"amount": 900}'} if cell.choice == "provide" else {}
        sent = await browser.post(f"/ui/tasks/{cell.task}/requests/{cell.request['id']}/{cell.choice}", data=form)
        return sent.status_code == 303 and "/login" not in sent.headers["location"]


async def in_program(office: Office, client: Client, cell: Cell) -> bool:
    """A program with the person's key, if the person has one; else with the name alone."""
    key = office.folder / f"{cell.who}.key"
    program = Replan(client, identity=key) if key.exists() else Replan(client)
    by = {} if key.exists() else {"by": "ann"}
    try:
        handle = await program.task(cell.task)
        await handle.answer(cell.choice, request=cell.request["id"], **cell.code, **cell.given, **by)
    except Problem:
        return False
    return True


async def at_console(office: Office, client: Client, cell: Cell) -> bool:
    key, address = office.folder / f"{cell.who}.key", client.service_client.config.target_host
    variables = {"REPLAN_IDENTITY": str(key)} if key.exists() else {}
    given = {"edit": ["--args", '{"amount": 700}'], "provide": ["--result", '{"amount": 900}']}.get(cell.choice, [])
    by = [] if key.exists() else ["--by", "ann"]
    words = ["answer", cell.task, cell.choice, "--request", str(cell.request["id"]), *given, *by]
    done = await asyncio.to_thread(Processes(address, office.folder, variables).starter, *words)
    return done.returncode == 0


async def by_update(_: Office, client: Client, cell: Cell) -> bool:
    """As the SDK of any language, the web UI or `temporal workflow update` sends it."""
    return await _updated(client, cell, {})


async def by_changed_statement(office: Office, client: Client, cell: Cell) -> bool:
    """With what the person said of another request, changed so that it fits this one."""
    signer = Signer.read(office.folder / "bob.key")
    now = cell.request["since"]
    about = {"person": "ann", "how": "token", "roles": ["finance"], "at": now, "until": "2999-01-01T00:00:00Z"}
    where = {"namespace": client.namespace, "task": cell.task, "run": "", "step": "p1"}
    said = {"request": cell.request["id"], "choice": cell.choice, "asked": now, "calls": [*cell.code.values()]}
    forged = {"key": signer.id, "signature": "A" * 88, **about, **where, **said}
    return await _updated(client, cell, {"statement": forged})


async def _updated(client: Client, cell: Cell, more: Mapping[str, Any]) -> bool:
    message = {"request": cell.request["id"], "by": "ann", **cell.code, **cell.given, **more}
    try:
        await client.get_workflow_handle(cell.task).execute_update(cell.choice, message)
    except WorkflowUpdateFailedError:
        return False
    return True


DOORS: Mapping[str, Door] = {
    "API": at_api,
    "page": at_page,
    "program": in_program,
    "console": at_console,
    "Update": by_update,
    "changed statement": by_changed_statement,
}
KNOWS_NOBODY = ("Update", "changed statement")
KEYS = ("ann", "bob", "cleo", "fay")
"""Who has a key, and so signs without a server."""


@pytest.fixture(scope="module")
async def house(desk: Office) -> Office:
    """The office, with keys for its people, and fay, who has left."""
    desk.person("fay", "finance")
    for name in KEYS:
        signer = Signer.new(desk.folder / f"{name}.key", name, ("finance",))
        desk.change(name, keys=(signer.public_key(await _now(desk)),))
    desk.change("fay", until=await _now(desk))
    return desk


async def _now(office: Office) -> Any:
    return PeopleFile.read(office.file).doors[0].keys[0].since


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("choice", ANSWERS)
@pytest.mark.parametrize("door", DOORS)
async def test_who_may_answer_may_and_nobody_else(house: Office, client: Client, door: str, choice: str) -> None:
    """At every door: those who may not buy nothing, and then the one who may does."""
    kind, given = ANSWERS[choice]
    # Below 500 the tool itself is called, and fails: then a result by hand stands for its call.
    plan = [{"id": "p1", "kind": kind, "args": {"amount": 100 if choice == "provide" else 900}}]
    async with house.visit("cleo") as cleo, house.visit("ann") as ann:
        body = {"text": "pay back", "plan": plan, "on_escalation": "wait"}
        task = str((await cleo.post("/tasks", json=body)).json()["task_id"])
        bought = dict[str, bool]()
        for who in sorted(MAY, key=lambda who: MAY[who]):
            request = await asked(ann, task)
            taken = await DOORS[door](house, client, Cell(who, choice, task, request, given))
            bought[who] = taken and await _is_bought(ann, task, request)
        document = await standing(ann, task, "waiting", "completed")

    expected = {who: may and door not in KNOWS_NOBODY for who, may in MAY.items()}
    assert bought == expected, (door, choice, document["requests"])


async def _is_bought(program: httpx2.AsyncClient, task: str, request: Mapping[str, Any]) -> bool:
    """Whether an answer that was taken did what it is for; if not, the task asks again.

    An edited call is asked for again in any case: with the other arguments, if the one who edited it may.
    """
    while True:
        now = await standing(program, task, "waiting", "completed")
        if now["status"] == "completed":
            return True
        opened = [one for one in now["requests"] if not one.get("answer")]
        if opened and opened[0]["id"] != request["id"]:
            return bool(opened[0].get("call", {}).get("args") == {"amount": 700})
        await asyncio.sleep(0.05)
