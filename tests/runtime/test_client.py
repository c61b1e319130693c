"""Reaching a server: what wins, what is said when it fails, which search attributes there are, and paused workflows."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client as TemporalClient, WorkflowExecutionStatus
from temporalio.service import WorkflowService

from client.client import Client
from runtime.client import (
    Misconfigured,
    NoServer,
    NotConnected,
    PausedAsRunning,
    answers,
    connect,
    register_search_attributes,
    unpause,
)
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No TEMPORAL_* variable and no config file of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("TEMPORAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="module")
async def fresh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A server of its own: one has room for ten keywords only."""
    spec = ServerSpec(tmp_path_factory.mktemp("fresh"), port=free_port(), ui_port=free_port())
    async with DevServer(spec, await find_cli(lambda _: None)) as running:
        yield running


async def test_arguments_win_over_the_environment_and_that_over_the_state_folder(
    server: DevServer, fresh: DevServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server of the state folder is used without keys, as it has none; a profile is one of the config file."""
    state = fresh.spec.folder
    argued = await connect(address=server.address, state=state)
    monkeypatch.setenv("TEMPORAL_API_KEY", "key")
    alone = await connect(state=state)
    monkeypatch.delenv("TEMPORAL_API_KEY")
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    told = [await connect(), await connect(state=state)]
    monkeypatch.setenv("TEMPORAL_ADDRESS", "localhost:1")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "elsewhere")
    over = await connect(address=server.address, namespace="default")
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"):
        monkeypatch.delenv(name)
    (file := tmp_path / "temporal.toml").write_text(f'[profile.mine]\naddress = "{server.address}"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    profiled = await connect(profile="mine")

    found = [argued, alone, *told, over, profiled]
    hosts = [client.service_client.config.target_host for client in found]
    assert hosts == [server.address, fresh.address, *[server.address] * 4]
    assert {client.namespace for client in found} == {"default"}


async def test_plain_leaves_the_environment_alone(server: DevServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key for Temporal Cloud in the environment, which means TLS, does not disturb the server of `--dev`."""
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret")

    with pytest.raises(NoServer, match="TEMPORAL_TLS=false"):
        await connect(address=server.address)
    assert await connect(address=server.address, plain=True)


NOBODY = free_port()
FAILURES: Mapping[str, tuple[dict[str, Any], type[NotConnected], str]] = {
    "nobody there": (
        {"address": f"localhost:{NOBODY}"},
        NoServer,
        f"No Temporal server answers at localhost:{NOBODY} (nothing listens there): start one with"
        " `python worker.py --dev`, or set TEMPORAL_ADDRESS.",
    ),
    "the web UI": ({"address": "127.0.0.1:{ui}"}, NoServer, "is no Temporal server"),
    "no such namespace": (
        {"address": "{server}", "namespace": "shop"},
        NoServer,
        "has no namespace 'shop': create it with `temporal operator",
    ),
    "no port": ({"address": "localhost:99999"}, Misconfigured, "is no address"),
    "a blank": ({"address": "a b:7233"}, Misconfigured, "is no address"),
    "no host": ({"address": ":7233"}, Misconfigured, "is no address"),
    "no such profile": ({"profile": "nope"}, Misconfigured, "Profile 'nope' not found"),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_server_that_cannot_be_reached_is_a_sentence(server: DevServer, case: str) -> None:
    given, kind, said = FAILURES[case]
    told = {name: one.format(ui=server.spec.ui_port, server=server.address) for name, one in given.items()}

    with pytest.raises(kind) as failure:
        await connect(**told)
    assert said in str(failure.value)


async def test_a_silent_port_fails_within_five_seconds() -> None:
    """A program that accepts and never answers does not hold anybody up."""
    began = time.monotonic()

    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NoServer, match="No Temporal server answers"):
        await connect(address=f"127.0.0.1:{silent.getsockname()[1]}")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("garbage [", "TOML parse error at line 1"),
        ('[profile.default.tls]\nclient_cert_path = "/no/such.pem"\n', r"'/no/such.pem', which cannot be read"),
        ('[profile.default.tls]\nclient_cert_data = "x"\nclient_key_data = "y"\n', "is not PEM text"),
        (None, "does not exist"),
    ],
)
async def test_an_unusable_config_file_is_a_sentence(
    text: str | None, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A mistyped TEMPORAL_CONFIG_FILE does not end in another server than the one meant."""
    file = tmp_path / "temporal.toml"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))

    with pytest.raises(Misconfigured, match=said) as failure:
        await connect()
    assert "\n" not in str(failure.value)


async def test_answers_tells_a_server_from_none(server: DevServer) -> None:
    """Only a Temporal server counts, and asking raises nothing."""
    others = (f"127.0.0.1:{server.spec.ui_port}", f"localhost:{free_port()}", "nonsense:x")

    assert [await answers(address) for address in (server.address, *others)] == [True, False, False, False]


async def test_search_attributes_are_registered_as_often_as_one_likes(fresh: DevServer) -> None:
    """Also by workers that start together; a server that refuses is no exception: the caller goes on without."""
    client = await connect(address=fresh.address, plain=True)
    at_once = await asyncio.gather(*[register_search_attributes(client, {"TestAtOnce": "Keyword"}) for _ in range(5)])
    wanted: Sequence[Mapping[str, str]] = (
        {"TestWord": "Keyword"},
        {"TestWord": "Keyword", "TestNumber": "Int"},
        {"TestWord": "Int"},  # the name is taken by another type
        {"ExecutionStatus": "Keyword"},  # the name is reserved
        {f"TestFlag{number}": "Bool" for number in range(9)},  # too many of a type
    )

    assert at_once == [True] * 5
    assert [await register_search_attributes(client, one) for one in wanted] == [True, True, False, False, False]


def test_failures_carry_reason_and_remedy() -> None:
    """Whoever prints JSON gets the two halves of the sentence."""
    failure = NotConnected("Nobody is there", "call again")

    assert (failure.reason, failure.remedy) == ("Nobody is there", "call again")
    assert str(failure) == "Nobody is there: call again."


PAUSED = Status.WORKFLOW_EXECUTION_STATUS_PAUSED


def test_the_sdk_does_not_know_a_paused_workflow() -> None:
    """When it does, `PausedAsRunning` can go; tests/stack/test_newer_server.py pauses one on a real server."""
    with pytest.raises(ValueError, match="8 is not a valid WorkflowExecutionStatus"):
        WorkflowExecutionStatus(PAUSED)


def test_only_a_paused_workflow_is_said_to_run() -> None:
    found = {status: WorkflowExecutionInfo(status=status) for status in Status.values()}
    changed = [status for status, info in found.items() if unpause(info)]

    assert changed == [PAUSED] and WorkflowExecutionStatus(found[PAUSED].status) == WorkflowExecutionStatus.RUNNING
    assert [status for status, info in found.items() if info.status != status] == [PAUSED]


async def test_the_connection_of_a_user_is_not_changed(server: DevServer) -> None:
    theirs = await TemporalClient.connect(server.address)
    ours = Client(theirs).temporal
    await ours.count_workflows()

    assert (type(ours.workflow_service), type(theirs.workflow_service)) == (PausedAsRunning, WorkflowService)
    assert ours.service_client.config is theirs.service_client.config
