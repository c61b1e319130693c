"""The schemas of everything that crosses a border, and what is public: `python -m tests.golden` writes both anew.

Histories that exist, and workers of another version, hold and send what these models were: a change that is no new
optional field needs a thought about both. What is public (tests/surface.py) is only written if no promise to users is
broken; `--breaking` writes it all the same.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from activities.toolbox.mcp.tools_file import ToolsFile
from tests import log_lines, marks, promises, surface
from tests.processes import ROOT
from workflows.account.outcome import Outcome
from workflows.account.progress import Progress
from workflows.account.task import Task
from workflows.calls.header import CallHeader
from workflows.faults.fault import Fault
from workflows.inquiries import (
    BreakersFindings,
    ClaimsFindings,
    EffectsFindings,
    InquiryInput,
    PayloadFindings,
    PlanFindings,
    PruneFindings,
    TranscriptFindings,
    WorkerFindings,
)
from workflows.people.incidents import (
    Batch,
    CanaryEnd,
    Gone,
    Look,
    Resolve,
    Resolved,
    Search,
    WaitingTasks,
)
from workflows.people.notifications import Notification
from workflows.people.requests import CHOICES, Resolution
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Catalogue
from workflows.plans.proposal import Proposed, StepReturn
from workflows.unfinished import Unfinished

FOLDER = ROOT / "docs" / "schemas"
MODELS: Mapping[str, TypeAdapter[Any]] = {
    **{
        model.__name__: TypeAdapter(model)
        for model in (
            Task,
            Situation,
            Proposed,
            StepReturn,
            Fault,
            Catalogue,
            Outcome,
            Progress,
            CallHeader,
            InquiryInput,
            Notification,
            Resolution,
            Resolve,
            Resolved,
            Unfinished,
        )
    },
    **{f"Answer-{choice.value}": TypeAdapter(row.given) for choice, row in CHOICES.items()},
    "LogLine": log_lines.schema(),
    "ToolsFile": TypeAdapter(ToolsFile),
    "Resolving": TypeAdapter(Search | WaitingTasks | Look | CanaryEnd | Batch | Gone),
    "Findings": TypeAdapter(
        WorkerFindings
        | PlanFindings
        | PayloadFindings
        | ClaimsFindings
        | PruneFindings
        | EffectsFindings
        | BreakersFindings
        | TranscriptFindings
    ),
}


def documents() -> dict[str, str]:
    """By name, each JSON schema as it is saved, and what redaction keeps of the models of histories."""
    found = {**{name: model.json_schema() for name, model in MODELS.items()}, "Redaction": marks.document()}
    return {
        name: json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
        for name, document in found.items()
    }


def saved(name: str) -> str:
    """The schema that was saved; empty when there is none yet."""
    file = FOLDER / f"{name}.json"
    return file.read_text() if file.exists() else ""


def main(*arguments: str) -> int:
    """Write what changed; say and return 1 if that breaks a promise to users, whose file is then left as it is."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in documents().items():
        if saved(name) != text:
            (FOLDER / f"{name}.json").write_text(text)
            sys.stdout.write(f"wrote {name}.json\n")
    is_breaking, code = "--breaking" in arguments, 0
    for name, door in surface.DOORS.items():
        for what in promises.save(surface.file_of(name), door.made(), breaking=is_breaking):
            sys.stdout.write(f"{surface.sentence(name, what)}\n")
            code = 0 if is_breaking else 1
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
