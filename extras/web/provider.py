"""Signing in with an identity provider: OpenID Connect, by the authorization code with PKCE.

Used when a person signs in at the page, and when a program sends a person's ID token to the API.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.base_client import OAuthError
from authlib.integrations.starlette_client import OAuth, StarletteOAuth2App
from authlib.oidc.core import CodeIDToken
from fastapi import Request
from fastapi.responses import Response
from httpx2 import HTTPError
from joserfc.errors import JoseError

from client.problem import Problem
from client.text import one_line
from console.serving.access import Denied, is_loopback, name_of
from workflows.people.statement import MAX_ROLES

VARIABLE = "REPLAN_PROVIDER"
CLIENT, SECRET = f"{VARIABLE}_CLIENT", f"{VARIABLE}_SECRET"
NAME, ROLES = f"{VARIABLE}_NAME", f"{VARIABLE}_ROLES"
PAGE = "REPLAN_PAGE"
SCOPE = "openid profile email"
MAX_ROLE = 80
"""The most characters of a role that a claim gives."""
SECONDS = 10.0
"""How long the provider may take to answer."""


class SignedIn(NamedTuple):
    """A person whom the provider knows."""

    name: str
    roles: tuple[str, ...]


@dataclass(frozen=True)
class IdentityProvider:
    """An identity provider, and which of its claims are the name and the roles of a person."""

    issuer: str
    client_id: str
    secret: str | None = field(default=None, repr=False)
    name_claim: str = "email"
    roles_claim: str = "groups"
    page: str = ""
    """The URL of this server as people open it; empty for the one in each request."""
    _app: StarletteOAuth2App = field(init=False, repr=False, compare=False)

    @classmethod
    def of_environment(cls) -> Self:
        """The provider that the environment names. Raises Problem if it cannot be used."""
        issuer = os.environ.get(VARIABLE, "").rstrip("/")
        parts = urlsplit(issuer)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            reason = (
                f"{VARIABLE}={one_line(issuer)[:200]} is no https URL, so anybody on the way could say who signs in"
            )
            raise Problem("usage", reason, "give the provider's issuer, such as https://login.example")
        if not (client_id := os.environ.get(CLIENT)):
            raise Problem(
                "usage", f"{VARIABLE} needs {CLIENT}", "give the client id that the provider has for this page"
            )
        named = {"name_claim": os.environ.get(NAME), "roles_claim": os.environ.get(ROLES)}
        named["page"] = os.environ.get(PAGE, "").rstrip("/")
        secret = os.environ.get(SECRET) or None
        return cls(issuer, client_id, secret, **{name: value for name, value in named.items() if value})

    def __post_init__(self) -> None:
        """Nothing is asked of the provider yet."""
        where = f"{self.issuer}/.well-known/openid-configuration"
        how = {"scope": SCOPE, "code_challenge_method": "S256", "timeout": SECONDS}
        app = OAuth().register(
            "provider",
            client_id=self.client_id,
            client_secret=self.secret,
            server_metadata_url=where,
            client_kwargs=how if self.secret else {**how, "token_endpoint_auth_method": "none"},
        )
        object.__setattr__(self, "_app", app)

    async def begin(self, request: Request, callback: str) -> Response:
        """The redirect to the provider, which sends the person back to the URL `callback`.

        Raises Denied if the provider does not answer. State, nonce and verifier are in `request.session`.
        """
        try:
            response: Response = await self._app.authorize_redirect(request, callback)
        except (HTTPError, AuthlibBaseError, RuntimeError, ValueError) as error:
            raise self._unreachable(error) from error
        return response

    async def finish(self, request: Request) -> SignedIn:
        """Who has signed in, from the request with which the provider sent the person back.

        Raises:
            Denied: the provider refused, does not answer, or what it says is not for this sign-in.
        """
        issuer = request.query_params.get("iss")
        if issuer is not None and issuer.rstrip("/") != self.issuer:
            raise _refused(f"The answer is from {one_line(issuer)[:200]}, and not from {self.issuer}")
        try:
            token = await self._app.authorize_access_token(request)
        except OAuthError as error:
            raise _refused(f"The provider refused it ({one_line(error.error or '')[:200]})") from error
        except (AuthlibBaseError, JoseError, RuntimeError, ValueError, KeyError) as error:
            raise _refused(f"What the provider sent does not fit this sign-in ({type(error).__name__})") from error
        except HTTPError as error:
            raise self._unreachable(error) from error
        if not token.get("userinfo"):
            raise _refused("The provider sent no ID token")
        return self._person(token["userinfo"])

    async def of_token(self, token: str) -> SignedIn:
        """Whose ID token this is. Raises Denied if it is none of the provider's for this client, or has ended."""
        try:
            claims = await self._app.parse_id_token({"id_token": token}, nonce=None, claims_cls=CodeIDToken)
            await self._check_issuer(claims)
        except (AuthlibBaseError, JoseError, ValueError, KeyError) as error:
            reason = f"The token is none of {self.issuer} for this server, or has ended"
            raise Denied(401, "wrong_token", reason, "send a new ID token as `Authorization: Bearer`") from error
        except (HTTPError, RuntimeError) as error:
            raise self._unreachable(error) from error
        return self._person(claims)

    async def _check_issuer(self, claims: Mapping[str, Any]) -> None:
        audience = claims.get("aud")
        audiences = [audience] if isinstance(audience, str) else audience or []
        is_open = isinstance(claims.get("exp"), int | float) and claims["exp"] > time.time()
        if str(claims.get("iss", "")).rstrip("/") != self.issuer or self.client_id not in audiences or not is_open:
            raise ValueError("another issuer, audience or time")

    def _person(self, claims: Mapping[str, Any]) -> SignedIn:
        name, told = name_of(str(claims.get(self.name_claim) or "")), claims.get(self.roles_claim)
        if not name:
            raise _refused(f"The provider does not tell the claim {self.name_claim}", f"set {NAME} to another claim")
        if self.name_claim == "email" and claims.get("email_verified") is not True:
            raise _refused(
                "The provider has not verified the address", f"verify it there, or set {NAME} to another claim"
            )
        roles = [told] if isinstance(told, str) else told if isinstance(told, list) else []
        fitting = [role for role in roles if isinstance(role, str) and role and len(role) <= MAX_ROLE]
        return SignedIn(name, tuple(fitting[:MAX_ROLES]))

    def _unreachable(self, error: Exception) -> Denied:
        reason = f"The identity provider {self.issuer} does not answer as one ({type(error).__name__})"
        return Denied(502, "no_provider", reason, f"check {VARIABLE}, or try again")


def _refused(reason: str, remedy: str = "sign in again") -> Denied:
    return Denied(403, "not_signed_in", reason, remedy)
