"""`make pictures`: drawings and screenshots for README.md and docs, of a real run with fresh data."""

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from client.lines import wrap
from console.demo import ROOT, TASK, Playground, open_playground, running_worker, starter
from console.exits import Exit
from console.prompt import SIGN

if TYPE_CHECKING:  # of the extra `pictures`, which only the photographs need
    from playwright.sync_api import Locator, Page

FOLDER = ROOT / "docs" / "pictures"
BROKEN, ASKED = "get_price=401", "get the price of A-17"
"""A fault for a tool (its API key is rejected), and a task that needs this tool, and so ends as escalated."""
CHARGED, KILLED = "charge ann 12.00 for order 17", "charge=die@before_commit:1"
"""A payment, and where in its call the worker is killed: after it was charged, and before that is recorded."""
PERSON = "ann"
"""Who starts the tasks, instead of the login name of this run."""
USUAL_UI = "http://localhost:8233"
"""Shown instead of the free port of this run, so that two runs give equal pictures."""

TO_APPROVE = ("--task", "book a slot for the team at 16:00", "--approve", "effects")
"""A task that waits until a person approves its call."""
FOREIGN = Path("extras", "audit", "tests", "histories.zip")
"""Histories of agents that know nothing of Replan; extras/audit/tests/integrations.py says where they come from."""
AUDIT_SIZE = 1160, 1010
"""The size of the window in which the page of an audit is photographed: its first screen."""

