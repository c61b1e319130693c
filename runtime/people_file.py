"""The people file of `--people`: who may answer, how each is known, and the keys that sign what people state.

Read by each door when somebody answers, and by each worker before it makes a call that a person had to approve; both
have a copy. It holds no secret: of tokens the digest, of keys the public part. `replan people` writes it.
"""

import base64
import binascii
import fcntl
import hashlib
import hmac
import os
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from runtime.settings import WithRemedy
from runtime.validation import first_mistake
from workflows.commands import command
from workflows.people.approvers import PERSON as PERSON_OF, ROLE as ROLE_OF
from workflows.people.requests import MAX_NAME, Choice
from workflows.people.statement import MAX_ROLES, RESOLVE, START, UNDO, Statement, folded
from workflows.text import capitalised

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

VARIABLE, KEY_VARIABLE = "REPLAN_PEOPLE", "REPLAN_DOOR_KEY"
VALID = timedelta(days=1)
"""How long a statement buys a call; the attempts of one call may wait for a service that is down."""
SKEW = timedelta(minutes=5)
"""How far the clocks of a door and of a worker may be apart."""
Scope = Literal["start", "read", "answer", "operate"]
SCOPES: tuple[Scope, ...] = ("start", "read", "answer", "operate")
"""What somebody may do: start tasks, read, answer requests, and operate: extend, cancel, undo, resolve."""
SCOPE_OF: Mapping[str, Scope] = {START: "start", UNDO: "operate", RESOLVE: "operate", Choice.EXTEND: "operate"}
"""By the choice of a statement, the scope that its person needs; every other is an answer."""
NAME = r"^[^\s:,\x00-\x1f\x7f]([^:,\x00-\x1f\x7f]{0,198}[^\s:,\x00-\x1f\x7f])?$"
ROLE = r"^[A-Za-z0-9][A-Za-z0-9._@/-]{0,79}$"
RULES: Mapping[str, tuple[str, str]] = {
    NAME: ("person, program or door", "write 1 to 200 characters, without : and , and without blanks at the ends"),
    ROLE: ("role", "write letters, digits and . _ @ / -"),
}
"""By pattern, what has it, and what to write."""
Name = Annotated[str, Field(pattern=NAME, max_length=MAX_NAME)]
Role = Annotated[str, Field(pattern=ROLE)]
Digest = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
M = TypeVar("M", bound=BaseModel)


class BadPeople(WithRemedy, ValueError):
    """The people file, or a key that signs, cannot be used."""


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PublicKey(_Row):
    """A key that signs statements, with the time in which it may; a withdrawn key stays, so that old answers verify."""

    id: str
    public: str
    """32 bytes in Base64."""
    since: AwareDatetime
    until: AwareDatetime | None = None
    withdrawn: AwareDatetime | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if key_id(_decoded(self.public)) != self.id:
            raise ValueError(f"the id {self.id!r} is not that of its public key")
        return self

    def problem_at(self, at: datetime) -> str:
        """Why the key may not have signed at a time, as a clause; empty if it may."""
        if at < self.since - SKEW:
            return f"the key {self.id} is valid from {self.since:%Y-%m-%d %H:%M} UTC"
        if self.withdrawn is not None and at >= self.withdrawn:
            return f"the key {self.id} was withdrawn at {self.withdrawn:%Y-%m-%d %H:%M} UTC"
        if self.until is not None and at >= self.until:
            return f"the key {self.id} ended at {self.until:%Y-%m-%d %H:%M} UTC"
        return ""


class Door(_Row):
    """A server or console that says who answers, with the keys that it signs with."""

    name: Name
    keys: tuple[PublicKey, ...] = ()


class Person(_Row):
    name: Name
    roles: tuple[Role, ...] = Field(default=(), max_length=MAX_ROLES)
    also: tuple[Name, ...] = Field(default=(), exclude_if=not_)
    """Other names of the same person, such as one that a proxy or a provider gives."""
    token: Digest = Field(default="", exclude_if=not_)
    """The digest of the personal token; empty for a person without one."""
    until: AwareDatetime | None = Field(default=None, exclude_if=not_)
    """When the token ends, and with it all that the person may."""
    keys: tuple[PublicKey, ...] = Field(default=(), exclude_if=not_)
    """Keys with which the person signs without a door."""
    scopes: tuple[Scope, ...] = SCOPES
    """What the person may do at a door, and sign."""

    def is_over(self, now: datetime) -> bool:
        return self.until is not None and now >= self.until


