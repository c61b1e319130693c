"""Adds up the records of histories: retries by their result, calls by type of activity, and findings."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from pydantic import BaseModel

from activities.borders.described import PROVES
from activities.borders.meaning import Effect, Next, follows
from activities.borders.table import Proof
from client.history.records import CallEnd
from extras.audit.errors import Diagnosis, fault_of
from extras.audit.findings import FINDINGS, Finding, FoundPlace, findings_in, ran_again_after_unknown_outcome
from extras.audit.record import AuditedCall, AuditedHistory, Recording
from extras.audit.sources import Begin, Item, UnreadableHistory
from extras.audit.tools import Confidence

MAX_PLACES = 50
"""The most places of a finding that a report keeps for each confidence; all are counted."""
MAX_UNREADABLE = 50
"""The most unreadable histories that a report names."""
MAX_ACTIVITIES = 1000
"""The most types of activities that are counted apart; the calls of others are counted as OTHERS."""
OTHERS = "(others)"
UNKNOWN_OUTCOME = "unknown outcome"
Sort = Literal["helped", "could_have", "could_not", "not_known"]
Spared = Literal["spared", "spared_doubtful", "spared_helped", "left"]
"""What `replan.FaultsPlugin` would have made of a retry; ActivityCount says more of each."""


class FindingExample(BaseModel, frozen=True):
    """Where a finding holds: a history and its events."""

    history: str
    """The file, or the id of the workflow on a server."""
    workflow_id: str
    run_id: str
    workflow: str
    """The type of the workflow."""
    events: tuple[int, ...]
    confidence: Confidence
    detail: str
    activity: str
    args: str
    times: int
    instead: str


class FindingCount(BaseModel, frozen=True):
    """A finding, with its places."""

    name: str
    group: str
    sentence: str
    remedy: str
    page: str
    """The place in the docs that says how the finding is decided, and when it is wrong."""
    places: int
    histories: int
    times: int
    """How many calls the finding is about."""
    certain: int
    likely: int
    guessed: int
    activities: dict[str, int]
    """By type of activity, the number of places; those with the most first."""
    examples: tuple[FindingExample, ...]
    """The first places of each confidence, the surest first; `places` counts all."""


class ActivityCount(BaseModel, frozen=True):
    """The calls of one type of activity."""

    activity: str
    calls: int
    failed: int
    """Calls that ended without a result."""
    retries: int
    helped: int
    """Retries of calls that were completed in the end."""
    could_have: int
    """Retries after a failure that may pass, which did not help."""
    could_not: int
    """Retries after a failure that cannot pass."""
    not_known: int
    """Retries after a failure that no table knows, or that the history does not have."""
    spared: int
    """Retries that would not have been made with `line` in the worker; calls of Replan's own workers do not count."""
    spared_doubtful: int
    """Those of the spared retries that came after an unknown outcome: the call may have had its effect twice."""
    spared_helped: int
    """Those of the other spared retries after which the call was completed: with `line`, it would have failed."""
    left: int
    """Retries that would have been made all the same, and those of which nobody knows it."""
    seconds: float
    """Of retried calls, the seconds from the schedule to the start of the last attempt: failed attempts and waits."""
    tokens: int | None
    """The used tokens that the results report; None if no result reports any."""


class InsteadCount(BaseModel, frozen=True):
    """What Replan's rules would have done with calls that failed."""

    code: str
    calls: int
    retries: int
    """The retries that were made of these calls."""
    follows: str
    """What Replan does after such a fault."""


class AuditReport(BaseModel, frozen=True):
    """The report on a set of histories."""

    # Set by each history that is read
    histories: int
    events: int
    running: int
    """Histories without an end: what their running calls did so far is not recorded."""
    workflows: dict[str, int]
    """By type of workflow, the number of histories."""
    unreadable: int
    unread: tuple[tuple[str, str], ...]
    """The first histories that could not be read, each with the reason."""
    payloads: int
    opaque: int
    """Payloads that a codec wrote, which the audit cannot read."""
    unknown_events: int

    # Set by each call in these histories
    calls: int
    retries: int
    helped: int
    could_have: int
    could_not: int
    not_known: int
    spared: int
    spared_doubtful: int
    spared_helped: int
    left: int

    # Set when all histories are read
    effects: dict[str, Effect]
    """The activities that `line` declares: those of which calls ran again after an unknown outcome."""
    line: str
    """The argument of a Worker that spares these retries; empty if it would have changed nothing."""
    seconds: float
    tokens: int | None
    activities: tuple[ActivityCount, ...]
    instead: tuple[InsteadCount, ...]
    findings: tuple[FindingCount, ...]

    @property
    def wasted_share(self) -> float:
        """The share of all retries that could not have helped."""
        return self.could_not / self.retries if self.retries else 0.0


