"""Tables from rows: the mean of each measure with a bootstrap interval, and paired differences from Replan."""

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from activities.providers.prices import MILLION, published_model
from evals.markdown import table
from evals.retry_waste.arms import ARMS
from evals.retry_waste.measures import Row, Verdict

RESAMPLES = 2000
OURS = "replan"
PRICED = "anthropic:claude-sonnet-4-5"
"""At whose input price tokens are counted: nearly all of them are input."""
SHARE, NUMBER, WHOLE = ".0%", ".2f", ",.0f"


class Ratio(NamedTuple):
    """A measure: the sum of one number of all tasks by the sum of another."""

    name: str
    above: Callable[[Row], float]
    below: Callable[[Row], float]
    form: str = NUMBER


def _tasks(row: Row) -> float:
    return 1.0


def _is(verdict: Verdict) -> Callable[[Row], float]:
    return lambda row: row.verdict is verdict


def _results(row: Row) -> float:
    return row.verdict.is_result


@cache
def _cents_per_token() -> float:
    published = published_model(PRICED)
    if published is None:
        raise LookupError(f"There is no price of {PRICED}.")
    return 100 * published.input / MILLION


OUTCOMES = (
    *(Ratio(verdict.value, _is(verdict), _tasks, SHARE) for verdict in Verdict),
    Ratio("duplicates per task", lambda row: row.duplicates, _tasks),
)
RETRIES = (
    Ratio("attempts per task", lambda row: row.calls.attempts, _tasks),
    Ratio("retries per task", lambda row: row.calls.retries, _tasks),
    Ratio("helped", lambda row: row.calls.helped, _tasks),
    Ratio("could have", lambda row: row.calls.possible, _tasks),
    Ratio("could not", lambda row: row.calls.futile, _tasks),
    Ratio("missed", lambda row: row.calls.missed, _tasks),
    Ratio("precision", lambda row: row.calls.retries - row.calls.futile, lambda row: row.calls.retries, SHARE),
    Ratio("recall", lambda row: row.calls.retried, lambda row: row.calls.transient, SHARE),
    Ratio("calls into an outage", lambda row: row.calls.outage, _tasks),
)
COSTS = (
    Ratio("seconds to a result", lambda row: row.own.seconds * _results(row), _results),
    Ratio("model calls per result", lambda row: row.own.model_calls, _results),
    Ratio("tokens per result", lambda row: row.own.tokens, _results, WHOLE),
    Ratio("cents per result", lambda row: row.own.tokens * _cents_per_token(), _results),
    Ratio("replans per task", lambda row: row.own.replans, _tasks),
    Ratio(
        "of tasks with replans, results",
        lambda row: _results(row) * bool(row.own.replans),
        lambda row: bool(row.own.replans),
        SHARE,
    ),
    Ratio("calls made again after their result", lambda row: row.calls.repeated, _tasks),
    Ratio("events", lambda row: row.own.events, _tasks, WHOLE),
    Ratio("kB of history", lambda row: row.own.bytes / 1000, _tasks, ".1f"),
)
COMPARED = (OUTCOMES[0], OUTCOMES[3], OUTCOMES[4], OUTCOMES[5], RETRIES[4], RETRIES[8], COSTS[0], COSTS[2])
TABLES = (
    ("What became of the orders", OUTCOMES),
    ("Retries, as the tape labels them", RETRIES),
    (f"Time and cost, at the input price of {PRICED}", COSTS),
)


