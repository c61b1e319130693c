"""Who may ask, and who that is: tokens, sessions, other websites, proxies, and what is too large."""

import socket
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import httpx2
import pytest

from console.serving.access import COOKIE, Access
from extras.web.tests.serving import TOKEN, Served, asked, path_of, paying, serving, started
from runtime.dev_server import DevServer
from tests.gate import sampled
from tests.processes import Processes

OTHER = "another-token-of-the-tests"
ANY = "0.0.0.0"  # noqa: S104 - what is tested
BIG = b"x" * (2 * 1024 * 1024)
PROBLEM, FORM = "application/problem+json", "application/x-www-form-urlencoded"
WHO = ("program", "ann", "stranger")


def told_by(response: httpx2.Response) -> tuple[int, str, str]:
    """The status of a problem, the code, and the content type."""
    return response.status_code, response.json()["code"], response.headers["content-type"]


@pytest.fixture
async def program(guarded: Served) -> AsyncIterator[httpx2.AsyncClient]:
    async with guarded.visit(TOKEN) as speaking:
        yield speaking


@pytest.fixture
async def stranger(guarded: Served) -> AsyncIterator[httpx2.AsyncClient]:
    async with guarded.visit() as speaking:
        yield speaking


@pytest.fixture
async def ann(guarded: Served) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser in which ann has signed in."""
    async with guarded.visit() as browser:
        assert (await signed_in(browser)).status_code == 303
        yield browser


@pytest.fixture
def visitors(
    program: httpx2.AsyncClient, ann: httpx2.AsyncClient, stranger: httpx2.AsyncClient
) -> Mapping[str, httpx2.AsyncClient]:
    return dict(zip(WHO, (program, ann, stranger), strict=True))


async def signed_in(browser: httpx2.AsyncClient, **changed: str) -> httpx2.Response:
    """The response to the form of the login page."""
    return await browser.post("/login", data={"name": "ann", "token": TOKEN, "next": "/ui/tasks", **changed})


# Starting the server

REFUSED: Mapping[str, tuple[Sequence[str], dict[str, str], str]] = {
    "any address": (["--port", "0", "--host", ANY], {}, "set REPLAN_TOKEN too"),
    "any IPv6 address": (["--port", "0", "--host", "::"], {}, "set REPLAN_TOKEN too"),
    "a short token": (["--port", "0"], {"REPLAN_TOKEN": "x" * 15}, "fewer than 16 characters"),
    "an identity without a token": (
        ["--port", "0"],
        {"REPLAN_IDENTITY_HEADER": "X-User"},
        "REPLAN_IDENTITY_HEADER needs a to",
    ),
    "another machine": (
        ["--host", "192.0.2.1"],
        {"REPLAN_TOKEN": TOKEN},
        "Nothing can listen at 192.0.2.1:8300 (Cannot assign requested address): choose another address or port.\n",
    ),
}


@pytest.mark.parametrize(("options", "variables", "words"), sampled(REFUSED, "any address", "another machine"))
def test_a_server_that_anybody_or_nobody_could_use_does_not_start(
    server: DevServer, tmp_path: Path, options: Sequence[str], variables: dict[str, str], words: str
) -> None:
    done = Processes(server.address, tmp_path, variables).starter("serve", *options)

    assert done.returncode == 2, done.stdout
    assert words in done.stderr


def test_a_port_that_is_used_is_one_sentence_with_a_remedy(server: DevServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = Processes(server.address, tmp_path).starter("serve", "--port", str(port))

    said = f"Another program listens at 127.0.0.1:{port} already: stop it, or choose another port.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.full
async def test_with_a_token_it_may_listen_on_any_address(server: DevServer, queue: str, tmp_path: Path) -> None:
    """Then it answers under whatever name it has."""
    async with (
        serving(server.address, tmp_path, "--host", ANY, "--queue", queue, token=TOKEN) as served,
        served.visit(TOKEN, host="replan.example") as program,
    ):
        response = await program.get("/tasks")

    assert response.status_code == 200, response.text


# Tokens

WRONG = ("Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer ünïcode")


async def test_only_the_token_opens_the_api(visitors: Mapping[str, httpx2.AsyncClient]) -> None:
    """Nothing is said of what there is; and who says who they are twice has to be right twice."""
    program, ann, stranger = visitors.values()
    without = [await stranger.get(path) for path in ("/tasks", "/tasks/nobody/events", "/openapi.json", "/nowhere")]
    wrong = [await stranger.get("/tasks", headers={b"authorization": one.encode()}) for one in WRONG]
    beside_a_session = await ann.get("/tasks", headers={"authorization": "Bearer wrong"})

    assert {told_by(one) for one in without} == {(401, "no_token", PROBLEM)}
    assert {one.headers["www-authenticate"] for one in without} == {"Bearer"}
    assert [told_by(one) for one in (*wrong, beside_a_session)] == [(401, "wrong_token", PROBLEM)] * 7
    assert (await program.get("/tasks")).status_code == 200


async def test_an_answer_has_the_name_that_somebody_vouches_for(
    visitors: Mapping[str, httpx2.AsyncClient], proxied: Served
) -> None:
    """That of the login or of the proxy, whatever else is claimed; the token vouches for no name."""
    async with proxied.visit(TOKEN, x_user="Jürgen Ærø") as proxy:  # in UTF-8, as proxies write it
        found = [
            await name_of_answer(who, **claimed)
            for who, claimed in (
                (visitors["program"], {"by": "a program"}),
                (visitors["program"], {"header": "eve"}),
                (visitors["ann"], {"by": "eve"}),
                (proxy, {"by": "eve"}),
            )
        ]

    assert found == ["a program", "", "ann", "Jürgen Ærø"]


async def name_of_answer(visitor: httpx2.AsyncClient, by: str = "", header: str = "") -> str:
    """Who answered a new task, as the response has it."""
    id = await started(visitor, 900)
    answer = {"choice": "abort", "request": (await asked(visitor, id))["id"], **({"by": by} if by else {})}
    headers = {"x-user": header} if header else {}
    return str((await visitor.post(path_of(id, "answers"), json=answer, headers=headers)).json()["by"])


async def test_health_needs_no_token(stranger: httpx2.AsyncClient) -> None:
    """The one who asks is an orchestrator of containers, which may send anything."""
    responses = [
        await stranger.get(path, headers=headers)
        for path in ("/health/live", "/health/ready")
        for headers in ({}, {"authorization": "Bearer wrong"}, {"host": "10.0.0.7:8300"})
    ]

    assert [(one.status_code, one.json()) for one in responses] == [(200, {"status": "ok"})] * 6


# The browser's session


async def test_a_page_leads_to_the_login_and_back(stranger: httpx2.AsyncClient) -> None:
    to_login = await stranger.get("/ui/tasks?status=waiting")
    page = await stranger.get(to_login.headers["location"])

    assert (to_login.status_code, to_login.headers["location"]) == (303, "/login?next=%2Fui%2Ftasks%3Fstatus%3Dwaiting")
    assert (page.status_code, 'value="/ui/tasks?status=waiting"' in page.text) == (200, True)


async def test_the_login_trades_the_token_for_a_cookie_until_the_logout(stranger: httpx2.AsyncClient) -> None:
    """No script reads it, no other site sends it, and the token is not in it; behind HTTPS it is secure."""
    form = {"name": "ann", "token": TOKEN, "next": ""}
    behind_https = await stranger.post("/login", data=form, headers={"x-forwarded-proto": "https"})
    stranger.cookies.clear()
    response = await signed_in(stranger)
    cookie = response.headers["set-cookie"]
    attributes = {one.strip().lower() for one in cookie.split(";")[1:]}
    inside = await stranger.get("/ui/tasks")
    out = await stranger.post("/logout")

    assert (response.status_code, response.headers["location"]) == (303, "/ui/tasks")
    assert {"httponly", "samesite=strict", "path=/"} <= attributes and "secure" not in attributes
    assert "secure" in behind_https.headers["set-cookie"].lower()
    assert TOKEN not in cookie and inside.status_code == 200
    assert (out.status_code, out.headers["location"]) == (303, "/login")
    assert (await stranger.get("/tasks")).status_code == 401


@pytest.mark.parametrize("wrong", [{"token": OTHER}, {"token": "ü"}, {"name": "  "}, {"name": "\x1b\u202e"}])
async def test_a_wrong_login_gets_no_cookie(stranger: httpx2.AsyncClient, wrong: dict[str, str]) -> None:
    response = await signed_in(stranger, **wrong)

    assert (response.status_code, "set-cookie" in response.headers) == (401, False)
    assert (await stranger.get("/tasks")).status_code == 401


NOT_OURS = (
    *("https://evil.example/ui/", "//evil.example/ui/", "/\\evil.example", "/ui/\\evil.example", "\\\\evil.example"),
    *("javascript:alert(1)", "/ui", "/ui/\r\nSet-Cookie: a=b", "/uievil", " /ui/tasks", "ui/tasks", "/logout", ""),
)


async def test_a_login_leads_to_no_other_place(stranger: httpx2.AsyncClient) -> None:
    """A link to the login page with a `next` of somebody else's making goes on at the inbox."""
    places = [(await signed_in(stranger, next=one)).headers["location"] for one in NOT_OURS]
    pages = [(await stranger.get("/login", params={"next": one})).text for one in NOT_OURS]

    assert set(places) == {"/ui/inbox"}, dict(zip(NOT_OURS, places, strict=True))
    assert all('name="next" value="/ui/inbox"' in page for page in pages)


