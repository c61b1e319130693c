"""`worker.py --check`: an author reads every mistake at once, and where it is."""

import subprocess
from pathlib import Path

import pytest

from tests.activities.mistakes import HEADER, PLANTED
from tests.processes import Processes


def check(folder: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    """Check tools files, without a server."""
    options = [word for file in files for word in ("--tools", str(file))]
    return Processes("localhost:1", folder).asked("--check", *options)


def planted(folder: Path) -> tuple[Path, list[str]]:
    """A file with all mistakes, and what is to be said of it."""
    file, text, said = folder / "planted.py", HEADER, list[str]()
    for source, sentence in PLANTED.items():
        said.append(f"{file}:{text.count(chr(10)) + 2}: {sentence}")  # a source begins with an empty line
        text += source
    file.write_text(text)
    return file, said


def test_check_names_every_mistake_of_a_file(tmp_path: Path) -> None:
    """Each is a line with its place, in the order of the file, on stderr; the last line counts them; exit code 2."""
    file, said = planted(tmp_path)
    done = check(tmp_path, file)

    assert done.stderr.splitlines() == [*said, f"{len(said)} mistakes: no tool is served until they are corrected."]
    assert (done.returncode, done.stdout) == (2, "")


def test_a_file_that_cannot_be_imported_hides_no_mistake_of_another(tmp_path: Path) -> None:
    """All files are corrected in one go."""
    file, said = planted(tmp_path)
    (broken := tmp_path / "broken.py").write_text("import nowhere_at_all\n")
    done = check(tmp_path, broken, file)

    assert done.stderr.splitlines()[: len(said)] == said
    assert f"{broken}:1 cannot be imported (ModuleNotFoundError" in done.stderr


GOOD = (
    HEADER
    + """
@tool.read
async def find_the_price_of_an_article(args: Slot) -> Free:
    \"\"\"Find the price of an article.\"\"\"
"""
)


def test_check_shows_the_authors_tools_and_a_verdict(tmp_path: Path) -> None:
    """The tools of the file with their places, the names of the others, that all is well, and no open tasks."""
    (file := tmp_path / "good.py").write_text(GOOD)
    done = check(tmp_path, file)
    first, *_, price, does, _, others, verdict, tasks = done.stdout.splitlines()

    assert (done.returncode, done.stderr, first.split()[0]) == (0, "", "look")
    assert price.split() == ["find_the_price_of_an_article", "read", f"{file}:{HEADER.count(chr(10)) + 2}"]
    assert (does, verdict) == ("    Find the price of an article.", "3 tools of yours: no mistakes.")
    assert others.startswith("Tools that come with Replan: calculate, search, ") and "look" not in others
    assert tasks.startswith("Open tasks were not looked at: ")


KEYED = """
@tool.keyed(reconcile=look, timeout=20{more})
def pay(args: Slot, key: Key) -> Free:
    \"\"\"Pay.\"\"\"
"""


@pytest.mark.parametrize(("more", "code"), [("", 2), (", enforces_timeout=True", 0)])
def test_check_refuses_a_thread_that_reconcile_could_overlook(tmp_path: Path, more: str, code: int) -> None:
    """A `keyed` effect in a thread may be looked for only where its author says that it ends in time."""
    file = tmp_path / "paying.py"
    file.write_text(HEADER.replace("import Transaction", "import Key, Transaction") + KEYED.format(more=more))
    done = check(tmp_path, file)

    assert done.returncode == code, done.stderr
    assert ("enforces_timeout=True" in done.stderr) is bool(code)


NOT_STRICT = """
class Query(BaseModel):
    words: str
    limit: int = 5


@tool.read
async def query(args: Query) -> Free:
    \"\"\"Query.\"\"\"
"""


def test_check_says_why_a_schema_is_not_strict(tmp_path: Path) -> None:
    """Below the tool, with the provider; no line where both hold the model to the schema."""
    (file := tmp_path / "querying.py").write_text(HEADER + NOT_STRICT)
    lines = check(tmp_path, file).stdout.splitlines()

    assert [line for line in lines if "strict" in line] == ["    not strict at openai: 'limit' may be left out"]
    assert lines[lines.index("    not strict at openai: 'limit' may be left out") - 2] == "    Query."
