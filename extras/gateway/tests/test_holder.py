"""`replan mcp` without tasks: holders, their agents and servers are killed where it hurts."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from extras.gateway import bridge
from extras.gateway.tests.agents import HELLO, NOT_AGAIN, PAY, SHOP, Agent, Place, said, until
from extras.gateway.tests.http import tools_of
from extras.mcp.tests.foreign import command
from tests.stores import make_old_store

CHANGED = ["notifications/resources/list_changed", "notifications/tools/list_changed"]


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


def until_told(agent: Agent, count: int) -> list[str]:
    """The notifications of the agent, in the order of their names, as soon as there are so many."""

    def are_there() -> bool:
        agent.answer(agent.send("ping"))
        return len(agent.notifications) >= count

    until(are_there, 90)
    return sorted(one["method"] for one in agent.notifications)


def paying(place: Place, session: str) -> Agent:
    """An agent whose payment is made, and not answered."""
    agent = place.agent(session, is_gated=True)
    agent.begin("pay", PAY)
    place.until_paid(1)
    return agent


def test_an_agent_sees_the_server_as_it_is_and_pays_once(tmp_path: Path, session: str) -> None:
    """Each program is an interpreter of its own here, as where a user starts them; no Temporal server is there."""
    place = Place(tmp_path)
    cold = place.agent(session)
    assert {"pay", "book"} < cold.tools().keys()
    agent = place.agent(session)
    about, tools = agent.about, agent.tools()

    assert about["serverInfo"]["name"] == "the shop" and about["instructions"].startswith("Pay.")
    assert tools["pay"]["inputSchema"]["properties"]["who"] == {"type": "string"}
    assert {"pay", "book", "replan_outcome", "replan_undo", "replan_effects"} <= tools.keys()
    assert said(agent.call("pay", PAY)) == "paid ann\nso it is"
    assert agent.call("book")["content"] == [{"type": "text", "text": "ann\n"}, {"type": "text", "text": "so it is"}]
    rules = agent.answer(agent.send("resources/read", {"uri": "shop://rules"}))["result"]["contents"]
    assert rules[0]["text"] == "Be fair."
    assert len(agent.call("replan_effects")["structuredContent"]["effects"]) == 1
    cold.call("book")
    assert cold.notifications == [], "its list was complete, and it may be about to leave"
    assert (agent.leave(), place.paid) == (0, ["ann"])
    place.close()


def test_a_call_ends_although_its_agent_and_all_of_its_group_were_killed(place: Place, session: str) -> None:
    """The agent that starts again gets the answer, and pays nothing; another session pays for itself."""
    paying(place, session).kill_group()
    second, stranger = place.agent(session, is_gated=True), place.agent(f"{session}-2", is_gated=True)
    again, other = second.begin("pay", PAY), stranger.begin("pay", PAY)
    place.open_gate()

    assert NOT_AGAIN in said(second.answer(again)["result"])
    assert NOT_AGAIN not in said(stranger.answer(other)["result"])
    assert place.paid == ["ann", "ann"]


def test_an_answer_that_nobody_waited_for_is_kept_after_the_holder_has_ended(place: Place, session: str) -> None:
    """The agent was killed in its call, and starts again when nothing of the gateway runs any more."""
    paying(place, session).kill_group()
    place.open_gate()
    until(lambda: not place.holders)

    assert NOT_AGAIN in said(place.agent(session, is_gated=True).call("pay", PAY))
    assert place.paid == ["ann"]


def test_an_agent_that_has_closed_its_end_is_gone_before_its_process_has_ended(place: Place, session: str) -> None:
    """Its successor, which is quicker than the process of the gateway, gets the answer, and pays nothing."""
    second, first = place.agent(session, is_gated=True), paying(place, session)
    first.hang_up()
    time.sleep(0.2)  # shorter than the gateway's process waits for the last answers
    again = second.begin("pay", PAY)
    time.sleep(0.2)
    place.open_gate()

    assert NOT_AGAIN in said(second.answer(again)["result"])
    assert place.paid == ["ann"]


def test_an_agent_with_another_variable_is_not_stuck_and_pays_nothing_twice(place: Place, session: str) -> None:
    """It has another holder, since its server may be another; the open call of the session is seen all the same."""
    paying(place, session).kill()
    place.environment["CHANGED"] = "yes"
    second = place.agent(session, is_gated=True)
    again = second.begin("pay", PAY)
    time.sleep(0.3)
    place.open_gate()

    assert NOT_AGAIN in said(second.answer(again)["result"])
    assert (len(place.holders), place.paid) == (2, ["ann"])


def test_after_a_kill_of_the_holder_the_old_server_is_gone_before_the_next_call(place: Place, session: str) -> None:
    """The agent's process connects to a new holder and sends its call again, whose outcome nobody knows now."""
    agent = place.agent(session, is_gated=True)
    number = agent.begin("pay", PAY)
    place.until_paid(1)
    [old] = place.shops()
    os.kill(holder_of(place), signal.SIGKILL)
    result = agent.answer(number)["result"]
    is_gone = not runs(old)

    assert result["isError"] and result["structuredContent"]["code"] == "unknown_outcome" and is_gone
    assert said(agent.call("book")).startswith("ann")
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

    assert not agent.call("book").get("isError") and not runs(server)


