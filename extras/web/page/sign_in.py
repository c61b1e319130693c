"""Signing in and out, and where a person begins."""

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from console.serving.access import COOKIE, SESSION_SECONDS, Denied, name_of
from extras.web.page.reaching import PageRoute
from extras.web.page.rendering import home_of, local_path, read_form, render

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/login")
async def login_page(request: Request, next: str = "") -> Response:
    return render(request, "login.html", next=local_path(request, next), wrong="", name="")


@router.post("/login")
async def login(request: Request) -> Response:
    form, access = await read_form(request), request.app.state.access
    name, back = name_of(form.get("name", "")), local_path(request, form.get("next", ""))
    try:
        session = access.sign_in(form.get("token", ""), name)
    except Denied as denied:
        if denied.code != "no_name":
            await asyncio.sleep(0.5)
        return render(request, "login.html", denied.status, next=back, wrong=str(denied), name=name)
    response = RedirectResponse(back, 303)
    begin_session(request, response, session)
    return response


def begin_session(request: Request, response: Response, session: str) -> None:
    """Give the browser a new session, whatever it had before."""
    is_secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(COOKIE, session, SESSION_SECONDS, httponly=True, samesite="strict", secure=is_secure)


@router.post("/logout")
async def logout(request: Request) -> Response:
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


@router.get("/")
async def home(request: Request) -> Response:
    return RedirectResponse(home_of(request), 303)


@router.get("/logout")
async def logged_out() -> Response:
    return RedirectResponse("/login", 303)
