"""Words for counts, costs, pauses and options, which explanations and the console share."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from client.text import cut, one_line
from workflows.budget import Spent
from workflows.outcome import Outcome
from workflows.plan import canonical
from workflows.record import Pause, WithheldCall
from workflows.task import TaskStatus

MAX_REASON = 400
"""The most terminal cells of a reason; `explain` and `--json` have the rest."""
LEAST_USD = 0.0001
NEAR_DEADLINE = timedelta(hours=6)
"""From this time before its deadline on, a paused call is shown with the command that moves the deadline."""


def count(number: int, one: str, many: str | None = None) -> str:
    """A number with its word: `1 retry`, `2 retries`. Without `many`, the plural is `one` with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def times(number: int) -> str:
    """A number of times in words: `once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def spent_on_models(spent: Spent) -> list[str]:
    """`12 model calls` and `48,120 tokens for 0.3104 USD`; empty if no model was asked."""
    if not spent.model_calls:
        return []
    return [count(spent.model_calls, "model call"), f"{tokens_used(spent)}{_price(spent)}"]


def tokens_used(spent: Spent) -> str:
    return f"{'about ' if spent.estimated else ''}{spent.tokens:,} tokens"


def _price(spent: Spent) -> str:
    if spent.usd is not None:
        return f" for {spent.usd:.4f} USD" if spent.usd >= LEAST_USD else f" for less than {LEAST_USD} USD"
    return ", price unknown" if spent.unpriced else ""


def withheld_calls(outcome: Outcome) -> dict[str, WithheldCall]:
    """The calls that untrusted content may have ordered, by the text that shows them; only for an escalated task."""
    calls = [call for one in outcome.rejections for call in one.withheld]
    shown = {cut(one_line(f"{call.kind} {canonical(call.args)}"), MAX_REASON): call for call in calls}
    return shown if outcome.status is TaskStatus.ESCALATED else {}


def pause_words(pause: Pause) -> str:
    """A pause in words: `paused since 2026-11-23 03:25:15Z by ann: the bank is down`."""
    since = f" since {pause.since.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}" if pause.since else ""
    by = f" by {pause.by}" if pause.by else ""
    runs = ", as soon as the attempt that runs has ended" if pause.is_running else ""
    return cut(one_line(f"paused{since}{by}{runs}{pause.reason and ': ' + pause.reason}"), MAX_REASON)


def expiry_words(pause: Pause) -> str:
    """What happens to a paused activity at its deadline, in words; empty while the deadline is far away."""
    if pause.deadline is None or pause.deadline - datetime.now(UTC) > NEAR_DEADLINE:
        return ""
    return f"Resumed after its deadline, {pause.deadline.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}, its call fails (timeout)"


def suggested(options: Iterable[str], *, with_numbers: bool = False) -> str:
    """The answers that a question suggests, as a sentence after it; empty if there are none."""
    texts = [f"{number}) " * with_numbers + one_line(text) for number, text in enumerate(options, 1)]
    return f" Options: {', '.join(texts)}." if texts else ""
