"""Steps ask the next model where one cannot be used, and a failure names everybody who was asked."""

from typing import Any

import pytest

from activities.boundary.attempt import FaultRaised
from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from activities.providers.fallback import FallbackModel
from activities.providers.messages import Request, UserTurn
from evals.fakes.model_api import running
from evals.fakes.script import ModelError, ModelReply
from tests.activities.situations import KINDS, asked
from tests.providers.planning import MAKER, PROVIDERS, api_of, model_of, planning
from workflows.faults.fault import Code

WRONG_KEY = {
    "anthropic": ModelError(401, "authentication_error"),
    "openai": ModelError(401, "invalid_request_error", code="invalid_api_key"),
}
QUESTION = Request("Answer.", (), (UserTurn("What is it?"),))


def other(provider: str) -> str:
    """The other one."""
    return next(name for name in PROVIDERS if name != provider)


async def test_the_next_model_answers(provider: str) -> None:
    """One request to the one that cannot be used; each time, so that a key which was mended is used at once."""
    async with (
        running(api_of(provider, WRONG_KEY[MAKER[provider]])) as first,
        running(api_of(other(provider), ModelReply(text="Noon."))) as second,
    ):
        model = FallbackModel([model_of(provider, first), model_of(other(provider), second)])
        replies = [await model.reply(QUESTION) for _ in range(2)]

    assert [reply.turn.text for reply in replies] == ["Noon.", "Noon."]
    assert (len(first.bodies), len(second.bodies)) == (2, 2)


async def test_what_time_cures_is_waited_for(provider: str) -> None:
    """That is Temporal's work; nobody else is asked."""
    async with (
        running(api_of(provider, ModelError(503, "server_error"))) as first,
        running(api_of(other(provider), ModelReply(text="Noon."))) as second,
    ):
        with pytest.raises(Exception, match="503"):
            await FallbackModel([model_of(provider, first), model_of(other(provider), second)]).reply(QUESTION)

    assert len(second.bodies) == 0


LATER: dict[str, tuple[ModelError, Code]] = {
    "busy": (ModelError(429, "rate_limit_error", headers={"retry-after": "7"}), Code.RATE_LIMITED),
    "not allowed": (ModelError(403, "permission_error"), Code.FORBIDDEN),
}


@pytest.mark.parametrize(("move", "code"), LATER.values(), ids=LATER)
async def test_a_failure_names_who_could_not_be_used_before(move: ModelError, code: Code) -> None:
    """Else a person would mend the second key and never hear of the first."""
    async with planning("openai", WRONG_KEY["openai"]) as (_, broken), planning("anthropic", move) as (_, late):
        with pytest.raises(FaultRaised) as raised:
            await FallbackPlanner([broken, late]).propose(asked("book a slot"), KINDS)
    fault = raised.value.fault

    assert fault.code is code and fault.retry_after == (7.0 if code is Code.RATE_LIMITED else None)
    assert f"Also {broken.name} could not be used (unauthorized)" in fault.reason


async def test_one_planner_alone_fails_as_it_does() -> None:
    """There is nobody to name."""
    async with planning("anthropic", ModelError(403, "permission_error")) as (_, only):
        planners: list[Any] = [only]
        with pytest.raises(Exception) as raised:  # which class is the SDK's business
            await FallbackPlanner(planners).propose(asked("book a slot"), KINDS)

    assert not isinstance(raised.value, FaultRaised) and isinstance(only, ModelPlanner)
