"""What other rooms use of this one: a folder's index, the pages of a document, and the text of HTML."""

from extras.documents.excerpt import read_from as read_from
from extras.documents.html import text_of as text_of
from extras.documents.library import Libraries as Libraries
