"""`serve` decodes for Temporal's web UI: for its origin, after its login, and nothing but decoding."""

import asyncio
import base64
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from temporalio.api.common.v1 import Payload

from extras.web.tests.serving import TOKEN, Served, serving
from runtime.dev_server import DevServer
from runtime.keys import Keyring, add_key, read_keys
from tests import preloaded
from tests.processes import ROOT

UI = "http://localhost:8233"


@pytest.fixture(scope="module")
async def guarded(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("codec")
    keys = folder / "replan.keys"
    add_key(keys)
    async with serving(server.address, folder, "--keys", str(keys), token=TOKEN, REPLAN_WEB_UI_ORIGIN=UI) as running:
        yield running, keys


def sent(payload: Payload) -> dict[str, list[dict[str, object]]]:
    metadata = {name: base64.b64encode(value).decode() for name, value in payload.metadata.items()}
    return {"payloads": [{"metadata": metadata, "data": base64.b64encode(payload.data).decode()}]}


async def test_only_the_web_ui_gets_what_is_decoded(guarded: tuple[Served, Path]) -> None:
    """A preflight of its origin, then a request with the token; other origins and requests without it get nothing."""
    running, keys = guarded
    plain = Payload(metadata={"encoding": b"json/plain"}, data=b'"vermilion"')
    [sealed] = await Keyring(read_keys(keys), "default").encode([plain])
    async with running.visit() as browser:
        asked = await browser.options("/codec/decode", headers={"origin": UI, "access-control-request-method": "POST"})
        login = {"authorization": f"Bearer {TOKEN}", "x-namespace": "default"}

        async def post(path: str = "/codec/decode", **headers: str) -> httpx2.Response:
            return await browser.post(path, json=sent(sealed), headers=headers)

        decoded, foreign, anonymous, encoding, elsewhere = await asyncio.gather(
            post(origin=UI, **login),
            post(origin="http://evil.example", **login),
            post(origin=UI),
            post("/codec/encode", origin=UI, **login),
            post(origin=UI, authorization=login["authorization"], **{"x-namespace": "other"}),
        )

    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, UI)
    assert decoded.json() == sent(plain)
    assert decoded.headers["access-control-allow-origin"] == UI
    assert [one.status_code for one in (foreign, anonymous, encoding)] == [403, 401, 404]
    assert elsewhere.status_code >= 400
    assert "access-control-allow-origin" not in foreign.headers


BAD_BODIES = {
    b'{"payloads":' + b"[" * 20_000 + b"]" * 20_000 + b"}": 400,
    b'{"payloads": [{"metadata":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}]}": 400,
    b'{"payloads":' + b"[" * 190 + b"]" * 190 + b"}": 422,
    b'{"payloads": "\xff"}': 422,
    b"{": 422,
    b"[]": 422,
    b"null": 422,
    b'{"payloads": NaN}': 422,
    b'{"payloads": [{"data": ' + b"9" * 5000 + b"}]}": 422,
    b'{"payloads": [{"metadata": {"\\ud800": "AA=="}}]}': 422,
    b'{"payloads": [{"\\ud800": 1}]}': 422,
}


async def test_a_body_that_is_no_list_of_payloads_is_refused(guarded: tuple[Served, Path]) -> None:
    running, _ = guarded
    async with running.visit(token=TOKEN) as program:
        found = [(await program.post("/codec/decode", content=body)).status_code for body in BAD_BODIES]

    assert found == list(BAD_BODIES.values())


@pytest.mark.parametrize("origin", ["localhost:8233", "http://localhost:8233/namespaces", "http://Localhost:8233", "*"])
def test_what_no_browser_sends_as_an_origin_is_refused(origin: str) -> None:
    """Else nobody would be let in, without a word."""
    command, environment = [preloaded.python(), "-m", "replan", "serve"], {**os.environ, "REPLAN_WEB_UI_ORIGIN": origin}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, "give scheme, host and port alone" in ended.stderr) == (2, True)
