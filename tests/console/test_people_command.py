"""`people`: commands write the people file, with tokens and keys that are shown once, and no row is lost."""

import asyncio
import base64
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from client.vouching import Voucher
from runtime.people_file import BadPeople, Machine, PeopleFile, Person, Signer, token_digest
from tests.processes import Processes


class Typed:
    """The command `people`, typed in a folder with one people file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "people.json"
        self._processes = Processes("localhost:1", folder, {"REPLAN_PEOPLE": str(self.file)})

    def __call__(self, *words: str, exit: int = 0) -> str:
        done = self._processes.starter("people", *words)
        assert done.returncode == exit, done.stderr
        return done.stderr if exit else done.stdout

    @property
    def now(self) -> PeopleFile:
        return PeopleFile.read(self.file)

    def person(self, name: str) -> Person:
        found = self.now.person(name)
        assert found is not None
        return found


@pytest.fixture
def people(tmp_path: Path) -> Typed:
    return Typed(tmp_path)


def test_a_token_is_shown_once_and_kept_as_a_digest(people: Typed) -> None:
    """A new one ends the old one."""
    said = people("add", "ann", "--roles", "finance, board", "--until", "90d", "--token").splitlines()
    token, ann = said[-1], people.person("ann")
    again = people("change", "ann", "--token").splitlines()[-1]
    now = datetime.now(UTC)

    assert said[0].startswith("ann is known now, with the roles finance, board, until ")
    assert (ann.roles, ann.token) == (("finance", "board"), token_digest(token))
    assert ann.until is not None and abs(ann.until - now - timedelta(days=90)) < timedelta(minutes=5)
    assert token not in people.file.read_text() and token not in people("list") + people("list", "--json")
    assert people.now.holder(token, now) is None and people.now.holder(again, now) == people.person("ann")


def test_two_spellings_are_one_person(people: Typed) -> None:
    """A provider may write the name of somebody in capitals: it would be a second person who approves."""
    people("add", "ann", "--also", "ann@shop", "--token")
    for other in ("Ann", "ANN@SHOP"):
        assert f"There is a person with the name {other!r} already" in people("add", other, "--token", exit=2)
    people("change", "Ann", "--roles", "board")
    people("add", "bob", "--token")
    assert "Two have the name 'ann'" in people("change", "bob", "--also", "ANN", exit=2)

    people("remove", "ann")
    people("add", "ANN", "--roles", "board", "--token")
    assert people.person("ann").also == ("ann@shop",) and len(people.now.people) == 2
    assert (
        people.now.person("a\u200bnn") == people.now.person("\u0131nn".replace("\u0131", "A")) == people.person("ann")
    )
    assert people.now.person("aNN@shop") == people.person("ann") and people.person("ann").roles == ("board",)


@pytest.mark.parametrize(
    "row",
    [{"name": "ann", "roles": [f"r{number}" for number in range(21)]}, {"name": "ann", "token": "\u00e4"}],
)
def test_a_row_that_no_door_could_use_is_refused(people: Typed, row: Mapping[str, Any]) -> None:
    people.file.write_text(json.dumps({"people": [row]}))
    with pytest.raises(BadPeople, match=r"cannot be used \(people\.0\."):
        PeopleFile.read(people.file)


def test_a_program_has_a_token_with_scopes(people: Typed) -> None:
    found = json.loads(people("machine", "billing", "--scopes", "start,read", "--json"))
    twice = people("machine", "billing", "--scopes", "read", exit=2)
    holder = people.now.holder(found["token"], datetime.now(UTC))
    people("remove", "billing")

    assert isinstance(holder, Machine) and (holder.name, holder.scopes) == ("billing", ("start", "read"))
    assert twice.startswith("There is a program with the name 'billing' already, which has a token: ")
    assert people.now.machines == ()


def test_a_key_file_is_of_its_owner_alone_and_says_whose_it_is(people: Typed, tmp_path: Path) -> None:
    """A door may have several keys; a personal key has the roles of its person."""
    files = [tmp_path / name for name in ("old.key", "new.key", "ann.key")]
    people("door", "desk", str(files[0]), "--until", "1d")
    people("door", "desk", str(files[1]))
    people("add", "ann", "--roles", "finance", "--key", str(files[2]))
    signers = [Signer.read(file) for file in files]

    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
    assert [(one.name, one.roles) for one in signers] == [("desk", ()), ("desk", ()), ("ann", ("finance",))]
    assert [key.id for key in people.now.doors[0].keys] == [one.id for one in signers[:2]]
    assert [key.id for key in people.person("ann").keys] == [signers[2].id]


def test_a_private_key_is_in_no_other_file_and_in_no_output(people: Typed, tmp_path: Path) -> None:
    said = people("door", "desk", str(tmp_path / "door.key"), "--json") + people("list", "--json")
    private = json.loads((tmp_path / "door.key").read_text())["private"]

    assert len(base64.b64decode(private)) == 32
    assert private not in said + people.file.read_text()


def test_who_was_removed_may_do_nothing_and_what_they_signed_can_be_verified(people: Typed, tmp_path: Path) -> None:
    """Their row stays: a door's word is enough only for a name that the file does not know. They may come back."""
    key = tmp_path / "ann.key"
    token = people("add", "ann", "--roles", "finance", "--token", "--key", str(key)).splitlines()[-1]
    stated = Voucher.of_key(key).of_start("default", "a task")
    people("remove", "ann")
    now, file = datetime.now(UTC), people.now

    file.check_signature(stated)
    assert file.verified(stated, stated.at).roles == ("finance",)
    with pytest.raises(ValueError, match=f"the key {stated.key} was withdrawn"):
        file.verified(stated, now)
    assert (file.holder(token, now), file.active("ann", now)) == (None, None)
    people("add", "ann", "--roles", "board")
    assert people.now.active("ann", now) is not None and people.now.holder(token, now) is None


