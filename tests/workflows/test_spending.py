"""What models may use: reserved before each request, settled after it, never beyond a limit but by lost answers."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from workflows.account.progress import Progress
from workflows.account.task import Task
from workflows.calls.asking import after_lost_replies
from workflows.faults.fault import Code, Fault, ModelUse, RecordedModelUse
from workflows.limits import spending
from workflows.limits.budget import Limits, Spent, TaskBudget, retries_of
from workflows.limits.spending import (
    LAST_OUTPUT,
    MAX_OUTPUT,
    MIN_LAST_OUTPUT,
    MIN_OUTPUT,
    Allowance,
    reserve_step,
    reserve_turn,
    with_call_tokens,
)
from workflows.plans.catalogue import Catalogue, Effect, Price, ToolSpec
from workflows.plans.proposal import GiveUp, Proposed, StepReturn

PRICE = Price(input=2, output=10, cache_read=0.2, cache_write=2.5)
READ = ToolSpec(kind="read", effect=Effect.READ)
WRITER = ToolSpec(kind="compose", effect=Effect.READ, tokens=4_000)
"""A kind that asks a model, too."""
CONTEXT = 3_000
"""Tokens of the conversation so far."""


def progress(**limits: Any) -> Progress:
    """A task with these limits, in the middle of a conversation."""
    account = TaskBudget(limits=Limits(**limits))
    now = datetime(2026, 1, 2, tzinfo=UTC)
    return Progress(task=Task(text="a task"), task_id="t", started_at=now, budget=account, context=CONTEXT)


def catalogue(price: Price | None = PRICE, *, converses: bool = True, preamble: int = 0) -> Catalogue:
    """What a worker with a model says of itself."""
    of = {"price": price, "step_price": price, "converses": converses, "preamble": preamble}
    return Catalogue(specs={}, planner="m", searchable=False, patience=0, **of)


def used(tokens: int, usd: float | None = 0.01, **more: Any) -> Proposed:
    """What a request used."""
    return Proposed(proposal=GiveUp(reason=""), model_calls=1, tokens=tokens, usd=usd, **more)


def turn(account: Progress, given: Catalogue, new_bytes: int = 300, **more: Any) -> Allowance:
    """A reservation that fits."""
    allowance = reserve_turn(account, given, new_bytes, **more)
    assert allowance is not None
    return allowance


def settle_turn(account: Progress, *about: Any) -> None:
    """Settle a request to the planner, and spend what it used, as its entry in the journal does."""
    account.budget.spend("plan", spending.settle_turn(account, *about), None)


def settle_step(account: Progress, given: Catalogue, spec: ToolSpec, *about: Any) -> None:
    """Settle an execution of a tool, and spend what it used."""
    used = spending.settle_step(account, given, spec, *about)
    account.budget.spend(spec.kind, used, retries_of(used.tool_calls, 0))


def fault(code: Code, attempt: int = 1) -> Fault:
    """What an attempt ended with."""
    return Fault.of(code, "", attempt=attempt)


KNOWN = fault(Code.UNEXPECTED_RESULT).model_copy(update={"model_use": ModelUse(calls=1, tokens=700)})
"""What failed after an answer whose cost is known."""


def test_without_limits_nothing_is_refused_and_all_is_counted() -> None:
    """A task that may spend what it likes is told afterwards what it spent."""
    one = progress(tokens=None)
    allowance = turn(one, catalogue())
    settle_turn(one, catalogue(), allowance, used(1_200, 0.0123))

    assert allowance.max_output is None
    assert one.budget.spent == Spent(model_calls=1, tokens=1_200, usd=0.0123)


def test_what_asks_no_model_reserves_nothing() -> None:
    """Rules, scripts, plans that somebody wrote and tools without a model go on, whatever is left."""
    assert turn(progress(tokens=1), catalogue(converses=False)) == Allowance(None, 0, 0.0)
    assert turn(progress(tokens=1), catalogue(), is_by_hand=True).reserved_tokens == 0
    assert reserve_step(progress(tokens=1), catalogue(), READ) == 4


LAST = {"is_last": True}
REPLIES: list[tuple[dict[str, Any], dict[str, Any], int | None]] = [
    ({"tokens": 100_000}, {}, MAX_OUTPUT),
    ({"tokens": 12_000}, {}, 12_000 - 2 * 3_100 - LAST_OUTPUT),
    ({"tokens": 2 * 3_100 + LAST_OUTPUT + MIN_OUTPUT}, {}, MIN_OUTPUT),
    ({"tokens": 2 * 3_100 + LAST_OUTPUT + MIN_OUTPUT - 1}, {}, None),
    # where no ordinary turn fits any more, the last one still does, if need be with a shorter answer
    ({"tokens": 3_100 + LAST_OUTPUT}, {}, None),
    ({"tokens": 3_100 + LAST_OUTPUT}, LAST, LAST_OUTPUT),
    ({"tokens": 3_100 + MIN_LAST_OUTPUT}, LAST, MIN_LAST_OUTPUT),
    ({"tokens": 3_100 + MIN_LAST_OUTPUT - 1}, LAST, None),
    # 3,100 tokens may all be written to the cache (0.00775 USD), twice; the last answer costs 0.02 USD more
    ({"usd": 1.0}, {}, MAX_OUTPUT),
    ({"usd": 0.062505}, {}, 2_700),
    ({"usd": 0.0355}, {}, None),
    # a shorter last answer leaves more
    ({"usd": 0.05}, {"last_output": LAST_OUTPUT}, 1_450),
    ({"usd": 0.05}, {"last_output": MIN_LAST_OUTPUT}, 3_194),
    ({"usd": 0.05}, {"last_output": 0}, 4_225),
]


@pytest.mark.parametrize(("limits", "more", "max_output"), REPLIES, ids=str)
def test_a_reply_may_have_what_is_left_beside_its_input_and_the_last_answer(
    limits: dict[str, Any], more: dict[str, Any], max_output: int | None
) -> None:
    """The input is the conversation and what is new at three bytes a token; the last answer reads the same again."""
    allowance = reserve_turn(progress(**limits), catalogue(), 300, **more)

    assert (allowance.max_output if allowance else None) == max_output


def test_the_first_request_counts_what_a_model_is_told_before_the_task() -> None:
    """Instructions and kinds are thousands of tokens, of which the task's own words say nothing."""
    one = progress(tokens=20_000)
    one.context = 0

    assert reserve_turn(one, catalogue(preamble=15_000), 300) is None
    assert reserve_turn(one, catalogue(preamble=5_000), 300) is not None