CURSOR = re.compile(r"(\r|\n|\x1b\[\d*[AJK]|\x1b\[\?\d+[hl])")
"""What moves the cursor or clears something; one group, so that a text is split into these and what is between."""
COLUMNS, ROWS = 80, 50
THEME = TerminalTheme(
    background=(22, 27, 34),
    foreground=(230, 237, 243),
    normal=[
        (72, 79, 88),
        (255, 123, 114),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (230, 237, 243),
    ],
)
"""Every colour has a contrast of more than 6 to 1, except black, which is not used."""
DRAWING = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
    font: {char_height}px/{line_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
        "Liberation Mono", monospace;
}}
.{unique_id}-title {{ font: bold 16px system-ui, "Helvetica Neue", Arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""The template of an SVG that loads no other file. Rich's own template loads a font, and GitHub does not show that."""

BROWSER_VARIABLE = "REPLAN_BROWSER"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
"""Without these flags, Chromium hangs or ends in many containers. It opens only our own server."""
WIDTH, HEIGHT = 1280, 1700
"""The size of the browser's window in points; the height is enough for a page without scrolling."""
SHARPNESS = 1.5
"""Pixels for each point of the page; with this number, a picture stays below 300 kB."""
CHOSEN: Mapping[str, str | bool] = {"eventFilterSort": "ascending", "minimizeEventView": False}
"""Settings of the web UI (2.42): the oldest events first, and the whole timeline."""
ABOVE, BELOW = 6, 10
"""Points of margin above and below the part of the page in a picture; a larger margin would show other boxes."""
CURRENT_DETAILS = 2
"""The index of the iframe with a task's current details; the iframes 0 and 1 have its summary and its details."""
SETTLING_MS = 1500
"""Milliseconds to wait before a picture: the web UI moves labels after it has drawn them, and no event says so."""


class NoBrowser(Exception):
    """There is no browser for screenshots; the message has the remedy."""


def main(words: Sequence[str]) -> int:
    """Make every picture; without a browser say what is missing and make the others."""
    name = "python -m maintenance.pictures"
    parser = argparse.ArgumentParser(prog=name, description="Make the pictures of README.md.")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help="where they go; else docs/pictures")
    folder: Path = parser.parse_args(words).folder
    folder.mkdir(parents=True, exist_ok=True)
    with open_playground("--break", BROKEN) as playground:
        try:
            for name, picture in pictures(playground):
                (folder / name).write_bytes(picture)
                print(f"{os.path.relpath(folder / name)}  {len(picture) / 1000:.0f} kB", flush=True)
        except NoBrowser as missing:
            print(f"No picture of the web UI: {missing}.", file=sys.stderr)
            return Exit.BAD_USAGE
    return Exit.COMPLETED


def kill() -> str:
    """What two terminals show of a payment whose worker is killed, and of the worker that is started after it."""
    tools = ("--tools", "examples/cards.py")
    with open_playground(*tools, "--break", KILLED) as playground, ThreadPoolExecutor() as aside:
        company = Path(playground.environment["CARDS"])
        done = aside.submit(left_by, starter("--task", CHARGED), {**playground.environment, "REPLAN_UI": USUAL_UI})
        while not company.exists():
            if done.done():
                raise SystemExit(f"The task ended before its worker was killed:\n{done.result()}")
            time.sleep(0.1)
        with running_worker(playground.environment, *tools):
            left = done.result()
        charged = company.read_text(encoding="utf-8")
    worker = ("worker.py", "--dev", *tools)
    killed = f"{_typed_command(*worker, '--break', KILLED)}\x1b[31mKilled\x1b[0m\n{_typed_command(*worker)}"
    task = f"{_typed_command('starter.py', '--task', CHARGED)}{left}\x1b[1m$ cat cards.txt\x1b[0m\n{charged}"
    return f"{_pane('terminal 1')}{killed}\n{_pane('terminal 2')}{task}"


def _pane(title: str) -> str:
    return f"\x1b[36m{title}\x1b[0m\n"


def pictures(playground: Playground) -> Iterator[tuple[str, bytes]]:
    """The file names and the contents of all pictures; pictures that need no browser come first."""
    yield "kill.svg", drawing(kill(), "Replan", "kill").encode()
    escalated = _run_for_ui_url(playground, "--task", ASKED)  # first: a worker's very first task takes longer
    plain = {**playground.environment, "REPLAN_UI": USUAL_UI, "LOGNAME": PERSON}
    for name, words in (("terminal", ("--task", TASK)), ("explain", ("explain",))):
        left = left_by(starter(*words), plain)
        yield f"{name}.svg", drawing(_typed_command("starter.py", *words) + left, "Replan", name).encode()
    replanned = _run_for_ui_url(playground, "show")
    asked = left_by(starter(*TO_APPROVE), plain, until=SIGN)
    yield "question.svg", drawing(_typed_command("starter.py", *TO_APPROVE) + asked, "Replan", "question").encode()
    waiting = _run_for_ui_url(playground, "show")
    with browser_page(CHOSEN) as page:
        yield "web-ui.png", _timeline(page, replanned)
        yield "web-ui-details.png", _details(page, escalated)
        yield "web-ui-waiting.png", _details(page, waiting)
        yield "web-ui-answer.png", _answers(page)
        yield "audit.png", _audit(page)


def _typed_command(*words: str) -> str:
    line = f"$ python {' '.join(json.dumps(word) if ' ' in word else word for word in words)}"
    return "\x1b[1m" + "\n".join(wrap(line, COLUMNS)) + "\x1b[0m\n"


def _run_for_ui_url(playground: Playground, *words: str) -> str:
    command = starter(*words, "--json")
    # The exit code only says how the task ended.
    process = subprocess.run(command, env=playground.environment, capture_output=True, encoding="utf-8")  # noqa: S603
    document = json.loads(process.stdout)
    if "ui_url" not in document:
        raise SystemExit(f"{' '.join(command)!r} names no page in the web UI:\n{process.stdout}")
    return str(document["ui_url"])


def left_by(command: Sequence[str], environment: Mapping[str, str], until: str = "") -> str:
    """What a command leaves on a terminal of 80 columns, with colours; SystemExit if its exit code is not 0.

    With `until`, the command is killed as soon as it has printed this text.
    """
    screen, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (ROWS, COLUMNS))
    process = subprocess.Popen(  # noqa: S603  # our own script
        command,
        cwd=ROOT,
        env=_plain(environment),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        shown = _read_to_end(screen, until.encode()).replace("\r\n", "\n")
        code = 0 if until and until in shown else process.wait()
    finally:
        process.kill()
        process.wait()
        os.close(screen)
    if code:
        raise SystemExit(f"{' '.join(command)!r} ended with {code} instead of 0:\n{shown}")
    return as_seen(shown)


def as_seen(printed: str) -> str:
    """What a terminal shows after this was printed by a `Screen`, which always writes whole lines; colours stay."""
    rows, row, is_at_start = [""], 0, True
    for part in CURSOR.split(printed):
        if part == "\r":
            is_at_start = True
        elif part == "\n":
            row, is_at_start = row + 1, True
            rows += [""] * (row == len(rows))
        elif part.endswith("A") and CURSOR.fullmatch(part):
            row -= int(part[2:-1])
        elif part.endswith(("J", "K")) and CURSOR.fullmatch(part):
            rows[row] = "" if is_at_start else rows[row]
            rows[row + 1 :] = [] if part.endswith("J") else rows[row + 1 :]
        elif part and not CURSOR.fullmatch(part):
            rows[row], is_at_start = part if is_at_start else rows[row] + part, False
    return "\n".join(rows)


def drawing(text: str, title: str, id: str) -> str:
    """An SVG of a terminal with this text. `id` is part of all names in it, so that they differ from other SVGs."""
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, force_terminal=True, color_system="standard")
    console.print(Text.from_ansi(text), soft_wrap=True, highlight=False)
    return console.export_svg(title=title, theme=THEME, code_format=DRAWING, unique_id=id)