def retries_of(call: AuditedCall) -> Counter[Sort]:
    """The retries of a call, counted by their result as far as its history shows it."""
    number = call.retries
    if call.is_completed:
        return Counter({"helped": number})
    last = call.last_verdict
    if last is None or call.last is None or not number:
        return Counter({"not_known": number})
    known: Sort = "could_have" if last.is_transient else "could_not"
    # Only the failure of the attempt before the last one is there; the same failure again stands for those before.
    same = number if call.last.is_same(call.failing) else 1
    found = Counter[Sort]({known: same})
    found["not_known"] += number - same
    return found


def spared_of(call: AuditedCall, effect: Effect | None = None) -> Counter[Spared]:
    """The retries of a call, counted by what `replan.FaultsPlugin` would have made of them for this effect."""
    number = call.retries
    fault = fault_of(call.last) if call.last and number else None
    if call.last is None or fault is None or follows(fault, effect) not in (Next.SKIP, Next.ASK):
        return Counter({"left": number})
    # As in `retries_of`.
    spared = number if call.last.is_same(call.failing) else 1
    found = Counter[Spared]({"spared": spared, "left": number - spared})
    if fault.is_transient:
        found["spared_doubtful"] = spared
    elif call.is_completed:
        found["spared_helped"] = spared
    return found


def _plugin_code(effects: Mapping[str, Effect]) -> str:
    """The call that makes the plugin with these effects."""
    pairs = ", ".join(f"{name!r}: {effect!r}" for name, effect in effects.items())
    return f"replan.FaultsPlugin({f'effects={{{pairs}}}' if effects else ''})"


@dataclass
class _ActivitySums:
    activity: str
    """The type of the activity, without the tool behind it."""
    numbers: Counter[str] = field(default_factory=Counter)
    spared: Mapping[Effect | None, Counter[Spared]] = field(default_factory=lambda: defaultdict(Counter))
    """By the effect that the line declares: which calls need it, is known after the last history."""
    tokens: int | None = None
    seconds: float = 0.0


class _PlaceCounts:
    def __init__(self) -> None:
        self.all = self.histories = self.times = 0
        self.sure, self.activities = Counter[Confidence](), Counter[str]()
        self.examples = defaultdict[Confidence, list[FindingExample]](list)

    def add(self, record: AuditedHistory, places: list[FoundPlace]) -> None:
        self.histories += 1
        for found in places:
            self.all += 1
            self.times += found.times
            self.sure[found.confidence] += 1
            if found.activity and (found.activity in self.activities or len(self.activities) < MAX_ACTIVITIES):
                self.activities[found.activity] += 1
            if len(examples := self.examples[found.confidence]) < MAX_PLACES:
                of = {"workflow_id": record.workflow_id, "run_id": record.run_id, "workflow": record.workflow}
                examples.append(FindingExample(history=record.name, **of, **vars(found)))


