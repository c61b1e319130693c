"""What every arm shares: its task, the tools of its world, and how a program calls them.

It needs Python and httpx2 alone. A tool's refusal is its result, for the model to read; every other status is an error
of httpx2, and so are a cut connection and an answer that takes longer than two seconds.
"""

import os
from typing import Any

import httpx2

URL, MODEL, TEXT = os.environ["WORLD"], os.environ["TRIAL"], os.environ["TEXT"]
"""Where the world is, the name of the model, and what the task asks for."""
FOLDER = os.environ["FOLDER"]
"""Where an arm keeps what it needs after a crash."""
SECONDS = 2.0
"""How long a call waits for its answer."""


def begin() -> list[dict[str, Any]]:
    """The tools: `name`, `description`, `parameters` and whether each `changes` something. Call it first.

    The world is told which process calls it: there is a fault that kills it.
    """
    httpx2.post(f"{URL}/caller", json={"pid": os.getpid()})
    tools: list[dict[str, Any]] = httpx2.get(f"{URL}/tools").json()["tools"]
    return tools


def call(tool: str, args: dict[str, Any], key: str | None = None) -> str:
    """The result of a call, as JSON; with a `key`, the world makes it once."""
    return _text(httpx2.post(f"{URL}/call/{tool}", json=args, headers=_headers(key), timeout=SECONDS))


async def acall(tool: str, args: dict[str, Any], key: str | None = None) -> str:
    """As `call`."""
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        return _text(await client.post(f"{URL}/call/{tool}", json=args, headers=_headers(key)))


def _headers(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key} if key else {}


def _text(response: httpx2.Response) -> str:
    if response.status_code != httpx2.codes.UNPROCESSABLE_ENTITY:
        response.raise_for_status()
    return response.text
