"""The published model of wasted retries, as a pure function of a seed and its rules.

A published benchmark of 200 simulated tasks compares a ReAct loop, which counts all retries in one counter, with a
fixed workflow. This is that simulation, written from its description: the same draws in the same order, so that the
published seed gives the published figures to the last digit. `expected_react` computes the loop's expectations
without drawing.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

PUBLISHED_SEED = 42
TOKENS_PER_STEP = 200
USD_PER_TOKEN = 3e-6
MAX_STEPS = 10
MAX_RETRIES = 6
"""A ReAct task fails when its counter is above this."""
LOOP_SHARE, LOOP_AFTER = 0.18, 3
ANSWER_SHARE = 0.35
THRESHOLD, RECOVERY, WINS = 3, 5, 2
"""Of a breaker: failures to open, ticks of the clock until a trial call, successes to close."""
BACKOFF_MS = 100.0
"""Of the workflow's one retry: computed by the published program, and charged only if the rules say so."""
JITTER_SECONDS = 0.05
INVALID = "invalid_input"


class Tool(NamedTuple):
    """A simulated tool."""

    base_ms: float
    faults: Sequence[tuple[str, float]]
    """Kinds with their probabilities, in the order in which one draw decides."""


TOOLS: Mapping[str, Tool] = {
    "search": Tool(50, (("transient", 0.112), ("rate_limited", 0.084), ("dependency_down", 0.084))),
    "calculate": Tool(20, ((INVALID, 0.05), ("transient", 0.05))),
    "summarise": Tool(80, (("rate_limited", 0.108), ("dependency_down", 0.072))),
}
NAMES = tuple(TOOLS)
PLANS = (("search", "calculate"), ("search", "summarise"), ("search",)) * 2
"""The tool steps of each of the six types of task; an answer follows."""


@dataclass(frozen=True)
class Rules:
    """What may be varied; the defaults are the published ones."""

    tasks: int = 200
    hallucination: float = 0.28
    burn: int = 3
    """Retries counted for each hallucinated name, although no call is made."""
    fault_scale: float = 1.0
    """Multiplies every fault probability of every tool."""
    charges_backoff: bool = False
    """Whether the workflow's waiting adds to its latency."""


PUBLISHED = Rules()


@dataclass
class Side:
    """What one arm came to over all tasks of one seed."""

    successes: int = 0
    retries: int = 0
    wasted: int = 0
    """Retries that the published program counts as wasted."""
    futile: int = 0
    """Retries that met a breaker which was open and could not close before them."""
    fallbacks: int = 0
    """Tasks whose answer rests on a fallback text."""
    steps: list[int] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    """Milliseconds by task."""
    events: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    """Failed tasks by reason."""

    @property
    def waste(self) -> float:
        """Wasted retries as a share of all."""
        return self.wasted / self.retries if self.retries else 0.0

    @property
    def tokens(self) -> int:
        return TOKENS_PER_STEP * sum(self.steps)

    @property
    def usd(self) -> float:
        return USD_PER_TOKEN * self.tokens

    @property
    def mean_steps(self) -> float:
        return sum(self.steps) / len(self.steps)

    @property
    def sigma(self) -> float:
        """The population's standard deviation of steps."""
        mean = self.mean_steps
        return math.sqrt(sum((steps - mean) ** 2 for steps in self.steps) / len(self.steps))

    @property
    def mean_latency(self) -> float:
        return sum(self.latencies) / len(self.latencies)

    @property
    def p95_latency(self) -> float:
        return sorted(self.latencies)[int(0.95 * len(self.latencies))]


class Sides(NamedTuple):
    """Both arms of one seed."""

    react: Side
    workflow: Side


@dataclass
class _Breaker:
    """The workflow's breaker of one tool."""

    is_open: bool = False
    is_trying: bool = False
    failures: int = 0
    wins: int = 0
    opened_at: int = 0

    def blocks(self, clock: int) -> bool:
        if self.is_open and clock - self.opened_at >= RECOVERY:
            self.is_open, self.is_trying = False, True
        return self.is_open

    def succeeded(self) -> None:
        if not self.is_trying:
            self.failures = max(0, self.failures - 1)
            return
        self.wins += 1
        if self.wins == WINS:
            self.is_trying, self.failures, self.wins = False, 0, 0

    def failed(self, clock: int) -> bool:
        """Whether this failure opens the breaker."""
        self.failures += 1
        self.wins = 0
        opens = not self.is_open and self.failures >= THRESHOLD
        if opens:
            self.is_open, self.is_trying, self.opened_at = True, False, clock
        return opens


def simulate(seed: int, rules: Rules = PUBLISHED) -> Sides:
    """Both arms over all tasks; the same seed and rules give the same result on every machine."""
    # The published program draws the types from a second generator of the same seed.
    types, draws = random.Random(seed), random.Random(seed)  # noqa: S311  # a simulation
    sides = Sides(Side(), Side())
    breakers = {name: _Breaker() for name in NAMES}
    for clock in range(rules.tasks):
        plan = PLANS[int(6 * types.random())]
        _react(draws, rules, sides.react)
        _workflow(draws, rules, sides.workflow, plan, breakers, clock)
    return sides


