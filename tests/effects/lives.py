"""The processes of a drawn sequence: forks of one that has imported everything, each one life of an agent.

All lives of a sequence write what they meant and what they were told into one log. A record is one line, appended by
one write, so that the log has the order of events, and what a killed process had written.
"""

import asyncio
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

from activities import effects as floor
from activities.effects.owner import Life as OwnerLife
from replan.effects import Effects, Joined, StoreUnavailable
from tests.effects.drawing import Life, Scenario, Step, Wish
from tests.effects.oracle import Effect
from tests.effects.world import MOMENT, Moment, World, bank_of, functions

FLOOR = str(Path(floor.__file__).parent)
SETTLE = 0.01
"""Seconds between two looks."""
TIMEOUT = 3.0
CALL: ContextVar[str] = ContextVar("call", default="")

Record = dict[str, Any]


class Log:
    """The log of a sequence."""

    def __init__(self, file: Path) -> None:
        """`file` is made by the first record."""
        self.file = file

    def write(self, event: str, **more: Any) -> None:
        """Append a record."""
        line = json.dumps({"event": event, **more}) + "\n"
        out = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(out, line.encode())
        os.close(out)

    def read(self) -> list[Record]:
        """All records."""
        if not self.file.exists():
            return []
        return [json.loads(line) for line in self.file.read_text().splitlines()]


class Place(NamedTuple):
    """Where a sequence is played."""

    folder: Path
    url: str
    session: str

    @property
    def log(self) -> Log:
        """What the lives say."""
        return Log(self.folder / "log")

    @property
    def world(self) -> World:
        """What has happened."""
        return World(self.folder)


class Agent:
    """One life."""

    def __init__(self, place: Place, scenario: Scenario, number: int) -> None:
        """`number` is that of the life in the scenario."""
        self.place, self.scenario, self.number = place, scenario, number
        self.life = scenario.lives[number]
        self.log = place.log
        self.entered = 0
        self.calls = 0
        effects = Effects(
            place.url, session=place.session, restarts=self.life.restarts, on_joined=self._on_joined, watch=True
        )
        self.effects = effects
        self.functions = functions(effects, place.world, bank_of(place.world), SETTLE, TIMEOUT)

    def run(self) -> None:
        """Make the calls, and end as the life ends."""
        wishes = list(todo(self.scenario, self.number, self.log.read()))
        with _fault(self.life):
            asyncio.run(self.live(wishes))
        if self.life.ends_in_order:
            self.effects.close()
            self.log.write("ended" if self._could_record() else "killed", life=self.number)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    def _could_record(self) -> bool:
        """Whether the store knows what this process did, and that it has ended: else it counts as killed.

        docs/guarantees.md says so of a process that ends before its results could be recorded.
        """
        if self.life.fault != "full disk":
            return True
        try:
            owners = [row.process for row in self.effects.calls(self.place.session)]
        except StoreUnavailable:
            return False
        return all(owner.life is OwnerLife.ENDED for owner in owners if owner and owner.pid == os.getpid())

    async def live(self, wishes: Sequence[tuple[int, Wish]]) -> None:
        """Make the calls of the wishes."""
        at = 0
        while at < len(wishes):
            number, _ = wishes[at]
            size = 2 if self.life.steps[number].with_next and at + 1 < len(wishes) else 1
            done = await asyncio.gather(*(self._wish(number, wish) for number, wish in wishes[at : at + size]))
            if self.life.stops_at_error and not all(done):
                return
            at += size

    async def _wish(self, number: int, wish: Wish) -> bool:
        step = self.life.steps[number]
        is_done = await self.call(wish, step, is_reworded=self.life.rewords and self._was_begun(wish))
        if not is_done and step.asks_again != "no":
            calm = Step(in_thread=step.in_thread)
            return await self.call(wish, calm, is_reworded=step.asks_again == "reworded")
        return is_done

    def _was_begun(self, wish: Wish) -> bool:
        return any(one["event"] == "begin" and one["meant"] == wish.meant.name for one in self.log.read())

    async def call(self, wish: Wish, step: Step, is_reworded: bool = False, by_person: bool = False) -> bool:
        """Make a call, and write down what came of it. Whether it returned."""
        self.calls += 1
        name = f"{self.number}.{self.calls}"
        arguments = dict(wish.meant.arguments)
        if is_reworded:
            arguments["body"] = f"{arguments['body']}, in other words"
        token = CALL.set(name)
        MOMENT.set(self._moment(wish, step))
        self.log.write(
            "begin", call=name, life=self.number, meant=wish.meant.name, reworded=is_reworded, person=by_person,
            thread=step.in_thread and not wish.meant.function.startswith("a_"),
        )  # fmt: skip
        try:
            async with asyncio.timeout(step.gives_up):
                result = await self._made(wish, step, arguments, is_reworded)
        except (Exception, asyncio.CancelledError) as error:
            self._failed(name, error)
            return False
        finally:
            CALL.reset(token)
        self.log.write("end", call=name, life=self.number, result=result)
        return True

    def _failed(self, name: str, error: BaseException) -> None:
        more = {"key": getattr(error, "key", None), "about": getattr(error, "about", None)}
        self.log.write("raised", call=name, life=self.number, error=type(error).__name__, text=str(error), **more)

    async def _made(self, wish: Wish, step: Step, arguments: dict[str, str], is_reworded: bool) -> str:
        function = self.functions[wish.meant.function]
        ids: dict[str, Any] = {}
        if wish.key is not None:
            ids["key"] = wish.key
        if wish.has_ids and self.life.ids != "none":
            ids |= {
                "run": "run" if self.life.ids == "same" else f"run-{self.number}",
                "call": f"{wish.meant.name}{is_reworded}",
            }
        with self.effects.scope(**ids):
            if asyncio.iscoroutinefunction(function):
                return str(await function(**arguments))
            if step.in_thread:
                return str(await asyncio.to_thread(function, **arguments))
            return str(function(**arguments))

    def _moment(self, wish: Wish, step: Step) -> Moment:
        dies = ""
        if self.life.fault == "kill in the world" and self.entered == self.life.nth:
            dies = self.life.place
        self.entered += 1
        return Moment(wish.meant.name, step.before, step.after, step.error, dies)

    def _on_joined(self, joined: Joined) -> None:
        self.log.write("said", call=CALL.get(), life=self.number, key=joined.key)


