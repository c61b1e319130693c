"""`worker.py --check`: an author reads every mistake at once."""

import sys
from pathlib import Path

import pytest

from tests.activities.mistakes import HEADER, PLANTED
from tests.processes import Processes


def test_check_names_every_mistake_of_a_file(tmp_path: Path) -> None:
    """Each mistake of a file is a line, in its order, on stderr and without a server; exit code 2."""
    file = tmp_path / "planted.py"
    file.write_text(HEADER + "".join(PLANTED))
    done = Processes("localhost:1", tmp_path).run([sys.executable, "worker.py", "--check", "--tools", str(file)])

    assert done.stderr.splitlines() == list(PLANTED.values())
    assert (done.returncode, done.stdout) == (2, "")


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
    done = Processes("localhost:1", tmp_path).run([sys.executable, "worker.py", "--check", "--tools", str(file)])

    assert done.returncode == code, done.stderr
    assert ("enforces_timeout=True" in done.stderr) is bool(code)
