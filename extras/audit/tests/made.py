"""Histories made by hand, and what an audit finds in them."""

from collections.abc import Iterable

import pytest
from temporalio.client import WorkflowHistory

from extras import plugins
from extras.audit.findings import FoundPlace, findings_in
from extras.audit.record import AuditedHistory, Recording
from extras.audit.report import Audit, AuditReport
from extras.audit.sources import Begin
from tests import made_histories

WITH_LIBRARIES = pytest.mark.skipif("libraries" not in plugins(), reason="extras/libraries is not here")
"""For a test of exceptions whose tables are in another extra."""


class Made(made_histories.Made):
    """A history with what an audit makes of it."""

    @property
    def record(self) -> AuditedHistory:
        recording = Recording("made.json")
        for event in self.events:
            recording.add(event)
        return recording.record

    @property
    def found(self) -> dict[str, list[FoundPlace]]:
        """What an audit finds in it, by name."""
        found = dict[str, list[FoundPlace]]()
        for finding, place in findings_in(self.record):
            found.setdefault(finding.name, []).append(place)
        return found


def audited(histories: Iterable[Made | WorkflowHistory]) -> AuditReport:
    """The report on histories."""
    audit = Audit()
    for number, made in enumerate(histories):
        audit.take(Begin(f"{number}"))
        for event in made.events:
            audit.take(event)
    return audit.report()
