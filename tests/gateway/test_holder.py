"""`replan mcp` without tasks: holders, their agents and servers are killed where it hurts."""

import json
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from server.gateway import bridge
from tests import preloaded
from tests.gateway.agents import PATIENCE, SHOP, Agent, Place
from tests.gateway.http import NEW, OLD, Broken, Gateway, Http, call, tools_of
from tests.gateway.test_gateway import PAY, said, slow_shop, until_told

NOT_AGAIN = "Not done again"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A state folder without any server; all programs are forked."""
    place = Place(tmp_path, python=preloaded.python(), mode=())
    yield place
    place.close()


@pytest.fixture
def session() -> str:
    """A name that no other test has."""
    return f"s-{uuid.uuid4().hex[:8]}"


def until(is_so: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Wait until it is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def runs(process: psutil.Process) -> bool:
    """Whether a process runs; one that has ended may wait for somebody to notice."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def holder_of(place: Place) -> int:
    """The process id of the only holder."""
    [holder] = place.holders
    return holder


def socket_of(place: Place) -> Path:
    """The socket of the only holder."""
    [lock] = place.holders.values()
    return Path(bridge.HolderPlace(str(place.state), lock.stem).socket)


def shops(place: Place) -> list[psutil.Process]:
    """The processes of this place's shop, without those that watch them."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if str(place.book) in words and str(SHOP) in words[:3] and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_an_agent_sees_the_server_as_it_is_and_pays_once(place: Place, session: str) -> None:
    """Without a Temporal server: tools, resources, contents, and the gateway's own tools."""
    agent = place.agent(session)
    tools = agent.tools()
    paid = agent.call("pay", PAY)

    assert agent.about["serverInfo"]["name"] == "the shop"
    assert agent.about["instructions"].startswith("Pay.")
    assert tools["pay"]["inputSchema"]["properties"]["who"] == {"type": "string"}
    assert {"pay", "book", "replan_outcome", "replan_undo", "replan_effects"} <= tools.keys()
    assert said(paid) == "paid ann\nso it is"
    assert agent.call("book")["content"] == [{"type": "text", "text": "ann\n"}, {"type": "text", "text": "so it is"}]
    assert agent.answer(agent.send("resources/read", {"uri": "shop://rules"}))["result"]["contents"][0]["text"]
    assert len(agent.call("replan_effects")["structuredContent"]["effects"]) == 1
    assert agent.leave() == 0
    assert place.paid == ["ann"]


def test_a_call_ends_although_its_agent_and_all_of_its_group_were_killed(place: Place, session: str) -> None:
    """The holder is in no group with it: the agent that starts again gets the answer, and pays nothing."""
    first = place.agent(session, is_gated=True)
    first.begin("pay", PAY)
    place.until_paid(1)
    first.kill_group()
    second, stranger = place.agent(session, is_gated=True), place.agent(f"{session}-2", is_gated=True)
    again, other = second.begin("pay", PAY), stranger.begin("pay", PAY)
    place.open_gate()

    assert NOT_AGAIN in said(second.answer(again)["result"])
    assert NOT_AGAIN not in said(stranger.answer(other)["result"])
    assert place.paid == ["ann", "ann"]


def test_an_answer_that_nobody_waited_for_is_kept_after_the_holder_has_ended(place: Place, session: str) -> None:
    """The agent was killed in its call, and starts again when nothing of the gateway runs any more."""
    first = place.agent(session, is_gated=True)
    first.begin("pay", PAY)
    place.until_paid(1)
    first.kill_group()
    place.open_gate()
    until(lambda: not place.holders)
    result = place.agent(session, is_gated=True).call("pay", PAY)

    assert NOT_AGAIN in said(result)
    assert place.paid == ["ann"]


def test_after_a_kill_of_the_holder_the_old_server_is_gone_before_the_next_call(place: Place, session: str) -> None:
    """The agent's process connects to a new holder and sends its call again, whose outcome nobody knows now."""
    agent = place.agent(session, is_gated=True)
    number = agent.begin("pay", PAY)
    place.until_paid(1)
    [old] = shops(place)
    os.kill(holder_of(place), signal.SIGKILL)
    result = agent.answer(number)["result"]
    is_gone = not runs(old)
    read = agent.call("book")

    assert result["isError"]
    assert result["structuredContent"]["code"] == "unknown_outcome"
    assert is_gone
    assert said(read).startswith("ann")
    assert place.paid == ["ann"]


