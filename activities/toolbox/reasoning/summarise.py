"""The kind `summarise`: the most telling sentences of a text, chosen by H. P. Luhn's method (1958).

A sentence scores higher if words that the text repeats are close together in it. This method of the package `sumy`
takes linear time; the other methods of `sumy` take quadratic time.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel, Field

from activities.errors import Refused
from activities.toolbox.declare.tool import tool
from activities.toolbox.extra import MissingPackage

MAX_TEXT = 100_000  # characters
MAX_SENTENCE = 600  # characters of a sentence; a longer sentence is split
MAX_HEADING = 6  # words up to which a line without a full stop counts as a heading
SIGNIFICANT = 0.05  # the part of a text's words that count as significant
NOTHING = "There is nothing to summarise: give the text itself."


class LongText(BaseModel):
    """What to summarise."""

    text: str = Field(description="The text itself, e.g. the text of a document or page", max_length=MAX_TEXT)
    sentences: int = Field(default=3, ge=1, le=20, description="How many sentences at the most")


class Summary(BaseModel):
    """Sentences of the text, in their order."""

    summary: str
    sentences: int
    of: int


@tool.read(authority=())
def summarise(args: LongText) -> Summary:
    """Summarise an English text by its most telling sentences, word for word."""
    found = sentences(args.text)
    if not found:
        raise Refused(NOTHING, code="invalid_input")
    chosen = _chosen(found, args.sentences) if len(found) > args.sentences else found
    return Summary(summary=" ".join(chosen), sentences=len(chosen), of=len(found))


def sentences(text: str) -> list[str]:
    """The sentences of a text, each once; headings, tables and code are left out unless there is nothing else."""
    return list(dict.fromkeys(_sentences(_prose(text)) or _sentences(text.split("\n"))))


def _chosen(sentences: Sequence[str], count: int) -> list[str]:
    """The `count` most telling sentences, in the order of the text. Raises MissingPackage if sumy is not installed."""
    try:  # Imported here: sumy belongs to the extra `documents`, and its import takes a second.
        from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence  # type: ignore[import-untyped]  # it ships no types
        from sumy.nlp.stemmers import Stemmer  # type: ignore[import-untyped]  # it ships no types
        from sumy.summarizers.luhn import LuhnSummarizer  # type: ignore[import-untyped]  # it ships no types
        from sumy.utils import get_stop_words  # type: ignore[import-untyped]  # it ships no types
    except ImportError:
        raise MissingPackage("sumy") from None

    method = LuhnSummarizer(Stemmer("english"))
    method.stop_words = get_stop_words("english")
    method.significant_percentage = SIGNIFICANT
    document = ObjectDocumentModel([Paragraph([Sentence(sentence, _Tokenizer()) for sentence in sentences])])
    return [str(sentence) for sentence in method(document, count)]


class _Tokenizer:
    """A tokeniser for sumy, whose own tokeniser needs a download."""

    def to_words(self, sentence: str) -> tuple[str, ...]:
        return tuple(re.findall(r"[^\W\d_]+", sentence))


_MARKER = re.compile(r"(?:[-*+\u2022]|\d{1,3}[.)]) ")
_END = re.compile(
    r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019)\]]*+ (?=[\"'\u201c\u2018(\[]{0,3}[^\W_a-z])|[\u3002\uff01\uff1f]"
)
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:[a-z]|approx|cf|dr|e\.g|fig|i\.e|mrs?|ms|nos?|prof|st|vs)\.$", re.IGNORECASE)
"""Matches abbreviations and initials: their full stop does not end a sentence."""


def _prose(text: str) -> Iterator[str]:
    """Yield the paragraphs and list items of a text, without headings, tables and code."""
    block, is_code = list[str](), False
    for line in map(str.strip, text.split("\n")):
        is_fence = line.startswith(("```", "~~~"))
        is_code ^= is_fence
        is_left_out = is_fence or is_code or line.startswith(("#", "|"))
        marker = _MARKER.match(line)
        if not line or marker or is_left_out:
            yield from _unless_heading(block)
            block = []
        if not is_left_out:
            block.append(line[marker.end() :] if marker else line)
    yield from _unless_heading(block)


def _unless_heading(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, joined to one paragraph, unless they look like a heading."""
    block = " ".join(lines)
    if block.endswith(tuple(".!?:;\u2026\u3002\uff01\uff1f")) or len(block.split()) > MAX_HEADING:
        yield block


def _sentences(blocks: Iterable[str]) -> list[str]:
    return [piece for block in blocks for sentence in _split(" ".join(block.split())) for piece in _pieces(sentence)]


def _split(block: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(block):
        if not _ABBREVIATION.search(block[max(end.start() - 10, 0) : end.start() + 1]):
            yield block[start : end.end()].strip()
            start = end.end()
    yield block[start:].strip()


def _pieces(sentence: str) -> Iterator[str]:
    """Yield a sentence in pieces of at most `MAX_SENTENCE` characters."""
    while len(sentence) > MAX_SENTENCE:
        cut = sentence.rfind(" ", 0, MAX_SENTENCE) + 1 or MAX_SENTENCE
        yield sentence[:cut].strip()
        sentence = sentence[cut:]
    if sentence:
        yield sentence
