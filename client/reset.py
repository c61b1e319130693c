"""Which effects a reset would leave standing, and which of these could be planned anew under another key."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from client.effects import Known, KnownEffect, key_of, own_effects
from client.history.calls import SINGLE, Call, Calls
from client.history.records import OWN, Event
from client.history.story import Plan, Story
from workflows.plan import Step


@dataclass(frozen=True)
class Standing:
    """The effects of a task before a reset of its newest run to before the workflow task that scheduled `point`."""

    story: Story
    made: Calls
    """The calls of the newest run."""
    point: Call
    effects: Sequence[KnownEffect]
    """Of all runs."""

    @property
    def after(self) -> list[KnownEffect]:
        """Those that stand, or may, and that the run which the reset begins does not know of by itself."""
        return [one for one in self._later if one.known is not Known.UNDONE]

    @property
    def undone(self) -> list[KnownEffect]:
        """Those that were undone, and whose ids the run that the reset begins does not know to be taken."""
        return [one for one in self._later if one.known is Known.UNDONE]

    @property
    def in_the_way(self) -> list[KnownEffect]:
        """Those that stand and could be planned anew under another key, by a planner that does not know of them."""
        told = {record.step.id for record in self.story.history.told}
        return [one for one in self.after if one.step not in told and not self._is_repeated(one)]

    @property
    def plan(self) -> Plan | None:
        """The plan in force at that point."""
        return self.story.plan_of(self._here)

    @property
    def is_by_hand(self) -> bool:
        """Whether the plan in force was written by hand, or the one that is asked for at that point."""
        task, plan = self.story.history.task, self.plan
        is_first = plan is None or (plan.number == 1 and self.point.kind not in OWN)
        return task is not None and task.plan is not None and is_first

    def is_of_plan(self, one: KnownEffect) -> bool:
        """Whether the newest run did it as a step of the plan in force, which has an id of its own there."""
        return one.step in self._steps and one.key in own_effects(self.story)

    def is_in_flight(self, one: KnownEffect) -> bool:
        """Whether its call is scheduled before that point and not ended there, so that the server makes it again."""
        return any(call.id == one.step and call.event < self.point.task for call in self.made.all)

    @property
    def _here(self) -> Event:
        return Event(self.story.history.runs, self.point.task)

    @property
    def _later(self) -> list[KnownEffect]:
        calls = [call for call in self.story.history.calls if call.is_step and call.ended and call.ended < self._here]
        before = {key_of(self.story, call.id, call.kind) for call in calls}
        return [one for one in self.effects if one.undoes is None and one.key not in before]

    @property
    def _steps(self) -> Mapping[str, Step]:
        task, plan = self.story.history.task, self.plan
        by_hand = task.plan if task and task.plan else ()
        return {step.id: step for step in (plan.steps if plan else by_hand)}

    def _is_repeated(self, one: KnownEffect) -> bool:
        """Whether its call is certain to be made again with the same key and arguments, and so returns its result.

        That is so where no new plan is possible, where it starts at once, and where all that could lead to a new plan
        before it starts are calls of the same sort.
        """
        task = self.story.history.task
        if not self.is_of_plan(one) or not self._is_once(one):
            return False
        if task is not None and task.limits.replans == 0:
            return True
        if any(call.id == one.step and call.task <= self.point.task for call in self.made.all):
            return True
        once = {other.step for other in self.after if other.known is Known.HAPPENED and self._is_once(other)}
        return self._run_again() - {one.step} - self._descendants(one.step) <= once

    def _is_once(self, one: KnownEffect) -> bool:
        """Whether a second call with its key changes nothing; a fallback may not be asked a second time."""
        return one.effect in SINGLE and one.key.endswith(f"/{one.step}")

    def _run_again(self) -> AbstractSet[str]:
        over = {call.id for call in self.made.all if call.closed is not None and call.closed < self.point.task}
        return self._steps.keys() - over

    def _descendants(self, id: str) -> set[str]:
        found, steps = {id}, self._steps
        while new := {step.id for step in steps.values() if step.dependencies & found} - found:
            found |= new
        return found - {id}
