"""The schemas of what users send and get, and what is public: `python -m tests.golden` writes both anew.

What is public (tests/surface.py) is only written if no promise to users is broken; `--breaking` writes it all the same.
The models that only histories and workers hold have no schema here: the saved histories show that they can be read.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from extras.mcp.tools_file import ToolsFile
from tests import marks, promises, surface
from tests.processes import ROOT
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.people.notifications import Notification
from workflows.people.requests import CHOICES
from workflows.unfinished import Unfinished

FOLDER = ROOT / "docs" / "schemas"
MODELS: Mapping[str, TypeAdapter[Any]] = {
    **{model.__name__: TypeAdapter(model) for model in (Task, Outcome, Notification, Unfinished, ToolsFile)},
    **{f"Answer-{choice.value}": TypeAdapter(row.given) for choice, row in CHOICES.items()},
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
