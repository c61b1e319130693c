"""Model APIs that keep a bill for each task, by the table `billing.toml`, and fail at random."""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from activities.providers.billing import Bill, billing
from activities.providers.messages import End, Usage
from activities.providers.prices import PriceList, cost_in_usd
from evals.fakes.model_api import ModelApi, json_answer
from evals.fakes.script import (
    DROPPED,
    Delayed,
    ModelCall,
    ModelError,
    ModelReply,
    RawBytes,
    ReceivedRequest,
    Response,
    Streamed,
    calls,
    finishes,
    proposes,
    step,
)
from tests.providers.planning import APIS, LIMIT, MAKER
from tests.providers.wire import server_error
from workflows.plans.catalogue import Price

TRACE = re.compile(r"trace-(\d+)")
MAX_FAILURES = 3
"""How many requests in a row fail: each is followed by a wait."""
TELLING = {"denied": 1, "overloaded": 2, "counted failure": 1, "reply": 8}
"""How often a request ends in a way whose bill the server tells, or that is certainly not billed."""
RANDOM = {**TELLING, "no answer": 1, "silence": 1, "cut": 3, "stall": 2, "error": 3, "early end": 2, "garbage": 1}

QUICK = {end: odds for end, odds in RANDOM.items() if end not in ("silence", "stall")}
"""Without what a client has to wait for."""
MILD = {"reply": 9, "overloaded": 1, "cut": 1, "error": 1, "stall": 1}
"""For workers that are killed: so few attempts fail that no task waits for the end of an outage."""


@dataclass
class Trace:
    """What one task has asked, and what it was billed."""

    rng: random.Random
    odds: Mapping[str, int]
    """How often each end of a request occurs."""
    tokens: int = 0
    usd: float = 0.0
    requests: int = 0
    untold: int = 0
    """Requests whose bill nobody tells."""
    failures: int = 0
    """Requests that failed, since the last that did not."""
    failed_ends: set[str] = field(default_factory=set)


@dataclass
class Bills:
    """The traces of all tasks, by the number in their texts."""

    provider: str
    price: Price
    odds: Mapping[int, Mapping[str, int]]
    traces: dict[int, Trace] = field(default_factory=dict)
    hidden: int = 0
    """Tokens of hidden reasoning in the current reply."""

    def respond(self, api: ModelApi, heard: ReceivedRequest) -> Response:
        """Answer, or fail, and put what that costs on the bill."""
        number = int(TRACE.findall(heard.all_text)[0])
        trace = self.traces.setdefault(number, Trace(random.Random(number), self.odds[number]))  # noqa: S311
        trace.requests += 1
        limit, reply = int(heard.body[LIMIT[self.provider]]), written(heard, trace.rng)
        self.hidden = trace.rng.randint(0, 400) if getattr(api, "is_reasoning", False) else 0
        told = counted(api, reply)
        whole = len([*api.events(api.reply_body(reply))])
        [end] = trace.rng.choices([*trace.odds], [*trace.odds.values()])
        if trace.failures >= MAX_FAILURES or (end == "counted failure" and end in trace.failed_ends):
            end = "reply"
        trace.failures = 0 if end == "reply" else trace.failures + 1
        trace.failed_ends.add(end)
        events = trace.rng.randrange(1, max(2, whole - 3))
        how, response = self._ended(api, end, reply, events, trace)
        match billing()[how].bill:
            case Bill.REPORTED:
                self._bill(trace, told)
            case Bill.MAXIMUM:
                trace.untold += 1
                # What was written before an error, of which two characters may be a token; else all that is allowed.
                shown = 8 * events // 2
                output = self.hidden + shown if how is End.ERROR_EVENT else trace.rng.randint(0, limit)
                self._bill(trace, replace(told, output=min(limit, output)))
        return response

    def _bill(self, trace: Trace, usage: Usage) -> None:
        trace.tokens += usage.tokens
        trace.usd += cost_in_usd(usage, self.price) or 0.0

    def _ended(self, api: ModelApi, end: str, reply: ModelReply, events: int, trace: Trace) -> tuple[End, Response]:
        error = server_error(self.provider)
        match end:
            case "overloaded":
                return End.REJECTED, ModelError(trace.rng.choice([429, 500, 529]), "overloaded_error")
            case "denied":
                return End.DENIED, Streamed(reply, events=0, then=error)
            case "counted failure":
                body = {"id": "x", **{name: value for name, value in api.reply_body(reply).items() if name == "usage"}}
                return End.COUNTED_FAILURE, RawBytes(json_answer(200, json.dumps(body).encode()))
            case "no answer":
                return End.NO_ANSWER, DROPPED
            case "silence":
                return End.NO_ANSWER, Delayed(60)
            case "cut":
                return End.BROKEN_OFF, Streamed(reply, events=events, then="drop")
            case "stall":
                return End.STALLED, Streamed(reply, events=events, then="stall")
            case "early end":
                return End.BROKEN_OFF, Streamed(reply, events=events)
            case "garbage":
                return End.BROKEN_OFF, Streamed(reply, events=events, then=b"data: 7\n\n")
            case "error":
                return End.ERROR_EVENT, Streamed(reply, events=events, then=error)
            case _:
                return End.REPLY, reply


def counted(api: ModelApi, reply: ModelReply) -> Usage:
    """What the server counts for a reply, in the classes of its price."""
    input_tokens, output = api.usage(reply)
    return Usage(input=input_tokens - 23, output=output, cache_read=3, cache_write=20)


def written(heard: ReceivedRequest, rng: random.Random) -> ModelReply:
    """What a model says that looks up some prices, one after the other, and then answers."""
    words = "It costs 24.50, as the list says. " * rng.randint(1, 30)
    if heard.turn >= 1 + rng.randint(0, 2) or not heard.may_call:
        return finishes(words) if "propose_plan" in heard.tools and heard.may_call else ModelReply(text=words)
    if "propose_plan" in heard.tools:
        return proposes(step(f"price-{heard.turn}", "get_price", sku=f"A-{heard.turn}"))
    return calls(ModelCall("get_price", {"sku": f"A-{heard.turn}"}), text=words)


def billed(provider: str, model: str, odds: Mapping[int, Mapping[str, int]]) -> tuple[ModelApi, Bills]:
    """A server that keeps the bills of tasks, each with the odds of its number."""
    price = PriceList().price_of(f"{MAKER[provider]}:{model}")
    assert price is not None
    bills = Bills(provider, price, odds)
    plain: Any = APIS[provider]

    class Billed(plain):  # type: ignore[misc]  # one of three
        def usage(self, reply: ModelReply) -> tuple[int, int]:
            input_tokens, output = super().usage(reply)
            limit = int(self.bodies[-1].get(LIMIT[provider], 10**6))
            return int(input_tokens), min(limit, int(output) + bills.hidden)

    api: ModelApi = Billed([lambda heard: bills.respond(api, heard)])
    api.model, api.window = model, 500_000
    if provider == "responses":
        api.is_reasoning = not model.startswith("gpt-4.1")  # type: ignore[attr-defined]
    return api, bills