def test_a_server_that_will_not_end_is_killed_before_the_next_holder_calls(place: Place, session: str) -> None:
    """Also when what watches it was killed with the holder."""
    stubborn = place.state.parent / "stubborn.py"
    guard = "import signal\nfor number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\n"
    stubborn.write_text(f"{guard}{SHOP.read_text()}\nimport time\ntime.sleep(600)\n")
    agent = place.of_command(sys.executable, str(stubborn), str(place.book), session=session)
    agent.tools()
    holder = psutil.Process(holder_of(place))
    supervisors = holder.children()
    [server] = [child for each in supervisors for child in each.children()]
    for process in (*supervisors, holder):
        process.kill()
    read = agent.call("book")

    assert not read.get("isError")
    assert not runs(server)


def test_a_server_that_was_killed_is_started_again(place: Place, session: str) -> None:
    """The next read says so, once: what the server kept in memory is gone."""
    agent = place.agent(session)
    agent.call("pay", PAY)
    agent.call("book")
    for process in shops(place):
        process.kill()
    until(lambda: not shops(place))
    first, paid, second = agent.call("book"), agent.call("pay", {"who": "bob"}), agent.call("book")

    assert said(first).startswith("ann")
    assert said(first).endswith(" was started again before this call: what it kept in memory is gone.")
    assert said(paid).startswith("paid bob")
    assert said(second).startswith("ann\nbob") and "started again" not in said(second)


@pytest.mark.parametrize("row", ['"required": ["who", "words"]', '"required": ["who"], "title": "New"'])
def test_a_tool_that_changed_is_not_called(place: Place, session: str, tmp_path: Path, row: str) -> None:
    """The agent is told what is to be started again, and no worker is."""
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP.read_text())
    agent = place.of_command(sys.executable, str(shop), str(place.book), session=session)
    agent.call("pay", PAY)
    shop.write_text(SHOP.read_text().replace('"required": ["who"]', row))
    place.kill_tools(shop)
    result = agent.call("pay", {"who": "bob"})

    assert "The tool shop.pay of the server has changed" in said(result)
    assert "the gateway takes it as it is when it starts again" in said(result) and "worker" not in said(result)
    assert place.paid == ["ann"]


def test_several_agents_of_a_session_meet_in_one_holder(place: Place, session: str) -> None:
    """Also those that start at the same moment; without a session each has a holder of its own."""
    agents = [Agent(place, "--session", session, "--", sys.executable, str(SHOP), str(place.book)) for _ in range(4)]
    place._agents.extend(agents)
    for agent in agents:
        agent.hello()
    for number, agent in enumerate(agents):
        assert not agent.call("pay", {"who": f"w{number}"}).get("isError")

    assert len(place.holders) == 1
    assert len(shops(place)) == 1
    place.agent()
    assert len(place.holders) == 2


def test_nothing_stays_of_a_holder_that_nobody_needs(place: Place, session: str) -> None:
    """Neither a process nor a socket; the lock file, the log and the last list may stay."""
    agent = place.agent(session)
    agent.call("pay", PAY)
    holder = psutil.Process(holder_of(place))
    family = [holder, *holder.children(recursive=True)]
    path = socket_of(place)
    mode = path.stat().st_mode & 0o777
    agent.leave()
    until(lambda: not any(map(runs, family)))

    assert mode == 0o600
    assert len(family) == 3
    assert {file.suffix for file in (place.state / "gateway").iterdir()} == {".lock", ".log", ".tools"}
    assert not path.exists()


def test_an_agent_of_another_version_gets_a_holder_of_its_own(place: Place, session: str) -> None:
    """The old one finishes its calls first; its agents go on with the new one."""
    agent = place.agent(session, is_gated=True)
    number = agent.begin("pay", PAY)
    place.until_paid(1)
    old = holder_of(place)
    path = socket_of(place)
    hello = {"version": "0.0.1", "process": "p", "session": session}
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(path))
        other.sendall(bridge.HELLO + json.dumps(hello).encode() + b"\n")
        told = other.makefile("rb").read()
    place.open_gate()
    result = agent.answer(number)["result"]
    again = agent.call("pay", {"who": "bob"})

    assert told == b"E\n"
    assert said(result).startswith("paid ann")
    assert said(again).startswith("paid bob")
    assert holder_of(place) != old
    assert place.paid == ["ann", "bob"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["/does/not/exist"], "/does/not/exist"),
        ([sys.executable, "-c", "raise SystemExit('no token')"], "no token"),
    ],
)
def test_a_wrong_command_is_said_to_the_agent_at_once(place: Place, command: list[str], reason: str) -> None:
    """As an answer, and where it starts; nothing stays, and a corrected command can be tried at once."""
    agent = Agent(place, "--session", "s", "--", *command)
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    numbers = [agent.send("initialize", about), agent.send("tools/list")]
    answer = agent.answer(numbers[1])
    printed = agent.errors()

    assert "The gateway cannot serve" in answer["error"]["message"]
    assert reason in answer["error"]["message"]
    assert "The gateway cannot serve" in printed
    assert agent.leave_code == 6
    until(lambda: not place.holders)


