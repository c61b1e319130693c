"""What the tests of this room share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.activities.bench import Bench, bench


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[Bench]:
    """Calls of single tools through the boundary."""
    async with bench(tmp_path, documents=tmp_path) as ready:
        yield ready
