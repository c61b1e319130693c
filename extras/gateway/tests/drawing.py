"""Sequences that are drawn from a seed: what agents mean, how they connect, and what befalls them and the gateway."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from tests.effects.drawing import told
from tests.effects.oracle import Meant

TOOLS = ("pay", "pay", "mail", "charge")
"""unkeyed; unkeyed with a reconcile in a tools file; keyed in a tools file."""
NOTES = ("refund approved", "your refund is approved", "ok")
LATE = 5.3
"""Seconds of a call after which its answer counts as late."""

Do = Literal[
    "", "die before", "die after", "error before", "error after", "conflict", "rpc before", "rpc after", "lost"
]
Victim = Literal["agent", "agent", "bridge", "holder", "server", "all"]
Moment = Literal["sent", "effect", "answered"]
Again = Literal["no", "while", "after"]
How = Literal["silent", "cancel", "cancel late", "hang up"]


@dataclass(frozen=True)
class Wish:
    """A call that is meant once."""

    meant: Meant
    amount: float
    key: str | None = None


@dataclass(frozen=True)
class Step:
    """How a wish fares in the life of an agent."""

    before: float = 0.0
    """Seconds that the tool needs before its effect."""
    after: float = 0.0
    do: Do = ""
    gives_up: float | None = None
    """Seconds after which the client gives up."""
    how: How = "silent"
    again: Again = "no"
    """When the client that has given up calls again."""
    on_other: bool = False
    """Whether it does so on another connection."""
    asks_again: bool = False
    """Whether the agent calls again at once if it got no result."""
    reworded: bool = False
    """Whether it finds other words when it calls again, and at first if it was killed before."""
    without_key: bool = False
    with_next: bool = False
    """Whether the next call begins at the same time."""
    kills: Victim | None = None
    moment: Moment = "sent"
    delay: float = 0.0


@dataclass(frozen=True)
class Life:
    """One agent, from its start to its end."""

    door: Literal["stdio", "http"] = "stdio"
    is_new: bool = False
    """Whether it speaks the protocol of 2026-07-28."""
    environment: int = 0
    """Agents with different ones have different holders."""
    begins: Literal["unfinished", "beginning"] = "unfinished"
    steps: tuple[Step, ...] = ()
    end: Literal["killed", "leaves"] = "killed"
    holder: Literal["stays", "stays", "killed", "idle"] = "stays"
    """What becomes of the holder before the next life."""
    days: int = 0
    """Days that pass before the next life."""
    person: bool = False
    """Whether a person has settled what is open before it."""


@dataclass(frozen=True)
class Scenario:
    """A sequence."""

    seed: int
    wishes: tuple[Wish, ...]
    lives: tuple[Life, ...]
    has_file: bool = False
    """Whether the tools come from a tools file, with effects, a reconcile and rows of errors."""
    is_calm: bool = False
    timeout: float | None = None
    """Seconds that the tools have."""
    places: tuple[str, ...] = field(default=())

    def words(self) -> str:
        """The sequence for a reader; what has its usual value is left out."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"seed {self.seed} {'tools file' if self.has_file else 'command'} timeout {self.timeout}"
        for wish in self.wishes:
            yield f"  {wish.meant.name}: {wish.meant.function}({wish.meant.arguments}) key {wish.key}"
        for number, life in enumerate(self.lives):
            yield f"  life {number}: {told(replace(life, steps=()), Life())}"
            for index, step in enumerate(life.steps):
                if step != Step():
                    yield f"    m{index}: {told(step, Step())}"


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    random = Random(seed)  # noqa: S311
    wishes = tuple(_wishes(random))
    has_file, is_calm = random.random() < 0.5, random.random() < 0.08
    if is_calm:
        life = Life(*_door(random), steps=tuple(Step() for _ in wishes))
        return Scenario(seed, wishes, (life,), has_file, is_calm=True)
    doors = random.choice((("stdio",), ("stdio",), ("stdio",), ("http",), ("stdio", "http")))
    lives = tuple(_lives(random, wishes, doors))
    is_lost = any(step.do == "lost" for life in lives for step in life.steps)
    is_short = is_lost and not any(step.after > 1 for life in lives for step in life.steps)
    return Scenario(seed, wishes, lives, has_file, timeout=0.5 if is_short else 8.0 if is_lost else None)


