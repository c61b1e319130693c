"""Scenarios that are drawn from a seed: what an agent means, and what befalls the processes that it lives in."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from tests.effects.oracle import Meant

FUNCTIONS = ("pay", "mail", "charge", "move", "put")
"""unkeyed, unkeyed with reconcile, keyed, transactional, idempotent; each as `def`, and with `a_` as `async def`."""
LINES_OF_A_CALL = 420
"""About as many lines of the floor does a call take: where a line is drawn from."""

Error = Literal["none", "refused", "conflict", "lost answer", "no service"]
Fault = Literal["none", "kill", "kill in the world", "freeze", "full disk"]
Ids = Literal["same", "new", "none"]
Asks = Literal["no", "equal", "reworded"]
ASKS: tuple[Asks, ...] = ("no", "equal", "equal", "reworded")


@dataclass(frozen=True)
class Wish:
    """A meant call, with what identifies it."""

    meant: Meant
    key: str | None = None
    """The caller's own key."""
    has_ids: bool = False
    """Whether the framework gives it ids of run and call."""

    @property
    def is_identified(self) -> bool:
        """Whether a repetition is recognised at any age."""
        return self.key is not None or self.has_ids


@dataclass(frozen=True)
class Step:
    """How a wish fares in one life."""

    before: float = 0.0
    """Seconds that the function needs before its effect."""
    after: float = 0.0
    gives_up: float | None = None
    """Seconds after which the client gives up."""
    in_thread: bool = False
    """Whether a `def` is called in a thread, which is abandoned if the client gives up."""
    error: Error = "none"
    asks_again: Asks = "no"
    """What the agent does at once if it got no result."""
    with_next: bool = False
    """Whether the next step begins at the same time."""


@dataclass(frozen=True)
class Life:
    """One process of the agent."""

    begins: Literal["unfinished", "beginning"] = "unfinished"
    """Which wishes it makes: those without a result, or all that may be repeated."""
    share: tuple[int, int] = (0, 1)
    """Of several agents on one session: makes each wish whose number modulo the second is the first."""
    steps: tuple[Step, ...] = ()
    """One for each wish, by its number."""
    restarts: bool = False
    ids: Ids = "same"
    rewords: bool = False
    """Whether the first repetition has other words."""
    fault: Fault = "none"
    line: int = 0
    """The line of the floor at which it is killed or frozen, counted over the process."""
    place: Literal["before", "after"] = "before"
    """In the world: before or after the effect of the `nth` function that is called."""
    nth: int = 0
    room: int = 0
    """Bytes of a file that may be written when the disk is full."""
    frozen: float = 0.0
    """Seconds for which it is frozen, at the least."""
    thaws: bool = True
    """Whether it goes on then, or is killed."""
    ends_in_order: bool = False
    stops_at_error: bool = False
    beside: bool = False
    """Whether the next life begins while this one runs (or, with a freeze, when it is frozen)."""
    days: int = 0
    """Days by which the wall clock is wrong from now on, for what was recorded before."""
    person: bool = False
    """Whether a person has settled what is open before it begins."""


