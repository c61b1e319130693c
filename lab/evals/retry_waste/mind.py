"""The mind at work: as an activity for the bare arms, and as a scripted model over the wire for Replan."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from temporalio import activity

from activities.planning.strategies import PROPOSE
from evals.fakes.model_api import CHARACTERS_PER_TOKEN, Json
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.script import (
    Delayed,
    ModelReply,
    ReceivedRequest,
    ScriptedResponse,
    finishes,
    gives_up,
    proposes,
    step,
)
from evals.retry_waste.bare import Conversation, Said, Thought, ToolUse
from evals.retry_waste.orders import Knowledge, Order, Wanted, bad_kind, remaining, task_in, with_bad_kind
from evals.retry_waste.tools import Customer, Item, Note, Slot
from workflows.json_values import canonical

INSTRUCTIONS = "You carry out orders with tools. Call one tool at a time, read its answer, and say when you are done."
SYSTEM = INSTRUCTIONS + "".join(
    f"{name}: {canonical(args.model_json_schema())}"
    for name, args in (
        *(("find_slots", Customer), ("get_price", Item), ("get_list_price", Item)),
        *(("book_slot", Slot), ("send_note", Note)),
    )
)
"""What every request of a bare arm has; a request of Replan has Replan's own prompt, which is longer."""
MODEL_SECONDS = 0.5
"""How long the model thinks about each reply, in every arm."""
AGAIN = (0, 404, 429, 503)
"""Statuses after which the model makes the call once more, with another kind if it was made up."""


@activity.defn
async def think(conversation: Conversation) -> Thought:
    """Write the next call, or the whole plan."""
    order = conversation.order
    known = learnt(conversation.said)
    wanted = [] if known.must_give_up else [*remaining(order, known)]
    bad = bad_kind(order, conversation.hallucination, conversation.turn)
    written = with_bad_kind(wanted if conversation.whole_plan else wanted[:1], bad)
    calls = [ToolUse(id=call.id, tool=call.tool, args=dict(call.args)) for call in written]
    shown = [item.model_dump_json() for item in (*conversation.said, *calls)]
    words = f"{SYSTEM}{order.text}{shown}"
    await asyncio.sleep(MODEL_SECONDS)
    return Thought(calls=calls, is_done=not known.must_give_up, tokens=len(words) // CHARACTERS_PER_TOKEN)


def learnt(said: Iterable[Said]) -> Knowledge:
    """What a conversation tells."""
    known = Knowledge()
    for item in said:
        use, body = item.use, item.body
        if "free" in body:
            known.free = tuple(body["free"])
        if item.status == 200:
            known.done += (use.id,)
            known.slot = str(use.args["at"]) if use.id == "book" else known.slot
        elif item.status in AGAIN:
            continue
        elif use.id == "book":
            known.refused += (str(use.args["at"]),)
        else:
            known.hopeless += ("list" if use.tool == "get_list_price" else use.id,)
    return known


_FINISHED = re.compile(r"\b(price|book|note)-(\d+) is finished")
_REFUSED = re.compile(r"\b(price|book|note)-(\d+) was refused \((\w+)\)")
_FREE = re.compile(r'"free":\s*\[([^\]]*)\]')


def knowledge_of(request: ReceivedRequest) -> Knowledge:
    """What the conversation of a task of Replan tells."""
    text = request.all_text
    planned = _planned(request)
    known = Knowledge(done=tuple(dict.fromkeys(id for id, _ in _FINISHED.findall(text))))
    for id, turn in _FINISHED.findall(text):
        if id == "book":
            known.slot = planned[f"{id}-{turn}"].args["at"]
    for id, turn, _ in _REFUSED.findall(text):
        call = planned[f"{id}-{turn}"]
        if id == "book":
            known.refused += (call.args["at"],)
        else:
            known.hopeless += ("list" if call.tool == "get_list_price" else id,)
    if found := _FREE.findall(text):
        known.free = tuple(re.findall(r"\d\d:\d\d", found[-1]))
    return known


def _planned(request: ReceivedRequest) -> Mapping[str, Wanted]:
    """All steps that the model proposed, by their ids."""
    plans = [call.args for call in request.calls if call.name == PROPOSE]
    steps = [item for plan in plans for item in _steps(plan)]
    return {item["id"]: Wanted(item["id"], item["kind"], item["args"]) for item in steps}


def _steps(plan: Any) -> Sequence[Json]:
    return plan.get("steps", ()) if isinstance(plan, Mapping) else ()


class PlannerApi(OpenAIApi):
    """The API of the scripted model; requests are as large as they are, and schemas are not checked again."""

    def schema_mistakes(self, body: Json) -> Iterable[str]:  # type: ignore[override]
        """No mistakes: the tests check them, and it takes long."""
        return ()


def scripted(orders: Mapping[str, Order], hallucination: float) -> ScriptedResponse:
    """The model of all tasks of a seed."""

    def reply(request: ReceivedRequest) -> ModelReply:
        order, known = orders[task_in(request.all_text)], knowledge_of(request)
        if not request.may_call:  # the budget is used up
            return ModelReply(text="It is not done.")
        if known.must_give_up:
            return gives_up("It cannot be done.")
        wanted = [*remaining(order, known)]
        if not wanted:
            return finishes("It is done.")
        turn = request.turn
        written = with_bad_kind(wanted, bad_kind(order, hallucination, turn))
        ids = [f"{call.id}-{turn}" for call in wanted]
        return proposes(
            *(
                step(id, call.tool, *ids[:index], **call.args)
                for index, (id, call) in enumerate(zip(ids, written, strict=True))
            )
        )

    return lambda request: Delayed(MODEL_SECONDS, reply(request))
