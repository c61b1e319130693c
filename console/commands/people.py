"""`people`: write the people file of `--people`: who may answer, tokens of people and programs, and keys that sign."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import typer

from client import document
from client.problem import Problem
from console.arguments import read_duration
from console.exits import Exit
from console.render.command import starter
from runtime.people_file import (
    SCOPES,
    BadPeople,
    Door,
    Machine,
    PeopleFile,
    Person,
    PublicKey,
    Signer,
    made,
    new_token,
    token_digest,
)

Action = Literal["list", "add", "change", "machine", "door", "withdraw", "remove"]
NEVER = "never"
"""The value of --until for no end."""
PEOPLE_FILE = Path("people.json")
WHAT = {
    "list": "who is known",
    "add": "a new person",
    "change": "what a person has",
    "machine": "a token for a program",
    "door": "a key with which `serve` signs",
    "withdraw": "end a key",
    "remove": "end a person, a program or a door",
}
"""By action, what it does, for the help."""
TAKES: Mapping[Action, tuple[str, ...]] = {
    "list": (),
    "add": ("roles", "also", "scopes", "until", "token", "key"),
    "change": ("roles", "also", "scopes", "until", "token", "key"),
    "machine": ("scopes", "until"),
    "door": ("key_file", "until"),
    "withdraw": (),
    "remove": (),
}
"""By action, the options and arguments besides NAME that go with it."""
TYPED = {"key_file": "FILE"}
"""How an argument is named that is no option."""


async def people_command(
    *,
    action: Annotated[
        Action, typer.Argument(metavar="ACTION", help=". ".join(f"{name}: {what}" for name, what in WHAT.items()) + ".")
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The person, program or door; for withdraw, the id of the key.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="With door: the new file of its private key.")
    ] = None,
    roles: Annotated[
        str | None, typer.Option(metavar="ROLES", help="With add, change: all the person's roles, as finance,board.")
    ] = None,
    also: Annotated[
        str | None, typer.Option(metavar="NAMES", help="With add, change: other names, such as a proxy gives.")
    ] = None,
    scopes: Annotated[
        str | None, typer.Option(metavar="SCOPES", help=f"With machine, add, change: some of {','.join(SCOPES)}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="The end, from now, e.g. 90d; never for none.")
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="With add, change: make a personal token, and print it once.")
    ] = False,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With add, change: make a personal key, in this new file.")
    ] = None,
    people: Annotated[
        Path, typer.Option("--people", envvar="REPLAN_PEOPLE", metavar="FILE", help="The people file.")
    ] = PEOPLE_FILE,
    json: Annotated[bool, typer.Option("--json", help="One JSON document instead of lines.")] = False,
) -> int:
    """Give a copy of the file to each worker and each `serve`: it holds no secret, but who can write it can approve."""
    options = {"roles": roles, "also": also, "scopes": scopes, "until": until, "token": token or None, "key": key}
    used = {option: value for option, value in {**options, "key_file": key_file}.items() if value is not None}
    _check(action, name, used)
    try:
        if action == "list":
            return _list(PeopleFile.read(people), people, json=json)
        change = _Change(name or "", used)
        change.make(action, people)
    except BadPeople as error:
        raise Problem("misconfigured", error.reason, error.remedy) from error
    if json:
        print(document.of_anything({"file": str(people), **change.fields, "token": change.token or None}))
        return Exit.COMPLETED
    print("\n".join([change.said, *change.notes]))
    if change.token:
        print(f"The token, which is shown this once:\n{change.token}")
    return Exit.COMPLETED


def _check(action: Action, name: str | None, used: Mapping[str, object]) -> None:
    """Raise Problem for options that do not go with the action, and for what it needs."""
    for option in used:
        if option not in TAKES[action]:
            takers = [one for one in get_args(Action) if option in TAKES[one]]
            reason = f"{_typed(option)} goes with {' and '.join(takers)}, and not with {action}"
            raise Problem("usage", reason, "leave it out")
    if action == "list":
        if name is not None:
            raise Problem("usage", f"list shows everybody, and not only {name!r}", "leave the name out")
        return
    if name is None:
        what = "the id of a key" if action == "withdraw" else "a name"
        raise Problem("usage", f"{action} needs {what}, and none follows it", f"write `people {action} NAME`")
    needs = {"machine": "scopes", "door": "key_file"}.get(action)
    if needs and needs not in used:
        example = {"scopes": "--scopes start,read", "key_file": "a new file for the private key, such as door.key"}
        raise Problem("usage", f"{action} {name} needs {_typed(needs)}, and it is missing", f"add {example[needs]}")
    if action == "change" and not used:
        raise Problem("usage", f"change {name} changes nothing, since no option says what", "add e.g. --roles finance")


def _typed(option: str) -> str:
    return TYPED.get(option) or f"--{option}"


class _Made(NamedTuple):
    """What a change has made."""

    file: PeopleFile
    row: Person | Machine | Door
    said: str


@dataclass
class _Change:
    """One change of the people file, and what is said of it."""

    name: str
    used: Mapping[str, Any]
    token: str = ""
    said: str = ""
    notes: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    _key: Path | None = None
    """The file of a private key that was made."""

    def make(self, action: Action, path: Path) -> None:
        """Make the change. Raises Problem or BadPeople if that cannot be done; then nothing is changed."""
        now, found = datetime.now(UTC), list[_Made]()
        actions: dict[str, Callable[[PeopleFile, datetime], _Made]] = {
            "add": self._add,
            "change": self._change,
            "machine": self._machine,
            "door": self._door,
            "withdraw": self._withdraw,
            "remove": self._remove,
        }

        def change(file: PeopleFile) -> PeopleFile:
            found.append(actions[action](file, now))
            return found[0].file

        try:
            PeopleFile.change(path, change)
        except Exception:
            if self._key is not None:
                self._key.unlink()  # nobody knows its public part
            raise
        [(_, row, self.said)] = found
        self.fields = {"name": row.name, **_shown(row)}

    def _add(self, file: PeopleFile, now: datetime) -> _Made:
        before = file.person(self.name)
        if before is not None and not before.is_over(now):
            remedy = f"`{starter('people', 'change', before.name)}` changes what they have"
            raise Problem("usage", f"There is a person with the name {self.name!r} already", remedy)
        # The keys of somebody who was removed stay, so that old answers can be verified.
        known = {"name": before.name, "keys": before.keys, "also": before.also} if before else {"name": self.name}
        person = self._person(made(Person, **known), now)
        return _Made(file.with_rows(person), person, f"{person.name} is known now, with {_has(person)}.")

    def _change(self, file: PeopleFile, now: datetime) -> _Made:
        before = file.active(self.name, now)
        if before is None:
            reason = f"There is no person {self.name!r} whom the people file knows now"
            raise Problem("usage", reason, f"`{starter('people', 'add', self.name)}` adds one")
        person = self._person(before, now)
        if person.roles != before.roles and any(one.problem_at(now) == "" for one in before.keys):
            self.notes.append("A key file that was made before states the roles before, unless REPLAN_PEOPLE is set.")
        return _Made(file.with_rows(person), person, f"{person.name} has {_has(person)} now.")

    def _person(self, before: Person, now: datetime) -> Person:
        """The person with what the options say, with a new token and a new key if they ask for them."""
        fields: dict[str, Any] = dict(iter(before))  # not of the row itself: it has a field `keys`
        fields |= {option: _listed(self.used[option]) for option in ("roles", "also") if option in self.used}
        fields |= {"until": self._until(now)} if "until" in self.used else {}
        fields |= {"scopes": self._scopes()} if "scopes" in self.used else {}
        made(Person, **fields)  # before a key is made
        if "token" in self.used:
            self.token = new_token()
            fields["token"] = token_digest(self.token)
        if "key" in self.used:
            path = self.used["key"]
            fields["keys"] = (*before.keys, self._signer(path, before.name, fields["roles"]).public_key(now))
            self.notes.append(f"The private key is in {path}: give it to {before.name}, for REPLAN_IDENTITY.")
        return made(Person, **fields)

    def _machine(self, file: PeopleFile, now: datetime) -> _Made:
        if any(one.name == self.name and not one.is_over(now) for one in file.machines):
            reason = f"There is a program with the name {self.name!r} already, which has a token"
            raise Problem("usage", reason, f"`{starter('people', 'remove', self.name)}` ends it first")
        self.token = new_token()
        fields = {
            "name": self.name,
            "scopes": self._scopes(),
            "token": token_digest(self.token),
            "until": self._until(now),
        }
        machine = made(Machine, **fields)
        said = f"{machine.name} may {', '.join(machine.scopes)}{_end(machine.until)}."
        return _Made(file.with_rows(machine), machine, said)

    def _door(self, file: PeopleFile, now: datetime) -> _Made:
        before = next((one for one in file.doors if one.name == self.name), made(Door, name=self.name))
        file.with_rows(before)  # raises for a name that is taken, before a key is made
        path, until = self.used["key_file"], self._until(now)
        key = self._signer(path, self.name).public_key(now, until)
        door = made(Door, name=self.name, keys=(*before.keys, key))
        self.notes.append(f"The private key is in {path}: `{starter('serve', '--door-key', str(path))}`.")
        return _Made(file.with_rows(door), door, f"{door.name} signs with the key {key.id} from now on{_end(until)}.")

    def _signer(self, path: Path, name: str, roles: tuple[str, ...] = ()) -> Signer:
        signer = Signer.new(path, name, roles)
        self._key = path
        return signer

    def _withdraw(self, file: PeopleFile, now: datetime) -> _Made:
        owners: tuple[Door | Person, ...] = (*file.doors, *file.people)
        for owner in owners:
            key = next((one for one in owner.keys if one.id == self.name), None)
            if key is None:
                continue
            if key.withdrawn:
                reason = f"The key {key.id} was withdrawn at {key.withdrawn:%Y-%m-%d %H:%M} UTC"
                raise Problem("usage", reason, "there is nothing to do")
            row = owner.model_copy(update={"keys": _withdrawn(owner.keys, now, key.id)})
            said = f"The key {key.id} of {owner.name} signs nothing more; what it signed before can be verified."
            return _Made(file.with_rows(row), row, said)
        reason = f"There is no key {self.name!r} of a door or a person"
        raise Problem("usage", reason, f"`{starter('people', 'list')}` shows their ids")

    def _remove(self, file: PeopleFile, now: datetime) -> _Made:
        if person := file.active(self.name, now):
            # The row stays: a door's word would be enough for a name that the file does not know.
            ended = {"until": now, "token": "", "keys": _withdrawn(person.keys, now)}
            person = person.model_copy(update=ended)
            return _Made(file.with_rows(person), person, f"{person.name} may do nothing any more.")
        for machine in file.machines:
            if machine.name == self.name:
                others = tuple(one for one in file.machines if one is not machine)
                return _Made(
                    made(PeopleFile, **{**dict(file), "machines": others}), machine, f"{machine.name} is gone."
                )
        for door in file.doors:
            if door.name == self.name:
                door = door.model_copy(update={"keys": _withdrawn(door.keys, now)})
                return _Made(file.with_rows(door), door, f"{door.name} signs nothing more.")
        reason = f"There is nobody {self.name!r}, or not any more"
        raise Problem("usage", reason, f"`{starter('people', 'list')}` shows everybody")

    def _scopes(self) -> tuple[str, ...]:
        scopes = _listed(self.used["scopes"])
        if wrong := [scope for scope in scopes if scope not in SCOPES] or ([] if scopes else [self.used["scopes"]]):
            raise Problem("usage", f"There is no scope {wrong[0]!r} among {', '.join(SCOPES)}", "write some of these")
        return tuple(scope for scope in SCOPES if scope in scopes)

    def _until(self, now: datetime) -> datetime | None:
        text = self.used.get("until", NEVER)
        if text == NEVER:
            return None
        try:
            return now + timedelta(seconds=read_duration("--until", text) or 0)
        except (OverflowError, ValueError) as error:
            raise Problem("usage", f"--until {text} is no time that a calendar has", "write e.g. 90d") from error


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def _withdrawn(keys: tuple[PublicKey, ...], now: datetime, id: str = "") -> tuple[PublicKey, ...]:
    """The keys, of which that with this `id`, or without it each, is withdrawn."""
    return tuple(
        key.model_copy(update={"withdrawn": now}) if not key.withdrawn and id in ("", key.id) else key for key in keys
    )


def _has(person: Person) -> str:
    also = f", also as {', '.join(person.also)}" if person.also else ""
    may = "" if person.scopes == SCOPES else f", may {', '.join(person.scopes)}"
    return f"{_roles(person)}{also}{may}{_end(person.until)}"


def _roles(person: Person) -> str:
    if not person.roles:
        return "no role"
    return f"the role{'s' * (len(person.roles) > 1)} {', '.join(person.roles)}"


def _end(until: datetime | None) -> str:
    return f", until {until:%Y-%m-%d %H:%M} UTC" if until else ""


def _shown(row: Person | Machine | Door) -> dict[str, Any]:
    """The fields of a row as JSON, without its name, and of its token only whether there is one."""
    fields = row.model_dump(mode="json", exclude={"name", "token"})
    if isinstance(row, Person):
        fields = {"roles": row.roles, "also": row.also, "until": row.until, "has_token": bool(row.token), **fields}
        fields["keys"] = row.keys
    return fields


def _list(file: PeopleFile, path: Path, *, json: bool) -> int:
    if json:
        rows: dict[str, tuple[Person | Machine | Door, ...]]
        rows = {"people": file.people, "machines": file.machines, "doors": file.doors}
        shown = {kind: [{"name": row.name, **_shown(row)} for row in found] for kind, found in rows.items()}
        print(document.of_anything({"file": str(path), **shown}))
    else:
        print("\n".join(_lines(file, datetime.now(UTC))) or f"{path} knows nobody.")
    return Exit.COMPLETED


def _lines(file: PeopleFile, now: datetime) -> Iterator[str]:
    """A line for each row, and one for each key."""
    for person in file.people:
        how = [*(["a token"] if person.token else []), *(["a key"] if _may_sign(person.keys, now) else [])]
        state = f"ended {person.until:%Y-%m-%d %H:%M} UTC" if person.is_over(now) and person.until else ""
        known = f", known by {' and '.join(how)}" if how else ""
        yield f"person  {person.name}: {state or _has(person) + known}"
        yield from _key_lines(person.keys, now)
    for machine in file.machines:
        state = "ended" if machine.is_over(now) else f"may {', '.join(machine.scopes)}"
        yield f"program {machine.name}: {state}{_end(machine.until)}"
    for door in file.doors:
        yield f"door    {door.name}: {'signs' if _may_sign(door.keys, now) else 'signs nothing more'}"
        yield from _key_lines(door.keys, now)


def _may_sign(keys: tuple[PublicKey, ...], now: datetime) -> bool:
    return any(not key.problem_at(now) for key in keys)


def _key_lines(keys: tuple[PublicKey, ...], now: datetime) -> Iterator[str]:
    for key in keys:
        since = f"since {key.since:%Y-%m-%d %H:%M} UTC"
        yield f"    key {key.id} {key.problem_at(now).removeprefix(f'the key {key.id} ') or since + _end(key.until)}"
