"""`make pictures`: what can be told without a browser, and the pictures that README.md shows."""

import html
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from console.demo import TASK
from console.render.terminal import BEGIN, DONE
from extras.web.tests.browser import MISSING
from maintenance import page_pictures, pictures
from maintenance.scene import PAGES
from tests.processes import ROOT

PICTURES = ROOT / "docs" / "pictures"
DRAWN = {"kill.svg", "terminal.svg", "explain.svg", "question.svg"}
OF_BROWSER = ("web-ui", "web-ui-details", "web-ui-waiting", "web-ui-answer", "audit", "report")
NAMES = DRAWN | {f"{name}.png" for name in OF_BROWSER}
OF_PAGE = {f"page-{name}.png" for name in page_pictures.KEPT}
TEXT = f"\x1b[1m$ starter\x1b[0m\n  \x1b[32m✓\x1b[0m <price> & more\n{'x' * 80}\n"


def words(svg: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", svg.partition("</defs>")[2])).split())


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("svg", [pictures.drawing(TEXT, "x", "x"), *(p.read_text() for p in PICTURES.glob("*.svg"))])
def test_a_drawing_asks_nobody(svg: str) -> None:
    """Forges show no picture that loads a font or anything else from elsewhere."""
    assert set(re.findall(r"url\((.)", svg)) == {"#"}
    assert not re.search(r"@import|@font-face|href|<script|<image|<foreignObject", svg)


def test_a_drawing_shows_the_text_in_its_colours() -> None:
    """Letters that mean something in XML too; a full row stays one row, and the same run again changes nothing."""
    svg = pictures.drawing(TEXT, "Replan", "x")

    assert words(svg) == f"Replan $ starter ✓ <price> & more {'x' * 80}"
    assert "#56d364" in svg and svg == pictures.drawing(TEXT, "Replan", "x")


def test_what_is_left_is_what_stays() -> None:
    frames = f"{BEGIN}Plan 1\n{DONE}{BEGIN}\r\x1b[1A\x1b[2K\n\r\x1b[1A{DONE}"

    assert pictures.left_by(python(f"print({frames!r} + 'Plan 1\\nCompleted')"), os.environ) == "Plan 1\nCompleted\n"


def test_the_last_frame_is_what_is_seen() -> None:
    frames = (
        f"{BEGIN}\rPlan 1\x1b[K\nruns\x1b[K\nand on\x1b[K\n{DONE}{BEGIN}\r\x1b[3A\nwaits\x1b[K\n  > \x1b[K\x1b[J{DONE}"
    )

    assert pictures.as_seen(frames) == "Plan 1\nwaits\n  > "


def test_a_command_runs_in_a_usual_terminal_until_it_asks() -> None:
    """80 columns with colours, whatever this one is; nobody answers a question: the command is killed.

    A command that fails is no picture, and says what was shown instead.
    """
    code = "import os; print(os.get_terminal_size().columns, os.isatty(0), 'NO_COLOR' in os.environ)"
    asking = "print('Approve?', flush=True); import time; time.sleep(600)"

    assert pictures.left_by(python(code), {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}) == "80 True False\n"
    assert pictures.left_by(python(asking), os.environ, until="Approve?").strip() == "Approve?"
    with pytest.raises(SystemExit, match=r"ended with 3 instead of 0:\noh no"):
        pictures.left_by(python("print('oh no'); raise SystemExit(3)"), os.environ)


def test_a_browser_is_found_on_the_path_or_by_its_name(tmp_path: Path) -> None:
    """Under any of its usual names; one that was given is never replaced by another browser."""
    chrome = tmp_path / "google-chrome"
    chrome.touch(0o755)

    assert pictures.browser_program({"PATH": str(tmp_path)}) == str(chrome)
    assert pictures.browser_program({"PATH": "", "REPLAN_BROWSER": str(chrome)}) == str(chrome)
    for environment, said in (
        ({"PATH": "/nowhere"}, "No Chromium is on PATH: install one, or name it in REPLAN_BROWSER"),
        (
            {"PATH": str(tmp_path), "REPLAN_BROWSER": "/no/such"},
            "REPLAN_BROWSER='/no/such' is no program that can be run: name a Chromium",
        ),
    ):
        with pytest.raises(pictures.NoBrowser, match=re.escape(said)):
            pictures.browser_program(environment)


def test_without_playwright_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "playwright.py").touch()  # stands before the package, if that is installed
    code = "from maintenance import pictures\nwith pictures.browser_page({}): pass"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "REPLAN_BROWSER": sys.executable}
    done = subprocess.run(python(code), cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert "NoBrowser: Playwright is not installed: " in done.stderr
    assert 'pip install --editable ".[pictures]"' in done.stderr


@pytest.mark.full
def test_the_drawings_are_made_without_a_browser(tmp_path: Path) -> None:
    """A real run of the demo's task is drawn; then one sentence, exit code 2."""
    command, environment = [sys.executable, "-m", "maintenance.pictures", str(tmp_path)], {"REPLAN_BROWSER": "/no/such"}
    ours = {**os.environ, **environment}
    done = subprocess.run(command, cwd=ROOT, env=ours, capture_output=True, text=True, check=False, timeout=200)
    drawn = {path.name: words(path.read_text()) for path in tmp_path.iterdir()}

    assert (done.returncode, done.stderr.count("\n"), set(drawn)) == (2, 1, DRAWN), done.stderr
    assert "Plan 2 because book was rejected" in drawn["terminal.svg"] and "[event 1]" in drawn["explain.svg"]
    assert "it was applied -> its result was found, nothing was repeated" in drawn["kill.svg"]
    assert drawn["kill.svg"].endswith("$ cat cards.txt order 17: ann 12.00 EUR")


def test_the_pictures_are_there_and_small_and_the_pages_show_them() -> None:
    """A reader sees all of the tour in a minute; another task of `make demo` asks for a new picture.

    Those of the page are of a state, a width and a colour scheme that there are.
    """
    sizes = {path.name: path.stat().st_size for path in PICTURES.iterdir()}
    tour, web = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("tour.md", "web.md"))
    shown = re.findall(r"\]\(pictures/([\w.-]+)\)", tour)
    widths, schemes = page_pictures.WIDTHS, page_pictures.SCHEMES
    made = {f"page-{name}-{width}-{scheme}.png" for name in PAGES for width in widths for scheme in schemes}

    assert set(sizes) >= NAMES | OF_PAGE
    assert {name for name in sizes if name.startswith("page-")} == OF_PAGE <= made
    assert sum(sizes.values()) < 3_000_000 and max(sizes.values()) < 400_000
    assert TASK in words((PICTURES / "terminal.svg").read_text())
    assert len(shown) == len(set(shown)) == tour.count("\n## ") == 10 and set(shown) <= NAMES | OF_PAGE
    assert max(sizes[name] for name in shown) < 300_000 and tour.count("\n") <= 80
    assert set(re.findall(r"pictures/(page-[\w-]+\.png)", web)) == OF_PAGE


@pytest.mark.full
def test_every_state_of_the_page_is_pictured(tmp_path: Path) -> None:
    if shutil.which("chromium") is None or find_spec("playwright") is None:
        pytest.skip(MISSING)
    command = [sys.executable, "-m", "maintenance.page_pictures", str(tmp_path), "--docs", str(tmp_path / "docs")]
    (tmp_path / "docs").mkdir()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    made = list(tmp_path.glob("*.png"))

    assert (done.returncode, len(made)) == (0, len(PAGES) * 4 + 1), done.stderr
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)
    assert {path.name for path in (tmp_path / "docs").iterdir()} == OF_PAGE | {"report.png"}