def test_a_server_that_was_killed_is_started_again(place: Place, session: str) -> None:
    """The next read says so, once: what the server kept in memory is gone."""
    agent = place.agent(session)
    agent.call("pay", PAY)
    agent.call("book")
    for process in place.shops():
        process.kill()
    until(lambda: not place.shops())
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
    for process in place.shops(shop):
        process.kill()
    result = agent.call("pay", {"who": "bob"})

    assert "The tool shop.pay of the server has changed" in said(result)
    assert "the gateway takes it as it is when it starts again" in said(result) and "worker" not in said(result)
    assert place.paid == ["ann"]


def test_several_agents_of_a_session_meet_in_one_holder(place: Place, session: str) -> None:
    """Also those that start at the same moment; without a session each has a holder of its own."""
    agents = [Agent(place, "--session", session, "--", *place.shop) for _ in range(4)]
    place._agents.extend(agents)
    for agent in agents:
        agent.hello()
    for number, agent in enumerate(agents):
        assert not agent.call("pay", {"who": f"w{number}"}).get("isError")

    assert len(place.holders) == len(place.shops()) == 1
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

    assert (mode, len(family)) == (0o600, 3)
    assert {file.suffix for file in (place.state / "gateway").iterdir()} == {".lock", ".log", ".tools"}
    assert not path.exists()


def test_an_agent_of_another_version_gets_a_holder_of_its_own(place: Place, session: str) -> None:
    """The old one finishes its calls first; its agents go on with the new one."""
    agent = place.agent(session, is_gated=True)
    number = agent.begin("pay", PAY)
    place.until_paid(1)
    old = holder_of(place)
    hello = {"version": "0.0.1", "process": "p", "session": session}
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(socket_of(place)))
        other.sendall(bridge.HELLO + json.dumps(hello).encode() + b"\n")
        told = other.makefile("rb").read()
    place.open_gate()
    answers = agent.answer(number)["result"], agent.call("pay", {"who": "bob"})

    assert told == b"E\n" and holder_of(place) != old
    assert [said(one).splitlines()[0] for one in answers] == ["paid ann", "paid bob"]
    assert place.paid == ["ann", "bob"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [(["/does/not/exist"], "/does/not/exist"), ([sys.executable, "-c", "raise SystemExit('no token')"], "no token")],
)
def test_a_wrong_command_is_said_to_the_agent_at_once(place: Place, command: list[str], reason: str) -> None:
    """As an answer, and where it starts; nothing stays, and a corrected command can be tried at once."""
    agent = Agent(place, "--session", "s", "--", *command)
    numbers = [agent.send("initialize", HELLO), agent.send("tools/list")]
    message = agent.answer(numbers[1])["error"]["message"]

    assert "The gateway cannot serve" in message and reason in message
    assert "The gateway cannot serve" in agent.errors() and agent.leave_code == 6
    until(lambda: not place.holders)


