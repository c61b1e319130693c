"""Whether the properties of a scenario hold: by the world's journal, the history and, which must agree, the Outcome."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory

from evals.retry_waste.measures import count
from evals.tape.world import FIND, Entry
from evals.world_changes.families import Scene, tool_of
from evals.world_changes.scenario import Ending, Property, Scenario
from workflows import ids
from workflows.account.outcome import Outcome
from workflows.account.records import StepStatus
from workflows.account.task import TaskStatus
from workflows.faults.fault import Quadrant
from workflows.json_values import canonical

QUADRANTS: Mapping[int, Quadrant] = {
    **dict.fromkeys((404, 409, 410, 412, 422), Quadrant.PERSISTENT_SEMANTIC),
    **dict.fromkeys((401, 403), Quadrant.PERSISTENT_INFRASTRUCTURAL),
    **dict.fromkeys((423, 429), Quadrant.TRANSIENT_SEMANTIC),
    503: Quadrant.TRANSIENT_INFRASTRUCTURAL,
}
"""What each status of this world means; written here again, so that the product is not judged by its own table."""
REPLAN_ACTIVITY = "replan"
UNOBSERVED = (TaskStatus.OVER_BUDGET, TaskStatus.ESCALATED)
"""A task that ends so at its last rejection makes no plan after it, and needs not look."""
LOOKUPS = (FIND, "find_transfer", "find_mail")


class Past(NamedTuple):
    """What a history says of the calls of tools."""

    completed: Mapping[str, int]
    """By the id of an activity, how often it was completed."""
    failures: Sequence[tuple[str, str]]
    """The kind and the type of each failure."""
    replans: int
    """How often the planner was asked for a new plan, rejected proposals included."""

    @classmethod
    def of(cls, history: WorkflowHistory) -> "Past":
        """Read a history."""
        scheduled = dict[int, tuple[str, str]]()
        completed, failures, replans = Counter[str](), list[tuple[str, str]](), 0
        for event in history.events:
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                made = event.activity_task_scheduled_event_attributes
                scheduled[event.event_id] = made.activity_id, made.activity_type.name
                replans += made.activity_type.name == REPLAN_ACTIVITY
            elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                completed[scheduled[event.activity_task_completed_event_attributes.scheduled_event_id][0]] += 1
            elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                failed = event.activity_task_failed_event_attributes
                kind = scheduled[failed.scheduled_event_id][1]
                failures.append((kind, failed.failure.application_failure_info.type))
        return cls(completed, failures, replans)


class Ran(NamedTuple):
    """What a task left behind."""

    outcome: Outcome
    past: Past


def broken(
    scenario: Scenario, entries: Sequence[Entry], scene: Scene, ran: Sequence[Ran], *, has_own_plans: bool
) -> dict[Property, str]:
    """The properties that do not hold, each with what shows it; `ran` are the task and, if it was started twice, both.

    `entries` are the journal of the task, the first call first. `has_own_plans`: the planner had other plans than those
    of the scenario.
    """
    found = dict[Property, str]()
    for judge in (_met, _observed, _fits, _no_repeat, _kept, _budget, _quadrant, _once):
        for judged, why in judge(scenario, entries, scene, ran):
            found.setdefault(judged, why)
    for why in _wrong_endings([scenario.ending, *(scenario.others if has_own_plans else ())], scenario, scene, ran):
        found.setdefault(Property.OUTCOME, why)
    return found


Found = Iterator[tuple[Property, str]]


def _is_rejection(entry: Entry) -> bool:
    return QUADRANTS.get(entry.status) is Quadrant.PERSISTENT_SEMANTIC and entry.tool not in LOOKUPS


def _says(entry: Entry) -> str:
    return f"{entry.tool} {entry.args} ({entry.status}, state {entry.version})"


def _met(scenario: Scenario, entries: Sequence[Entry], scene: Scene, ran: Sequence[Ran]) -> Found:
    first = scenario.events[0]
    if sum(entry.tool == first.tool for entry in entries) < first.number:
        yield Property.MET, f"{first.tool} was not called {first.number} times"


def _observed(scenario: Scenario, entries: Sequence[Entry], scene: Scene, ran: Sequence[Ran]) -> Found:
    plan_of = {step.id: step.revision for one in ran for step in one.outcome.steps}
    for entry in entries:
        tool = tool_of(scenario.family, entry.tool)
        if not _is_rejection(entry) or tool is None or not tool.observe or tool.effect == "read":
            continue
        plan = plan_of.get(entry.step, 0)
        after = [later for later in entries if later.id > entry.id]
        looks = [later.id for later in after if later.tool == tool.observe and later.shown is not None]
        calls = [later.id for later in after if later.tool == entry.tool and plan_of.get(later.step, 0) > plan]
        is_last = not calls and any(one.outcome.status in UNOBSERVED for one in ran)
        if not is_last and (not looks or (calls and calls[0] < looks[0])):
            yield Property.OBSERVED, f"{tool.observe} was not called after {_says(entry)}"


def _fits(scenario: Scenario, entries: Sequence[Entry], scene: Scene, ran: Sequence[Ran]) -> Found:
    shown: int | None = None
    has_rejection = False
    for entry in entries:
        is_read = (tool := tool_of(scenario.family, entry.tool)) is not None and tool.effect == "read"
        if _is_rejection(entry) and not is_read:
            is_hidden = entry.tool in (*scene.gone, *scene.wants)  # no read shows that the service has changed
            if shown is not None and entry.version <= shown and not is_hidden:
                yield Property.FITS, f"{_says(entry)} does not fit state {shown}, which it had been shown"
            has_rejection = True
        elif has_rejection and is_read and entry.is_success:
            shown = entry.version


def _no_repeat(scenario: Scenario, entries: Sequence[Entry], scene: Scene, ran: Sequence[Ran]) -> Found:
    calls = [entry for entry in entries if entry.tool not in LOOKUPS]
    if futile := count(calls).futile:
        yield Property.NO_REPEAT, f"{futile} calls were made again against the same state after a persistent fault"


def _kept(scenario: Scenario, entries: Sequence[Entry], scene: Scene, ran: Sequence[Ran]) -> Found:
    for one in ran:
        planned = {step.id: step for step in one.outcome.steps}
        for id, times in one.past.completed.items():
            if times > 1:
                yield Property.KEPT, f"the step {id!r} was completed {times} times"
            if id in planned and planned[id].status is not StepStatus.COMPLETED:
                yield Property.KEPT, f"the step {id!r} was completed, and the Outcome says {planned[id].status}"
        kept = {step.id for step in one.outcome.steps if step.status is StepStatus.COMPLETED}
        if lost := {id for id in one.past.completed if _is_step(id)} - kept:
            yield Property.KEPT, f"the Outcome has lost the step {min(lost)!r}"


def _is_step(id: str) -> bool:
    return ":" not in id and id != ids.CATALOGUE


def _budget(scenario: Scenario, entries: Sequence[Entry], scene: Scene, ran: Sequence[Ran]) -> Found:
    limits, trials = scenario.limits, sum(fault.is_trial for one in ran for fault in one.outcome.faults)
    if len(entries) - trials > limits.tool_calls * scenario.starts:
        yield Property.BUDGET, f"{len(entries)} calls, {trials} of them trials, and the limit is {limits.tool_calls}"
    most = limits.replans if scenario.most_replans is None else scenario.most_replans
    if most < (made := max(one.outcome.replans for one in ran)):
        yield Property.BUDGET, f"{made} replans, and the most is {most}"


def _wrong_endings(endings: Sequence[Ending], scenario: Scenario, scene: Scene, ran: Sequence[Ran]) -> Iterator[str]:
    made = defaultdict[str, list[Any]](list)
    for effect in scene.made:
        tool = tool_of(scenario.family, effect.tool)
        made[effect.tool].append(effect.args[tool.about] if tool else None)
    fitting = {status for ending in endings if _sorted(ending.made) == _sorted(made) for status in ending.status}
    for one in ran:
        if one.outcome.status not in fitting:
            code = f" ({one.outcome.code})" if one.outcome.code else ""
            yield f"{one.outcome.status}{code} with {dict(made)} is no ending of the scenario"


def _sorted(made: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    return {tool: sorted(about, key=str) for tool, about in made.items()}


def _quadrant(scenario: Scenario, entries: Sequence[Entry], scene: Scene, ran: Sequence[Ran]) -> Found:
    expected = defaultdict[str, set[str]](set)
    for entry in entries:
        if quadrant := QUADRANTS.get(entry.status):
            expected[entry.tool].add(quadrant)
        elif entry.shown is None:
            expected[entry.tool].add(Quadrant.TRANSIENT_INFRASTRUCTURAL)
    failures = {failure for one in ran for failure in one.past.failures if tool_of(scenario.family, failure[0])}
    for kind, type in failures:
        if type not in expected[kind] and not scenario.deploys:
            yield Property.QUADRANT, f"a fault of {kind} is {type}, and the world means {sorted(expected[kind])}"
    for entry in entries:
        quadrant = QUADRANTS.get(entry.status)
        if quadrant and not quadrant.is_transient and (entry.tool, quadrant) not in failures:
            yield Property.QUADRANT, f"{_says(entry)} is {quadrant}, and the history has no such fault"


def _once(scenario: Scenario, entries: Sequence[Entry], scene: Scene, ran: Sequence[Ran]) -> Found:
    for (tool, args), times in Counter((made.tool, canonical(made.args)) for made in scene.made).items():
        if times > 1:
            yield Property.ONCE, f"{tool} {args} was applied {times} times"
