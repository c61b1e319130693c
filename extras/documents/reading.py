"""What other rooms use of this one: a folder's index, the pages of a document and of a text, and the text of HTML."""

from activities.toolbox.texts import DocumentText
from extras.documents.document import of_text
from extras.documents.excerpt import excerpt, read_from as read_from
from extras.documents.html import text_of as text_of
from extras.documents.library import Libraries as Libraries


def of_markdown(name: str, text: str, *, title: str, page: int = 1) -> DocumentText:
    """The pages from `page` on of a Markdown text that is not in a file."""
    return excerpt(name, of_text(text, title=title, has_headings=True), page)
