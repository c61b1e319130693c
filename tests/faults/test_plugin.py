"""`FaultsPlugin`: which retries of somebody else's worker it spares, and that it changes nothing else."""

import asyncio
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from activities.libraries import libraries_of
from evals.fakes.http_server import SILENCE, reply, serving
from replan import FaultsPlugin
from replan.faults import fault
from runtime.dev_server import DevServer
from tests.faults.program import Done, Place, Program, ShopError, fail_in_a_large_program
from tests.processes import ROOT


async def connected(server: DevServer, folder: Path) -> Place:
    """A program beside the shared server, with a client of its own."""
    return Place(await Client.connect(server.address, data_converter=pydantic_data_converter), folder)


@pytest.fixture
async def place(server: DevServer, tmp_path: Path) -> Place:
    """A program of the test's own."""
    return await connected(server, tmp_path)


LINE, STRICT, ONLY_FAIL = FaultsPlugin(), FaultsPlugin(strict=True), FaultsPlugin(only=["fail"])
UNKEYED = FaultsPlugin(effects=dict.fromkeys(("charge", "fail", "fail_in_a_large_program", "hang"), "unkeyed"))
DECLARED = FaultsPlugin(
    raises={
        ShopError: "conflict",
        402: fault("busy", retry_after=0.05),
        PermissionError: lambda error: None,
    }
)
LIMITED, PAID = reply(429, retry_after="0.05"), reply(200)

CALLS: dict[str, tuple[FaultsPlugin, str, Mapping[str, Any], str]] = {
    # The policy would make three attempts.
    "persistent": (LINE, "fail", {"raises": "permission"}, "1 PermissionError final forbidden none"),
    "in a thread": (LINE, "fail_in_thread", {"raises": "permission"}, "1 PermissionError final forbidden none"),
    "local": (LINE, "fail", {"raises": "permission", "local": True}, "1 PermissionError final forbidden none"),
    "transient": (LINE, "fail", {"raises": "reset", "times": 2}, "3 done"),
    "local and transient": (LINE, "fail", {"raises": "reset", "times": 2, "local": True}, "3 done"),
    # The failure of the last attempt is not final by itself.
    "used up": (LINE, "fail", {"raises": "reset"}, "3 ConnectionResetError unreachable unknown"),
    "not wanted by the policy": (
        *(LINE, "fail", {"raises": "reset", "never": ("ConnectionResetError",)}),
        "1 ConnectionResetError unreachable unknown",
    ),
    # With the wait as the next delay, the server would give up at once.
    "a wait beyond the deadline": (
        *(LINE, "charge", {"deadline": 20, "answers": (reply(429, retry_after="3600"), PAID)}),
        "2 charged",
    ),
    "strict": (STRICT, "fail", {"raises": "key"}, "1 KeyError final bug unknown"),
    "strict, but said by the program": (STRICT, "fail", {"raises": "own", "times": 2}, "3 done"),
    "declared by class": (DECLARED, "fail", {"raises": "shop"}, "1 ShopError final conflict none"),
    "declared by status": (DECLARED, "charge", {"answers": (reply(402), PAID)}, "2 charged"),
    "passed on": (DECLARED, "fail", {"raises": "permission"}, "1 PermissionError final forbidden none"),
    "named": (ONLY_FAIL, "fail", {"raises": "permission"}, "1 PermissionError final forbidden none"),
    "not named": (ONLY_FAIL, "fail_in_thread", {"raises": "permission"}, "3 PermissionError"),
    # The request was sent, and nobody answered: without the declaration, it is repeated.
    "an unknown outcome": (UNKEYED, "charge", {"answers": (SILENCE,)}, "1 ReadTimeout final timeout unknown"),
    "undeclared": (LINE, "charge", {"answers": (SILENCE,)}, "3 ReadTimeout timeout unknown"),
    "an only request that was rejected": (UNKEYED, "charge", {"answers": (LIMITED, PAID)}, "2 charged"),
    # The first request of the attempt was accepted.
    "a rejection after another request": (
        *(UNKEYED, "charge", {"posts": 2, "answers": (PAID, LIMITED, PAID)}),
        "1 HTTPStatusError final rate_limited unknown",
    ),
    # Nobody knows what it did before, unless it said so itself, by an ApplicationError that may be retried.
    "an unknown error of an unkeyed call": (UNKEYED, "fail", {"raises": "key"}, "1 KeyError final bug unknown"),
    "a failure of the program's own": (UNKEYED, "fail", {"raises": "own", "times": 2}, "3 done"),
    "too large to be searched": (UNKEYED, "fail_in_a_large_program", {"raises": "own", "times": 2}, "3 done 100"),
}
"""By name, the line, an activity, what it is told and answered; the attempts, how it ended, and what its Fault says."""