class Machine(_Row):
    """A program with a token, and what it may do."""

    name: Name
    scopes: tuple[Scope, ...]
    token: Digest
    until: AwareDatetime | None = None

    def is_over(self, now: datetime) -> bool:
        return self.until is not None and now >= self.until


class PeopleFile(_Row):
    """All that the file says."""

    people: tuple[Person, ...] = ()
    machines: tuple[Machine, ...] = ()
    doors: tuple[Door, ...] = ()

    @model_validator(mode="after")
    def _has_no_doubles(self) -> Self:
        names = [name for one in self.people for name in (one.name, *one.also)]
        names += [*(one.name for one in self.machines), *(one.name for one in self.doors)]
        counts = Counter(map(folded, names))
        if double := next((name for name in names if counts[folded(name)] > 1), None):
            raise ValueError(f"two have the name {double!r}")
        ids = Counter(key.id for _, key in self._all_keys())
        if double := next((id for id, number in ids.items() if number > 1), None):
            raise ValueError(f"two have the key {double!r}")
        return self

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file. Raises BadPeople if it cannot be read or used."""
        new = f"`{command('people', 'add', 'NAME')}` makes one"
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise BadPeople(f"There is no people file {path}", f"{new}, check --people and {VARIABLE}") from None
        except OSError as error:
            raise BadPeople(f"The people file {path} cannot be read ({error.strerror})", "check --people") from None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            said = first["msg"].removeprefix("Value error, ")
            why = f"{where}: {said}" if where else said
            raise BadPeople(f"The people file {path} cannot be used ({why})", "correct it, docs/approvers.md") from None

    @classmethod
    def change(cls, path: Path, how: "Callable[[PeopleFile], PeopleFile]") -> "PeopleFile":
        """Write what `how` makes of the file, or of an empty one if there is none; return what was written.

        Two changes at once are made one after the other. Raises BadPeople if the file cannot be read, used or written.
        """
        try:
            folder = os.open(path.absolute().parent, os.O_RDONLY)
        except OSError as error:
            reason = f"The folder of the people file {path} cannot be read ({error.strerror})"
            raise BadPeople(reason, "check --people") from None
        try:
            # The folder, since `write` puts another file in the place of this one.
            fcntl.flock(folder, fcntl.LOCK_EX)
            changed = how(cls.read(path) if path.exists() else cls())
            changed.write(path)
        finally:
            os.close(folder)
        return changed

    def write(self, path: Path) -> None:
        """Write the file as a whole, with the mode that it had; the reader of a moment sees the old or the new one.

        Raises BadPeople if it cannot be written.
        """
        try:
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
            handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"{self.model_dump_json(indent=2, exclude_defaults=True)}\n")
            Path(name).chmod(mode)
            Path(name).replace(path)
        except OSError as error:
            reason = f"The people file {path} cannot be written ({error.strerror})"
            raise BadPeople(reason, "check --people and its folder") from None

    def with_rows(self, *rows: "Person | Machine | Door") -> "PeopleFile":
        """The file with these rows, each in place of that of its kind and name. Raises BadPeople for a double."""
        parts: dict[str, tuple[Person | Machine | Door, ...]] = {}
        for field, kind in (("people", Person), ("machines", Machine), ("doors", Door)):
            new = {row.name: row for row in rows if isinstance(row, kind)}
            old: tuple[Person | Machine | Door, ...] = getattr(self, field)
            parts[field] = (*(new.pop(row.name, row) for row in old), *new.values())
        return made(PeopleFile, **parts)

    def person(self, name: str) -> Person | None:
        """The person with this name, or with this other name, however it is spelled."""
        return self._people.get(folded(name))

    def active(self, name: str, now: datetime) -> Person | None:
        """The person with this name or other name, if the person has not ended."""
        found = self.person(name)
        return found if found and not found.is_over(now) else None

    def owner(self, key: str, now: datetime) -> Person:
        """The person who may sign with the key of this id now. Raises ValueError with a clause if there is none."""
        owner, public = self._keys.get(key, (None, None))
        if not isinstance(owner, Person) or public is None:
            raise ValueError(f"nobody in the people file has the key {key}")
        if why := public.problem_at(now) or (f"{owner.name} may not answer any more" if owner.is_over(now) else ""):
            raise ValueError(why)
        return owner

    def check_door(self, key: str, now: datetime) -> None:
        """Raise ValueError with a clause unless a door may sign with the key of this id now."""
        owner, public = self._keys.get(key, (None, None))
        if not isinstance(owner, Door) or public is None:
            raise ValueError(f"no door in the people file has the key {key}")
        if why := public.problem_at(now):
            raise ValueError(why)

    def holder(self, token: str, now: datetime) -> Person | Machine | None:
        """Who holds a token that has not ended; None if nobody does."""
        found, digest = None, token_digest(token)
        everybody: tuple[Person | Machine, ...] = (*self.people, *self.machines)
        for one in everybody:  # all of them: the time tells nothing
            if one.token and hmac.compare_digest(one.token, digest):
                found = one
        return found if found and not found.is_over(now) else None

    def verified(self, statement: Statement, now: datetime) -> Statement:
        """A statement with the roles that its person has by this file. Raises ValueError with a clause if it is false.

        Of the roles that a door states, those count that the person has here, too; for what a person signs alone, the
        roles are those of the file. A door's word is enough for a person whom the file does not know, as one of an
        identity provider.
        """
        self.check_signature(statement)
        owner, key = self._keys[statement.key]
        if why := key.problem_at(now) or key.problem_at(statement.at):
            raise ValueError(why)
        if statement.at > now + SKEW:
            raise ValueError(f"it was made at {statement.at:%Y-%m-%d %H:%M} UTC, which is still to come")
        if now > statement.until or statement.until > statement.at + VALID:
            raise ValueError(f"it ended at {statement.until:%Y-%m-%d %H:%M} UTC")
        person = self.person(statement.person)
        if isinstance(owner, Person) and owner is not person:
            raise ValueError(f"{owner.name} signed it, and not {statement.person}")
        if person is None:
            return statement
        if person.is_over(now):
            raise ValueError(f"{person.name} may not answer any more")
        is_own = isinstance(owner, Person)
        roles = person.roles if is_own else tuple(role for role in statement.roles if role in person.roles)
        return statement.model_copy(update={"person": person.name, "roles": roles})

    def check_withdrawn(self, key: str) -> None:
        """Raise ValueError with a clause if the key of this id is withdrawn by now."""
        if at := self._keys[key][1].withdrawn:
            raise ValueError(f"the key {key} was withdrawn at {at:%Y-%m-%d %H:%M} UTC")

    def check_scope(self, statement: Statement) -> None:
        """Raise ValueError with a clause if its person may not do by this file what a statement is for."""
        person, scope = self.person(statement.person), SCOPE_OF.get(statement.choice, "answer")
        if person is not None and scope not in person.scopes:
            raise ValueError(f"{person.name} may not {scope}, but {', '.join(person.scopes) or 'nothing'}")

    def check_signature(self, statement: Statement) -> None:
        """Raise ValueError with a clause unless a key of the file signed the statement, whenever that was."""
        from cryptography.exceptions import InvalidSignature  # not at the top: 7 MB, and few have people
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if statement.key not in self._keys:
            raise ValueError(f"nobody here knows the key {statement.key}")
        public = Ed25519PublicKey.from_public_bytes(_decoded(self._keys[statement.key][1].public))
        try:
            public.verify(_decoded(statement.signature, 64), statement.signed)
        except (InvalidSignature, ValueError):
            raise ValueError("its signature is wrong") from None

    def _all_keys(self) -> Iterator[tuple[Door | Person, PublicKey]]:
        owners: tuple[Door | Person, ...] = (*self.doors, *self.people)
        yield from ((owner, key) for owner in owners for key in owner.keys)

    @cached_property
    def _people(self) -> dict[str, Person]:
        return {folded(name): one for one in self.people for name in (one.name, *one.also)}

    @cached_property
    def _keys(self) -> dict[str, tuple[Door | Person, PublicKey]]:
        return {key.id: (owner, key) for owner, key in self._all_keys()}


class KnownPeople:
    """The people file at a path, read again when it has changed: who was removed may do nothing from then on."""

    def __init__(self, path: Path) -> None:
        """Raises BadPeople if the file cannot be read or used."""
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._file = PeopleFile()
        self.now()

    def now(self) -> PeopleFile:
        """What the file says now. Raises BadPeople if it cannot be read or used."""
        try:
            status = self.path.stat()
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        except OSError:
            seen = None
        if seen is None or seen != self._seen:
            self._file, self._seen = PeopleFile.read(self.path), seen
        return self._file

    def approvers(self) -> Collection[str]:
        """The roles and people that the file knows now, as a rule names them; an unreadable file knows nobody."""
        with suppress(BadPeople):
            people, now = self.now().people, datetime.now(UTC)
            active = [person for person in people if not person.is_over(now)]
            roles = {f"{ROLE_OF}{role}" for person in active for role in person.roles}
            return sorted(roles | {f"{PERSON_OF}{person.name}" for person in active})
        return ()

    def verified(self, statement: Statement, *, is_past: bool = False) -> Statement:
        """See `PeopleFile.verified`; with `is_past`, as of when it was made. An unreadable file knows nobody.

        A key that is withdrawn says nothing of the past, either: who has stolen it could write any time.
        """
        try:
            people = self.now()
        except BadPeople as error:
            raise ValueError(str(error)) from None
        true = people.verified(statement, statement.at if is_past else datetime.now(UTC))
        if is_past:
            people.check_withdrawn(statement.key)
        else:
            people.check_scope(true)
        return true


class _KeyFile(_Row):
    """What a file with a private key says."""

    name: Name
    roles: tuple[Role, ...] = Field(default=(), exclude_if=not_)
    private: str


@dataclass(frozen=True)
class Signer:
    """The private key of a door or a person."""

    name: str
    """The door, or the person."""
    roles: tuple[str, ...]
    """The roles of the person when the key was made. They are stated where no people file is at hand; the worker takes
    those of its own."""
    id: str
    key: "Ed25519PrivateKey"

    @classmethod
    def new(cls, path: Path, name: str, roles: tuple[str, ...] = ()) -> Self:
        """Make a key, and write it into a new file that only its owner can read. Raises BadPeople if there is one."""
        private = secrets.token_bytes(32)
        keeps = made(_KeyFile, name=name, roles=roles, private=base64.b64encode(private).decode())
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise BadPeople(f"There is a file {path} already", "name another one, or move it away") from None
        except OSError as error:
            raise BadPeople(f"The key {path} cannot be written ({error.strerror})", "name another file") from None
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{keeps.model_dump_json()}\n")
        return cls._of(keeps)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key that `new` wrote. Raises BadPeople if it cannot be read or used, or if others can read it."""
        check = "check --identity or --door-key"
        try:
            status, text = path.stat(), path.read_bytes()
            found = cls._of(_KeyFile.model_validate_json(text))
        except FileNotFoundError:
            makes = f"`{command('people', 'door', 'NAME', 'FILE')}` makes one for a door"
            own = f"`{command('people', 'change', 'NAME', '--key', 'FILE')}` one for a person"
            raise BadPeople(f"There is no key {path}", f"{makes}, {own}") from None
        except OSError as error:
            raise BadPeople(f"The key {path} cannot be read ({error.strerror})", check) from None
        except ValueError:  # also of pydantic; what is in the file is not told
            raise BadPeople(f"{path} is no key that `{command('people')}` has made", check) from None
        if status.st_mode & 0o077:
            raise BadPeople(
                f"Others can read or write the key {path}", f"`chmod 600 {path}`; if in doubt, make another"
            )
        return found

    @classmethod
    def _of(cls, file: _KeyFile) -> Self:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(_decoded(file.private))
        return cls(file.name, file.roles, key_id(key.public_key().public_bytes_raw()), key)

    def public_key(self, since: datetime, until: datetime | None = None) -> PublicKey:
        """Its public part, for the people file."""
        public = base64.b64encode(self.key.public_key().public_bytes_raw()).decode()
        return PublicKey(id=self.id, public=public, since=since, until=until)

    def sign(self, statement: Statement) -> Statement:
        """The statement with this key and its signature."""
        unsigned = statement.model_copy(update={"key": self.id})
        return unsigned.model_copy(update={"signature": base64.b64encode(self.key.sign(unsigned.signed)).decode()})


def made(model: type[M], **fields: object) -> M:
    """A model with these fields. Raises BadPeople if they cannot be used."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        pattern, rule = (wrong.get("ctx") or {}).get("pattern", ""), (wrong.get("ctx") or {}).get("error")
        if pattern in RULES:
            what, remedy = RULES[pattern]
            raise BadPeople(f"{str(wrong['input'])[:80]!r} is no name of a {what}", remedy) from None
        if isinstance(rule, ValueError):
            raise BadPeople(capitalised(str(rule)), "choose another") from None
        raise BadPeople(f"This cannot be in a people file ({first_mistake(error)})", "correct it") from None


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe()


def token_digest(token: str) -> str:
    """What the file has of a token: it has so many random bits that a plain digest keeps it."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def key_id(public: bytes) -> str:
    """The id of a key, from its public part."""
    return hashlib.sha256(public).hexdigest()[:16]


def _decoded(text: str, size: int = 32) -> bytes:
    try:
        found = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("this is no Base64") from None
    if len(found) != size:
        raise ValueError(f"these are no {size} bytes")
    return found
