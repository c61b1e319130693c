"""The circuit breaker around one attempt: decides whether the call is made now, and records how the call ended.

Runs in each attempt of a tool's call: after its arguments and its approval are checked, and when it has ended.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from temporalio import activity

from activities import deadline
from activities.boundary.attempt import CallAttempt, FaultRaised
from activities.boundary.breakers.rows import Breakers, Entered, Move
from activities.boundary.breakers.states import LONGEST_LIMIT, TRIAL_LEASE, Breaker, BreakerState
from activities.boundary.breakers.tickets import Caller
from activities.toolbox.declare.kind import Kind
from workflows.faults import retries
from workflows.faults.circuit_breaker import CircuitBreaker
from workflows.faults.fault import Applied, Code, Fault
from workflows.plans.catalogue import SAFE

FAILURES = frozenset({Code.TIMEOUT, Code.UNREACHABLE, Code.SERVER_ERROR, Code.OVERLOADED})
"""Codes of a service that is down: the transient infrastructural codes, without those that are Replan's own."""
TROUBLES = FAILURES | {Code.RATE_LIMITED}
"""Codes after which a service is left alone: it is down, or limits its callers."""
ANSWERS = frozenset({Code.UNAUTHORIZED, Code.FORBIDDEN, Code.QUOTA_EXHAUSTED, Code.NEEDS_PERSON})
"""Codes of persistent infrastructural faults with which a service answers; every semantic fault is an answer, too."""


