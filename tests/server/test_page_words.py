"""The page of a task shows what its model says, while it says it."""

from pathlib import Path

import pytest
from temporalio.client import Client

from evals.fakes.script import ModelReply, Streamed
from runtime.dev_server import DevServer
from tests.providers.acting import acting, reacting
from tests.server.browser import Visitor, launched
from tests.server.serving import serving

pytestmark = pytest.mark.full

SAID = "\u202eRome <img src=x onerror=alert(1)> is warm. " + "And so on. " * 12
"""Words that would turn others around, and that a page could take for its own."""


async def test_the_words_of_a_model_are_shown_as_text_and_go_when_they_are_complete(
    client: Client, server: DevServer, tmp_path: Path
) -> None:
    async with (
        launched() as browser,
        acting(client, tmp_path, "openai", Streamed(ModelReply(text=SAID), pause=0.08)) as act,
        serving(server.address, tmp_path, "--queue", act.stage.queue) as served,
    ):
        handle = await act.stage.start(reacting())
        visitor = Visitor(browser, served.url)
        async with visitor.page(f"/ui/tasks/{handle.id}") as page:
            await page.locator("#words p.said-now", has_text="onerror=alert(1)> is warm.").wait_for()
            shown = await page.locator("#words").inner_text()
            images = await page.locator("#words img").count()
            await page.locator("#result").wait_for()
            left = await page.locator("#words").count()

    assert shown.startswith("The model says") and "unfinished" in shown and "\u202e" not in shown
    assert (images, left, visitor.complaints) == (0, 0, [])
