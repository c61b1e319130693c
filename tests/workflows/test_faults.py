"""The taxonomy: every code has its cell, and every fault its decision."""

from itertools import product

import pytest

from workflows.faults import retries
from workflows.faults.decision import (
    Decision,
    Escalate,
    NewPlan,
    Reconcile,
    Remaining,
    UseFallback,
    Wait,
    decide,
    outlast,
)
from workflows.faults.fault import DEFERRED, QUADRANT, Applied, Code, Fault, Quadrant, applied_by_call
from workflows.plans.catalogue import SAFE, CompanionSpec, Effect, ToolSpec

DAY = retries.STEP_DEADLINE.total_seconds()
LEFTS = [
    Remaining(attempts=attempts, waits=waits, waited=waited, patience=30, replans=replans, deadline=deadline)
    for attempts, waits, waited, replans, deadline in product((0, 3), (0, 9), (0, 29, 30), (True, False), (0, DAY))
]
SPECS = [ToolSpec(kind="k", effect=effect, fallback=fallback) for effect in Effect for fallback in (None, "other")]
RETRY_AFTERS = (None, 60.0, 61.0)
TRANSIENT = [code for code in Code if QUADRANT[code].is_transient]
EXHAUSTED = [code for code in TRANSIENT if code not in DEFERRED]
PERSISTENT_INFRA = [
    code for code in Code if QUADRANT[code] is Quadrant.PERSISTENT_INFRASTRUCTURAL and code is not Code.MISSING_TOOL
]
PERSISTENT_SEMANTIC = [code for code in Code if QUADRANT[code] is Quadrant.PERSISTENT_SEMANTIC]
RECONCILED = [
    ToolSpec(kind="k", effect=effect, reconcile=CompanionSpec(kind="look"))
    for effect in Effect
    if effect is not Effect.READ
]
READ = ToolSpec(kind="k", effect=Effect.READ)
WITH_FALLBACK = READ.model_copy(update={"fallback": "other"})


def fault(code: Code, effect: Applied = Applied.NONE, retry_after: float | None = None) -> Fault:
    """A fault in one line."""
    return Fault.of(code, "It happened.", applied=effect, retry_after=retry_after, source="k")


def known(spec: ToolSpec, effect: Applied) -> bool:
    """Whether planning may go on: nothing happened, or it may happen twice."""
    return effect is Applied.NONE or (effect is Applied.APPLIED and spec.effect is Effect.IDEMPOTENT)


def decisions(code: Code, effects: tuple[Applied, ...] = tuple(Applied)) -> list[Decision]:
    """Everything that may follow where the effect does not forbid to go on."""
    cases = product(effects, RETRY_AFTERS, SPECS, LEFTS)
    return [
        decide(fault(code, applied, after), spec, left) for applied, after, spec, left in cases if known(spec, applied)
    ]


def test_every_code_has_one_quadrant() -> None:
    """The closed list and the table name the same codes, every cell has some, and nobody can contradict the table."""
    assert set(QUADRANT) == set(Code)
    assert [code for code in Code if fault(code).quadrant is not QUADRANT[code]] == []
    assert {cell: (cell.is_transient, cell.is_semantic) for cell in QUADRANT.values()} == {
        Quadrant.TRANSIENT_INFRASTRUCTURAL: (True, False),
        Quadrant.TRANSIENT_SEMANTIC: (True, True),
        Quadrant.PERSISTENT_INFRASTRUCTURAL: (False, False),
        Quadrant.PERSISTENT_SEMANTIC: (False, True),
    }


def test_every_fault_has_a_decision() -> None:
    """`decide` is total: whatever is left, whatever the kind promises."""
    known = ("wait", "fallback", "replan", "reconcile", "escalate")
    cases = product(Code, Applied, RETRY_AFTERS, SPECS, LEFTS)

    assert [case for case in cases if decide(fault(*case[:3]), *case[3:]).action not in known] == []


def made(code: Code, specs: list[ToolSpec]) -> set[type[Decision]]:
    """All that may follow on a call of these kinds that may have happened."""
    cases = product(RETRY_AFTERS, specs, LEFTS)
    return {type(decide(fault(code, Applied.UNKNOWN, after), spec, left)) for after, spec, left in cases}


def test_a_call_that_may_have_happened_is_looked_up_and_then_for_a_person_before_all_else() -> None:
    """Effect unknown: never called again blindly, never planned around, unless repeating is harmless or found out."""
    specs = [spec for spec in SPECS if spec.effect not in SAFE]

    assert {code: followed for code in Code if (followed := made(code, specs)) != {Reconcile, Escalate}} == {}


