"""What documents bring: the kinds that search and read a task's documents, and the text of HTML and PDF."""

from extras import Plugin

PLUGIN = Plugin(
    kinds=("extras.documents.search", "extras.documents.read_document"), parts={"documents": "extras.documents.reading"}
)
