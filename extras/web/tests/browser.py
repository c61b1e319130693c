"""A Chromium for tests, and what a page did that no page may do."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # of an extra
    from playwright.async_api import Browser, Page

MISSING = "A browser is not installed: `pip install playwright`, and `apt-get install chromium`."
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox"]  # the tests of a container run as root


def chromium() -> str:
    """The path of Chromium; without it, or without its driver, the test is skipped."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None or find_spec("playwright") is None:
        pytest.skip(MISSING)
    return found


@asynccontextmanager
async def launched(*flags: str) -> AsyncIterator["Browser"]:
    """A browser without a window."""
    executable = chromium()
    from playwright.async_api import async_playwright  # of an extra

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=executable, args=[*FLAGS, *flags])
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Visitor:
    """A person with a browser of their own, who opens pages of one server."""

    browser: "Browser"
    url: str
    complaints: list[str] = field(default_factory=list)
    """Errors on the console (a violation of the CSP is one), exceptions of scripts, and dialogs."""

    @asynccontextmanager
    async def page(self, path: str, *, name: str = "", **settings: Any) -> AsyncIterator["Page"]:
        """A page that is open at `path`; with `name`, that person has signed in."""
        context = await self.browser.new_context(base_url=self.url, **settings)
        try:
            page = await context.new_page()
            page.set_default_timeout(20_000)
            page.on("console", lambda told: self.complaints.append(told.text) if told.type == "error" else None)
            page.on("pageerror", lambda error: self.complaints.append(str(error)))

            async def dismiss(dialog: Any) -> None:
                self.complaints.append(f"dialog {dialog.message}")
                await dialog.dismiss()

            page.on("dialog", dismiss)
            if name:
                await page.goto("/login")
                await page.get_by_label("Your name").fill(name)
                await page.get_by_role("button", name="Sign in").click()
                await page.wait_for_url("**/ui/inbox")
            await page.goto(path)
            yield page
        finally:
            await context.close()


async def says(page: "Page", selector: str, words: str) -> None:
    """Wait until an element of the page has these words; the page is not loaded again."""
    await page.locator(selector).filter(has_text=words).first.wait_for()
