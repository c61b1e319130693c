"""Whatever a model says and a provider does, in whatever order: the protocol is kept, limits hold, the task ends."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from evals.fakes.model_api import running
from evals.fakes.script import (
    DROPPED,
    ModelCall,
    ModelError,
    ModelReply,
    ReceivedRequest,
    Response,
    asks,
    finishes,
    gives_up,
    proposes,
    step,
)
from tests.gate import sampled
from tests.harness import outcome, staged
from tests.providers.desk import TOOLS
from tests.providers.planning import CUT_OFF, PROVIDERS, api_of, model_of
from tests.providers.plates import read_plate
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import Limits

SOON = {"retry-after-ms": "20"}
GOOD: tuple[Callable[[int], tuple[str, dict[str, Any]]], ...] = (
    lambda number: ("book", {"at": f"{number % 24:02}:00"}),
    lambda number: ("get_price", {"sku": f"A-{number}"}),
    lambda number: ("read_plate", {"number": number}),
    lambda number: ("read_page", {"sku": "A-17"}),
)
NAMES = ("book", "get_price", "add", "read_plate", "list_free", "functions.book", "a b", "", "bok", "x" * 90, "ask")
WRONG: dict[str, Any] = {"at": {"$from": "t1.c0"}, "sku": None, "number": "one", "amounts": [[]], "question": "Why?"}


LIMITS = {"input": CUT_OFF["responses"], "max_tokens": CUT_OFF["anthropic"], "messages": CUT_OFF["openai"]}
"""The word for a reply that was cut off, by a field that tells the API of a request."""


class AnyModel:
    """A model that says anything, the same for the same seed."""

    def __init__(self, seed: int, *, usable: bool = True) -> None:
        """One that is not usable refuses its key now and then."""
        self._random = random.Random(seed)  # noqa: S311 - no secret depends on it
        self._usable = usable

    def __call__(self, heard: ReceivedRequest) -> Response:
        """Say or fail."""
        if self._random.random() < 0.08:
            return self._failure()
        if not heard.may_call:
            return self._random.choice(
                [
                    ModelReply(text="That is all."),
                    ModelReply(text="A summary."),
                    ModelReply(),
                    ModelReply(refusal="No."),
                ]
            )
        which = self._random.random()
        if which < 0.7:
            return self._planned() if "propose_plan" in heard.tools else self._acted()
        return self._mistake(heard) if which < 0.85 else self._end()

    def _failure(self) -> Response:
        cured: list[Response] = [
            DROPPED,
            ModelError(500, "api_error", headers=SOON),
            ModelError(429, "rate_limit_error", headers=SOON),
        ]
        fatal: list[Response] = (
            [] if self._usable else [ModelError(401, "authentication_error", code="invalid_api_key")] * 3
        )
        return self._random.choice([*cured, *fatal])

    def _call(self) -> ModelCall:
        """Mostly one that can be made."""
        if self._random.random() < 0.8:
            return ModelCall(*self._random.choice(GOOD)(self._random.randrange(1, 30)))
        kept = {name: value for name, value in WRONG.items() if self._random.random() < 0.6}
        return ModelCall(self._random.choice(NAMES), kept)

    def _calls(self) -> tuple[ModelCall, ...]:
        return tuple(self._call() for _ in range(self._random.randint(1, 3)))

    def _acted(self) -> ModelReply:
        thinking, text = self._random.choice(["Hm.", ""]), self._random.choice(["", "I try."])
        return ModelReply(self._calls(), text=text, thinking=thinking)

    def _planned(self) -> ModelReply:
        names = [f"s{self._random.randrange(60)}" for _ in range(3)]
        made = zip(names, self._calls(), strict=False)
        return proposes(*(step(name, call.name, *self._needs(names), **_args(call)) for name, call in made))

    def _needs(self, names: list[str]) -> list[str]:
        return self._random.sample(names, self._random.choice([0, 0, 1]))

    def _mistake(self, heard: ReceivedRequest) -> Response:
        cut = ModelReply(self._calls(), stop=next(word for field, word in LIMITS.items() if field in heard.body))
        return self._random.choice(
            [ModelReply(), ModelReply(text=" "), ModelReply(refusal="No."), cut, ModelReply(self._calls()), proposes()]
        )

    def _end(self) -> Response:
        return self._random.choice([ModelReply(text="Done."), finishes("Done."), asks("Who?"), gives_up("No way.")])


def _args(call: ModelCall) -> dict[str, Any]:
    return {} if isinstance(call.args, str) else dict(call.args)


SEEDS = range(6)
"""A few; thousands were tried."""
CASES = {
    f"{provider}-{seed}-{strategy}": (provider, seed, strategy)
    for provider in PROVIDERS
    for seed in SEEDS
    for strategy in ("plan", "react")
}
QUICK = (
    "anthropic-3-plan",
    "anthropic-0-react",
    "openai-0-plan",
    "openai-4-react",
    "responses-4-plan",
    "responses-4-react",
)


@pytest.mark.parametrize(("provider", "seed", "strategy"), sampled(CASES, *QUICK))
@pytest.mark.timeout(120)
async def test_the_protocol_is_kept_whatever_is_said(
    client: Client, tmp_path: Path, provider: str, seed: int, strategy: str
) -> None:
    """No rule is broken, no limit passed, no id used twice; the task ends in one of its ways."""
    other = next(name for name in PROVIDERS if name != provider)
    first, second = api_of(provider, AnyModel(seed, usable=False)), api_of(other, AnyModel(seed + 1))
    first.repeats_ids, first.window, second.window = provider != "anthropic", 9_000, 9_000
    async with running(first), running(second):
        planners = [ModelPlanner(model_of(provider, first)), ModelPlanner(model_of(other, second), window=9_000)]
        async with staged(client, tmp_path, (*TOOLS, read_plate), FallbackPlanner(planners)) as stage:
            limits = Limits(tool_calls=25, replans=20, tokens=400_000)
            ended = await outcome(await stage.start(Task(text="do what you like", strategy=strategy, limits=limits)))
    ids = [one.id for one in ended.steps]

    assert first.violations + second.violations == []
    assert len(ids) == len({*ids}) and ended.spent.tool_calls <= 25 and ended.spent.tokens <= 400_000
    assert ended.status in TaskStatus and ended.code != "bug", ended.reason
