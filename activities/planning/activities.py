"""The planner's activities: `catalogue`, `plan`, `replan` and `compact`."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue
from temporalio import activity

from activities import tracing
from activities.boundary.attempt import CallAttempt, FaultRaised, attempt_of
from activities.boundary.failpoints import Failpoint, FaultInjection
from activities.boundary.step_spans import turn_span
from activities.errors import NeedsPerson
from activities.offline.planner import OfflinePlanner
from activities.planning.checks import check_proposal, check_written, why_task_is_refused
from activities.planning.origins.trace import trace
from activities.planning.planner import ConversationalPlanner, Planner, RecordedTurn
from activities.planning.published import NO_OTHERS, Catalogues, OtherKinds, digest_of
from activities.planning.recorder import TurnRecorder
from activities.planning.transcript import Transcript
from activities.providers.metering import total
from activities.providers.prices import highest_price
from activities.providers.registry import UnknownPlanner
from activities.toolbox.declare.kind import Kind
from workflows.faults import retries
from workflows.faults.fault import Code, Fault, ModelUse, RecordedModelUse, parse_faults
from workflows.planning.situation import Situation
from workflows.plans import own_activities
from workflows.plans.catalogue import FORM, Catalogue, Price, ToolSpec
from workflows.plans.proposal import BY_HAND, NewSteps, Proposed

T = TypeVar("T")

TOO_MANY_LOST = (
    "Replies of the model were lost or unreadable ({lost}), and the rest of the budget does not cover another request."
)


MAX_MISTAKE = 500
"""The most characters of a mistake in the reason of a fault."""
LAST_NEWS = 2_000
"""Tokens of the budget that are kept back for the new results in a task's last request; longer results are cut."""