@pytest.mark.parametrize("name", CALLS)
async def test_a_persistent_error_is_not_retried_nor_an_unkeyed_call_of_unknown_outcome(
    place: Place, name: str
) -> None:
    """Final are failures that no retry can help, and those of which nobody knows whether the call had its effect."""
    plugin, activity, told, expected = CALLS[name]
    options = {key: value for key, value in told.items() if key != "answers"}
    async with serving(*told.get("answers", [PAID])) as url, place.worker(plugin):
        done = await place.call(activity, url=url, **options)
    ended, found = done.ended, done.fault
    words = [done.attempts, ended.result or ended.type, "final" * ended.is_final]

    assert " ".join(f"{word}" for word in (*words, found.get("code"), found.get("applied")) if word) == expected


def test_a_program_too_large_is_not_searched() -> None:
    """Nobody can say which libraries it uses."""
    assert libraries_of(fail_in_a_large_program) is None


async def test_a_retry_waits_as_long_as_the_service_asks(place: Place) -> None:
    """The policy alone waits 10 ms."""
    async with serving(reply(429, retry_after="1"), reply(200)) as url, place.worker(FaultsPlugin()):
        began = asyncio.get_running_loop().time()
        done = await place.call("charge", url=url)
        took = asyncio.get_running_loop().time() - began

    assert (done.attempts, done.ended.result) == (2, "charged")
    assert took >= 1.0


async def test_a_skipped_retry_is_told_with_what_it_saved(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """With the tool and the code; a failure that nothing would have followed is not told.

    A dry run changes nothing, and tells of each retry that it would skip.
    """
    with caplog.at_level(logging.WARNING, "replan.faults"):
        async with place.worker(FaultsPlugin()):
            await place.call("fail", raises="permission", attempts=5)
            await place.call("fail", raises="permission", attempts=1)
        async with place.worker(FaultsPlugin(dry_run=True)):
            dry = await place.call("fail", raises="permission")
    told = [record for record in caplog.records if record.name == "replan.faults"]
    values = [vars(record) for record in told]

    assert [(one["event"], one["dry_run"], one["saved_attempts"]) for one in values] == [
        ("RETRY_SKIPPED", False, 4),
        ("RETRY_SKIPPED", True, 2),
        ("RETRY_SKIPPED", True, 1),
    ]
    assert (values[0]["tool"], values[0]["code"]) == ("fail", "forbidden")
    assert values[0]["saved_seconds"] == pytest.approx(0.01 + 0.02 + 0.04 + 0.08)
    assert "RETRY_SKIPPED tool=fail code=forbidden" in told[0].getMessage()
    assert (dry.attempts, dry.ended.details) == (3, [])


# --- what does not change

KNOWN = ("permission", "from", "in_except", "empty", "group", "reset")
UNKNOWN = ("key", "shop", "own")
"""What is retried as before: an unknown exception, and a failure of the program's own."""


@pytest.fixture(scope="module")
async def twice(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Done]]:
    """The same calls without the line and with it."""
    place, found = await connected(server, tmp_path_factory.mktemp("twice")), list[dict[str, Done]]()
    for plugins in ([], [FaultsPlugin()]):
        async with place.worker(*plugins):
            once = {raises: await place.call("fail", raises=raises, attempts=1) for raises in KNOWN}
            found.append(once | {raises: await place.call("fail", raises=raises) for raises in UNKNOWN})
    return found


def plain(failure: Failure) -> tuple[Any, ...]:
    """What a failure says of the exception: message, type, cause, stack, source, category."""
    info = failure.application_failure_info
    # The line of the SDK's own frames, and how often an interceptor stands among them, may differ.
    ours = [line for line in failure.stack_trace.splitlines() if "tests/faults" in line]
    cause = plain(failure.cause) if failure.HasField("cause") else ()
    return failure.message, info.type, info.category, failure.source, failure.encoded_attributes, ours, cause


