"""A planner that asks a model: it tells the whole situation, and reads the one call that comes back."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import structlog
from pydantic import JsonValue, ValidationError
from temporalio import activity

from activities import prompts
from activities.borders import validation
from activities.llm import conversation
from activities.llm.language_model import LanguageModel, Request
from activities.llm.proposal_schema import ASK, FINISH, GIVE_UP, PROPOSE, offers
from activities.llm.reply import Reply, Stop
from activities.llm.turns import ToolCall
from activities.toolbox.errors import Unreachable
from activities.toolbox.kind import Kind
from workflows import routing
from workflows.plan import Answer, GiveUp, NewSteps, Proposed, Question, nearest
from workflows.task import Situation

log = structlog.get_logger("replan.planner")

NAME = re.compile(r"[A-Za-z0-9_]{1,60}")
ENDS: Mapping[str, tuple[type[Answer] | type[Question] | type[GiveUp], str, str]] = {
    FINISH: (Answer, "result", "result"),
    ASK: (Question, "question", "text"),
    GIVE_UP: (GiveUp, "reason", "reason"),
}
"""What each of them proposes, and how its argument is called there and here."""


class Unusable(Exception):
    """A reply is no proposal; the message tells the model exactly why."""


class ModelPlanner:
    """Asks once for each proposal; what the model did wrong goes back to it through the workflow, with the reason."""

    def __init__(self, model: LanguageModel, patience: float = routing.PLAN.timeout) -> None:
        """Ask `model`, and wait for it at most `patience` seconds."""
        self._model = model
        self._patience = patience
        self.name = model.name

    async def propose(self, situation: Situation, kinds: Mapping[str, Kind]) -> Proposed:
        """Ask the model what comes next.

        Raises:
            Exception: the provider refused or could not be reached, for the tables of `activities.borders`.
        """
        reply = await self._ask(_request(situation, kinds))
        used: dict[str, Any] = {"planner": self.name, "model_calls": 1, "tokens": reply.usage.tokens}
        try:
            return Proposed(proposal=read(reply, kinds), **used)
        except Unusable as wrong:
            return Proposed(proposal=GiveUp(reason=str(wrong)), rejected=(str(wrong),), **used)

    async def _ask(self, request: Request) -> Reply:
        try:
            async with asyncio.timeout(self._patience):  # the SDKs' own timeouts begin anew with each byte
                reply = await self._model.reply(request)
        except TimeoutError:
            raise Unreachable(f"{self.name} gave no answer within {self._patience:g} s.", code="timeout") from None
        except Exception as error:
            log.warning("model_failed", **_where(), planner=self.name, error=type(error).__name__, **_named(error))
            raise
        log.info("model", **_where(), planner=self.name, stop=reply.stop.value, **asdict(reply.usage))
        return reply


def _where() -> dict[str, str]:
    """For whom the model was asked."""
    if not activity.in_activity():
        return {}
    info = activity.info()
    return {"task": info.workflow_id or "", "step": info.activity_id}


def _named(error: Exception) -> dict[str, str]:
    """What a provider's support asks for; its words may quote keys and prompts, so only what is a name is kept."""
    found = {
        name: str(getattr(error, name, None) or "")
        for name in ("status_code", "type", "code", "error_code", "request_id")
    }
    return {name: value for name, value in found.items() if NAME.fullmatch(value)}


def _request(situation: Situation, kinds: Mapping[str, Kind]) -> Request:
    return Request(
        system=prompts.system(kinds),
        offers=offers(kinds),
        turns=conversation.turns(situation),
        closing=prompts.closing(situation, conversation.seen(situation.observations)),
    )


def read(reply: Reply, kinds: Mapping[str, Kind]) -> NewSteps | Answer | Question | GiveUp:
    """The proposal that a reply is.

    Raises:
        Unusable: it is none; a call that was cut off is never read, however whole it looks.
    """
    if reply.stop is Stop.REFUSED:
        raise Unusable(prompts.DECLINED)
    if reply.stop is Stop.CUT:
        raise Unusable(prompts.CUT)
    calls = reply.turn.calls
    if not calls:
        raise Unusable(prompts.TEXT if reply.turn.text.strip() else prompts.EMPTY)
    if len(calls) > 1:
        raise Unusable(prompts.many(len(calls)))
    return _called(calls[0], kinds)


def _called(call: ToolCall, kinds: Mapping[str, Kind]) -> NewSteps | Answer | Question | GiveUp:
    if call.name != PROPOSE and call.name not in ENDS:
        raise Unusable(prompts.unknown(call.name, nearest(call.name, [PROPOSE, *ENDS]), kinds))
    if call.broken:
        raise Unusable(prompts.broken(call.name, call.broken))
    if call.name == PROPOSE:
        return _parsed(NewSteps, PROPOSE, call.args)
    form, theirs, ours = ENDS[call.name]
    if not call.args.get(theirs):
        raise Unusable(prompts.missing(call.name, theirs))
    return _parsed(form, call.name, {ours: call.args[theirs]})


def _parsed(
    form: type[NewSteps | Answer | Question | GiveUp], name: str, args: Mapping[str, JsonValue]
) -> NewSteps | Answer | Question | GiveUp:
    try:
        proposal = form.model_validate(args)
    except ValidationError as error:
        found = validation.fields(error.errors(include_url=False, include_context=False, include_input=False))
        raise Unusable(prompts.misfit(name, found)) from None
    if isinstance(proposal, NewSteps) and not proposal.steps:
        raise Unusable(prompts.NO_STEPS)
    return proposal
