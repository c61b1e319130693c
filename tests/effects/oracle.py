"""The judge of a sequence of calls: what agents meant and were told, against the effects that the world has.

It reads nothing but data, and knows no rule of the ledger: only what docs/guarantees.md promises to an agent.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Excuse(StrEnum):
    """The rows of docs/guarantees.md that do not hold wholly: what they allow is no violation."""

    LATE_EFFECT = "reconcile looks before a late effect lands"
    SLEEPER = "a process sleeps between check and send"
    STORE = "the store is lost, restored or exchanged"
    PROOF = "a proof is wrong"
    IDENTITY = "the identity differs"


class Kind(StrEnum):
    """What can be wrong with a sequence."""

    DOUBLE = "double"
    """A meant call was applied more than once."""
    LOST = "lost"
    """A call returned, or was recorded as applied, and the world does not have its effect."""
    SWALLOWED = "swallowed"
    """A newly meant call got an earlier call's result in silence."""
    WRONG = "wrong result"
    """A call got the result of another call's effect, and other arguments or silence show that nobody could know."""
    NEEDLESS = "needless"
    """A newly meant call was not made, although the agent had the answer of each equal call before it."""
    STUCK = "stuck"
    """A meant call was never done, not even after a person had settled it by the truth."""


@dataclass(frozen=True)
class Meant:
    """A call that an agent meant: one effect, however often it is repeated."""

    name: str
    function: str
    arguments: Mapping[str, str]
    is_idempotent: bool = False

    def equals(self, other: "Meant") -> bool:
        """Whether nothing in the two calls differs."""
        return (self.function, self.arguments) == (other.function, other.arguments)


@dataclass(frozen=True)
class Effect:
    """An effect that the world has."""

    name: str
    """What the function returned for it."""
    meant: str
    """The meant call in whose name the function was called."""
    arguments: Mapping[str, str]


@dataclass(frozen=True)
class Call:
    """A call that an agent made, in the order in which they began."""

    meant: str
    result: str | None = None
    """The name of the effect that was returned; None if nothing was."""
    is_repetition: bool = False
    """Whether the agent made the meant call before."""
    was_said: bool = False
    """Whether `on_joined` said of the meant call that its result is that of an earlier one."""
    by_person: bool = False
    """Whether a person decided that the call gets that result."""
    is_needless: bool = False
    """Whether, as the call began, the agent had the answer of each equal call, and lived or had ended in order."""
    excuses: frozenset[Excuse] = frozenset()


@dataclass(frozen=True)
class Violation:
    """A broken promise."""

    kind: Kind
    meant: str
    what: str


DOUBLES = {Excuse.LATE_EFFECT, Excuse.SLEEPER, Excuse.STORE, Excuse.PROOF, Excuse.IDENTITY}
"""What may apply a meant call twice."""
MISTAKES = {Excuse.PROOF, Excuse.IDENTITY}
"""What may give a call the result of another one."""


def judge(
    meant: Sequence[Meant], effects: Sequence[Effect], calls: Sequence[Call], recorded: Sequence[str] = ()
) -> list[Violation]:
    """Each broken promise of a sequence that has come to its end; `recorded` are the results that the ledger has."""
    world = {effect.name: effect for effect in effects}
    wanted = {one.name: one for one in meant}
    return [
        *_doubles(wanted, effects, calls),
        *_lost(wanted, world, calls, recorded),
        *(found for call in calls for found in _mistaken(wanted, world, call, calls)),
    ]


def _doubles(wanted: Mapping[str, Meant], effects: Sequence[Effect], calls: Sequence[Call]) -> Iterator[Violation]:
    """Each set of equal meant calls that has more effects than calls: which effect is whose, nobody can tell."""
    applied = Counter(effect.meant for effect in effects)
    excused = {call.meant for call in calls if call.excuses & DOUBLES}
    done = set[str]()
    for one in wanted.values():
        equal = [other.name for other in wanted.values() if one.equals(other)]
        count = sum(applied[name] for name in equal)
        if one.name in done or one.is_idempotent or excused.intersection(equal):
            continue
        done.update(equal)
        if count > len(equal):
            yield Violation(Kind.DOUBLE, one.name, f"applied {count} times, and meant {len(equal)} times")


def _lost(
    wanted: Mapping[str, Meant], world: Mapping[str, Effect], calls: Sequence[Call], recorded: Sequence[str]
) -> Iterator[Violation]:
    """Each result without an effect, and each meant call that came to nothing."""
    for call in calls:
        if call.result is not None and call.result not in world:
            yield Violation(Kind.LOST, call.meant, f"returned {call.result}, which the world does not have")
    for result in recorded:
        if result not in world:
            yield Violation(Kind.LOST, "", f"{result} is recorded, and the world does not have it")
    applied = {effect.meant for effect in world.values()}
    answered = {call.meant for call in calls if call.result is not None}
    for name in wanted.keys() - applied - answered:
        yield Violation(Kind.STUCK, name, "has no effect, and no call of it returned")


def _mistaken(
    wanted: Mapping[str, Meant], world: Mapping[str, Effect], call: Call, calls: Sequence[Call]
) -> Iterator[Violation]:
    """What is wrong with the result of a call."""
    mine, effect = wanted[call.meant], world.get(call.result or "")
    if effect is None or effect.meant == call.meant or call.by_person or call.excuses & MISTAKES:
        return
    if not mine.equals(wanted[effect.meant]):
        yield Violation(Kind.WRONG, call.meant, f"got {effect.name}, the effect of {effect.meant} with other arguments")
    elif mine.is_idempotent:
        return
    elif not call.was_said and not _was_given_away(effect, calls):
        if call.is_repetition and _have_effects_of_their_own(mine, wanted, calls):
            return
        kind = Kind.WRONG if call.is_repetition else Kind.SWALLOWED
        yield Violation(kind, call.meant, f"got {effect.name}, the effect of {effect.meant}, in silence")
    elif call.was_said and call.is_needless and not call.is_repetition:
        yield Violation(Kind.NEEDLESS, call.meant, f"got {effect.name}, the effect of {effect.meant}, for no reason")


def _have_effects_of_their_own(one: Meant, wanted: Mapping[str, Meant], calls: Sequence[Call]) -> bool:
    """Whether each of the equal calls that returned in silence can have another one of the effects that it got."""
    told = {call.meant for call in calls if call.was_said or call.by_person}
    got = dict[str, set[str]]()
    for call in calls:
        if call.result is not None and call.meant not in told and one.equals(wanted[call.meant]):
            got.setdefault(call.meant, set()).add(call.result)
    owners = dict[str, str]()

    def finds(name: str, tried: set[str]) -> bool:
        for result in got[name] - tried:
            tried.add(result)
            if result not in owners or finds(owners[result], tried):
                owners[result] = name
                return True
        return False

    return all(finds(name, set()) for name in got)


def _was_given_away(effect: Effect, calls: Sequence[Call]) -> bool:
    """Whether each call in whose name the function was called was told that the effect is that of an earlier one."""
    own = [call for call in calls if call.meant == effect.meant and call.result == effect.name]
    return bool(own) and all(call.was_said for call in own)
