"""Finding out by a read of the server whether a call was applied, whose outcome nobody knows."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from sqlalchemy import text

from activities.toolbox.declare.tool import Companion, Tool
from activities.toolbox.http.network import Web
from activities.toolbox.registry import Registry
from extras.mcp.ahead import Ahead
from extras.mcp.loading import McpTools
from extras.mcp.servers import McpServers
from extras.mcp.tests.foreign import lines, loaded, serving, table, tool_of
from tests.activities.bench import Bench, bench
from workflows.faults.fault import Applied, Code, Fault

RUN = "a-run"
RULES = {
    "before": "using = { text = 'args.text' }\napplied_if = 'result.count > before.count'",
    "time": "using = { text = 'args.text', since = 'call.claimed_at' }\napplied_if = 'result.count > 0'",
    "arguments": "applied_if = 'result.last == args.text'",
    "value": "using = { text = 'first' }\napplied_if = 'result.count == 1'",
    "hasty": "using = { text = 'args.text' }\napplied_if = 'result.count > before.count'",
    "mark": "applied_if = 'call.mark in result.last'",
    "undecided": "using = { text = 'args.text' }\napplied_if = 'result.nowhere == 1'",
}
TABLE = "[servers.{0}.tools.do.reconcile]\nkind = '{0}.count'\n{1}\nresult = 'result.fitting'\n"
PLAIN = "[servers.plain.tools.do]\nreconcile = { kind = 'plain.count', using = { text = 'args.text' } }\n"
MARKED = "[servers.mark.tools.do]\nmark = 'text'\n"


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> McpTools:
    """A server with each of the rules."""
    text = "".join(
        f"{table(server=name)}timeout = {2 if name == 'hasty' else 20}\n{TABLE.format(name, rule)}"
        for name, rule in RULES.items()
    )
    return loaded(tmp_path_factory.mktemp("shops"), f"{text}{table(server='plain')}{PLAIN}{MARKED}")


@dataclass
class Shop:
    """A server with one of the rules, whose first call of `do` ends as its mode says."""

    calls: Bench
    do: Tool[..., Any]
    effects: Path

    async def fails(self) -> Fault:
        return (await self.calls.fails(self.do, run=RUN, text="first"))[0]

    def others(self, effects: list[tuple[str, float]]) -> None:
        """Effects of somebody else, each with its text, so many seconds ago."""
        with self.effects.open("a") as file:
            for text, ago in effects:
                at = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()
                file.write(json.dumps({"text": text, "at": at, "tool": "do"}) + "\n")

    @property
    def applied(self) -> list[str]:
        return [json.loads(line)["text"] for line in lines(self.effects)]

    async def reconcile(self) -> JsonValue | Fault:
        """What is found out of the call, as the workflow asks for it."""
        companion = self.do.options.reconcile
        assert isinstance(companion, Companion)
        values = {"args.text": "first", "key": f"{RUN}/a"}
        arguments: Any = {name: values[path] for name, path in companion.paths.items()}
        try:
            return (await self.calls.call(companion.tool, **arguments)).result
        except Exception as error:
            return error.details[0]  # type: ignore[attr-defined,no-any-return]  # an ApplicationError, or the test fails


@asynccontextmanager
async def opened(folder: Path, shops: McpTools, rule: str, mode: str) -> AsyncIterator[Shop]:
    """A shop with the rule of this name, whose server misbehaves so."""
    effects = folder / "effects"
    foreign = serving(shops, mode, "--effects", effects, server=rule)
    async with bench(folder, servers=foreign) as calls:
        yield Shop(calls, tool_of(foreign, f"{rule}.do"), effects)


APPLIED, LOST = "die-before", "die-unapplied"
FOUND: dict[str, tuple[str, str, list[tuple[str, float]], list[tuple[str, float]], int | None]] = {
    # the rule, the mode, effects of others before the call and after it, and how many fit; None if ours is not there
    "applied": ("before", APPLIED, [], [], 1),
    "applied after an equal one": ("before", APPLIED, [("first", 9)], [], 2),
    "lost after an equal one": ("before", LOST, [("first", 9)], [], None),
    "lost beside another": ("before", LOST, [], [("other", 0)], None),
    "applied since": ("time", APPLIED, [("first", 60)], [("other", 0)], 1),
    "lost since": ("time", LOST, [("first", 60)], [("other", 0)], None),
    "by arguments": ("arguments", APPLIED, [], [], 1),
    "by a value": ("value", APPLIED, [("other", 0)], [], 1),
    "lost by a value": ("value", LOST, [("other", 0)], [], None),
}


@pytest.mark.parametrize(("rule", "mode", "before", "after", "expected"), FOUND.values(), ids=FOUND)
async def test_a_condition_says_whether_a_call_was_applied(
    tmp_path: Path,
    shops: McpTools,
    rule: str,
    mode: str,
    before: list[tuple[str, float]],
    after: list[tuple[str, float]],
    expected: int | None,
) -> None:
    """If so, what the file takes for the result of the call; if not, "not found"; and it is asked without a call."""
    async with opened(tmp_path, shops, rule, mode) as shop:
        shop.others(before)
        fault = await shop.fails()
        shop.others(after)
        found, applied = await shop.reconcile(), shop.applied

    assert (fault.code, fault.applied) == (Code.UNREACHABLE, Applied.UNKNOWN)
    assert applied.count("first") == (mode == APPLIED) + [text for text, _ in before].count("first")
    if expected is None:
        assert isinstance(found, Fault) and found.code is Code.NOT_FOUND and "does not show" in found.reason
    else:
        assert found == {"done": True, "number": expected}


@pytest.mark.parametrize("mode", [APPLIED, LOST])
async def test_a_mark_tells_our_effect_from_equal_ones(tmp_path: Path, shops: McpTools, mode: str) -> None:
    """Each attempt of a call has the same one, and no other call has it; nothing needs to be noted."""
    async with opened(tmp_path, shops, "mark", mode) as shop:
        shop.others([("first", 0)])
        await shop.fails()
        found, applied = await shop.reconcile(), shop.applied
        await shop.calls.fails(shop.do, run="another", text="first")

    marks = [text.partition("\n\n")[2] for text in shop.applied if text != "first"]
    assert len({*marks}) == len(marks) == (2 if mode == APPLIED else 0)
    assert all(re.fullmatch("Replan-Call: [0-9a-f]{20}", mark) for mark in marks)
    assert isinstance(found, Fault) is (mode == LOST) and len(applied) == 1 + (mode == APPLIED)


async def test_a_condition_that_is_not_decided_is_for_a_person(tmp_path: Path, shops: McpTools) -> None:
    """Neither "applied" nor "not found": both could repeat or lose an effect."""
    async with opened(tmp_path, shops, "undecided", APPLIED) as shop:
        shop.others([("other", 0)])
        await shop.fails()
        found = await shop.reconcile()

    assert isinstance(found, Fault) and (found.code, found.quadrant.is_transient) == (Code.NEEDS_PERSON, False)
    assert "'result.nowhere == 1'" in found.reason and "is not decided" in found.reason


@pytest.mark.parametrize("rule", ["before", "time"])
async def test_what_is_before_a_call_is_noted_before_it_is_sent(tmp_path: Path, shops: McpTools, rule: str) -> None:
    """If the store takes no note, nothing is sent."""
    async with opened(tmp_path, shops, rule, "ok") as shop:
        async with shop.calls.engine.begin() as connection:
            await connection.execute(text("DROP TABLE replan_ahead"))
        fault = await shop.fails()

        assert shop.applied == [] and fault.applied is Applied.NONE


async def test_a_read_that_fails_ahead_of_a_call_sends_nothing(tmp_path: Path, shops: McpTools) -> None:
    """Without what was before, nobody could tell our effect from another's."""
    (tmp_path / "effects").write_text("no JSON\n")  # of which `count` dies without an answer
    async with opened(tmp_path, shops, "hasty", "ok") as shop:
        fault = await shop.fails()

    assert (fault.code, fault.applied) == (Code.TIMEOUT, Applied.NONE) and "not sent" in fault.reason
    assert lines(tmp_path / "effects") == ["no JSON"]


