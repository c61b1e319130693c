"""How long a service asks its callers to wait."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from activities.borders.waits import wait_of

NOW = "Tue, 24 Nov 2026 10:00:00 GMT"
AT = "2026-11-24T10:00:30Z"
IN_30_S = int(datetime(2026, 11, 24, 10, 0, 30, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after-ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "Tue, 24 Nov 2026 10:00:30 GMT"}, 30.0),
        ({"Retry-After": "Mon, 01 Jan 0001 00:00:00 +2359"}, 0.0),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        # draft-ietf-httpapi-ratelimit-headers, from -08 on, and before
        ({"RateLimit": '"default";r=0;t=30'}, 30.0),
        ({"RateLimit": '"minute";r=0;t=30, "day";r=0;t=600, "hour";r=2;t=3000'}, 600.0),
        ({"RateLimit": '"minute"; r=0; t=30; pk=:sdfjLJUOUH==:'}, 30.0),
        ({"RateLimit-Limit": "10", "RateLimit-Remaining": "0", "RateLimit-Reset": "30"}, 30.0),
        # GitHub
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(IN_30_S)}, 30.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{IN_30_S}000"}, 30.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30"}, 30.0),
        # OpenAI
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
        (
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"}
            | {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m2.5s"},
            62.5,
        ),
        # Anthropic
        ({"anthropic-ratelimit-input-tokens-remaining": "0", "anthropic-ratelimit-input-tokens-reset": AT}, 30.0),
        # Retry-After is what the service decided for this call: it wins over what is said about a limit.
        ({"Retry-After": "7", "RateLimit": '"default";r=0;t=30'}, 7.0),
    ],
)
def test_each_form_is_read(headers: dict[str, str], wait: float) -> None:
    assert wait_of({"Date": NOW, **headers}) == pytest.approx(wait)


NO_TIMES = [
    *("7" * 500, "9" * 5000, "nan", "inf", "-1", "1e9", "", " ", "\u0663", "\u0667", "\u00b2", "," * 5000, "(" * 5000),
    "Mon, 99 Foo 99999999999 99:99:99 +9999999999",
]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"RateLimit": '"default";r=3;t=30'},
        {"RateLimit": '"default";r=0'},
        {"RateLimit": ";;;,,r=0;t=-1"},
        {"RateLimit-Remaining": "1", "RateLimit-Reset": "30"},
        {"X-RateLimit-Reset": "30"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"},
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s later"},
        {"anthropic-ratelimit-requests-remaining": "4", "anthropic-ratelimit-requests-reset": AT},
        {"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "tomorrow"},
        *({"Retry-After": header} for header in NO_TIMES),
        None,
        7,
        {7: 8},
    ],
)
def test_what_asks_for_nothing_is_no_wait(headers: object) -> None:
    assert wait_of(headers) is None


@pytest.mark.parametrize("off", [-60, 60])
def test_a_clock_of_the_worker_that_is_off_changes_no_wait(off: int) -> None:
    """A date counts from the answer's own: the worker's clock is not asked."""
    theirs = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=off)
    until = theirs + timedelta(seconds=30)
    asked = {"Date": format_datetime(theirs, usegmt=True), "Retry-After": format_datetime(until, usegmt=True)}

    assert wait_of(asked) == 30.0
    assert wait_of({**asked, "Retry-After": "", "RateLimit-Remaining": "0", "RateLimit-Reset": "30"}) == 30.0


def test_an_absurd_wait_is_a_day_at_most() -> None:
    for asked in ({"Retry-After": "9" * 300}, {"retry-after-ms": "9" * 300}, {"RateLimit": f'"a";r=0;t={"9" * 12}'}):
        assert wait_of(asked) == 86_400.0
