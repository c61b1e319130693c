"""Plays drawn sequences and judges them: `python -m tests.effects.sequences 10000 --seed 1`.

--only SEED     play this seed alone, and tell it in words
--times N       ... as often as that: what two processes do beside each other differs from time to time
--jobs N        as many processes that play
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from evals.fakes.postgresql import FAST, PASSWORD, USER, find_postgresql, running
from replan.effects import Effects
from runtime.dev_server import free_port
from tests.effects.drawing import FUNCTIONS, Life, Scenario, Step, Wish, draw
from tests.effects.lives import Agent, Person, Place, Record, recorded
from tests.effects.oracle import Call, Excuse, Meant, Violation, judge
from tests.effects.tally import Played, Tally
from tests.effects.world import World
from tests.processes import ROOT

PATIENCE = 30.0
"""Seconds after which a life that has not ended hangs."""
POSTGRESQL_SHARE = 25
"""One sequence in so many has its store in PostgreSQL."""


class Stage:
    """Plays sequences in a folder, by forks of this process."""

    def __init__(self, folder: Path, postgresql: str | None = None) -> None:
        """`postgresql` is the URL of a database for some of the sequences."""
        self.folder, self.postgresql = folder, postgresql
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        self.template = folder / "template"
        self.template.mkdir()
        self._prepare(self.template)
        self._warm_up()
        gc.collect()
        gc.freeze()

    def _prepare(self, folder: Path) -> None:
        """Make the store and the world from which each sequence begins."""
        World(folder).make()
        for url in (f"sqlite:///{folder}/store.db", self.postgresql):
            if url:
                with Effects(url, session="none") as effects:
                    effects.open()

    def _warm_up(self) -> None:
        """Live one life here, so that forks need not load what it loads."""
        step = Step(in_thread=True)
        wishes = [
            Wish(Meant(name, name, {"to": "a", "body": "b"})) for name in (*FUNCTIONS, *map("a_{}".format, FUNCTIONS))
        ]
        scenario = Scenario(0, tuple(wishes), (Life(steps=(step,) * len(wishes)), Life()))
        for url in ["", *([self.postgresql] if self.postgresql else [])]:
            place = self._place(scenario)
            agent = Agent(place._replace(url=url or place.url), scenario, 0)
            asyncio.run(agent.live([*enumerate(wishes)]))
            agent.effects.close()
            shutil.rmtree(place.folder)

    def play(self, seed: int, listen: Callable[[list[Record]], None] = lambda _: None) -> Played:
        """Play a seed, and judge it; the log goes to `listen`, too."""
        on_postgresql = bool(self.postgresql) and seed % POSTGRESQL_SHARE == 0
        scenario = draw(seed, on_postgresql)
        scenario = replace(scenario, lives=(*scenario.lives, Life(restarts=scenario.lives[-1].restarts)))
        place = self._place(scenario)
        try:
            self._lives(scenario, place)
            if not _is_over(place, scenario):
                forked(lambda: _finish(place, scenario))
            listen(place.log.read())
            return _judged(scenario, place)
        finally:
            shutil.rmtree(place.folder)

    def _place(self, scenario: Scenario) -> Place:
        """A folder with copies of the template."""
        folder = Path(tempfile.mkdtemp(prefix=f"{scenario.seed}-", dir=self.folder))
        World(self.template)
        for file in (World(folder).file, World(folder).bank):
            shutil.copyfile(self.template / file.name, file)
        session = f"{scenario.seed}-{folder.name}"
        if scenario.database == "postgresql":
            return Place(folder, str(self.postgresql), session)
        shutil.copyfile(self.template / "store.db", folder / "store.db")
        return Place(folder, f"sqlite:///{folder}/store.db", session)

    def _lives(self, scenario: Scenario, place: Place) -> None:
        """Let the lives follow each other, or run beside each other."""
        at, lives = 0, scenario.lives[:-1]
        while at < len(lives):
            size = 2 if lives[at].beside and at + 1 < len(lives) else 1
            if at and lives[at].person:
                forked(lambda: Person(Agent(place, scenario, len(lives))).settle())
            if at and lives[at].days and scenario.database == "sqlite":
                _set_clock(place.folder / "store.db", lives[at].days)
            Together(scenario, place, range(at, at + size)).run()
            at += size


class Together:
    """Lives that run beside each other; a frozen one thaws, or is killed."""

    def __init__(self, scenario: Scenario, place: Place, numbers: Sequence[int]) -> None:
        """`numbers` are those of the lives in the scenario, in the order in which they begin."""
        self.scenario, self.place = scenario, place
        self.waiting = list(numbers)
        self.pids = dict[int, int]()
        """The number of the life by its process id."""
        self.thaw = dict[int, float]()
        """When a frozen process thaws, or is killed."""

    def run(self) -> None:
        """Return when all are over."""
        until = time.monotonic() + PATIENCE
        self._begin()
        while self.waiting or self.pids:
            if self.waiting and not self._waits_for_freeze():
                self._begin()
            soonest = min([until, *self.thaw.values()])
            if self.pids:
                signal.sigtimedwait({signal.SIGCHLD}, max(0.0, soonest - time.monotonic()))
            self._notice()
            if time.monotonic() > until:
                for pid, number in self.pids.items():
                    os.kill(pid, signal.SIGKILL)
                    self.place.log.write("hangs", life=number)
                until += PATIENCE

    def _waits_for_freeze(self) -> bool:
        """Whether the next life begins only when the first one is frozen, or over."""
        numbers = list(self.pids.values())
        return bool(numbers) and self.scenario.lives[numbers[0]].fault == "freeze" and not self.thaw

    def _begin(self) -> None:
        number = self.waiting.pop(0)
        self.pids[_fork(lambda: Agent(self.place, self.scenario, number).run())] = number

    def _notice(self) -> None:
        """Take note of what has ended or stopped, and thaw what is due."""
        for pid, number in list(self.pids.items()):
            found, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
            if not found:
                continue
            if os.WIFSTOPPED(status):
                self.thaw[pid] = time.monotonic() + self.scenario.lives[number].frozen
                continue
            del self.pids[pid]
            self.thaw.pop(pid, None)
            if os.WIFSIGNALED(status):
                self.place.log.write("killed", life=number)
            elif os.WEXITSTATUS(status):
                self.place.log.write("crashed", life=number)
        for pid in [pid for pid, at in self.thaw.items() if time.monotonic() >= at]:
            del self.thaw[pid]
            os.kill(pid, signal.SIGCONT if self.scenario.lives[self.pids[pid]].thaws else signal.SIGKILL)


def _fork(work: Callable[[], object]) -> int:
    """The process id of a child that does `work`."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        work()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def forked(work: Callable[[], object]) -> None:
    """Do `work` in a child, and wait for it. Raises RuntimeError if it fails."""
    pid = _fork(work)
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"A child ended with {status}.")


