"""`FaultsPlugin`: which retries of somebody else's worker it spares, and that it changes nothing else."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Replayer,
    UnsandboxedWorkflowRunner,
)

from activities.libraries import libraries_of
from evals.fakes.http_server import SILENCE, reply, serving
from replan import FaultsPlugin
from replan.faults import fault
from runtime.dev_server import DevServer
from tests.faults.program import Done, Place, Program, ShopError, fail_in_a_large_program
from tests.processes import ROOT


@pytest.fixture
async def place(server: DevServer, tmp_path: Path) -> Place:
    """A program beside the shared server, with a client of its own."""
    client = await Client.connect(server.address, data_converter=pydantic_data_converter)
    return Place(client, tmp_path)


async def called(place: Place, plugins: Sequence[Any], name: str, **values: Any) -> Done:
    """One call by a worker with these plugins."""
    async with place.worker(*plugins):
        return await place.call(name, **values)


# --- which retries are made


@pytest.mark.parametrize("name", ["fail", "fail_in_thread"])
async def test_a_persistent_error_is_not_retried(place: Place, name: str) -> None:
    """The policy would have made three attempts."""
    done = await called(place, [FaultsPlugin()], name, raises="permission")

    assert (done.attempts, done.ended.is_final, done.fault["code"]) == (1, True, "forbidden")


async def test_a_transient_error_is_retried_by_the_policy(place: Place) -> None:
    """A success after it is a success."""
    done = await called(place, [FaultsPlugin()], "fail", raises="reset", times=2)

    assert (done.attempts, done.ended.result) == (3, "done")


async def test_retries_that_are_used_up_end_as_the_policy_says(place: Place) -> None:
    """The failure of the last attempt is not final by itself."""
    done = await called(place, [FaultsPlugin()], "fail", raises="reset")

    assert (done.attempts, done.ended.is_final, done.ended.type) == (3, False, "ConnectionResetError")
    assert done.fault["quadrant"] == "transient_infrastructural"


async def test_a_retry_waits_as_long_as_the_service_asks(place: Place) -> None:
    """The policy alone waits 10 ms."""
    async with serving(reply(429, retry_after="1"), reply(200)) as url, place.worker(FaultsPlugin()):
        began = asyncio.get_running_loop().time()
        done = await place.call("charge", url=url)
        took = asyncio.get_running_loop().time() - began

    assert (done.attempts, done.ended.result) == (2, "charged")
    assert took >= 1.0


async def test_a_wait_beyond_the_deadline_is_left_to_the_policy(place: Place) -> None:
    """With the wait as the next delay, the server would give up at once."""
    async with serving(reply(429, retry_after="3600"), reply(200)) as url, place.worker(FaultsPlugin()):
        done = await place.call("charge", url=url, deadline=20)

    assert (done.attempts, done.ended.result) == (2, "charged")


@pytest.mark.parametrize("raises", ["key", "shop", "own"])
async def test_what_nobody_knows_passes_untouched(place: Place, raises: str) -> None:
    """An unknown exception, and a failure of the program's own, are retried as before, and look as before."""
    without, within = [await called(place, plugins, "fail", raises=raises) for plugins in ([], [FaultsPlugin()])]

    assert within.attempts == without.attempts == 3
    assert plain(within.failure) == plain(without.failure)
    assert within.failure.application_failure_info == without.failure.application_failure_info


async def test_a_strict_plugin_does_not_retry_the_unknown(place: Place) -> None:
    """But it leaves alone what the program itself says."""
    async with place.worker(FaultsPlugin(strict=True)):
        unknown, own = [await place.call("fail", raises=raises) for raises in ("key", "own")]

    assert (unknown.attempts, unknown.fault["code"], own.attempts) == (1, "bug", 3)


async def test_a_program_says_what_its_errors_mean(place: Place) -> None:
    """By class, by status, and by a function that may pass the error on."""
    raises: dict[Any, Any] = {
        ShopError: "conflict",
        402: fault("busy", retry_after=0.05),
        PermissionError: lambda error: None,
    }
    async with serving(reply(402), reply(200)) as url, place.worker(FaultsPlugin(raises=raises)):
        shop = await place.call("fail", raises="shop")
        unpaid = await place.call("charge", url=url)
        passed = await place.call("fail", raises="permission")

    assert (shop.attempts, shop.fault["code"], shop.ended.type) == (1, "conflict", "ShopError")
    assert (unpaid.attempts, unpaid.ended.result) == (2, "charged")
    assert (passed.attempts, passed.fault["code"]) == (1, "forbidden")


