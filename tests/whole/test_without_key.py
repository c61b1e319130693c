"""Doors without the key of an encrypted task: one sentence says so, and status, times and kinds are shown."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes

from client.history.account import replayed_progress
from client.incidents import find_incidents
from extras.web.tests.serving import Served, serving
from replan import Client, Problem, Step, TaskFailed, TaskHandle
from runtime.dev_server import DevServer
from runtime.payloads import DATA_CONVERTER
from tests.own_worker import Reversing
from tests.processes import Processes
from tests.test_encryption import ASKING, COLOUR, Site, asked, served

CONVERTER = DataConverter(
    payload_codec=Reversing(), failure_converter_class=DefaultFailureConverterWithEncodedAttributes
)
SENTENCE = "encrypted"


@dataclass
class Doors:
    """An encrypted task of each ending, and the doors of a person without the key."""

    site: Site
    console: Processes
    done: TaskHandle
    failed: TaskHandle
    waiting: TaskHandle

    async def starter(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command without the key."""
        return await asyncio.to_thread(self.console.starter, *words, "--queue", self.site.queue)


@pytest.fixture(scope="module")
async def doors(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Doors]:
    async with served(server, tmp_path_factory.mktemp("state"), CONVERTER) as site:
        done = await site.run(Step(id="w", kind="words", args={"times": 3}))
        await done.result()
        failed = await site.run(Step(id="no", kind="refuse", args={"words": COLOUR}))
        with pytest.raises(TaskFailed):
            await failed.result()
        waiting = await site.run(Step(id="mix", kind="mix", args={"words": f"{COLOUR} again"}), **ASKING)
        await asked(waiting)
        console = Processes(server.address, tmp_path_factory.mktemp("console"))
        yield Doors(site, console, done, failed, waiting)
        await waiting.cancel()


async def test_show_tells_status_times_and_kinds(doors: Doors) -> None:
    for task, status, kind, code in (
        (doors.done, "completed", "words", 0),
        (doors.failed, "failed", "refuse", 1),
        (doors.waiting, "waiting", "mix", 3),
    ):
        lines, whole = await doors.starter("show", task.id), await doors.starter("show", task.id, "--json")
        document = json.loads(whole.stdout)

        assert (lines.returncode, whole.returncode, lines.stderr, whole.stderr) == (code, code, "", "")
        assert kind in lines.stdout and SENTENCE in lines.stdout
        assert (document["status"], document["code"], document["steps"][0]["kind"]) == (status, "no_key", kind)
        assert SENTENCE in document["reason"] and document["started_at"]
        assert COLOUR not in lines.stdout + whole.stdout


async def test_no_replay_without_the_key_logs_a_traceback(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    """Wherever its history ends so far, since each end lets the replay begin in another place."""
    history = await doors.site.theirs.get_workflow_handle(doors.waiting.id).fetch_history()
    for end in range(3, len(history.events) + 1):
        assert await replayed_progress(doors.waiting.id, history.events[:end], DATA_CONVERTER) is None

    assert caplog.text == ""


async def test_a_task_whose_encryption_began_later_logs_no_traceback(
    doors: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    """Its input can be read without the key, and what came after cannot."""
    history = await doors.site.theirs.get_workflow_handle(doors.waiting.id).fetch_history()
    sent = history.events[0].workflow_execution_started_event_attributes.input.payloads
    sent[0].CopyFrom(*await Reversing().decode(sent))
    for end in range(3, len(history.events) + 1):
        await replayed_progress(doors.waiting.id, history.events[:end], DATA_CONVERTER)

    assert caplog.text == ""


async def test_no_command_ends_in_a_traceback(doors: Doors) -> None:
    """What a worker tells, what would be answered, and what only reads the history."""
    for words in (
        ("show", doors.done.id, "--follow"),
        ("show", doors.failed.id, "--follow", "--jsonl"),
        ("show", doors.waiting.id, "--follow", "--json"),
        ("show", doors.done.id, "--result", "w"),
        ("explain", doors.failed.id),
        ("effects", doors.done.id),
        ("transcript", doors.done.id),
        ("answer", doors.waiting.id),
        ("answer", doors.waiting.id, "retry"),
        ("extend", doors.waiting.id, "--tool-calls", "+1"),
        ("undo", doors.done.id),
        ("list",),
        ("report",),
        ("tools",),
        ("breakers",),
        ("doctor",),
    ):
        done = await doors.starter(*words)

        assert "Traceback" not in done.stderr, words
        assert SENTENCE in done.stdout + done.stderr, (words, done.stdout, done.stderr)


async def test_an_incident_is_listed_by_its_cause(doors: Doors) -> None:
    while not (lines := await doors.starter("incidents")).stdout.startswith("mix/unauthorized: 1 task waits"):
        assert lines.stderr == ""
        await asyncio.sleep(0.2)

    assert SENTENCE in lines.stdout


async def test_nothing_is_sent_in_clear_to_an_encrypted_task(doors: Doors) -> None:
    """An answer from a door without the key would stand in the history as it was typed."""
    before = len(await doors.site.events(doors.waiting.id))
    refused = await doors.starter("answer", doors.waiting.id, "retry", "--json")

    assert json.loads(refused.stdout)["error"]["code"] == "no_key"
    assert len(await doors.site.events(doors.waiting.id)) == before


@pytest.fixture(scope="module")
async def web(server: DevServer, doors: Doors, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """`serve` without the key."""
    async with serving(server.address, tmp_path_factory.mktemp("web"), "--queue", doors.site.queue) as running:
        yield running


async def test_the_api_and_the_page_say_so(doors: Doors, web: Served) -> None:
    async with web.visit() as program:
        for task, status in ((doors.done, "completed"), (doors.failed, "failed"), (doors.waiting, "waiting")):
            whole = (await program.get(f"/tasks/{task.id}")).json()
            page = await program.get(f"/ui/tasks/{task.id}", follow_redirects=True)

            assert (whole["status"], whole["code"]) == (status, "no_key")
            assert (page.status_code, SENTENCE in page.text, COLOUR in page.text) == (200, True, False)
        answer = await program.post(f"/tasks/{doors.waiting.id}/answers", json={"choice": "retry"})
        effects = await program.get(f"/tasks/{doors.done.id}/effects")
        events = await program.get(f"/tasks/{doors.done.id}/events")
        pages = [await program.get(path) for path in ("/ui/inbox", "/ui/tasks", "/ui/incidents", "/tasks")]

    assert [(one.status_code, one.json()["code"]) for one in (answer, effects)] == [(409, "no_key")] * 2
    assert "event: end" in events.text and SENTENCE in events.text
    assert [(one.status_code, SENTENCE in one.text) for one in pages] == [(200, True)] * 4


async def test_a_program_without_the_key_gets_no_empty_result(server: DevServer, doors: Doors) -> None:
    """A result of None would be taken for the result."""
    blind = await Client.connect(server.address)
    with pytest.raises(Problem, match="their key is not here") as refused:
        await (await blind.task(doors.done.id)).result()

    assert refused.value.code == "no_key"
    assert (await (await blind.task(doors.done.id)).outcome()).status == "completed"
    assert [one.cause for one in await find_incidents(blind.temporal)] == ["mix/unauthorized"]