def test_a_mistake_in_a_tools_file_is_said_to_the_agent(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("[servers.shop]\n")
    agent = Agent(place, "--tools", str(file))
    agent.send("initialize", {})

    assert "shop.toml" in agent.errors()


def test_an_approval_needs_tasks(place: Place) -> None:
    """A person cannot be asked while an agent waits: it is said, with the remedy."""
    file = place.tools_file('[servers.shop.tools.pay]\neffect = "unkeyed"\napprove = "always"\n')
    agent = Agent(place, "--tools", str(file))
    agent.send("initialize", {})
    printed = agent.errors()

    assert "shop.pay has approve=" in printed
    assert "add --tasks" in printed


def test_an_agent_whose_list_was_too_early_is_told_of_the_tools(place: Place, session: str) -> None:
    """The list itself says that it is not whole, and a notification follows for each list that was too early."""
    agent = place.of_command(*slow_shop(place), session=session, options=("--list-wait", "0.2"))
    early = agent.tools()
    resources = agent.answer(agent.send("resources/list"))["result"]["resources"]
    place.open_gate()
    told = until_told(agent, 2)

    assert "pay" not in early and resources == []
    assert told == ["notifications/resources/list_changed", "notifications/tools/list_changed"]
    assert "pay" in agent.tools()


def test_a_list_waits_for_a_server_that_is_slow_to_start(place: Place, session: str) -> None:
    """The first list is whole, and so nothing is told afterwards."""
    agent = place.of_command(*slow_shop(place), session=session)
    listing = agent.send("tools/list")
    time.sleep(0.5)
    place.open_gate()
    tools = [tool["name"] for tool in agent.answer(listing)["result"]["tools"]]
    agent.call("book")

    assert "pay" in tools and agent.notifications == []


@pytest.mark.parametrize("has_changed", [False, True])
def test_a_list_that_cannot_wait_has_the_tools_of_the_last_time(
    place: Place, session: str, *, has_changed: bool
) -> None:
    """Also in another session; and nothing is told afterwards unless they differ."""
    place.open_gate()
    place.of_command(*slow_shop(place), session=session).tools()
    [kept] = (place.state / "gateway").glob("*.tools")
    mode = kept.stat().st_mode & 0o777
    if has_changed:
        kept.write_text(kept.read_text().replace('"book"', '"look"'))
    place.gate.unlink()
    agent = place.of_command(*slow_shop(place), session=f"{session}-2", options=("--list-wait", "0.2"))
    early = agent.tools()
    paid = agent.begin("pay", PAY)
    place.open_gate()
    result = agent.answer(paid)["result"]
    agent.tools()

    assert mode == 0o600
    assert {"pay", "look" if has_changed else "book"} <= early.keys()
    assert "as they were the last time" in early["replan_outcome"]["description"]
    assert said(result).startswith("paid ann")
    assert [one["method"] for one in agent.notifications] == ["notifications/tools/list_changed"] * has_changed


@pytest.mark.parametrize("text", ["", "[{}]", "[1]", "{}", '{"tools": 1}'])
def test_a_last_list_that_cannot_be_read_is_none(place: Place, session: str, text: str) -> None:
    """As one of another version of Replan."""
    place.open_gate()
    place.of_command(*slow_shop(place), session=session).tools()
    [kept] = (place.state / "gateway").glob("*.tools")
    kept.write_text(text)
    place.gate.unlink()
    agent = place.of_command(*slow_shop(place), session=f"{session}-2", options=("--list-wait", "0.2"))
    early = agent.tools()
    place.open_gate()

    assert "pay" not in early and "replan_outcome" in early
    assert until_told(agent, 1) == ["notifications/tools/list_changed"]


def test_an_agent_with_another_variable_is_not_stuck_and_pays_nothing_twice(place: Place, session: str) -> None:
    """It has another holder, since its server may be another; the open call of the session is seen all the same."""
    first = place.agent(session, is_gated=True)
    first.begin("pay", PAY)
    place.until_paid(1)
    first.kill()
    place.environment["CHANGED"] = "yes"
    second = place.agent(session, is_gated=True)
    again = second.begin("pay", PAY)
    time.sleep(0.3)
    place.open_gate()
    result = second.answer(again)["result"]

    assert len(place.holders) == 2
    assert NOT_AGAIN in said(result)
    assert place.paid == ["ann"]


def test_a_cancelled_call_goes_on(place: Place, session: str) -> None:
    """The next equal one gets its answer."""
    agent = place.agent(session, is_gated=True)
    made = agent.begin("pay", PAY)
    place.until_paid(1)
    agent.send("notifications/cancelled", {"requestId": made}, is_request=False)
    again = agent.begin("pay", PAY)
    place.open_gate()

    assert NOT_AGAIN in said(agent.answer(again)["result"])
    assert place.paid == ["ann"]


def test_a_call_of_a_command_may_take_as_long_as_its_option_says(place: Place, session: str) -> None:
    agent = place.of_command(
        sys.executable, str(SHOP), str(place.book), str(place.gate), session=session, options=("--timeout", "0.5")
    )
    result = agent.call("pay", PAY)

    assert result["isError"]
    assert place.paid == ["ann"]


def test_an_agent_that_never_reads_harms_nobody(place: Place, session: str) -> None:
    """Its answers wait for it; those of others do not."""
    other = place.agent(session)
    place.book.write_text("x" * 100_000)
    silent = place.silent(session, [("book", {})] * 60)
    for _ in range(3):
        assert "xxx" in said(other.call("book"))
        time.sleep(0.3)

    assert not other.call("pay", PAY).get("isError")
    assert silent.poll() is None


def test_python_tools_need_no_worker(place: Place, session: str) -> None:
    """Their effects and their reads; a plain function and one with an event loop."""
    agent = place.of_tools(tools_of(place), "--session", session)
    paid = agent.call("pay", PAY)
    read = agent.call("book", {"who": ""})
    wrong = agent.call("book", {})

    assert paid["structuredContent"] == {"who": "ann"}
    assert said(read) == '["ann"]'
    assert "do not fit" in said(wrong)


@pytest.mark.parametrize("version", [NEW, OLD])
def test_agents_over_http_need_no_tasks(tmp_path: Path, session: str, version: str) -> None:
    """The holder runs in the foreground, and sessions are named by the path."""
    gateway = Gateway(Place(tmp_path, python=preloaded.python(), mode=()))
    try:
        with Http(f"{gateway.url}/{session}", version) as agent:
            first = agent.call("pay", PAY, {"replan_key": "1"})
        with Http(f"{gateway.url}/{session}", version) as agent:
            second = agent.call("pay", PAY, {"replan_key": "1"})
            effects = agent.call("replan_effects", {})["structuredContent"]["effects"]
    finally:
        assert gateway.close() == "stopped\n"

    assert said(first).startswith("paid ann")
    assert said(second).startswith("paid ann")
    assert len(effects) == 1
    assert gateway.place.paid == ["ann"]
    assert not shops(gateway.place)


def test_an_answer_that_was_cut_off_over_http_belongs_to_the_next_equal_call(tmp_path: Path, session: str) -> None:
    """The connection breaks while a payment is made: one payment, and the answer on the next connection."""
    gateway = Gateway(Place(tmp_path, python=preloaded.python(), mode=()), is_gated=True)
    try:
        broken = Broken(gateway, call("pay", PAY), f"/{session}")
        gateway.place.until_paid(1)
        broken.cut()
        time.sleep(0.2)
        gateway.place.open_gate()
        with Http(f"{gateway.url}/{session}") as agent:
            again = agent.call("pay", PAY)
            wanted = agent.call("pay", PAY)
    finally:
        gateway.close()

    assert NOT_AGAIN in said(again)
    assert NOT_AGAIN not in said(wanted)
    assert gateway.place.paid == ["ann", "ann"]


def test_everything_can_be_made_ready_before_an_agent_starts(place: Place, session: str) -> None:
    """`--prepare` starts the server, says which tools there are, and ends."""
    agent = Agent(place, "--session", session, "--prepare", "--", sys.executable, str(SHOP), str(place.book))

    assert "ready  4 tools: pay, book, draw, refuse" in agent.errors()
    assert agent.leave_code == 0
