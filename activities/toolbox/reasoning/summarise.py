"""The kind `summarise` in a worker with a model, and `key_sentences`, which takes over where the model fails."""

from typing import Literal

from activities.llm.language_model import LanguageModel
from activities.toolbox import summarise as extractive
from activities.toolbox.errors import Refused
from activities.toolbox.reasoning import answer
from activities.toolbox.reasoning.words import SUMMARISE
from activities.toolbox.tool import tool

MAX_OUTPUT = 4_000
"""Tokens: twenty sentences, and what the model thinks before."""


class Told(extractive.Summary):
    """A summary, and who made it."""

    method: Literal["model", "key_sentences"]
    """A model in its own words, or the text's most telling sentences word for word."""


@tool.read
def key_sentences(args: extractive.Lengthy) -> Told:
    """Pick the most telling sentences of an English text, word for word."""
    return Told(**extractive.summarise(args).model_dump(), method="key_sentences")


@tool.read(fallback=key_sentences, timeout=120, tokens=answer.most(MAX_OUTPUT), tokens_beside=answer.beside(MAX_OUTPUT))
async def summarise(args: extractive.Lengthy, model: LanguageModel) -> Told:
    """Summarise a text in a few sentences, in its own language."""
    of = len(extractive.sentences(args.text))
    if not of:
        raise Refused(extractive.NOTHING, code="invalid_input")
    told = f"Sentences: {args.sentences} at most.\n{answer.whole('text', args.text)}"
    summary = await answer.text(model, SUMMARISE, told, MAX_OUTPUT)
    return Told(summary=summary, sentences=len(extractive.sentences(summary)), of=of, method="model")
