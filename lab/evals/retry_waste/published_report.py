"""The published figures beside those of many seeds, and what the published model can and cannot show."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from evals.markdown import table
from evals.retry_waste.published import (
    MAX_RETRIES,
    PUBLISHED,
    PUBLISHED_SEED,
    Rules,
    Side,
    Sides,
    expected_react,
    simulate,
)

MAX_ERRORS = 4.0
"""A mean may be this many standard errors from its expectation."""
EVERY_CALL_FAILS = 10.0
"""A scale at which every tool's fault probability is 1."""
SWEEP = {0.05: ("54.7%", "1.28", "100.0%"), 0.15: ("81.4%", "1.42", "98.0%"), 0.28: ("90.8%", "1.36", "89.5%")}
"""The published sweep: by hallucination rate, ReAct's wasted share, sigma, and success."""
RATES = tuple(SWEEP)


class Estimate(NamedTuple):
    """The mean of some values, its standard error, and the central 95% of them."""

    mean: float
    error: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Estimate from two values or more."""
        ordered = sorted(values)
        low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.025, 0.975))
        return cls(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)), low, high)

    @classmethod
    def of_sigma(cls, sides: Sequence[Side]) -> "Estimate":
        """The standard deviation of the steps of all tasks of all seeds, which has no bias of small samples."""
        steps = [count for side in sides for count in side.steps]
        mean = statistics.fmean(steps)
        variance = statistics.fmean((count - mean) ** 2 for count in steps)
        fourth = statistics.fmean((count - mean) ** 4 for count in steps)
        spread = Estimate.of([side.sigma for side in sides])
        error = math.sqrt((fourth - variance**2) / len(steps) / (4 * variance))
        return cls(math.sqrt(variance), error, spread.low, spread.high)


class Measure(NamedTuple):
    """A figure of the published tables."""

    name: str
    of: Callable[[Side], float]
    form: str
    react: float
    """As published; the next alike."""
    workflow: float


def _events(kind: str) -> Callable[[Side], float]:
    return lambda side: side.events[kind]


MEASURES = (
    Measure("success, of 200", lambda side: side.successes, ",.1f", 179, 200),
    Measure("retries", lambda side: side.retries, ",.1f", 513, 80),
    Measure("wasted retries, as it counts them", lambda side: side.wasted, ",.1f", 466, 0),
    Measure("wasted share", lambda side: side.waste, ".1%", 0.908, 0.0),
    Measure("steps per task", lambda side: side.mean_steps, ".3f", 2.88, 2.69),
    Measure("sigma of steps", lambda side: side.sigma, ".3f", 1.36, 0.46),
    Measure("tokens", lambda side: side.tokens, ",.0f", 115_000, 107_400),
    Measure("dollars", lambda side: side.usd, ".4f", 0.3450, 0.3222),
    Measure("mean latency, ms", lambda side: side.mean_latency, ".1f", 43.4, 74.8),
    Measure("P95 latency, ms", lambda side: side.p95_latency, ".1f", 143.3, 146.2),
    Measure("hallucinated names", _events("hallucination"), ",.1f", 155, 0),
    Measure("rate_limited", _events("rate_limited"), ",.1f", 24, 22),
    Measure("dependency_down", _events("dependency_down"), ",.1f", 16, 23),
    Measure("loop_detected", _events("loop_detected"), ",.1f", 8, 0),
    Measure("transient", _events("transient"), ",.1f", 7, 26),
    Measure("circuit_open", _events("circuit_open"), ",.1f", 0, 49),
    Measure("invalid_input", _events("invalid_input"), ",.1f", 1, 0),
)


class Check(NamedTuple):
    """A mean of many seeds against what is expected of it."""

    name: str
    expected: float
    found: Estimate

    @property
    def errors(self) -> float:
        """The distance in standard errors."""
        distance = abs(self.found.mean - self.expected)
        return distance / self.found.error if self.found.error else (math.inf if distance else 0.0)

    @property
    def holds(self) -> bool:
        return self.errors <= MAX_ERRORS


def checks(runs: Sequence[Sides]) -> list[Check]:
    """The figures at the published rate that the model has in expectation."""
    react, workflow = [run.react for run in runs], [run.workflow for run in runs]

    def mean(sides: Sequence[Side], of: Callable[[Side], float]) -> Estimate:
        return Estimate.of([of(side) for side in sides])

    return [
        Check("ReAct success", 177.9, mean(react, lambda side: side.successes)),
        Check("ReAct retries", 515.6, mean(react, lambda side: side.retries)),
        Check("ReAct wasted", 478.9, mean(react, lambda side: side.wasted)),
        Check("ReAct steps", 2.829, mean(react, lambda side: side.mean_steps)),
        Check("ReAct sigma", 1.437, Estimate.of_sigma(react)),
        Check("ReAct tokens", 113_180, mean(react, lambda side: side.tokens)),
        Check("workflow success", 200, mean(workflow, lambda side: side.successes)),
        Check("workflow steps", 2.667, mean(workflow, lambda side: side.mean_steps)),
        Check("workflow sigma", 0.471, Estimate.of_sigma(workflow)),
    ]


Progress = Callable[[Iterable[int]], Iterable[int]]
"""Passes seeds on and shows how far they are."""


class Published(NamedTuple):
    """The model over many seeds."""

    runs: Sequence[Sides]
    """At the published rules, from seed 0."""
    sweep: Mapping[float, Sequence[Sides]]
    """By hallucination rate."""
    charged: Sequence[Sides]
    """With waiting charged."""
    down: Sequence[Sides]
    """With every call failing."""

    @classmethod
    def run(cls, seeds: int, progress: Progress = lambda seeds: seeds) -> "Published":
        """Run every variant over seeds 0, 1, 2, ..."""

        def of(rules: Rules) -> Sequence[Sides]:
            return [simulate(seed, rules) for seed in progress(range(seeds))]

        runs = of(PUBLISHED)
        others = {rate: of(replace(PUBLISHED, hallucination=rate)) for rate in RATES[:-1]}
        return cls(
            runs,
            {**others, RATES[-1]: runs},
            of(replace(PUBLISHED, charges_backoff=True)),
            of(replace(PUBLISHED, fault_scale=EVERY_CALL_FAILS)),
        )

    @property
    def checks(self) -> list[Check]:
        return checks(self.runs)

    def pages(self) -> Iterator[str]:
        """The report in Markdown, part by part."""
        number = f"{len(self.runs):,} seeds"
        yield f"**The published figures, at its seed and over {number}** (mean ± standard error [central 95% of seeds])"
        yield self._figures()
        yield f"**Expectations** (a mean of {number} may be {MAX_ERRORS:g} standard errors away)"
        yield table(
            ("figure", "expected", "found", "standard errors away", ""),
            [
                (
                    check.name,
                    f"{check.expected:,g}",
                    f"{check.found.mean:,.3f} ± {check.found.error:.3f}",
                    f"{check.errors:.2f}",
                    "holds" if check.holds else "**fails**",
                )
                for check in self.checks
            ],
        )
        yield "**The published sweep of hallucination rates** (published, then the mean of all seeds)"
        yield self._sweep()
        yield "**What the model supports, and what it builds in**"
        yield table(("conclusion", "verdict", "why"), self.conclusions())

    def _figures(self) -> str:
        ours = simulate(PUBLISHED_SEED)
        rows = []
        for measure in MEASURES:
            row = [measure.name]
            for arm, published in (("react", measure.react), ("workflow", measure.workflow)):
                found = Estimate.of([measure.of(getattr(run, arm)) for run in self.runs])
                row.append(_plain(published, measure.form))
                row.append(_plain(measure.of(getattr(ours, arm)), measure.form))
                mean, error, low, high = (format(value, measure.form) for value in found)
                row.append(f"{mean} ± {error} [{low}, {high}]" if found.error else mean)
            rows.append(row)
        seed = f"seed {PUBLISHED_SEED}"
        arms = ("ReAct", "workflow")
        head = [f"{arm} {what}" for arm in arms for what in ("published", seed, "all seeds")]
        return table(("figure", *head), rows)

    def _sweep(self) -> str:
        rows = []
        for rate, runs in self.sweep.items():
            react = [run.react for run in runs]
            found = (
                f"{statistics.fmean(side.waste for side in react):.1%}",
                f"{Estimate.of_sigma(react).mean:.2f}",
                f"{statistics.fmean(side.successes for side in react) / PUBLISHED.tasks:.1%}",
            )
            rows.append((f"{rate:.0%}", *(f"{old}; {new}" for old, new in zip(SWEEP[rate], found, strict=True))))
        return table(("hallucination", "ReAct wasted", "ReAct sigma", "ReAct success"), rows)

    def conclusions(self) -> list[tuple[str, str, str]]:
        """Each published conclusion, whether it follows from the model, and the figures that say so."""
        waste = {burn: _waste(replace(PUBLISHED, burn=burn)) for burn in (3, 2, 1, 0)}
        one = expected_react(replace(PUBLISHED, burn=1))
        calm = expected_react(replace(PUBLISHED, hallucination=0.0))
        workflow, down = [run.workflow for run in self.runs], [run.workflow for run in self.down]
        late = statistics.fmean(run.workflow.p95_latency for run in self.charged)
        tokens = [statistics.fmean(side.tokens for side in sides) for sides in zip(*self.runs, strict=True)]
        retries, futile, fallbacks = (
            statistics.fmean(getattr(side, name) for side in workflow) for name in ("retries", "futile", "fallbacks")
        )
        rarely = expected_react(replace(PUBLISHED, hallucination=RATES[0]))
        return [
            (
                "ReAct wastes nine in ten of its retries",
                "direction supported, size built in",
                f"A hallucinated name is counted as {PUBLISHED.burn} retries, though no call is made:"
                f" {waste[3]:.1%} wasted. Counted as 2, 1 or 0 it is {waste[2]:.1%}, {waste[1]:.1%} or {waste[0]:.1%}."
                " No call is ever repeated in this arm.",
            ),
            (
                "the workflow wastes none",
                "built in",
                f"Its counter of wasted retries is never increased. Of its {retries:.1f} retries, {futile:.1f} meet a"
                " breaker that is open on a clock that has not moved: they are certain to fail, and counted as useful.",
            ),
            (
                "the workflow always succeeds",
                "built in",
                f"Every step has a fallback text. With every call failing it still succeeds in"
                f" {statistics.fmean(side.successes for side in down):.0f} of {PUBLISHED.tasks} tasks; at the published"
                f" rates {fallbacks:.1f} of its answers rest on a fallback.",
            ),
            (
                "the workflow never hallucinates a name",
                "built in",
                "No hallucination is drawn in this arm: its plans are given, and no model proposes them.",
            ),
            (
                "nearly all failures of ReAct come from hallucinated names",
                "supported, given the constant",
                f"Three of them exceed the budget of {MAX_RETRIES}. Counted as one retry each,"
                f" {PUBLISHED.tasks - one.success:.1f} of {PUBLISHED.tasks} tasks fail instead of"
                f" {PUBLISHED.tasks - expected_react().success:.1f}.",
            ),
            (
                "the workflow's steps vary three times less",
                "built in",
                "Its steps are the lengths of the given plans (sigma √2/3 = 0.471 at all rates). ReAct's vary because"
                f" it answers with probability 0.35 at each step: without any hallucination sigma is {calm.sigma:.3f}.",
            ),
            (
                "at 5% hallucination the success rate hides the waste",
                "direction supported, size built in",
                f"Success {rarely.success / PUBLISHED.tasks:.1%}, waste {rarely.wasted / rarely.retries:.1%}. A success"
                " is an answer, whether or not a tool ever returned anything.",
            ),
            (
                "P95 latency is the same",
                "built in",
                "Failed calls, waiting and model calls take no time. With its computed waiting charged, the workflow's"
                f" P95 is {late:.0f} ms.",
            ),
            (
                "the workflow costs fewer tokens",
                "built in",
                f"{1 - tokens[1] / tokens[0]:.1%} fewer, at 200 tokens a step in both arms, though the workflow calls"
                " no model, and making its plan costs nothing.",
            ),
        ]


def _waste(rules: Rules) -> float:
    expected = expected_react(rules)
    return expected.wasted / expected.retries


def _plain(value: float, form: str) -> str:
    return format(value, form.replace(".1f", ".0f") if value == int(value) else form)
