"""`make pictures`: draws and photographs a real run on a fresh world for README.md."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from console.cells import wrapped
from console.gallery import browser, terminal, web_ui
from console.playground import ROOT, TASK, Playground, opened, starter
from console.problem import Exit

FOLDER = ROOT / "docs" / "pictures"
BROKEN, ASKED = "get_price=401", "get the price of A-17"
"""A tool that is refused its key, and a task that needs it: nothing but a person helps."""
STOPPED = 130
"""The exit code after Ctrl-C."""
USUAL_UI = "http://localhost:8233"
"""Shown instead of the free port that this run has, so that the next picture is like this one."""


def main(words: Sequence[str]) -> int:
    """Make every picture; without a browser say what is missing and make the others."""
    parser = argparse.ArgumentParser(prog="python -m console.gallery", description="Make the pictures of README.md.")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help="where they go; else docs/pictures")
    folder: Path = parser.parse_args(words).folder
    folder.mkdir(parents=True, exist_ok=True)
    with opened("--break", BROKEN) as playground:
        try:
            for name, picture in pictures(playground):
                (folder / name).write_bytes(picture)
                print(f"{os.path.relpath(folder / name)}  {len(picture) / 1000:.0f} kB", flush=True)
        except browser.NoBrowser as missing:
            print(f"No picture of the web UI: {missing}.", file=sys.stderr)
            return Exit.BAD_USAGE
    return Exit.COMPLETED


def pictures(playground: Playground) -> Iterator[tuple[str, bytes]]:
    """Names and contents; those that need no browser come first."""
    escalated = page_of(playground, "--task", ASKED)  # first, for what a worker's very first task takes longer
    plain = {**playground.environment, "REPLAN_UI": USUAL_UI}
    for name, words in (("terminal", ("--task", TASK)), ("explain", ("explain",))):
        left = terminal.left_by(starter(*words), plain)
        yield f"{name}.svg", terminal.drawing(typed(*words) + left, "Replan", name).encode()
    replanned = page_of(playground, "show")
    with browser.page(web_ui.CHOSEN) as page:
        yield "web-ui.png", web_ui.timeline(page, replanned)
        yield "web-ui-details.png", web_ui.details(page, escalated)


def typed(*words: str) -> str:
    """A command line as a person types it, over as many rows as it takes, in bold."""
    line = f"$ python starter.py {' '.join(json.dumps(word) if ' ' in word else word for word in words)}"
    return f"\x1b[1m{wrapped(line, terminal.COLUMNS)}\x1b[0m\n"


def page_of(playground: Playground, *words: str) -> str:
    """Where the web UI shows the task that a command tells about; the exit code only says how that task ended."""
    command = starter(*words, "--json")
    told = subprocess.run(command, env=playground.environment, capture_output=True, text=True)  # noqa: S603
    document = json.loads(told.stdout)
    if "ui_url" not in document:
        raise SystemExit(f"{' '.join(command)!r} knows of no page in the web UI:\n{told.stdout}")
    return str(document["ui_url"])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(STOPPED)
