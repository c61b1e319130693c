"""A keyring: what it encrypts is found nowhere without it and is read everywhere with it; keys are rotated."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload

from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port
from runtime.keys import BadKeys, KeyMissing, Keyring, add_key, read_keys
from tests.processes import Processes
from workflows.account import search_attributes

COLOUR = "vermilion"
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=f'"{COLOUR}"'.encode())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A keyring with one key."""
    add_key(tmp_path / "replan.keys")
    return tmp_path / "replan.keys"


async def test_the_first_key_writes_and_all_read(file: Path) -> None:
    """Rotation puts a key in front; an older keyring lacks it, and says which."""
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
    """The namespace and the key's id are authenticated, too."""
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


TOOLS = '''
from pydantic import BaseModel
from replan import Key, NeedsPerson, Refused, tool

class Words(BaseModel):
    words: str

@tool.read
async def echo(args: Words) -> Words:
    """Say it again."""
    return args

@tool.keyed
async def write(args: Words, key: Key) -> Words:
    """Write it down."""
    return Words(words=args.words * 9000)

@tool.read
async def refuse(args: Words) -> Words:
    """Say no."""
    raise Refused(f"It is {args.words}.", observed={"colour": args.words})

@tool.read
async def stuck(args: Words) -> Words:
    """Ask for a person."""
    raise NeedsPerson(f"Nobody mixes {args.words}.")
'''


def planned(folder: Path, *steps: tuple[str, str]) -> str:
    """The path of a plan with these steps: an id, which is the kind, and its words."""
    plan = folder / f"plan-{'-'.join(kind for kind, _ in steps)}.json"
    written = [{"id": kind, "kind": kind, "args": {"words": words}} for kind, words in steps]
    plan.write_text(json.dumps({"task": f"paint in {COLOUR}", "steps": written, "options": {}}))
    return str(plan)


class Place:
    """A server, a worker and a console, whose files are all below one folder; the keyring is beside it."""

    def __init__(self, address: str, folder: Path, keys: Path) -> None:
        self.folder = folder
        self.keys = keys
        (folder / "processes").mkdir()
        (folder / "plans").mkdir()
        self.tools = folder / "plans" / "tools.py"
        self.tools.write_text(TOOLS)
        self.blind = Processes(address, folder / "processes", {"XDG_CACHE_HOME": str(folder / "cache")})
        self.seeing = Processes(address, folder / "processes", {**self.blind.environment, "REPLAN_KEYS": str(keys)})
        self.plans = folder / "plans"

    def found(self) -> list[str]:
        """The files, beside those that were given, in which the secret stands in clear."""
        return [
            str(path)
            for path in self.folder.rglob("*")
            if path.is_file() and path.parent != self.plans and COLOUR.encode() in path.read_bytes()
        ]


