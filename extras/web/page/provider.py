"""Signing in at the page with an identity provider: the way there, and the way back."""

import secrets
from collections.abc import Callable

from fastapi import Request
from fastapi.responses import Response
from starlette.middleware.sessions import SessionMiddleware
from starlette.routing import Mount, Route, Router

from console.serving.access import Denied
from extras.web.page.rendering import local_path, problem_page, render
from extras.web.page.sign_in import begin_session
from extras.web.provider import IdentityProvider, SignedIn

PATH = "/login/provider"
COOKIE = "replan_sign_in"
SECONDS = 600
"""How long a person may take to sign in at the provider."""


def sign_in_place(provider: IdentityProvider, session_of: Callable[[SignedIn], str]) -> Mount:
    """The routes below PATH. `session_of` makes the session of a person."""

    async def there(request: Request) -> Response:
        request.session.clear()  # what was begun before cannot be finished any more
        request.session["next"] = local_path(request, request.query_params.get("next", ""))
        base = provider.page or f"{request.url.scheme}://{request.url.netloc}"
        try:
            return await provider.begin(request, f"{base.rstrip('/')}{PATH}/back")
        except Denied as denied:
            return _problem(request, denied)

    async def back(request: Request) -> Response:
        next = str(request.session.get("next", ""))
        try:
            person = await provider.finish(request)
            session = session_of(person)
        except Denied as denied:
            return _problem(request, denied)
        finally:
            request.session.clear()
        # No redirect: the browser would follow it as the provider's, without the session's cookie, which is strict.
        response = render(request, "signed_in.html", next=local_path(request, next), name=person.name)
        begin_session(request, response, session)
        return response

    router = Router([Route("/", there), Route("/back", back)])
    # Lax: the provider sends the person back, and the cookie with the state has to come along.
    is_secure = provider.page.startswith("https://")
    return Mount(PATH, SessionMiddleware(router, secrets.token_hex(), COOKIE, SECONDS, PATH, "lax", is_secure))


def _problem(request: Request, denied: Denied) -> Response:
    return problem_page(request, denied.status, denied.code, denied.reason, denied.remedy)
