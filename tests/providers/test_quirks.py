"""Quirks of servers of the user's own: each task is done, with the right calls, once each."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.planning.fallback import FallbackPlanner
from activities.planning.model_planner import ModelPlanner
from activities.providers.messages import Reply, StopReason
from evals.fakes.local_servers import TEXT_FORMS, THOUGHT, LocalServer, Quirk
from evals.fakes.model_api import MODEL, running
from evals.fakes.script import (
    DROPPED,
    ModelCall,
    ModelError,
    ModelReply,
    ReceivedRequest,
    Response,
    asks,
    calls,
    finishes,
    gives_up,
    proposes,
    step,
)
from runtime.dev_server import DevServer
from tests.gate import sampled
from tests.harness import outcome, staged
from tests.providers.acting import reacting
from tests.providers.asking import ASKED, request
from tests.providers.desk import TOOLS
from tests.providers.planning import CUT_OFF, PROVIDERS, adapter_of, api_of, model_of, other
from tests.providers.plates import read_plate
from tests.providers.test_react import shopper
from tests.providers.test_react_crash import DESK, Workers, begun, booking, dead, planning
from tests.providers.test_textual import CALLED, served
from workflows.account.records import StepStatus
from workflows.account.task import Task, TaskStatus
from workflows.limits.budget import Limits


def planner(heard: ReceivedRequest) -> Response:
    """The same task as a plan."""
    if heard.turn:
        return finishes("26.50 in all")
    prices = [{"$from": "one", "path": "amount"}, {"$from": "two", "path": "amount"}]
    looks = [step(id, "get_price", sku=sku) for id, sku in (("one", "A-17"), ("two", "B-2"))]
    return proposes(*looks, step("sum", "add", amounts=prices))


MODELS = {"plan": planner, "react": shopper}
QUIRKS = {f"{quirk}, {strategy}": (quirk, strategy) for quirk in Quirk for strategy in MODELS}


@pytest.mark.parametrize(("quirk", "strategy"), sampled(QUIRKS, *[f"{quirk}, react" for quirk in Quirk][:3]))
async def test_a_task_is_done_in_spite_of_a_quirk(client: Client, tmp_path: Path, quirk: Quirk, strategy: str) -> None:
    """Three calls, once each, and no request more than at the provider's own server."""
    server = LocalServer([MODELS[strategy]], quirks=frozenset([quirk]))
    async with served(client, tmp_path, server) as stage:
        task = Task(text="what do A-17 and B-2 cost together?", strategy=strategy, limits=Limits(replans=5))
        ended = await stage.run(task)
    called = [(one.kind, one.args, one.attempts) for one in ended.steps]

    assert (ended.status, ended.result) == (TaskStatus.COMPLETED, "26.50 in all"), ended.reason
    assert called == [(*one, 1) for one in CALLED]
    assert (len(server.bodies), server.violations) == (3 if strategy == "react" else 2, [])


async def replied(quirk: Quirk, reply: ModelReply) -> Reply:
    """One reply of a server with this quirk."""
    async with running(LocalServer([reply], quirks=frozenset([quirk]))) as server:
        return await adapter_of("openai", server).reply(request(ASKED))


PAIR = calls(ModelCall("weather", {"place": "Paris"}), ModelCall("weather", {"place": "Paris"}), text="Both.")


@pytest.mark.parametrize("quirk", Quirk)
async def test_equal_calls_stay_two(quirk: Quirk) -> None:
    reply = await replied(quirk, PAIR)
    called = [(call.name, call.args, call.broken) for call in reply.turn.calls]

    assert called == [("weather", {"place": "Paris"}, "")] * 2
    assert (reply.turn.text, reply.stop is StopReason.CUT) == ("Both.", False)


@pytest.mark.parametrize("quirk", [Quirk.THINKS, Quirk.THINKS_UNOPENED, Quirk.REASONING])
async def test_reasoning_is_kept_beside_the_answer(quirk: Quirk) -> None:
    reply = await replied(quirk, ModelReply(text="Rome."))

    assert (reply.turn.text, reply.turn.aside) == ("Rome.", THOUGHT)


KILLED = {
    **{str(quirk): ("react", {"quirks": frozenset([quirk])}) for quirk in Quirk},
    **{f"{quirk}, a plan": ("plan", {"quirks": frozenset([quirk])}) for quirk in Quirk},
    **{f"calls as text, {form}": ("react", {"form": form, "rejects_tools": True}) for form in TEXT_FORMS},
}