def test_what_may_have_happened_and_is_safe_to_repeat_is_asked_again_or_goes_to_a_person() -> None:
    """A key makes two calls one, as long as there are attempts; it is never planned around either."""
    specs = [spec for spec in SPECS if spec.effect is Effect.KEYED]
    found = {code: made(code, specs) for code in Code}

    assert {code: followed for code, followed in found.items() if not followed <= {Wait, Escalate}} == {}
    assert [code for code, followed in found.items() if (Wait in followed) is not QUADRANT[code].is_transient] == []


def test_what_is_harmless_twice_is_planned_around_when_its_attempts_are_used_up() -> None:
    """A PUT without an answer may have happened: whoever goes another way does no harm by it."""
    put = ToolSpec(kind="k", effect=Effect.IDEMPOTENT)
    used_up = Remaining(attempts=0)
    decided = {code: decide(fault(code, Applied.UNKNOWN), put, used_up) for code in TRANSIENT}

    assert {code: one for code, one in decided.items() if one != decide(fault(code), put, used_up)} == {}


def test_a_refusal_that_may_be_an_echo_is_for_a_person() -> None:
    """A file that is gone after a deletion without an answer, is no reason for another plan."""
    cases = product(PERSISTENT_SEMANTIC, (Effect.IDEMPOTENT, Effect.KEYED, Effect.UNKEYED))
    looked = Remaining(attempts=3, reconcile=False)
    decided = {
        (code, effect): decide(fault(code, Applied.UNKNOWN), ToolSpec(kind="k", effect=effect), looked)
        for code, effect in cases
    }

    assert {case: decision for case, decision in decided.items() if decision != Escalate()} == {}


@pytest.mark.parametrize("effect", [Effect.TRANSACTIONAL, Effect.UNKEYED])
def test_the_ledger_is_asked_before_a_person(effect: Effect) -> None:
    """It has each such call, with its result if the worker knew one: no spec has to say how to find out."""
    spec = ToolSpec(kind="k", effect=effect)
    decided = {code: decide(fault(code, Applied.UNKNOWN), spec, Remaining(attempts=0)) for code in Code}

    assert {code: one for code, one in decided.items() if one not in (Reconcile(), Wait(seconds=0))} == {}


def is_found_out(code: Code, spec: ToolSpec) -> bool:
    """Whether an unknown outcome is reconciled before all else that is not safe, and escalated when that failed."""
    unknown = fault(code, Applied.UNKNOWN)
    first, last = decide(unknown, spec, Remaining(attempts=3)), decide(unknown, spec, Remaining(attempts=0))
    is_safe = spec.effect in SAFE
    return (
        (first == Reconcile() or (is_safe and code in TRANSIENT))
        and (last == Reconcile() or (is_safe and code in DEFERRED))
        and decide(unknown, spec, Remaining(attempts=0, reconcile=False)) != Reconcile()
    )


def test_what_can_be_found_out_is_found_out_before_anybody_is_asked() -> None:
    """Only what is safe to repeat is repeated first; what could not be told is for a person."""
    assert [(code, spec.effect) for code, spec in product(Code, RECONCILED) if not is_found_out(code, spec)] == []


def test_what_happened_is_never_done_by_another_plan() -> None:
    """A charge that was made, and whose receipt breaks its promise, is for a person; harmless is what may be twice."""
    effects = [effect for effect in (*SAFE, Effect.UNKEYED) if effect is not Effect.IDEMPOTENT]
    decided = {
        (code, effect): decide(fault(code, Applied.APPLIED), ToolSpec(kind="k", effect=effect), Remaining(attempts=3))
        for code, effect in product(Code, effects)
    }

    assert {case: decision for case, decision in decided.items() if decision != Escalate()} == {}


def test_what_the_deployment_caused_goes_to_a_person() -> None:
    """Zero retries, zero replans: neither time nor another plan can help."""
    found = {code: set(map(type, decisions(code))) for code in PERSISTENT_INFRA}

    assert {code: followed for code, followed in found.items() if followed != {Escalate}} == {}


def test_what_the_world_refused_leads_to_a_new_plan() -> None:
    """Zero retries; the kind itself stays usable."""
    decided = [(code, one) for code in PERSISTENT_SEMANTIC for one in decisions(code)]

    assert [(code, one) for code, one in decided if one != NewPlan(mark_down=False)] == []


def test_exhausted_retries_lead_to_the_fallback_if_there_is_one() -> None:
    """The RetryPolicy has done its work: another kind, else a plan without this one, else a person."""
    lefts = [
        (WITH_FALLBACK, Remaining(attempts=0)),
        (READ, Remaining(attempts=0)),
        (READ, Remaining(attempts=0, replans=False)),
    ]
    expected = [UseFallback(kind="other"), NewPlan(mark_down=True), Escalate()]
    decided = {code: [decide(fault(code), spec, left) for spec, left in lefts] for code in EXHAUSTED}

    assert {code: found for code, found in decided.items() if found != expected} == {}