class Planning:
    """The activities that give the workflow its catalogue (the specs of this worker's tools) and its plans."""

    def __init__(
        self,
        planner: Planner,
        kinds: Mapping[str, Kind],
        *,
        searchable: bool,
        documents: Path | None = None,
        store: str | None = None,
        patience: float = retries.MISSING_TOOL_PATIENCE,
        transcript: Transcript | None = None,
        planner_for_task: Callable[[str], Planner] | None = None,
        breaks: FaultInjection | None = None,
        step_prices: Mapping[str, Price | None] | None = None,
        notifies: bool = False,
        page: str | None = None,
        catalogues: Catalogues | None = None,
    ) -> None:
        """`planner` plans the tasks that name no planner; `planner_for_task` makes the planner that a task names.

        `searchable` says whether Replan's search attributes are registered in the namespace. `documents` is the root
        folder of the tasks' documents; None if the worker has no documents. `store` is the id of the worker's store.
        `patience` is how many seconds the workflow waits for a worker that has a missing tool. `transcript` records
        conversations; without a transcript, each request to a planner contains the whole task. `breaks` injects the
        faults of `--break`. `step_prices` are the prices of the models that tools use. `notifies` says whether the
        worker reports requests to people to a receiver (`--notify`); `page` is the address where people open the page.
        `catalogues` says what other workers have; None if the worker stands alone.
        """
        self._planner = planner
        self._kinds = {name: kind for name, kind in kinds.items() if not kind.is_hidden}
        self._catalogue = Catalogue(
            form=FORM,
            digest=digest_of(specs := {name: kind.spec for name, kind in kinds.items()}),
            specs=specs,
            planner=planner.name,
            searchable=searchable,
            patience=patience,
            store=store,
            notifies=notifies,
            page=page or "",
        )
        self._is_unread = any(kind.spec.unread for kind in self._kinds.values())
        """Whether a model is told words of a foreign server that no person has read."""
        self._catalogues = catalogues
        self._documents = documents
        self._recorder = TurnRecorder(transcript) if transcript else None
        self._planner_for_task = planner_for_task
        self._breaks = breaks or FaultInjection((), {})
        # If no tool uses a model, a task with `--usd` does not need the prices of these models.
        self._step_prices = (step_prices or {}) if any(kind.spec.tokens for kind in kinds.values()) else {}

    def activities(self) -> list[Callable[..., Any]]:
        return [self.catalogue, self.plan, self.replan, self.compact]

    @activity.defn(name=own_activities.CATALOGUE.kind)
    async def catalogue(self, requirements: dict[str, JsonValue]) -> Catalogue:
        """Return the worker's kinds and settings; `refused` says why it cannot run a task with these `requirements`.

        If the requirements have an `opening` (the first situation) that can be answered without I/O, the catalogue has
        the first proposal, too.
        """
        async with attempt_of(own_activities.CATALOGUE) as this:
            try:
                planner = await self._select(requirements.get("planner"))
            except UnknownPlanner as unknown:
                named = {"planner": str(requirements["planner"]), "refused": str(unknown)}
                return self._catalogue.model_copy(update=named)
            own_prices = planner.prices if isinstance(planner, ConversationalPlanner) else {}
            prices = {**own_prices, **self._step_prices}
            continues = requirements.get("continues")
            continued = None
            if self._recorder and continues:
                continued = (await self._recorder.transcript.load(str(continues))).newest()
            needs = requirements, planner, self._kinds, prices, self._documents, continued
            refused = await self._judged(partial(why_task_is_refused, *needs), lambda why: why)
            settings = {
                "planner": BY_HAND if requirements.get("by_hand") else planner.name,
                "refused": refused,
                "price": highest_price(own_prices.values()),
                "step_price": highest_price(self._step_prices.values()),
                "prices": prices,
            }
            found = self._catalogue.model_copy(update=settings)
            if "opening" in requirements and not refused:
                opening = await self._open(planner, Situation.model_validate(requirements["opening"]), this)
                found = found.model_copy(update={"opening": opening})
            if isinstance(planner, OfflinePlanner):
                return found.model_copy(update={"plans_locally": True})
            if not isinstance(planner, ConversationalPlanner) or self._recorder is None:
                return found
            is_clean = bool(continued) and not any(turn.situation.is_tainted for turn in continued or ())
            sizes = {"preamble": planner.preamble(self._kinds), "last_news": LAST_NEWS}
            longest = planner.longest_reply
            return found.model_copy(update={"converses": True, "is_clean": is_clean, **sizes, "longest_reply": longest})

    async def _open(self, planner: Planner, opening: Situation, this: CallAttempt) -> Proposed | None:
        """Return the first proposal (a hand-written plan without its steps); None if the planner needs I/O for it."""
        if opening.plan is None and not isinstance(planner, OfflinePlanner):
            return None
        converses = isinstance(planner, ConversationalPlanner) and self._recorder is not None
        situation = opening.model_copy(update={"converses": converses})
        with tracing.span(*turn_span(own_activities.PLAN.kind, {})):
            proposed = await self._propose(planner, situation, own_activities.PLAN, this)
        if opening.plan is None or proposed.rejected:
            return proposed
        return proposed.model_copy(update={"proposal": NewSteps(steps=())})

    @activity.defn(name=own_activities.PLAN.kind)
    async def plan(self, situation: Situation) -> Proposed:
        """Return the first proposal of a task, or the next proposal after all steps of a plan are finished."""
        return await self._run_attempt(situation, own_activities.PLAN)

    @activity.defn(name=own_activities.REPLAN.kind)
    async def replan(self, situation: Situation) -> Proposed:
        """Return the next proposal after a step was rejected."""
        return await self._run_attempt(situation, own_activities.REPLAN)

    @activity.defn(name=own_activities.COMPACT.kind)
    async def compact(self, situation: Situation) -> Proposed:
        """Summarise the oldest turns of the conversation; the returned proposal reports only the summary's cost."""
        return await self._run_attempt(situation, own_activities.COMPACT)

    async def _run_attempt(self, situation: Situation, spec: ToolSpec) -> Proposed:
        async with attempt_of(spec) as this:
            try:
                planner = await self._select(situation.planner)
            except UnknownPlanner as unknown:
                raise NeedsPerson(str(unknown)) from unknown
            proposed = await self._propose(planner, situation, spec, this)
            more = {"earlier": (*this.earlier, *proposed.earlier), "held": this.held}
            return proposed.model_copy(update={**more, "specs": self._specs_for(situation, proposed)})

    def _specs_for(self, situation: Situation, proposed: Proposed) -> dict[str, JsonValue]:
        """What `Proposed.specs` has: the specs of the steps' kinds, and of their companions and fallbacks."""
        is_same = situation.catalogue in ("", self._catalogue.digest)
        left = [] if is_same or not isinstance(proposed.proposal, NewSteps) else list(proposed.proposal.steps)
        kinds, found = [step.kind for step in left], dict[str, JsonValue]()
        while kinds:
            spec = self._catalogue.specs.get(kind := kinds.pop())
            if spec is not None and kind not in found:
                found[kind] = spec.model_dump(mode="json", exclude_defaults=True)
                kinds += [companion.kind for companion in (spec.observe, spec.reconcile, spec.undo) if companion]
                kinds += [spec.fallback] if spec.fallback else []
        return found

    async def _propose(self, planner: Planner, situation: Situation, spec: ToolSpec, this: CallAttempt) -> Proposed:
        self._inject_fault(spec, Failpoint.BEFORE_CLAIM)
        if self._is_unread and situation.plan is None and not isinstance(planner, OfflinePlanner):
            situation = situation.model_copy(update={"is_tainted": True})
        if situation.converses:
            proposed = await self._converse(planner, situation, spec, this)
        # A hand-written plan is checked like a planner's proposal, but no planner is asked.
        elif written := await self._check_written(situation):
            proposed = written
        else:
            reply = await planner.propose(situation, self._kinds)
            named = reply if isinstance(reply, Proposed) else Proposed(proposal=reply, planner=planner.name)
            proposed = _with_earlier_use(await self._check_and_trace(named, (), situation), this, this.meter.wasted)
        self._inject_fault(spec, Failpoint.AFTER_COMMIT)
        return proposed

    async def _check_and_trace(
        self, proposed: Proposed, past: Sequence[RecordedTurn], situation: Situation
    ) -> Proposed:
        check = partial(check_proposal, proposed, self._kinds)
        checked = await self._judged(check, _first_mistake, situation.catalogue)
        if not situation.is_tainted or not isinstance(checked.proposal, NewSteps):
            return checked
        # In a thread: results of a megabyte take a second.
        origins = await asyncio.to_thread(trace, checked.proposal.steps, past, situation, self._kinds)
        return checked.model_copy(update={"origins": origins})

    async def _check_written(self, situation: Situation) -> Proposed | None:
        check = partial(check_written, situation, self._kinds)
        return await self._judged(check, _first_mistake, situation.catalogue)

    async def _judged(self, check: Callable[[OtherKinds], T], wrong: Callable[[T], str | None], task: str = "") -> T:
        """The result of `check`, in which `wrong` finds a mistake, if any; `task` is the digest of its catalogue.

        Raises:
            FaultRaised: it is a mistake only here, because another worker of the queue has what this one lacks.
        """
        found = check(NO_OTHERS)
        if not (mistake := wrong(found)) or self._catalogues is None:
            return found
        found = check(await self._catalogues.others(task))
        if wrong(found):
            return found
        raise FaultRaised(_left_to_another(mistake))

    async def _converse(self, planner: Planner, situation: Situation, spec: ToolSpec, this: CallAttempt) -> Proposed:
        # The situation has only what is new in the conversation: without it, the planner would not know the task.
        if not isinstance(planner, ConversationalPlanner) or self._recorder is None:
            raise NeedsPerson(f"{planner.name} keeps no conversation: start a worker with the planner of the task.")

        async def check(proposed: Proposed, past: Sequence[RecordedTurn]) -> Proposed:
            wasted = [] if proposed.unchecked else this.meter.wasted
            try:
                judged = proposed.model_copy(update={"unchecked": ""})
                checked = await self._check_and_trace(judged, past, situation)
            except FaultRaised as left:  # the reply is recorded first, so that nobody pays for it again
                checked = proposed.model_copy(update={"unchecked": left.fault.reason})
            return _with_use(checked, [_use_of(checked), *wasted])  # recorded with all that it took

        proposed, was_recorded = await self._recorder.propose(
            planner,
            situation,
            self._kinds,
            task=this.call.key.partition("/")[0],  # all keys of a task begin with the run id of its first run
            check=check,
            reach=partial(self._reach, spec, situation, this),
            written=await self._check_written(situation),
        )
        if proposed.unchecked:
            raise FaultRaised(_missing_tool(proposed.unchecked))
        meter, is_checked = this.meter, not (was_recorded or proposed.compact)
        more = [*(meter.replies if was_recorded else ()), *(() if is_checked else meter.wasted)]
        return _with_earlier_use(proposed, this, more, was_recorded=was_recorded)

    async def _select(self, name: JsonValue) -> Planner:
        if name is None:
            return self._planner
        if self._planner_for_task is None:
            raise UnknownPlanner(f"This worker makes no planner {str(name)[:80]!r}: leave --planner out.")
        # In a thread: the first price that is looked up imports a package, which takes 0.1 s or more.
        return await asyncio.to_thread(self._planner_for_task, str(name))

    def _inject_fault(self, spec: ToolSpec, point: Failpoint) -> None:
        self._breaks.stop(spec.kind, point)
        fault = self._breaks.fault(spec.kind, point)
        if fault is not None:
            raise FaultRaised(fault)

    def _reach(self, spec: ToolSpec, situation: Situation, this: CallAttempt, point: Failpoint) -> None:
        """Act as `--break` says at this failpoint; raise FaultRaised if lost replies used up what a request needs."""
        limit, billed = situation.max_lost_replies, _earlier_bills(this)
        if point is Failpoint.AFTER_CLAIM and limit is not None and billed > limit:
            fault = Fault.of(Code.QUOTA_EXHAUSTED, TOO_MANY_LOST.format(lost=billed))
            raise FaultRaised(fault.model_copy(update={"lost": billed}))
        self._breaks.stop(spec.kind, point)


