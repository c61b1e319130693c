"""When the same call may be made again: what broke a limit keeps it now."""

import pytest
from pydantic import JsonValue

from activities.offline.offers import fits_again


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
    assert (fits_again(args, refused, now) is not None) is fits