@pytest.mark.parametrize("raises", [*KNOWN, *UNKNOWN])
async def test_the_failure_stays_as_it_is(twice: list[dict[str, Done]], raises: str) -> None:
    """Type, message, cause and stack: what a workflow catches, and `non_retryable_error_types` compare."""
    without, within = (calls[raises] for calls in twice)

    assert plain(within.failure) == plain(without.failure)
    if raises in KNOWN:
        assert within.fault
    else:
        assert within.attempts == without.attempts == 3
        assert within.failure.application_failure_info == without.failure.application_failure_info


async def test_histories_replay_with_the_line_and_without_it(twice: list[dict[str, Done]]) -> None:
    """Adding and removing it changes no workflow."""
    for calls, plugins in zip(twice, ([FaultsPlugin()], []), strict=True):
        replayer = Replayer(
            workflows=[Program],
            plugins=plugins,
            data_converter=pydantic_data_converter,
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        for done in calls.values():
            await replayer.replay_workflow(done.history)


async def begun(place: Place) -> list[Path]:
    """The files of the calls of a place, as soon as one has begun."""
    while not (files := list(place.folder.glob(f"{place.queue}-*"))):
        await asyncio.sleep(0.02)
    return files


async def test_an_activity_that_completes_later_does(place: Place) -> None:
    """It is no failure."""
    async with place.worker(FaultsPlugin()):
        call = asyncio.create_task(place.call("later"))
        [file] = await begun(place)
        await asyncio.sleep(0.2)  # until the server knows that the attempt ended
        handle = place.client.get_async_activity_handle(workflow_id=file.name, run_id=None, activity_id="call")
        await handle.complete("later")
        done = await call

    assert done.ended.result == "later"


# --- calls that ended without a report


async def test_an_unkeyed_call_whose_timeout_passed_is_not_made_again(place: Place) -> None:
    """The server retries it; the next attempt asks how the one before ended, and does not begin."""
    async with place.worker(UNKEYED):
        done = await place.call("hang", seconds=0.3)
    async with place.worker(FaultsPlugin()):
        undeclared = await place.call("hang", seconds=0.3, times=1)

    assert (done.attempts, done.ended.type, done.fault["applied"]) == (1, "UnknownOutcome", "unknown")
    assert "find out whether it had" in done.ended.message
    assert (undeclared.attempts, undeclared.ended.result) == (2, "done")


async def test_an_unkeyed_call_that_its_worker_cut_off_is_not_made_again(place: Place) -> None:
    """A shutdown cancels it, which is no report."""
    async with place.worker(UNKEYED):
        call = asyncio.create_task(place.call("hang", seconds=20))
        await begun(place)
    async with place.worker(UNKEYED):
        done = await call

    assert (done.attempts, done.ended.type) == (1, "UnknownOutcome")
    assert "WorkerShutdown" in done.ended.message


async def test_an_unkeyed_call_of_a_killed_worker_is_not_made_again(place: Place) -> None:
    """SIGKILL in the middle: the heartbeat timeout passes."""
    command = [sys.executable, "-m", "tests.faults.program", place.client.service_client.config.target_host]
    process = await asyncio.create_subprocess_exec(*command, place.queue, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    assert await process.stdout.readline() == b"ready\n"
    async with place.worker(activities=[]):
        call = asyncio.create_task(place.call("hang", seconds=20, heartbeat=1))
        await begun(place)
        process.kill()
        await process.wait()
        async with place.worker(UNKEYED, workflows=[]):
            done = await call

    assert (done.attempts, done.ended.type) == (1, "UnknownOutcome")


# --- mistakes


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"effects": {"charge": "unkeyd"}}, "'unkeyd' of 'charge': did you mean unkeyed or keyed?"),
        ({"raises": {"ShopError": "conflict"}}, "no class of exceptions"),
        ({"raises": {402: "refusd"}}, "did you mean refused?"),
    ],
)
def test_a_mistake_is_told_with_its_remedy(given: dict[str, Any], words: str) -> None:
    """Where the plugin is made."""
    with pytest.raises(ValueError, match=r"use one of|import the class") as told:
        FaultsPlugin(**given)

    assert words in str(told.value)


@pytest.mark.parametrize("given", [{"effects": {"chrage": "unkeyed"}}, {"only": ["chrage"]}])
async def test_an_activity_that_the_worker_does_not_have_is_told(place: Place, given: dict[str, Any]) -> None:
    """A typing mistake would leave a payment unguarded."""
    with pytest.raises(ValueError, match=r"'chrage'.*did you mean charge"):
        place.worker(FaultsPlugin(**given))
