"""`replan mcp` between an agent and a server, with real processes that are killed where it hurts."""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import preloaded
from tests.gateway.agents import SHOP, Agent, Place
from tests.mcp.foreign import command
from tests.stores import make_old_store

PAY = {"who": "ann"}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A state folder; all programs are forked."""
    place = Place(tmp_path, python=preloaded.python())
    yield place
    place.close()


@pytest.fixture
def fresh_place(tmp_path: Path) -> Iterator[Place]:
    """Such a folder, where each program is an interpreter of its own, as where a user starts them."""
    place = Place(tmp_path)
    yield place
    place.close()


@pytest.fixture
def session() -> str:
    """A name that no other test has."""
    return f"s-{uuid.uuid4().hex[:8]}"


def said(result: dict[str, object]) -> str:
    return "\n".join(part["text"] for part in result["content"] if part["type"] == "text")  # type: ignore[attr-defined]


def test_an_agent_sees_the_server_as_it_is(fresh_place: Place, session: str) -> None:
    """Its tools and resources, and the content of a result."""
    cold = fresh_place.agent(session)
    assert {"pay", "book"} < cold.tools().keys()
    agent = fresh_place.agent(session)
    about, tools = agent.about, agent.tools()

    assert about["serverInfo"]["name"] == "the shop"
    assert about["instructions"].startswith("Pay.")
    assert tools["pay"]["inputSchema"]["properties"]["who"] == {"type": "string"}
    assert {"replan_outcome", "replan_undo", "replan_effects"} < tools.keys()
    result = agent.call("pay", PAY)
    assert result["content"][0]["text"].startswith("paid ann")
    assert agent.call("book")["content"] == [{"type": "text", "text": "ann\n"}, {"type": "text", "text": "so it is"}]
    assert agent.answer(agent.send("resources/read", {"uri": "shop://rules"}))["result"]["contents"][0]["text"]
    assert len(agent.call("replan_effects")["structuredContent"]["effects"]) == 1
    cold.call("book")
    assert cold.notifications == [], "its list was complete, and it may be about to leave"
    assert agent.leave() == 0


def slow_shop(place: Place) -> list[str]:
    """The command of a shop that starts when the gate is open."""
    return ["sh", "-c", f"until [ -e {place.gate} ]; do sleep 0.1; done; exec {sys.executable} {SHOP} {place.book}"]


def until_told(agent: Agent, count: int) -> list[str]:
    """The notifications of the agent, in the order of their names, as soon as there are so many."""
    until = time.monotonic() + 90
    while len(agent.notifications) < count:
        assert time.monotonic() < until, agent.notifications
        agent.answer(agent.send("ping"))
        time.sleep(0.2)
    return sorted(one["method"] for one in agent.notifications)


def test_an_agent_whose_list_was_too_early_is_told_of_the_tools(place: Place, session: str) -> None:
    """The list itself says that it is not whole, and a notification follows for each list that was too early."""
    agent = place.of_command(*slow_shop(place), session=session, options=("--list-wait", "0.2"))
    early = agent.tools()
    resources = agent.answer(agent.send("resources/list"))["result"]["resources"]
    notes = [name for name, tool in early.items() if "list the tools again" in tool["description"]]
    place.open_gate()
    told = until_told(agent, 2)
    tools = agent.tools()

    assert "pay" not in early and resources == [] and notes == ["replan_outcome"]
    assert told == ["notifications/resources/list_changed", "notifications/tools/list_changed"]
    assert "pay" in tools and not any("list the tools again" in tool["description"] for tool in tools.values())


def test_a_list_waits_for_a_server_that_is_slow_to_start(place: Place, session: str) -> None:
    """The first list is whole, and so nothing is told afterwards."""
    agent = place.of_command(*slow_shop(place), session=session, options=("--list-wait", "60"))
    listing = agent.send("tools/list")
    time.sleep(0.5)
    place.open_gate()
    tools = [tool["name"] for tool in agent.answer(listing, 90)["result"]["tools"]]
    agent.call("book")

    assert "pay" in tools and agent.notifications == []


def test_an_answer_that_was_cut_off_belongs_to_the_next_equal_call_of_the_session(place: Place, session: str) -> None:
    """An agent is killed while it pays, and starts again: one payment; another session pays for itself."""
    first = place.agent(session, is_gated=True)
    first.begin("pay", PAY)
    place.until_paid(1)
    first.kill()
    second, stranger = place.agent(session, is_gated=True), place.agent(f"{session}-2", is_gated=True)
    again, other = second.begin("pay", PAY), stranger.begin("pay", PAY)
    place.open_gate()
    result = second.answer(again)["result"]

    assert "Not done again" in said(result)
    assert "Not done again" not in said(stranger.answer(other)["result"])
    assert place.paid == ["ann", "ann"]


def test_a_cancelled_call_goes_on_and_the_next_equal_one_gets_its_answer(place: Place, session: str) -> None:
    """Cancelled at once, while it is made, and after its answer, which the agent has thrown away then."""
    agent = place.agent(session, is_gated=True)
    agent.tools()

    def cancel(number: int) -> None:
        agent.send("notifications/cancelled", {"requestId": number}, is_request=False)

    cancel(agent.begin("pay", {"who": "at-once"}))
    at_once = agent.begin("pay", {"who": "at-once"})
    place.until_paid(1)
    place.open_gate()
    assert "at-once" in said(agent.answer(at_once)["result"])
    place.gate.unlink()
    made = agent.begin("pay", {"who": "made"})
    place.until_paid(2)
    cancel(made)
    again = agent.begin("pay", {"who": "made"})
    place.open_gate()
    assert "Not done again" in said(agent.answer(again)["result"])
    late = agent.begin("pay", {"who": "late"})
    agent.answer(late)
    cancel(late)
    agent.call("book")

    assert "Not done again" in said(agent.call("pay", {"who": "late"}))
    assert place.paid == ["at-once", "made", "late"]


def test_an_agent_that_has_closed_its_end_is_gone_before_its_process_has_ended(place: Place, session: str) -> None:
    """Its successor, which is quicker than the process of the gateway, gets the answer, and pays nothing."""
    first, second = place.agent(session, is_gated=True), place.agent(session, is_gated=True)
    first.begin("pay", PAY)
    place.until_paid(1)
    first.hang_up()
    time.sleep(0.2)  # shorter than the gateway's process waits for the last answers
    again = second.begin("pay", PAY)
    time.sleep(0.2)
    place.open_gate()
    result = second.answer(again)["result"]

    assert "Not done again" in said(result)
    assert place.paid == ["ann"]


def test_the_content_of_an_effect_is_handed_on_as_the_server_sent_it(place: Place, session: str) -> None:
    """Blocks of all sorts in their order, texts apart, with annotations: as a client without the gateway gets them."""
    command = [sys.executable, str(SHOP), str(place.book)]
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "draw"}}
    done = subprocess.run(command, input=f"{json.dumps(call)}\n", capture_output=True, text=True, check=True)
    direct = json.loads(done.stdout)["result"]["content"]

    assert place.agent(session).call("draw", key="k")["content"] == direct
    assert place.agent(session).call("draw", key="k")["content"] == direct


@pytest.mark.parametrize("meta", [{"key": "k" * 501}, {"session": "../x"}, {"session": "a b"}])
def test_odd_keys_and_names_are_refused(place: Place, session: str, meta: dict[str, str]) -> None:
    agent = place.agent(session)
    answer = agent.answer(agent.begin("pay", PAY, **meta))

    assert answer["error"]["code"] == -32602
    assert place.paid == []


def test_an_agent_that_never_reads_harms_nobody(place: Place, session: str) -> None:
    """Its answers wait for it; those of others do not."""
    other = place.agent(session)
    place.book.write_text("x" * 100_000)
    silent = place.silent(f"{session}-2", [("book", {})] * 40)
    until = time.monotonic() + 5
    while time.monotonic() < until and silent.poll() is None:
        assert "xxx" in said(other.call("book"))
        time.sleep(1)
    assert not other.call("pay", PAY).get("isError")
    assert silent.poll() is None


def test_a_tool_that_changed_is_not_called(place: Place, session: str, tmp_path: Path) -> None:
    """What the agent knows of it is no longer so: it is told, and nothing is done, until the gateway starts anew."""
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP.read_text())
    agent = place.of_command(sys.executable, str(shop), str(place.book), session=session, patience=1)
    agent.call("pay", PAY)
    shop.write_text(SHOP.read_text().replace('"required": ["who"]', '"required": ["who", "amount"]'))
    place.kill_tools(shop)
    result = agent.call("pay", {"who": "bob"})

    assert "The tool shop.pay of the server has changed" in said(result)
    assert place.paid == ["ann"]


def test_a_mistake_in_a_tools_file_is_said_where_the_agent_starts(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("[servers.shop]\n")
    agent = Agent(place, "--tools", str(file))
    agent.send("initialize", {})
    said_at_end = agent.errors()
    place.close()

    assert "The gateway cannot serve" in said_at_end
    assert "shop.toml" in said_at_end


def test_a_store_of_before_the_first_release_is_refused_where_the_agent_starts(place: Place) -> None:
    """Nothing is called with it."""
    place.state.mkdir(exist_ok=True)
    asyncio.run(make_old_store(f"sqlite+aiosqlite:///{place.state}/store.db"))
    agent = place.agent("one")
    agent.send("initialize", {})
    said_at_end = agent.errors()
    place.close()

    assert "was made by a version of Replan before 0.2.0, which was never released" in said_at_end
    assert "use another store, or delete this one" in said_at_end
    assert place.paid == []


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ((), "write `-- COMMAND` of a server, --tools FILE, or --tasks"),
        (("--session", "a b", "--", "true"), "--session cannot be used"),
        (("--doubt", "guess", "--", "true"), "'ask', 'repeat' or 'replay'"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_said(place: Place, options: tuple[str, ...], remedy: str) -> None:
    assert remedy in Agent(place, *options).errors()


def test_what_a_server_reports_of_an_effect_reaches_the_agent(place: Place, session: str) -> None:
    """While it is under way; an agent that has not asked for it gets nothing."""
    agent = place.of_command(*command("progress"), session=session)
    number = agent.send("tools/call", {"name": "do", "arguments": {"text": "x"}, "_meta": {"progressToken": 7}})
    agent.answer(number)
    told = [one["params"] for one in agent.notifications if one["method"] == "notifications/progress"]
    agent.notifications.clear()
    agent.call("do", {"text": "y"})

    assert [(one["progressToken"], one["message"]) for one in told] == [(7, f"step {step}") for step in (1, 2, 3)]
    assert agent.notifications == []
