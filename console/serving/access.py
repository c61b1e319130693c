"""Access to the server: the token, the browser's session, and protection against requests of other websites.

A program sends `Authorization: Bearer TOKEN`. A browser exchanges the token for a signed cookie; the name that a person
gives at sign-in is recorded with the answers. Without a token only this machine can reach the server.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Self
from urllib.parse import urlsplit

from itsdangerous import BadSignature, URLSafeTimedSerializer

from client.people import login_name
from client.problem import Problem
from client.text import one_line
from workflows.people.requests import MAX_NAME

TOKEN, IDENTITY_HEADER = "REPLAN_TOKEN", "REPLAN_IDENTITY_HEADER"
"""The variables with what an Access holds."""
COOKIE = "replan_session"
SESSION_SECONDS = 12 * 3600
MIN_TOKEN = 16
"""The fewest characters of a token."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""HTTP methods that change nothing."""


class Denied(Exception):
    """The request is refused; `status` is the HTTP status, `code` is for programs."""

    def __init__(self, status: int, code: str, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}.")
        self.status, self.code, self.reason, self.remedy = status, code, reason, remedy


@dataclass(frozen=True)
class Visitor:
    """The sender of a request: a person or a program."""

    name: str
    """Empty for a program that gave no name."""
    is_known: bool
    """Whether a session or a proxy vouches for the name, so that an answer cannot claim another name."""

    def answers_as(self, claimed: str) -> str:
        """The name to record with an answer: a known name, else `claimed`, else the visitor's unconfirmed name."""
        return self.name if self.is_known else claimed or self.name


@dataclass(frozen=True)
class Access:
    """The rules of one server."""

    token: str | None = None
    """None: everybody who reaches the server has access, and the server listens on loopback only."""
    identity_header: str | None = None
    """The header in which a proxy, which sends the token, says who is signed in; None if there is no such proxy."""

    @classmethod
    def of_environment(cls) -> Self:
        """The rules that the environment sets. Raises Problem if it has a bad token, or a header without a token."""
        return cls(os.environ.get(TOKEN) or None, os.environ.get(IDENTITY_HEADER) or None)

    def __post_init__(self) -> None:
        """Raises Problem for a token that is too short or has unusable characters, and for a header without a token."""
        remedy = "make one with `python -c 'import secrets; print(secrets.token_urlsafe())'`"
        if self.token is not None and len(self.token) < MIN_TOKEN:
            raise Problem("usage", f"The token has fewer than {MIN_TOKEN} characters", remedy)
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise Problem("usage", "The token has characters that a header cannot have", remedy)
        if self.identity_header and self.token is None:
            reason = f"{IDENTITY_HEADER} needs a token, which the proxy sends, or anybody could send the header"
            raise Problem("usage", reason, f"set {TOKEN}")
        # The sessions of a server end when its token changes, and outlive a restart with the same token.
        key = hmac.digest((self.token or secrets.token_hex()).encode(), b"replan session", hashlib.sha256)
        object.__setattr__(self, "_signer", URLSafeTimedSerializer(key, salt="session"))

    def check_site(self, method: str, headers: Mapping[str, str]) -> None:
        """Reject a request that another website makes a browser send.

        Raises:
            Denied: the method is not SAFE and another site sent the request, or, without a token, the header Host does
                not name this machine.
        """
        host = headers.get("host", "")
        if self.token is None and not is_loopback(_hostname(host)):
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
        """The sender of a request; None if a token is needed, and the request has neither the token nor a session.

        Raises:
            Denied: the token is wrong, or the proxy did not say who is signed in.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if self.token is not None and scheme:
            if scheme.lower() != "bearer" or not self.is_token(token.strip()):
                raise Denied(401, "wrong_token", "The token is wrong", "send `Authorization: Bearer TOKEN`")
            return self._sender_with_token(headers)
        if (name := self._name_in_session(headers.get("cookie", ""))) is not None:
            return Visitor(name, is_known=True)
        return Visitor(login_name(), is_known=False) if self.token is None else None

    def _sender_with_token(self, headers: Mapping[str, str]) -> Visitor:
        if self.identity_header is None:
            return Visitor("", is_known=False)
        # With two of them, one may be of the browser, if the proxy adds its own to what it got.
        values = [value for name, value in headers.items() if name == self.identity_header.lower()]
        # A server reads headers as Latin-1, and proxies write UTF-8.
        name = name_of(values[0].encode("latin-1").decode(errors="replace")) if len(values) == 1 else ""
        if not name:
            reason = f"The request has the token, and not one header {self.identity_header} that says who is signed in"
            raise Denied(403, "no_identity", reason, "let the proxy send it")
        return Visitor(name, is_known=True)

    def is_token(self, token: str) -> bool:
        """Whether `token` is the server's token, compared in constant time; True if the server has no token."""
        return self.token is None or hmac.compare_digest(token.encode(), self.token.encode())

    def session(self, name: str) -> str:
        """The signed value of the session cookie for a visitor with this name."""
        return str(self._signer.dumps(name))  # type: ignore[attr-defined]  # set for a frozen class

    def _name_in_session(self, cookies: str) -> str | None:
        try:
            found = SimpleCookie(cookies).get(COOKIE)
            name = self._signer.loads(found.value, max_age=SESSION_SECONDS) if found else None  # type: ignore[attr-defined]
        except (CookieError, BadSignature):
            return None
        return name if isinstance(name, str) else None


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
