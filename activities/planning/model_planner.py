"""A planner that asks a model: it tells what is new, and reads what comes back."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue

from activities.borders import classify
from activities.errors import Unreachable
from activities.planning import conversation, prompts
from activities.planning.planner import Exchange, Past, Said
from activities.planning.strategies import Horizon, TurnByTurn, Unusable, WholePlans
from activities.providers import prices
from activities.providers.messages import LanguageModel, Reply, Request, Stop, Turn, UserTurn
from activities.providers.metering import ask
from activities.toolbox.declare.kind import Kind
from activities.toolbox.find_tools import MAX_SHOWN, NAME, ranked
from workflows import routing
from workflows.catalogue import Price
from workflows.faults import Code
from workflows.plan import Answer, GiveUp, NewSteps, Proposed, Question, canonical
from workflows.record import StepRecord
from workflows.situation import Situation
from workflows.spending import MAX_OUTPUT


def whole(past: Iterable[Past], task: str, news: Situation) -> Situation:
    """All that a task has come to, for a planner that keeps no conversation.

    `task` is the first run of the task, since `past` may begin with turns of another one; what is told with the text
    was left by that one, too.
    """
    told = [*(one.situation for one in past if one.task == task and not one.is_summary), news]
    own = [situation for situation in told if not situation.text]
    earlier = {record.step.id: record for situation in told for record in situation.earlier}
    records = earlier | {record.step.id: record for situation in own for record in situation.planned}
    first = {"text": told[0].text, "result_schema": told[0].result_schema, "documents": told[0].documents}
    faults = tuple(fault for situation in own for fault in situation.faults)
    return news.model_copy(update={**first, "records": tuple(records.values()), "faults": faults})


def split(situation: Situation) -> tuple[list[Past], Situation]:
    """The turns of a task whose situation is told as a whole, and what is new in it: one turn for each plan."""
    plans = dict[int, list[StepRecord]]()
    for record in sorted(situation.planned, key=lambda record: record.revision):
        plans.setdefault(record.revision, []).append(record)
    nothing: dict[str, object] = {"records": (), "faults": (), "observations": (), "rejected": ()}
    past, news = list[Past](), situation.model_copy(update={**nothing, "records": situation.earlier})
    for number, records in plans.items():
        past.append(Past("", 0, number, news, _planned(records)))
        told = {"text": "", "records": tuple(records), "faults": _of(situation, records)}
        news = news.model_copy(update=told)
    news = news.model_copy(update={"observations": situation.observations})
    if not situation.rejected:
        return past, news
    unusable = Proposed(proposal=GiveUp(reason="an answer that could not be used"))
    past.append(Past("", 0, len(plans) + 1, news, unusable))
    return past, news.model_copy(update={**nothing, "text": "", "rejected": situation.rejected})


def _planned(records: Sequence[StepRecord]) -> Proposed:
    return Proposed(proposal=NewSteps(steps=tuple(record.step for record in records)))


def _of(situation: Situation, records: Sequence[StepRecord]) -> tuple[object, ...]:
    ids = {record.step.id for record in records}
    return tuple(fault for fault in situation.faults if fault.step_id in ids)


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


HORIZONS: Mapping[str, Horizon] = {"plan": WholePlans(), "react": TurnByTurn()}
_NOTHING = Situation(turn=0, now=datetime(2026, 1, 1, tzinfo=UTC))
CHARACTERS = 3
"""Characters of JSON for a token, at the least: an estimate that is rather too high."""
MAX_SUMMARY, SUMMARY_PART = 4_000, 8
"""Tokens of a summary; in a small window it is no more than such a part of it."""
REPLY_PART = 4
"""The part of a small window that a reply may fill."""
COMPACT_AT = 0.8
"""The part of a model's window that a conversation may fill before it is summarised."""