APPROVED = '[servers.shop.tools.pay]\neffect = "unkeyed"\napprove = "always"\n'
CANNOT_SERVE: dict[str, tuple[tuple[str, ...], str]] = {
    "no tools": ((), "write `-- COMMAND` of a server, --tools FILE, or --tasks"),
    "an odd session": (("--session", "a b", "--", "true"), "--session cannot be used"),
    "an odd word": (("--doubt", "guess", "--", "true"), "'ask', 'repeat' or 'replay'"),
    "a mistake in a tools file": (("--tools", "{state}/bad.toml"), "The gateway cannot serve.*{state}/bad.toml"),
    "an approval, which needs tasks": (("--tools", "{state}/shop.toml"), "shop.pay has approve=.*add --tasks"),
}


@pytest.mark.parametrize(("options", "reason"), CANNOT_SERVE.values(), ids=CANNOT_SERVE)
def test_what_cannot_be_served_is_said_where_the_agent_starts(
    place: Place, options: tuple[str, ...], reason: str
) -> None:
    """With the remedy."""
    place.tools_file(APPROVED)
    (place.state / "bad.toml").write_text("[servers.shop]\n")
    agent = Agent(place, *(option.format(state=place.state) for option in options))
    with suppress(OSError):  # it may have ended by now
        agent.send("initialize", HELLO)

    assert re.search(reason.format(state=place.state), agent.errors(), re.DOTALL)


def test_a_store_of_before_the_first_release_is_refused_where_the_agent_starts(place: Place) -> None:
    """Nothing is called with it."""
    place.state.mkdir()
    asyncio.run(make_old_store(f"sqlite+aiosqlite:///{place.state}/store.db"))
    agent = place.agent("one")
    agent.send("initialize", {})
    printed = agent.errors()

    assert "was made by a version of Replan before 0.2.0, which was never released" in printed
    assert "use another store, or delete this one" in printed
    assert place.paid == []


def test_an_agent_whose_list_was_too_early_is_told_of_the_tools(place: Place, session: str) -> None:
    """The list itself says that it is not whole, and a notification follows for each list that was too early."""
    agent = place.of_command(*place.slow_shop, session=session, options=("--list-wait", "0.2"))
    early = agent.tools()
    resources = agent.answer(agent.send("resources/list"))["result"]["resources"]
    notes = [name for name, tool in early.items() if "list the tools again" in tool["description"]]
    place.open_gate()
    told = until_told(agent, 2)
    tools = agent.tools()

    assert "pay" not in early and resources == [] and notes == ["replan_outcome"] and told == CHANGED
    assert "pay" in tools and not any("list the tools again" in tool["description"] for tool in tools.values())


def test_a_list_waits_for_a_server_that_is_slow_to_start(place: Place, session: str) -> None:
    """The first list is whole, and so nothing is told afterwards."""
    agent = place.of_command(*place.slow_shop, session=session)
    listing = agent.send("tools/list")
    time.sleep(0.5)
    place.open_gate()
    tools = [tool["name"] for tool in agent.answer(listing)["result"]["tools"]]
    agent.call("book")

    assert "pay" in tools and agent.notifications == []


def kept_list(place: Place, session: str) -> Path:
    """The file with the tools that a shop had, which starts slowly from now on."""
    place.open_gate()
    place.of_command(*place.slow_shop, session=session).tools()
    [kept] = (place.state / "gateway").glob("*.tools")
    place.gate.unlink()
    return kept


@pytest.mark.parametrize("has_changed", [False, True])
def test_a_list_that_cannot_wait_has_the_tools_of_the_last_time(
    place: Place, session: str, *, has_changed: bool
) -> None:
    """Also in another session; and nothing is told afterwards unless they differ."""
    kept = kept_list(place, session)
    mode = kept.stat().st_mode & 0o777
    if has_changed:
        kept.write_text(kept.read_text().replace('"book"', '"look"'))
    agent = place.of_command(*place.slow_shop, session=f"{session}-2", options=("--list-wait", "0.2"))
    early = agent.tools()
    paid = agent.begin("pay", PAY)
    place.open_gate()
    result = agent.answer(paid)["result"]
    agent.tools()

    assert mode == 0o600 and {"pay", "look" if has_changed else "book"} <= early.keys()
    assert "as they were the last time" in early["replan_outcome"]["description"]
    assert said(result).startswith("paid ann")
    assert [one["method"] for one in agent.notifications] == CHANGED[1:] * has_changed


