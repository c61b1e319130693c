"""How a model is shown demonstrations: as turns before the conversation."""

from collections.abc import Iterable, Mapping

from activities.planning import prompts
from activities.planning.samples import sample
from activities.planning.text_calls import written_answer
from activities.providers.messages import AssistantTurn, ToolCall, ToolResult, Turn, UserTurn
from activities.providers.untrusted import fenced
from activities.toolbox.declare.kind import Kind
from activities.toolbox.find_tools import NAME as FIND_TOOLS
from workflows.plans.catalogue import Effect
from workflows.plans.demonstration import DemonstratedMove, Demonstration


def turns(demonstrations: Iterable[Demonstration], names: Mapping[str, str], *, is_textual: bool = False) -> list[Turn]:
    """Write demonstrations as turns of a conversation; `names` has, for each kind, the name by which a model calls it.

    With `is_textual`, each demonstration ends in the form in which a model ends a task in textual ReAct.
    """
    found = list[Turn]()
    for number, demonstration in enumerate(demonstrations):
        user_turn = UserTurn(f"{prompts.EXAMPLE_TASK.format(task=demonstration.task)}\n{prompts.NEXT_MOVE}")
        for index, move in enumerate(demonstration.moves):
            call = ToolCall(f"example_{number}_{index}", names.get(move.kind, move.kind), move.args)
            thought = move.thought or (prompts.EXAMPLE_THOUGHT.format(kind=move.kind) if is_textual else "")
            found += [user_turn, AssistantTurn(thought, (call,))]
            user_turn = UserTurn(prompts.NEXT_MOVE, (ToolResult(call.id, fenced(move.kind, move.result)),))
        thought = demonstration.thought or prompts.EXAMPLE_END
        end = written_answer(thought, demonstration.answer) if is_textual else demonstration.answer
        found += [user_turn, AssistantTurn(end)]
    return found


def built_in(kinds: Mapping[str, Kind]) -> list[Demonstration]:
    """Make one demonstration of a tool that only reads, with sample values; an empty list if there is no such tool."""
    reads = [kind for name, kind in kinds.items() if kind.spec.effect is Effect.READ and name != FIND_TOOLS]
    if not reads:
        return []
    kind = min(reads, key=lambda read: len(read.args_schema.get("required", ())))
    args, result, name = sample(kind.args_schema), sample(kind.result_schema), kind.spec.kind
    thought = prompts.EXAMPLE_THOUGHT.format(kind=name)
    move = DemonstratedMove(kind=name, args=args if isinstance(args, dict) else {}, result=result, thought=thought)
    return [
        Demonstration(
            task=f"Say what {name} shows for these sample values.",
            moves=(move,),
            thought="The observation holds what was asked.",
            answer=f"{name} shows the sample values above.",
        )
    ]
