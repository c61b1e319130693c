"""One run of a row, with the gateway or without, and what it came to."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from mcp import MCPError
from pydantic import BaseModel, computed_field

from evals.gateway.agent import Agent, Ending, Reach, Tally
from evals.gateway.moments import Blow, Effect, Row, drawn
from evals.gateway.pipes import Connection, connected
from evals.gateway.place import ROOT, Place, environment
from evals.gateway.world import SERVERS, World

CLICKS = 10
READY_SECONDS = 120.0


class CannotServe(Exception):
    """The tools cannot be reached although nothing was broken yet."""


class Finding(BaseModel):
    """An effect that is not in the world exactly once, or whose agent got no good answer."""

    token: str
    server: str
    blow: str
    moment: str
    times: int
    ending: str
    words: str = ""
    journal: list[str] = []


class Run(BaseModel):
    """What a run came to."""

    row: str
    has_gateway: bool
    must_hold: bool
    effects: int
    seconds: float
    cut: int
    """Connections that were cut."""
    struck: dict[str, int]
    """Processes of the gateway that were killed."""
    servers_killed: int
    issued_again: int
    noted: int
    """Answers that said that they are those of an earlier call."""
    questions: list[str]
    """What a person was asked: for an effect or about its fault, and what had been broken."""
    endings: dict[str, int]
    findings: list[Finding]

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def twice(self) -> int:
        """Effects that are in the world more than once."""
        return sum(finding.times > 1 for finding in self.findings)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def lost(self) -> int:
        """Effects that are not in the world."""
        return sum(finding.times == 0 for finding in self.findings)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def asked(self) -> int:
        """Questions that a person answered."""
        return len(self.questions)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own pages have it
    @property
    def unanswered(self) -> int:
        """Calls whose agent got no answer, or an error."""
        return sum(self.endings.get(ending, 0) for ending in (Ending.REFUSED, Ending.STUCK))

    @property
    def is_broken(self) -> bool:
        return self.has_gateway and self.must_hold and bool(self.twice or self.lost or self.unanswered)


class Clicks(BaseModel):
    """What equal calls that are all meant cost."""

    how: str
    calls: int
    made: int
    asked: int


async def played(
    row: Row, count: int, seed: int, folder: Path, agents: int, *, has_gateway: bool, advance: Callable[[], None]
) -> Run:
    """Run a row once."""
    effects, names = drawn(row, count, seed), [f"agent-{number}" for number in range(min(agents, count))]
    servers = {effect.token: effect.server for effect in effects}
    world, tally = World(folder / "world"), Tally()
    await asyncio.to_thread(world.prepare, names, list(servers))
    place = Place(world, folder / "state", servers) if has_gateway else None
    try:
        await _greet(row, world, place)
    except BaseException:
        await _end(place)
        raise
    began = time.monotonic()
    shares = [effects[number :: len(names)] for number in range(len(names))]
    try:
        async with asyncio.TaskGroup() as group:
            for name, share in zip(names, shares, strict=True):
                agent = Agent(name, world, _reach(row, name, world, place), tally)
                group.create_task(_perform(agent, share, advance))
    finally:
        await _end(place)
    seconds = time.monotonic() - began
    found = await asyncio.to_thread(world.effects, names, servers)
    killed = sum(effect.happens.blow is Blow.SERVER for effect in effects)
    return Run(
        row=row.name,
        has_gateway=has_gateway,
        must_hold=row.must_hold,
        effects=count,
        seconds=round(seconds, 1),
        cut=tally.cut,
        struck={blow.value: times for blow, times in place.struck.items()} if place else {},
        servers_killed=killed,
        issued_again=tally.issued_again,
        noted=tally.noted,
        questions=_questions(effects, place) if place else [],
        endings=dict(Counter(ending.value for ending in tally.endings.values())),
        findings=_findings(effects, found, tally, world),
    )


async def _greet(row: Row, world: World, place: Place | None) -> None:
    """See that the tools are there, before the time is taken. Raises CannotServe."""
    greeting = Agent("first", world, _reach(row, "first", world, place), Tally())
    try:
        async with asyncio.timeout(READY_SECONDS):
            for server in SERVERS:
                await greeting.list_tools(server)
    except (MCPError, OSError, TimeoutError, BaseExceptionGroup) as error:
        said = world.folder / "errors.log"
        raise CannotServe(f"{type(error).__name__}: {said.read_text()[-1000:] if said.exists() else ''}") from None
    finally:
        await greeting.close()


async def _end(place: Place | None) -> None:
    if place:
        await place.close()


async def _perform(agent: Agent, share: Sequence[Effect], advance: Callable[[], None]) -> None:
    try:
        for effect in share:
            await agent.perform(effect)
            advance()
    finally:
        await agent.close()


def _reach(row: Row, name: str, world: World, place: Place | None) -> Reach:
    async def connect(server: str) -> Connection:
        command = place.command(name, has_session=row.has_session) if place else world.command(server, name)
        return await connected(command, environment(), ROOT, world.folder / "errors.log")

    async def strike(blow: Blow) -> None:
        if place:
            await place.strike(blow, name)

    return Reach(
        connect, bool(place), strike if place else None, place.settle if place else None, row.has_keys and bool(place)
    )


def _questions(effects: Sequence[Effect], place: Place) -> list[str]:
    of = {effect.token: effect for effect in effects}
    return [
        f"{token}, {what}: {of[token].server}, {of[token].happens.blow}, {of[token].happens.moment}"
        for token, what in place.asked
    ]


def _findings(effects: Sequence[Effect], found: Counter[str], tally: Tally, world: World) -> list[Finding]:
    lines = dict[str, list[str]]()
    for line in world.journal():
        lines.setdefault(line["token"], []).append(f"{line['at']:.3f} {line['event']} {line['pid']}")
    return [
        Finding(
            token=effect.token,
            server=effect.server,
            blow=effect.happens.blow,
            moment=effect.happens.moment,
            times=found[effect.token],
            ending=ending,
            words=tally.words.get(effect.token, ""),
            journal=lines.get(effect.token, []),
        )
        for effect in effects
        if (ending := tally.endings[effect.token]) not in (Ending.DONE, Ending.SETTLED) or found[effect.token] != 1
    ]


async def click_all(folder: Path) -> list[Clicks]:
    """Count the questions that equal calls cost, one after the other in one session, which are all meant."""
    world = World(folder / "world")
    await asyncio.to_thread(world.prepare, (), ())
    ways = {"click-1": "in a row", "click-2": "with a read after each", "click-3": "each with a key of its own"}
    place = Place(world, folder / "state", dict.fromkeys(ways, "sqlite"))
    row = Row("clicks")
    try:
        for name in ways:
            agent = Agent("", world, _reach(row, name, world, place), Tally())
            call = world.call("sqlite", "", name)
            for number in range(CLICKS):
                meta = {"key": f"{name}-{number}"} if name == "click-3" else {}
                await agent.call("sqlite", call.tool, dict(call.args), **meta)
                if name == "click-2":
                    await agent.call("sqlite", "list_tables", {})
            await agent.close()
    finally:
        await _end(place)
    made = await asyncio.to_thread(world.effects, (), {})
    return [
        Clicks(how=how, calls=CLICKS, made=made[name], asked=sum(token == name for token, _ in place.asked))
        for name, how in ways.items()
    ]
