"""Forms for arithmetic."""

import re
from datetime import date

from activities.llm.forms.form import It, Value, Wanted, form
from activities.llm.forms.noun import NUMBER
from activities.toolbox.expression import unknown_words


def _calculation(found: re.Match[str], _today: date) -> tuple[Wanted, ...] | None:
    expression = re.sub(r"\b(?:the result|that)\b", "it", found["expression"], flags=re.IGNORECASE).strip(" =\n")
    has_it = re.search(r"\bit\b", expression) is not None
    if not (has_it or re.search(r"[0-9]", expression)) or unknown_words(expression):
        return None
    args: dict[str, Value] = {"expression": expression, **({"it": It(NUMBER)} if has_it else {})}
    return (Wanted("calculate", "calculate", args, expression),)


FORMS = (
    form(
        "calculate",
        "calculate 18% of 2450",
        "calculate 18% of 2450 then calculate 10% of it",
        r"(?:calculate|compute|work\s+out)\s+(?P<expression>.+)",
        _calculation,
    ),
    form(
        "calculate",
        "what is 18% of 2450 (for other questions: search the documents for WORDS)",
        "what is 18% of 2450",
        r"(?:what(?:['\u2019]s|\s+is)|how\s+much\s+is)\s+(?P<expression>.+)",
        _calculation,
    ),
)