def forged() -> dict[str, str]:
    """Cookies that this server did not make, or not so."""
    real, other = Access(TOKEN).session("ann"), Access(OTHER).session("ann")
    name, moment, mark = real.split(".")
    theirs = Access(TOKEN).session("eve").split(".")[0]
    return {
        "of another token": other,
        "with another name": ".".join([theirs, moment, mark]),
        "with another time": ".".join([name, moment[:-1] + ("A" if moment[-1] != "A" else "B"), mark]),
        "with another signature": ".".join([name, moment, mark[:-4] + ("AAAA" if mark[-4:] != "AAAA" else "BBBB")]),
        "without a signature": f"{name}.{moment}",
        "the name alone": "ann",
        "the token": TOKEN,
        "empty": "",
        "no text": "%ff.%ff.%ff",
        "long": "a." * 3000,
    }


async def test_a_session_is_good_if_a_server_with_this_token_made_it(stranger: httpx2.AsyncClient) -> None:
    """A forged one is as none; one that was made before a restart is good."""
    cookies = {**forged(), "of a server before": Access(TOKEN).session("ann")}
    found = {case: await stranger.get("/tasks", headers={"cookie": f"{COOKIE}={one}"}) for case, one in cookies.items()}

    assert found.pop("of a server before").status_code == 200
    assert {case: told_by(one) for case, one in found.items()} == dict.fromkeys(found, (401, "no_token", PROBLEM))