def test_a_long_request_is_reserved_at_the_price_of_a_long_one() -> None:
    """Above a threshold all of a request costs more."""
    dear = PRICE.model_copy(update={"long_from": 3_000, "long_input": 2.0, "long_output": 1.5})
    short, long = turn(progress(), catalogue()), turn(progress(), catalogue(dear))

    assert short.reserved_usd == pytest.approx(3_100 * 2.5e-6 + MAX_OUTPUT * 10e-6)
    assert long.reserved_usd == pytest.approx(3_100 * 5e-6 + MAX_OUTPUT * 15e-6)


@pytest.mark.parametrize(
    ("limits", "price", "short"),
    [({"tokens": 4_000}, PRICE, "tokens"), ({"usd": 0.001}, PRICE, "usd"), ({"usd": 5}, None, "usd")],
)
def test_it_is_known_which_limit_is_in_the_way(limits: dict[str, Any], price: Price | None, short: str) -> None:
    """The task ends with its name. What nobody knows the price of cannot be kept within a limit of money."""
    one = progress(**limits)

    assert reserve_turn(one, catalogue(price), 300) is None
    assert spending.turn_limit_reached(one, catalogue(price), 300) == short


def test_under_a_limit_of_money_nobody_asks_any_more_once_a_price_was_unknown() -> None:
    """Another worker may have taken over, with a model that nobody knows the price of."""
    one = progress(usd=5)
    settle_turn(one, catalogue(), turn(one, catalogue()), used(10, None))

    assert reserve_turn(one, catalogue(), 300, is_last=True) is None


