"""The account of a task: reserved before, settled after, never below zero."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from pydantic import ValidationError

from workflows.faults import retries
from workflows.limits.budget import Limits, Spent, TaskBudget, retries_of
from workflows.plans.catalogue import Effect, ToolSpec

SPECS = [ToolSpec.model_validate({"kind": retry, "effect": Effect.READ, "retry": retry}) for retry in retries.PROFILES]
STANDARD = next(spec for spec in SPECS if spec.kind == "standard")
OTHER = STANDARD.model_copy(update={"kind": "other"})


def budget(tool_calls: int = 100) -> TaskBudget:
    """A fresh account."""
    return TaskBudget(limits=Limits(tool_calls=tool_calls))


def settle(account: TaskBudget, spec: ToolSpec, granted: int, taken: int, used: int = 0) -> None:
    """Give back what was granted, and spend what was taken, as the settlement of an execution does."""
    account.release(spec, granted, used)
    account.spend(spec.kind, Spent(tool_calls=taken), retries_of(taken, used))


def test_a_reservation_takes_what_the_profile_allows_and_the_limit_has() -> None:
    """A step may use its retries as long as tool calls are left; what was not taken is given back."""
    granted = {}
    for tool_calls in (1, 3, 4, 100):
        account = budget(tool_calls)
        granted[tool_calls] = (account.reserve(STANDARD), account.free)
    settle(account, STANDARD, 4, taken=1)

    assert granted == {1: (1, 0), 3: (3, 0), 4: (4, 0), 100: (4, 96)}
    assert (account.free, account.reserved, account.spent.tool_calls) == (99, 0, 1)
    assert account.retries == {"standard": 0}


def test_what_a_step_may_still_try_does_not_depend_on_what_others_hold() -> None:
    """Nothing is granted when all is reserved; that comes back, so a step waits for its turn and does not give up."""
    account = budget(4)
    account.reserve(OTHER)

    assert (account.reserve(STANDARD), account.attempts(STANDARD, used=1)) == (0, 3)


def test_retries_are_counted_for_each_kind_alone() -> None:
    """One flaky tool uses up neither the patience with the others, nor the first attempt of its own steps."""
    account = budget()
    for _ in range(4):
        settle(account, STANDARD, account.reserve(STANDARD), taken=4)

    assert account.retries == {"standard": retries.RETRIES_PER_KIND}
    assert (account.reserve(STANDARD), account.reserve(OTHER)) == (1, 4)


def test_every_attempt_after_a_wait_is_a_retry() -> None:
    """A step that was scheduled before has had its first attempt; an attempt that does not count costs nothing."""
    account = budget()
    for used, taken in ((0, 0), (0, 1), (1, 2)):
        settle(account, STANDARD, account.reserve(STANDARD, used=used), taken=taken, used=used)

    assert (account.free, account.retries) == (97, {"standard": 2})


def test_retries_that_are_promised_are_not_promised_twice() -> None:
    """Four siblings may need all twelve; what one of them gives back, the next may have."""
    account = budget()
    granted = [account.reserve(STANDARD) for _ in range(5)]
    settle(account, STANDARD, granted[0], taken=1)

    assert granted == [4, 4, 4, 4, 1]
    assert account.reserve(STANDARD) == 4


def test_it_is_worth_waiting_while_siblings_hold_what_a_step_could_have() -> None:
    """Tool calls and retries that are promised come back; when nobody holds any, there is nothing to wait for."""
    account = budget()
    granted = [account.reserve(STANDARD) for _ in range(4)]
    held = account.is_open(STANDARD, used=1), account.is_open(OTHER)
    settle(account, STANDARD, granted.pop(), taken=1)
    one_came_back = account.is_open(STANDARD, used=1)
    while granted:
        settle(account, STANDARD, granted.pop(), taken=4)

    assert (held, one_came_back) == ((False, True), True)
    assert (account.attempts(STANDARD, used=1), account.is_open(STANDARD, used=1)) == (3, True)


@pytest.mark.parametrize("wrong", [{"tool_calls": 0}, {"replans": -1}, {"deadline": 0}, {"deadline": -1}])
def test_a_limit_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    """A task that may do nothing at all is a mistake of whoever asks."""
    with pytest.raises(ValidationError):
        Limits.model_validate(wrong)


class Account(RuleBasedStateMachine):
    """Steps that are scheduled, come back, wait and are scheduled again, in any order."""

    steps = Bundle("steps")
    calls = Bundle("calls")

    @initialize(tool_calls=st.integers(1, 30))
    def open(self, tool_calls: int) -> None:
        """Open an account with any limit."""
        self.budget = budget(tool_calls)
        self.held, self.taken = 0, 0

    @rule(target=steps, spec=st.sampled_from(SPECS))
    def begin(self, spec: ToolSpec) -> tuple[ToolSpec, int]:
        """A new step."""
        return spec, 0

    @rule(target=calls, step=consumes(steps))
    def schedule(self, step: tuple[ToolSpec, int]) -> object:
        """Reserve for a step; what is granted is free, within the profile, and at least one if anything is free."""
        spec, used = step
        free = self.budget.free
        granted = self.budget.reserve(spec, used)
        assert min(1, free) <= granted <= min(free, retries.PROFILES[spec.retry].attempts)
        self.held += granted
        return (spec, used, granted) if granted else multiple()

    @rule(target=steps, call=consumes(calls), data=st.data())
    def settle(self, call: tuple[ToolSpec, int, int], data: st.DataObject) -> tuple[ToolSpec, int]:
        """Settle a call with any number of attempts that it may have taken."""
        spec, used, granted = call
        taken = data.draw(st.integers(0, granted))
        settle(self.budget, spec, granted, taken, used)
        self.held, self.taken = self.held - granted, self.taken + taken
        return spec, used + taken

    @invariant()
    def the_account_is_right(self) -> None:
        """Spent is what was taken, reserved what is held, nothing below zero, nothing beyond the limit."""
        assert (self.budget.reserved, self.budget.spent.tool_calls) == (self.held, self.taken)
        assert self.budget.free == self.budget.limits.tool_calls - self.held - self.taken >= 0
        assert all(number >= 0 for number in [*self.budget.retries.values(), *self.budget.promised.values()])
        assert self.held or not any(self.budget.promised.values())
        assert max(self.budget.retries.values(), default=0) <= retries.RETRIES_PER_KIND


TestAccount = Account.TestCase
