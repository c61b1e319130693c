"""Access to a server: tokens, the browser's session, and protection against requests of other websites.

Used at each request, and when a person signs in. A program sends `Authorization: Bearer TOKEN`; a browser exchanges a
token for a signed cookie. With the operator's token, the name of a person is what they claim. A personal token of the
people file, a proxy or an identity provider says who it is, and the server vouches for that. Without any token only
this machine can reach the server.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from itsdangerous import BadSignature, URLSafeTimedSerializer

from client.people import login_name
from client.problem import Problem
from client.text import one_line
from client.vouching import Voucher
from runtime.people_file import SCOPES, BadPeople, KnownPeople, Machine, PeopleFile, Person, Scope, Signer
from workflows.commands import command
from workflows.people.requests import MAX_NAME

TOKEN, IDENTITY_HEADER = "REPLAN_TOKEN", "REPLAN_IDENTITY_HEADER"
"""The variables with what an Access holds."""
COOKIE = "replan_session"
SESSION_SECONDS = 12 * 3600
MIN_TOKEN = 16
"""The fewest characters of a token."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""HTTP methods that change nothing."""


MARK = 16
"""How many characters of a token's digest a session has, so that a new token ends it."""


class Denied(Exception):
    """The request is refused; `status` is the HTTP status, `code` is for programs."""

    def __init__(self, status: int, code: str, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}.")
        self.status, self.code, self.reason, self.remedy = status, code, reason, remedy


def _wrong_token() -> Denied:
    return Denied(401, "wrong_token", "The token is wrong, or has ended", "send `Authorization: Bearer TOKEN`")


How = Literal["", "session", "token", "proxy", "provider", "machine"]


@dataclass(frozen=True)
class Visitor:
    """The sender of a request: a person or a program."""

    name: str
    """Empty for a program that gave no name."""
    how: How = ""
    """How the name is known: by a personal token, a proxy, an identity provider, or the token of a program (`machine`).
    In a `session` that began with the operator's token, it is what the person claimed; empty for a claim of each
    request."""
    roles: tuple[str, ...] = ()
    is_person: bool = False
    """Whether the server knows this person, so that its door can vouch for them."""
    scopes: Collection[Scope] = SCOPES
    """What the visitor may do; the operator, and a person unless the people file says less, may do all of it."""

    @property
    def is_known(self) -> bool:
        """Whether an answer cannot claim another name."""
        return self.how != ""

    def answers_as(self, claimed: str) -> str:
        """The name to record with an answer: a known name, else `claimed`, else the visitor's unconfirmed name."""
        return self.name if self.is_known else claimed or self.name


