"""`worker.py --check`: an author reads every mistake at once, and where it is."""

import subprocess
from pathlib import Path

import pytest

from tests.activities.mistakes import HEADER, PLANTED
from tests.processes import Processes


def check(folder: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    options = [word for file in files for word in ("--tools", str(file))]
    return Processes("localhost:1", folder).asked("--check", *options)


def test_check_names_every_mistake_of_all_files(tmp_path: Path) -> None:
    """Each is a line with its place, in the order of the file, on stderr; the last line counts them; exit code 2."""
    file, text, said = tmp_path / "planted.py", HEADER, list[str]()
    for source, sentence in PLANTED.items():
        said.append(f"{file}:{text.count(chr(10)) + 2}: {sentence}")  # a source begins with an empty line
        text += source
    file.write_text(text)
    (broken := tmp_path / "broken.py").write_text("import nowhere_at_all\n")
    done = check(tmp_path, broken, file)
    *lines, unread, last = done.stderr.splitlines()

    assert lines == said
    assert unread.startswith(f"{broken}:1 cannot be imported (ModuleNotFoundError")
    assert last == f"{len(said) + 1} mistakes: no tool is served until they are corrected."
    assert (done.returncode, done.stdout) == (2, "")


GOOD = '''
@tool.read
async def find_the_price_of_an_article(args: Slot) -> Free:
    """Find the price of an article."""


class Query(BaseModel):
    words: str
    limit: int = 5


@tool.read
async def query(args: Query) -> Free:
    """Query."""
'''


def test_check_shows_the_authors_tools_and_a_verdict(tmp_path: Path) -> None:
    """The tools of the file with their places, the names of the others, that all is well, and no open tasks."""
    (file := tmp_path / "good.py").write_text(HEADER + GOOD)
    done = check(tmp_path, file)
    first, *_, price, does, _, query, queries, _, strict, others, verdict, tasks = done.stdout.splitlines()

    assert (done.returncode, done.stderr, first.split()[0], query.split()[0]) == (0, "", "look", "query")
    assert price.split() == ["find_the_price_of_an_article", "read", f"{file}:{HEADER.count(chr(10)) + 2}"]
    assert (does, queries) == ("    Find the price of an article.", "    Query.")
    assert strict == "    not strict at openai: 'limit' may be left out" and done.stdout.count("strict") == 1
    assert others.startswith("Tools that come with Replan: calculate, summarise, ") and "look" not in others
    assert verdict == "4 tools of yours: no mistakes."
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
