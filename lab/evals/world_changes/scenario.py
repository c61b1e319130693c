"""What a scenario is, how its file is read, and what the world plays in it."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, JsonValue, ValidationError, model_validator

from evals.tape.tape import Call, Point, Trouble
from evals.tape.world import Reply, WorldTool
from evals.world_changes.families import FAMILIES, Record, Scene, tool_of
from workflows.account.task import TaskStatus
from workflows.json_values import digest
from workflows.limits.budget import Limits
from workflows.plans.proposal import NewSteps, Step

SCENARIOS = Path(__file__).parent / "scenarios"
SEPARATOR = "--"
"""In the id of a run, after the name of its scenario."""
SECOND = ".second"
"""The end of the id of a task that is started once more with the same effect key."""
TROUBLES: Mapping[int, Trouble] = {
    **{401: Trouble.DENIED, 403: Trouble.WITHDRAWN, 423: Trouble.LOCKED, 429: Trouble.LIMIT, 503: Trouble.OUTAGE}
}
"""By the status of an event, what goes wrong."""


class BadScenario(ValueError):
    """A file of scenarios cannot be used; the message names the file, the place and the mistake."""


class Property(StrEnum):
    """What must hold in every scenario."""

    MET = "met"
    """The task meets the first change: a planner that gives up at once shows nothing."""
    OBSERVED = "observed"
    """After a rejected effect the state is read again before the next call of the same tool."""
    FITS = "fits"
    """No later plan makes a call that the world rejects for something that the task had been shown."""
    NO_REPEAT = "no repeat"
    """No call is made again against the same state after a persistent fault."""
    KEPT = "kept"
    """Finished steps stay finished: none runs again, and the Outcome has their results."""
    BUDGET = "budget"
    """Tool calls and replans are within the task's limits."""
    OUTCOME = "outcome"
    """The task ends as the scenario says, and the world is as it says, too."""
    QUADRANT = "quadrant"
    """Each fault is classified as the world means it."""
    ONCE = "once"
    """No effect is there twice."""


class _Frozen(BaseModel, frozen=True, extra="forbid"):
    pass


class Deploy(_Frozen):
    """What the tools of the next worker are like."""

    without: tuple[str, ...] = ()
    added: dict[str, str] = {}
    """By tool, an argument that it needs from then on."""
    after: float = 0.0
    """Seconds from the event until the worker is replaced."""


class Event(_Frozen):
    """Something that happens to a task at a call that it makes."""

    tool: str
    """The tool that is called."""
    number: int = Field(default=1, ge=1)
    """It happens at this call of the tool, counted from 1 and over all arguments."""
    calls: int = Field(default=1, ge=1)
    """How many calls in a row meet it; a `change` is made before the first of them."""
    change: dict[str, Record] = {}
    """By record, the fields that another actor sets, before the call."""
    gone: tuple[str, ...] = ()
    """Tools that the service does not have from then on."""
    wants: dict[str, str] = {}
    """By tool, an argument that the service wants from then on."""
    status: Literal[401, 403, 423, 429, 503] | None = None
    """What the calls are answered, without any effect."""
    retry_after: float | None = Field(default=None, gt=0)
    is_lost: bool = False
    """Whether the effect is applied, and its answer is lost."""
    deploy: Deploy | None = None

    def meets(self, call: Call) -> bool:
        """Whether this call meets it."""
        return call.tool == self.tool and self.number <= call.of_tool < self.number + self.calls

    @model_validator(mode="after")
    def _is_something(self) -> Self:
        if not (self.change or self.gone or self.wants or self.status or self.is_lost or self.deploy):
            raise ValueError("nothing happens: give change, gone, wants, status, is_lost or deploy")
        if self.retry_after is not None and self.status != 429:
            raise ValueError("retry_after goes with status 429 only")
        return self


class Ending(_Frozen):
    """One way in which the task may end."""

    status: tuple[TaskStatus, ...]
    made: dict[str, list[JsonValue]] = {}
    """By tool, whom or what its effects are about, in any order."""