# Other websites

FOREIGN: Sequence[Mapping[str, str]] = (
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "null"},
    {"sec-fetch-site": "nonsense"},
    {"origin": "https://evil.example"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://127.0.0.1"},
    {"origin": "null"},
    {"origin": "http://["},
)
"""What a browser sends for a page of another website."""


@pytest.mark.parametrize("who", WHO)
async def test_another_website_changes_nothing(visitors: Mapping[str, httpx2.AsyncClient], who: str) -> None:
    visitor = visitors[who]
    id = f"foreign-{uuid.uuid4().hex}"
    posts = [
        await visitor.post(path, headers=dict(headers), **sent)
        for headers in FOREIGN
        for path, sent in (
            ("/tasks", {"json": {**paying(1), "id": id}}),
            ("/login", {"data": {"name": "eve", "token": TOKEN}}),
        )
    ]
    shown = [(one.status_code, one.text[:80]) for one in posts if one.status_code != 403]

    assert not shown
    assert {told_by(one) for one in posts} == {(403, "cross_site", PROBLEM)}
    if who != "stranger":
        assert (await visitor.get(path_of(id))).status_code == 404


async def test_a_page_of_the_server_may_change_things(ann: httpx2.AsyncClient, guarded: Served) -> None:
    for headers in ({"sec-fetch-site": "same-origin"}, {"origin": guarded.url}, {"sec-fetch-site": "none"}):
        response = await ann.post("/tasks", json=paying(1), headers=headers)

        assert response.status_code == 201, (headers, response.text)


FOREIGN_HOSTS = (
    *("evil.example", "evil.example:8300", "localhost.evil.example", "127.0.0.1.evil.example"),
    *(ANY, "8.8.8.8", "[2001:db8::1]:80", "[", ""),
)
OWN_HOSTS = ("localhost", "LOCALHOST:1", "127.0.0.1", "127.1.2.3:80", "[::1]:8300")
"""Several names, and a forwarded port may have another number."""


