"""`make pictures`, its second part: the page of `serve` in every state, on a phone and a desk, light and dark.

And the page of `report` about the same tasks.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from client.client import Client
from console.demo import ROOT, open_playground, starter
from console.exits import Exit
from maintenance.pictures import FOLDER, USUAL_UI, NoBrowser, browser_page
from maintenance.scene import PAGES, play

if TYPE_CHECKING:  # of the extra `pictures`
    from playwright.sync_api import Page

TOOLS = ROOT / "lab" / "maintenance" / "office.py"
ALL = ROOT / "build" / "page"
"""Where all pictures go; they are too many to be kept with the code."""
KEPT = ("inbox-desk-light", "inbox-phone-dark", "approval-phone-light", "completed-desk-light", "undo-desk-dark")
"""Those that the docs show."""
WIDTHS: Mapping[str, int] = {"phone": 390, "desk": 1280}
HEIGHT = 800
MAX_HEIGHT = 2000
"""The most points of a page that a picture shows; the inbox has more of the same below."""
SHARPNESS = 1.0
SCHEMES = ("light", "dark")
REPORT = "report"
"""The name of the picture of the report, of which the docs show the first screen."""
REPORT_SIZE = 1160, 1100


def main(words: Sequence[str]) -> int:
    name = "python -m maintenance.page_pictures"
    parser = argparse.ArgumentParser(prog=name, description="Make the pictures of the page.")
    parser.add_argument("folder", type=Path, nargs="?", default=ALL, help="where all go; else build/page")
    parser.add_argument("--docs", type=Path, default=FOLDER, help="where those of the docs go; else docs/pictures")
    parsed = parser.parse_args(words)
    parsed.folder.mkdir(parents=True, exist_ok=True)
    try:
        for name, picture in pictures():
            (parsed.folder / f"{name}.png").write_bytes(picture)
            if name in KEPT:
                (parsed.docs / f"page-{name}.png").write_bytes(picture)
            if name == REPORT:
                (parsed.docs / f"{name}.png").write_bytes(picture)
    except NoBrowser as missing:
        print(f"No picture of the page: {missing}.", file=sys.stderr)
        return Exit.BAD_USAGE
    print(f"{os.path.relpath(parsed.folder)}: {len(PAGES) * len(WIDTHS) * len(SCHEMES) + 1} pictures")
    return Exit.COMPLETED


def pictures() -> Iterator[tuple[str, bytes]]:
    """The names, such as `inbox-phone-dark`, and the contents of all pictures."""
    with open_playground("--tools", str(TOOLS), "--queue", "replan") as playground:
        environment = {**playground.environment, "REPLAN_UI": USUAL_UI}
        asyncio.run(_play(environment["TEMPORAL_ADDRESS"]))
        with _served(environment) as url, browser_page({}, SHARPNESS) as page:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    for name, path in PAGES.items():
                        yield f"{name}-{width}-{scheme}", _picture(page, f"{url}{path}", WIDTHS[width], scheme)
            yield REPORT, _report(page, environment)


async def _play(address: str) -> None:
    await play(await Client.connect(address))


@contextmanager
def _served(environment: Mapping[str, str]) -> Iterator[str]:
    """The address of a `serve` that runs until the block ends."""
    command = starter("serve", "--port", "0")
    process = subprocess.Popen(  # noqa: S603  # our own script
        command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    )
    assert process.stdout is not None  # noqa: S101  # for the type checker: stdout=PIPE
    try:
        ready = process.stdout.readline()
        if not ready.startswith("ready"):
            raise SystemExit(f"`serve` said {ready!r} and not `ready`")
        yield ready.split()[1]
    finally:
        process.terminate()
        process.wait()


def _report(page: "Page", environment: Mapping[str, str]) -> bytes:
    """The first screen of the report on all these tasks."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.html")
        command = starter("report", "--html", str(file))
        subprocess.run(command, env=dict(environment), capture_output=True, check=True)  # noqa: S603  # our own script
        width, height = REPORT_SIZE
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="light")
        page.goto(file.as_uri())  # and not as the content of the page before, whose policy allows no style in it
        picture: bytes = page.screenshot()
    return picture


def _picture(page: "Page", url: str, width: int, scheme: str) -> bytes:
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    page.goto(url)
    page.locator("h1").first.wait_for()
    page.evaluate("document.activeElement?.blur()")
    height = min(MAX_HEIGHT, page.evaluate("document.documentElement.scrollHeight"))
    picture: bytes = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
    return picture


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(Exit.DETACHED)