def test_a_lost_answer_counts_as_all_that_was_reserved_for_it() -> None:
    """The provider counts an answer that never arrived; nobody knows how long it was."""
    one = progress(tokens=100_000)
    allowance = turn(one, catalogue())
    settle_turn(one, catalogue(), allowance, used(1_000, 0.01, lost=2))

    assert one.budget.spent.model_calls == 3
    assert one.budget.spent.tokens == 1_000 + 2 * (3_100 + MAX_OUTPUT)
    assert one.budget.spent.usd == pytest.approx(0.01 + 2 * allowance.reserved_usd)


def test_a_request_without_an_answer_counts_where_the_model_may_have_given_one() -> None:
    """What the provider refused, or was never sent, costs nothing; what was cut off may have cost everything."""
    unsent = fault(Code.UNREACHABLE, 4).model_copy(update={"unsent": True})
    cases = [(fault(Code.OVERLOADED, 4), 0), (fault(Code.TIMEOUT, 4), 4), (fault(Code.UNREACHABLE), 1), (unsent, 0)]
    for came_of_it, calls in cases:
        one = progress(tokens=100_000)
        allowance = turn(one, catalogue())
        settle_turn(one, catalogue(), allowance, came_of_it)

        assert one.budget.spent.tokens == calls * allowance.reserved_tokens
        assert (one.budget.spent.model_calls, one.budget.held_tokens) == (calls, 0)


def test_a_model_without_a_known_price_makes_the_sum_unknown_and_not_zero() -> None:
    """One unknown price, and nobody knows any more what the task cost."""
    one = progress()
    settle_turn(one, catalogue(), turn(one, catalogue()), used(10, 0.5))
    settle_turn(one, catalogue(), turn(one, catalogue()), used(10, None))
    settle_turn(one, catalogue(), turn(one, catalogue()), used(10, 0.5))

    assert (one.budget.spent.usd, one.budget.spent.unpriced) == (None, 1)


def test_a_step_that_asks_a_model_reserves_its_tokens_for_each_attempt() -> None:
    """Four attempts of 4,000 tokens; what was not used is given back."""
    one = progress(tokens=100_000)
    granted = reserve_step(one, catalogue(), WRITER)
    held = one.budget.held_tokens
    settle_step(one, catalogue(), WRITER, granted, StepReturn(result="", attempt=1, model_calls=1, tokens=900, usd=0.1))

    assert (granted, held) == (4, 16_000)
    assert (one.budget.held_tokens, one.budget.held_usd) == (0, 0.0)
    assert one.budget.spent == Spent(tool_calls=1, model_calls=1, tokens=900, usd=0.1)


def test_a_step_whose_arguments_hold_all_that_is_read_reserves_as_much_as_they_are_long() -> None:
    """A short text needs no more than a short text, and never more than any call of the kind."""
    reading = [WRITER.model_copy(update={"tokens_overhead": beside}) for beside in (None, 1_000, 1_000)]
    sizes = [
        with_call_tokens(one, {"text": "x" * n}).tokens for one, n in zip(reading, (300, 289, 90_000), strict=True)
    ]

    assert sizes == [4_000, 1_100, 4_000]


@pytest.mark.parametrize(
    ("limits", "price", "short"),
    [
        ({"tokens": 8_999}, PRICE, "tokens"),
        ({"usd": 0.01}, PRICE, "usd"),
        ({"usd": 5}, None, "usd"),
        ({"tool_calls": 1, "tokens": 90_000}, PRICE, "tool_calls"),
    ],
)
def test_a_step_that_does_not_fit_says_by_which_limit(limits: dict[str, Any], price: Price | None, short: str) -> None:
    """Nothing is started that could go beyond a limit, whatever the planner is."""
    one, given = progress(**limits), catalogue(price, converses=price is not None)
    one.budget.spent.tool_calls = 1

    assert reserve_step(one, given, WRITER) == 0
    assert spending.step_limit_reached(one, given, WRITER) == short


def test_a_step_gets_fewer_attempts_where_its_tokens_are_scarce() -> None:
    """The planner's last answer (5,000 tokens here) is not for steps; 9,000 are left for two attempts."""
    assert reserve_step(progress(tokens=14_000), catalogue(), WRITER) == 2


