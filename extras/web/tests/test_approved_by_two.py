"""A call that two people must approve, on the page: who must, who has, and how each was known."""

import re
from html import unescape
from pathlib import Path

from temporalio.client import Client

from extras.web.tests.serving import path_of, serving
from runtime.dev_server import DevServer
from runtime.people_file import KnownPeople
from tests.harness import outcome, staged
from tests.workflows.test_agent_people import asked
from tests.workflows.test_approvers import Office, approve, paying, refunding, started

RULE = "2 people with the role finance, none of whom started the task."
BY_ANN = re.compile(r"ann approved at \d{4}-\d\d-\d\d \d\d:\d\d UTC; one more\.")


def words(page: str) -> str:
    """What a person reads of a page."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


async def test_the_page_says_who_must_approve_and_who_has(client: Client, server: DevServer, tmp_path: Path) -> None:
    """On the card of the task and in the inbox; when it is approved, beside the request and in the timeline."""
    office, known = Office.of(tmp_path), refunding(by="role:finance", count=2, not_starter=True)
    people = KnownPeople(office.path)
    async with (
        staged(client, tmp_path, known, paying(900), people=people) as stage,
        serving(server.address, tmp_path, "--queue", stage.queue) as served,
        served.visit() as visitor,
    ):
        handle = await started(stage, office, "bob")
        request = await asked(handle)
        asking = words((await visitor.get(f"/ui{path_of(handle.id)}")).text)
        await approve(office, handle, request, "ann")
        pages = [(await visitor.get(path)).text for path in (f"/ui{path_of(handle.id)}", "/ui/inbox")]
        await approve(office, handle, request, "cleo")
        await outcome(handle)
        after = (await visitor.get(f"/ui{path_of(handle.id)}")).text
        why = words((await visitor.get(f"/ui{path_of(handle.id, 'explain')}")).text)

    assert f"Needs {RULE}" in asking and "approved at" not in asking
    for page in pages:
        assert f"Needs {RULE}" in words(page) and BY_ANN.search(words(page)), words(page)
    assert "waits for another answer" in pages[0]
    assert "ann (finance, known by token) and cleo (finance, known by token) answered approve" in words(after)
    assert "ann: approve" in after and "cleo: approve" in after
    assert f"signed with the key {office.door.id}" in why
