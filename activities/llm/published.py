"""The page on what is understood without a model: `python -m activities.llm.published > docs/offline-planner.md`."""

import sys
import textwrap
from collections.abc import Iterator

from activities.llm.forms import FORMS
from activities.llm.repair import RULES

INTRODUCTION = """\
# What the offline planner understands

<!-- Generated: python -m activities.llm.published > docs/offline-planner.md -->

Without a model key, a task is read by fixed forms. The same text always gives the same plan, at once and for nothing. A
clause that no form fits is named, with the nearest form, and nothing is done.

- Clauses are joined by `then`, `and`, commas, `;` or full stops. `then` means *after all that was asked before*; what
  is only enumerated runs at the same time. Capitals do not matter, and `please` and its like are passed over.
- `it` (or `that`, `the result`) is what the nearest clause before brought and what fits: a number for `calculate`, a
  text for `summarise` and `save`, a document for `read`, a booking for `move` and `cancel`, an order for `refund`, a
  customer for `update`. Of a search it is the best passage. `them` means each of those, when there are several. When
  nothing fits, the clause is not understood.
- Dates: `today`, `tomorrow`, `Friday`, `next Friday`, `21 November`, `2025-11-21`. Times: `14:00`, `2 pm`, `noon`,
  `15`. What can be read in two ways is not guessed: `11/12/2025` and `at 3` are not understood.
- Quotation marks keep a text together: `search for "this, then that"`. What stands in square brackets below may be
  left out.
- A customer is changed by its id, since several may be found by one name. What is moved is booked first and cancelled
  after, so that a refusal leaves the old booking. `at most` is the price of one piece, unless `in all` follows it.
"""
AFTER = """
## After a refusal

What was refused is planned again by rules that know nothing of the kinds, so they hold for your own tools too. What had
not started follows, what is finished stays. In this order:
"""


def page() -> str:
    """The page for people, from the table that the planner reads by."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (INTRODUCTION, "| Write | For example | Calls |", "|---|---|---|")
    for form in FORMS:
        spelling = form.spelling.replace("|", "\\|")
        yield f"| `{spelling}` | {form.example} | {', '.join(f'`{kind}`' for kind in form.kinds)} |"
    yield AFTER
    for number, rule in enumerate(RULES, 1):
        yield textwrap.fill(f"{number}. {rule}", 120, subsequent_indent="   ", break_on_hyphens=False)


if __name__ == "__main__":
    sys.stdout.write(page())
