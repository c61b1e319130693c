"""`make demo`: a server and a worker on a fresh world, one task that meets a changed world, and a look at it."""

import subprocess
import sys

from console.playground import TASK, opened, starter


def main() -> int:
    """Show one task from its words to its result; everything that was started is stopped at the end."""
    with opened() as playground:
        print(playground.ready)
        print(f'$ python starter.py --task "{TASK}"\n', flush=True)
        code = subprocess.run(starter("--task", TASK), env=playground.environment).returncode  # noqa: S603  # our own script
        _wait_for_enter(playground.ui)
    return code


def _wait_for_enter(ui: str) -> None:
    """Keep server and worker up while a person looks at the web UI."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        try:
            input(f"Web UI {ui} stays up until you press Enter ")
        except (EOFError, KeyboardInterrupt):
            print()
    else:
        print(f"Web UI {ui} is closed again, because this is no terminal")


if __name__ == "__main__":
    sys.exit(main())
