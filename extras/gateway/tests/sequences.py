"""Draw sequences of agents at the gateway, play them with real processes, and judge what the world has.

python -m extras.gateway.tests.sequences 2000 --seed 1     # many
python -m extras.gateway.tests.sequences --only 17         # one, with all that happened
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import text

from activities.effects.calls import State
from activities.effects.database import Database
from activities.effects.desk import CallRecord, Desk
from activities.effects.errors import EffectRefused
from extras.gateway.tests.clients import Client, Piped, Web
from extras.gateway.tests.drawing import Life, Scenario, Step, Wish, draw
from extras.gateway.tests.forks import TILL, Fork, Forks
from extras.gateway.tests.oracle import FOREVER, Attempt, Done, judge
from tests.effects.tally import Played, Tally

PATIENCE = 20.0
SESSION = "s"
ROUNDS = 6
"""How often a person settles what is open at the end, and the agent calls again."""
FILE = """
[servers.shop]
command = {command}
{timeout}
[servers.shop.errors]
"409" = {{ code = "conflict", applied = "none" }}
[servers.shop.tools.pay]
effect = "unkeyed"
[servers.shop.tools.charge]
effect = "keyed"
key = "request_id"
[servers.shop.tools.mail]
effect = "unkeyed"
mark = "note"
settle = 0.01
[servers.shop.tools.mail.reconcile]
kind = "shop.find"
using = {{ search = "call.mark" }}
applied_if = "call.mark in result.text"
"""


class Died(Exception):
    """The agent was killed."""


class World:
    """The folder of a sequence: the journal, the state folder, and the gateways that run in it."""

    def __init__(self, forks: Forks, folder: Path, scenario: Scenario) -> None:
        self.folder, self.scenario = folder, scenario
        self._forks, self.state = forks, folder / "state"
        (folder / "acts").mkdir(parents=True)
        (folder / "journal").touch()
        self._errors = os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._web: Fork | None = None
        self._port = 0
        self._acts = 0

    def words(self) -> list[str]:
        """What names the tools."""
        command = [sys.executable, "-IS", str(TILL), str(self.folder)]
        timeout = self.scenario.timeout
        if not self.scenario.has_file:
            return [*(["--timeout", str(timeout)] if timeout else []), "--", *command]
        file = self.folder / "shop.toml"
        if not file.exists():
            told = f"timeout = {timeout:g}" if timeout else ""
            file.write_text(FILE.format(command=json.dumps(command), timeout=told))
        return ["--tools", str(file)]

    def client(self, life: Life) -> Client:
        """A new connection of an agent."""
        place = ["--state", str(self.state)]
        if life.door == "http":
            self._start_web(place)
            return Web(self._port, f"/mcp/{SESSION}", life.is_new)
        words = ["mcp", *place, "--session", SESSION, "--idle", "5", *self.words()]
        variables = {"WHERE": str(life.environment)}
        return Piped(lambda streams: self._forks.begin(words, [*streams, self._errors], **variables), life.is_new)

    def _start_web(self, place: list[str]) -> None:
        if self._web is not None:
            return
        read, written = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        words = ["mcp", "--http", "127.0.0.1:0", *place, *self.words()]
        self._web = self._forks.begin(words, [null, written, self._errors])
        os.close(null)
        os.close(written)
        with os.fdopen(read) as said:
            self._port = int(said.readline().split()[1].split(":")[2].split("/")[0])

    def end_holders(self, number: int) -> None:
        """Send the holders a signal, also the one over HTTP, and wait until they are gone."""
        if self._web is not None:
            os.kill(self._web.pid, number)
            self._web.wait()
            self._web = None
        for lock in (self.state / "gateway").glob("*.lock"):
            with suppress(ValueError, ProcessLookupError, FileNotFoundError):
                pid = int(lock.read_text())
                if not _is_holder(pid):
                    continue
                os.kill(pid, number)
                until = time.monotonic() + PATIENCE
                while _is_holder(pid) and time.monotonic() < until:
                    time.sleep(0.003)

    def kill_server(self) -> None:
        """Kill the newest process of the server."""
        with suppress(ProcessLookupError, FileNotFoundError, IndexError):
            pid = (self.folder / "pids").read_text().split()[-1]
            if b"till.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)

    def act(self, step: Step) -> None:
        """Say what befalls the next call."""
        told = {"before": step.before, "after": step.after, "do": step.do}
        self._acts += 1
        (self.folder / "acts" / f"{self._acts:04} {json.dumps({k: v for k, v in told.items() if v})}").touch()

    def forget_acts(self) -> None:
        for act in (self.folder / "acts").iterdir():
            act.unlink(missing_ok=True)

    def journal(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "journal").read_text().splitlines()]

    def done(self) -> list[Done]:
        """The effects that the world has."""
        return [
            Done(one["id"], one["tool"], a["who"], float(a["amount"]), note_of(a), one["at"], a.get("request_id", ""))
            for one in self.journal()
            for a in [one["args"]]
        ]

    def database(self) -> Database:
        return Database(str(self.state / "store.db"))

    def close(self) -> None:
        """End all that runs."""
        self.end_holders(signal.SIGKILL)
        os.close(self._errors)


def _is_holder(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def note_of(args: dict[str, Any]) -> str:
    """The note of a call without the mark that Replan adds."""
    return str(args["note"]).split("\n")[0].strip()


@dataclass
class Agent:
    """All lives of an agent: what it has made, and what it remembers over kills."""

    world: World
    log: Callable[..., None]
    attempts: list[Attempt] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    """By wish, the result that it has kept."""
    connections: int = 0
    clients: list[Client] = field(default_factory=list)
    """Those of the life."""
    odd: list[tuple[str, str, str]] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def live(self, life: Life) -> None:
        """Live a life until its end, or until it is killed; all of its connections end with it."""
        self.clients.clear()
        self.client = self._connect(life)
        self.life = life
        wishes = self.world.scenario.wishes
        todo = [n for n, one in enumerate(wishes) if life.begins == "beginning" or one.meant.name not in self.kept]
        try:
            while todo:
                number = todo.pop(0)
                beside = None
                if todo and life.steps[number].with_next:
                    other = todo.pop(0)
                    beside = threading.Thread(target=self._make_beside, args=(wishes[other], life.steps[other]))
                    beside.start()
                try:
                    self._make(wishes[number], life.steps[number])
                finally:
                    if beside is not None:
                        beside.join()
        except Died:
            self._end("killed")
            return
        self.log("ends", how=life.end)
        self._end(life.end)

    def _end(self, how: str) -> None:
        for client in self.clients:
            client.leave() if how == "leaves" else client.kill()

    def _connect(self, life: Life) -> Client:
        self.connections += 1
        self.world.forget_acts()
        self.clients.append(self.world.client(life))
        return self.clients[-1]

    def _make_beside(self, wish: Wish, step: Step) -> None:
        with suppress(Died):
            self._make(wish, step, is_beside=True)

    def _make(self, wish: Wish, step: Step, *, is_beside: bool = False) -> None:
        """Make a wish come true, as far as the step lets it."""
        was_tried = any(one.meant == wish.meant.name for one in self.attempts)
        note = other_words(wish) if step.reworded and was_tried else wish.meant.arguments["note"]
        attempt = self._try(wish, step, note, is_beside=is_beside)
        if attempt.result is not None:
            self._keep(wish, attempt)
        elif attempt.code == "conflict" or step.asks_again or attempt.code == "gone":
            if self.client.is_lost and not is_beside:
                self.client.kill()
                self.client = self._connect(self.life)
            note = other_words(wish) if step.reworded else note
            again = self._try(wish, Step(without_key=step.without_key), note)
            if again.result is not None:
                self._keep(wish, again)

    def _keep(self, wish: Wish, attempt: Attempt) -> None:
        """Keep a result; of an earlier call that was meant beside this one, ask once more, as the answer says."""
        for _ in range(3):
            if attempt.result is None:
                return
            with self._turn:
                owner = next((name for name, result in self.kept.items() if result == attempt.result), "")
                is_mine = owner in ("", wish.meant.name)
                is_earlier = attempt.was_said and not attempt.was_shared and not attempt.is_repetition
                if not attempt.was_said or (is_mine and not is_earlier):  # in silence: that is for the judge
                    self.kept[wish.meant.name] = attempt.result
                    return
            self.client.wait(self.client.begin({"name": "replan_effects", "arguments": {}}), PATIENCE)
            attempt = self._try(wish, Step(), wish.meant.arguments["note"])

    def _try(self, wish: Wish, step: Step, note: str, *, is_beside: bool = False) -> Attempt:
        """Send a call, and see to what the step says."""
        client, before = self.client, len(self.world.journal())
        if step.before or step.after or step.do:
            self.world.act(step)
        attempt, number = self._send(wish, step, note, client)
        if step.gives_up is not None:
            return self._give_up(wish, step, attempt, client, number)
        if step.kills and not is_beside:
            if step.moment == "effect":
                self._until_effect(before, client, number)
            if step.moment == "answered":
                client.wait(number, 3)
            else:
                time.sleep(step.delay)
            self._kill(step, client)
        self._hear(attempt, client, number)
        if step.kills in ("agent", "all") and not is_beside:
            raise Died
        return attempt

    def _send(self, wish: Wish, step: Step, note: str, client: Client) -> tuple[Attempt, int]:
        name = wish.meant.name
        was_tried = any(one.meant == name for one in self.attempts)
        is_reworded = note != wish.meant.arguments["note"]
        key = None if is_reworded or (step.without_key and was_tried) else wish.key
        amount = wish.amount if not was_tried else float(wish.amount)
        attempt = Attempt(
            name, wish.meant.function, wish.meant.arguments["who"], float(wish.amount), note, key,
            id(client), time.time(), was_tried,
        )  # fmt: skip
        self.attempts.append(attempt)
        attempt.arrival = lambda: client.arrived.get(number, FOREVER)
        args = {"who": attempt.who, "amount": amount, "note": note}
        meta = {"_meta": {"replan/key": key}} if key else {}
        number = client.begin({"name": attempt.tool, "arguments": args, **meta})
        self.log("sends", wish=name, note=note, key=key, client=id(client) % 9973, number=number)
        return attempt, number

    def _hear(self, attempt: Attempt, client: Client, number: int) -> None:
        """Wait for the answer, and note it."""
        message = client.wait(number, PATIENCE)
        if message is None:
            if not client.is_lost:
                self.odd.append(("hangs", attempt.meant, f"no answer within {PATIENCE:g} s"))
            self.log("lost", wish=attempt.meant, is_lost=client.is_lost)
            return
        attempt.end = time.time()
        if "error" in message:
            self.odd.append(("error", attempt.meant, json.dumps(message["error"])[:300]))
            return
        read(attempt, message["result"])
        self.log("hears", wish=attempt.meant, result=attempt.result, said=attempt.was_said, code=attempt.code)

    def _give_up(self, wish: Wish, step: Step, attempt: Attempt, client: Client, number: int) -> Attempt:
        """Give a call up, and perhaps call again."""
        if (message := client.wait(number, step.gives_up or 0.0)) is not None and "result" in message:
            attempt.end = time.time()
            read(attempt, message["result"])
            return attempt
        self.log("gives up", wish=wish.meant.name, how=step.how, again=step.again)
        attempt.is_silent = step.how in ("silent", "cancel late")
        if step.again == "after":
            time.sleep(max(0.0, attempt.begin + step.before + step.after + 0.06 - time.time()))
        says_so = {"cancel": client.cancel, "hang up": client.hang_up}.get(step.how)
        if says_so is not None and (not says_so(number) or step.on_other):
            # It has the answer, and its connection says nothing; or what it says may come after its next call.
            attempt.is_silent = True
        if step.again == "no":
            return attempt
        other = self.client = self._connect(self.life) if step.on_other else client
        note = other_words(wish) if step.reworded else attempt.note
        again, second = self._send(wish, Step(without_key=step.without_key), note, other)
        if step.how == "cancel late":
            client.cancel(number)
        self._hear(again, other, second)
        return again

    def _until_effect(self, before: int, client: Client, number: int) -> None:
        until = time.monotonic() + 3
        while len(self.world.journal()) <= before and time.monotonic() < until:
            if client.wait(number, 0.002) is not None:
                return

    def _kill(self, step: Step, client: Client) -> None:
        self.log("kills", whom=step.kills, moment=step.moment)
        match step.kills:
            case "agent" | "bridge":
                client.kill()
            case "holder":
                self.world.end_holders(signal.SIGKILL)
            case "server":
                self.world.kill_server()
            case "all":
                self.world.end_holders(signal.SIGKILL)
                client.kill()


def other_words(wish: Wish) -> str:
    """The note of a wish in other words."""
    return f"{wish.meant.arguments['note']}, please"


def read(attempt: Attempt, result: dict[str, Any]) -> None:
    """Note an answer."""
    words = "\n".join(block.get("text", "") for block in result["content"])
    if not result.get("isError"):
        attempt.result = next(reversed(re.findall(r"#(\w{6})", words)), "?")
        attempt.was_shared = "An equal call came while" in words
        attempt.was_said = attempt.was_shared or "Not done again" in words
        return
    data = result["structuredContent"]
    attempt.code, attempt.applied, attempt.row = data["code"], data.get("applied", ""), data.get("task", "")


class Person:
    """Settles by the truth what nobody knows, and lets the agent finish."""

    def __init__(self, world: World, agent: Agent) -> None:
        self._world, self._agent = world, agent

    def settle(self) -> None:
        """Settle all that is open."""
        if not (self._world.state / "store.db").exists():
            return
        with closing(self._world.database()) as database:
            desk = Desk(database)
            self._until_nothing_runs(desk)
            for _ in range(3):
                if not self._settle_once(desk):
                    return

    def _until_nothing_runs(self, desk: Desk) -> None:
        until = time.monotonic() + PATIENCE
        while any(r.state is State.OPEN and not r.is_unsettled for r in desk.calls(SESSION, states=[State.OPEN])):
            if time.monotonic() > until:
                self._agent.odd.append(("runs", "", "a call has not ended"))
                return
            time.sleep(0.02)

    def _settle_once(self, desk: Desk) -> bool:
        records = desk.calls(SESSION)
        names = self._names(records)
        is_changed = False
        for record in records:
            if not record.is_unsettled:
                continue
            is_changed = True
            with suppress(EffectRefused):
                if record.state is State.DOUBTFUL:
                    answer = self._is_same(record, names)
                    self._agent.log("settles", row=record.key, answer=answer)
                    desk.settle(record.key, answer)  # type: ignore[arg-type]
                elif name := names.get(record.key):
                    self._agent.log("settles", row=record.key, answer=name)
                    desk.settle(record.key, "applied", result={"text": f"done #{name}"})
                else:
                    self._agent.log("settles", row=record.key, answer="not-applied")
                    desk.settle(record.key, "not-applied")
        return is_changed

    def _names(self, records: Sequence[CallRecord]) -> dict[str, str]:
        """By row, the effect that it has."""
        names = dict[str, str]()
        for record in records:
            if record.state is State.APPLIED and record.has_result:
                found = re.findall(r"#(\w{6})", json.dumps(record.result))
                if found:
                    names[record.key] = found[-1]
        unknown = [r for r in records if r.key not in names and r.about is None and r.state is not State.VOID]
        for done in sorted(self._world.done(), key=lambda one: one.at):
            if done.name in names.values():
                continue
            open_rows = [r for r in unknown if r.key not in names]
            able = [r for r in open_rows if (r.key == done.row if done.row else _is_of(r, done))]
            if able:
                names[max(able, key=lambda r: r.at).key] = done.name
        return names

    def _is_same(self, record: CallRecord, names: dict[str, str]) -> str:
        """Whether a doubtful call is the earlier one again; wishes that are equal may change their effects."""
        name = names.get(record.about or "")
        attempts = self._agent.attempts
        asked = [one for one in attempts if one.row == record.key] or [one for one in attempts if _asks(one, record)]
        if name is None or not asked:
            return "another"
        mine = asked[-1]
        if self._agent.kept.get(mine.meant) == name:
            return "same"
        if name in self._agent.kept.values():
            return "another"
        done = next(one for one in self._world.done() if one.name == name)
        is_equal = (mine.tool, mine.who, mine.amount, mine.note) == (done.tool, done.who, done.amount, done.note)
        owners = {one.meant for one in self._agent.attempts if one.may_have_made(done)}
        return "same" if mine.meant in owners or (is_equal and mine.is_repetition) else "another"

    def finish(self) -> None:
        """Let the agent call again until each of its wishes has come true."""
        agent, wishes = self._agent, self._world.scenario.wishes
        life = Life(steps=tuple(Step() for _ in wishes))
        tried = {one.meant for one in agent.attempts}
        for _ in range(ROUNDS):
            self.settle()
            left = [one for one in wishes if one.meant.name in tried and one.meant.name not in agent.kept]
            if not left:
                return
            agent.life, agent.client = life, agent._connect(life)
            for wish in left:
                agent._make(wish, Step())
            agent.client.leave()
        agent.odd += [("stuck", one.meant.name, "not done at the end") for one in left]


def _asks(attempt: Attempt, record: CallRecord) -> bool:
    """Whether an attempt that has no answer may be that of a record."""
    args: Any = record.arguments or {}
    asked = (record.function.rpartition(".")[2], args.get("who"), float(args["amount"]), note_of(args))
    is_it = asked == (attempt.tool, attempt.who, attempt.amount, attempt.note)
    return is_it and not attempt.row and attempt.result is None


def _is_of(record: CallRecord, done: Done) -> bool:
    args = record.arguments or {}
    is_it = record.function.rpartition(".")[2] == done.tool and args.get("who") == done.who
    is_it = is_it and float(args["amount"]) == done.amount and note_of(args) == done.note  # type: ignore[arg-type]
    return is_it and record.at.timestamp() <= done.at + 0.05


def let_days_pass(world: World, days: int) -> None:
    """Let all that was recorded be so many days older."""
    moved = text("update replan_ledger set at = strftime('%Y-%m-%d %H:%M:%f', at, :days)")
    with closing(world.database()) as database:
        database.write(lambda tx: tx.execute(moved, {"days": f"-{days} days"}).rowcount)


def play(forks: Forks, seed: int, say: Callable[[str], None] = lambda line: None) -> Played:
    """Play the sequence of a seed."""
    scenario, began, began_at = draw(seed), time.monotonic(), time.time()
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108  # a folder of its own is made there
    folder = Path(tempfile.mkdtemp(prefix="replan-gateway-", dir=where))
    counts = Counter[str]()

    def log(event: str, **more: Any) -> None:
        counts[event if event != "kills" else f"kills {more['whom']}"] += 1
        say(f"    {time.monotonic() - began:6.3f} {event} {more}")

    world = World(forks, folder, scenario)
    agent = Agent(world, log)
    person = Person(world, agent)
    try:
        for number, life in enumerate(scenario.lives):
            if life.person and number:
                person.settle()
            log("begins", life=number)
            agent.live(life)
            if life.holder != "stays" and number < len(scenario.lives) - 1:
                world.end_holders(signal.SIGKILL if life.holder == "killed" else signal.SIGTERM)
            if life.days and (world.state / "store.db").exists():
                let_days_pass(world, life.days)
        if not scenario.is_calm:
            person.finish()
        meant = [wish.meant for wish in scenario.wishes]
        verdict = judge(meant, world.done(), agent.attempts, is_calm=scenario.is_calm)
    finally:
        world.close()
        for one in world.journal():
            say(f"    journal {one['at'] - began_at:6.3f} {one['id']} {one['tool']} {one['args']}")
        for name in ("errors", "state/gateway/*.log"):
            for file in folder.glob(name):
                say(file.read_text()[-3000:])
        shutil.rmtree(folder, ignore_errors=True)
    counts.update(one.code for one in agent.attempts if one.code)
    counts["said"] = sum(one.was_said for one in agent.attempts)
    seconds = time.monotonic() - began
    return Played(seed, verdict.violations + agent.odd, verdict.excused, dict(counts), seconds)


def play_all(seeds: Sequence[int], jobs: int, tally: Tally, logs: Path | None = None) -> None:
    """Play seeds, `jobs` at a time; what happened in one with a violation is written into `logs`."""
    waiting = list(reversed(seeds))

    def work(forks: Forks) -> None:
        while waiting:
            with suppress(IndexError):
                seed = waiting.pop()
                lines = list[str]()
                try:
                    played = play(forks, seed, lines.append)
                    tally.add(played)
                    if played.violations and logs is not None:
                        logs.mkdir(exist_ok=True)
                        told = [draw(seed).words(), *lines, str(played)]
                        (logs / str(seed)).write_text("\n".join(told))
                except Exception as error:  # the player failed: that must be seen
                    tally.add(Played(seed, [("player", "", repr(error))], [], {}))

    with Forks() as forks:
        threads = [threading.Thread(target=work, args=(forks,)) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _tell(forks: Forks, seed: int) -> bool:
    """Play a seed, and print all that happens; returns whether a promise is broken."""
    print(draw(seed).words())
    played = play(forks, seed, print)
    print(played)
    return bool(played.violations)


def main() -> int:
    """Play, and return the exit code: 1 with a violation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--only", type=int, nargs="+")
    parser.add_argument("--logs", type=Path, help="The folder for what happened in sequences with violations.")
    parser.add_argument("--jobs", type=int, default=4)
    options = parser.parse_args()
    if options.only is not None:
        with Forks() as forks:
            return int(any(_tell(forks, seed) for seed in options.only))
    print(f"seeds from {options.seed}")
    tally = Tally(options.count)
    play_all(range(options.seed, options.seed + options.count), options.jobs, tally, options.logs)
    print("\n".join(tally.lines()))
    return int(bool(tally.broken))


if __name__ == "__main__":
    sys.exit(main())
