"""The kind `compose` in a worker with a model: the final text from the results."""

from activities.llm.language_model import LanguageModel
from activities.toolbox import compose as plain
from activities.toolbox.reasoning import answer
from activities.toolbox.reasoning.words import COMPOSE
from activities.toolbox.tool import tool

MAX_OUTPUT = 8_000
"""Tokens."""


@tool.read(timeout=120, tokens=answer.most(MAX_OUTPUT), tokens_beside=answer.beside(MAX_OUTPUT))
async def compose(args: plain.Materials, model: LanguageModel) -> plain.Composition:
    """Write a text for the user, e.g. a letter, a report or an answer, from the results of other steps."""
    results = plain.checked(args.results)
    told = f"{answer.whole('what', args.what)}\n{answer.whole('results', results)}"
    return plain.Composition(text=await answer.text(model, COMPOSE, told, MAX_OUTPUT), method="model")
