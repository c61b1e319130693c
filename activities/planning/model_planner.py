"""A planner that asks a model: it builds the request from the conversation and reads the reply as a proposal."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime

from pydantic import JsonValue, ValidationError

from activities.borders import classify
from activities.errors import NeedsPerson, Unreachable
from activities.planning import conversation, prompts
from activities.planning.origins.imitations import imitated
from activities.planning.planner import Exchange, PlannerReply, RecordedTurn
from activities.planning.strategies import (
    PROPOSE,
    PlanStrategy,
    ReactStrategy,
    Strategy,
    UnusableReply,
    last_answer,
    last_answer_tool,
    require_no_call,
)
from activities.planning.text_strategy import TextPlanStrategy, TextReactStrategy
from activities.providers.adapter import AdapterOptions
from activities.providers.local import ModelFacts
from activities.providers.messages import (
    LanguageModel,
    Reply,
    Request,
    StopReason,
    ToolCall,
    Turn,
    UserTurn,
    estimate_tokens,
)
from activities.providers.metering import MeteredModel, ask_model
from activities.providers.prices import COMPACT_AT, cost_in_usd
from activities.providers.registry import PROVIDERS
from activities.providers.strict import with_strict_schemas
from activities.toolbox.declare.kind import Kind
from activities.toolbox.find_tools import MAX_SHOWN, NAME as FIND_TOOLS, ranked
from workflows.faults.fault import Code
from workflows.json_values import canonical
from workflows.limits.spending import MAX_OUTPUT, MIN_LAST_OUTPUT
from workflows.planning.situation import Situation
from workflows.plans import own_activities
from workflows.plans.catalogue import Price
from workflows.plans.proposal import Answer, GiveUp, Mistake, NewSteps, Proposal, Proposed, Step

STRATEGIES: Mapping[str, Strategy] = {"plan": PlanStrategy(), "react": ReactStrategy()}
TEXT_STRATEGIES: Mapping[str, Strategy] = {"plan": TextPlanStrategy(), "react": TextReactStrategy()}
"""The strategies at an endpoint without native calls."""
# For `preamble`, which measures a request without a task; the date has no influence on its length.
_EMPTY = Situation(turn=0, now=datetime(2026, 1, 1, tzinfo=UTC))
CHARACTERS_PER_TOKEN = 3
"""Used to estimate tokens. This ratio is typical of JSON; plain text has fewer tokens than the estimate."""
MOST_CHARACTERS = 5
"""No request has more characters per token: a request that exceeds a window even at this ratio is surely cut."""
TOO_SMALL = (
    "The window of {name} has {window:,} tokens, and the tools and the task alone need more: let its server give it a"
    " larger one (docs/models.md, Ollama and LM Studio)."
)
MAX_SUMMARY, SUMMARY_PART = 4_000, 8
"""The limits of a summary: MAX_SUMMARY tokens, and 1/SUMMARY_PART of the model's context window."""
REPLY_PART = 4
"""A reply may fill at most 1/REPLY_PART of the model's context window."""