async def test_a_call_that_was_never_noted_was_not_sent(tmp_path: Path, shops: McpTools) -> None:
    """A worker that died before it is no unknown outcome."""
    async with opened(tmp_path, shops, "before", "ok") as shop:
        shop.others([("first", 0)])
        found = await shop.reconcile()

    assert isinstance(found, Fault) and found.code is Code.NOT_FOUND and "came so far" in found.reason


async def test_each_attempt_notes_anew(tmp_path: Path) -> None:
    """An earlier one is only repeated where it was not applied; what others did meanwhile is before the later one."""
    noted = [Ahead(claimed_at=datetime(2026, 11, day, 8, 0, 0, 5, tzinfo=UTC), before={"n": day}) for day in (1, 2)]
    async with bench(tmp_path) as calls:
        servers = McpServers({}, calls.engine, Web())
        for ahead in noted:
            await servers.note_ahead("a-key", ahead)
        found, other = await servers.ahead("a-key"), await servers.ahead("another")

    assert found == noted[1] and found.noted("a-key")["claimed_at"] == "2026-11-02T08:00:00+00:00" and other is None


async def test_without_a_condition_the_read_itself_decides(tmp_path: Path, shops: McpTools) -> None:
    """It is a companion as of a Python tool: nothing is noted."""
    do = tool_of(shops, "plain.do").options.reconcile

    assert isinstance(do, Companion) and do.tool.__name__ == "plain.count" and do.paths == {"text": "args.text"}


def test_the_read_that_reconciles_is_for_no_plan(shops: McpTools) -> None:
    """It is a kind of the worker, and takes the arguments of the call and its key."""
    kinds = Registry(made for made in shops.tools if made.__name__.startswith("before."))
    reconcile = kinds["before.do"].spec.reconcile

    assert reconcile is not None and reconcile.kind == "before.do.reconcile" and kinds[reconcile.kind].is_hidden
    assert reconcile.args == {"text": "args.text", "replan_call_key": "key"}