def _first_mistake(proposed: Proposed | None) -> str:
    return str(proposed.rejected[0]) if proposed and proposed.rejected else ""


def _left_to_another(mistake: str) -> Fault:
    why = f"This worker cannot check it ({mistake.rstrip('.')[:MAX_MISTAKE]}), and another worker of the queue can."
    return _missing_tool(f"{why} If it does not come back, start a worker with its tools.")


def _missing_tool(reason: str) -> Fault:
    return Fault.of(Code.MISSING_TOOL, reason, retry_after=retries.OTHER_WORKER_WAIT)


def _use_of(proposed: Proposed) -> ModelUse:
    return ModelUse(**proposed.model_dump(include={"tokens", "usd", "estimated"}), calls=proposed.model_calls)


def _with_use(proposed: Proposed, uses: Iterable[ModelUse]) -> Proposed:
    used = total(uses)
    return proposed.model_copy(
        update={"model_calls": used.calls, "tokens": used.tokens, "usd": used.usd, "estimated": used.estimated}
    )


def _with_earlier_use(
    proposed: Proposed, this: CallAttempt, more: Sequence[ModelUse], *, was_recorded: bool = False
) -> Proposed:
    """Add the cost of `more` requests of this attempt, and of those of earlier attempts without a usable reply.

    `was_recorded` says whether another attempt recorded `proposed`: its use is then counted once, and not as lost.
    """
    faults = parse_faults(this.earlier)
    uses = [fault.model_use for fault in faults if fault.model_use and fault.model_use.calls]
    own, lost = _use_of(proposed), [fault for fault in faults if _is_lost(fault)]
    silent, unreported = _silent_attempts(this), [fault for fault in lost if not fault.lost_model]
    found = list[JsonValue]()
    if was_recorded and own in uses:  # the attempt that recorded it failed afterwards
        uses.remove(own)
    elif was_recorded and silent + len(unreported):  # it is one of those whose use nobody knew
        silent -= 1
    elif was_recorded and own.calls:
        found = [RecordedModelUse(found=own).model_dump(mode="json")]
    models = [*(fault.lost_model for fault in lost if fault.lost_model), *(reply.model for reply in this.meter.lost)]
    return _with_use(proposed, [own, *uses, *more]).model_copy(
        update={
            "lost": silent + len(lost) + len(this.meter.lost),
            "lost_models": tuple(models),
            "earlier": tuple(found),
        }
    )


def _earlier_bills(this: CallAttempt) -> int:
    """The number of requests of earlier attempts that the provider bills, or may bill although the reply was lost."""
    faults = parse_faults(this.earlier)
    paid = sum(fault.model_use is not None and fault.model_use.tokens > 0 for fault in faults)
    return _silent_attempts(this) + paid + sum(map(_is_lost, faults))


def _silent_attempts(this: CallAttempt) -> int:
    """The number of attempts that ended without a reported fault (crash or timeout); each may have sent a request."""
    return this.number - 1 - len(this.earlier)


def _is_lost(fault: Fault) -> bool:
    """Whether the attempt with this fault may have lost a reply of a model, and reported no use of models."""
    cut_off = fault.code in (Code.TIMEOUT, Code.UNREACHABLE) and not fault.unsent
    return fault.model_use is None and (bool(fault.lost_model) or cut_off)