class ModelPlanner:
    """Asks a model once for each proposal. If the reply is unusable, the next turn tells the model why."""

    def __init__(
        self,
        model: LanguageModel,
        timeout: float = own_activities.PLAN.timeout,
        *,
        price: Price | None = None,
        window: int | None = None,
        compact_at: float = COMPACT_AT,
        options: AdapterOptions | None = None,
        facts: Callable[[], Awaitable[ModelFacts]] | None = None,
        longest_reply: int = MAX_OUTPUT,
    ) -> None:
        """Ask `model`, and wait at most `timeout` seconds for each reply, of `longest_reply` tokens at most.

        `window` is the length of the model's context window in tokens. A conversation that would fill more than the
        part `compact_at` (from 0 to 1) of the window is summarised before the next request. If `window` is None, a
        conversation is summarised only after the provider rejected it as too long. `options` say whether the model
        has native calls, and record it if the server rejects them. `facts` asks the model's server for what is not set
        here, before each request until the server has loaded the model.
        """
        self._model = MeteredModel(model, price)
        self._timeout = timeout
        self._compact_at, self._has_window, self._facts = compact_at, window is not None, facts
        self._longest = longest_reply
        self._known_window = math.inf
        self._fit(window)
        self.name = model.name
        self.prices = {model.name: price}
        self._price = price
        self._options = options or AdapterOptions()

    def _fit(self, window: int | None) -> None:
        """Set the limits of replies, summaries and conversations for a window of this many tokens; None if unknown."""
        self._max_reply = window // REPLY_PART if window else None
        self.longest_reply = min(self._longest, self._max_reply or self._longest)
        # Without a window, a server of the user's own gets no limit if the task has none.
        self._usual_reply = self.longest_reply if window or self._longest < MAX_OUTPUT else None
        self._max_summary = min(MAX_SUMMARY, window // SUMMARY_PART) if window else MAX_SUMMARY
        self._max_conversation = window * self._compact_at - self._max_summary if window else None

    async def _learn(self) -> None:
        """Ask the model's server for facts about the model, such as its window, and apply them to this planner."""
        if self._facts is None:
            return
        facts = await self._facts()
        if not self._has_window:
            self._fit(facts.window)
        if facts.takes_tools is False:
            self._options.without_calls.add(self.name)
        if facts.is_loaded:
            self._facts, self._known_window = None, facts.window or math.inf

    def preamble(self, kinds: Mapping[str, Kind]) -> int:
        return max(_tokens(_request(strategy, _EMPTY, kinds, ())) for strategy in STRATEGIES.values())

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposed:
        """Ask the model for the next steps, or the end of the task; it gets the whole task as a conversation."""
        past, new = conversation.split_situation(situation)
        return (await self.converse(new, kinds, past, task="", branch=0)).proposed

    async def converse(
        self, situation: Situation, kinds: Mapping[str, Kind], past: Sequence[RecordedTurn], *, task: str, branch: int
    ) -> PlannerReply:
        await self._learn()
        is_text = self._options.are_calls_text(self.name, situation.calls)
        strategy = (TEXT_STRATEGIES if is_text else STRATEGIES)[situation.strategy]
        kinds = _kinds_shown(kinds, past, situation)
        turns = conversation.turns(past, situation)
        request = _request(strategy, situation, kinds, turns, self._max_reply, self._usual_reply)
        if past and not past[-1].is_summary:
            counted = past[-1].proposed.context + estimate_tokens(asdict(turns[-1]))
            request = replace(request, counted=counted)
        oldest = conversation.turns_to_summarise(past)
        if oldest and self._max_conversation is not None and _tokens(request) > self._max_conversation:
            return self._summary_needed(oldest)
        if _tokens(request) * CHARACTERS_PER_TOKEN > self._known_window * MOST_CHARACTERS:
            # Its server would cut the request without a word.
            raise NeedsPerson(TOO_SMALL.format(name=self.name, window=self._known_window))
        try:
            reply = await ask_model(self._model, request, self._timeout, "planner")
        except Exception as error:  # `classify` maps every exception to a fault
            if oldest and classify(error).code is Code.TOO_LARGE:
                return self._summary_needed(oldest)
            if self._options.learn_no_calls(self.name, situation.calls, error):
                return await self.converse(situation, kinds, past, task=task, branch=branch)
            raise
        last_turn = turns[-1]  # the last turn is always a UserTurn, which its type does not say
        told = last_turn if isinstance(last_turn, UserTurn) else UserTurn()
        try:
            understood = strategy.understood(reply, situation, kinds)
            if strategy.is_textual:
                await _require_own_calls(understood, past, situation, kinds)
            reply = understood
            proposed = self._proposed(_read(strategy, reply, situation, kinds, branch), reply)
        except UnusableReply as unusable:
            proposed = self._proposed(GiveUp(reason=str(unusable)), reply, rejected=(Mistake(text=str(unusable)),))
        return PlannerReply(proposed, Exchange(told, reply.turn, reply.stop, reply.usage))

    async def summarise(self, past: Sequence[RecordedTurn], oldest: int) -> PlannerReply:
        """Ask the model for a summary of the first `oldest` turns; raises Unreachable if it is empty or cut off."""
        await self._learn()
        user_turn = UserTurn(conversation.text_to_summarise(past, oldest))
        request = Request(prompts.SUMMARY, (), (user_turn,), self._max_summary, skip_cache=True)
        reply = await ask_model(self._model, request, self._timeout, "compaction")
        if reply.stop is not StopReason.DONE or not reply.turn.text.strip():
            # Transient: a second request may bring a whole summary.
            raise Unreachable(f"{self.name} gave no whole summary.", code="server_error")
        exchange = Exchange(user_turn, reply.turn, reply.stop, reply.usage)
        return PlannerReply(self._proposed(Answer(result=None), reply), exchange)

    def _summary_needed(self, oldest: int) -> PlannerReply:
        reason = "The conversation is too long for the model: it is summarised first."
        return PlannerReply(Proposed(proposal=GiveUp(reason=reason), planner=self.name, compact=oldest))

    def _proposed(self, proposal: Proposal, reply: Reply, rejected: tuple[Mistake, ...] = ()) -> Proposed:
        tokens = reply.usage.tokens
        return Proposed(
            proposal=proposal,
            rejected=rejected,
            planner=self.name,
            model_calls=1,
            tokens=tokens,
            usd=cost_in_usd(reply.usage, self._price),
            estimated=int(reply.usage.is_estimated),
            context=tokens - reply.usage.beside + _as_input(reply.usage.beside, self._price),
        )


def _as_input(output: int, price: Price | None) -> int:
    """How many tokens of input cost as much as these of output; no fewer than these.

    The next reply may have as many beside its limit, and the conversation's tokens are reserved as its input.
    """
    dearest = max(price.input, price.cache_read, price.cache_write) if price else 0
    return max(output, math.ceil(output * price.output / dearest)) if price and dearest else output


async def _require_own_calls(
    reply: Reply, past: Sequence[RecordedTurn], situation: Situation, kinds: Mapping[str, Kind]
) -> None:
    """Raise UnusableReply if untrusted content contains a call that the model wrote as text."""
    calls = list[ToolCall | Step](reply.turn.calls)
    for call in reply.turn.calls:
        steps = call.args.get("steps") if call.name == PROPOSE else None
        for step in steps if isinstance(steps, list) else ():
            with suppress(ValidationError):
                calls.append(Step.model_validate(step))
    # In a thread: results of a megabyte take a second.
    found = await asyncio.to_thread(imitated, calls, past, situation, kinds) if calls else None
    if found:
        raise UnusableReply(prompts.CALL_IN_CONTENT.format(name=found[0], source=found[1]))


def why_not_strict(kinds: Mapping[str, Kind]) -> dict[str, str]:
    """For each kind whose schema is sent without `strict`: a text with the providers and their reasons."""
    request = _request(STRATEGIES["react"], _EMPTY, kinds, ())
    found = {
        provider: with_strict_schemas(request, provider_row.rules)[1] for provider, provider_row in PROVIDERS.items()
    }
    texts = dict[str, str]()
    for kind in kinds:
        by_reason = dict[str, list[str]]()
        for provider, reasons in found.items():
            by_reason.setdefault(reasons.get(kind, ""), []).append(provider)
        lines = [f"not strict at {' and '.join(who)}: {reason}" for reason, who in by_reason.items() if reason]
        texts |= {kind: "; ".join(lines)} if lines else {}
    return texts


def shortlist(kinds: Mapping[str, Kind], text: str, used: Collection[str] = ()) -> list[str]:
    """The kinds that a model is shown for a task's `text`, in the order of the catalogue.

    All kinds are shown if there are at most `MAX_SHOWN`. Otherwise the list has `find_tools` and every kind in `used`,
    even if these are more than `MAX_SHOWN`. It is filled up with kinds that share words with the text, and then with
    the first kinds of the catalogue. The same arguments always give the same list.
    """
    if len(kinds) <= MAX_SHOWN:
        return list(kinds)
    # The conversation is about the used kinds: without their definitions the model could not go on.
    kept = [name for name in kinds if name == FIND_TOOLS or name in used]
    likely = dict.fromkeys([*ranked(kinds, text, len(kinds)), *kinds])
    chosen = {*kept, *[name for name in likely if name not in kept][: max(0, MAX_SHOWN - len(kept))]}
    return [name for name in kinds if name in chosen]


def kinds_found(results: Iterable[JsonValue]) -> Iterator[str]:
    """Yield the names of the kinds in results of the tool `find_tools`."""
    for result in results:
        cards = result.get("tools") if isinstance(result, dict) else None
        for card in cards if isinstance(cards, list) else ():
            if isinstance(card, dict) and isinstance(card.get("kind"), str):
                yield str(card["kind"])


def _kinds_shown(kinds: Mapping[str, Kind], past: Sequence[RecordedTurn], situation: Situation) -> Mapping[str, Kind]:
    situations = [*(turn.situation for turn in past), situation]
    text = next((earlier.text for earlier in reversed(situations) if earlier.text), "")
    plans = (turn.proposed.proposal for turn in past)
    used = {step.kind for plan in plans if isinstance(plan, NewSteps) for step in plan.steps}
    records = [record for earlier in situations for record in earlier.records]
    used.update(kinds_found(record.result for record in records if record.kind == FIND_TOOLS))
    return {name: kinds[name] for name in shortlist(kinds, text, used)}


def _request(
    strategy: Strategy,
    situation: Situation,
    kinds: Mapping[str, Kind],
    turns: Sequence[Turn],
    max_reply: int | None = None,
    usual_reply: int | None = None,
) -> Request:
    """Make a request. The reply may have the tokens that the task allows, else `usual_reply`; at most `max_reply`."""
    max_output = min(filter(None, (situation.max_output or usual_reply, max_reply)), default=None)
    answer = last_answer_tool(situation)
    if answer and max_output:
        # The provider tells the model the schema of the answer; that must not exceed what was reserved.
        left = max_output - estimate_tokens(dict(answer.schema))
        answer, max_output = (answer, left) if left >= MIN_LAST_OUTPUT else (None, max_output)
    request = Request(
        system=strategy.system(situation, kinds),
        tools=strategy.tools(situation, kinds),
        turns=turns,
        max_output=max_output,
        may_call=not situation.is_last,
        effort=situation.effort,
        answer=answer,
    )
    return strategy.written(request, situation, kinds)


def _tokens(request: Request) -> int:
    tools = sum(len(tool.description) + len(canonical(dict(tool.schema))) for tool in request.tools)
    characters = len(request.system) + tools + sum(map(conversation.count_characters, request.turns))
    return characters // CHARACTERS_PER_TOKEN


def _read(strategy: Strategy, reply: Reply, situation: Situation, kinds: Mapping[str, Kind], branch: int) -> Proposal:
    # Before the other checks: the budget does not cover another request, so any text is accepted.
    if situation.is_last:
        if not reply.turn.text.strip():
            raise UnusableReply(prompts.BUDGET_USED_UP)
        require_no_call(reply.turn.text, strategy.tools(situation, kinds))
        return last_answer(reply.turn.text.strip(), situation.result_schema)
    if reply.stop is StopReason.REFUSED:
        raise UnusableReply(prompts.DECLINED)
    # Not every server counts the tokens of reasoning apart.
    is_silent = not reply.turn.calls and not reply.turn.text.strip()
    if reply.stop is StopReason.CUT and (is_silent or reply.usage.reasoning * 2 > reply.usage.output):
        raise UnusableReply(prompts.REASONING_CUT_OFF.format(tokens=reply.usage.reasoning or reply.usage.output))
    if reply.stop is StopReason.CUT:
        raise UnusableReply(strategy.cut_off)
    return strategy.read(reply, situation, kinds, branch)
