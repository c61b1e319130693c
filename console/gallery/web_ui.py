"""Photographs of Temporal's web UI (2.42): what a task's page shows there without any help of ours."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # an extra, which few need
    from playwright.sync_api import Locator, Page

CHOSEN: Mapping[str, str | bool] = {"eventFilterSort": "ascending", "minimizeEventView": False}
"""First things first, and the whole timeline, as a person chooses them on the page."""
ABOVE, BELOW = 6, 10
"""Points around what is shown; other boxes are near."""
CURRENT = 2
"""The frames on a task's page are its summary, its details, its current details."""
SETTLING_MS = 1500
"""Labels find their places after the first drawing, and nothing tells when."""


def timeline(page: "Page", url: str) -> bytes:
    """The timeline of a task, each call with the title that the workflow gave it, as PNG."""
    page.goto(url)
    labels = page.locator("svg text")
    labels.filter(has_text="plan").first.wait_for()
    page.wait_for_timeout(SETTLING_MS)
    return _between(page, page.get_by_role("heading", name="Event History"), labels)


def details(page: "Page", url: str) -> bytes:
    """How a task describes itself: summary, details, and current details with the state of each step, as PNG."""
    page.goto(url)
    page.get_by_test_id("user-metadata-tab").click()
    page.locator("iframe").nth(CURRENT).content_frame.locator("strong").first.wait_for()
    page.wait_for_timeout(SETTLING_MS)
    return _between(page, page.get_by_test_id("workflow-id-heading"), page.locator("iframe"))


def _between(page: "Page", first: "Locator", last: "Locator") -> bytes:
    """The page from the top of one thing to the lowest end of others, without the bar at its left."""
    nav = page.get_by_test_id("navigation-header").bounding_box()
    top = first.first.bounding_box()
    ends = [box["y"] + box["height"] for box in (one.bounding_box() for one in last.all()) if box]
    if nav is None or top is None or not ends or page.viewport_size is None:
        raise SystemExit(f"{page.url} is not built as console/gallery/web_ui.py expects: adapt it to this web UI")
    left, upper = nav["width"] + 1, top["y"] - ABOVE
    width, height = page.viewport_size["width"] - left, max(ends) + BELOW - upper
    picture: bytes = page.screenshot(clip={"x": left, "y": upper, "width": width, "height": height})
    return picture