async def test_without_a_token_it_answers_as_this_machine_alone(local: Served) -> None:
    """A website that makes its own name stand for this machine reads nothing."""
    found = dict[str, list[httpx2.Response]]()
    for host in (*FOREIGN_HOSTS, *OWN_HOSTS):
        async with local.visit(host=host) as browser:
            found[host] = [await browser.get("/tasks"), await browser.post("/tasks", json=paying(1))]

    foreign = {host: [told_by(one) for one in found[host]] for host in FOREIGN_HOSTS}
    assert foreign == dict.fromkeys(FOREIGN_HOSTS, [(421, "wrong_host", PROBLEM)] * 2)
    assert [[one.status_code for one in found[host]] for host in OWN_HOSTS] == [[200, 201]] * len(OWN_HOSTS)


# A proxy with a sign-on of its own


async def test_a_proxy_has_to_say_who_is_signed_in(proxied: Served) -> None:
    """If it forgets it, it lets nobody in; of two names one came from the browser; and anybody can send a header."""
    claimed: Sequence[list[tuple[bytes, bytes]]] = (
        [],
        [(b"x-user", b"")],
        [(b"x-user", "\u202e".encode())],
        [(b"x-user", b"eve"), (b"x-user", b"ann")],
    )
    for headers in claimed:
        async with proxied.visit(TOKEN) as proxy:
            assert told_by(await proxy.get("/tasks", headers=headers)) == (403, "no_identity", PROBLEM)
    async with proxied.visit(x_user="ann") as stranger:
        assert told_by(await stranger.get("/tasks")) == (401, "no_token", PROBLEM)


# What is too large


async def chunks() -> AsyncIterator[bytes]:
    """A body whose length nobody says."""
    for _ in range(32):
        yield BIG[: len(BIG) // 32]


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_body_that_is_too_large_is_refused(
    program: httpx2.AsyncClient, stranger: httpx2.AsyncClient, is_told: bool
) -> None:
    """Whether its length is told or not, also from somebody who has not signed in; and the server goes on."""
    for path in ("/tasks", "/tasks/nobody/answers", "/incidents/a/resolve"):
        headers = {"content-type": "application/json"}
        response = await program.post(path, content=BIG if is_told else chunks(), headers=headers)

        assert (response.status_code, response.headers["content-type"]) == (413, PROBLEM), response.text
        assert (await program.get("/health/ready")).status_code == 200
    form = await stranger.post("/login", content=BIG if is_told else chunks(), headers={"content-type": FORM})

    assert form.status_code == 413, form.text


@pytest.mark.parametrize("fields", [301, 20_000])
@pytest.mark.parametrize("path", ["/login", "/ui/new"])
async def test_a_form_with_many_fields_is_refused(guarded: Served, fields: int, path: str) -> None:
    """Before somebody has signed in and after, as what the visitor did, and no bug of the server."""
    async with guarded.visit(TOKEN if path != "/login" else None) as visitor:
        response = await visitor.post(path, content=b"a&" * fields, headers={"content-type": FORM})

    assert (response.status_code, "300 fields" in response.text) == (422, True), response.text


# The headers of each response

READ = (
    *("/", "/login", "/ui/inbox", "/ui/nowhere", "/ui/tasks/nobody", "/tasks", "/tasks/nobody", "/openapi.json"),
    *("/nowhere", "/static/style.css", "/static/nothing", "/static/%2e%2e/access.py", "/static/../access.py"),
    "/health/live",
)
REQUESTS = (*(("GET", path) for path in READ), ("POST", "/tasks"), ("PUT", "/ui/inbox"), ("HEAD", "/ui/inbox"))


@pytest.mark.parametrize("who", WHO)
async def test_each_response_has_the_policy(visitors: Mapping[str, httpx2.AsyncClient], who: str) -> None:
    """No page runs what is not ours, is framed, or is taken for another type."""
    visitor = visitors[who]
    responses = {one: await visitor.request(*one) for one in REQUESTS}
    responses["POST", "a cross-site request"] = await visitor.post("/tasks", headers={"sec-fetch-site": "cross-site"})
    wrong = [
        (*one, response.status_code)
        for one, response in responses.items()
        if not response.headers.get("content-security-policy", "").startswith("default-src 'none'")
        or response.headers.get("x-content-type-options") != "nosniff"
        or "frame-ancestors 'none'" not in response.headers["content-security-policy"]
        or response.status_code >= 500
        or "access-control-allow-origin" in response.headers
    ]

    assert not wrong