def _door(random: Random) -> tuple[Literal["stdio", "http"], bool]:
    return random.choice(("stdio", "http")), random.random() < 0.5


def _wishes(random: Random) -> Iterator[Wish]:
    made = list[Wish]()
    for number in range(random.choice((1, 1, 2, 2, 2, 3))):
        tool, who, amount = random.choice(TOOLS), random.choice("ab"), random.choice((0, 5, 5))
        note = random.choice(NOTES)
        if made and random.random() < 0.6:
            earlier = random.choice(made)
            tool, amount, said = earlier.meant.function, int(earlier.amount), earlier.meant.arguments
            who, note = said["who"], said["note"]
            if random.random() < 0.25:
                note = random.choice(NOTES)
        meant = Meant(f"m{number}", tool, {"who": who, "amount": str(amount), "note": note})
        made.append(Wish(meant, amount, f"key-{number}" if random.random() < 0.25 else None))
        yield made[-1]


def _lives(random: Random, wishes: tuple[Wish, ...], doors: tuple[str, ...]) -> Iterator[Life]:
    number, environments = random.choice((1, 2, 2, 2, 3)), random.choice((1, 1, 1, 1, 2))
    for _ in range(number):
        door: Literal["stdio", "http"] = "http" if random.choice(doors) == "http" else "stdio"
        yield Life(
            door,
            random.random() < 0.4,
            random.randrange(environments),
            begins="beginning" if random.random() < 0.15 else "unfinished",
            steps=tuple(_step(random) for _ in wishes),
            end="leaves" if random.random() < 0.3 else "killed",
            holder=random.choice(("stays", "stays", "stays", "killed", "idle")),
            days=random.choice((0, 0, 1, 30)) if random.random() < 0.4 else 0,
            person=random.random() < 0.15,
        )


def _step(random: Random) -> Step:
    pause = (0.0, 0.0, 0.01, 0.05, 0.15)
    step = Step(
        random.choice(pause),
        random.choice(pause),
        reworded=random.random() < 0.25,
        without_key=random.random() < 0.3,
        asks_again=random.random() < 0.4,
        with_next=random.random() < 0.15,
    )
    sort = random.random()
    if sort < 0.25:
        return step
    if sort < 0.6:
        victims: tuple[Victim, ...] = ("agent", "agent", "agent", "bridge", "holder", "server", "all")
        moments: tuple[Moment, ...] = ("sent", "effect", "effect", "answered")
        delay = random.choice((0.0, 0.002, 0.01, 0.03, 0.08))
        return replace(step, kills=random.choice(victims), moment=random.choice(moments), delay=delay)
    if sort < 0.8:
        return _given_up(random, step)
    wrong: tuple[Do, ...] = (
        "die before", "die after", "error before", "error after", "conflict", "rpc before", "rpc after", "lost",
    )  # fmt: skip
    return replace(step, do=random.choice(wrong))


def _given_up(random: Random, step: Step) -> Step:
    hows: tuple[How, ...] = ("silent", "silent", "cancel", "cancel", "cancel late", "hang up")
    agains: tuple[Again, ...] = ("no", "while", "while", "after")
    step = replace(step, how=random.choice(hows), again=random.choice(agains), on_other=random.random() < 0.4)
    if random.random() < 0.06:
        return replace(step, after=LATE, gives_up=0.1, how="silent", again="after")
    return replace(step, after=random.choice((0.05, 0.1, 0.2)), gives_up=random.choice((0.0, 0.03, 0.1, 0.15)))
