"""The first thing that an entry script asks for: whether this Python has what Replan needs."""

import importlib.util
import sys

NEEDED = ("temporalio", "pydantic", "structlog", "typer")


def require() -> None:
    """Go on when the packages are there, else end with the remedy.

    Raises:
        SystemExit: exit code 2; this Python has no temporalio, pydantic, ...
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        script = sys.argv[0] or "worker.py"
        sys.stderr.write(
            f"This Python ({sys.executable}) has no {', '.join(missing)}: "
            f"run `make demo` once, which makes .venv, then `.venv/bin/python {script} ...`.\n"
        )
        raise SystemExit(2)
