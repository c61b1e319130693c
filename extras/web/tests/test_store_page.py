"""The local page of a store: what waits, one call, and settling it."""

import asyncio
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from tests import preloaded
from tests.effects.shop import Shop
from tests.processes import END_SECONDS, READY_SECONDS, ROOT, Processes

TOKEN = "a-token-of-the-tests"  # noqa: S105  # of the tests


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A program with a store in SQLite."""
    made = Shop(tmp_path)
    yield made
    made.effects.close()


@asynccontextmanager
async def served(shop: Shop, token: str = "") -> AsyncIterator[httpx2.AsyncClient]:
    """A browser without scripts at the page of the store."""
    shop.effects.close()
    environment = Processes("127.0.0.1:1", shop.folder, {"REPLAN_TOKEN": token})._environment
    words = [preloaded.python(), str(preloaded.STARTER), "effects", "--store", shop.store, "--web", "--port", "0"]
    process = await asyncio.create_subprocess_exec(*words, env=environment, cwd=ROOT, stdout=PIPE, stderr=PIPE)
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), READY_SECONDS)).decode()
        assert line.startswith("ready"), line
        async with httpx2.AsyncClient(base_url=line.split()[1], trust_env=False, timeout=20) as browser:
            yield browser
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
    _, errors = await asyncio.wait_for(process.communicate(), END_SECONDS)
    assert b"Traceback" not in errors, errors.decode()


def path_of(key: str, *parts: str) -> str:
    """The path of a call."""
    return "/".join(["/ui/effects", quote(key, safe=""), *parts])


async def test_a_person_settles_what_waits(shop: Shop) -> None:
    """From the list to the call, and with a form, which keeps what was typed until it is accepted; then the program
    gets the result. Another website settles nothing, neither by a form nor by a name of its own for this machine.
    """
    key = shop.unknown()
    evil: list[dict[str, str]] = [{"origin": "http://evil.example"}, {"host": "evil.example"}]
    async with served(shop) as browser:
        home = await browser.get("/", follow_redirects=True)
        page = await browser.get(path_of(key))
        wrong = await browser.post(path_of(key, "settle"), data={"answer": "applied", "result": "{sent"})
        nothing = await browser.post(path_of(key, "settle"), data={})
        others = [await browser.post(path_of(key, "settle"), data={"answer": "applied"}, headers=one) for one in evil]
        before = shop.state(key)
        form = {"answer": "applied", "result": '{"id": "x"}'}
        sent = await browser.post(path_of(key, "settle"), data=form, headers={"origin": str(browser.base_url)})
        after = await browser.get(sent.headers["location"])

    assert "outcome unknown" in home.text and f'href="{path_of(key)}"' in home.text
    assert "Look in the service first" in page.text
    assert "The result is no JSON" in wrong.text and "{sent</textarea>" in wrong.text
    assert [one.status_code for one in (wrong, nothing, *others)] == [409, 409, 403, 421] and before == "unknown"
    assert (sent.status_code, after.status_code) == (303, 200)
    assert "settled it as applied" in after.text and '<form method="post" action="/ui/effects' not in after.text
    assert shop.order("lamp", "after") == {"id": "x"}


async def test_a_doubtful_call_is_shown_with_the_one_that_it_may_be(shop: Shop) -> None:
    """That one is settled first."""
    doubt = shop.doubtful()
    async with served(shop) as browser:
        page = await browser.get(path_of(doubt))
        refused = await browser.post(path_of(doubt, "settle"), data={"answer": "same"})
        done = await browser.post(path_of(doubt, "settle"), data={"answer": "another"})

    assert f'href="{path_of(shop.key("unknown"))}"' in page.text and "settle the earlier call</a> first" in page.text
    assert refused.status_code == 409 and "has recorded no result" in refused.text
    assert done.status_code == 303 and shop.state(doubt) == "another"


async def test_what_others_wrote_is_text(shop: Shop) -> None:
    """Arguments, results and sessions make neither markup nor links; the list is narrowed to one, or to the open."""
    evil = "<script>alert(1)</script>\u202e"
    with shop.effects.scope(session="<b>", key="a/b <script>alert(2)</script>"):
        shop.dies(lambda: shop.order(evil))
    [call] = shop.effects.calls()
    shop.unknown()
    shop.order("chair")
    async with served(shop) as browser:
        pages = [await browser.get(path) for path in ("/ui/effects", path_of(call.key))]
        open_ = (await browser.get("/ui/effects", params={"show": "open"})).text
        other = (await browser.get("/ui/effects", params={"session": "other"})).text

    assert [page.status_code for page in pages] == [200, 200]
    assert not [page for page in pages if "<script>alert" in page.text or "\u202e" in page.text]
    assert all("default-src 'none'" in page.headers["content-security-policy"] for page in pages)
    assert "lamp" in open_ and "chair" not in open_ and "chair" in pages[0].text
    assert "No call fits this filter" in other


async def test_with_a_token_a_person_signs_in_and_is_named(shop: Shop) -> None:
    """Without it, nothing is seen and nothing is settled."""
    key = shop.unknown()
    async with served(shop, TOKEN) as browser:
        away = await browser.get(path_of(key))
        denied = await browser.post(path_of(key, "settle"), data={"answer": "applied"})
        await browser.post("/login", data={"name": "Ann", "token": "wrong"})
        entered = await browser.post("/login", data={"name": "Ann", "token": TOKEN, "next": path_of(key)})
        await browser.post(path_of(key, "settle"), data={"answer": "not-applied"})

    assert away.headers["location"].startswith("/login?next=") and denied.status_code == 303
    assert entered.headers["location"] == path_of(key)
    assert (shop.effects.desk.call(key).why or {})["by"] == "Ann"


async def test_what_is_not_there_is_said(shop: Shop) -> None:
    """An unknown key, any other address, and a store that goes away: with what to do, and not as a bug."""
    shop.order("lamp")
    async with served(shop) as browser:
        pages = [await browser.get(path) for path in (path_of("nothing"), "/ui/nowhere", "/ui/inbox", "/tasks")]
        Path(shop.store).rename(shop.folder / "elsewhere.db")
        gone = await browser.get("/ui/effects")

    assert [page.status_code for page in (*pages, gone)] == [404] * 4 + [503]
    assert "no call with the key" in pages[0].text and 'href="/ui/effects"' in pages[1].text
    assert re.search(r"store .*agent\.db", gone.text)
