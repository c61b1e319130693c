"""What is broken at which moment of which effect: drawn by a seed, the same with the gateway and without."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evals.gateway.world import SERVERS


class Blow(StrEnum):
    """What is broken."""

    NONE = "nothing"
    KILL = "the agent's gateway process is killed"
    HANG_UP = "the agent's process dies"
    HOLDER = "the holder is killed"
    SERVER = "the tool's server is killed"


class Moment(StrEnum):
    """When, in the life of a call."""

    BEFORE = "before"
    """The call has not reached the tool's server."""
    AFTER = "after"
    """The effect was made, and the answer is still with the tool's server."""
    WRITTEN = "written"
    """The answer was written to the agent's pipe, and the agent dies before it acts on it."""


GATEWAYS_OWN = (Blow.HOLDER,)
"""Blows to processes that are there only with the gateway: without it they break nothing."""


@dataclass(frozen=True)
class Break:
    """What happens to one call."""

    blow: Blow = Blow.NONE
    moment: Moment = Moment.AFTER
    is_late: bool = False
    """Whether the answer of the held call comes only after the call was issued again."""


@dataclass(frozen=True)
class Effect:
    """One effect that an agent wants, once."""

    token: str
    server: str
    happens: Break


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    has_keys: bool = False
    has_session: bool = True
    must_hold: bool = True
    """Whether an effect that is made twice, or lost, breaks a promise."""
    is_heavy: bool = True
    """Whether the gateway's processes are killed, too."""
    cut_moments: Sequence[Moment] = (Moment.BEFORE, Moment.AFTER)


ROWS: Sequence[Row] = (
    Row("with keys", has_keys=True, cut_moments=(Moment.BEFORE, Moment.AFTER, Moment.WRITTEN)),
    Row("without keys, break observed"),
    Row("without keys, cut after a clean write", is_heavy=False, cut_moments=(Moment.WRITTEN,)),
    Row("without --session, over a restart of the agent", has_session=False, must_hold=False, is_heavy=False),
)

CUT_SHARE = 0.4
"""The share of the calls whose connection is cut."""
ONE_IN: Mapping[Blow, int] = {Blow.HOLDER: 12, Blow.SERVER: 12}
"""Of how many calls one is struck so."""


def drawn(row: Row, count: int, seed: int) -> list[Effect]:
    """The effects of a row, each with what happens to it."""
    dice = random.Random(f"{seed}/{row.name}")  # noqa: S311  # a trial, no secret
    heavy = [blow for blow, share in ONE_IN.items() for _ in range(max(1, count // share))] if row.is_heavy else []
    cuts = round(count * CUT_SHARE)
    breaks = [_struck(blow, dice) for blow in heavy] + [_cut(row, dice) for _ in range(cuts)]
    breaks = breaks[:count] + [Break()] * max(0, count - len(breaks))
    dice.shuffle(breaks)
    servers = [SERVERS[number % len(SERVERS)] for number in range(count)]
    dice.shuffle(servers)
    return [Effect(f"fx-{number:04}", servers[number], breaks[number]) for number in range(count)]


def _struck(blow: Blow, dice: random.Random) -> Break:
    return Break(blow, dice.choice((Moment.BEFORE, Moment.AFTER)), dice.random() < 0.5)


def _cut(row: Row, dice: random.Random) -> Break:
    moment = dice.choice(row.cut_moments)
    can_kill = row.has_session and moment is not Moment.WRITTEN
    blow = dice.choice((Blow.KILL, Blow.HANG_UP)) if can_kill else Blow.HANG_UP
    return Break(blow, moment, dice.random() < 0.5)
