"""The page that `explain` prints: numbered items, each sentence with its events at the end.

Made when an explanation is complete, for the terminal or for the page of a task.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from itertools import groupby

from rich.cells import cell_len

from client.explain import explanation, prose, waste, world
from client.explain.explanation import Explanation, StepExplanation
from client.explain.prose import Cost, Item, Sentence, said
from client.history.records import Event
from client.history.story import Diff, Plan, Planned, Story
from client.lines import wrap
from client.remedy import as_command, render
from client.text import one_line
from client.tree import MANY_TURNS
from client.wording import count

MAX_ROUTINE = 3
"""If more than this number of routine turns (see `RowGroup.is_routine`) are adjacent, one sentence tells of them."""
MAX_SPANS = 6
"""The most groups of events that a citation names; `[events 13-15, 22]` names two groups."""
MIN_COLUMNS = 40
"""The least number of columns for a sentence, also on a narrower terminal."""
INDENT = " " * 5
Row = tuple[str, Sentence]
"""The text before a sentence, such as ` 1.  `, and the sentence."""


class RowOrder(IntEnum):
    """What the rows of a group tell of; of the groups at one event, the lowest comes first."""

    FAILOVER = auto()
    """Who was asked comes before what they said."""
    PLAN = auto()
    ITEM = auto()
    FINISHED_STEP = auto()
    ASIDE = auto()


@dataclass(frozen=True)
class RowGroup:
    """Rows that belong to the event `at`."""

    at: Event
    order: RowOrder
    rows: list[Row]
    plan: Plan | None = None

    @property
    def is_routine(self) -> bool:
        """Whether the rows say only that the model made calls in a turn, or that a step finished."""
        return self.order is RowOrder.FINISHED_STEP or (self.plan is not None and self.plan.move is not None)


def page_lines(explained: Explanation, width: int | None) -> list[str]:
    """All lines about a task, wrapped to `width` columns; with None, every sentence is one line."""
    return list(lay_out_rows(page_rows(explained), explained.story, width))


def brief_lines(explained: Explanation, width: int | None) -> list[str]:
    """A short explanation: a line with time, id, tools and status of the task, and below it the faults and the end."""
    return list(lay_out_rows(_brief_rows(explained), explained.story, width))


def _brief_rows(explained: Explanation) -> Iterator[Row]:
    story = explained.story
    history, kinds = story.history, dict.fromkeys(step.kind for step in story.steps.values())
    began = prose.moment(history.started_at) if history.started_at else "?"
    how = explained.status.replace("_", " ")
    yield "", said(f"{began} {history.task_id}{f' ({prose.listed(kinds)})' if kinds else ''}: {how}")
    for item in explained.items:
        yield from ((INDENT, sentence) for sentence in item.sentences)
    yield from ((INDENT, sentence) for sentence in explained.now)
    if history.end is not None and history.end.status != "completed":
        yield from ((INDENT, sentence) for _, sentence in _end_rows(explained))
    yield from ((f"{INDENT}To do  ", sentence) for sentence in explained.todo)
    yield from ((f"{INDENT}Note  ", note) for note in explained.notes)


def page_rows(explained: Explanation) -> Iterator[Row]:
    """All rows about a task: summary, text, events in order, open calls, end, costs, effects, remedies and notes."""
    task = explained.story.history.task
    yield "", said(explained.summary)
    if task:
        yield "", said(f"Asked: {prose.sentence(task.text)}", Event(1, 1))
    yield from _event_rows(explained)
    yield from (("Now  ", sentence) for sentence in explained.now)
    yield from _end_rows(explained)
    has_faults = any(item.steps and (item.cost.failed_attempts or item.cost.lost) for item in explained.items)
    receipt = waste.sentences(explained.receipt, has_faults=has_faults)
    costs = _cost_sentences(explained.cost)
    yield from (("", sentence) for sentence in (*costs, *receipt, *world.left(explained.story)))
    yield from (("To do  ", sentence) for sentence in explained.todo)
    yield from (("Note  ", note) for note in explained.notes)


def _event_rows(explained: Explanation) -> Iterator[Row]:
    story, groups = explained.story, list[RowGroup]()
    for diff in explained.plans:
        plan = story.plans[diff.number - 1]
        at = plan.turn.call.ended or plan.turn.call.scheduled
        groups.append(RowGroup(at, RowOrder.PLAN, plan_rows(story, diff), plan))
    for number, item in enumerate(explained.items, 1):
        order = RowOrder.FAILOVER if item.decision == "failover" else RowOrder.ITEM
        groups.append(RowGroup(item.at, order, item_rows(number, item)))
    if not explained.is_plain:  # otherwise each step did what its plan says
        groups += [RowGroup(event, RowOrder.FINISHED_STEP, [row]) for event, row in _finished(explained)]
    for aside in explained.asides:
        groups.append(RowGroup(min(aside.events, default=Event(1, 1)), RowOrder.ASIDE, [("", aside)]))
    for group in fold_routine(story, sorted(groups, key=lambda group: (group.at, group.order))):
        yield from group.rows


def fold_routine(story: Story, groups: Sequence[RowGroup]) -> Iterator[RowGroup]:
    """The groups in order; in a task of more than MANY_TURNS turns, adjacent routine turns become one sentence."""
    many = len([plan for plan in story.plans if plan.move is not None]) > MANY_TURNS
    # Not over the end of a run, since a citation names events of one run only.
    for (is_routine, _), group in groupby(groups, key=lambda group: (group.is_routine, group.at.run)):
        row = list(group)
        plans = [group.plan for group in row if group.plan is not None]
        if many and is_routine and len(plans) > MAX_ROUTINE:
            yield _together(row, plans)
        else:
            yield from row


def _together(row: Sequence[RowGroup], plans: Sequence[Plan]) -> RowGroup:
    """One group that replaces the groups `row`: `Turns 3-40: 45 calls, of get_price (30) and search (15).`"""
    kinds = Counter(step.kind for plan in plans for step in plan.steps)
    counted = prose.listed(f"{kind} ({number})" for kind, number in kinds.most_common())
    calls = count(kinds.total(), "call")
    first, last = plans[0].turn.call.scheduled, row[-1].at
    proof = (Event(first.run, id) for id in range(first.id, last.id + 1))
    text = f"Turns {plans[0].move}-{plans[-1].move}: {calls}, of {counted}."
    return RowGroup(row[0].at, row[0].order, [("", said(text, *proof))])


def item_rows(number: int, item: Item) -> list[Row]:
    """The rows of an item, one for each sentence; the first row begins with `number`."""
    lead = f"{number:>2}.  "
    return [(lead if index == 0 else " " * len(lead), sentence) for index, sentence in enumerate(item.sentences)]


def plan_rows(story: Story, diff: Diff) -> list[Row]:
    """The rows of a plan: the first plan and each turn of `react` with steps, a later plan with its differences."""
    plan, is_whole = story.plans[diff.number - 1], diff.number == 1 or diff.is_turn
    how = "instead of" if diff.replan else "goes on after"
    head = f", {how} {story.plans[diff.number - 2].name}:"
    head = f": {prose.listed(planned(Planned.of(step)) for step in plan.steps)}." if is_whole else head
    lead = "It said" if diff.is_turn else "The planner's reason"
    because = [f"{lead}: {prose.sentence(diff.because)}"] if diff.because else []
    below = [*because, *([] if is_whole else difference_lines(diff))]
    return [("", said(f"{diff.name.capitalize()}{head}", *plan.events)), *((INDENT, said(text)) for text in below)]


def difference_lines(diff: Diff) -> list[str]:
    """The lines below the heading of a plan: one for the changed steps, one for the added steps, and so on."""
    changed = list[str]()
    for change in diff.changed:
        renamed = change.after.id if change.before.id == change.after.id else f"{change.before.id} -> {change.after.id}"
        changed.append(f"{renamed} ({prose.differences(change)})".replace(" ()", ""))
    groups = {
        "changed": changed,
        "planned" if diff.number == 1 or diff.is_turn else "added": [planned(step) for step in diff.added],
        "dropped": [step.id for step in diff.dropped],
        "planned as before": diff.unchanged,
        "kept, since finished": diff.kept if diff.replan else (),
    }
    return [f"{name}: {prose.listed(ids)}" for name, ids in groups.items() if ids]


def planned(step: Planned) -> str:
    """A planned step with its arguments and needs: `book (book_slot at=14:00; needs price)`."""
    args = f" {prose.call_args(step.args)}" if step.args else ""
    needs = f"; needs {prose.listed(step.needs)}" if step.needs else ""
    return f"{one_line(step.id)} ({one_line(step.kind)}{args}{needs})"


def _finished(explained: Explanation) -> Iterator[tuple[Event, Row]]:
    """The rows of the finished and undone steps that no item mentions, each with its event."""
    story, events = explained.story, {event for item in explained.items for event in item.events}
    rows = [(call.ended, ("  +  ", explanation.finished_sentence(call))) for call in story.done]
    rows += [(call.ended, ("  -  ", explanation.undone_sentence(call))) for call in story.undone]
    yield from ((ended, row) for ended, row in rows if ended and ended not in events)


def _end_rows(explained: Explanation) -> Iterator[Row]:
    outcome, end = explained.story.history.outcome, explained.story.history.end
    has_result = outcome is not None and outcome.result is not None
    # An item that cites the last event has told the end already.
    is_in_items = any(end is not None and end.event in item.events for item in explained.items)
    if end is None or (is_in_items and not (has_result and end.status == "over_budget")):
        return
    if outcome is not None and has_result:
        yield "", said(f"Result: {prose.value(outcome.result, 300)}", end.event)
    elif end.status != "completed":
        reason = prose.sentence((outcome.reason if outcome else end.reason) or "no reason is recorded")
        yield "", said(f"It ended as {end.status.replace('_', ' ')}: {reason}", end.event)


def _cost_sentences(cost: Cost) -> Iterator[Sentence]:
    numbers = {
        "failed attempt": cost.failed_attempts,
        "observation": cost.observations,
        "planning call": cost.planning_calls,
    }
    seconds = {
        "of waiting": cost.waited,
        "in attempts that ended without a response": cost.lost,
        "held back by an operator": cost.held,
        "without a worker": cost.unattended,
    }
    parts = [count(number, what) for what, number in numbers.items() if number]
    parts += [f"{prose.seconds(number)} {how}" for how, number in seconds.items() if number]
    if parts:
        yield said(f"Beyond the plan this cost {prose.listed(parts)}.")


def step_lines(explained: StepExplanation, width: int | None) -> list[str]:
    """All lines about a step, wrapped to `width` columns; with None, every sentence is one line."""
    return list(lay_out_rows(step_rows(explained), explained.whole.story, width))


def step_rows(explained: StepExplanation) -> Iterator[Row]:
    """All rows about a step: the heading, the changes of the step in plans, and the items."""
    yield "", explained.heading
    for diff in explained.revisions:
        plan = explained.whole.story.plans[diff.number - 1]
        yield from (
            (INDENT, said(f"{plan.name.capitalize()}: {text}", *plan.events)) for text in difference_lines(diff)
        )
    for number, item in enumerate(explained.items, 1):
        yield from item_rows(number, item)
    if not explained.items:
        called = explained.whole.story.history.of_step(explained.id)
        never = "It was never called: a plan ended, or the task did, before its turn came."
        yield "", said("It met no fault: nothing to explain." if called else never)


def lay_out_rows(rows: Iterable[Row], story: Story, width: int | None) -> Iterator[str]:
    """The lines of rows, wrapped to `width` columns; with None, every sentence is one line."""
    many = story.history.runs > 1
    for lead, sentence in rows:
        text, cited = one_line(render(sentence.text, as_command)), citation(sentence.events, many=many)
        yield from lay_out_sentence(lead, text, cited, width)


def lay_out_sentence(lead: str, text: str, cited: str, width: int | None) -> list[str]:
    """The lines of a sentence after `lead`, with its events (`cited`) at the right end of the last line, else below."""
    if width is None:
        return ["  ".join(filter(None, [lead + text, cited]))]
    wide = max(MIN_COLUMNS, width)
    first, *others = wrap(text, wide - len(lead))
    # A row with a word that is too long for the indent, such as a URL, is indented less.
    *rows, last = [lead + first, *(" " * min(len(lead), max(0, wide - cell_len(row))) + row for row in others)]
    if not cited:
        return [*rows, last]
    room = wide - cell_len(last)
    return [*rows, last + cited.rjust(room)] if len(cited) + 2 <= room else [*rows, last, cited.rjust(wide)]


def citation(events: Sequence[Event], *, many: bool = False) -> str:
    """The events as `[event 11]` or `[events 13-15, 22]`; if the task has `many` runs, with the number of the run."""
    ids = sorted({event.id for event in events})
    if not ids:
        return ""
    # In a row of consecutive ids, the difference between id and place stays the same.
    spans = [[id for _, id in span] for _, span in groupby(enumerate(ids), key=lambda pair: pair[1] - pair[0])]
    shown = [str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans]
    text = ", ".join(shown if len(shown) <= MAX_SPANS else [*shown[: MAX_SPANS - 1], "...", shown[-1]])
    run = f"run {events[0].run}, " if many else ""
    return f"[{run}event{'s' if len(ids) > 1 else ''} {text}]"
