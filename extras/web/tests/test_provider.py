"""Signing in with an identity provider, on loopback: whom it knows comes in, and no other sign-in can be finished."""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from extras.web.tests.serving import TOKEN, Served, serving
from runtime.dev_server import DevServer, free_port
from runtime.people_file import PeopleFile, Person

USERS: Mapping[str, Mapping[str, Any]] = {
    "ann": {"email": "ann@shop.example", "email_verified": True, "groups": ["finance"]},
    "bob": {"email": "bob@shop.example", "email_verified": False},
    "eve": {},
}
CLIENT = "replan"


@asynccontextmanager
async def provider(*options: str) -> AsyncIterator[str]:
    """An identity provider in a process of its own; its issuer."""
    port = free_port()
    claims = [f"--user-claims={json.dumps({'sub': sub, **more})}" for sub, more in USERS.items()]
    words = ["-m", "oidc_provider_mock", "--port", str(port), *claims, *options]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=DEVNULL, stderr=DEVNULL)
    issuer = f"http://127.0.0.1:{port}"
    try:
        async with httpx2.AsyncClient(trust_env=False) as asking:
            while True:
                try:
                    if (await asking.get(f"{issuer}/.well-known/openid-configuration")).status_code == 200:
                        break
                except httpx2.TransportError:
                    await asyncio.sleep(0.1)
        yield issuer
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def page(address: str, folder: Path, issuer: str, *options: str, token: str = TOKEN) -> AsyncIterator[Served]:
    known: dict[str, Any] = {"REPLAN_PROVIDER_CLIENT": CLIENT, "REPLAN_PROVIDER_SECRET": "a-secret"}
    async with serving(address, folder, *options, token=token, REPLAN_PROVIDER=issuer, **known) as served:
        yield served


async def sent_there(browser: httpx2.AsyncClient, next: str = "/ui/tasks") -> str:
    """Begin to sign in; the URL of the provider to which the person is sent."""
    sent = await browser.get("/login/provider/", params={"next": next})
    assert sent.status_code == 302, sent.text
    return sent.headers["location"]


async def agreed(url: str, sub: str = "ann") -> str:
    """The person signs in at the provider: the URL to which it sends the person back."""
    async with httpx2.AsyncClient(trust_env=False) as there:
        answered = await there.post(url, data={"sub": sub})
    assert answered.status_code == 302, answered.text
    return answered.headers["location"]


def session_of(response: httpx2.Response) -> str:
    """The session that a response gives; empty for none."""
    cookies = [one for one in response.headers.get_list("set-cookie") if one.startswith("replan_session=")]
    return cookies[0] if cookies else ""


async def test_only_a_sign_in_that_this_browser_began_can_be_finished(server: DevServer, tmp_path: Path) -> None:
    """With PKCE and a nonce; the session is a new one, and its cookie is for this site only."""
    async with (
        provider() as issuer,
        page(server.address, tmp_path, issuer) as served,
        served.visit() as browser,
        served.visit() as other,
    ):
        form = await browser.get("/login")
        url = await sent_there(browser)
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        back = await agreed(url)
        theirs = await other.get(back)  # login CSRF: a link that somebody sends
        done = await browser.get(back)
        seen = await browser.get("/ui/tasks")
        again = await browser.get(back)
        anew = await agreed(await sent_there(browser))
        swapped = await browser.get(anew.replace(parse_qs(urlsplit(anew).query)["state"][0], "x" * 30))
        elsewhere = await agreed(await sent_there(browser, "https://evil.example/ui/"))
        local = await browser.get(elsewhere)
        mixed = await browser.get(f"{await agreed(await sent_there(browser))}&iss=https://evil.example")
        no = await browser.get("/login/provider/back?error=access_denied&error_description=<b>no</b>")
        refused = {sub: await browser.get(await agreed(await sent_there(browser), sub)) for sub in ("bob", "eve")}

    assert 'href="/login/provider/?next=' in form.text
    assert (asked["response_type"], asked["code_challenge_method"], asked["client_id"]) == ("code", "S256", CLIENT)
    assert asked["nonce"] and asked["state"] and asked["redirect_uri"] == f"{served.url}/login/provider/back"
    assert done.status_code == 200 and "Signed in as ann@shop.example" in done.text
    assert 'content="0; url=/ui/tasks"' in done.text and "HttpOnly" in session_of(done)
    assert "SameSite=strict" in session_of(done) and seen.status_code == 200 and "ann@shop.example" in seen.text
    for response in (theirs, again, swapped, mixed, no, *refused.values()):
        assert (response.status_code, session_of(response)) == (403, ""), response.text
        assert "Traceback" not in response.text and "<b>no" not in response.text
    assert "evil.example" in mixed.text and "evil.example" not in local.text and local.status_code == 200
    assert "has not verified the address" in refused["bob"].text
    assert "does not tell the claim email" in refused["eve"].text


async def id_token(issuer: str, client: str = CLIENT, sub: str = "ann") -> str:
    """The ID token of a person, as a program of this client gets it."""
    about = {"client_id": client, "redirect_uri": "http://127.0.0.1/", "scope": "openid email", "response_type": "code"}
    async with httpx2.AsyncClient(trust_env=False) as there:
        answered = await there.post(f"{issuer}/oauth2/authorize", params=about, data={"sub": sub})
        code = parse_qs(urlsplit(answered.headers["location"]).query)["code"][0]
        asked = {"grant_type": "authorization_code", "code": code, "redirect_uri": about["redirect_uri"]}
        given = await there.post(f"{issuer}/oauth2/token", data=asked, auth=(client, "a-secret"))
    return str(given.json()["id_token"])


@pytest.mark.full
async def test_a_program_sends_the_id_token_of_a_person(server: DevServer, tmp_path: Path) -> None:
    """For this client alone, and not after its end; without any token, nobody comes in."""
    people, file = PeopleFile(people=(Person(name="ann", also=("ann@shop.example",)),)), tmp_path / "people.json"
    people.write(file)
    async with (
        provider("--token-max-age", "6") as issuer,
        page(server.address, tmp_path, issuer, "--people", str(file), token="") as served,
        served.visit() as nobody,
    ):
        token = await id_token(issuer)
        stranger = [await nobody.get("/tasks"), await nobody.get("/ui/tasks")]
        tokens = {"true": token, "another client": await id_token(issuer, "another"), "cut": token[:-9]}
        tokens["unsigned"] = f"{token.rpartition('.')[0]}."
        told: dict[str, int] = {}
        for name, sent in tokens.items():
            async with served.visit(sent) as program:
                told[name] = (await program.get("/tasks")).status_code
        person = people.people[0].model_copy(update={"until": datetime.now(UTC)})
        people.model_copy(update={"people": (person,)}).write(file)
        async with served.visit(token) as program:
            removed = await program.get("/tasks")
            people.write(file)
            await asyncio.sleep(6.5)
            told["ended"] = (await program.get("/tasks")).status_code

    assert [one.status_code for one in stranger] == [401, 303]
    assert told == {"true": 200, "another client": 401, "cut": 401, "unsigned": 401, "ended": 401}
    assert (removed.status_code, removed.json()["code"]) == (403, "removed")


async def test_a_provider_that_does_not_answer_is_named(server: DevServer, tmp_path: Path) -> None:
    async with page(server.address, tmp_path, f"http://127.0.0.1:{free_port()}") as served, served.visit() as browser:
        down = await browser.get("/login/provider/")
        with_token = await browser.post("/login", data={"name": "ann", "token": TOKEN, "next": "/ui/tasks"})

    assert down.status_code == 502 and "does not answer as one" in down.text
    assert with_token.status_code == 303