def _is_over(place: Place, scenario: Scenario) -> bool:
    """Whether each call returned and nothing is left for a person; then the rows are in the log."""
    if scenario.database == "postgresql":
        return False
    records = place.log.read()
    meant = {one["call"]: one["meant"] for one in records if one["event"] == "begin"}
    ended = {meant[one["call"]] for one in records if one["event"] == "end"}
    with contextlib.closing(sqlite3.connect(place.folder / "store.db")) as db:
        found = db.execute("select kind, state, result from replan_ledger order by seq").fetchall()
    rows = [(function, state, str(json.loads(result)) if result else "None") for function, state, result in found]
    is_open = any(state in ("open", "unknown", "doubtful") for _, state, _ in rows)
    if is_open or any(wish.meant.name not in ended for wish in scenario.wishes):
        return False
    place.log.write("rows", rows=rows)
    return True


def _finish(place: Place, scenario: Scenario) -> None:
    """The last life: a person settles what is open, and has done what was not done."""
    agent = Agent(place, scenario, len(scenario.lives) - 1)
    person = Person(agent)
    person.settle()
    asyncio.run(person.finish())
    person.settle()
    place.log.write("rows", rows=recorded(agent.effects, place.session))
    agent.effects.close()


def _set_clock(file: Path, days: int) -> None:
    """Let everything that was recorded be so many days older or younger."""
    with contextlib.closing(sqlite3.connect(file, timeout=10)) as db, db:
        db.execute("update replan_ledger set at = strftime('%Y-%m-%d %H:%M:%f', at, ?)", (f"{days} days",))


