"""The judge of a sequence at the gateway: the journal of the world against what agents meant and were told.

It knows docs/mcp.md, and no rule of the store. Doubles, losses and silence are judged as on the floor below.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.effects import oracle as floor
from tests.effects.oracle import Call, Effect, Excuse, Meant, Violation

SURELY_LATE = 5.0
"""Seconds after which an answer is not believed to be read by a client that may have given up without a word."""
ON_ITS_WAY = 0.25
"""Seconds that an answer may take on a busy machine from the gateway to the client that notes it."""
FOREVER = float("inf")


@dataclass
class Attempt:
    """One request of an agent, and what it was told."""

    meant: str
    tool: str
    who: str
    amount: float
    note: str
    key: str | None
    connection: int
    begin: float
    is_repetition: bool
    arrival: Callable[[], float] = lambda: FOREVER
    """When the answer came, also if the client had given up."""
    is_silent: bool = False
    """Whether the client gave up, and said so to nobody before it called again."""
    end: float = FOREVER
    """When it was answered."""
    result: str | None = None
    was_said: bool = False
    """Whether the answer said that it is that of an equal call."""
    was_shared: bool = False
    """Whether it said that an equal one came while it ran."""
    code: str = ""
    applied: str = ""
    row: str = ""
    by_person: bool = False

    def may_have_made(self, done: "Done") -> bool:
        """Whether an effect can be that of this request."""
        is_it = (self.tool, self.who, self.amount, self.note) == (done.tool, done.who, done.amount, done.note)
        is_over = self.end if self.result or self.applied == "none" else FOREVER
        return is_it and self.begin - 0.01 <= done.at <= is_over + 0.01


@dataclass(frozen=True)
class Done:
    """An effect in the journal."""

    name: str
    tool: str
    who: str
    amount: float
    note: str
    at: float
    row: str = ""
    """The key of the row that it belongs to, if the tool was told."""


@dataclass
class Verdict:
    """What is wrong with a sequence, and what the page excuses."""

    violations: list[tuple[str, str, str]] = field(default_factory=list)
    excused: list[tuple[str, str, str]] = field(default_factory=list)


def judge(meant: Sequence[Meant], done: Sequence[Done], attempts: Sequence[Attempt], *, is_calm: bool) -> Verdict:
    """Each broken promise of a sequence that has come to its end."""
    tried = {attempt.meant for attempt in attempts}
    meant = [one for one in meant if one.name in tried]
    owners = {one.name: _owner(one, attempts) for one in done}
    effects = [Effect(one.name, owners[one.name] or "", {}) for one in done]
    calls = [_call(meant, attempts, number) for number in range(len(attempts))]
    known = [effect for effect in effects if effect.meant]
    found = floor.judge(meant, known, calls)
    strict = floor.judge(meant, known, [replace(call, excuses=frozenset()) for call in calls])
    verdict = Verdict([_told(one) for one in found], [_told(one) for one in strict if one not in found])
    verdict.violations += [("unasked", "", f"nobody asked for {one.name}") for one in done if not owners[one.name]]
    verdict.violations += _untrue(done, attempts)
    if is_calm:
        odd = [one for one in attempts if one.was_said or one.result is None]
        verdict.violations += [("needless", one.meant, one.code or "said") for one in odd]
    return verdict


def _told(found: Violation) -> tuple[str, str, str]:
    return found.kind.value, found.meant, found.what


def _owner(done: Done, attempts: Sequence[Attempt]) -> str | None:
    """The meant call whose effect it is, as far as anybody can know; None if nobody asked for it then."""
    able = [one for one in attempts if one.may_have_made(done)]
    names = {one.meant for one in able}
    got = [one for one in attempts if one.result == done.name and one.meant in names]
    in_silence = [one for one in got if not one.was_said]
    unanswered = [one for one in able if one.result is None]
    chosen = in_silence or got or unanswered or able
    return chosen[0].meant if chosen else None


def _call(meant: Sequence[Meant], attempts: Sequence[Attempt], number: int) -> Call:
    mine = attempts[number]
    return Call(
        mine.meant,
        mine.result,
        is_repetition=mine.is_repetition,
        was_said=mine.was_said,
        by_person=mine.by_person,
        excuses=frozenset(_excuses(meant, attempts, number)),
    )


def _excuses(meant: Sequence[Meant], attempts: Sequence[Attempt], number: int) -> Iterator[Excuse]:
    """What docs/mcp.md says that nobody can know."""
    mine = attempts[number]
    wish = next(one for one in meant if one.name == mine.meant)
    equal = {one.name for one in meant if one.equals(wish)}
    for place, earlier in enumerate(attempts[:number]):
        if earlier.meant not in equal:
            continue
        is_reworded = earlier.note != mine.note
        came = earlier.arrival()
        is_early = came - earlier.begin < SURELY_LATE and came < mine.begin + ON_ITS_WAY
        if earlier.is_silent and (is_early or is_reworded):
            yield Excuse.IDENTITY
        # It may have taken that answer for its own; or a person's answer about the one counts for the other.
        if earlier.meant != mine.meant and (earlier.was_said or earlier.code == "doubtful"):
            yield Excuse.IDENTITY
        went_on = any(one.connection == earlier.connection for one in attempts[place + 1 :])
        is_there = mine.connection == earlier.connection
        if is_reworded and earlier.result is not None and (went_on or is_there):
            yield Excuse.IDENTITY


def _untrue(done: Sequence[Done], attempts: Sequence[Attempt]) -> Iterator[tuple[str, str, str]]:
    """Each effect while which everybody who had asked for it was told that nothing was applied."""
    for one in done:
        able = [attempt for attempt in attempts if attempt.may_have_made(one)]
        if able and all(attempt.applied == "none" for attempt in able):
            yield "untrue", able[0].meant, f"was told that nothing was applied, and {one.name} was"
