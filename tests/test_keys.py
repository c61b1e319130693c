"""A keyring: what it encrypts is found nowhere without it and is read everywhere with it; keys are rotated."""

import asyncio
import json
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.converter import WorkflowSerializationContext

from runtime.dev_server import DevServer
from runtime.keys import BadKeys, KeyMissing, Keyring, add_key, load_codec, read_keys
from tests.processes import Processes
from tests.test_encryption import Sealing

COLOUR = "vermilion"
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=f'"{COLOUR}"'.encode())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    add_key(tmp_path / "replan.keys")
    return tmp_path / "replan.keys"


async def test_the_first_key_writes_and_all_read(file: Path) -> None:
    old = Keyring(read_keys(file), "default")
    [before] = await old.encode([PLAIN])
    new_id = add_key(file)
    new = Keyring(read_keys(file), "default")
    [after] = await new.encode([PLAIN])

    assert (new.ids[0], after.metadata["replan-key"].decode()) == (new_id, new_id)
    assert await new.decode([before, after, PLAIN]) == [PLAIN] * 3
    assert COLOUR.encode() not in before.data + after.data
    with pytest.raises(KeyMissing, match=new_id):
        await old.decode([after])


async def test_what_was_changed_or_belongs_elsewhere_is_not_read(file: Path) -> None:
    keys = read_keys(file)
    ring = Keyring(keys, "default")
    [sealed] = await ring.encode([PLAIN])
    changed = Payload(metadata=sealed.metadata, data=sealed.data[:-1] + bytes([sealed.data[-1] ^ 1]))
    renamed = Payload(metadata={**sealed.metadata, "replan-key": b"other"}, data=sealed.data)
    for found, reader in (
        (changed, ring),
        (sealed, Keyring(keys, "elsewhere")),
        (renamed, Keyring({"other": next(iter(keys.values()))}, "default")),
    ):
        with pytest.raises(KeyMissing):
            await reader.decode([found])


def test_texts_of_the_store_are_read_as_they_were_written(file: Path) -> None:
    """Also one that was written in clear, and only begins as a sealed one does."""
    ring = Keyring(read_keys(file))
    clear = ["", "words", "replan-key:", "replan-key:a: b", "replan-key:a:AAA"]

    assert [ring.open(text) for text in clear] == clear
    assert [ring.open(ring.seal(text)) for text in clear] == clear


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no key"),
        ("k1", "is no key"),
        ("k1 !!", "no Base64"),
        ("k1 AAAA", "has 3 bytes"),
        (f"k1 {'A' * 43}=\nk1 {'A' * 43}=", "repeats the id"),
    ],
)
def test_a_file_that_is_no_keyring_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """With its line and what to do, and without the key."""
    (tmp_path / "k").write_text(text)
    with pytest.raises(BadKeys, match=said):
        read_keys(tmp_path / "k")


@pytest.mark.parametrize(("mode", "is_refused"), [(0o600, False), (0o644, False), (0o620, True), (0o602, True)])
def test_a_keyring_that_others_can_write_is_refused(file: Path, mode: int, is_refused: bool) -> None:
    """They could put a key of their own into it. It may be readable by others: `keys check` says so."""
    file.chmod(mode)
    if not is_refused:
        assert read_keys(file)
        return
    for use in (read_keys, add_key):
        with pytest.raises(BadKeys, match="Others can write the keyring") as refused:
            use(file)

        assert refused.value.remedy == f"`chmod go-w {file}`"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_keyring_of_another_user_is_refused(file: Path) -> None:
    os.chown(file, 12345, -1)
    with pytest.raises(BadKeys, match="belongs to the user 12345, who can change it"):
        read_keys(file)


def test_a_new_key_keeps_owner_and_mode_of_the_file(file: Path, tmp_path: Path) -> None:
    """A group that could read the keyring still can. A new file is for its owner alone; a link stays a link."""
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    file.chmod(0o640)
    os.chown(file, -1, 12345 if os.geteuid() == 0 else -1)
    before = file.stat()
    link = tmp_path / "link.keys"
    link.symlink_to(file)
    add_key(link)
    after = file.stat()

    assert link.is_symlink() and len(read_keys(file)) == 2
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert sorted(tmp_path.iterdir()) == [link, file]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.at_all:CODEC", "cannot be loaded (ModuleNotFoundError"),
        ("json:CODEC", "cannot be loaded (AttributeError"),
        ("json:JSONDecoder", "is no PayloadCodec"),
        ("json", "cannot be loaded"),
    ],
)
def test_what_is_no_codec_is_refused(name: str, said: str) -> None:
    with pytest.raises(BadKeys, match=re.escape(said)) as refused:
        load_codec(name)

    assert name in refused.value.reason


