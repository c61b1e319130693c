"""The conversation of a task, made of its transcript: what stands in it never changes, so that a cache finds it again.

Where older turns were summarised, it begins with the goal and the summary; pairs of call and result stay together.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from activities import prompts
from activities.llm.exchange import Past
from activities.llm.fence import fenced, visible
from activities.llm.news import news, said
from activities.llm.turns import Turn, UserTurn
from workflows.plan import canonical
from workflows.situation import Situation

WHOLE = 1_000_000
"""Characters: a summary is never cut."""
VERBATIM = 2
"""Turns that are never summarised: the newest."""
KEPT = 0.4
"""The part of the conversation that a summary leaves as it is, at the most."""


def turns(past: Sequence[Past], situation: Situation) -> list[Turn]:
    """All turns; the last one is the user's and tells the situation."""
    return [*_before(past, situation), news(_last(past), situation)]


def cut(past: Sequence[Past]) -> int:
    """How many of the oldest turns a summary should stand for; 0 where too few are left to summarise."""
    kept = _kept(past)
    sizes = [size(_told(past, index)) + size(said(one)) for index, one in kept]
    left, room = len(kept), KEPT * sum(sizes)
    while left > 1 and (len(kept) - left < VERBATIM or sum(sizes[left - 1 :]) <= room):
        left -= 1
    return kept[left][0] if 0 < left <= len(kept) - VERBATIM else 0


def retold(past: Sequence[Past], oldest: int) -> str:
    """The `oldest` turns and what came of them as one text, for whoever summarises them."""
    closings = {prompts.closing(one.situation) for one in past[: oldest + 1]}
    turns = [*_before(past[:oldest]), _told(past, oldest)]
    return "\n\n".join(line for turn in turns for line in _lines(_without(turn, closings)))


def _before(past: Sequence[Past], news: Situation | None = None) -> Iterator[Turn]:
    summarised = max((index for index, one in enumerate(past) if one.is_summary), default=-1)
    for number, (index, one) in enumerate(_kept(past)):
        told = _told(past, index)
        is_opening = summarised >= 0 and not number
        yield _opening(past[summarised], told, _goal(past, index, news)) if is_opening else told
        # What the provider signed belongs to the conversation as it was before the summary.
        yield replace(said(one), blocks=()) if index < summarised else said(one)


def _kept(past: Sequence[Past]) -> list[tuple[int, Past]]:
    """The turns that the newest summary does not stand for, with their places."""
    first = max((one.upto for one in past), default=0)
    return [(index, one) for index, one in enumerate(past) if index >= first and not one.is_summary]


def _told(past: Sequence[Past], index: int) -> UserTurn:
    one = past[index]
    return one.exchange.told if one.exchange else news(_last(past[:index]), one.situation)


def _last(past: Sequence[Past]) -> Past | None:
    return next((one for one in reversed(past) if not one.is_summary), None)


def _goal(past: Sequence[Past], index: int, news: Situation | None) -> Situation | None:
    """The situation with the goal, where no turn from this place on tells it."""
    later = [*(one.situation for one in past[index:]), *([news] if news else [])]
    if any(one.text for one in later):
        return None
    return next(one.situation for one in reversed(past[:index]) if one.situation.text)


def _opening(summary: Past, told: UserTurn, goal: Situation | None) -> UserTurn:
    """The goal, the summary, and what was open when it was made, word for word."""
    words = summary.exchange.said.text if summary.exchange else ""
    still = [result.text for result in told.results if result.is_error]
    parts = [
        *([visible(prompts.goal(goal))] if goal else []),
        f"{prompts.SUMMARISED}\n{fenced('summary', words, WHOLE)}",
        *([prompts.STILL_OPEN, *still] if still else []),
        told.text,
    ]
    return UserTurn("\n".join(filter(None, parts)))


def size(turn: Turn) -> int:
    """Characters."""
    if isinstance(turn, UserTurn):
        return len(turn.text) + sum(len(result.text) for result in turn.results)
    return len(turn.text) + sum(len(canonical(call.args)) for call in turn.calls)


def _without(turn: Turn, closings: Iterable[str]) -> Turn:
    """The turn without the words that say what is true at its moment, and matters no more."""
    closing = next((words for words in closings if turn.text.endswith(words)), "")
    return replace(turn, text=turn.text.removesuffix(closing).strip())


def _lines(turn: Turn) -> Iterator[str]:
    if isinstance(turn, UserTurn):
        yield from (f"Result: {result.text}" for result in turn.results)
    else:
        yield from (f"Call: {fenced(call.name, call.args)}" for call in turn.calls)
    if turn.text:
        yield f"Told: {turn.text}" if isinstance(turn, UserTurn) else f"Said: {fenced('words', turn.text)}"