@dataclass(frozen=True)
class Scenario:
    """A sequence."""

    seed: int
    wishes: tuple[Wish, ...]
    lives: tuple[Life, ...]
    database: Literal["sqlite", "postgresql"] = "sqlite"
    has_faults: bool = field(default=True)

    def words(self) -> str:
        """The scenario for a reader; what has its usual value is left out."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"seed {self.seed} on {self.database}"
        for number, wish in enumerate(self.wishes):
            arguments = ", ".join(wish.meant.arguments.values())
            marks = [f"key {wish.key}"] * (wish.key is not None) + ["ids"] * wish.has_ids
            yield f"  {wish.meant.name} (#{number}): {wish.meant.function}({arguments}) {' '.join(marks)}".rstrip()
        for number, life in enumerate(self.lives):
            yield f"  life {number}: {told(replace(life, steps=()), Life())}"
            for index, step in enumerate(life.steps):
                if step != Step():
                    yield f"    #{index}: {told(step, Step())}"


def told(value: object, usual: object) -> str:
    """The fields that differ from the usual ones."""
    fields = vars(value)
    return ", ".join(f"{name}={fields[name]}" for name in fields if fields[name] != getattr(usual, name))


def draw(seed: int, postgresql: bool = False) -> Scenario:
    """The scenario of a seed."""
    random = Random(seed)  # noqa: S311  # the same sequence for the same seed
    wishes = tuple(_wishes(random))
    has_faults = random.random() > 0.06
    lives = tuple(_lives(random, wishes)) if has_faults else (Life(steps=_steps(random, wishes, calm=True)),)
    return Scenario(seed, wishes, lives, "postgresql" if postgresql else "sqlite", has_faults)


def _wishes(random: Random) -> Iterator[Wish]:
    """Two to five calls; equal ones, and ones that differ in words alone, among them."""
    made: list[Wish] = []
    for number in range(random.choice((1, 2, 2, 2, 3, 3, 4))):
        function = random.choice(("", "a_")) + random.choice(FUNCTIONS)
        arguments = {"to": random.choice("ab"), "body": random.choice(("x", "y", "z"))}
        if made and random.random() < 0.45:
            earlier = random.choice(made).meant
            function, arguments = earlier.function, dict(earlier.arguments)
            if random.random() < 0.25:
                arguments["body"] = random.choice(("x", "y", "z"))
        sort = random.random()
        meant = Meant(f"m{number}", function, arguments, is_idempotent=function.endswith("put"))
        key = f"key-{number}" if sort < 0.15 else None
        made.append(Wish(meant, key, has_ids=0.15 <= sort < 0.4))
        yield made[-1]


def _steps(random: Random, wishes: tuple[Wish, ...], calm: bool = False) -> tuple[Step, ...]:
    """One for each wish."""
    return tuple(_step(random, calm) for _ in wishes)


def _step(random: Random, calm: bool) -> Step:
    """How a call fares."""
    times = (0.0, 0.0, 0.0, 0.001, 0.004)
    step = Step(random.choice(times), random.choice(times), in_thread=random.random() < 0.3)
    if calm or random.random() < 0.55:
        return replace(step, with_next=not calm and random.random() < 0.15)
    asks: Asks = random.choice(ASKS)
    if random.random() < 0.5:
        return replace(step, gives_up=random.choice((0.0, 0.002, 0.006, 0.012, 0.02)), asks_again=asks)
    errors: tuple[Error, ...] = ("refused", "conflict", "lost answer", "lost answer", "no service")
    return replace(step, error=random.choice(errors), asks_again=asks)


def _lives(random: Random, wishes: tuple[Wish, ...]) -> Iterator[Life]:
    """Two to four processes."""
    number = random.choice((2, 2, 2, 2, 3, 4))
    agents = random.choice((1, 1, 1, 2))
    restarts = random.random() < 0.4
    for index in range(number):
        is_last = index == number - 1
        life = _life(random, wishes, is_last)
        if restarts:
            life = replace(life, restarts=True, begins="beginning")
        if agents == 2 and index < 2:
            life = replace(life, share=(index, 2), beside=index == 0)
        elif life.fault == "freeze" and not is_last and random.random() < 0.5:
            life = replace(life, beside=True, thaws=False)
        yield life


def _life(random: Random, wishes: tuple[Wish, ...], is_last: bool) -> Life:
    """One process, and what befalls it."""
    faults: tuple[Fault, ...] = ("kill", "kill", "kill", "kill", "kill in the world", "freeze", "full disk", "none")
    fault = "none" if is_last and random.random() < 0.6 else random.choice(faults)
    return Life(
        begins=random.choice(("unfinished", "unfinished", "beginning")),
        steps=_steps(random, wishes),
        restarts=random.random() < 0.1,
        ids=random.choice(("same", "same", "same", "new", "none")),
        rewords=random.random() < 0.2,
        fault=fault,
        line=random.randrange(int(LINES_OF_A_CALL * (len(wishes) + 0.5))),
        place=random.choice(("before", "after")),
        nth=random.randrange(len(wishes)),
        room=random.randrange(20_000, 120_000),
        frozen=random.choice((0.005, 0.02, 0.06)),
        thaws=random.random() < 0.7,
        ends_in_order=random.random() < 0.5,
        stops_at_error=random.random() < 0.3,
        days=random.choice((0, 0, 0, -400, 400)),
        person=random.random() < 0.12,
    )
