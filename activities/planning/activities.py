"""The planner's activities: `catalogue`, `plan` and `replan`, with the checks that need the kinds' schemas."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from temporalio import activity

from activities.boundary.attempt import Attempt, FaultRaised, attempt
from activities.boundary.failpoints import Breaks, Point
from activities.errors import NeedsPerson
from activities.planning.checks import checked, refusal
from activities.planning.planner import Conversing, Planner, UnknownPlanner
from activities.planning.recording import Recording, is_clean
from activities.planning.transcript import Transcript
from activities.providers.prices import dearest
from activities.toolbox.declare.kind import Kind
from workflows import routing
from workflows.catalogue import Catalogue, Price, ToolSpec
from workflows.faults import Code, Fault
from workflows.plan import NewSteps, Proposed
from workflows.situation import Situation

NO_ROOM = "Answers of the model were lost ({lost}), and what is set aside for this turn does not do for another."


class Planning:
    """Gives a planner to the workflow."""

    def __init__(
        self,
        planner: Planner,
        kinds: Mapping[str, Kind],
        *,
        searchable: bool,
        documents: Path | None = None,
        store: str | None = None,
        patience: float = routing.MISSING_TOOL_PATIENCE,
        transcript: Transcript | None = None,
        named: Callable[[str], Planner] | None = None,
        breaks: Breaks | None = None,
        asked: Mapping[str, Price | None] | None = None,
    ) -> None:
        """Offer `kinds`; `searchable` says whether the namespace has our search attributes, `documents` is the root.

        `store` says which store the worker works with, and `transcript` keeps its conversations; without one every
        planner is told the whole situation each time. `named` makes the planner that a task names; `breaks` fail on
        purpose. `asked` are the models that steps may ask, by name, with their prices.
        """
        self._planner = planner
        self._kinds = kinds
        self._searchable = searchable
        self._documents = documents
        self._store = store
        self._patience = patience
        self._recording = Recording(transcript) if transcript else None
        self._named = named
        self._breaks = breaks or Breaks((), {})
        self._asked = (asked or {}) if any(kind.spec.tokens for kind in kinds.values()) else {}

    def activities(self) -> list[Callable[..., Any]]:
        """What the worker registers."""
        return [self.catalogue, self.plan, self.replan, self.compact]

    @activity.defn(name=routing.CATALOGUE.kind)
    async def catalogue(self, wanted: dict[str, JsonValue]) -> Catalogue:
        """What this worker can do, as far as the workflow decides by it, and whether it can take the task."""
        async with attempt(routing.CATALOGUE):
            promised: dict[str, Any] = {
                "specs": {name: kind.spec for name, kind in self._kinds.items()},
                "searchable": self._searchable,
                "patience": self._patience,
                "store": self._store,
            }
            try:
                planner = self._of(wanted.get("planner"))
            except UnknownPlanner as unknown:
                return Catalogue(**promised, planner=str(wanted["planner"]), refused=str(unknown))
            known, continues = self._prices(planner), wanted.get("continues")
            carried = await self._recording.of(continues) if self._recording and continues else None
            promised |= {
                "planner": planner.name,
                "price": dearest(known.values()),
                "refused": refusal(wanted, planner, self._kinds, known, self._documents, carried),
            }
            if not isinstance(planner, Conversing) or self._recording is None:
                return Catalogue(**promised)
            more = {"preamble": planner.preamble(self._kinds), "is_clean": bool(carried) and is_clean(carried or ())}
            return Catalogue(**promised, converses=True, **more)

    def _prices(self, planner: Planner) -> dict[str, Price | None]:
        """What each model costs that a task of this planner may use, by name."""
        plans = planner.prices if isinstance(planner, Conversing) else {}
        return {**plans, **self._asked}

    def _of(self, name: JsonValue) -> Planner:
        """The planner that a task names, or the worker's own.

        Raises:
            UnknownPlanner: this worker cannot make it.
        """
        if name is None:
            return self._planner
        if self._named is None:
            raise UnknownPlanner(f"This worker makes no planner {str(name)[:80]!r}: leave --planner out.")
        return self._named(str(name))

    def _for(self, situation: Situation) -> Planner:
        """The planner of a task that some worker has taken.

        Raises:
            NeedsPerson: this one cannot make it.
        """
        try:
            return self._of(situation.planner)
        except UnknownPlanner as unknown:
            raise NeedsPerson(str(unknown)) from unknown

    def _conversing(self, situation: Situation) -> tuple[Conversing, Recording]:
        """The planner of a task that keeps a conversation, and where that is kept.

        Raises:
            NeedsPerson: this worker has none, as after a start without a key; it would know what is new alone.
        """
        planner = self._for(situation)
        if not isinstance(planner, Conversing) or self._recording is None:
            raise NeedsPerson(f"{planner.name} keeps no conversation: start a worker with the planner of the task.")
        return planner, self._recording

    @activity.defn(name=routing.PLAN.kind)
    async def plan(self, situation: Situation) -> Proposed:
        """The first proposal, or the next one after a plan that finished."""
        return await self._propose(situation, routing.PLAN)

    @activity.defn(name=routing.REPLAN.kind)
    async def replan(self, situation: Situation) -> Proposed:
        """A proposal for a world that has changed."""
        return await self._propose(situation, routing.REPLAN)

    @activity.defn(name=routing.COMPACT.kind)
    async def compact(self, situation: Situation) -> Proposed:
        """A summary of the oldest turns of the conversation, in the place of these; of the proposal only its cost."""
        async with self._attempt(routing.COMPACT) as this:
            planner, recording = self._conversing(situation)
            reach = partial(self._reach, routing.COMPACT, situation, this)
            found, was_recorded = await recording.summarise(planner, situation, _task(this), reach)
            return _costing(found, this, was_recorded)

    async def _propose(self, situation: Situation, spec: ToolSpec) -> Proposed:
        async with self._attempt(spec) as this:
            if situation.converses:
                conversing, recording = self._conversing(situation)
                reach = partial(self._reach, spec, situation, this)
                found = await recording.propose(
                    conversing, situation, self._kinds, _task(this), check=self._checked, reach=reach
                )
                return _costing(found[0], this, found[1])
            planner = self._for(situation)
            if situation.plan is not None:
                return self._checked(Proposed(proposal=NewSteps(steps=situation.plan), planner=planner.name))
            said = await planner.propose(situation, self._kinds)
            if isinstance(said, Proposed):
                return self._checked(said)
            return self._checked(Proposed(proposal=said, planner=planner.name))

    @asynccontextmanager
    async def _attempt(self, spec: ToolSpec) -> AsyncIterator[Attempt]:
        """One attempt, which breaks where somebody wants that."""
        async with attempt(spec) as this:
            self._break(spec, Point.BEFORE_CLAIM)
            yield this
            self._break(spec, Point.AFTER_COMMIT)

    def _reach(self, spec: ToolSpec, situation: Situation, this: Attempt, point: Point) -> None:
        """Say how far an attempt is: before a request is made, the budget must have room for what was lost.

        Raises:
            FaultRaised: it has none.
        """
        lost = _lost(this)
        if point is Point.AFTER_CLAIM and situation.max_lost_replies is not None and lost > situation.max_lost_replies:
            fault = Fault.of(Code.QUOTA_EXHAUSTED, NO_ROOM.format(lost=lost))
            raise FaultRaised(fault.model_copy(update={"lost": lost}))
        self._breaks.reach(spec.kind, point)

    def _break(self, spec: ToolSpec, point: Point) -> None:
        self._breaks.reach(spec.kind, point)
        fault = self._breaks.next(spec.kind, after=point is Point.AFTER_COMMIT)
        if fault is not None:
            raise FaultRaised(fault)

    def _checked(self, proposed: Proposed) -> Proposed:
        return checked(proposed, self._kinds)


def _task(this: Attempt) -> str:
    """The first run of the task, with which all its keys begin."""
    return this.call.key.partition("/")[0]


def _lost(this: Attempt) -> int:
    """Requests of earlier attempts whose answers were lost: an attempt that was ended may have cost as much."""
    silent = this.number - 1 - len(this.earlier)
    cut = (Code.TIMEOUT, Code.UNREACHABLE)
    return silent + sum(fault.get("code") in cut and not fault.get("unsent") for fault in this.earlier)


def _costing(proposed: Proposed, this: Attempt, was_recorded: bool) -> Proposed:
    """The proposal with the requests whose answers were lost; one that was recorded was not."""
    return proposed.model_copy(update={"lost": max(0, _lost(this) - was_recorded)})
