"""What an observation offers in place of an argument, and when the same call may be repeated."""

import pytest
from pydantic import JsonValue

from activities.offline.alternatives import find_alternatives, limit_kept_now
from tests.activities.situations import TODAY


@pytest.mark.parametrize(
    ("args", "observed", "expected"),
    [
        ({"weight": 7.0}, {"available": [2, 6, 8, 9]}, [8, 6, 9, 2]),
        ({"weight": 7}, {"weights": ["6.5", "9"]}, ["6.5", "9"]),
        ({"weight": 7}, {"ids": [1, 2]}, []),
        ({"name": "Ada"}, {"people": ["Grace"]}, []),
        ({"name": "Ada"}, {"names": ["Grace"]}, ["Grace"]),
        ({"day": TODAY}, {"busy": ["2025-11-22"]}, []),
        ({"from": "2025-11-21T10:00:00Z"}, ["2025-11-21T12:00:00Z", "2025-11-21T09:00:00Z"],
         ["2025-11-21T09:00:00Z", "2025-11-21T12:00:00Z"]),
        ({"at": "14:00", "until": "15:00"}, {"until": ["16:00"]}, ["16:00"]),
        ({"at": "14:00"}, {"free": ["soon", "15:00"]}, []),
        ({"at": "14:00"}, {"free": [True, None, []]}, []),
        ({"at": "14:00"}, {"free": []}, []),
        ({"at": None}, None, []),
        ({"at": "14:00"}, "15:00", []),
    ],
)  # fmt: skip
def test_only_what_is_alike_and_offered_replaces_an_argument(
    args: dict[str, JsonValue], observed: JsonValue, expected: list[JsonValue]
) -> None:
    """Any text or number looks like any other, so their list must be named as an offer or after the argument."""
    assert [one.value for one in find_alternatives(args, observed)] == expected


@pytest.mark.parametrize(
    ("args", "refused", "now", "fits"),
    [
        ({"at_most": "24.50"}, {"price": "26.00"}, {"price": "24.50"}, True),
        ({"max_price": 5}, {"price": 6}, {"price": 4.5}, True),
        ({"at_least": 3}, {"stock": 2}, {"stock": 3}, True),
        ({"min_stars": 3}, {"stars": 2}, {"stars": 2}, False),
        ({"at_most": 5}, {"price": 6}, {"price": 7}, False),
        ({"at_most": 5}, {"price": 4}, {"price": 3}, False),
        ({"at_most": 5}, {"price": 6}, {"price": None}, False),
        ({"at_most": 5}, {"price": 6}, {"cost": 4}, False),
        ({"at_most": 5}, {"open": True}, {"open": False}, False),
        ({"at_most": "nan"}, {"price": "6"}, {"price": "inf"}, False),
        ({"name": "5"}, {"price": 6}, {"price": 4}, False),
        ({"at_most": 5}, None, {"price": 4}, False),
        ({"at_most": 5}, {"price": 6}, [4], False),
    ],
)
def test_a_number_must_have_come_back_within_its_limit(
    args: dict[str, JsonValue], refused: JsonValue, now: JsonValue, fits: bool
) -> None:
    """The same field, too high or too low at the refusal, and right in what was seen since."""
    assert (limit_kept_now(args, refused, now) is not None) is fits
