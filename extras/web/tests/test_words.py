"""The words of models in a stream of events."""

import asyncio
from pathlib import Path
from typing import Any

from temporalio.client import Client

from client.tasks import Handle
from evals.fakes.script import ModelReply, Streamed
from extras.web.streams import Streams
from tests.providers.acting import acting, reacting
from tests.providers.test_words import LONG


async def test_a_stream_of_events_tells_words_to_those_who_want_them(client: Client, tmp_path: Path) -> None:
    """They have no id, they are not kept for those who come later, and a reader that left is asked for no more."""
    async with acting(client, tmp_path, "openai", Streamed(ModelReply(text=LONG), pause=0.04)) as act:
        handle, streams = await act.stage.start(reacting()), Streams(client, act.stage.queue, 10)
        plain = asyncio.create_task(heard(streams, handle, with_words=False))
        whole = asyncio.create_task(heard(streams, handle, with_words=True))
        leaving = streams.listen(handle, "", with_words=True)
        async for _, (name, _) in leaving:
            if name == "words":
                break
        await leaving.aclose()  # type: ignore[attr-defined]  # it is a generator
        left = streams._feeds[handle.id].readers
        events, told = await whole, await plain
        later = await heard(streams, handle, with_words=True)
        streams.close()
    words = [(id, fields) for id, name, fields in events if name == "words"]

    assert left == 1 and streams._feeds[handle.id].readers == 0
    assert LONG.startswith("".join(fields["text"] for _, fields in words)) and len(words) > 2
    assert {id for id, _ in words} == {""} and words[-1][1]["over"] is True
    assert [event for event in events if event[1] != "words"] == told
    assert "words" not in {name for _, name, _ in later}


async def heard(streams: Streams, handle: Handle, *, with_words: bool) -> list[tuple[str, str, Any]]:
    """All events of a stream."""
    return [(id, *event) async for id, event in streams.listen(handle, "", with_words=with_words)]
