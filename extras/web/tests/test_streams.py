"""A program follows a task by server-sent events: nothing is lost or repeated, and no crowd does harm."""

import asyncio
import re
import signal
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from extras.web.tests.conftest import TOOLS
from extras.web.tests.serving import Served, Told, all_told, approval_of, asked, path_of, serving, started, told
from runtime.dev_server import DevServer
from tests.processes import Processes

CROWD, FOLLOWED = 200, 8
"""Streams at once, and the tasks that they follow."""


PLACE = re.compile(r"[0-9a-f-]{36}:[0-9]+(\.[0-9]+|-end)?")
"""A run, the number of an entry of its journal and, if that gives more events, how many have come."""
UNKNOWN = ("nonsense", "-", "0123abcd-7", "0123abcd--1", "0123abcd-99999999999999999999", "²-²")


async def test_a_stream_tells_a_task_from_its_plan_to_its_end(program: httpx2.AsyncClient) -> None:
    """A program that comes back names the last event it has; only how far an attempt is has no id.

    Whoever comes late hears the same, also with an id that no server gave: to tell twice is better than not to tell.
    After the end there is nothing: 204 keeps a browser from connecting again for ever.
    """
    id = await started(program, 41)
    events = await all_told(program, id)
    late = await all_told(program, id)
    after = await program.get(path_of(id, "events"), headers={"last-event-id": events[-1].id})
    sent = [{b"last-event-id": one.encode()} for one in UNKNOWN]
    lost = [await program.get(path_of(id, "events"), headers=headers) for headers in sent]
    ids = [one.id for one in events if one.id]

    assert [one.name for one in events if one.name in ("task", "plan", "end")] == ["task", "plan", "end"]
    assert {one.data["event"] == one.name for one in events} == {True}
    assert (events[-1].name, events[-1].data["document"]["status"]) == ("end", "completed")
    assert [one.data["status"] for one in events if not one.id] in ([], ["running"])
    assert len(set(ids)) == len(ids) and {"task", "plan", "step", "end"} <= {one.name for one in events if one.id}
    assert all(PLACE.fullmatch(id) for id in ids)
    assert (late[0].name, late[-1].name) == ("task", "end")
    assert "p1" in {one.data["id"] for one in late if one.name == "step"}
    assert (after.status_code, after.content) == (204, b"")
    assert [one.status_code for one in lost] == [200] * len(UNKNOWN)
    assert {(one.text.count("event: task"), one.text.count("event: end")) for one in lost} == {(1, 1)}


async def test_a_stream_that_is_cut_anywhere_loses_and_repeats_nothing(program: httpx2.AsyncClient) -> None:
    id = await started(program, *[200] * 4)
    whole, pieces = await asyncio.gather(all_told(program, id), in_pieces(program, id))

    assert len(whole) > 15
    assert pieces == kept(whole)


def kept(events: Iterable[Told]) -> list[Told]:
    return [one for one in events if one.id]


async def in_pieces(program: httpx2.AsyncClient, id: str) -> list[Told]:
    """The events of a task that have an id, each from a connection of its own that names the one before."""
    events = list[Told]()
    async with asyncio.timeout(30):
        while not events or events[-1].name != "end":
            events += kept([await first(told(program, id, events[-1].id if events else ""))])
    return events


async def first(events: AsyncIterator[Told]) -> Told:
    try:
        return await anext(events)
    finally:
        await events.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_a_stream_tells_what_is_asked_and_answered(program: httpx2.AsyncClient) -> None:
    """A page shows the request without asking for it, and sees that somebody answered."""
    id = await started(program, 900)
    events = list[Told]()
    async with asyncio.timeout(30):
        async for one in told(program, id):
            events.append(one)
            if one.name == "request":
                await program.post(path_of(id, "answers"), json=approval_of(one.data, by="ann"))
    answers = [one.data["answer"]["by"] for one in events if one.name == "answer"]

    assert answers == ["ann"]
    assert (events[-1].name, events[-1].data["document"]["status"]) == ("end", "completed")