def test_attempts_that_are_left_are_used_before_anything_else() -> None:
    """Siblings had reserved the retries of the kind and gave them back: a short wait, longer each time."""
    lefts = [Remaining(attempts=1, waits=waits) for waits in (0, 1, 9)]
    expected = [Wait(seconds=0.5), Wait(seconds=1), Wait(seconds=10)]
    decided = {code: [decide(fault(code), WITH_FALLBACK, left) for left in lefts] for code in EXHAUSTED}

    assert {code: found for code, found in decided.items() if found != expected} == {}


def test_a_transient_fault_marks_the_kind_down_when_it_leads_to_a_new_plan() -> None:
    """A plan that uses the same kind again would be a retry under another name."""
    assert [code for code in TRANSIENT if NewPlan(mark_down=False) in decisions(code)] == []


def test_a_shutdown_of_the_worker_is_rescheduled_at_once_whatever_is_left() -> None:
    """It is no fault of the call: another worker goes on."""
    assert set(map(repr, decisions(Code.WORKER_SHUTDOWN))) == {repr(Wait(seconds=0))}


OPEN = fault(Code.CIRCUIT_OPEN)
DOUBLED = ((0, 5), (1, 10), (5, 160), (6, 300), (50, 300))
FALLBACK, DOWN = UseFallback(kind="other"), NewPlan(mark_down=True)
DECIDED: list[tuple[Fault, ToolSpec, Remaining, Decision]] = [
    # a kind that is marked down may not be used in this task any more, neither by a plan nor as a fallback
    (fault(Code.TIMEOUT), WITH_FALLBACK, Remaining(attempts=0, down=("other",)), DOWN),
    # an open breaker is waited for on a timer from 5 s to 5 min, and not asked before its next trial
    *((OPEN, WITH_FALLBACK, Remaining(attempts=1, waits=n), Wait(seconds=seconds)) for n, seconds in DOUBLED),
    (fault(Code.CIRCUIT_OPEN, retry_after=60), READ, Remaining(attempts=1, waits=1), Wait(seconds=60)),
    (fault(Code.CIRCUIT_OPEN, retry_after=4), READ, Remaining(attempts=1, waits=1), Wait(seconds=10)),
    # beyond a minute the activity's backoff is the wrong place to wait
    *(
        (fault(code, retry_after=61), WITH_FALLBACK, Remaining(attempts=left), then)
        for code in (Code.RATE_LIMITED, Code.BUSY, Code.SERVER_ERROR)
        for left, then in ((1, Wait(seconds=61)), (0, FALLBACK))
    ),
    # nothing is waited for when no attempt is left, or beyond the deadline of the step
    (OPEN, WITH_FALLBACK, Remaining(attempts=0), FALLBACK),
    (OPEN, READ, Remaining(attempts=1, deadline=4), DOWN),
    (fault(Code.RATE_LIMITED, retry_after=1e300), READ, Remaining(attempts=1, deadline=4), DOWN),
    # a missing tool is waited for as long as the patience lasts, to the second
    *(
        (fault(Code.MISSING_TOOL), READ, Remaining(attempts=0, waits=waits, waited=waited, patience=30), then)
        for waits, waited, then in (
            (0, 0, Wait(seconds=1)),
            (1, 1, Wait(seconds=2)),
            (9, 20, Wait(seconds=10)),
            (2, 30, Escalate()),
            (0, 31, Escalate()),
        )
    ),
]


def test_what_takes_longer_is_waited_for_by_the_workflow_as_long_as_that_can_help() -> None:
    """Without burning attempts; then it ends like exhausted retries."""
    wrong = [(one, left, then) for one, spec, left, then in DECIDED if decide(one, spec, left) != then]

    assert wrong == []


@pytest.mark.parametrize("code", [Code.CIRCUIT_OPEN, Code.RATE_LIMITED, Code.UNREACHABLE])
def test_a_call_with_a_ticket_waits_for_its_turn(code: Code) -> None:
    """As long as its patience and the step's deadline allow, and an attempt is left; then its fallback is called."""
    waits, over = (fault(code).model_copy(update={"queued": seconds}) for seconds in (600.0, 0.0))

    assert decide(waits, WITH_FALLBACK, Remaining(attempts=1)) == Wait(seconds=600, until_admitted=True)
    assert decide(waits, WITH_FALLBACK, Remaining(attempts=1, deadline=9)) == Wait(seconds=9, until_admitted=True)
    assert decide(waits, WITH_FALLBACK, Remaining(attempts=0)) == FALLBACK
    assert decide(over, WITH_FALLBACK, Remaining(attempts=1)) == FALLBACK
    assert (waits.retryable(), waits.model_copy(update={"is_trial": True}).taken) == (False, 0)