class Scenario(_Frozen):
    """A task, the world that it meets, and how it may end."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    title: str
    """What changes."""
    text: str
    """The task, in a form that the offline planner reads, too."""
    records: dict[str, Record]
    events: tuple[Event, ...] = Field(min_length=1)
    plan: tuple[Step, ...] = Field(min_length=1)
    """The first plan, written before the change."""
    revisions: tuple[tuple[Step, ...], ...] = ()
    """The plans that fit what is seen after the changes, one after the other."""
    ending: Ending
    """How it ends with these plans."""
    others: tuple[Ending, ...] = ()
    """How it may end, too, with a planner that makes plans of its own."""
    limits: Limits = Limits(tool_calls=20, replans=3, deadline=120.0)
    most_replans: int | None = None
    """How many replans the scenario takes; None for the limit."""
    starts: Literal[1, 2] = 1
    """How often the task is started, with the same effect key."""
    breaks: tuple[Literal["no-guard", "no-observation", "no-ledger", "retried"], ...] = ()
    """The mutations under which it must fail."""
    family: str = ""
    """From the name of the file."""

    @property
    def digest(self) -> str:
        """The same as long as nothing of it changes."""
        return digest(self.model_dump(mode="json"))

    @property
    def deploys(self) -> bool:
        return any(event.deploy for event in self.events)

    @property
    def revised(self) -> tuple[NewSteps, ...]:
        return tuple(NewSteps(steps=steps) for steps in self.revisions)

    @model_validator(mode="after")
    def _fits_family(self) -> Self:
        if not self.family:
            return self
        steps = [step for plan in (self.plan, *self.revisions) for step in plan]
        named = [*(step.kind for step in steps), *(event.tool for event in self.events)]
        named += [tool for ending in (self.ending, *self.others) for tool in ending.made]
        for name in named:
            if tool_of(self.family, name) is None:
                raise ValueError(f"{name!r} is no tool of the family {self.family!r}")
        for step in steps:
            if not step.args.keys() <= (wanted := tool_of(self.family, step.kind).args.keys()):  # type: ignore[union-attr]  # it is one, see above
                raise ValueError(f"step {step.id!r} has {sorted(step.args)}, and {step.kind} takes {sorted(wanted)}")
        ids = [step.id for step in steps]
        if twice := {id for id in ids if ids.count(id) > 1}:
            raise ValueError(f"the step id {min(twice)!r} is used twice")
        return self


def scenarios(folder: Path = SCENARIOS) -> list[Scenario]:
    """All scenarios of a folder, by file.

    Raises:
        BadScenario: a file cannot be used.
    """
    found = [scenario for file in sorted(folder.glob("*.toml")) for scenario in read(file)]
    names = [scenario.name for scenario in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise BadScenario(f"{folder}: the name {min(twice)!r} is used twice")
    return found


def read(file: Path) -> Iterator[Scenario]:
    """The scenarios of a file, whose name is the family.

    Raises:
        BadScenario: the file cannot be used.
    """
    if file.stem not in FAMILIES:
        raise BadScenario(f"{file}: {file.stem!r} is none of the families {', '.join(FAMILIES)}")
    try:
        written = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BadScenario(f"{file}: {error}") from None
    if unknown := written.keys() - {"scenario"}:
        raise BadScenario(f"{file}: {min(unknown)!r} is no [[scenario]]")
    for number, fields in enumerate(written.get("scenario", ()), 1):
        try:
            yield Scenario.model_validate({**fields, "family": file.stem})
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, wrong["loc"]))
            name = fields.get("name", f"scenario {number}")
            raise BadScenario(f"{file}: {name}: {place + ': ' if place else ''}{wrong['msg']}") from None


class Plotted(BaseModel, frozen=True):
    """The scenarios that a world plays, as the process of the world reads them."""

    scenarios: tuple[Scenario, ...]


@dataclass(frozen=True)
class ScenarioPlot:
    """Plays a scenario to each task that has its name before `SEPARATOR`."""

    scenarios: Sequence[Scenario]
    state = Scene

    def scenario(self, task: str) -> Scenario:
        """The scenario of a task."""
        name = task.partition(SEPARATOR)[0]
        return next(scenario for scenario in self.scenarios if scenario.name == name)

    def opening(self, task: str) -> Scene:
        return Scene.model_validate({"records": self.scenario(task).records})

    def change(self, call: Call, state: Scene) -> bool:
        before = state.model_copy(deep=True)
        for event in self._met(call):
            if call.of_tool == event.number:
                for name, fields in event.change.items():
                    state.records[name] = {**state.records.get(name, {}), **fields}
                state.gone = [*state.gone, *event.gone]
                state.wants = {**state.wants, **event.wants}
        return state != before

    def tool(self, name: str, state: Scene) -> WorldTool[Scene] | None:
        known = next((tool for tools in FAMILIES.values() for tool in tools if tool.name == name), None)
        if known is None or name in state.gone:
            return None
        run, wanted = known.run, state.wants.get(name)

        def checked(scene: Scene, args: Mapping[str, Any]) -> Reply:
            if wanted is not None and wanted not in args:
                return Reply(422, {"detail": f"the argument {wanted} is missing", "missing": wanted})
            return run(scene, args)

        return WorldTool(checked, is_effect=known.effect != "read")

    def trouble(self, call: Call, *, is_effect: bool) -> Trouble:
        return next((TROUBLES[event.status] for event in self._met(call) if event.status), Trouble.NONE)

    def point(self, call: Call) -> Point:
        return Point.LOST if any(event.is_lost for event in self._met(call)) else Point.NONE

    def retry_after(self, call: Call) -> float | None:
        return next((event.retry_after for event in self._met(call) if event.status == 429), None)

    def lies(self, call: Call) -> bool:
        return False

    def _met(self, call: Call) -> Iterator[Event]:
        return (event for event in self.scenario(call.task).events if event.meets(call))