def test_a_last_list_that_cannot_be_read_is_none(place: Place, session: str) -> None:
    """As one of another version of Replan."""
    kept = kept_list(place, session)
    for number, text in enumerate(("", "[{}]", "[1]", "{}", '{"tools": 1}')):
        kept.write_text(text)
        agent = place.of_command(*place.slow_shop, session=f"{session}-{number}", options=("--list-wait", "0.2"))
        early = agent.tools()
        place.open_gate()

        assert "pay" not in early and "replan_outcome" in early, text
        assert until_told(agent, 1) == CHANGED[1:], text
        place.gate.unlink()


def test_a_call_of_a_command_may_take_as_long_as_its_option_says(place: Place, session: str) -> None:
    """No longer than the patience of the client, and no shorter than the option."""
    command = (*place.shop, str(place.gate))
    agent = place.of_command(*command, session=session, options=("--timeout", "0.5"))
    began = time.monotonic()
    result = agent.call("pay", PAY)

    assert result["isError"] and time.monotonic() - began < 25, "it is never answered, and 30 s are the default"
    assert place.paid == ["ann"]


def test_an_agent_that_never_reads_harms_nobody(place: Place, session: str) -> None:
    """Its answers wait for it; those of others do not."""
    other = place.agent(session)
    place.book.write_text("x" * 100_000)
    silent = Agent(place, "--session", session, "--", *place.shop, is_silent=True)
    place._agents.append(silent)
    silent.send("initialize", HELLO)
    for _ in range(60):
        silent.begin("book")
    for _ in range(3):
        assert "xxx" in said(other.call("book"))
        time.sleep(0.3)

    assert not other.call("pay", PAY).get("isError") and silent.runs


def test_python_tools_need_no_worker(place: Place, session: str) -> None:
    """Their effects and their reads; a plain function and one with an event loop."""
    agent = place.of_tools(tools_of(place), "--session", session)
    paid, read, wrong = agent.call("pay", PAY), agent.call("book", {"who": ""}), agent.call("book", {})

    assert paid["structuredContent"] == PAY and said(read) == '["ann"]'
    assert "do not fit" in said(wrong)


def test_everything_can_be_made_ready_before_an_agent_starts(place: Place, session: str) -> None:
    """`--prepare` starts the server, says which tools there are, and ends."""
    agent = Agent(place, "--session", session, "--prepare", "--", *place.shop)

    assert "ready  4 tools: pay, book, draw, refuse" in agent.errors() and agent.leave_code == 0


def test_the_content_of_an_effect_is_handed_on_as_the_server_sent_it(place: Place, session: str) -> None:
    """Blocks of all sorts in their order, texts apart, with annotations: as a client without the gateway gets them."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "draw"}}
    done = subprocess.run(place.shop, input=f"{json.dumps(call)}\n", capture_output=True, text=True, check=True)
    first, again = (place.agent(session).call("draw", key="k")["content"] for _ in range(2))

    assert first == again == json.loads(done.stdout)["result"]["content"]


def test_odd_keys_and_names_are_refused(place: Place, session: str) -> None:
    """A key that is too long, and sessions with odd characters."""
    agent, metas = place.agent(session), ({"key": "k" * 501}, {"session": "../x"}, {"session": "a b"})
    answers = [agent.answer(agent.begin("pay", PAY, **meta)) for meta in metas]

    assert [answer["error"]["code"] for answer in answers] == [-32602] * 3 and place.paid == []
    assert not agent.call("pay", PAY, key="k" * 500).get("isError") and place.paid == ["ann"]


def test_what_a_server_reports_of_an_effect_reaches_the_agent(place: Place, session: str) -> None:
    """While it is under way; an agent that has not asked for it gets nothing."""
    agent = place.of_command(*command("progress"), session=session)
    params: dict[str, Any] = {"name": "do", "arguments": {"text": "x"}, "_meta": {"progressToken": 7}}
    agent.answer(agent.send("tools/call", params))
    told = [one["params"] for one in agent.notifications if one["method"] == "notifications/progress"]
    agent.notifications.clear()
    agent.call("do", {"text": "y"})

    assert [(one["progressToken"], one["message"]) for one in told] == [(7, f"step {step}") for step in (1, 2, 3)]
    assert agent.notifications == []
