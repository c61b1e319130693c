"""Who plans: the offline planner, a person, or a scripted model with one of a few bad habits."""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from activities.planning.strategies import PROPOSE
from evals.fakes.model_api import Json
from evals.fakes.script import ModelReply, ReceivedRequest, ScriptedResponse, finishes, gives_up, proposes
from evals.retry_waste.orders import BAD_KINDS
from evals.tape.tape import draw
from evals.world_changes.scenario import SEPARATOR, Scenario
from workflows.plans.proposal import Step

AGAIN = "-again-"
"""In the id of a step with which the stubborn model makes a rejected call again; the number of its turn follows."""
ANEW = "-anew-"
"""The same for a step with which the renaming model does again what was done."""
STUBBORN_PROPOSALS = 2
"""How often it proposes the same call after each rejection; a third time would end the task."""


class Planner(StrEnum):
    """The planners of this evaluation; each other name is a planner as `worker.py --planner` takes it."""

    OFFLINE = "offline"
    """The rules of the offline planner."""
    BY_HAND = "by-hand"
    """A person wrote the plans of the scenario; where they end, the offline planner's rules go on."""
    STEADY = "steady"
    """A model that proposes the plans of the scenario, one after the other, and gives up where they end."""
    STUBBORN = "stubborn"
    """It proposes each rejected call again before it goes on."""
    FORGETFUL = "forgetful"
    """After a rejection it has forgotten what was done, and proposes its first plan again before it goes on."""
    HALLUCINATING = "hallucinating"
    """In a share of its turns the first step has a kind that it made up."""
    RENAMING = "renaming"
    """It is forgetful, and proposes what was done under new ids, together with what comes next."""

    @property
    def is_model(self) -> bool:
        """Whether it is a scripted model, which is asked over the wire."""
        return self not in (Planner.OFFLINE, Planner.BY_HAND)


USUAL = tuple(planner for planner in Planner if planner is not Planner.RENAMING)
"""The planners with which every scenario holds."""


def scripted(scenarios: Sequence[Scenario], hallucination: float) -> ScriptedResponse:
    """The model of all runs; the text of each task ends with its id in square brackets."""
    by_name = {scenario.name: scenario for scenario in scenarios}

    def reply(request: ReceivedRequest) -> ModelReply:
        found = _TAG.search(request.all_text)
        if found is None:
            raise LookupError("The conversation names no run.")
        name, habit, _ = found[1].split(SEPARATOR)
        return _Turn(by_name[name], Planner(habit), found[1], request).reply(hallucination)

    return reply


_TAG = re.compile(r"\[([a-z0-9-]+--[a-z-]+--[a-z0-9.-]+)\]")
_FINISHED = re.compile(r"^([A-Za-z][\w-]*) is finished", re.MULTILINE)
_REFUSED = re.compile(r"^([A-Za-z][\w-]*) was refused \(", re.MULTILINE)


class _Turn:
    """One turn of the model, from what its conversation tells."""

    def __init__(self, scenario: Scenario, habit: Planner, run: str, request: ReceivedRequest) -> None:
        self._scenario, self._habit, self._run, self._request = scenario, habit, run, request
        text = request.all_text
        self._done = {_planned_id(id) for id in _FINISHED.findall(text)}
        self._refused = {_planned_id(id) for id in _REFUSED.findall(text)} - self._done
        self._proposed = [_ids(call.args) for call in request.calls if call.name == PROPOSE]

    def reply(self, hallucination: float) -> ModelReply:
        if not self._request.may_call:  # the budget is used up
            return ModelReply(text="It is not done.")
        plans = [self._scenario.plan, *self._scenario.revisions]
        for number, plan in enumerate(plans):
            ids = {step.id for step in plan}
            if ids <= self._done:
                return finishes("It is done.")
            if not ids & self._refused:
                return proposes(*self._with_habit(plans[number - 1] if number else (), plan, number, hallucination))
        before = self._with_habit(plans[-1], (), len(plans), 0.0)
        return proposes(*before) if before else gives_up(f"It cannot be done: {self._scenario.title}.")

    def _with_habit(self, before: Sequence[Step], plan: Sequence[Step], number: int, share: float) -> list[Json]:
        """What the model proposes in the place of the n-th plan, which follows on the plan `before`."""
        turn = self._request.turn
        match self._habit:
            case Planner.STUBBORN if again := [step for step in before if step.id in self._refused]:
                ids = {f"{step.id}{AGAIN}" for step in again}
                made = sum(any(id.startswith(tuple(ids)) for id in proposed) for proposed in self._proposed)
                if made < STUBBORN_PROPOSALS:
                    return [_written(step, id=f"{step.id}{AGAIN}{turn}", needs=()) for step in again]
            case Planner.FORGETFUL if number:
                first = self._scenario.plan[0].id
                if sum(first in proposed for proposed in self._proposed) <= number:
                    return [_written(step) for step in self._scenario.plan]
            case Planner.RENAMING if number and plan:
                done = [step for step in self._scenario.plan if step.id in self._done]
                return [
                    *(_written(step, id=f"{step.id}{ANEW}{turn}", needs=()) for step in done),
                    *(_written(step) for step in plan),
                ]
            case Planner.HALLUCINATING:
                written = [_written(step) for step in plan]
                kind = self._made_up(share)
                return [{**step, "kind": kind} if kind and not index else step for index, step in enumerate(written)]
        return [_written(step) for step in plan]

    def _made_up(self, share: float) -> str | None:
        turn = self._request.turn
        drawn = [draw("hallucination", self._run, earlier) < share for earlier in range(max(0, turn - 2), turn + 1)]
        if not drawn[-1] or (len(drawn) > 2 and all(drawn)):  # a third one in a row would end the task
            return None
        return BAD_KINDS[int(draw("kind", self._run, turn) * len(BAD_KINDS))]


def _planned_id(id: str) -> str:
    return id.partition(AGAIN)[0].partition(ANEW)[0]


def _ids(plan: object) -> list[str]:
    steps = plan.get("steps", ()) if isinstance(plan, Mapping) else ()
    return [str(step["id"]) for step in steps]


def _written(step: Step, **other: object) -> Json:
    return {**step.model_dump(mode="json", include={"id", "kind", "args", "needs"}), **other}


def repeats(ids: Sequence[str]) -> Iterator[str]:
    """The ids among these with which the stubborn model made a rejected call again."""
    return (id for id in ids if AGAIN in id)