async def test_only_the_named_activities_are_looked_after(place: Place) -> None:
    """The others fail as before."""
    async with place.worker(FaultsPlugin(only=["fail"])):
        named = await place.call("fail", raises="permission")
        other = await place.call("fail_in_thread", raises="permission")

    assert (named.attempts, other.attempts) == (1, 3)


async def test_a_dry_run_changes_nothing_and_tells_what_it_would_skip(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each retry that would not be made."""
    with caplog.at_level(logging.WARNING, "replan.faults"):
        done = await called(place, [FaultsPlugin(dry_run=True)], "fail", raises="permission")

    told = [vars(record) for record in caplog.records if record.name == "replan.faults"]
    assert (done.attempts, done.ended.details) == (3, [])
    assert [(one["event"], one["dry_run"], one["saved_attempts"]) for one in told] == [
        ("RETRY_SKIPPED", True, 2),
        ("RETRY_SKIPPED", True, 1),
    ]


async def test_a_skipped_retry_is_told_with_what_it_saved(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """With the tool and the code; a failure that nothing would have followed is not told."""
    with caplog.at_level(logging.WARNING, "replan.faults"):
        async with place.worker(FaultsPlugin()):
            await place.call("fail", raises="permission", attempts=5)
            await place.call("fail", raises="permission", attempts=1)

    (told,) = [record for record in caplog.records if record.name == "replan.faults"]
    values = vars(told)
    assert (values["tool"], values["code"], values["saved_attempts"]) == ("fail", "forbidden", 4)
    assert values["saved_seconds"] == pytest.approx(0.01 + 0.02 + 0.04 + 0.08)
    assert "RETRY_SKIPPED tool=fail code=forbidden" in told.getMessage()


# --- what does not change


def plain(failure: Failure) -> tuple[Any, ...]:
    """What a failure says of the exception: message, type, cause, stack, source, category."""
    info = failure.application_failure_info
    # The line of the SDK's own frames, and how often an interceptor stands among them, may differ.
    ours = [line for line in failure.stack_trace.splitlines() if "tests/faults" in line]
    cause = plain(failure.cause) if failure.HasField("cause") else ()
    return failure.message, info.type, info.category, failure.source, failure.encoded_attributes, ours, cause


@pytest.mark.parametrize("raises", ["permission", "from", "in_except", "empty", "group", "reset"])
async def test_the_failure_stays_as_it_is(place: Place, raises: str) -> None:
    """Type, message, cause and stack: what a workflow catches, and `non_retryable_error_types` compare."""
    without, within = [
        await called(place, plugins, "fail", raises=raises, attempts=1) for plugins in ([], [FaultsPlugin()])
    ]

    assert plain(within.failure) == plain(without.failure)
    assert within.fault


async def test_error_types_of_a_policy_still_count(place: Place) -> None:
    """A transient error that the program does not want retried is not."""
    done = await called(place, [FaultsPlugin()], "fail", never=("ConnectionResetError",), raises="reset")

    assert (done.attempts, done.ended.type) == (1, "ConnectionResetError")


async def test_an_activity_that_completes_later_does(place: Place) -> None:
    """It is no failure."""
    async with place.worker(FaultsPlugin()):
        call = asyncio.create_task(place.call("later"))
        async for one in _workflows(place):
            handle = place.client.get_async_activity_handle(workflow_id=one, run_id=None, activity_id="call")
            await handle.complete("later")
        done = await call

    assert done.ended.result == "later"


async def _workflows(place: Place) -> Any:
    """The ids of the calls of a place that wait for their activity."""
    while not (files := list(place.folder.glob(f"{place.queue}-*"))):
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)  # until the server knows that the attempt ended
    for file in files:
        yield file.name


async def test_a_local_activity_is_looked_after_too(place: Place) -> None:
    """Its worker retries it, by the same flag."""
    async with place.worker(FaultsPlugin()):
        final = await place.call("fail", raises="permission", local=True)
        again = await place.call("fail", raises="reset", times=2, local=True)

    assert (final.attempts, again.attempts, again.ended.result) == (1, 3, "done")


class Spy(Interceptor):
    """An interceptor of the program's own, which notes what it sees raised."""

    def __init__(self) -> None:
        self.seen = list[str]()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Look at each exception."""
        spy = self

        class Looking(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                try:
                    return await self.next.execute_activity(input)
                except Exception as error:
                    spy.seen.append(type(error).__name__)
                    raise

        return Looking(next)


async def test_interceptors_of_the_worker_see_the_exception_itself(place: Place) -> None:
    """As they do without the line."""
    spy = Spy()
    async with place.worker(FaultsPlugin(), interceptors=[spy]):
        await place.call("fail", raises="permission")

    assert spy.seen == ["PermissionError"]


async def test_histories_replay_with_the_line_and_without_it(place: Place) -> None:
    """Adding and removing it changes no workflow."""
    made = {}
    for name, plugins in (("without", []), ("with", [FaultsPlugin()])):
        async with place.worker(*plugins):
            made[name] = [await place.call("fail", raises=raises) for raises in ("permission", "reset", "own", "key")]
    for name, plugins in (("with", []), ("without", [FaultsPlugin()])):
        replayer = Replayer(
            workflows=[Program],
            plugins=plugins,
            data_converter=pydantic_data_converter,
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        for done in made[name]:
            await replayer.replay_workflow(done.history)


# --- effects


async def test_an_unkeyed_call_is_not_repeated_after_an_unknown_outcome(place: Place) -> None:
    """The request was sent, and nobody answered: without the declaration, it is."""
    async with serving(SILENCE) as url:
        async with place.worker(FaultsPlugin(effects={"charge": "unkeyed"})):
            done = await place.call("charge", url=url)
        async with place.worker(FaultsPlugin()):
            undeclared = await place.call("charge", url=url)

    assert (done.attempts, done.ended.is_final, done.fault["applied"]) == (1, True, "unknown")
    assert (undeclared.attempts, undeclared.fault["applied"]) == (3, "unknown")


async def test_an_unkeyed_call_is_repeated_if_it_certainly_changed_nothing(place: Place) -> None:
    """Its only request was rejected."""
    charges = FaultsPlugin(effects={"charge": "unkeyed"})
    async with serving(reply(429, retry_after="0.05"), reply(200)) as url, place.worker(charges):
        done = await place.call("charge", url=url)

    assert (done.attempts, done.ended.result) == (2, "charged")


async def test_a_rejection_proves_nothing_of_an_earlier_request(place: Place) -> None:
    """The first request of the attempt was accepted."""
    charges = FaultsPlugin(effects={"charge": "unkeyed"})
    async with serving(reply(200), reply(429, retry_after="0.05"), reply(200)) as url, place.worker(charges):
        done = await place.call("charge", url=url, posts=2)

    assert (done.attempts, done.ended.is_final, done.fault["applied"]) == (1, True, "unknown")


async def test_an_unknown_error_of_an_unkeyed_call_is_not_retried(place: Place) -> None:
    """Nobody knows what it did before."""
    done = await called(place, [FaultsPlugin(effects={"fail": "unkeyed"})], "fail", raises="key")

    assert (done.attempts, done.fault["applied"], done.ended.type) == (1, "unknown", "KeyError")


async def test_an_unkeyed_call_whose_timeout_passed_is_not_made_again(place: Place) -> None:
    """The server retries it; the next attempt asks how the one before ended, and does not begin."""
    async with place.worker(FaultsPlugin(effects={"hang": "unkeyed"})):
        done = await place.call("hang", seconds=0.3)
    undeclared = await called(place, [FaultsPlugin()], "hang", seconds=0.3, times=1)

    assert (done.attempts, done.ended.type, done.fault["applied"]) == (1, "UnknownOutcome", "unknown")
    assert "find out whether it had" in done.ended.message
    assert (undeclared.attempts, undeclared.ended.result) == (2, "done")


async def test_an_unkeyed_call_that_its_worker_cut_off_is_not_made_again(place: Place) -> None:
    """A shutdown cancels it, which is no report."""
    async with place.worker(FaultsPlugin(effects={"hang": "unkeyed"})):
        call = asyncio.create_task(place.call("hang", seconds=20))
        while not list(place.folder.iterdir()):
            await asyncio.sleep(0.02)
    async with place.worker(FaultsPlugin(effects={"hang": "unkeyed"})):
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
        while not list(place.folder.iterdir()):
            await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
        async with place.worker(FaultsPlugin(effects={"hang": "unkeyed"}), workflows=[]):
            done = await call

    assert (done.attempts, done.ended.type) == (1, "UnknownOutcome")


async def test_failures_of_the_program_are_retried_for_an_unkeyed_call_too(place: Place) -> None:
    """It said so itself, by an ApplicationError that may be retried; also if it is too large to be searched."""
    names = ("fail", "fail_in_a_large_program")
    async with place.worker(FaultsPlugin(effects=dict.fromkeys(names, "unkeyed"))):
        ended = [await place.call(name, raises="own", times=2) for name in names]

    assert libraries_of(fail_in_a_large_program) is None
    assert [(done.attempts, done.ended.result) for done in ended] == [(3, "done"), (3, "done 100")]


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
