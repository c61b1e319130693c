"""The kind `write_file`: text into a file of the task's own folder."""

import hashlib

from pydantic import BaseModel, Field

from activities.toolbox.declare.tool import tool
from activities.toolbox.injection import Workspace

MAX_CONTENT = 256 * 1024  # characters of one file


class NewFile(BaseModel):
    """What to write, and where."""

    name: str = Field(
        description="The file, relative to the task's folder, e.g. report.md", min_length=1, max_length=400
    )
    content: str = Field(description="The whole text; what was in the file before is replaced", max_length=MAX_CONTENT)


class Written(BaseModel):
    """A file that is there now."""

    path: str
    """Relative to the task's folder."""
    bytes: int
    sha256: str


@tool.idempotent
def write_file(args: NewFile, workspace: Workspace) -> Written:
    """Write a text file into the task's own folder, replacing a file of the same name."""
    content = args.content.encode()
    path = workspace.write(args.name, content)
    return Written(path=path, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
