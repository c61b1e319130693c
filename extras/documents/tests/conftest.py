"""What the tests of this extra share."""

from tests.activities.conftest import calls as calls