def _call(draws: random.Random, name: str, scale: float) -> tuple[float, str]:
    """The latency of a call, and the kind of its fault or an empty text."""
    base = TOOLS[name].base_ms
    latency = base + draws.uniform(-0.3 * base, 0.3 * base)
    drawn, limit = draws.random(), 0.0
    for kind, share in TOOLS[name].faults:
        limit += share * scale
        if drawn < limit:
            return latency, kind
    return latency, ""


def _react(draws: random.Random, rules: Rules, side: Side) -> None:
    """One task of the loop: its plan is never looked at."""
    counter, latency = 0, 0.0
    reason = "max_steps_exceeded"
    for step in range(MAX_STEPS):
        wasted = kind = ""
        if draws.random() < rules.hallucination:
            draws.choice(NAMES)  # which bad name
            side.events["hallucination"] += 1
            burnt, wasted, ending = rules.burn, "all", "hallucinated_tool_exhausted_retries"
        elif step >= LOOP_AFTER:
            if draws.random() >= LOOP_SHARE:
                reason = ""
                break
            side.events["loop_detected"] += 1
            continue
        elif draws.random() < ANSWER_SHARE:
            reason = ""
            break
        else:
            took, kind = _call(draws, draws.choice(NAMES), rules.fault_scale)
            if not kind:
                latency += took
                continue
            side.events[kind] += 1
            burnt, wasted, ending = 1, "all" if kind == INVALID else "", f"tool_error_exhausted_retries:{kind}"
        counter += burnt
        side.retries += burnt
        side.wasted += burnt if wasted else 0
        if counter > MAX_RETRIES:
            reason = ending
            break
    side.steps.append(step + 1)
    side.latencies.append(latency)
    side.successes += not reason
    if reason:
        side.failures[reason] += 1


def _workflow(
    draws: random.Random,
    rules: Rules,
    side: Side,
    plan: Sequence[str],
    breakers: Mapping[str, _Breaker],
    clock: int,
) -> None:
    """One task of the workflow: a step that fails is answered by a fallback, so no task can fail."""
    latency, is_fallback = 0.0, False
    for name in plan:
        took = _step(draws, rules, side, name, breakers[name], clock)
        is_fallback |= took.is_fallback
        latency += took.latency
    side.steps.append(len(plan) + 1)
    side.latencies.append(latency)
    side.successes += 1
    side.fallbacks += is_fallback


class _Step(NamedTuple):
    latency: float
    is_fallback: bool


def _step(draws: random.Random, rules: Rules, side: Side, name: str, breaker: _Breaker, clock: int) -> _Step:
    waited = 0.0
    for attempt in range(2):
        if breaker.blocks(clock):
            side.events["circuit_open"] += 1
            side.futile += attempt
        else:
            took, kind = _call(draws, name, rules.fault_scale)
            if not kind:
                breaker.succeeded()
                return _Step(waited + took, False)
            side.events["circuit_open"] += breaker.failed(clock)
            side.events[kind] += 1
            if kind == INVALID:
                break
        if attempt == 0:
            side.retries += 1
            jitter = draws.uniform(0, JITTER_SECONDS)
            waited += (BACKOFF_MS + 1000 * jitter) if rules.charges_backoff else 0.0
    return _Step(waited, True)


class Expected(NamedTuple):
    """The expectations of the ReAct arm, per seed."""

    success: float
    retries: float
    wasted: float
    steps: float
    sigma: float
    tokens: float


def expected_react(rules: Rules = PUBLISHED) -> Expected:
    """Compute the expectations exactly: the loop is a finite Markov chain over step and counter."""
    success = retries = wasted = 0.0
    lengths = defaultdict[int, float](float)
    states: Mapping[int, float] = {0: 1.0}
    for step in range(MAX_STEPS):
        following = defaultdict[int, float](float)
        for counter, share in states.items():
            for chance, burnt, is_wasted, ends in _branches(step, rules):
                weight = share * chance
                retries += weight * burnt
                wasted += weight * burnt * is_wasted
                success += weight * ends
                if ends or counter + burnt > MAX_RETRIES or step == MAX_STEPS - 1:
                    lengths[step + 1] += weight
                else:
                    following[counter + burnt] += weight
        states = following
    mean = sum(length * share for length, share in lengths.items())
    sigma = math.sqrt(sum((length - mean) ** 2 * share for length, share in lengths.items()))
    number = rules.tasks
    return Expected(number * success, number * retries, number * wasted, mean, sigma, number * TOKENS_PER_STEP * mean)


class _Branch(NamedTuple):
    chance: float
    burnt: int
    is_wasted: bool
    is_success: bool


def _branches(step: int, rules: Rules) -> Iterator[_Branch]:
    """What one step of the loop may come to."""
    yield _Branch(rules.hallucination, rules.burn, True, False)
    left = 1 - rules.hallucination
    if step >= LOOP_AFTER:
        yield _Branch(left * LOOP_SHARE, 0, False, False)
        yield _Branch(left * (1 - LOOP_SHARE), 0, False, True)
        return
    yield _Branch(left * ANSWER_SHARE, 0, False, True)
    calls = left * (1 - ANSWER_SHARE) / len(TOOLS)
    for tool in TOOLS.values():
        shares = [(kind, share * rules.fault_scale) for kind, share in tool.faults]
        for kind, share in shares:
            yield _Branch(calls * share, 1, kind == INVALID, False)
        yield _Branch(calls * (1 - sum(share for _, share in shares)), 0, False, False)