OUTAGES: list[tuple[Fault, Remaining, Wait | None]] = [
    (fault(Code.OVERLOADED), Remaining(attempts=0), Wait(seconds=5)),
    (fault(Code.TIMEOUT), Remaining(attempts=0, waits=3), Wait(seconds=40)),
    (fault(Code.UNREACHABLE), Remaining(attempts=0, waits=200), Wait(seconds=300)),
    (fault(Code.RATE_LIMITED, retry_after=7200), Remaining(attempts=0), Wait(seconds=7200)),
    (fault(Code.RATE_LIMITED, retry_after=10 * DAY), Remaining(attempts=7), Wait(seconds=DAY)),
    (fault(Code.OVERLOADED), Remaining(attempts=0, waits=290, deadline=0.5), Wait(seconds=0.5)),
    (fault(Code.OVERLOADED), Remaining(attempts=0, waits=291, deadline=0), None),
    (fault(Code.UNAUTHORIZED), Remaining(attempts=0), None),
    (fault(Code.NO_RESULTS), Remaining(attempts=0), None),
    (fault(Code.WORKER_LOST).model_copy(update={"uncounted": True}), Remaining(attempts=0), None),
]


def test_an_outage_of_the_planner_is_waited_for_up_to_a_day() -> None:
    """From 5 s to 5 min, or as long as the provider asks; what a person has to repair is not waited for."""
    assert [outlast(one, remaining) for one, remaining, _ in OUTAGES] == [wait for _, _, wait in OUTAGES]


def test_only_what_time_can_cure_is_retried() -> None:
    """Transient, without an effect, within a minute; a breaker and a shutdown must not burn attempts."""
    assert [code for code in Code if fault(code).retryable() is not (code in EXHAUSTED)] == []
    assert not fault(Code.TIMEOUT, Applied.UNKNOWN).retryable() and not fault(Code.TIMEOUT, Applied.APPLIED).retryable()
    assert [fault(Code.RATE_LIMITED, retry_after=after).retryable() for after in (60, 60.1)] == [True, False]


def test_an_attempt_counts_when_the_tool_was_called() -> None:
    """A shutdown, an open breaker and a worker without the kind cost the step nothing."""
    counted = {
        (Code.TIMEOUT, 3): 3,
        (Code.BUG, 1): 1,
        (Code.REPEATED_CALL, 0): 0,
        (Code.WORKER_SHUTDOWN, 2): 1,
        (Code.CIRCUIT_OPEN, 1): 0,
        (Code.MISSING_TOOL, 1): 0,
        (Code.MISSING_TOOL, 0): 0,
    }

    assert {case: Fault.of(case[0], "It happened.", attempt=case[1]).taken for case in counted} == counted


UNASKED = [*TRANSIENT, *PERSISTENT_INFRA, Code.MISSING_TOOL, Code.INVALID_INPUT]
"""Codes of faults after which nobody knows whether the ledger, or the called system, was asked."""
EARLIER = [
    *((effect, code, Applied.UNKNOWN) for effect in Effect if effect is not Effect.READ for code in UNASKED),
    *((effect, Code.CONFLICT, Applied.UNKNOWN) for effect in (Effect.KEYED, Effect.IDEMPOTENT)),
    *((effect, Code.CONFLICT, Applied.NONE) for effect in (Effect.TRANSACTIONAL, Effect.UNKEYED, Effect.READ)),
    (Effect.READ, Code.MISSING_TOOL, Applied.NONE),
]


@pytest.mark.parametrize("is_unreported", [True, False])
def test_only_an_answer_settles_what_an_attempt_before_left_open(is_unreported: bool) -> None:
    """A ledger that was asked proves it; a worker that could not ask, and a service without a ledger, do not."""
    before = () if is_unreported else (fault(Code.UNREACHABLE, Applied.UNKNOWN),)
    found = {
        (effect, code, applied_by_call(effect, fault(code), before, is_unreported=is_unreported))
        for effect, code, _ in EARLIER
    }

    assert found == set(EARLIER)


@pytest.mark.parametrize("effect", Effect)
def test_attempts_without_an_effect_leave_nothing_open(effect: Effect) -> None:
    """And a call that was never made, because a person rejected it, is no answer."""
    none, open = fault(Code.BUSY), fault(Code.BUSY, Applied.UNKNOWN)
    uncalled = fault(Code.REJECTED).model_copy(update={"attempt": 0})
    left = Applied.NONE if effect is Effect.READ else Applied.UNKNOWN

    assert applied_by_call(effect, fault(Code.MISSING_TOOL), [none, none]) is Applied.NONE
    assert applied_by_call(effect, uncalled, [none, open]) is left
