"""The kind `read_document`: the text of one of the task's documents."""

from pydantic import BaseModel, Field

from activities.toolbox.declare.tool import tool
from activities.toolbox.injection import Documents
from activities.toolbox.pages import DocumentText


class DocumentName(BaseModel):
    """Which document, and from where on."""

    name: str = Field(description="The file, as search names it, e.g. refund-policy.md", min_length=1, max_length=400)
    page: int = Field(default=1, ge=1, le=1_000_000, description="The page to begin with, when there is more than one")


@tool.read(authority=(), timeout=60, untrusted=True)
def read_document(args: DocumentName, documents: Documents) -> DocumentText:
    """Read one of the task's documents (Markdown, text, HTML, PDF) by its name; long ones page by page."""
    return documents.read(args.name, args.page)
