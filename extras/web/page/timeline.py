"""The timeline of a task: a lane for each step, the planner and each request to a person, with bars for an SVG."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from client import tree
from client.history.records import CONVERSING, Call
from client.history.story import RecordedRequest, Story
from client.text import one_line
from client.wording import count
from workflows import ids
from workflows.faults.fault import Code
from workflows.plans import own_activities

WIDTH = 1000.0
"""Units of the drawing from the start of the task to its end, or to now."""
PLANNER = "planner"
"""The name of the lane with the calls of the planner."""
LEAST = 6.0
"""The least units of a bar, so that a call of some milliseconds is seen."""
MAX_LANES = 60
MANY_LANES = 20
"""With more lanes than this, the lanes are drawn close together."""
LEGEND: Mapping[str, str] = {
    "completed": "done",
    "failed": "failed",
    "running": "runs",
    "cancelled": "cancelled",
    "earlier": "earlier attempts, waits",
    "planner": "planner, observations",
    "person": "people",
    "undo": "undo",
}
"""By the class of a bar, what its colour means."""
IDLE_SHARE = 0.35
"""A time in which no call runs is drawn as at most this share of the time in which calls run."""


class Bar(NamedTuple):
    """A bar of a lane; `x` and `width` are units of the drawing, which is WIDTH units wide."""

    x: float
    width: float
    look: str
    """The class in the style sheet."""
    label: str
    """What the bar stands for, in words."""


class Lane(NamedTuple):
    name: str
    took: str
    began: str
    """When the lane begins, in words, for readers who do not see the bars."""
    bars: Sequence[Bar]


class Timeline(NamedTuple):
    lanes: Sequence[Lane]
    omitted: int
    """How many lanes of a long task are left out: those of the oldest steps."""
    is_shortened: bool
    """Whether waits are drawn shorter than they were."""

    @property
    def is_dense(self) -> bool:
        return len(self.lanes) > MANY_LANES

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The classes of the bars that are drawn, each with its meaning."""
        drawn = {bar.look for lane in self.lanes for bar in lane.bars}
        return [(look, label) for look, label in LEGEND.items() if look in drawn]


class _Span(NamedTuple):
    lane: str
    start: datetime
    end: datetime
    look: str
    label: str
    is_idle: bool = False
    """Whether no call runs in this time, such as while the task waits for a person."""


def timeline_of(story: Story, now: datetime) -> Timeline:
    """The timeline as far as the history has it; bars of what has not ended go up to `now`."""
    spans = sorted([*_calls(story, now), *_requests(story.requests, now)], key=lambda span: span.start)
    if not spans:
        return Timeline((), 0, is_shortened=False)
    scale = _Scale(spans, min(story.history.started_at or spans[0].start, spans[0].start))
    lanes = dict[str, list[_Span]]()
    for span in spans:
        lanes.setdefault(span.lane, []).append(span)
    drawn = [_lane(name, found, scale) for name, found in lanes.items()]
    omitted = max(0, len(drawn) - MAX_LANES)
    # The lane of the planner begins first, and goes through the whole task.
    planner, steps = [lane for lane in drawn if lane.name == PLANNER], [lane for lane in drawn if lane.name != PLANNER]
    return Timeline([*planner, *steps[omitted:]] if omitted else drawn, omitted, scale.is_shortened)


def _lane(name: str, spans: Sequence[_Span], scale: "_Scale") -> Lane:
    start, end = spans[0].start, max(span.end for span in spans)
    bars = [scale.bar(span) for span in spans]
    took = tree.duration((end - start).total_seconds())
    last = spans[-1]
    calls = sum(span.look not in ("earlier", "person") for span in spans)
    label = last.label if calls < 2 else f"{count(calls, 'call')}, the last {last.label}"
    began = tree.duration((start - scale.start).total_seconds(), digits=1)
    return Lane(one_line(name), f"{label}, {took}", f"begins {began} after the start", bars)


def _calls(story: Story, now: datetime) -> Iterable[_Span]:
    for call in story.history.calls:
        # The lane of the request shows it: the call was not made, also one that checked the arguments of an edit.
        is_only_asked = call.failing is not None and call.failing.code is Code.NEEDS_APPROVAL
        if is_only_asked or (call.is_own and call.kind not in CONVERSING):
            continue
        lane, end = _lane_of(call), call.ended_at or now
        look = str(call.closed) if call.closed else "running"
        if call.is_own or call.is_observation or call.is_reconcile:
            look = "planner" if look == "completed" else look
        if call.is_undo and look == "completed":
            look = "undo"
        begun = max(call.at, min(call.started_at or call.at, end))
        pending = story.history.pending.get(call.id)
        attempts = call.attempt or (pending.attempt if pending and not call.closed else 0)
        if (begun - call.at).total_seconds() > 0.05:
            what = f"{count(attempts - 1, 'earlier attempt')} and the waits between" if attempts > 1 else "waits"
            yield _Span(lane, call.at, begun, "earlier", what)
        attempt = f"attempt {attempts} " if attempts > 1 else ""
        yield _Span(lane, begun, end, look, f"{attempt}{'runs' if look == 'running' else str(call.closed)}")


def _lane_of(call: Call) -> str:
    if call.is_own:
        return "summary" if call.kind == own_activities.COMPACT.kind else PLANNER
    return f"undo {call.step}" if call.id.startswith(ids.UNDO) else call.step


def _requests(requests: Sequence[RecordedRequest], now: datetime) -> Iterable[_Span]:
    for asked in requests:
        request, lane, since = asked.request, f"a person ({asked.request.id})", asked.request.since
        for answer in [*request.endorsed, *([request.answer] if request.answer else [])]:
            label = f"{one_line(answer.by) or 'a person'}: {answer.choice.value}"
            yield _Span(lane, since, max(since, answer.at), "person", label, is_idle=True)
            since = max(since, answer.at)
        if request.answer is None:
            end = request.until if request.closed and request.until < now else now
            label = request.closed or ("waits for another answer" if request.endorsed else "waits for an answer")
            yield _Span(lane, since, max(since, end), "person", label, is_idle=True)


class _Scale:
    """Places times in the drawing: times in which no call runs are shortened, so that a wait of days hides no call."""

    def __init__(self, spans: Sequence[_Span], start: datetime) -> None:
        self.start = start
        points = sorted({start, *(span.start for span in spans), *(span.end for span in spans)})
        busy = [(span.start, span.end) for span in spans if not span.is_idle]
        pieces = [
            (a, (b - a).total_seconds(), any(begin <= a and b <= end for begin, end in busy))
            for a, b in itertools.pairwise(points)
        ]
        most = IDLE_SHARE * sum(seconds for _, seconds, is_busy in pieces if is_busy) or float("inf")
        self.is_shortened = any(seconds > most and not is_busy for _, seconds, is_busy in pieces)
        self._at, total = {start: 0.0}, 0.0
        for (_, seconds, is_busy), point in zip(pieces, points[1:], strict=True):
            total += seconds if is_busy else min(seconds, most)
            self._at[point] = total
        self._unit = WIDTH / total if total else 0.0

    def bar(self, span: _Span) -> Bar:
        left, right = (self._at[moment] * self._unit for moment in (span.start, span.end))
        width = max(LEAST, right - left)
        return Bar(round(min(left, WIDTH - width), 1), round(width, 1), span.look, span.label)