def test_a_step_waits_for_tokens_that_a_sibling_holds_and_for_nobody_else() -> None:
    """What siblings hold may come back; where nobody holds any, there is nothing to wait for."""
    one, given = progress(tokens=21_000), catalogue()
    granted = reserve_step(one, given, WRITER)
    waits = (spending.should_wait_for_siblings(one, given, WRITER), spending.is_open(one, given, WRITER))
    settle_step(one, given, WRITER, granted, StepReturn(result="", model_calls=1, tokens=15_000, usd=0.1))
    over = (spending.should_wait_for_siblings(one, given, WRITER), spending.is_open(one, given, WRITER))

    assert (granted, waits, over) == (4, (True, False), (False, True))


ANSWER = StepReturn(result="", attempt=2, model_calls=1, tokens=500)
CAME_BACK: dict[str, tuple[StepReturn | Fault, list[Fault], int, int]] = {
    "two workers died": (ANSWER.model_copy(update={"attempt": 3}), [], 3, 500 + 2 * 4_000),
    "refused, then answered": (ANSWER, [fault(Code.RATE_LIMITED)], 1, 500),
    "timed out, then answered": (ANSWER, [fault(Code.TIMEOUT)], 2, 4_500),
    "refused": (fault(Code.OVERLOADED, 4), [fault(Code.OVERLOADED, number) for number in (1, 2, 3)], 0, 0),
    "bad answer": (fault(Code.UNEXPECTED_RESULT, 1), [], 1, 4_000),
    "known": (KNOWN, [], 1, 700),
    "known, then answered": (ANSWER, [KNOWN], 2, 1_200),
    "uncalled": (fault(Code.INVALID_INPUT, 0), [], 0, 0),
}


def test_attempts_of_a_step_whose_answer_nobody_has_count_in_full() -> None:
    """An attempt that a model may have answered is counted, whatever became of the answer."""
    for name, (came_back, earlier, calls, tokens) in CAME_BACK.items():
        one = progress(tokens=100_000)
        settle_step(one, catalogue(), WRITER, reserve_step(one, catalogue(), WRITER), came_back, earlier)

        assert (one.budget.spent.model_calls, one.budget.spent.tokens) == (calls, tokens), name


DEAR = PRICE.model_copy(update={"input": 200, "output": 1000})


def test_lost_answers_cost_the_price_of_the_model_that_was_asked() -> None:
    """That of a step, too; the highest price where nobody knows which model was asked."""
    one = progress(usd=500)
    given = catalogue(DEAR).model_copy(update={"prices": {"cheap": PRICE, "dear": DEAR}})
    back = StepReturn(result="", attempt=3, model_calls=1, tokens=500, usd=0.1)
    asked = fault(Code.TIMEOUT).model_copy(update={"lost_model": "cheap"})
    settle_step(one, given, WRITER, reserve_step(one, given, WRITER), back, [asked])

    assert (one.budget.spent.tokens, one.budget.spent.estimated) == (8_500, 2)
    assert one.budget.spent.usd == pytest.approx(0.1 + 4_000 * 10e-6 + 4_000 * 1000e-6)


def test_replies_that_were_paid_and_could_not_be_used_take_from_the_replies_that_may_be_lost() -> None:
    """Else a store that cannot record replies lets the planner pay for new ones after each wait, beyond any limit."""
    paid = {"model_use": ModelUse(calls=1, tokens=9_000)}
    earlier = [fault(Code.STORE_UNAVAILABLE, number).model_copy(update=paid) for number in (1, 2)]
    last = fault(Code.STORE_UNAVAILABLE, 3).model_copy(update={"model_use": ModelUse()})
    number = spending.paid_replies(last, earlier)

    assert number == 2
    assert after_lost_replies({spending.MAX_LOST_REPLIES: 3}, last, number) == {spending.MAX_LOST_REPLIES: 1}


LOST_USE = ModelUse(calls=1, tokens=5_000, usd=0.02, estimated=1)
"""The most that an attempt can have used, as its worker says."""