def _judged(scenario: Scenario, place: Place) -> Played:
    """Judge what the log and the world say."""
    records = place.log.read()
    effects = [effect for _, effect in place.world.effects()]
    meant = [wish.meant for wish in scenario.wishes]
    begun = {one["meant"] for one in records if one["event"] == "begin"}
    meant = [one for one in meant if one.name in begun]
    rows = next(one["rows"] for one in reversed(records) if one["event"] == "rows")
    results = [result for _, state, result in rows if state == "applied"]
    calls = list(calls_of(scenario, records))
    found = judge(meant, effects, calls, results)
    strict = judge(meant, effects, [replace(call, excuses=frozenset()) for call in calls], results)
    odd = [(one["event"], str(one["life"]), "") for one in records if one["event"] in ("crashed", "hangs")]
    odd += [
        ("raised", one["call"], f"{one['error']}: {one['text']}")
        for one in records
        if one["event"] == "raised" and one["error"] not in EXPECTED
    ]
    odd += [("open", function, state) for function, state, _ in rows if state in ("open", "unknown")]
    if not scenario.has_faults:
        odd += [("calm", one["event"], "") for one in records if one["event"] in ("said", "raised")]
    excused = [_told(one) for one in strict if one not in found]
    return Played(scenario.seed, [*map(_told, found), *odd], excused, _counts(records, effects))


EXPECTED = (
    "OutcomeUnknown", "DoubtfulCall", "KeyConflict", "StoreUnavailable", "TimeoutError", "CancelledError", "Refused",
    "Conflict", "ConnectionRefusedError",
)  # fmt: skip
"""What an agent may get instead of a result."""


def _told(found: Violation) -> tuple[str, str, str]:
    return found.kind.value, found.meant, found.what


def _counts(records: Sequence[Record], effects: Sequence[object]) -> dict[str, int]:
    """What happened, for the table at the end."""
    counts = Counter(one["event"] for one in records)
    counts |= Counter(one["error"] for one in records if one["event"] == "raised")
    return {**counts, "effects": len(effects)}


def calls_of(scenario: Scenario, records: Sequence[Record]) -> Iterator[Call]:
    """The calls of the log as the oracle reads them."""
    results = {one["call"]: one["result"] for one in records if one["event"] == "end"}
    meant = {one["call"]: one["meant"] for one in records if one["event"] == "begin"}
    said = {meant.get(one["call"]) for one in records if one["event"] == "said"}
    begins = [(at, one) for at, one in enumerate(records) if one["event"] == "begin"]
    for number, (at, begin) in enumerate(begins):
        before = [one for _, one in begins[:number]]
        yield Call(
            begin["meant"],
            results.get(begin["call"]),
            is_repetition=any(one["meant"] == begin["meant"] for one in before),
            was_said=begin["meant"] in said,
            by_person=begin["person"],
            is_needless=_is_needless(scenario, records, at),
            excuses=frozenset(_excuses(scenario, records, at)),
        )


def _is_needless(scenario: Scenario, records: Sequence[Record], at: int) -> bool:
    """Whether each equal call had returned before this one, in this process, in one that lives or ended in order.

    Equal calls that are made at the same time do not count: they are one.
    """
    mine = records[at]
    wishes = {wish.meant.name: wish for wish in scenario.wishes}
    over = next((n for n, one in enumerate(records) if one["event"] == "end" and one["call"] == mine["call"]), at)
    equal = [
        one
        for one in records[:over]
        if one["event"] == "begin"
        and one is not mine
        and wishes[one["meant"]].meant.equals(wishes[mine["meant"]].meant)
    ]
    ended = {one["call"] for one in records[:at] if one["event"] == "end"}
    killed = {one["life"] for one in records if one["event"] in ("killed", "crashed", "hangs")}
    return bool(equal) and all(
        one["call"] in ended and (one["life"] == mine["life"] or one["life"] not in killed) for one in equal
    )


def _excuses(scenario: Scenario, records: Sequence[Record], at: int) -> Iterator[Excuse]:
    """The rows of the table that do not hold wholly, and under which a call falls."""
    mine = records[at]
    wishes = {wish.meant.name: wish for wish in scenario.wishes}
    wish = wishes[mine["meant"]]
    others = [one for one in scenario.wishes if one is not wish]
    if wish.meant.function.endswith("mail") and any(one.meant.equals(wish.meant) for one in others):
        yield Excuse.PROOF
    equal = {one.meant.name for one in scenario.wishes if one.meant.equals(wish.meant)}
    earlier = [one for one in records[:at] if one["event"] == "begin" and one["meant"] in equal]
    for one in earlier:
        if _has_gone_on(records, one, at) and (one["reworded"] != mine["reworded"]):
            yield Excuse.IDENTITY
        if one["thread"] and _event(records, one["call"], "raised"):
            yield Excuse.IDENTITY  # its event loop may have got the answer as the client gave up
        over = {done["life"] for done in records[:at] if done["event"] in ("killed", "ended", "crashed")}
        if one["life"] != mine["life"] and one["life"] not in over and not wish.is_identified:
            yield Excuse.IDENTITY


