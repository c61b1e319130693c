"""What an observation offers in the place of an argument."""

import pytest
from pydantic import JsonValue

from activities.offline.offers import offers
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
    assert [offer.value for offer in offers(args, observed)] == expected