def test_a_lost_answer_whose_worker_knows_the_most_counts_as_that() -> None:
    """It knows how long a reply the request allowed, and may know that the input was larger than the estimate."""
    reported = fault(Code.TIMEOUT).model_copy(update={"lost_model": "m", "lost_use": LOST_USE})
    more = reported.model_copy(update={"lost_use": LOST_USE.model_copy(update={"tokens": 10**6, "usd": 10.0})})
    spent = list[Spent]()
    for last in (reported, more):
        one = progress(tokens=400_000)
        settle_turn(one, catalogue(), turn(one, catalogue()), last)
        spent.append(one.budget.spent)

    assert [(one.tokens, one.usd) for one in spent] == [(5_000, 0.02), (10**6, 10.0)]


def test_a_reply_that_was_lost_before_an_answer_counts_as_its_worker_says() -> None:
    """The answer tells the faults before it; what they lack counts as all that was reserved."""
    reported = fault(Code.TIMEOUT).model_copy(update={"lost_model": "m", "lost_use": LOST_USE})
    told = {"earlier": (reported.model_dump(mode="json"),), "lost": 2, "lost_models": ("m",)}
    one = progress(tokens=400_000)
    allowance = turn(one, catalogue())
    settle_turn(one, catalogue(), allowance, used(700, 0.01, **told))

    assert one.budget.spent.tokens == 700 + 5_000 + allowance.reserved_tokens


FOUND = ModelUse(calls=1, tokens=700, usd=0.01)
SILENT = fault(Code.WORKER_LOST).model_copy(update={"uncounted": True})
AFTER_COMMIT = fault(Code.WORKER_SHUTDOWN).model_copy(update={"model_use": FOUND})


