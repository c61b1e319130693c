"""What all tests of model providers share."""

import pytest

from tests.providers.planning import PROVIDERS


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    """Each of the APIs."""
    return str(request.param)