def test_a_withdrawn_key_signs_nothing_more(people: Typed, tmp_path: Path) -> None:
    found = json.loads(people("add", "ann", "--key", str(tmp_path / "ann.key"), "--json"))
    id = found["keys"][0]["id"]
    said, again = people("withdraw", id), people("withdraw", id, exit=2)

    assert said == f"The key {id} of ann signs nothing more; what it signed before can be verified.\n"
    assert again.startswith(f"The key {id} was withdrawn at ")
    with pytest.raises(ValueError, match=f"the key {id} was withdrawn at "):
        people.now.owner(id, datetime.now(UTC))


def test_commands_at_once_lose_no_row(people: Typed) -> None:
    names = [f"p{number}" for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        tokens = list(pool.map(lambda name: people("add", name, "--token").splitlines()[-1], names))
    now = datetime.now(UTC)

    holders = [people.now.holder(token, now) for token in tokens]
    assert [holder.name for holder in holders if holder] == names


def test_a_change_waits_for_the_one_before_it(people: Typed) -> None:
    """Also within one moment: each is made of what the other wrote."""

    def adding(name: str) -> PeopleFile:
        return PeopleFile.change(people.file, lambda file: file.with_rows(*file.people, Person(name=name)))

    async def both() -> None:
        await asyncio.gather(*(asyncio.to_thread(adding, f"p{number}") for number in range(50)))

    asyncio.run(both())
    assert len(people.now.people) == 50


def test_a_failed_change_leaves_no_file_behind(people: Typed, tmp_path: Path) -> None:
    """Neither a key that nobody knows nor a half of the people file."""
    people("add", "ann")
    before = people.file.read_text()
    people("door", "ann", str(tmp_path / "door.key"), exit=2)
    people("add", "bob", "--also", "ann", "--key", str(tmp_path / "bob.key"), exit=2)

    assert people.file.read_text() == before
    assert not [*tmp_path.glob("*.key"), *tmp_path.glob(".people*")]


def test_a_key_that_others_can_read_signs_nothing(people: Typed, tmp_path: Path) -> None:
    key = tmp_path / "ann.key"
    people("add", "ann", "--key", str(key))
    key.chmod(0o640)
    with pytest.raises(BadPeople, match="Others can read or write the key"):
        Signer.read(key)


def test_the_list_says_what_each_has(people: Typed, tmp_path: Path) -> None:
    people("add", "ann", "--roles", "finance", "--also", "ann@shop", "--token")
    people("machine", "billing", "--scopes", "read")
    people("door", "desk", str(tmp_path / "door.key"))
    shown: dict[str, Any] = json.loads(people("list", "--json"))
    id = shown["doors"][0]["keys"][0]["id"]

    assert [(one["name"], one["roles"], one["has_token"]) for one in shown["people"]] == [("ann", ["finance"], True)]
    lines = people("list").splitlines()
    assert lines[:3] == [
        "person  ann: the role finance, also as ann@shop, known by a token",
        "program billing: may read",
        "door    desk: signs",
    ]
    assert lines[3].startswith(f"    key {id} since ")