@pytest.mark.parametrize("point", ["plan=die@before_commit:1", "book=die@after_commit:1"])
@pytest.mark.parametrize(("strategy", "options"), sampled(KILLED, "calls as text, ReAct"))
@pytest.mark.timeout(180)
async def test_a_task_survives_a_worker_that_dies(
    client: Client, server: DevServer, tmp_path: Path, strategy: str, options: dict[str, Any], point: str
) -> None:
    """After the model's reply and after an effect: what was recorded is not asked or done again."""
    model, ids = (booking, ("t1.c0", "t2.c0")) if strategy == "react" else (planning, ("slot-0", "slot-1"))
    async with running(LocalServer([model], model=MODEL, **options)) as api:
        workers = Workers(server.address, tmp_path, "openai", api, DESK)
        with workers.one(point) as first:
            task = reacting("book a slot").model_copy(update={"strategy": strategy})
            handle = await begun(client, workers.queue, task)
            await dead(first)
        with workers.one():
            ended = await outcome(handle)
    asked = [body for body in api.bodies if not (options.get("rejects_tools") and "tools" in body)]

    assert (ended.status, ended.result, api.violations) == (TaskStatus.COMPLETED, "At 14:30.", []), ended.reason
    assert [(one.id, one.args, one.status) for one in ended.steps] == [
        (ids[0], {"at": "14:00"}, StepStatus.FAILED),
        (ids[1], {"at": "14:30"}, StepStatus.COMPLETED),
    ]
    assert len(asked) == (4 if point.startswith("plan") else 3) and ended.spent.tool_calls >= 3


# Whatever a model says and a provider does, in whatever order: the protocol is kept, limits hold, the task ends


SOON = {"retry-after-ms": "20"}
GOOD: tuple[Callable[[int], tuple[str, dict[str, Any]]], ...] = (
    lambda number: ("book", {"at": f"{number % 24:02}:00"}),
    lambda number: ("get_price", {"sku": f"A-{number}"}),
    lambda number: ("read_plate", {"number": number}),
    lambda number: ("read_page", {"sku": "A-17"}),
)
NAMES = ("book", "get_price", "add", "read_plate", "list_free", "functions.book", "a b", "", "bok", "x" * 90, "ask")
WRONG: dict[str, Any] = {"at": {"$from": "t1.c0"}, "sku": None, "number": "one", "amounts": [[]], "question": "Why?"}


CUT_WORDS = {"input": CUT_OFF["responses"], "max_tokens": CUT_OFF["anthropic"], "messages": CUT_OFF["openai"]}
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
            said = [ModelReply(text="That is all."), ModelReply(text="A summary."), ModelReply()]
            return self._random.choice([*said, ModelReply(refusal="No.")])
        which = self._random.random()
        if which < 0.7:
            return self._planned() if "propose_plan" in heard.tools else self._acted()
        return self._mistake(heard) if which < 0.85 else self._end()

    def _failure(self) -> Response:
        broken, busy = ModelError(500, "api_error", headers=SOON), ModelError(429, "rate_limit_error", headers=SOON)
        cured: list[Response] = [DROPPED, broken, busy]
        fatal = [] if self._usable else [ModelError(401, "authentication_error", code="invalid_api_key")] * 3
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
        cut = ModelReply(self._calls(), stop=next(word for field, word in CUT_WORDS.items() if field in heard.body))
        empty = [ModelReply(), ModelReply(text=" "), ModelReply(refusal="No.")]
        return self._random.choice([*empty, cut, ModelReply(self._calls()), proposes()])

    def _end(self) -> Response:
        return self._random.choice([ModelReply(text="Done."), finishes("Done."), asks("Who?"), gives_up("No way.")])


def _args(call: ModelCall) -> dict[str, Any]:
    return {} if isinstance(call.args, str) else dict(call.args)


SEEDS = range(6)
"""A few; thousands were tried."""
ANYTHING = {
    f"{provider}-{seed}-{strategy}": (provider, seed, strategy)
    for provider in PROVIDERS
    for seed in SEEDS
    for strategy in ("plan", "react")
}
QUICKLY = [
    *("anthropic-3-plan", "anthropic-0-react", "openai-0-plan", "openai-4-react"),
    *("responses-4-plan", "responses-4-react"),
]


@pytest.mark.parametrize(("provider", "seed", "strategy"), sampled(ANYTHING, *QUICKLY))
@pytest.mark.timeout(120)
async def test_the_protocol_is_kept_whatever_is_said(
    client: Client, tmp_path: Path, provider: str, seed: int, strategy: str
) -> None:
    """No rule is broken, no limit passed, no id used twice; the task ends in one of its ways."""
    first, second = api_of(provider, AnyModel(seed, usable=False)), api_of(other(provider), AnyModel(seed + 1))
    first.repeats_ids, first.window, second.window = provider != "anthropic", 9_000, 9_000
    async with running(first), running(second):
        planners = [
            ModelPlanner(model_of(provider, first)),
            ModelPlanner(model_of(other(provider), second), window=9_000),
        ]
        async with staged(client, tmp_path, (*TOOLS, read_plate), FallbackPlanner(planners)) as stage:
            limits = Limits(tool_calls=25, replans=20, tokens=400_000)
            ended = await outcome(await stage.start(Task(text="do what you like", strategy=strategy, limits=limits)))
    ids = [one.id for one in ended.steps]

    assert first.violations + second.violations == []
    assert len(ids) == len({*ids}) and ended.spent.tool_calls <= 25 and ended.spent.tokens <= 400_000
    assert ended.status in TaskStatus and ended.code != "bug", ended.reason
