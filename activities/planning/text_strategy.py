"""For endpoints without native tool calls: what the model is told, and how calls are read from the text of a reply."""

from collections.abc import Mapping
from dataclasses import replace

from activities.planning import demonstrations, prompts, text_calls
from activities.planning.origins.imitations import unused_name
from activities.planning.strategies import (
    EFFECTS,
    FINISH,
    PlanStrategy,
    ReactStrategy,
    UnusableReply,
    call_names,
    needs_contract,
)
from activities.providers.adapter import AdapterOptions
from activities.providers.arguments import parse_call
from activities.providers.messages import (
    AssistantTurn,
    LanguageModel,
    Reply,
    Request,
    StopReason,
    ToolDefinition,
    Turn,
    UserTurn,
)
from activities.toolbox.declare.kind import Kind
from workflows.planning.situation import Situation


class TextPlanStrategy(PlanStrategy):
    """The model writes its one call as JSON, and nothing else."""

    is_textual = True

    def system(self, situation: Situation, kinds: Mapping[str, Kind]) -> str:
        return prompts.text_plan_system(super().system(situation, kinds), self.tools(situation, kinds))

    def written(self, request: Request, situation: Situation, kinds: Mapping[str, Kind]) -> Request:
        return _as_text(request, by_move=False)

    def understood(self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind]) -> Reply:
        names = {tool.name for tool in self.tools(situation, kinds)}
        if reply.turn.calls or situation.is_last or not (words := reply.turn.text.strip()):
            return reply
        calls = text_calls.whole_calls(words, names)
        if not calls:
            raise UnusableReply(prompts.NO_CALL_ALONE)
        return _with_turn(reply, replace(reply.turn, text="", calls=tuple(calls)))


class TextReactStrategy(ReactStrategy):
    """Textual ReAct: Thought, Action, Action Input, and `Finish[...]`; calls in other known forms count as well."""

    is_textual = True

    def system(self, situation: Situation, kinds: Mapping[str, Kind]) -> str:
        tools = [tool for tool in self.tools(situation, kinds) if tool.name != FINISH]
        schema = situation.result_schema
        return prompts.text_react_system(kinds, tools, schema, plans_effects=needs_contract(kinds))

    def written(self, request: Request, situation: Situation, kinds: Mapping[str, Kind]) -> Request:
        examples = situation.demonstrations or demonstrations.built_in(kinds)
        shown = demonstrations.turns(examples, call_names(kinds), is_textual=True)
        whole = replace(request, turns=[*shown, *request.turns])
        return replace(_as_text(whole, by_move=True), stop=(f"\n{text_calls.OBSERVATION}",))

    def understood(self, reply: Reply, situation: Situation, kinds: Mapping[str, Kind]) -> Reply:
        turn, tools = reply.turn, self.tools(situation, kinds)
        if turn.calls or not (words := turn.text.strip()):
            return reply
        if calls := text_calls.whole_calls(words, {tool.name for tool in tools}):
            return _with_turn(reply, replace(turn, text="", calls=tuple(calls)))
        move = text_calls.read_move(words, {tool.name: _arguments(tool) for tool in tools}, before={EFFECTS})
        aside = "\n".join(filter(None, (turn.aside, move.ignored)))
        if move.answer is not None and situation.result_schema is not None and not situation.is_last:
            call = parse_call("text_0", FINISH, move.answer)
            return _with_turn(reply, replace(turn, text=move.thought, calls=(call,), aside=aside))
        if move.answer is not None:
            aside = "\n".join(filter(None, (turn.aside, move.thought, move.ignored)))
            return _with_turn(reply, replace(turn, text=move.answer, aside=aside))
        if move.calls:
            return _with_turn(reply, replace(turn, text=move.thought, calls=move.calls, aside=aside))
        if situation.is_last:
            return reply
        raise UnusableReply(prompts.NO_ACTION)


class TextualModel:
    """A model for steps. If its server has no native tool calls, the model is told to write its call as JSON alone.

    Text counts as a call only if it is the whole reply. Each tool gets a name that no text of a turn contains, so that
    these texts cannot imitate a call; the results in a turn are not compared.
    """

    def __init__(self, model: LanguageModel, options: AdapterOptions) -> None:
        self.name = model.name
        self._model = model
        self._options = options

    async def reply(self, request: Request) -> Reply:
        if not request.tools:
            return await self._model.reply(request)
        if not self._options.are_calls_text(self.name, request.calls):
            try:
                return await self._model.reply(request)
            except Exception as error:  # total: `classify` knows every exception
                if not self._options.learn_no_calls(self.name, request.calls, error):
                    raise
        read = [turn.text for turn in request.turns]
        names = {unused_name(tool.name, read): tool.name for tool in request.tools}
        tools = [replace(tool, name=name) for name, tool in zip(names, request.tools, strict=True)]
        asked = replace(request, system=prompts.text_plan_system(request.system, tools))
        reply = await self._model.reply(_as_text(asked, by_move=False))
        calls = text_calls.whole_calls(reply.turn.text.strip(), names)
        renamed = tuple(replace(call, name=names[call.name]) for call in calls)
        return _with_turn(reply, replace(reply.turn, text="", calls=renamed)) if calls else reply


def _arguments(tool: ToolDefinition) -> list[str]:
    """The names of a tool's arguments, the required ones first."""
    return list(dict.fromkeys([*tool.schema.get("required", ()), *tool.schema.get("properties", ())]))


def _with_turn(reply: Reply, turn: AssistantTurn) -> Reply:
    """The reply with `turn` in place of its turn; a finished reply whose new turn has calls gets the stop CALLS."""
    stop = StopReason.CALLS if turn.calls and reply.stop is StopReason.DONE else reply.stop
    return replace(reply, turn=turn, stop=stop)


def _as_text(request: Request, *, by_move: bool) -> Request:
    """Rewrite calls and their results as text, in the form of textual ReAct (`by_move`) or as JSON; offer no tool."""
    return replace(request, tools=(), turns=[_turn_as_text(turn, by_move=by_move) for turn in request.turns])


def _turn_as_text(turn: Turn, *, by_move: bool) -> Turn:
    if isinstance(turn, UserTurn):
        results = [f"{text_calls.OBSERVATION} {result.text}" for result in turn.results]
        return UserTurn("\n".join(filter(None, [*results, turn.text])))
    if not turn.calls:
        return turn.rewritten(turn.text)
    if by_move:
        return turn.rewritten(text_calls.written_move(turn.text, turn.calls))
    return turn.rewritten("\n".join(map(text_calls.written_call, turn.calls)))
