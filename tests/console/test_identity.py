"""`--identity`: a person's own key signs at the console and in a program, and the worker decides by its people file."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from client.client import Client
from client.problem import Problem
from client.vouching import Voucher
from runtime.dev_server import DevServer
from runtime.people_file import KnownPeople, PeopleFile, Person, Signer
from tests.harness import Stage, outcome, staged
from tests.processes import Processes
from tests.workflows.history import Handle
from tests.workflows.test_agent_people import asked, waiting
from tests.workflows.test_approvers import NOW, PAID, paying, refunding
from workflows.account.task import TaskStatus
from workflows.agent import AgentWorkflow
from workflows.people.requests import HumanRequest


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    PAID.clear()


@dataclass
class Desk:
    """A worker with a people file, and people who have keys of their own."""

    folder: Path
    stage: Stage
    address: str
    keys: dict[str, Path] = field(default_factory=dict)

    async def typed(self, name: str, *words: str, **variables: str) -> tuple[int, str]:
        """What a person types with their key; nobody has the people file, unless a variable names it."""
        environment = {"REPLAN_QUEUE": self.stage.queue, "REPLAN_IDENTITY": str(self.keys[name]), **variables}
        done = await asyncio.to_thread(Processes(self.address, self.folder, environment).starter, *words)
        return done.returncode, done.stdout + done.stderr

    async def asking(self) -> tuple[Handle, HumanRequest]:
        handle = await self.stage.start(waiting())
        return handle, await asked(handle)


@asynccontextmanager
async def desk_of(client: TemporalClient, server: DevServer, folder: Path, **rule: object) -> AsyncIterator[Desk]:
    """Ann and cleo are in finance, bob is in sales."""
    keys = {name: folder / f"{name}.key" for name in ("ann", "bob", "cleo")}
    roles = {"ann": "finance", "bob": "sales", "cleo": "finance"}
    signers = {name: Signer.new(key, name, (roles[name],)) for name, key in keys.items()}
    rows = [Person(name=name, roles=(roles[name],), keys=(one.public_key(NOW),)) for name, one in signers.items()]
    PeopleFile(people=tuple(rows)).write(folder / "people.json")
    people = KnownPeople(folder / "people.json")
    async with staged(client, folder, refunding(**rule), paying(900), people=people) as stage:
        yield Desk(folder, stage, server.address, keys)


async def test_a_personal_key_approves_at_the_console(
    client: TemporalClient, server: DevServer, tmp_path: Path
) -> None:
    """Who has not the role is told so; who has a stale role in their key file is refused by the worker."""
    async with desk_of(client, server, tmp_path, by="role:finance") as desk:
        handle, _ = await desk.asking()
        wrong = await desk.typed("bob", "answer", handle.id, "approve")
        claims = await desk.typed("bob", "answer", handle.id, "approve", "--by", "ann")
        code, said = await desk.typed("ann", "answer", handle.id, "approve", "--json")
        ended = await outcome(handle)

    assert (wrong[0], "bob (sales) may not approve it: it needs a person with the role finance" in wrong[1]) == (
        1,
        True,
    )
    assert claims == (
        2,
        f"--by ann is not bob, whose key signs it ({desk.keys['bob']}): leave --by or --identity out.\n",
    )
    assert (code, json.loads(said)["by"]) == (0, "ann"), said
    given = ended.requests[0].answer
    assert given is not None and given.statement is not None
    assert (given.by, given.statement.how, len(PAID), ended.status) == ("ann", "key", 1, TaskStatus.COMPLETED)


async def test_a_key_file_states_roles_and_the_worker_has_the_last_word(
    client: TemporalClient, server: DevServer, tmp_path: Path
) -> None:
    """A role that bob writes into his key file passes the kind check of the task, and buys nothing."""
    async with desk_of(client, server, tmp_path, by="role:finance") as desk:
        handle, _ = await desk.asking()
        forged = json.loads(desk.keys["bob"].read_text()) | {"roles": ["finance"]}
        desk.keys["bob"].write_text(json.dumps(forged))
        code, said = await desk.typed("bob", "answer", handle.id, "approve")
        again = await asked(handle, 2)
        before = list(PAID)
        await desk.typed("cleo", "answer", handle.id, "approve")
        await outcome(handle)

    assert code == 0, said
    assert "bob (sales) may not approve it" in again.reason and before == []
    assert len(PAID) == 1


async def test_a_role_that_came_after_the_key_counts(client: TemporalClient, server: DevServer, tmp_path: Path) -> None:
    """With the people file beside it, the console states the roles of today."""
    async with desk_of(client, server, tmp_path, by="role:board") as desk:
        file = PeopleFile.read(tmp_path / "people.json")
        bob = file.person("bob")
        assert bob is not None
        file.with_rows(bob.model_copy(update={"roles": ("board",)})).write(tmp_path / "people.json")
        handle, _ = await desk.asking()
        stale = await desk.typed("bob", "answer", handle.id, "approve")
        today = await desk.typed("bob", "answer", handle.id, "approve", REPLAN_PEOPLE=str(tmp_path / "people.json"))
        await outcome(handle)

    assert (stale[0], today[0], len(PAID)) == (1, 0, 1), (stale, today)


async def test_a_task_says_who_started_it_and_they_cannot_approve_it(
    client: TemporalClient, server: DevServer, tmp_path: Path
) -> None:
    async with desk_of(client, server, tmp_path, by="role:finance", not_starter=True) as desk:
        code, said = await desk.typed(
            "ann", "start", "--task", "pay back", "--on-escalation", "wait", "--detach", "--json"
        )
        handle = desk.stage.client.get_workflow_handle_for(AgentWorkflow.run, json.loads(said)["task_id"])
        await asked(handle)
        own = await desk.typed("ann", "answer", handle.id, "approve")
        other = await desk.typed("cleo", "answer", handle.id, "approve")
        ended = await outcome(handle)

    assert code == 0 and ended.by == "ann"
    assert "ann started the task, and may not approve this call: another person must" in own[1]
    assert (own[0], other[0], len(PAID)) == (1, 0, 1), other


async def test_a_program_signs_with_an_identity(client: TemporalClient, server: DevServer, tmp_path: Path) -> None:
    """What it starts, answers and extends; a removed person's key is refused by the worker, whenever it was made."""
    async with desk_of(client, server, tmp_path, by="role:finance", not_starter=True) as desk:
        ann = await Client.connect(server.address, queue=desk.stage.queue, identity=desk.keys["ann"])
        cleo = await Client.connect(server.address, queue=desk.stage.queue, identity=str(desk.keys["cleo"]))
        task = await ann.start("pay back", on_escalation="wait")
        await asked(desk.stage.client.get_workflow_handle_for(AgentWorkflow.run, task.id))
        [request] = await task.requests()
        with pytest.raises(Problem, match="ann started the task"):
            await task.answer("approve", request=request)
        await task.extend(tool_calls=1, by="cleo")
        await (await cleo.task(task.id)).answer("approve", request=request)
        ended = await task.result()

    [extension] = ended.extensions
    assert extension.statement is not None and (extension.by, extension.statement.person) == ("ann", "ann")
    assert (ended.status, len(PAID)) == (TaskStatus.COMPLETED, 1)


@pytest.mark.parametrize(("changed", "why"), [("withdrawn", "was withdrawn at"), ("until", "may not answer any more")])
def test_with_the_people_file_a_key_that_ended_is_refused_at_once(tmp_path: Path, changed: str, why: str) -> None:
    signer = Signer.new(tmp_path / "ann.key", "ann")
    key = signer.public_key(NOW)
    ann = Person(name="ann", keys=(key,))
    ended = {
        "withdrawn": ann.model_copy(update={"keys": (key.model_copy(update={"withdrawn": NOW}),)}),
        "until": ann.model_copy(update={"until": NOW}),
    }
    PeopleFile(people=(ended[changed],)).write(tmp_path / "people.json")
    done = Processes("localhost:1", tmp_path, {"REPLAN_PEOPLE": str(tmp_path / "people.json")}).starter(
        "answer", "a-task", "retry", "--identity", str(tmp_path / "ann.key")
    )

    assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    assert Voucher.of_key(tmp_path / "ann.key").person == "ann"