@pytest.mark.full
async def test_a_crowd_of_streams_harms_nobody(local: Served) -> None:
    async with local.visit() as program:
        ids = [await started(program, 50, 901, 50) for _ in range(FOLLOWED)]
        listening = [asyncio.create_task(all_told(program, ids[number % FOLLOWED])) for number in range(CROWD)]
        requests = [await asked(program, id) for id in ids]
        before = time.monotonic()
        ready = await program.get("/health/ready")
        took = time.monotonic() - before
        for id, request in zip(ids, requests, strict=True):
            await program.post(path_of(id, "answers"), json=approval_of(request))
        crowd = await asyncio.gather(*listening)
        after = await program.get("/health/ready")

    statuses = [events[-1].data["document"]["status"] for events in crowd if events[-1].name == "end"]
    assert statuses == ["completed"] * CROWD
    assert (ready.status_code, after.status_code, took < 5) == (200, 200, True)


def ids_of(events: Iterable[Told]) -> list[str]:
    return [one.id for one in events]


class Listening:
    def __init__(self) -> None:
        self.events = list[Told]()

    async def to_the_end(self, served: Served, id: str, most: int = 10_000) -> None:
        async with asyncio.timeout(60), served.visit() as program:
            while not self.events or self.events[-1].name != "end":
                with suppress(httpx2.TransportError, AssertionError):
                    await self._listen(program, id, most)
                await asyncio.sleep(0.01)

    async def _listen(self, program: httpx2.AsyncClient, id: str, most: int) -> None:
        heard = told(program, id, self.events[-1].id if self.events else "")
        try:
            async for one in heard:
                self.events += kept([one])
                most -= 1
                if not most:
                    return
        finally:
            await heard.aclose()  # type: ignore[attr-defined]  # it is a generator


@pytest.mark.full
async def test_listeners_miss_nothing_of_a_killed_worker_and_a_killed_server(server: DevServer, tmp_path: Path) -> None:
    queue = f"web-{uuid.uuid4().hex[:8]}"
    processes, worker = Processes(server.address, tmp_path), ("--tools", TOOLS, "--queue", queue)
    steady, cut = Listening(), Listening()
    with processes.worker(*worker) as dying:
        async with serving(server.address, tmp_path, "--queue", queue) as old, old.visit() as program:
            id = await started(program, *[20] * 50)
            listening = [
                asyncio.create_task(steady.to_the_end(old, id)),
                asyncio.create_task(cut.to_the_end(old, id, 3)),
            ]
            async with asyncio.timeout(30):
                while len(steady.events) < 80:
                    await asyncio.sleep(0.01)
            dying.kill()
            await old.end(signal.SIGKILL)
    with processes.worker(*worker):
        async with serving(server.address, tmp_path, "--queue", queue, port=old.port) as new, new.visit() as program:
            await asyncio.gather(*listening)
            whole = kept(await all_told(program, id))
    statuses = [one.data["status"] for one in whole if one.name == "step" and one.data["id"] == "p50"]

    assert ids_of(steady.events) == ids_of(cut.events) == ids_of(whole) and len(whole) >= 150
    assert statuses == ["pending", "running", "completed"]


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
async def test_a_stop_does_not_wait_for_streams(
    server: DevServer, queue: str, tmp_path: Path, number: signal.Signals
) -> None:
    async with serving(server.address, tmp_path, "--queue", queue) as served, served.visit() as program:
        id = await started(program, 903)
        heard = [list[str]() for _ in range(5)]
        listening = [asyncio.create_task(listen(program, id, names)) for names in heard]
        async with asyncio.timeout(30):
            while not all("request" in names for names in heard):
                await asyncio.sleep(0.05)
        before = time.monotonic()
        code = await served.end(number)
        took = time.monotonic() - before
        await asyncio.gather(*listening)

    assert (code, took < 10) == (0, True), took
    assert not {name for names in heard for name in names} & {"end", "error"}


async def listen(program: httpx2.AsyncClient, id: str, names: list[str]) -> None:
    """Note the names of the events of a stream, until it is cut in whatever way."""
    try:
        async for one in told(program, id):
            names.append(one.name)  # noqa: PERF401 - each as it comes
    except httpx2.TransportError:
        pass
