"""A browser that photographs the web UI: Playwright from the extra `pictures`, and a Chromium that is there already."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # an extra, which few need
    from playwright.sync_api import Page

VARIABLE = "REPLAN_BROWSER"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
"""Without these it hangs or ends in many containers; it only ever sees our own server."""
WIDTH, HEIGHT = 1280, 1700
"""So high that nothing has to be scrolled."""
SHARPNESS = 1.5
"""Dots for each point of the page: sharp on a good screen, and below 300 kB."""


class NoBrowser(Exception):
    """No photograph can be taken here, with the remedy."""


def program(environment: Mapping[str, str]) -> str:
    """The Chromium that is used.

    Raises:
        NoBrowser: there is none, or REPLAN_BROWSER names no program.
    """
    path, named = environment.get("PATH"), environment.get(VARIABLE)
    found = next(filter(None, (shutil.which(name, path=path) for name in ([named] if named else PROGRAMS))), None)
    if found is None and named:
        raise NoBrowser(f"{VARIABLE}={named!r} is no program that can be run: name a Chromium or Chrome there")
    if found is None:
        raise NoBrowser(f"No Chromium is on PATH: install one, or name it in {VARIABLE}")
    return found


@contextmanager
def page(stored: Mapping[str, str | bool]) -> Iterator["Page"]:
    """An empty page of a browser that is closed at the end; `stored` is what a person has chosen in the web UI.

    Raises:
        NoBrowser: there is no Chromium, no Playwright, or they do not go together.
        SystemExit: the browser gave up waiting for something on the page.
    """
    executable = program(os.environ)
    try:
        from playwright.sync_api import Error, sync_playwright
    except ModuleNotFoundError:
        remedy = '`.venv/bin/python -m pip install --editable ".[pictures]"`'
        raise NoBrowser(f"Playwright is not installed: {remedy}, then again") from None
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        except Error as error:
            reason = error.message.partition("\n")[0]
            raise NoBrowser(f"{executable!r} does not start ({reason}): name another in {VARIABLE}") from error
        opened = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT},
            device_scale_factor=SHARPNESS,
            color_scheme="light",
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
        )
        for name, value in stored.items():
            opened.add_init_script(f"localStorage.setItem({json.dumps(name)}, {json.dumps(json.dumps(value))})")
        try:
            yield opened
        except Error as error:
            raise SystemExit(f"{opened.url} did not become what was expected: {error.message}") from error
        finally:
            browser.close()