@dataclass(frozen=True)
class Access:
    """The rules of one server."""

    token: str | None = None
    """The operator's token; None if there is none."""
    identity_header: str | None = None
    """The header in which a proxy, which sends the token, says who is signed in; None if there is no such proxy."""
    people: KnownPeople | None = None
    """The people and programs with tokens of their own; None if nobody has one."""
    door: Signer | None = None
    """The key that vouches for people; None if nothing does."""
    has_provider: bool = False
    """Whether people sign in with an identity provider."""

    @classmethod
    def of_environment(
        cls, people: Path | None = None, door_key: Path | None = None, *, has_provider: bool = False
    ) -> Self:
        """The rules that the environment sets, with the people file `people` and the key file `door_key`.

        Raises Problem for what cannot be used: a bad token, a header without a token, a file, or a key that the people
        file does not have.
        """
        try:
            known, door = KnownPeople(people) if people else None, Signer.read(door_key) if door_key else None
        except BadPeople as error:
            raise Problem("misconfigured", error.reason, error.remedy) from error
        return cls(os.environ.get(TOKEN) or None, os.environ.get(IDENTITY_HEADER) or None, known, door, has_provider)

    def __post_init__(self) -> None:
        """Raises Problem for a token that is too short or has unusable characters, and for a header without a token.

        Also for a door's key without a people file, or one that the file does not have.
        """
        remedy = "make one with `python -c 'import secrets; print(secrets.token_urlsafe())'`"
        if self.token is not None and len(self.token) < MIN_TOKEN:
            raise Problem("usage", f"The token has fewer than {MIN_TOKEN} characters", remedy)
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise Problem("usage", "The token has characters that a header cannot have", remedy)
        if self.identity_header and self.token is None:
            reason = f"{IDENTITY_HEADER} needs a token, which the proxy sends, or anybody could send the header"
            raise Problem("usage", reason, f"set {TOKEN}")
        if self.door is not None:
            self._check_door(self.door)
        # The sessions of a server end when its token changes, and outlive a restart with the same token.
        object.__setattr__(self, "_signer", _sessions((self.token or secrets.token_hex()).encode()))
        # Those of people are made with another key, or who has the operator's token could make them.
        own = self.door.key.private_bytes_raw() if self.door else secrets.token_bytes(32)
        object.__setattr__(self, "_signer_of_people", _sessions(own))

    def _check_door(self, door: Signer) -> None:
        if self.people is None:
            raise Problem("usage", "--door-key vouches for the people of --people, which is missing", "give both")
        try:
            self.people.now().check_door(door.id, datetime.now(UTC))
        except ValueError as error:
            reason = f"The key of --door-key vouches for nobody, since {error}"
            raise Problem("usage", reason, f"`{command('people', 'door', 'NAME', 'FILE')}` makes another") from error

    @property
    def is_open(self) -> bool:
        """Whether everybody who reaches the server has access; then it listens on loopback only."""
        return self.token is None and self.people is None and not self.has_provider

    def check_site(self, method: str, headers: Mapping[str, str]) -> None:
        """Reject a request that another website makes a browser send.

        Raises:
            Denied: the method is not SAFE and another site sent the request, or the server is open and the header Host
                does not name this machine.
        """
        host = headers.get("host", "")
        if self.is_open and not is_loopback(_hostname(host)):
            # A website can let its own name stand for this machine (DNS rebinding).
            reason = f"This server answers only as localhost, and not as {one_line(host)[:100]!r}"
            raise Denied(421, "wrong_host", reason, "open it as localhost, or start it with REPLAN_TOKEN")
        if method in SAFE:
            return
        site, origin = headers.get("sec-fetch-site"), headers.get("origin", "")
        is_other_origin = origin != "" and origin.partition("://")[2] != host
        is_foreign = site not in ("same-origin", "none") if site else is_other_origin
        if is_foreign:
            raise Denied(403, "cross_site", "Another website sent this request", "send it from a page of this server")

    def visitor(self, headers: Mapping[str, str]) -> Visitor | None:
        """The sender of a request; None if a token is needed, and the request has neither a token nor a session.

        Raises:
            Denied: the token is wrong or has ended, the proxy did not say who is signed in, or the people file cannot
                be read.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme and not self.is_open:
            if scheme.lower() != "bearer":
                raise _wrong_token()
            token = token.strip()
            return self._sender_with_token(headers) if self._is_token(token) else self._holder(token)
        if (found := self._in_session(headers.get("cookie", ""))) is not None:
            return found
        return Visitor(login_name()) if self.is_open else None

    def _sender_with_token(self, headers: Mapping[str, str]) -> Visitor:
        if self.identity_header is None:
            return Visitor("")
        # With two of them, one may be of the browser, if the proxy adds its own to what it got.
        values = [value for name, value in headers.items() if name == self.identity_header.lower()]
        # A server reads headers as Latin-1, and proxies write UTF-8.
        name = name_of(values[0].encode("latin-1").decode(errors="replace")) if len(values) == 1 else ""
        if not name:
            reason = f"The request has the token, and not one header {self.identity_header} that says who is signed in"
            raise Denied(403, "no_identity", reason, "let the proxy send it")
        if (person := self._file.person(name)) is None:
            return Visitor(name, "proxy")
        if person.is_over(datetime.now(UTC)):
            raise Denied(403, "removed", f"{person.name} may not use this server any more", "ask who runs it")
        return _of(person, "proxy")

    def _holder(self, token: str) -> Visitor:
        """Who has this token. Raises Denied if nobody has it now."""
        match self._file.holder(token, datetime.now(UTC)):
            case Person() as person:
                return _of(person, "token")
            case Machine() as machine:
                return Visitor(machine.name, "machine", scopes=machine.scopes)
        raise _wrong_token()

    @property
    def _file(self) -> PeopleFile:
        """What the people file says now; an empty one without it. Raises Denied if it cannot be read or used."""
        try:
            return self.people.now() if self.people else PeopleFile()
        except BadPeople as error:
            raise Denied(503, "no_people", error.reason, error.remedy) from error

    def _is_token(self, token: str) -> bool:
        """Whether `token` is the operator's, compared in constant time."""
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def voucher(self, visitor: Visitor | None) -> Voucher | None:
        """What signs that a visitor gives an answer; None for a program, and for a name that nobody vouches for."""
        if visitor is None or self.door is None or not visitor.is_person:
            return None
        return Voucher(visitor.name, visitor.how, visitor.roles, self.door)

    def sign_in(self, token: str, name: str) -> str:
        """The session of a person with this token. With the operator's, the person has this `name`.

        Raises:
            Denied: the token is wrong, has ended, or is that of a program, or there is no name.
        """
        if not (self.is_open or self._is_token(token)):
            visitor = self._holder(token)
            if not visitor.is_person:
                raise Denied(
                    403, "no_person", f"The token is that of {visitor.name}, a program", "sign in with your own"
                )
            return self._session_of(visitor, mark=self._mark(visitor.name))
        if not name:
            raise Denied(401, "no_name", "The histories of what you answer have your name", "write it")
        return self.session(name)

    def session(self, name: str) -> str:
        """The signed value of the session cookie for a person who claims this name."""
        return str(self._signer.dumps(name))  # type: ignore[attr-defined]  # set for a frozen class

    def session_with_provider(self, name: str, roles: Sequence[str]) -> str:
        """The session of a person whom an identity provider knows. Raises Denied if the people file has ended them."""
        return self._session_of(self.from_provider(name, tuple(roles)))

    def from_provider(self, name: str, roles: tuple[str, ...]) -> Visitor:
        """A person whom an identity provider knows. Raises Denied if the people file has ended them."""
        person = self._file.person(name)
        if person is not None and person.is_over(datetime.now(UTC)):
            raise Denied(403, "removed", f"{person.name} may not use this server any more", "ask who runs it")
        return _of(person, "provider") if person else Visitor(name, "provider", roles, is_person=True)

    def _mark(self, name: str) -> str:
        """What a new token of a person changes; empty for somebody who is gone."""
        person = self._file.active(name, datetime.now(UTC))
        return person.token[:MARK] if person else ""

    def _session_of(self, visitor: Visitor, mark: str = "") -> str:
        kept = {"name": visitor.name, "how": visitor.how, "roles": visitor.roles, "mark": mark}
        return str(self._signer_of_people.dumps(kept))  # type: ignore[attr-defined]  # as above

    def _in_session(self, cookies: str) -> Visitor | None:
        """Who has the session of a request's cookies, as the people file says now; None for no session."""
        try:
            found = SimpleCookie(cookies).get(COOKIE)
        except CookieError:
            return None
        if found is None:
            return None
        name = _unsigned(self._signer, found.value)  # type: ignore[attr-defined]  # as above
        if isinstance(name, str):
            return Visitor(name, "session")
        kept = _unsigned(self._signer_of_people, found.value)  # type: ignore[attr-defined]  # as above
        if not isinstance(kept, dict):
            return None
        if kept["how"] == "provider":
            return self.from_provider(kept["name"], tuple(kept["roles"]))
        person = self._file.active(kept["name"], datetime.now(UTC))
        if person is None or not person.token or person.token[:MARK] != kept["mark"]:
            return None
        return _of(person, "token")


def _of(person: Person, how: How) -> Visitor:
    return Visitor(person.name, how, person.roles, is_person=True, scopes=person.scopes)


def _sessions(secret: bytes) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(hmac.digest(secret, b"replan session", hashlib.sha256), salt="session")


def _unsigned(signer: URLSafeTimedSerializer, value: str) -> Any:
    """What is in a session; None if this signer did not make it, or not lately."""
    try:
        return signer.loads(value, max_age=SESSION_SECONDS)
    except BadSignature:
        return None


def name_of(text: str) -> str:
    """A person's name as it is recorded: on one line, with at most MAX_NAME characters."""
    return one_line(text)[:MAX_NAME]


def _hostname(host: str) -> str:
    """The host name or address in a header Host; empty if the header cannot be read."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a host name or an address is that of the loopback interface."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
