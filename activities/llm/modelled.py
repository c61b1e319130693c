"""A planner that asks a model: it tells what is new, and reads what comes back."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from activities import prompts
from activities.borders import classify
from activities.llm import conversation, prices
from activities.llm.asking import ask
from activities.llm.ends import Unusable
from activities.llm.exchange import Exchange, Past, Said
from activities.llm.horizon import Horizon
from activities.llm.language_model import MAX_OUTPUT, LanguageModel, Request
from activities.llm.reply import Reply, Stop
from activities.llm.retold import split
from activities.llm.shortlist import shown
from activities.llm.turn_by_turn import TurnByTurn
from activities.llm.turns import Turn, UserTurn
from activities.llm.whole_plans import WholePlans
from activities.toolbox.errors import Unreachable
from activities.toolbox.kind import Kind
from workflows import routing
from workflows.catalogue import Price
from workflows.faults import Code
from workflows.plan import Answer, GiveUp, NewSteps, Proposed, Question, canonical
from workflows.situation import Situation

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