def _has_gone_on(records: Sequence[Record], call: Record, at: int) -> bool:
    """Whether the agent got the answer of a call and went on, before record `at`.

    A call that began before it, and had not ended by then, may have been claimed after it.
    """
    begun = [one for one in records[:at] if one["event"] == "begin" and one["life"] == call["life"]]
    over = next((n for n, one in enumerate(records) if one["event"] == "end" and one["call"] == call["call"]), at)
    ended = {one["call"] for one in records[:over] if one["event"] in ("end", "raised")}
    is_last = begun[-1]["call"] == call["call"] and all(one is call or one["call"] in ended for one in begun)
    was_killed = any(one["event"] == "killed" and one["life"] == call["life"] for one in records[:at])
    if _event(records, call["call"], "end"):
        return not (is_last and was_killed)
    return not _event(records, call["call"], "raised") and not is_last


def _event(records: Sequence[Record], call: str, event: str) -> bool:
    return any(one["event"] == event and one["call"] == call for one in records)


@contextlib.asynccontextmanager
async def postgresql_url(folder: Path) -> AsyncIterator[str | None]:
    """The URL of a database of a new cluster; None where PostgreSQL is not installed."""
    binaries = find_postgresql()
    if binaries is None:
        yield None
        return
    log = folder / "postgresql.log"
    async with running(binaries, free_port(), user=USER, password=PASSWORD, options=FAST, log=log) as cluster:
        yield cluster.url(cluster.create())


def play_here(folder: Path, url: str | None, seeds: Sequence[int]) -> None:
    """Play seeds in this process, and print each as a line of JSON."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stage = Stage(folder, url)
    for seed in seeds:
        began = time.monotonic()
        try:
            played = stage.play(seed)
        except Exception as error:  # the judge itself failed: that must be seen
            played = Played(seed, [("judge", "", repr(error))], [], {})
        print(json.dumps(played._replace(seconds=time.monotonic() - began)._asdict()), flush=True)


async def play_all(seeds: Sequence[int], jobs: int, told: Callable[[Played], None]) -> None:
    """Play seeds in `jobs` processes; each result is `told`."""
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108  # a folder of its own is made there
    with tempfile.TemporaryDirectory(prefix="replan-sequences-", dir=where) as folder:
        async with postgresql_url(Path(folder)) as url:
            await asyncio.gather(*(_job(Path(folder, str(job)), url, seeds[job::jobs], told) for job in range(jobs)))


async def _job(folder: Path, url: str | None, seeds: Sequence[int], told: Callable[[Played], None]) -> None:
    folder.mkdir()
    order = json.dumps({"folder": str(folder), "url": url, "seeds": list(seeds)})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.effects.sequences", "0", "--job",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, limit=2**24,
    )  # fmt: skip
    assert process.stdin and process.stdout
    process.stdin.write(order.encode())
    process.stdin.close()
    async for line in process.stdout:
        told(Played(**json.loads(line)))
    if code := await process.wait():
        raise RuntimeError(f"A process that plays ended with {code}.")


def _tell(seed: int, times: int) -> None:
    """Play one seed in this process until a promise is broken, and print its words and its log."""
    print(draw(seed).words())
    with tempfile.TemporaryDirectory(prefix="replan-sequences-") as folder:
        stage = Stage(Path(folder))
        for number in range(times):
            logs = list[Record]()
            played = stage.play(seed, logs.extend)
            if played.violations or number == times - 1:
                for record in logs:
                    shown = {key: value for key, value in record.items() if value is not None and value is not False}
                    print("   ", *(f"{key}={value}" for key, value in shown.items()))
                print(played)
                return


def main() -> int:
    """Play, and return the exit code: 1 with a violation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--only", type=int)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        order = json.loads(sys.stdin.read())
        play_here(Path(order["folder"]), order["url"], order["seeds"])
        return 0
    if options.only is not None:
        _tell(options.only, options.times)
        return 0
    print(f"seeds from {options.seed}")
    tally = Tally(options.count)
    asyncio.run(play_all(range(options.seed, options.seed + options.count), options.jobs, tally.add))
    print("\n".join(tally.lines()))
    return 1 if tally.broken else 0


if __name__ == "__main__":
    sys.exit(main())
