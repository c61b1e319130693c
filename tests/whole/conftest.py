"""What these tests share with those of single rooms."""

from tests.activities.conftest import calls as calls
from tests.workflows.conftest import stages as stages