def todo(scenario: Scenario, number: int, records: Sequence[Record]) -> Iterator[tuple[int, Wish]]:
    """The wishes that a life makes, with their numbers.

    What an agent got in a process that lives or has ended in order is repeated only if its key or its ids say so:
    otherwise the table says that it is another call.
    """
    life = scenario.lives[number]
    meant = {one["call"]: one["meant"] for one in records if one["event"] == "begin"}
    answered = dict[str, set[int]]()
    for one in records:
        if one["event"] == "end":
            answered.setdefault(meant[one["call"]], set()).add(one["life"])
    ended = {one["life"] for one in records if one["event"] == "ended"}
    killed = {one["life"] for one in records if one["event"] == "killed"}
    for index, wish in enumerate(scenario.wishes):
        if index % life.share[1] != life.share[0]:
            continue
        if wish.meant.name in answered:
            by = answered[wish.meant.name]
            were_killed = by <= killed - ended
            begun = {one["life"] for one in records if one["event"] == "begin" and one["meant"] == wish.meant.name}
            ids = {scenario.lives[one].ids for one in begun} | {life.ids}
            is_same = wish.key is not None or (wish.has_ids and ids == {"same"})
            if life.begins == "unfinished" or not (were_killed or is_same):
                continue
        yield index, wish


@contextmanager
def _fault(life: Life) -> Iterator[None]:
    """What befalls the process, from now on."""
    if life.fault == "full disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (life.room, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if life.fault in ("kill", "freeze"):
        at_line(life.line, signal.SIGKILL if life.fault == "kill" else signal.SIGSTOP)
    yield
    sys.settrace(None)
    threading.settrace(None)


