"""`python -m maintenance.exceptions` writes the list of known exceptions in docs/errors.md, from the tables."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from activities.borders import table_of, tables
from activities.borders.described import rows_of
from activities.borders.table import Cases, Entry, Row

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
BEGIN, END = "<!-- From the tables, by `python -m maintenance.exceptions`. -->", "<!-- End of the tables. -->"
TITLES: Mapping[str, str] = {
    "http": "HTTP",
    "sql": "Databases",
    "aws": "AWS",
    "google": "Google and gRPC",
    "services": "Services",
    "mongodb": "MongoDB",
    "kafka": "Kafka",
    "mail": "Mail",
    "standard": "Standard library, and tenacity",
}
"""The wires that the page lists, in its order. Replan's own exceptions and those of the model SDKs are no tool's."""
FEW = 4
"""Up to so many verdicts, a choice stands in the list itself, and else in a table of its own."""


def listing() -> str:
    """The list as Markdown: for each package, which of its classes become which code, and what they prove."""
    choices = dict[str, Cases]()
    parts = [line for wire in TITLES for line in _wire_table(wire, choices)]
    parts += [line for title, choice in choices.items() for line in _choice_table(title, choice)]
    return "\n".join(parts).strip()


def page() -> str:
    """The whole page with a fresh list."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{listing()}\n\n{END}{rest.partition(END)[2]}"


def _wire_table(wire: str, choices: dict[str, Cases]) -> Iterator[str]:
    yield f"### {TITLES[wire]}\n"
    yield "| package | exception | code | proves |"
    yield "|---|---|---|---|"
    [packages] = [packages for module, packages in tables().items() if module.rpartition(".")[2] == wire]
    for package in packages:
        by_verdict = defaultdict[tuple[str, str], list[str]](list)
        for name, entry in table_of(package).items():
            if name.partition(".")[0] == package and package != "activities":
                by_verdict[_cells(entry, choices)].append(name.rpartition(".")[2])
        for (code, proves), names in by_verdict.items():
            yield f"| {package} | {', '.join(f'`{name}`' for name in dict.fromkeys(names))} | {code} | {proves} |"
    yield ""


def _cells(entry: Entry, choices: dict[str, Cases]) -> tuple[str, str]:
    """The cells `code` and `proves` of an entry; a choice of more than FEW verdicts is added to `choices`."""
    if isinstance(entry, Row):
        return f"`{entry.code.value}`", entry.proves.value
    few = dict.fromkeys((row.code.value, row.proves.value) for _, row in rows_of(entry))
    if len(few) <= FEW:
        codes = [f"`{code}`{f' ({proves})' * (len(few) > 1)}" for code, proves in few]
        return " or ".join(codes) + f", by {entry.by}" * (len(few) > 1), next(iter(few))[1] * (len(few) == 1)
    by, rows = entry.by, dict(entry.rows)
    same = (title for title, choice in choices.items() if (choice.by, dict(choice.rows)) == (by, rows))
    title = next(same, "") or _section_title(by, choices)
    choices.setdefault(title, entry)
    link = f"[by {entry.by}](#{title.lower().replace(' ', '-')})"
    return f"{link}, else `{entry.otherwise.code.value}`", entry.otherwise.proves.value


def _section_title(by: str, choices: Mapping[str, Cases]) -> str:
    """The title of a new section about rows that are chosen `by` something; no other title in `choices` equals it."""
    plain = "By " + "".join(letter for letter in by if letter.isalnum() or letter == " ")
    number = sum(title.startswith(plain) for title in choices)
    return f"{plain} {number + 1}" if number else plain


def _choice_table(title: str, choice: Cases) -> Iterator[str]:
    by_verdict = defaultdict[tuple[str, str], list[str]](list)
    for value, row in choice.rows.items():
        by_verdict[row.code.value, row.proves.value].append(value)
    yield f"### {title}\n"
    yield "| value | code | proves |"
    yield "|---|---|---|"
    for (code, proves), values in by_verdict.items():
        yield f"| {', '.join(values)} | `{code}` | {proves} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
