"""`benchmarks.turns` with tiny numbers: both sides run the same turns, and what they take is counted right."""

from collections.abc import Sequence

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from benchmarks import turns
from benchmarks.turns import COMMON, PARTS, Dialogue, Side, TurnsReport
from runtime.dev_server import DevServer

pytestmark = pytest.mark.full

TURNS = 5
DIALOGUE = Dialogue(
    turns=(('{"turn":1}', '{"n":1}', '{"n":2}'), ('{"turn":2}', '{"n":3}'), ('{"turn":3}',)),
    results=('{"said":1}', "11", "12", '{"said":2}', "13", '{"said":3}'),
)
"""A turn with two calls, one with one, and the answer."""


@pytest.fixture(scope="module")
async def twin(client: Client, server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Sequence[HistoryEvent]:
    return await turns.twin(client, server.address, tmp_path_factory.mktemp("twin"), DIALOGUE)


def test_the_twin_is_told_and_answers_the_same(twin: Sequence[HistoryEvent]) -> None:
    assert Dialogue.of(twin) == DIALOGUE


def test_a_bare_turn_is_twelve_events(twin: Sequence[HistoryEvent]) -> None:
    turn = turns.turns_of(twin)[1]
    parts = turns.parts_of(turn)

    assert len(turn) == 12
    assert parts.total() == turns.size(turn)


def test_a_bare_turn_has_nothing_of_ours(twin: Sequence[HistoryEvent]) -> None:
    parts = turns.parts_of(turns.turns_of(twin)[1])

    assert +parts == {PARTS["header"]: 4, **{name: parts[name] for name in (COMMON, *PAYLOADS)}}


PAYLOADS = ("arguments of the model", "result of the model", "arguments of the tool", "result of the tool")


@pytest.fixture(scope="module")
async def report(server: DevServer) -> TurnsReport:
    return await turns.run(TURNS, address=server.address)


def test_a_turn_of_replan_is_twelve_events_too(report: TurnsReport) -> None:
    """One activity for the model and one for the tool, whatever else is kept of them."""
    assert (report.replan.turns, report.bare.turns) == (TURNS, TURNS)
    assert (report.replan.fewest, report.replan.most) == (12, 12)


def test_both_sides_have_the_same_payloads(report: TurnsReport) -> None:
    """What differs is ours, and nothing else; a mark that keeps a result readable is a few bytes of it."""
    bare, ours = report.bare.parts, report.replan.parts

    assert all(0 <= ours[name] - bare[name] < 40 for name in PAYLOADS)


def test_events_and_bytes_are_as_promised(report: TurnsReport) -> None:
    """Twelve and 1.6 times; flat is seen over many turns only, since the first one has no results to tell."""
    assert [verdict.met for verdict in report.goals][:2] == [True, True]


def test_the_document_has_the_promised_keys(report: TurnsReport) -> None:
    document = report.model_dump(mode="json", by_alias=True)

    assert set(document) == {"schema", "machine", "replan", "bare", "goals"}
    assert TurnsReport.model_validate(document) == report


def test_the_table_has_a_line_for_every_part(report: TurnsReport) -> None:
    assert report.table().row_count == 4 + len(report.replan.parts)


SIDE = Side(turns=100, fewest=12, most=12, first=1700, last=1710, mean=1705, parts={})


@pytest.mark.parametrize(
    ("change", "met"),
    [
        ({}, [True, True, True]),
        ({"most": 13}, [False, True, True]),
        ({"mean": 2800}, [True, False, True]),
        ({"first": 1700, "last": 1900}, [True, True, False]),
    ],
)
def test_goals_are_judged_by_events_ratio_and_growth(change: dict[str, int], met: list[bool]) -> None:
    ours = SIDE.model_copy(update=change)

    assert [verdict.met for verdict in TurnsReport.of(ours, SIDE).goals] == met
