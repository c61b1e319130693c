"""What is installed: whether this Python has what Replan needs, which an entry script asks first, and our version."""

import importlib.util
import sys

NEEDED = ("temporalio", "pydantic", "structlog", "typer")


def version() -> str:
    """The version of Replan; `unknown` in a checkout that was not installed."""
    from importlib import metadata

    try:
        return metadata.version("replan")
    except metadata.PackageNotFoundError:
        return "unknown"


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
