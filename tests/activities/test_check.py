"""`worker.py --check`: an author reads every mistake at once."""

import sys
from pathlib import Path

from tests.activities.mistakes import HEADER, PLANTED
from tests.processes import Processes


def test_check_names_every_mistake_of_a_file(tmp_path: Path) -> None:
    """Seventeen mistakes in one file are seventeen lines in its order, on stderr and without a server; exit code 2."""
    file = tmp_path / "planted.py"
    file.write_text(HEADER + "".join(PLANTED))
    done = Processes("localhost:1", tmp_path).run([sys.executable, "worker.py", "--check", "--tools", str(file)])

    assert done.stderr.splitlines() == list(PLANTED.values()) and len(PLANTED) == 17
    assert (done.returncode, done.stdout) == (2, "")