class BreakerGuard:
    """The breaker around one attempt: `admit` before it calls the tool, and `end` when it has ended."""

    def __init__(self, breakers: Breakers, kind: Kind, attempt: CallAttempt) -> None:
        """Must be created on the worker's own event loop, like `breakers`."""
        self._breakers = breakers
        self._service = kind.service
        self._policy = kind.breaker
        self._limit = kind.limit
        self._has_fallback = kind.spec.fallback is not None
        self._attempt = attempt
        self._key = attempt.call.key
        self._home = asyncio.get_running_loop()
        self._generation: int | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def admit(self, service: str) -> None:
        """Let the attempt call a service now, if the service's breaker and limit allow it.

        Raises:
            FaultRaised: the breaker or the limit does not allow the call now; nothing was called.
        """
        if self._policy is None or self._attempt.call.provided is not None:
            return
        self._service = service
        known = self._breakers.known(service)
        if known is not None and self._is_free(known):
            self._generation = known.generation
            return
        began = deadline.clock()
        await self._at_home(self._enter())
        deadline.extend(deadline.clock() - began)

    async def end(self, fault: Fault | None, *, is_done: bool = False) -> Fault | None:
        """Record what the end of the attempt shows about the service: a fault, a result (`is_done`), or a cancel.

        Returns the fault; if the call now waits for its turn, the fault has `queued`.
        """
        if self._renewing is not None:
            self._renewing.cancel()
        if self._policy is None or self._generation is None:
            return fault
        is_trial, is_called = self._renewing is not None, self._attempt.reached and not self._attempt.replayed
        if fault and is_called and fault.code in TROUBLES:
            caller = self._caller() if self._may_repeat(fault) else None
            move = self._move_after_trouble(fault, self._policy, self._generation, may_wait=caller is not None)
        else:
            caller, is_answered = None, is_called and self._is_answered(fault, is_done)
            move = self._move_without_trouble(self._policy, self._generation, is_answered=is_answered)
            if not is_trial:
                await self._breakers.move(self._service, move)
                return fault
        left = await self._breakers.leave(self._service, self._key, move, caller, is_trial=is_trial)
        if fault is None or left.queued is None:
            return fault
        return fault.model_copy(update={"queued": round(left.queued, 1), "is_trial": left.is_trial})

    def _is_free(self, breaker: Breaker) -> bool:
        """Whether the call is made now without a look at the tickets."""
        return breaker.state is BreakerState.CLOSED and not self._limit and not breaker.waits_alone(self._key)

    def _is_answered(self, fault: Fault | None, is_done: bool) -> bool:
        """Whether the service certainly answered a call that shows no trouble."""
        if fault is None:
            return is_done  # else it was cancelled
        return self._attempt.ended or fault.quadrant.is_semantic or fault.code in ANSWERS

    def _move_without_trouble(self, policy: CircuitBreaker, generation: int, *, is_answered: bool) -> Move:
        """The transition of the breaker after a call that shows no trouble of the service."""
        if is_answered:
            return lambda breaker, moment: breaker.succeeded(self._key, generation, policy, moment)
        return lambda breaker, _: breaker.released(self._key, generation)

    def _move_after_trouble(self, trouble: Fault, policy: CircuitBreaker, generation: int, *, may_wait: bool) -> Move:
        """The transition of the breaker after a fault with a code of TROUBLES; `may_wait`: the call can wait."""
        key, requested, jitter = self._key, trouble.retry_after, self._breakers.jitter()
        # Another fault, such as a timeout or a 500, may be due to the call's own arguments. If the service asks for a
        # long wait, the workflow waits for so long; the patience of a call alone would be over before. A fallback is
        # there to be called soon.
        is_down = trouble.is_down and (requested or 0) <= LONGEST_LIMIT
        may_wait = may_wait and is_down and not self._has_fallback
        if trouble.code is Code.RATE_LIMITED:
            return lambda breaker, moment: breaker.limited(key, generation, requested, jitter, policy, moment.now)
        return lambda breaker, moment: breaker.failed(
            key, generation, trouble.code, policy, moment.now, may_wait=may_wait, requested=requested, jitter=jitter
        )

    def _caller(self) -> Caller | None:
        """The call, if it can wait for its turn; None if its workflow cannot be told of the turn."""
        started, namespace = self._attempt.call.started, self._breakers.namespace
        if started is None or namespace is None:
            return None
        patience = self._attempt.call.patience
        return Caller(self._key, namespace, activity.info().workflow_id or "", started, patience)

    def _may_repeat(self, fault: Fault) -> bool:
        """Whether the workflow may repeat the call: it is safe, and this attempt was a trial or not the last one."""
        is_safe = fault.applied is Applied.NONE or self._attempt.spec.effect in SAFE
        return is_safe and (self._renewing is not None or activity.info().attempt < self._most_attempts())

    def _most_attempts(self) -> int:
        """How many attempts the activity execution may make; 0 if the workflow has another spec of the tool."""
        call, spec = self._attempt.call, self._attempt.spec
        return call.attempts or (retries.PROFILES[spec.retry].attempts if call.digest == spec.digest else 0)

    async def _at_home(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` on the worker's own event loop: the connections to the store belong to it."""
        if asyncio.get_running_loop() is self._home:
            await work
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

    async def _enter(self) -> None:
        """Try to get the call admitted by the breaker. Raises FaultRaised if the call is turned away."""
        breaker = await self._breakers.look(self._service)
        if breaker is not None and breaker.state is BreakerState.CLOSED:
            self._generation = breaker.generation
        if breaker is None or self._is_free(breaker):
            return
        entry = await self._breakers.enter(self._service, self._key, self._caller(), self._limit)
        if entry is None:
            return
        if entry.generation is None:
            raise FaultRaised(_refusal(self._service, entry))
        self._generation = entry.generation
        if entry.breaker.state is not BreakerState.CLOSED or entry.breaker.waits_alone(self._key):
            self._renewing = asyncio.create_task(self._keep_lease(entry.generation))

    async def _keep_lease(self, generation: int) -> None:
        while True:
            await asyncio.sleep(TRIAL_LEASE / 3)
            await self._breakers.move(
                self._service, lambda breaker, moment: breaker.renewed(self._key, generation, moment.now)
            )


def _refusal(service: str, entry: Entered) -> Fault:
    breaker = entry.breaker
    why = "it limits its callers" if breaker.is_limit else f"{breaker.failures} calls in a row failed ({breaker.code})"
    busy = "as many calls as it may get are under way"
    if breaker.state is BreakerState.CLOSED:
        why, busy = f"it gets at most {breaker.limit} calls", "others come first"
    next_call = f"the next call is in {entry.wait:.2g} s" if entry.wait else busy
    others = {0: "", 1: "; 1 call waits before this one"}.get(
        entry.before, f"; {entry.before} calls wait before this one"
    )
    return Fault.of(
        Code.CIRCUIT_OPEN,
        f"{service} is left alone: {why}, {next_call}{others}.",
        retry_after=round(entry.wait, 2),
        queued=None if entry.queued is None else round(entry.queued, 1),
    )
