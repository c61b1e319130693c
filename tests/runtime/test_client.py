"""Reaching a server: what wins, what is said when it fails, and which search attributes there are."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from runtime.client import Misconfigured, NoServer, NotConnected, answers, connect, register_search_attributes
from runtime.dev_server import DevServer, ServerSpec, find_cli, free_port


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No TEMPORAL_* variable and no config file of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("TEMPORAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(scope="module")
async def fresh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A server of its own: one has room for ten keywords only."""
    spec = ServerSpec(tmp_path_factory.mktemp("fresh"), port=free_port(), ui_port=free_port())
    async with DevServer(spec, await find_cli(lambda _: None)) as running:
        yield running


@pytest.fixture(scope="module")
async def fresh_client(fresh: DevServer) -> Client:
    return await connect(address=fresh.address, plain=True)


def profile(folder: Path, text: str) -> str:
    file = folder / "temporal.toml"
    file.write_text(text)
    return str(file)


async def test_the_environment_names_the_server(server: DevServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without arguments, TEMPORAL_ADDRESS decides where to connect, and the namespace is `default`."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)

    assert (await connect()).namespace == "default"


async def test_arguments_win_over_the_environment(server: DevServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An explicit address and namespace are used although the environment names others."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", "localhost:1")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "elsewhere")

    assert (await connect(address=server.address, namespace="default")).namespace == "default"


async def test_a_profile_of_the_config_file_names_the_server(
    server: DevServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = f'[profile.mine]\naddress = "{server.address}"\n'
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", profile(tmp_path, text))

    assert await connect(profile="mine")


async def test_the_server_of_the_state_folder_comes_after_the_environment(
    server: DevServer, fresh: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address in the arguments or the environment wins over it; alone it is used without keys, as it has none."""
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    state = fresh.spec.folder
    argued = await connect(address=server.address, state=state)
    monkeypatch.setenv("TEMPORAL_API_KEY", "key")
    alone = await connect(state=state)
    monkeypatch.delenv("TEMPORAL_API_KEY")
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    told = await connect(state=state)

    hosts = [client.service_client.config.target_host for client in (argued, alone, told)]
    assert hosts == [server.address, fresh.address, server.address]


async def test_plain_leaves_the_environment_alone(server: DevServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret")

    with pytest.raises(NoServer, match="TEMPORAL_TLS=false"):
        await connect(address=server.address)
    assert await connect(address=server.address, plain=True)


async def test_nobody_there_is_a_sentence_with_a_remedy() -> None:
    address = f"localhost:{free_port()}"

    with pytest.raises(NoServer) as failure:
        await connect(address=address)
    assert str(failure.value) == (
        f"No Temporal server answers at {address} (nothing listens there): start one with `python worker.py --dev`,"
        " or set TEMPORAL_ADDRESS."
    )


async def test_a_silent_port_fails_within_five_seconds(silent_port: int) -> None:
    """A program that accepts and never answers does not hold anybody up."""
    began = time.monotonic()

    with pytest.raises(NoServer, match="No Temporal server answers"):
        await connect(address=f"127.0.0.1:{silent_port}")
    assert time.monotonic() - began < 5


async def test_a_web_page_is_no_temporal_server(server: DevServer) -> None:
    with pytest.raises(NoServer, match="is no Temporal server"):
        await connect(address=f"127.0.0.1:{server.spec.ui_port}")


async def test_a_missing_namespace_is_named(server: DevServer) -> None:
    with pytest.raises(NoServer, match=r"has no namespace 'shop': create it with `temporal operator"):
        await connect(address=server.address, namespace="shop")


@pytest.mark.parametrize("address", ["localhost:99999", "a b:7233", ":7233"])
async def test_a_malformed_address_is_a_sentence(address: str) -> None:
    """What cannot be an address is said to be none."""
    with pytest.raises(Misconfigured, match="is no address"):
        await connect(address=address)


async def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(Misconfigured, match=r"Profile 'nope' not found"):
        await connect(profile="nope")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("garbage [", "TOML parse error at line 1"),
        ('[profile.default.tls]\nclient_cert_path = "/no/such.pem"\n', r"'/no/such.pem', which cannot be read"),
        ('[profile.default.tls]\nclient_cert_data = "x"\nclient_key_data = "y"\n', "is not PEM text"),
    ],
)
async def test_an_unusable_config_file_is_a_sentence(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", profile(tmp_path, text))

    with pytest.raises(Misconfigured, match=said) as failure:
        await connect()
    assert "\n" not in str(failure.value)


async def test_a_config_file_that_is_not_there_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", "/no/such.toml")

    with pytest.raises(Misconfigured, match="does not exist"):
        await connect()


async def test_answers_tells_a_server_from_none(server: DevServer) -> None:
    """Only a Temporal server counts, and asking raises nothing."""
    others = (f"127.0.0.1:{server.spec.ui_port}", f"localhost:{free_port()}", "nonsense:x")

    assert [await answers(address) for address in (server.address, *others)] == [True, False, False, False]


async def test_missing_search_attributes_are_added_and_found_again(fresh_client: Client) -> None:
    assert await register_search_attributes(fresh_client, {"TestWord": "Keyword"})
    assert await register_search_attributes(fresh_client, {"TestWord": "Keyword", "TestNumber": "Int"})


async def test_two_workers_may_register_at_once(fresh_client: Client) -> None:
    wanted = {"TestAtOnce": "Keyword"}

    assert await asyncio.gather(*[register_search_attributes(fresh_client, wanted) for _ in range(5)]) == [True] * 5


@pytest.mark.parametrize(
    "attributes",
    [{"ExecutionStatus": "Keyword"}, {f"TestFlag{number}": "Bool" for number in range(9)}],
    ids=["reserved name", "too many of a type"],
)
async def test_a_refusal_to_register_is_an_answer(fresh_client: Client, attributes: dict[str, str]) -> None:
    """A server that refuses is no exception: the caller goes on without."""
    assert not await register_search_attributes(fresh_client, attributes)


async def test_an_attribute_of_another_type_is_not_there(fresh_client: Client) -> None:
    await register_search_attributes(fresh_client, {"TestTaken": "Keyword"})

    assert not await register_search_attributes(fresh_client, {"TestTaken": "Int"})


def test_failures_carry_reason_and_remedy() -> None:
    failure = NotConnected("Nobody is there", "call again")

    assert (failure.reason, failure.remedy, str(failure)) == (
        "Nobody is there",
        "call again",
        "Nobody is there: call again.",
    )