class ModelPlanner:
    """Asks once for each proposal; what the model did wrong goes back to it through the workflow, with the reason."""

    def __init__(
        self,
        model: LanguageModel,
        patience: float = routing.PLAN.timeout,
        *,
        price: Price | None = None,
        window: int | None = None,
        compact_at: float = COMPACT_AT,
    ) -> None:
        """Ask `model`, and wait for it at most `patience` seconds.

        A conversation that would fill more than the part `compact_at` of its `window`, in tokens, is summarised first;
        where the window is not known, as soon as the provider refuses it.
        """
        self._model = model
        self._patience = patience
        self._longest = min(MAX_OUTPUT, window // REPLY_PART) if window else MAX_OUTPUT
        self._summary = min(MAX_SUMMARY, window // SUMMARY_PART) if window else MAX_SUMMARY
        self._room = window * compact_at - self._summary if window else None
        self.name = model.name
        self.prices = {model.name: price}
        self._price = price

    def preamble(self, kinds: Mapping[str, Kind]) -> int:
        """Tokens of instructions and kinds."""
        return max(_tokens(_request(horizon, _NOTHING, kinds, ())) for horizon in HORIZONS.values())

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposed:
        """Ask what comes next of a task that is told as a whole, as if it had been told turn by turn."""
        past, news = split(situation)
        return (await self.converse(news, kinds, past, task="", branch=0)).proposed

    async def converse(
        self, situation: Situation, kinds: Mapping[str, Kind], past: Sequence[Past], *, task: str, branch: int
    ) -> Said:
        """Ask the model what comes next.

        Raises:
            Exception: the provider refused or could not be reached, for the tables of `activities.borders`.
        """
        horizon, kinds = HORIZONS[situation.strategy], shown(kinds, past, situation)
        turns = conversation.turns(past, situation)
        request = _request(horizon, situation, kinds, turns, self._longest)
        oldest = conversation.cut(past)
        if oldest and self._room is not None and _tokens(request) > self._room:
            return self._too_long(oldest)
        try:
            reply = await ask(self._model, request, self._patience, "planner")
        except Exception as error:  # total: what the provider holds too long is summarised, all else goes on
            if oldest and classify(error).code is Code.TOO_LARGE:
                return self._too_long(oldest)
            raise
        told = turns[-1]
        exchange = Exchange(told if isinstance(told, UserTurn) else UserTurn(), reply.turn, reply.stop, reply.usage)
        used = self._used(reply)
        try:
            return Said(Proposed(proposal=_read(horizon, reply, situation, kinds, branch), **used), exchange)
        except Unusable as wrong:
            return Said(Proposed(proposal=GiveUp(reason=str(wrong)), rejected=(str(wrong),), **used), exchange)

    async def summarise(self, past: Sequence[Past], oldest: int) -> Said:
        """Ask the model for a summary of the `oldest` turns.

        Raises:
            Unreachable: it gave none.
            Exception: the provider refused or could not be reached.
        """
        told = UserTurn(conversation.retold(past, oldest))
        request = Request(prompts.SUMMARY, (), (told,), self._summary, is_once=True)
        reply = await ask(self._model, request, self._patience, "compaction")
        if reply.stop is not Stop.DONE or not reply.turn.text.strip():
            raise Unreachable(f"{self.name} gave no whole summary.", code="server_error")
        exchange = Exchange(told, reply.turn, reply.stop, reply.usage)
        return Said(Proposed(proposal=Answer(result=None), **self._used(reply)), exchange)

    def _too_long(self, oldest: int) -> Said:
        reason = "The conversation is too long for the model: it is summarised first."
        return Said(Proposed(proposal=GiveUp(reason=reason), planner=self.name, compact=oldest))

    def _used(self, reply: Reply) -> dict[str, Any]:
        tokens = reply.usage.tokens
        cost = prices.usd(reply.usage, self._price)
        return {"planner": self.name, "model_calls": 1, "tokens": tokens, "usd": cost, "context": tokens}


def _read(
    horizon: Horizon, reply: Reply, situation: Situation, kinds: Mapping[str, Kind], branch: int
) -> NewSteps | Answer | Question | GiveUp:
    """The proposal that a reply is, whatever the strategy; a call that was cut off is never read, however whole.

    Raises:
        Unusable: it is none.
    """
    if situation.is_last:
        return _last_words(reply)
    if reply.stop is Stop.REFUSED:
        raise Unusable(prompts.DECLINED)
    if reply.stop is Stop.CUT:
        raise Unusable(horizon.cut)
    return horizon.read(reply, situation, kinds, branch)


def _last_words(reply: Reply) -> Answer:
    """The text that ends a task whose budget is used up, however it ends.

    Raises:
        Unusable: there is none.
    """
    if not reply.turn.text.strip():
        raise Unusable(prompts.LAST)
    return Answer(result=reply.turn.text.strip())


def _request(
    horizon: Horizon,
    situation: Situation,
    kinds: Mapping[str, Kind],
    turns: Sequence[Turn],
    longest: int = MAX_OUTPUT,
) -> Request:
    return Request(
        system=horizon.system(situation, kinds),
        offers=horizon.offers(situation, kinds),
        turns=turns,
        max_output=min(situation.max_output or MAX_OUTPUT, longest),
        may_call=not situation.is_last,
    )


def _tokens(request: Request) -> int:
    """Tokens of a request; an estimate."""
    offers = sum(len(offer.description) + len(canonical(dict(offer.schema))) for offer in request.offers)
    return (len(request.system) + offers + sum(map(conversation.size, request.turns))) // CHARACTERS