def test_an_answer_that_the_next_execution_found_in_the_store_is_paid_once() -> None:
    """Not also as the lost answer, or as the known use, of the attempt that recorded it."""
    twice = 700 + 19_100
    for waited, tokens in (
        ([SILENT], 700),
        ([AFTER_COMMIT], 700),
        ([SILENT, AFTER_COMMIT], twice),
        ([SILENT] * 2, twice),
    ):
        one = progress(tokens=400_000)
        allowance = turn(one, catalogue())
        found = used(700, 0.01, earlier=(RecordedModelUse(found=FOUND).model_dump(mode="json"),))
        settle_turn(one, catalogue(), allowance, found, [(last, ()) for last in waited])

        assert (one.budget.spent.tokens, one.budget.spent.model_calls) == (tokens, 1 + tokens // 19_000)


def test_a_request_that_does_not_fit_says_what_is_missing() -> None:
    """What it needs at least, and what is left. A planner may say that its model's replies are shorter."""
    one, short = progress(usd=0.01), catalogue().model_copy(update={"longest_reply": 8_000})

    assert reserve_turn(one, catalogue(), 300, last_output=0) is None
    assert " (0.01 left; 3100 tokens of input and a reply of 1000 need up to 0.01775):" in (
        spending.turn_limit_message(one, catalogue(), 300, "usd")
    )
    assert turn(progress(tokens=400_000), short).max_output == 8_000


def test_attempts_of_a_planner_that_report_their_use_are_counted_each_for_itself() -> None:
    """Seven rejections and one lost answer are one lost answer, not eight."""
    one, known = progress(tokens=400_000), {"model_use": ModelUse()}
    earlier = [fault(Code.OVERLOADED, number).model_copy(update=known) for number in range(1, 8)]
    last = fault(Code.TIMEOUT, 8).model_copy(update={"lost_model": "m"})
    allowance = turn(one, catalogue())
    settle_turn(one, catalogue(), allowance, last, (), earlier)

    assert (one.budget.spent.model_calls, one.budget.spent.tokens) == (1, allowance.reserved_tokens)


SAID: dict[str, tuple[float, str]] = {
    "tool_calls": (25, "All 25 tool calls are used up: give more, e.g. --tool-calls 50."),
    "replans": (0, "All 0 replans are used up: give more, e.g. --replans 1."),
    "tokens": (500_000, "What is left of the 500000 tokens is too little for the next request to a model:"),
    "usd": (0.05, "What is left of the 0.05 US dollars is too little for the next request to a model:"),
    "deadline": (90, "The deadline of 90 s passed before the task was done: give more, e.g."),
}


@pytest.mark.parametrize("limit", SAID)
def test_the_end_names_the_limit_and_the_option_that_raises_it(limit: str) -> None:
    """Whoever reads it knows what to type."""
    given, said = SAID[limit]
    words = spending.limit_message(Limits.model_validate({limit: given}), limit)

    assert words.startswith(said)
    assert words.endswith(f"--{limit.replace('_', '-')} {2 * given or 1:.12g}.")


class Conversation(RuleBasedStateMachine):
    """Turns and steps that ask models, in any order, with answers that are shorter than they might be, or lost."""

    allowances = Bundle("allowances")
    steps = Bundle("steps")

    @initialize(tokens=st.none() | st.integers(1, 200_000), cents=st.none() | st.integers(1, 100))
    def open(self, tokens: int | None, cents: int | None) -> None:
        """Open an account with any limits."""
        usd = cents / 100 if cents else None
        self.progress, self.catalogue = progress(tokens=tokens, usd=usd), catalogue()
        self.held = [0, 0.0]
        self.lost = [0, 0.0]

    @rule(target=allowances, new_bytes=st.integers(0, 30_000), is_last=st.booleans())
    def ask(self, new_bytes: int, is_last: bool) -> object:
        """Reserve a turn."""
        allowance = reserve_turn(self.progress, self.catalogue, new_bytes, is_last=is_last)
        if allowance is None:
            return multiple()
        self._hold(allowance.reserved_tokens, allowance.reserved_usd)
        return allowance

    @rule(one=consumes(allowances), part=st.floats(0, 1), lost=st.integers(0, 2))
    def answer(self, one: Allowance, part: float, lost: int) -> None:
        """Settle a turn that used no more than was reserved."""
        self._hold(-one.reserved_tokens, -one.reserved_usd)
        self.lost[0] += lost * one.reserved_tokens
        self.lost[1] += lost * one.reserved_usd
        said = used(int(part * one.reserved_tokens), part * one.reserved_usd, lost=lost)
        settle_turn(self.progress, self.catalogue, one, said)

    @rule(target=steps)
    def begin(self) -> object:
        """Reserve a step."""
        before = (self.progress.budget.held_tokens, self.progress.budget.held_usd)
        granted = reserve_step(self.progress, self.catalogue, WRITER)
        after = (self.progress.budget.held_tokens, self.progress.budget.held_usd)
        self._hold(after[0] - before[0], after[1] - before[1])
        return granted or multiple()

    @rule(granted=consumes(steps), data=st.data())
    def end(self, granted: int, data: st.DataObject) -> None:
        """Settle a step, whose attempts used no more than was reserved for each."""
        each = 4_000 * 10e-6
        self._hold(-granted * WRITER.tokens, -granted * each)
        attempt, tokens = data.draw(st.integers(1, granted)), data.draw(st.integers(0, WRITER.tokens))
        back = StepReturn(result="", attempt=attempt, model_calls=1, tokens=tokens, usd=tokens * 10e-6)
        settle_step(self.progress, self.catalogue, WRITER, granted, back)

    def _hold(self, tokens: int, usd: float) -> None:
        self.held = [self.held[0] + tokens, self.held[1] + usd]

    @invariant()
    def no_limit_is_passed_but_by_lost_answers(self) -> None:
        """Held is what is held, and spent with it within the limits; without anything held, nothing is left over."""
        account, limits = self.progress.budget, self.progress.budget.limits
        assert account.held_tokens == self.held[0] >= 0
        assert account.held_usd == pytest.approx(self.held[1], abs=1e-6)
        assert self.held[0] or account.held_usd == 0.0
        if limits.tokens is not None:
            assert account.spent.tokens + account.held_tokens - self.lost[0] <= limits.tokens
        if limits.usd is not None:
            assert (account.spent.usd or 0) + account.held_usd - self.lost[1] <= limits.usd + 1e-6


TestConversation = Conversation.TestCase
