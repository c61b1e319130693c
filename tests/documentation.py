"""The pages for users: their command lines and their tables."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.processes import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
INLINE = ("python starter.py ", "python worker.py ", "temporal ", "make ")
"""What a command line in running text begins with."""


@dataclass(frozen=True)
class Line:
    command: str
    exit: int = 0
    """The exit code that a comment behind it promises: `# exit code 2`."""
    page: str = field(default="", compare=False)
    environment: dict[str, str] = field(default_factory=dict, compare=False)
    """What the lines above it export."""

    def __str__(self) -> str:
        return f"{self.page}: {self.command}"


def lines() -> list[Line]:
    found = [line for page in PAGES for line in read(page.name, page.read_text(encoding="utf-8"))]
    return list(dict.fromkeys(found))


def files(text: str) -> dict[str, str]:
    """The code blocks of a page that are a file: Python by the name in its first line, JSON as `--plan` names it."""
    named = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    plans = re.findall(r"^```json\n(.*?\"steps\".*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return dict(named) | dict(zip(re.findall(r"--plan (\w+\.json)", text), plans, strict=False))


def sections(text: str) -> dict[str, str]:
    """The text below each heading of a page, to the next heading of any level, by the words of the heading."""
    parts = re.split(
        r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), flags=re.MULTILINE
    )
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def tables(text: str) -> dict[str, list[list[str]]]:
    """The rows of each table, by the first cell of its heading; a cell in backticks stands without them."""
    found = dict[str, list[list[str]]]()
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        heading, _, *below = [_cells(line) for line in block.splitlines()]
        found[heading[0]] = below
    return found


def _cells(line: str) -> list[str]:
    cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
    return [cell[1:-1] if re.fullmatch("`[^`]*`", cell) else cell for cell in cells]


def printed() -> dict[str, dict[str, list[str]]]:
    """The keys of the JSON of other commands in docs/console.md, each with those of the objects in its list."""
    rows = dict(tables((ROOT / "docs" / "console.md").read_text(encoding="utf-8"))["command"])
    whole = {name: re.sub(r"the keys of `([^`]+)`", lambda same: rows[same[1]], keys) for name, keys in rows.items()}
    found = {command: re.findall(r"`(\w+)`(?: \((.*?) each\))?", keys) for command, keys in whole.items()}
    return {command: {key: re.findall(r"`(\w+)`", inner) for key, inner in keys} for command, keys in found.items()}


def read(page: str, text: str) -> Iterator[Line]:
    """The command lines of a page, in its shell blocks, behind its prompts, and in its sentences."""
    blocks = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
    for language, block in blocks.findall(text):
        yield from _in_block(page, language == "sh", block.replace("\\\n", " "))
    for span in re.findall(r"`([^`]+)`", blocks.sub("", text)):
        command = " ".join(span.split())
        if command.startswith(INLINE):
            yield Line(command, page=page)


def _in_block(page: str, is_shell: bool, block: str) -> Iterator[Line]:
    """All lines of a shell's block; of another one those after a prompt."""
    environment = dict[str, str]()
    for line in block.splitlines():
        if not (is_shell or line.startswith("$ ")):
            continue
        command, comment = _split(line.removeprefix("$ ").strip())
        if not command:
            continue
        if command.startswith("export "):
            environment |= dict(word.split("=", 1) for word in shlex.split(command)[1:])
            continue
        promised = re.search(r"exit code (\d+)", comment)
        yield Line(command, int(promised[1]) if promised else 0, page, dict(environment))


def _split(line: str) -> tuple[str, str]:
    found = re.match(r"""((?:'[^']*'|"[^"]*"|(?<=\S)\#|[^#'"])*)(\#.*)?$""", line)
    assert found is not None, f"{line!r} has a quotation mark too many"
    return found[1].strip(), found[2] or ""