def at_line(line: int, number: int) -> Callable[[], int]:
    """Send this process a signal at a line of the floor, counted over all threads; returns the counter."""
    count = 0

    def lines(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == line + 1:
                os.kill(os.getpid(), number)
                if number == signal.SIGSTOP:
                    time.sleep(0)
        return lines

    def called(frame: FrameType, _: str, __: Any) -> Any:
        return lines if frame.f_code.co_filename.startswith(FLOOR) else None

    threading.settrace(called)
    sys.settrace(called)
    return lambda: count


TRIES = 8
"""How often a person calls again what is not done."""


class Person:
    """Somebody who knows what the agent meant and what the world has, and says of each open row what is true."""

    def __init__(self, agent: Agent) -> None:
        """`agent` is the life in which the person calls again."""
        self.agent, self.place, self.effects = agent, agent.place, agent.effects
        self.session = agent.place.session

    def settle(self) -> None:
        """Settle each row whose outcome is open. All processes must be over: nothing may land any more."""
        for row in self._rows():
            if row.state in ("open", "unknown"):
                self._settle(row)
        meant = {one["call"]: one["meant"] for one in self.place.log.read() if one["event"] == "begin"}
        for one in self.place.log.read():
            if one["event"] == "raised" and one["error"] == "DoubtfulCall":
                self._answer(one["key"], meant[one["call"]])

    def _rows(self) -> list[Any]:
        return list(self.effects.calls(self.session))

    def _settle(self, row: Any) -> None:
        """Say whether the call of a row was applied: whether the world has an effect that no row accounts for."""
        known = {str(one.result) for one in self._rows() if one.state == "applied"}
        if row.function.endswith("put"):
            known = set()
        for function, effect in self.place.world.effects():
            if function == row.function and effect.arguments == row.arguments and effect.name not in known:
                self.place.log.write("settled", key=row.key, how="applied", result=effect.name)
                self.effects.settle(row.key, "applied", result=effect.name)
                return
        self.place.log.write("settled", key=row.key, how="not-applied")
        self.effects.settle(row.key, "not-applied")

    def _answer(self, key: str, meant: str) -> None:
        """Say whether a doubtful call was made before."""
        row = next((one for one in self._rows() if one.key == key), None)
        if row is None or row.state != "doubtful":
            return
        was_applied = any(effect.meant == meant for _, effect in self.place.world.effects())
        about = next((one for one in self._rows() if one.key == row.about), None)
        if was_applied and (about is None or about.state != "applied"):
            return  # another row has its effect, so the doubt is about the wrong call
        how: Literal["same", "another"] = "same" if was_applied else "another"
        self.place.log.write("settled", key=key, how=how)
        self.effects.settle(key, how)

    async def finish(self) -> None:
        """Have each meant call done that did not return."""
        for wish in self.agent.scenario.wishes:
            for _ in range(TRIES):
                records = self.place.log.read()
                meant = {one["call"]: one["meant"] for one in records if one["event"] == "begin"}
                if any(one["event"] == "end" and meant[one["call"]] == wish.meant.name for one in records):
                    break
                await self._again(wish, [one for one in records if meant.get(one.get("call", "")) == wish.meant.name])

    async def _again(self, wish: Wish, records: Sequence[Record]) -> None:
        """Look into the row of the last error, and call again if it was not applied."""
        last = next((one["key"] for one in reversed(records) if one["event"] == "raised" and one["key"]), None)
        row = next((one for one in self._rows() if one.key == last), None)
        if row is not None and row.state == "applied":
            name = f"person.{wish.meant.name}"
            self.place.log.write(
                "begin", call=name, life=self.agent.number, meant=wish.meant.name, reworded=False, person=True,
                thread=False,
            )  # fmt: skip
            self.place.log.write("end", call=name, life=self.agent.number, result=str(row.result))
            return
        answered = any(one["event"] == "raised" and one["error"] == "DoubtfulCall" for one in records)
        await self.agent.call(wish, Step(), by_person=answered)
        self.settle()


def recorded(effects: Effects, session: str) -> list[tuple[str, str, str]]:
    """Function, state and result of each row."""
    return [(one.function, one.state, str(one.result)) for one in effects.calls(session)]


def accounted(rows: Sequence[tuple[str, str, str]], world: Sequence[tuple[str, Effect]]) -> list[str]:
    """The effects that no row accounts for, although the row of a call was committed before each."""
    known = {result for _, state, result in rows if state == "applied"}
    return [effect.name for _, effect in world if effect.name not in known]
