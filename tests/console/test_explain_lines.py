"""The lines of `explain`: wrapped below their beginning, cited at the end, harmless whatever the world wrote."""

import pytest
from rich.cells import cell_len

from client.explain import explanation, page
from client.explain.page import citation, lay_out_sentence
from client.history.records import Event
from tests.console import histories
from tests.console.histories import NAMES, explained

EVIL = "a\x1b[31m\x07\r\nb\x9b2J\u202ec\tdone"


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], ""),
        ([11], "[event 11]"),
        ([13, 14, 15], "[events 13-15]"),
        ([15, 11, 14, 14], "[events 11, 14-15]"),
        (list(range(1, 40, 2)), "[events 1, 3, 5, 7, 9, ..., 39]"),
    ],
)
def test_events_are_cited_as_spans(ids: list[int], said: str) -> None:
    """In order, each once, neighbours together; a long row is cut in the middle."""
    assert citation([Event(1, id) for id in ids]) == said


def test_a_task_of_several_runs_cites_the_run() -> None:
    """Event ids begin anew in each."""
    assert citation([Event(2, 11)], many=True) == "[run 2, event 11]"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("short", [" 1.  short                     [event 1]"]),
        ("just as long as it may be", [" 1.  just as long as it may be", "                               [event 1]"]),
        (
            "so long that it goes on in a second row",
            [" 1.  so long that it goes on in a second", "     row                       [event 1]"],
        ),
    ],
)
def test_a_citation_stands_at_the_right_end(text: str, rows: list[str]) -> None:
    """On the last line of its sentence or, without room, below; the sentence hangs below its beginning."""
    assert lay_out_sentence(" 1.  ", text, "[event 1]", 40) == rows


def test_a_long_word_moves_to_the_left_before_it_leaves_the_terminal() -> None:
    """The name of a planner, or an address, that would fit a line of its own."""
    rows = lay_out_sentence(" 1.  ", f"It was {'x' * 38} that failed.", "", 40)

    assert rows == [" 1.  It was", f"  {'x' * 38}", "     that failed."]


def test_a_line_in_a_file_is_whole() -> None:
    """Nothing is wrapped where nobody said how wide it is."""
    assert lay_out_sentence(" 1.  ", "x " * 100, "[event 1]", None) == [" 1.  " + "x " * 100 + "  [event 1]"]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("name", NAMES)
async def test_every_line_fits_the_terminal(name: str, width: int) -> None:
    """Whatever it is told, in 40 columns as in 200."""
    assert max(map(cell_len, page.page_lines(await explained(name), width))) <= width


async def test_nothing_from_the_world_can_draw_on_the_terminal() -> None:
    """Escapes, bells, line breaks and reversed text in reasons, arguments and results are gone; no line is added."""
    events = histories.events("escalated")
    for event in events:
        failure = event.activity_task_failed_event_attributes.failure
        if failure.message:
            failure.message = EVIL
            failure.application_failure_info.ClearField("details")
            failure.application_failure_info.details.payloads.add(metadata={"encoding": b"binary/encrypted"})
        if event.HasField("activity_task_scheduled_event_attributes"):
            event.activity_task_scheduled_event_attributes.activity_id += EVIL
            event.activity_task_scheduled_event_attributes.activity_type.name += EVIL
    lines = page.page_lines(explanation.explain_task(await histories.history(events)), 80)

    assert [char for line in lines for char in line if not char.isprintable()] == []
    assert [line for line in lines if "done" in line]