class Interval(NamedTuple):
    """A value with the central 95% of its bootstrap; None where there is nothing to divide by."""

    value: float | None
    low: float | None
    high: float | None

    def written(self, form: str, sign: str = "") -> str:
        if self.value is None or self.low is None or self.high is None:
            return "-"
        value, low, high = (format(number, f"{sign}{form}") for number in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"


Sums = Mapping[int, tuple[float, float]]
"""By seed, the sums above and below."""


def _sums(rows: Sequence[Row], ratio: Ratio) -> Sums:
    found = defaultdict[int, list[float]](lambda: [0.0, 0.0])
    for row in rows:
        found[row.seed][0] += ratio.above(row)
        found[row.seed][1] += ratio.below(row)
    return {seed: (above, below) for seed, (above, below) in found.items()}


def _value(sums: Sums, seeds: Sequence[int]) -> float | None:
    above, below = (sum(sums[seed][index] for seed in seeds) for index in (0, 1))
    return above / below if below else None


def _difference(one: Sums, other: Sums, seeds: Sequence[int]) -> float | None:
    mine, theirs = _value(one, seeds), _value(other, seeds)
    return None if mine is None or theirs is None else mine - theirs


def _interval(of: Callable[[Sequence[int]], float | None], seeds: Sequence[int]) -> Interval:
    """Resample whole seeds: tasks of one seed share their weather."""
    dice = random.Random(0)  # noqa: S311  # a bootstrap, no secret
    drawn = [of(dice.choices(seeds, k=len(seeds))) for _ in range(RESAMPLES)]
    values = sorted(value for value in drawn if value is not None)
    if not values:
        return Interval(None, None, None)
    low, high = (values[round(share * (len(values) - 1))] for share in (0.025, 0.975))
    return Interval(of(seeds), low, high)


def mean(rows: Sequence[Row], ratio: Ratio) -> Interval:
    """A measure over all seeds."""
    sums = _sums(rows, ratio)
    return _interval(lambda seeds: _value(sums, seeds), sorted(sums))


def difference(rows: Sequence[Row], others: Sequence[Row], ratio: Ratio) -> Interval:
    """The measure of `rows` minus that of `others`, over the seeds of both."""
    one, other = _sums(rows, ratio), _sums(others, ratio)
    return _interval(lambda seeds: _difference(one, other, seeds), sorted(one.keys() & other.keys()))


def pages(rows: Sequence[Row]) -> Iterator[str]:
    """The report in Markdown, part by part; of any number of seeds so far."""
    by_arm = {name: [row for row in rows if row.arm == name] for name in ARMS if any(row.arm == name for row in rows)}
    seeds = {name: len({row.seed for row in mine}) for name, mine in by_arm.items()}
    counts = "; ".join(f"{name} {number}" for name, number in seeds.items())
    yield f"Seeds: {counts}. A value is followed by the central 95% of its bootstrap over seeds."
    for title, ratios in TABLES:
        yield f"**{title}**"
        lines = [
            [ARMS[name].title, *(mean(mine, ratio).written(ratio.form) for ratio in ratios)]
            for name, mine in by_arm.items()
        ]
        yield table(("arm", *(ratio.name for ratio in ratios)), lines)
    yield "**Seconds** (median, p95, p99)"
    yield table(
        ("arm", "to a verified result", "to an explicit failure", "sigma of calls per task"),
        [_times(name, mine) for name, mine in by_arm.items()],
    )
    if OURS in by_arm and len(by_arm) > 1:
        yield f"**The arm minus {ARMS[OURS].title}**, of the same seeds"
        lines = [
            [ARMS[name].title, *(difference(mine, by_arm[OURS], ratio).written(ratio.form, "+") for ratio in COMPARED)]
            for name, mine in by_arm.items()
            if name != OURS
        ]
        yield table(("arm", *(ratio.name for ratio in COMPARED)), lines)


def _times(name: str, rows: Sequence[Row]) -> Sequence[str]:
    results = [row.own.seconds for row in rows if row.verdict.is_result]
    failures = [row.own.seconds for row in rows if row.verdict is Verdict.FAILED]
    attempts = [row.calls.attempts for row in rows]
    return ARMS[name].title, _quantiles(results), _quantiles(failures), f"{statistics.pstdev(attempts):.2f}"


def _quantiles(values: Sequence[float]) -> str:
    if not values:
        return "-"
    ordered = sorted(values)
    return ", ".join(f"{ordered[min(int(share * len(ordered)), len(ordered) - 1)]:.1f}" for share in (0.5, 0.95, 0.99))