async def test_a_codec_from_before_is_read_beside_the_keyring(file: Path) -> None:
    context = WorkflowSerializationContext(namespace="default", workflow_id="w")
    [boxed] = await Sealing().with_context(context).encode([PLAIN])
    both = Keyring(read_keys(file), "default", Sealing()).with_context(context)
    [sealed] = await both.encode([PLAIN])

    assert sealed.metadata["encoding"] == b"binary/replan-encrypted"
    assert await both.decode([boxed, PLAIN, sealed]) == [PLAIN] * 3
    with pytest.raises(ValueError, match="This was changed"):
        await both.with_context(WorkflowSerializationContext(namespace="default", workflow_id="v")).decode([boxed])


TOOLS = '''
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from replan import Key, NeedsPerson, Refused, tool

class Words(BaseModel):
    words: str

@tool.read
async def echo(args: Words) -> Words:
    """Say it again."""
    return args

@tool.keyed
def slow(args: Words, key: Key) -> Words:
    """Say it again, later."""
    with Path(__file__).with_name("begun").open("a") as begun:
        begun.write("x")
    time.sleep(1)
    return args

@tool.read
async def refuse(args: Words) -> Words:
    """Say no."""
    raise Refused(f"It is {args.words}.", observed={"colour": args.words})

@tool.read
async def stuck(args: Words) -> Words:
    """Ask for a person."""
    raise NeedsPerson(f"Nobody mixes {args.words}.")
'''
WORKER = ("--planner", "offline")


class Place:
    def __init__(self, server: DevServer, folder: Path) -> None:
        self.colour = f"vermilion-{secrets.token_hex(4)}"
        self.server = server
        self.keys, self.given = folder / "replan.keys", folder / "given"
        self.folder = folder / "processes"
        self.folder.mkdir()
        self.given.mkdir()
        add_key(self.keys)
        (self.given / "tools.py").write_text(TOOLS)
        queue = f"keys-{secrets.token_hex(4)}"
        self._environment = {"XDG_CACHE_HOME": str(folder / "cache"), "REPLAN_QUEUE": queue}
        self.blind = self.with_keys(None)
        self.seeing = self.with_keys(self.keys)
        self.worker = (*WORKER, "--tools", str(self.given / "tools.py"))

    def with_keys(self, keys: Path | None) -> Processes:
        named = {"REPLAN_KEYS": str(keys)} if keys else {}
        return Processes(self.server.address, self.folder, {**self._environment, **named})

    def without_newest_key(self) -> Path:
        """The keyring as it was before its newest key, which is made now."""
        older = self.keys.with_name(f"older-{secrets.token_hex(2)}.keys")
        older.write_bytes(self.keys.read_bytes())
        add_key(self.keys)
        return older

    def plan(self, *kinds: str) -> str:
        steps = [{"id": kind, "kind": kind, "args": {"words": self.colour}} for kind in kinds]
        path = self.given / f"plan-{'-'.join(kinds)}.json"
        path.write_text(json.dumps({"task": f"paint in {self.colour}", "steps": steps, "options": {}}))
        return str(path)

    def begin(self, processes: Processes, *kinds: str) -> str:
        words = ("start", "--plan", self.plan(*kinds), "--on-escalation", "wait", "--detach", "--json")
        started = processes.starter(*words)
        assert started.returncode in (0, 3), started.stderr
        return str(json.loads(started.stdout)["task_id"])

    def until_asked(self, task: str) -> None:
        """Wait until a task asks."""
        while "stuck" not in self.seeing.starter("answer", task).stdout:
            pass

    def end(self, task: str) -> tuple[str, list[object]]:
        document = json.loads(self.seeing.starter("show", task, "--follow", "--json").stdout)
        return document["status"], [step["result"] for step in document["steps"]]

    def holders(self) -> list[str]:
        files = [path for folder in (self.folder, self.server.spec.folder) for path in folder.rglob("*")]
        return [str(path) for path in files if path.is_file() and self.colour.encode() in path.read_bytes()]


@pytest.fixture
def place(server: DevServer, tmp_path: Path) -> Place:
    return Place(server, tmp_path)


