"""Words for counts, costs, pauses, requests and breakers, which every screen shares.

Used whenever a command, the page or an explanation shows one of these.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from pydantic import JsonValue

from client.text import cut, one_line
from workflows.account.outcome import Outcome, OutcomeStep
from workflows.account.records import Pause, WithheldCall
from workflows.account.task import TaskStatus
from workflows.inquiries import BreakerCard
from workflows.json_values import canonical
from workflows.limits.budget import Spent
from workflows.people.card import call_text, value_line
from workflows.people.requests import Change, Choice, HumanAnswer, HumanRequest, RequestKind
from workflows.people.statement import Statement

MAX_REASON = 400
"""The most terminal cells of a reason; `explain` and `--json` have the rest."""
ENDS: Mapping[str, str] = {
    TaskStatus.ESCALATED: "it needed a person, and nobody was asked, or nobody answered",
    TaskStatus.OVER_BUDGET: "a limit was reached, and nobody raised it",
}
"""By status, a clause that explains a status whose name does not explain itself."""
OF_ONE_CALL = (Choice.APPROVE, Choice.REJECT, Choice.EDIT)
"""The answers about the first call of a request, and not about the others that it shows."""
KNOWN = "known by"
"""Begins the words for how a door knew a person."""
LEAST_USD = 0.0001
NEAR_DEADLINE = timedelta(hours=6)
"""From this time before its deadline on, a paused call is shown with the command that moves the deadline."""


def count(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its word: `1 retry`, `2 retries`. Without `plural`, the plural is `singular` with an s."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def times(number: int) -> str:
    """A number of times in words: `once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def spent_on_models(spent: Spent) -> list[str]:
    """`12 model calls` and `48,120 tokens for 0.3104 USD`; empty if no model was asked."""
    if not spent.model_calls:
        return []
    return [count(spent.model_calls, "model call"), f"{tokens_used(spent)}{_price(spent)}"]


def tokens_used(spent: Spent) -> str:
    """The number of tokens: `48,120 tokens`, or `about 48,120 tokens` if it is estimated."""
    return f"{'about ' if spent.estimated else ''}{spent.tokens:,} tokens"


def _price(spent: Spent) -> str:
    if spent.usd is not None:
        return f" for {spent.usd:.4f} USD" if spent.usd >= LEAST_USD else f" for less than {LEAST_USD} USD"
    return ", price unknown" if spent.unpriced else ""


def withheld_calls(outcome: Outcome) -> dict[str, WithheldCall]:
    """The calls that untrusted content may have ordered, by the text of the call; empty unless the task escalated."""
    calls = [call for rejection in outcome.rejections for call in rejection.withheld]
    shown = {cut(one_line(f"{call.kind} {canonical(call.args)}"), MAX_REASON): call for call in calls}
    return shown if outcome.status is TaskStatus.ESCALATED else {}


def pause_text(pause: Pause) -> str:
    """A pause in words: `paused since 2026-11-23 03:25:15Z by ann: the bank is down`."""
    since = f" since {pause.since.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}" if pause.since else ""
    by = f" by {pause.by}" if pause.by else ""
    runs = ", as soon as the attempt that runs has ended" if pause.is_running else ""
    return cut(one_line(f"paused{since}{by}{runs}{pause.reason and ': ' + pause.reason}"), MAX_REASON)


def expiry_text(pause: Pause) -> str:
    """What happens to a paused activity at its deadline, in words; empty while the deadline is far away."""
    if pause.deadline is None or pause.deadline - datetime.now(UTC) > NEAR_DEADLINE:
        return ""
    return f"Resumed after its deadline, {pause.deadline.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}, its call fails (timeout)"


def suggested(options: Iterable[str], *, with_numbers: bool = False) -> str:
    """The answers that a question suggests, as a sentence after the question, or empty; `with_numbers` numbers them."""
    texts = [f"{number}) " * with_numbers + one_line(text) for number, text in enumerate(options, 1)]
    return f" Options: {', '.join(texts)}." if texts else ""


def subject_of(request: HumanRequest) -> str:
    """What a request is about: its step, or the planner or the budget."""
    if request.kind is RequestKind.QUESTION:
        return "The planner asks"
    return one_line(request.step or ("budget" if request.kind is RequestKind.BUDGET else "the task"))


def asked_calls(outcome: Outcome, request: HumanRequest) -> list[str]:
    """The calls of a closed request for an approval, as they were then; only the first if the answer was about it."""
    steps = {step.id: step for step in outcome.steps}
    found = list[str]()
    is_of_one = request.answer is not None and request.answer.choice in OF_ONE_CALL
    for call in (request.call, *(() if is_of_one else request.others)) if request.call else ():
        step = steps.get(call.step or request.step or "")
        args = args_before(outcome, request, step) if step else {}
        found.append(f"{one_line(call.step)}: " * bool(call.step) + call_text(call.kind, args))
    return found


def args_before(outcome: Outcome, request: HumanRequest, step: OutcomeStep) -> dict[str, JsonValue]:
    """The arguments of a step before the edits that people made with this request and after it."""
    args = dict(step.args)
    number = next((number for number, other in enumerate(outcome.requests) if other.id == request.id), 0)
    for later in reversed(outcome.requests[number:]):
        is_edited = later.step == step.id and later.answer is not None and not later.refused
        for name, change in later.answer.edited.items() if later.answer and is_edited else ():
            if change.was is None:
                args.pop(name, None)
            else:
                args[name] = change.was
    return args


def person_text(answer: HumanAnswer, unnamed: str = "somebody") -> str:
    """Who answered: `ann (finance, known by token)` as a door has stated, else the name that was claimed."""
    if answer.statement is not None:
        return stated_text(answer.statement)
    name = one_line(answer.by)
    return f'"{name}", as claimed' if KNOWN in name else name or unnamed


def stated_text(stated: Statement) -> str:
    """The person of a statement, and how a door knew that person: `ann (finance, known by token)`."""
    return one_line(f"{stated.person} ({', '.join([*stated.roles, f'{KNOWN} {stated.how}'])})")


def people_text(request: HumanRequest, unnamed: str = "somebody") -> str:
    """Who answered a request: `ann (finance, known by token) and cleo (finance, known by token)`."""
    answers = (*request.endorsed, *([request.answer] if request.answer else []))
    return " and ".join(person_text(answer, unnamed) for answer in answers)


def answer_text(request: HumanRequest) -> str:
    """Who answered a request, and what: `ann answered replan ("Pay by invoice.")`; empty without an answer."""
    answer, who = request.answer, people_text(request)
    if answer is None:
        return ""
    quote = f' ("{cut(one_line(answer.text), MAX_REASON)}")' if answer.text else ""
    more = f" ({amounts(answer.extended)})" if answer.extended else ""
    undo = " with its effects undone" if answer.undo else ""
    edited = f" ({change_text(answer.edited)})" if answer.edited else ""
    whole = " for all tasks that waited for it" if answer.resolution else ""
    return f"{who} answered {answer.choice.value}{whole}{undo}{quote}{more}{edited}"


def change_text(edited: Mapping[str, Change]) -> str:
    """The arguments that a person changed: `amount 900 -> 400`."""
    changes = (f"{name} {value_line(change.was)} -> {value_line(change.now)}" for name, change in edited.items())
    return cut(one_line(", ".join(changes)), MAX_REASON)


def closing_text(request: HumanRequest) -> str:
    """Why a request was closed without an answer, as a clause."""
    if request.closed == "repeated":
        return "the task went on by itself, since the cause is gone"
    return "nobody answered in time" if request.closed == "unanswered" else "the task ended before an answer"


def amounts(extended: Mapping[str, int | float]) -> str:
    """Additions to limits: `+10 tool calls, +1.5 usd`."""
    return ", ".join(f"+{amount} {name.replace('_', ' ')}" for name, amount in extended.items())


def breaker_state(card: BreakerCard) -> str:
    """The state of a breaker in a few words."""
    clauses = [card.state.replace("_", "-")]
    clauses += [f"since {card.since:%Y-%m-%d %H:%M:%S} UTC"] if card.since else []
    failures = "1 failure" if card.failures == 1 else f"{card.failures} failures in a row"
    last = f", the newest {card.code}" if card.code else ""
    clauses += [f"after {failures}{last}"] if card.failures else []
    if card.state == "open":
        clauses += [f"a trial call in {card.trial_in:g} s" if card.trial_in else "the next call is a trial"]
    elif card.state == "half_open":
        runs = "a trial call runs" if card.trials == 1 else f"{card.trials} trial calls run"
        clauses += [runs if card.trials else "the next call is a trial"]
    clauses += [f"at most {card.limit} calls"] * bool(card.limit)
    waits = f"{card.waiting} calls wait for their turn" if card.waiting > 1 else "1 call waits for its turn"
    clauses += [waits] if card.waiting else []
    return ", ".join(clauses)
