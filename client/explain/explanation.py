"""A task explained, as data: summary, plans, each deviation with its cost, what was kept and what changed.

Made from the whole history when somebody asks why a task did what it did, while it runs or after its end.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from client.explain import endings, faults, people, planning, prose, waste, world
from client.explain.prose import Cost, Item, Sentence, said
from client.explain.remedies import remedies
from client.explain.waste import Receipt
from client.history.records import LONG_AGO, Call, History
from client.history.story import Diff, Story, diffs
from client.problem import Problem
from client.remedy import Door, in_python, render
from client.text import one_line
from client.wording import count, spent_on_models
from workflows.account.entries_of_steps import MAX_FAULTS
from workflows.account.task import TaskStatus
from workflows.faults.decision import DECISIONS, plan_text, texts_of
from workflows.plans.contract import contract_text
from workflows.text import capitalised, nearest

ASIDES: Mapping[str, Callable[[Story, Any], Sentence | None]] = {"extended": people.extension}
"""By the kind of an entry of the journal, its sentence; faults, plans and requests have items."""
SHORTEST_GAP = 2.0
"""Seconds; a shorter time until a worker takes a task is usual, and is not counted as a time without a worker."""


UNTOLD = (
    "What the task decided is not told: its history cannot be replayed here, because another version of Replan ran it "
    "or because it is encrypted."
)


class Explanation(BaseModel):
    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    story: Story
    status: TaskStatus
    summary: str
    items: tuple[Item, ...]
    plans: tuple[Diff, ...]
    now: tuple[Sentence, ...]
    """What an unfinished task does now, such as its open calls; empty if the task has ended."""
    asides: tuple[Sentence, ...]
    """Resets, compactions, and what people added to the limits of the task without a request."""
    todo: tuple[Sentence, ...]
    """What a person can do if the task cannot go on, or ended without being completed."""
    notes: tuple[Sentence, ...]
    """Sentences about the events of the history that could not be read."""
    cost: Cost
    receipt: Receipt

    @property
    def is_plain(self) -> bool:
        """Whether the task was completed without an item, an aside, a note or a held call."""
        return self.status == "completed" and not (self.items or self.asides or self.notes or self.cost.held)

    def document(self, door: Door = in_python) -> dict[str, Any]:
        """The explanation as the JSON that `explain --json` prints; `door` writes the remedies."""
        story, history = self.story, self.story.history
        outcome, end = history.outcome, history.end
        return {
            "task_id": history.task_id,
            "task": history.task.text if history.task else None,
            "status": self.status,
            "reason": outcome.reason if outcome else end.reason if end else "",
            "summary": self.summary,
            "items": [item.document(door) for item in self.items],
            "revisions": [plan.model_dump(mode="json") for plan in self.plans],
            "kept": world.kept(story),
            "changed": [change.model_dump(mode="json") for change in world.changes(story)],
            "cost": {**self.cost.model_dump(), "tool_calls": story.account.spent.tool_calls},
            "steps": [_step_document(story, id) for id in story.step_ids],
            "never_started": world.never_started(story),
            "now": [render(sentence.text, door) for sentence in self.now],
            "paused": [pause.model_dump(mode="json") for pause in history.paused],
            "todo": [render(sentence.text, door) for sentence in self.todo],
            "notes": [note.text for note in (*self.asides, *self.notes)],
            "result": outcome.result if outcome else None,
            "receipt": self.receipt.document(),
        }

    def step(self, id: str) -> "StepExplanation":
        """The part of the explanation about the step `id`. Raises Problem if the task has no such step."""
        ids = self.story.step_ids
        if id not in ids:
            task = self.story.history.task_id
            remedy = f"it has {prose.listed(ids)}" if ids else "it has no step at all yet"
            raise Problem("unknown_step", f"Task {task!r} has no step {id!r}{nearest(id, ids)}", remedy)
        return StepExplanation(id, self)


@dataclass(frozen=True)
class StepExplanation:
    """The part of an explanation about one step."""

    id: str
    whole: Explanation

    @property
    def items(self) -> list[Item]:
        return [item for item in self.whole.items if self.id in item.steps]

    @property
    def revisions(self) -> list[Diff]:
        narrowed = (diff.about(self.id) for diff in self.whole.plans)
        return [diff for diff in narrowed if diff]

    @property
    def heading(self) -> Sentence:
        story = self.whole.story
        calls, attempts = story.history.of_step(self.id), attempts_of(story, self.id)
        planned_kind = [story.steps[self.id].kind] if self.id in story.steps else []
        kinds = ", then ".join(dict.fromkeys([*planned_kind, *(call.kind for call in calls)]))
        tried = f" after {count(attempts, 'attempt')}" if attempts and calls and calls[-1].closed else ""
        done = [call for call in story.done if call.step == self.id]
        got = f" It returned: {prose.stop(prose.value(done[-1].result))}" if done and done[-1].returned else ""
        text = f"{self.id} ({kinds}) of {story.history.task_id}: {step_state(story, self.id)}{tried}.{got}"
        return said(text, *(event for call in calls for event in call.events))

    def document(self, door: Door = in_python) -> dict[str, Any]:
        """The explanation of the step as JSON, with the fields of the whole explanation."""
        whole = self.whole.document(door)
        return {
            "task_id": whole["task_id"],
            "status": whole["status"],
            "step": next(step for step in whole["steps"] if step["id"] == self.id),
            "summary": self.heading.text,
            "items": [item.document(door) for item in self.items],
            "revisions": [diff.model_dump(mode="json") for diff in self.revisions],
            "kept": {number: ids for number, ids in whole["kept"].items() if self.id in ids},
            "changed": [change for change in whole["changed"] if change["step_id"] == self.id],
            "cost": sum((item.cost for item in self.items), Cost()).model_dump(),
            "notes": whole["notes"],
        }


def explain_task(history: History) -> Explanation:
    """Explain a task from its history; no worker is asked."""
    story = Story(history)
    found = [item for id in (*story.step_ids, *story.undo_ids) for item in faults.step_items(story, id)]
    found += [*people.request_items(story), *planning.proposal_items(story), *planning.failover_items(story)]
    items = tuple(sorted([*found, *endings.ending_items(story)], key=lambda item: item.at))
    held = sum(call.held for call in history.calls)
    asides = [*map(endings.reset_sentence, history.resets), *planning.compactions(story)]
    entries = (ASIDES[entry.kind](story, entry) for entry, _ in story.happened if entry.kind in ASIDES)
    return Explanation(
        story=story,
        status=status(history),
        summary=_summary(story, items),
        items=items,
        plans=tuple(diffs(story)),
        now=tuple(endings.state_now(story)),
        asides=(*asides, *filter(None, entries)),
        todo=tuple(remedies(story)),
        notes=(*unreadable(history), *_notes_on_dropped_faults(story)),
        cost=sum((item.cost for item in items), Cost(held=held, unattended=seconds_without_worker(history))),
        receipt=waste.receipt_of(story),
    )


def status(history: History) -> TaskStatus:
    """The status in the Outcome or, without an Outcome, the status of the workflow execution."""
    if history.outcome is not None:
        return history.outcome.status
    if history.end is None or history.end.status == "continued":
        return TaskStatus.PAUSED if history.is_paused else TaskStatus.RUNNING
    return TaskStatus(history.end.status) if history.end.status in set(TaskStatus) else TaskStatus.FAILED


def unreadable(history: History) -> Iterator[Sentence]:
    """Sentences about the payloads that could not be read, one for each cause; none contains a value of the history."""
    causes = dict[str, list[str]]()
    for payload in history.unreadable:
        run = f"run {payload.run}, " if history.runs > 1 else ""
        causes.setdefault(payload.why, []).append(f"{run}event {payload.event}'s {payload.what}")
    for why, places in causes.items():
        is_one = len(places) == 1
        verb = why if is_one else why.replace("is ", "are ", 1).replace("was ", "were ", 1)
        without = f"explained without {'it' if is_one else 'them'}"
        yield said(f"{capitalised(prose.listed(places, 5))} {verb}; {without}.")
    if history.is_untold and history.outcome is None:
        yield said(UNTOLD)


def _notes_on_dropped_faults(story: Story) -> Iterator[Sentence]:
    kept, failed = story.account.faults, [call for call in story.history.calls if call.is_step and call.failing]
    old = [
        call for call in failed if kept and call.ended_at and call.ended_at < kept[0].at and not story.fault_of(call)
    ]
    if old and len(kept) >= MAX_FAULTS:
        kept_only = f"a task keeps its newest {MAX_FAULTS} faults"
        yield said(f"What followed the oldest failed calls ({len(old)}) is left out: {kept_only}.")


def _summary(story: Story, items: Sequence[Item]) -> str:
    history, end, account = story.history, story.history.end, story.account
    took = f"is {status(history).value}"
    if end is not None:
        how = status(history).replace("_", " ")
        took = f"{how} after {prose.seconds((end.at - (history.started_at or end.at)).total_seconds())}"
        if history.resets:  # days may lie between: people reset what ended long ago
            took += f", {prose.seconds((end.at - history.resets[-1].at).total_seconds())} after it was reset"
    done = len({call.step for call in story.done})
    plans = count(len(story.plans), "turn" if story.in_turns else "plan") if story.plans else "no plan in force"
    steps = f", {done} of {count(len(story.step_ids), 'step')} finished" if story.step_ids else ""
    calls = ", ".join([count(account.spent.tool_calls, "tool call"), *spent_on_models(account.spent)])
    contract = one_line(contract_text(account.contract)) if account.contract else ""
    began = f"Started {prose.moment(history.started_at)}." if history.started_at else ""
    first = f"{history.task_id} {took}: {plans}{steps}, {calls}."
    return " ".join(filter(None, [first, _not_as_planned(story, items), contract, began]))


def _not_as_planned(story: Story, items: Sequence[Item]) -> str:
    if not items:
        return "No faults."
    found = Counter(item.decision for item in items)
    counts = [
        count(found[decision], *(plan_text(name, in_turns=story.in_turns) for name in names))
        for decision in dict.fromkeys([*DECISIONS, *found])
        if found[decision] and (names := texts_of(decision).counted)
    ]
    return f"Not as planned: {prose.listed(counts)}." if counts else ""


def _step_document(story: Story, id: str) -> dict[str, Any]:
    calls = story.history.of_step(id)
    return {
        "id": id,
        "kind": calls[-1].kind if calls else story.steps[id].kind,
        "status": step_state(story, id),
        "attempts": attempts_of(story, id),
        "events": [event.id for call in calls for event in call.events],
    }


def attempts_of(story: Story, id: str) -> int:
    """The number of attempts of a step, as the task counts them; 0 for a step that a long task has dropped."""
    return next((step.attempts for step in story.account.steps if step.id == id), 0)


def step_state(story: Story, id: str) -> str:
    """The state of a step: `undone`, `completed`, `not started`, `paused`, `failed`, `cancelled` or `running`."""
    for state, calls in (("undone", story.undone), ("completed", story.done)):
        if id in (call.step for call in calls):
            return state
    last = next(reversed(story.history.of_step(id)), None)
    if last is None:
        return "not started"
    return "paused" if story.history.pause_of(last) else last.closed.value if last.closed else "running"


def finished_sentence(call: Call) -> Sentence:
    """The sentence about a call that completed a step, or a reconciliation that found a step applied."""
    if call.is_reconcile:
        return said(
            prose.stop(f"{call.step} was applied, as {call.kind} found: {prose.value(call.result)}"), *call.events
        )
    again = " (a replayed result: it was applied before)" if call.replayed else ""
    at = "at its first attempt" if call.attempt <= 1 else f"at attempt {call.attempt}"
    hold = f"; {prose.hold(call)}" if call.held else ""
    # A result that cannot be read here is not null.
    returned = f" and returned: {prose.value(call.result)}" if call.returned or not call.is_step else ""
    return said(prose.stop(f"{faults.call_name(call)} finished {at}{again}{returned}{hold}"), call.ended)


def undone_sentence(call: Call) -> Sentence:
    again = " (a replayed result)" if call.replayed else ""
    return said(f"{call.step} was undone with {call.kind}{again}.", *call.events)


def seconds_without_worker(history: History) -> float:
    """Seconds in which no worker took a scheduled workflow task or activity; overlapping periods count once."""
    total, until = 0.0, LONG_AGO
    for begin, end in sorted(history.gaps):
        if (end - begin).total_seconds() >= SHORTEST_GAP:
            total += max(0.0, (end - max(begin, until)).total_seconds())
            until = max(until, end)
    return total