class Audit:
    """Takes histories, event by event, and reports on them; it keeps only counts and the first places of findings."""

    def __init__(self) -> None:
        self.histories = 0
        """How many histories have been read."""
        self._recording: Recording | None = None
        self._counts = Counter[str]()
        self._workflows, self._unread = Counter[str](), list[tuple[str, str]]()
        self._activities = dict[str, _ActivitySums]()
        self._unkeyed = set[str]()
        self._instead = defaultdict[tuple[str, str], Counter[str]](Counter)
        self._places = defaultdict[str, _PlaceCounts](_PlaceCounts)

    def take(self, item: Item) -> None:
        """Take the next item of a source: the beginning of a history, an event, or an unreadable history."""
        match item:
            case Begin(name):
                self._complete()
                self._recording = Recording(name)
            case UnreadableHistory(name, reason):
                if self._recording and self._recording.record.name == name:
                    self._recording = None
                self._complete()
                self._counts["unreadable"] += 1
                if len(self._unread) < MAX_UNREADABLE:
                    self._unread.append((name, reason))
            case event:
                if self._recording:
                    self._recording.add(event)

    def _complete(self) -> None:
        """Add the history that was being read, if there is one, to the counts."""
        recording, self._recording = self._recording, None
        if recording is None or not recording.record.events:
            return
        record = recording.record
        self.histories += 1
        if record.workflow in self._workflows or len(self._workflows) < MAX_ACTIVITIES:
            self._workflows[record.workflow] += 1
        sums = {"events": record.events, "payloads": record.payloads, "opaque": record.opaque}
        self._counts.update(sums | {"unknown": record.unknown, "running": int(record.status == "running")})
        is_replans = record.is_replans
        for call in record.calls:
            self._count_call(call, is_replans=is_replans)
        by_name = defaultdict[str, list[FoundPlace]](list)
        for finding, found in findings_in(record):
            by_name[finding.name].append(found)
            is_sure = found.confidence is not Confidence.GUESSED
            if finding.find is ran_again_after_unknown_outcome and is_sure and found.activity in self._activities:
                self._unkeyed.add(self._activities[found.activity].activity)
        for name, places in by_name.items():
            self._places[name].add(record, places)

    def _count_call(self, call: AuditedCall, *, is_replans: bool) -> None:
        name = call.name if call.name in self._activities or len(self._activities) < MAX_ACTIVITIES else OTHERS
        row = self._activities.setdefault(name, _ActivitySums(OTHERS if name is OTHERS else call.kind))
        for effect in _SPARING if not is_replans else ():
            row.spared[effect].update(spared_of(call, effect))
        row.numbers.update(calls=1, retries=call.retries, failed=int(call.closed is CallEnd.FAILED))
        row.numbers.update(retries_of(call))
        row.seconds += call.seconds
        if call.tokens is not None:
            row.tokens = (row.tokens or 0) + call.tokens
        if failed := call.verdict or (call.last_verdict if call.retries else None):
            self._instead[_code_and_decision(call, failed)].update(calls=1, retries=call.retries)

    def report(self) -> AuditReport:
        """The report on all histories that were taken."""
        self._complete()
        activities = sorted(self._activity_counts(), key=lambda row: (-row.retries, -row.calls, row.activity))
        tokens = [row.tokens for row in activities if row.tokens is not None]
        effects: dict[str, Effect] = dict.fromkeys(sorted(self._unkeyed), "unkeyed")
        sums = {name: sum(getattr(row, name) for row in activities) for name in ("calls", "retries", *_SORTS, *_SPARED)}
        return AuditReport(
            histories=self.histories,
            events=self._counts["events"],
            running=self._counts["running"],
            workflows=dict(self._workflows.most_common()),
            unreadable=self._counts["unreadable"],
            unread=tuple(self._unread),
            payloads=self._counts["payloads"],
            opaque=self._counts["opaque"],
            effects=effects,
            line=f"plugins=[{_plugin_code(effects)}]" if sums["spared"] or effects else "",
            unknown_events=self._counts["unknown"],
            seconds=round(sum(row.seconds for row in activities), 3),
            tokens=sum(tokens) if tokens else None,
            activities=tuple(activities),
            instead=tuple(
                InsteadCount(code=code, follows=follows, calls=numbers["calls"], retries=numbers["retries"])
                for (code, follows), numbers in sorted(self._instead.items(), key=lambda item: -item[1]["retries"])
            ),
            findings=tuple(_finding_count(row, self._places[row.name]) for row in FINDINGS if row.name in self._places),
            **sums,
        )

    def _activity_counts(self) -> Iterator[ActivityCount]:
        for name, row in self._activities.items():
            numbers = {field: row.numbers[field] for field in ("calls", "failed", "retries", *_SORTS)}
            spared = row.spared["unkeyed" if row.activity in self._unkeyed else None]
            numbers |= {field: spared[field] for field in _SPARED}
            yield ActivityCount(activity=name, seconds=round(row.seconds, 3), tokens=row.tokens, **numbers)


_SORTS: tuple[Sort, ...] = get_args(Sort)
_SPARED: tuple[Spared, ...] = get_args(Spared)
_SPARING: tuple[Effect | None, ...] = (None, "unkeyed")


def _code_and_decision(call: AuditedCall, failed: Diagnosis) -> tuple[str, str]:
    """The code of a failed call for the report, and what Replan does after such a fault."""
    writes = call.tool.writes is not None and not call.is_model
    if writes and failed.is_transient and failed.proves is Proof.UNKNOWN:
        return f"{failed.code.value}, {UNKNOWN_OUTCOME}", PROVES[Proof.UNKNOWN].removeprefix("nothing: ")
    return failed.code.value, failed.follows


def _finding_count(finding: Finding, places: _PlaceCounts) -> FindingCount:
    return FindingCount(
        name=finding.name,
        group=finding.group,
        sentence=finding.sentence,
        remedy=finding.remedy,
        page=f"docs/audit.md#{finding.name}",
        places=places.all,
        histories=places.histories,
        times=places.times,
        certain=places.sure[Confidence.CERTAIN],
        likely=places.sure[Confidence.LIKELY],
        guessed=places.sure[Confidence.GUESSED],
        activities=dict(places.activities.most_common()),
        examples=tuple(place for sure in Confidence for place in places.examples[sure]),
    )
