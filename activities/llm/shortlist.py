"""Which kinds a model is shown where there are too many for it to choose well; the others it finds by `find_tools`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from activities.llm.exchange import Past
from activities.toolbox.find_tools import MAX_SHOWN, NAME, ranked
from activities.toolbox.kind import Kind
from workflows.plan import NewSteps
from workflows.situation import Situation


def shortlist(kinds: Mapping[str, Kind], text: str, used: Collection[str] = ()) -> list[str]:
    """The kinds to show for a task's `text`, in the order of the catalogue; all where they are few.

    Those that were `used` or found before stay, even where they alone are too many: a conversation goes on about them.
    `find_tools` is among them, and what else there is room for: the kinds that share words with the text, then the
    first ones. The same arguments always give the same list.
    """
    if len(kinds) <= MAX_SHOWN:
        return list(kinds)
    kept = [name for name in kinds if name == NAME or name in used]
    more = dict.fromkeys([*ranked(kinds, text, len(kinds)), *kinds])
    chosen = {*kept, *[name for name in more if name not in kept][: max(0, MAX_SHOWN - len(kept))]}
    return [name for name in kinds if name in chosen]


def found(results: Iterable[JsonValue]) -> Iterator[str]:
    """The kinds that results of `find_tools` name."""
    for result in results:
        cards = result.get("tools") if isinstance(result, dict) else None
        for card in cards if isinstance(cards, list) else ():
            if isinstance(card, dict) and isinstance(card.get("kind"), str):
                yield str(card["kind"])


def shown(kinds: Mapping[str, Kind], past: Sequence[Past], news: Situation) -> Mapping[str, Kind]:
    """The kinds that a model is shown in a conversation: those for its task, and what was used or found in it."""
    told = [*(one.situation for one in past), news]
    text = next((situation.text for situation in reversed(told) if situation.text), "")
    plans = (one.proposed.proposal for one in past)
    used = {step.kind for plan in plans if isinstance(plan, NewSteps) for step in plan.steps}
    records = [record for situation in told for record in situation.records]
    used.update(found(record.result for record in records if record.kind == NAME))
    return {name: kinds[name] for name in shortlist(kinds, text, used)}