def test_planted_secrets_are_found_nowhere(place: Place) -> None:
    """In no byte of database, store, state folder and logs; with the key they are shown, without it not.

    `test_planted` looks at all places. A worker without the key does not start on the store, and says why.
    """
    with place.seeing.worker(*place.worker):
        done = place.seeing.starter("start", "--plan", place.plan("echo", "refuse"), "--json")
        task = json.loads(done.stdout)["task_id"]
        explained = place.seeing.starter("explain", task)
        blind = place.blind.starter("show", task)
        clear = [
            place.blind.starter(*words, "--json") for words in (("start", "--plan", place.plan("echo")), ("tools",))
        ]
    with pytest.raises(AssertionError, match="was written with the key"), place.blind.worker(*WORKER):
        pass

    assert place.holders() == []
    assert [json.loads(one.stdout)["error"]["code"] for one in clear] == ["no_key", "no_key"]
    assert place.colour in done.stdout and place.colour in explained.stdout
    assert "encrypted" in blind.stdout and place.colour not in blind.stdout + blind.stderr


@pytest.mark.full
def test_keys_are_rotated_under_open_tasks(place: Place) -> None:
    with place.blind.worker(*place.worker):
        tasks = [place.begin(place.blind, "stuck")]
    for _ in range(2):
        with place.seeing.worker(*place.worker):
            tasks.append(place.begin(place.seeing, "stuck"))
            place.until_asked(tasks[-1])
        add_key(place.keys)
    with place.seeing.worker(*place.worker):
        answers = [place.seeing.starter("answer", id, "provide", "--result", '{"words": "x"}') for id in tasks]
        ends = [place.end(task) for task in tasks]

    assert [one.returncode for one in answers] == [0, 0, 0], answers
    assert ends == [("completed", [{"words": "x"}])] * 3


@pytest.mark.full
def test_a_kill_while_keys_are_rotated_loses_no_task(place: Place) -> None:
    """Workers with and without the new key serve at once: some workflow tasks and calls wait for the one with the key.

    The old one is killed in the middle of a step, after the new one has started, and then the new one.
    """
    lacking = place.with_keys(place.without_newest_key())
    with lacking.worker(*place.worker) as first:
        waiting = place.begin(lacking, "stuck")
        place.until_asked(waiting)
        tasks = [place.begin(lacking, "slow")]
        while not (place.given / "begun").exists():
            pass
        with place.seeing.worker(*place.worker) as second:
            tasks += [place.begin(place.seeing, "slow", "echo") for _ in range(6)]
            time.sleep(5)
            tasks.append(place.begin(place.seeing, "slow", "echo"))
            first.kill()
            tasks.append(place.begin(place.seeing, "slow"))
            time.sleep(0.5)
            second.kill()
    with place.seeing.worker(*place.worker):
        place.seeing.starter("answer", waiting, "provide", "--result", '{"words": "x"}')
        ends, last = [place.end(task) for task in tasks], place.end(waiting)

    assert [status for status, _ in ends] == ["completed"] * 9
    assert all(result == {"words": place.colour} for _, results in ends for result in results)
    assert last == ("completed", [{"words": "x"}])


@pytest.mark.full
async def test_a_lost_key_ends_no_task(place: Place, client: Client) -> None:
    """A worker without it serves the queue neither with its store nor with a new one; with it the tasks end."""
    lost = place.keys.with_name("lost.keys")
    with place.seeing.worker(*place.worker):
        task = place.begin(place.seeing, "stuck")
        place.until_asked(task)
    add_key(lost)
    other = place.with_keys(lost)
    with pytest.raises(AssertionError, match="was written with the key"), other.worker(*place.worker):
        pass
    elsewhere = str(place.folder / "elsewhere")
    with pytest.raises(AssertionError, match="has the store"), other.worker(*place.worker, "--state", elsewhere):
        pass
    fresh = place.begin(place.seeing, "echo")
    stands = [(await client.get_workflow_handle(id).describe()).status for id in (task, fresh)]
    with place.seeing.worker(*place.worker):
        place.seeing.starter("answer", task, "provide", "--result", '{"words": "x"}')
        ends = [place.end(fresh), place.end(task)]

    assert stands == [WorkflowExecutionStatus.RUNNING] * 2
    assert ends == [("completed", [{"words": place.colour}]), ("completed", [{"words": "x"}])]