def in_a_thread(test: Callable[[Place], None]) -> Callable[[Place], Coroutine[Any, Any, None]]:
    """A test that runs commands, beside the event loop that keeps its server."""

    @functools.wraps(test)
    async def run(place: Place) -> None:
        await asyncio.to_thread(test, place)

    return run


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A server of its own, whose database is searched, too."""
    keys, folder = tmp_path / "replan.keys", tmp_path / "all" / "server"
    add_key(keys)
    folder.mkdir(parents=True)
    spec = ServerSpec(folder, port=free_port(), ui_port=free_port(), attributes=search_attributes.TYPES)
    async with DevServer(spec, await find_cli(lambda _: None)) as server:
        yield Place(server.address, tmp_path / "all", keys)


@in_a_thread
def test_planted_secrets_are_found_nowhere(place: Place) -> None:
    """In no byte of database, store, state folder, logs and cache; with the key, everywhere; without it, nowhere."""
    plan = planned(place.plans, ("echo", COLOUR), ("write", COLOUR), ("refuse", COLOUR))
    with place.seeing.worker("--tools", str(place.tools), "--planner", "offline"):
        done = place.seeing.starter("start", "--plan", plan, "--json")
        outcome = json.loads(done.stdout)
        asked = place.seeing.starter(
            "start", "--plan", planned(place.plans, ("stuck", COLOUR)), "--on-escalation", "wait", "--detach", "--json"
        )
        waiting = json.loads(asked.stdout)["task_id"]
        while '"waiting"' not in place.seeing.starter("show", waiting, "--json").stdout:
            pass
        answered = place.seeing.starter("answer", waiting, "provide", "--result", json.dumps({"words": COLOUR}))
        seen = {
            words: place.seeing.starter(words[0], outcome["task_id"], *words[1:])
            for words in (("show",), ("show", "--json"), ("explain",), ("effects",))
        }
        reported = place.seeing.starter("report", "--json")
        exported = place.seeing.starter("export", outcome["task_id"], str(place.folder / "x.json"), "--redact")
        blind = [
            place.blind.starter(words[0], outcome["task_id"], *words[1:])
            for words in (("show",), ("show", "--json"), ("explain",), ("transcript",), ("effects",))
        ]
        replayed = place.seeing.starter("replay", "--query", f"WorkflowId = '{outcome['task_id']}'")

    assert place.found() == []
    assert answered.returncode == 0, answered.stderr
    assert [words for words, one in seen.items() if COLOUR not in one.stdout] == []
    assert (reported.returncode, exported.returncode, replayed.returncode) == (0, 0, 0)
    assert [one.args for one in blind if COLOUR in one.stdout + one.stderr] == []
    assert COLOUR not in outcome["task_id"] + waiting


@in_a_thread
def test_a_worker_without_the_key_does_not_start_on_the_store(place: Place) -> None:
    """It ends with a sentence; with a keyring that has the key among others it starts."""
    with place.seeing.worker("--tools", str(place.tools), "--planner", "offline"):
        place.seeing.starter("start", "--plan", planned(place.plans, ("echo", COLOUR)), "--json")
    with pytest.raises(AssertionError, match="was written with the key"), place.blind.worker("--planner", "offline"):
        pass
    add_key(place.keys)
    with place.seeing.worker("--planner", "offline", "--tools", str(place.tools)):
        pass


@in_a_thread
def test_keys_are_rotated_under_an_open_task(place: Place) -> None:
    """A task that began in clear, then with one key, then with another one: it is read and answered to its end."""
    plan = planned(place.plans, ("stuck", COLOUR))
    with place.blind.worker("--tools", str(place.tools), "--planner", "offline"):
        started = place.blind.starter("start", "--plan", plan, "--on-escalation", "wait", "--detach", "--json")
        plain = json.loads(started.stdout)["task_id"]
    ids = []
    for _ in range(2):
        with place.seeing.worker("--tools", str(place.tools), "--planner", "offline"):
            started = place.seeing.starter("start", "--plan", plan, "--on-escalation", "wait", "--detach", "--json")
            ids.append(json.loads(started.stdout)["task_id"])
            while "stuck" not in place.seeing.starter("answer", ids[-1]).stdout:
                pass
        add_key(place.keys)
    with place.seeing.worker("--tools", str(place.tools), "--planner", "offline"):
        answers = [place.seeing.starter("answer", id, "provide", "--result", '{"words": "x"}') for id in (plain, *ids)]
        ends = [place.seeing.starter("show", id, "--follow", "--json") for id in (plain, *ids)]

    assert [one.returncode for one in answers] == [0, 0, 0], answers
    assert [json.loads(one.stdout)["steps"][0]["result"] for one in ends] == [{"words": "x"}] * 3


@in_a_thread
def test_a_worker_that_lacks_the_newest_key_ends_no_task(place: Place) -> None:
    """Its workflow task fails and waits, and says which key is missing; with the key the task goes on."""
    older = place.keys.with_name("older.keys")
    older.write_bytes(place.keys.read_bytes())
    add_key(place.keys)
    plan = planned(place.plans, ("echo", COLOUR))
    lacking = Processes(
        place.seeing.address, place.seeing.folder, {**place.blind.environment, "REPLAN_KEYS": str(older)}
    )
    with lacking.worker("--tools", str(place.tools), "--planner", "offline"):
        started = place.seeing.starter("start", "--plan", plan, "--detach", "--json")
        id = json.loads(started.stdout)["task_id"]
        while "workflow task fails" not in (shown := place.seeing.starter("show", id)).stderr:
            assert shown.returncode in (3, 6), shown
        blind = place.blind.starter("show", id)
    with place.seeing.worker("--tools", str(place.tools), "--planner", "offline"):
        ended = place.seeing.starter("show", id, "--follow", "--json")

    assert "which is not in this keyring" in shown.stderr, shown.stderr
    assert "workflow task fails" in blind.stderr
    assert json.loads(ended.stdout)["status"] == "completed"