def _plain(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that would change the output, such as its colours or its width."""
    own = ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "LINES")
    return {name: value for name, value in environment.items() if name not in own} | {"TERM": "xterm-256color"}


def _read_to_end(descriptor: int, until: bytes = b"") -> str:
    """What is printed until the last writer is gone, or until this text was printed."""
    parts = list[bytes]()
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # Linux reports the end of the last writer as an error, others as an empty read
            part = b""
        parts.append(part)
        if not part or (until and until in b"".join(parts)):
            return b"".join(parts).decode(errors="replace")


def browser_program(environment: Mapping[str, str]) -> str:
    """The path of the Chromium that is used; raises NoBrowser if there is none."""
    path, named = environment.get("PATH"), environment.get(BROWSER_VARIABLE)
    found = next(filter(None, (shutil.which(name, path=path) for name in ([named] if named else BROWSERS))), None)
    if found is None and named:
        raise NoBrowser(f"{BROWSER_VARIABLE}={named!r} is no program that can be run: name a Chromium or Chrome there")
    if found is None:
        raise NoBrowser(f"No Chromium is on PATH: install one, or name it in {BROWSER_VARIABLE}")
    return found


@contextmanager
def browser_page(stored: Mapping[str, str | bool], sharpness: float = SHARPNESS) -> Iterator["Page"]:
    """An empty page of a browser that is closed at the end; `stored` are settings that a person chose in the web UI."""
    executable = browser_program(os.environ)
    try:
        from playwright.sync_api import Error, sync_playwright  # of an extra
    except ModuleNotFoundError:
        remedy = '`.venv/bin/python -m pip install --editable ".[pictures]"`'
        raise NoBrowser(f"Playwright is not installed: {remedy}, then again") from None
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        except Error as error:
            reason = error.message.partition("\n")[0]
            raise NoBrowser(f"{executable!r} does not start ({reason}): name another in {BROWSER_VARIABLE}") from error
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT},
            device_scale_factor=sharpness,
            color_scheme="light",
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
        )
        for name, value in stored.items():
            page.add_init_script(f"localStorage.setItem({json.dumps(name)}, {json.dumps(json.dumps(value))})")
        try:
            yield page
        except Error as error:
            raise SystemExit(f"{page.url} did not become what was expected: {error.message}") from error
        finally:
            browser.close()


def _timeline(page: "Page", url: str) -> bytes:
    page.goto(url)
    labels = page.locator("svg text")
    labels.filter(has_text="plan").first.wait_for()
    page.wait_for_timeout(SETTLING_MS)
    return _cut_out(page, page.get_by_role("heading", name="Event History"), labels)


def _details(page: "Page", url: str) -> bytes:
    page.goto(url)
    page.get_by_test_id("user-metadata-tab").click()
    page.locator("iframe").nth(CURRENT_DETAILS).content_frame.locator("strong").first.wait_for()
    page.wait_for_timeout(SETTLING_MS)
    return _cut_out(page, page.get_by_test_id("workflow-id-heading"), page.locator("iframe"))


def _answers(page: "Page") -> bytes:
    """The dialog that sends an Update, with the list of answers, on the page of a task that waits."""
    page.get_by_role("button", name="More Actions").click()
    page.get_by_role("menuitem", name="Send an Update").click()
    page.get_by_test_id("update-select-button").last.click()
    page.get_by_text("Make this call").last.wait_for()
    page.wait_for_timeout(SETTLING_MS)
    dialog = page.locator("[role=dialog]:visible, dialog[open]").last
    picture: bytes = dialog.screenshot()
    return picture


def _audit(page: "Page") -> bytes:
    """The first screen of the page of an audit."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "audit.html")
        command = starter("audit", str(FOREIGN), "--html", str(file))
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)  # noqa: S603
        html = file.read_text(encoding="utf-8")
    width, height = AUDIT_SIZE
    page.set_viewport_size({"width": width, "height": height})
    page.goto("about:blank")  # a page before may have a policy that allows no style
    page.set_content(html)
    picture: bytes = page.screenshot()
    return picture


def _cut_out(page: "Page", first: "Locator", last: "Locator") -> bytes:
    """A PNG of the page from the top of `first` to the lowest end of the elements `last`, without the left bar."""
    nav = page.get_by_test_id("navigation-header").bounding_box()
    top = first.first.bounding_box()
    ends = [box["y"] + box["height"] for box in (element.bounding_box() for element in last.all()) if box]
    if nav is None or top is None or not ends or page.viewport_size is None:
        raise SystemExit(f"{page.url} is not built as lab/maintenance/pictures.py expects: adapt it to this web UI")
    left, upper = nav["width"] + 1, top["y"] - ABOVE
    width, height = page.viewport_size["width"] - left, max(ends) + BELOW - upper
    picture: bytes = page.screenshot(clip={"x": left, "y": upper, "width": width, "height": height})
    return picture


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(Exit.DETACHED)