async def forge(thief: Client, queue: str, waiting: str) -> list[str]:
    """What somebody without the key sends: answers and Signals to a task, and starts; the ids of the started tasks."""
    handle = thief.get_workflow_handle(waiting)
    for choice, sent in (("provide", {"result": {"words": "FORGED"}}), ("abort", {}), ("retry", None)):
        with suppress(WorkflowUpdateFailedError, TimeoutError):
            await asyncio.wait_for(handle.execute_update(choice, args=[sent] if sent is not None else []), 5)
    await handle.signal("undo_when_cancelled")
    await handle.signal("resolve", {"id": "1", "cause": "stuck:needs_person"})
    started = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
    in_clear = {"text": "x", "plan_only": True, "plan": [{"id": "s", "kind": "slow", "args": {"words": "FORGED"}}]}
    inputs: list[list[Any]] = [[in_clear], [RawValue(payload) for payload in started.input.payloads]]
    ids = [f"forged-{secrets.token_hex(4)}" for _ in inputs]
    for id, arguments in zip(ids, inputs, strict=True):
        await thief.start_workflow("AgentWorkflow", args=arguments, id=id, task_queue=queue)
    return ids


@pytest.mark.full
async def test_who_has_no_key_forges_nothing_while_workers_are_killed(place: Place, client: Client) -> None:
    """Two workers serve; one is killed while forged answers, Signals and starts arrive, and then the other one."""
    queue, forged = place.seeing.environment["REPLAN_QUEUE"], list[str]()

    async def attack(task: str) -> None:
        forged.extend(await forge(client, queue, task))

    with place.seeing.worker(*place.worker) as first, place.seeing.worker(*place.worker) as second:
        tasks = [await asyncio.to_thread(place.begin, place.seeing, "stuck") for _ in range(4)]
        for task in tasks:
            await asyncio.to_thread(place.until_asked, task)
        attacks = [asyncio.create_task(attack(task)) for task in tasks]
        await asyncio.sleep(1)
        first.kill()
        await asyncio.sleep(3)
        second.kill()
        await asyncio.gather(*attacks)
    with place.seeing.worker(*place.worker):
        for task in tasks:
            words = ("answer", task, "provide", "--result", '{"words": "x"}')
            answered = await asyncio.to_thread(place.seeing.starter, *words)
            assert answered.returncode == 0, answered.stdout + answered.stderr
        ends = [await asyncio.to_thread(place.end, task) for task in tasks]
        refused = [await asyncio.to_thread(place.end, task) for task in forged]

    assert ends == [("completed", [{"words": "x"}])] * 4
    assert len(refused) == 8 and refused == [("failed", [])] * 8
    assert not (place.given / "begun").exists()


@pytest.mark.full
def test_a_codec_of_ones_own_goes_on_beside_a_keyring(place: Place) -> None:
    """Tasks from before are read and answered, new ones are encrypted; without one of both, a sentence says so."""
    codec = {"REPLAN_CODEC": "tests.test_encryption:Sealing"}

    def with_codec(processes: Processes) -> Processes:
        return Processes(processes.address, processes.folder, {**processes.environment, **codec})

    boxing, both = with_codec(place.blind), with_codec(place.seeing)
    with boxing.worker(*place.worker):
        done = place.begin(boxing, "echo")
        assert json.loads(boxing.starter("show", done, "--follow", "--json").stdout)["status"] == "completed"
        waiting = place.begin(boxing, "stuck")
        while "stuck" not in boxing.starter("answer", waiting).stdout:
            pass
    with both.worker(*place.worker):
        new = place.begin(both, "echo")
        answered = both.starter("answer", waiting, "provide", "--result", '{"words": "x"}')
        shown = [json.loads(both.starter("show", id, "--follow", "--json").stdout) for id in (done, waiting, new)]
        alone = [boxing.starter("show", new), place.seeing.starter("show", done)]
        tools = [processes.starter("tools", "--json") for processes in (both, boxing, place.seeing)]
    with pytest.raises(AssertionError, match="was written with the key"), boxing.worker(*place.worker):
        pass

    assert answered.returncode == 0, answered.stderr
    assert [one["status"] for one in shown] == ["completed"] * 3
    assert [one["steps"][0]["result"] for one in shown] == [{"words": w} for w in (place.colour, "x", place.colour)]
    said = [one.stdout + one.stderr for one in alone]
    assert [one for one in said if "encrypted" not in one or "Traceback" in one] == []
    assert [one.args for one in alone if place.colour in one.stdout] == []
    assert [one.returncode for one in tools] == [0, 1, 0], [one.stdout + one.stderr for one in tools]
