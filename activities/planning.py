"""The planner's activities: `catalogue`, `plan` and `replan`, with the checks that need the kinds' schemas."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import JsonValue, ValidationError
from temporalio import activity

from activities.attempt import attempt
from activities.borders import validation
from activities.lookalike import lookalikes
from activities.toolbox.errors import NeedsPerson
from activities.toolbox.injection import folder
from activities.toolbox.kind import Kind
from workflows import routing
from workflows.catalogue import Catalogue, ToolSpec
from workflows.plan import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_STEPS,
    STEP_ID,
    Answer,
    GiveUp,
    NewSteps,
    Proposed,
    Question,
    Step,
    depth,
    nearest,
    references,
)
from workflows.task import Situation


class Planner(Protocol):
    """Whoever proposes: a model, rules, or a script."""

    @property
    def name(self) -> str:
        """How people call it."""

    async def propose(
        self, situation: Situation, kinds: Mapping[str, Kind]
    ) -> NewSteps | Answer | Question | GiveUp | Proposed:
        """Propose what comes next; the same situation may be asked about again after a crash.

        A planner that has more to say returns a Proposed: who answered, what it cost, why the answer cannot be used.
        """


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
    ) -> None:
        """Offer `kinds`; `searchable` says whether the namespace has our search attributes, `documents` is the root.

        `store` says which store the worker works with.
        """
        self._planner = planner
        self._kinds = kinds
        self._searchable = searchable
        self._documents = documents
        self._store = store
        self._patience = patience

    def activities(self) -> list[Callable[..., Any]]:
        """What the worker registers."""
        return [self.catalogue, self.plan, self.replan]

    @activity.defn(name=routing.CATALOGUE.kind)
    async def catalogue(self, wanted: dict[str, str | None]) -> Catalogue:
        """What this worker can do, as far as the workflow decides by it, and whether it can take the task."""
        async with attempt(routing.CATALOGUE):
            return Catalogue(
                specs={name: kind.spec for name, kind in self._kinds.items()},
                planner=self._planner.name,
                searchable=self._searchable,
                patience=self._patience,
                store=self._store,
                refused=self._refuses(wanted.get("documents")),
            )

    def _refuses(self, documents: str | None) -> str | None:
        """Say why a task with this folder of documents could not be done here."""
        if documents is None:
            return None
        try:
            folder(self._documents, documents)
        except NeedsPerson as missing:
            return str(missing)
        return None

    @activity.defn(name=routing.PLAN.kind)
    async def plan(self, situation: Situation) -> Proposed:
        """The first proposal, or the next one after a plan that finished."""
        return await self._propose(situation, routing.PLAN)

    @activity.defn(name=routing.REPLAN.kind)
    async def replan(self, situation: Situation) -> Proposed:
        """A proposal for a world that has changed."""
        return await self._propose(situation, routing.REPLAN)

    async def _propose(self, situation: Situation, spec: ToolSpec) -> Proposed:
        async with attempt(spec):
            if situation.plan is not None:
                return _checked(NewSteps(steps=situation.plan), self._kinds, self._planner.name)
            said = await self._planner.propose(situation, self._kinds)
            if not isinstance(said, Proposed):
                return _checked(said, self._kinds, self._planner.name)
            return said if said.rejected else _costing(said, _checked(said.proposal, self._kinds, said.planner))


def check(proposal: NewSteps | Answer | Question | GiveUp, kinds: Mapping[str, Kind]) -> list[str]:
    """Say what is wrong with a proposal as such; how it fits the task is the workflow's to check."""
    if _size(proposal) > MAX_BYTES:
        return [f"the proposal has {_size(proposal)} bytes, more than {MAX_BYTES}: propose less at once"]
    if not isinstance(proposal, NewSteps):
        return []
    if len(proposal.steps) > MAX_STEPS:
        return [f"the plan has {len(proposal.steps)} steps, more than {MAX_STEPS}: propose the first of them"]
    ids = {id for step in proposal.steps for id in (step.id, *step.needs)}
    return [reason for step in proposal.steps for reason in _check_step(step, kinds, ids)]


def _checked(proposal: NewSteps | Answer | Question | GiveUp, kinds: Mapping[str, Kind], planner: str) -> Proposed:
    """The proposal with what is wrong with it; one that is too large stays here, or the server would refuse it."""
    reasons = check(proposal, kinds)
    sent = proposal if _size(proposal) <= MAX_BYTES else GiveUp(reason=reasons[0])
    return Proposed(proposal=sent, rejected=tuple(reasons), planner=planner)


def _costing(said: Proposed, checked: Proposed) -> Proposed:
    """What was checked, with what the planner says that it cost."""
    return checked.model_copy(update={"model_calls": said.model_calls, "tokens": said.tokens})


def _size(proposal: NewSteps | Answer | Question | GiveUp) -> int:
    return len(proposal.model_dump_json().encode())


def _check_step(step: Step, kinds: Mapping[str, Kind], ids: Collection[str]) -> list[str]:
    if not re.fullmatch(STEP_ID, step.id):
        return [f"step id {step.id[:80]!r} must be a letter, then letters, digits, - or _, 64 at most"]
    if step.kind not in kinds:
        there = nearest(step.kind, kinds) or f": there are {', '.join(sorted(kinds))}"
        return [f"step {step.id!r}: there is no kind {step.kind[:80]!r}{there}"]
    if depth(step.args) > MAX_DEPTH:
        return [f"step {step.id!r}: its arguments are nested deeper than {MAX_DEPTH}: make them flat"]
    kind, others = kinds[step.kind], set(ids) - {step.id}
    wrong = _unknown_arguments(step, kind) or "; ".join(lookalikes(step.args, others)) or _wrong_arguments(step, kind)
    return [f"step {step.id!r}: {step.kind}: {wrong}"] if wrong else []


def _unknown_arguments(step: Step, kind: Kind) -> str:
    """Names that the kind would silently ignore: `limt=3` is a mistake of whoever planned it."""
    schema = kind.args_schema
    known = {*schema.get("properties", ()), *kind.args.model_fields}
    if _is_reference(step.args) or schema.get("additionalProperties"):
        return ""
    takes = f": it takes {', '.join(schema.get('properties', ())) or 'none'}"
    unknown = [name for name in step.args if name not in known][: validation.MAX_NAMED]
    return "; ".join(f"has no argument {name[:40]!r}{nearest(name, known) or takes}" for name in unknown)


def _wrong_arguments(step: Step, kind: Kind) -> str:
    """What the kind's model has against the arguments, but for values that are not known yet."""
    try:
        kind.parse(step.args)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        known = [one for one in found if not _is_open(step.args, one["loc"], one["type"])]
        return validation.fields(known)
    return ""


def _is_open(value: JsonValue, loc: Sequence[int | str], mistake: str) -> bool:
    """Whether a reference stands at this place of the arguments or above it; a name is known before its value is."""
    for part in loc:
        if _is_reference(value):
            return True
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]  # any other part names a member of a union, which is no place
    return mistake not in ("missing", "extra_forbidden") and any(references(value))


def _is_reference(value: JsonValue) -> bool:
    return isinstance(value, dict) and "$from" in value and value.keys() <= {"$from", "path"}
