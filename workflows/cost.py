"""What requests to models may cost at the most, and how much of it a task's limits leave room for."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from pydantic import JsonValue

from workflows.catalogue import Catalogue, Price, ToolSpec
from workflows.plan import canonical
from workflows.progress import Progress

LAST_OUTPUT = 2_000
"""Tokens that are kept back for the answer of a task whose budget is used up, with what the model thinks before."""
BYTES_PER_TOKEN = 3
"""Of JSON, and of plain text in Latin letters; models count three to four."""
MAX_SHOWN = 8_000
"""Characters of one result that a model is shown."""
MILLION = 1_000_000


class Cost(NamedTuple):
    """What may be used, or was."""

    tokens: int
    usd: float = 0.0
    """US dollars; 0 where there is no price."""


def input_tokens(progress: Progress, catalogue: Catalogue, new_bytes: int = 0) -> int:
    """Tokens that the next request of the planner will probably have."""
    return (progress.context or catalogue.preamble) + math.ceil(new_bytes / BYTES_PER_TOKEN)


def unshown(results: Iterable[JsonValue]) -> int:
    """Bytes of results that a model is not shown, since each is cut."""
    return sum(len(canonical(result)[MAX_SHOWN:].encode()) for result in results)


def of_request(price: Price | None, input: int, output: int) -> Cost:
    """The most that a request of this size can cost: all of its input may be new to the cache."""
    if price is None:
        return Cost(input + output)
    is_long = price.long_from is not None and input > price.long_from
    dearest = max(price.input, price.cache_read, price.cache_write)
    read = input * dearest * (price.long_input if is_long else 1)
    said = output * price.output * (price.long_output if is_long else 1)
    return Cost(input + output, (read + said) / MILLION)


def sized(spec: ToolSpec, args: JsonValue) -> ToolSpec:
    """The kind with what a call with these arguments may use: less than any call, where they hold all that is read."""
    if not spec.tokens or spec.tokens_beside is None:
        return spec
    read = math.ceil(len(canonical(args).encode()) / BYTES_PER_TOKEN)
    return spec.model_copy(update={"tokens": min(spec.tokens, spec.tokens_beside + read)})


def of_attempt(price: Price | None, spec: ToolSpec) -> Cost:
    """The most that one attempt of a kind may use; where its arguments hold all that it reads, they are only read."""
    if spec.tokens_beside is not None:
        said = min(spec.tokens_beside, spec.tokens)
        return of_request(price, spec.tokens - said, said)
    return max(of_request(price, spec.tokens, 0), of_request(price, 0, spec.tokens))


def times(left: tuple[float, float], each: Cost) -> int:
    """How often something fits into what is left of tokens and US dollars; both may be infinite, but not together."""
    fits = min(left[0] / each.tokens if each.tokens else math.inf, left[1] / each.usd if each.usd else math.inf)
    return max(0, int(min(fits, MILLION)))


def of_last_answer(progress: Progress, catalogue: Catalogue, new_bytes: int = 0) -> Cost:
    """What the planner needs to answer from what is there; nothing where it is no model."""
    if not catalogue.converses:
        return Cost(0)
    return of_request(catalogue.price, input_tokens(progress, catalogue, new_bytes), LAST_OUTPUT)


def left(progress: Progress, kept: Cost) -> tuple[float, float]:
    """Tokens and US dollars that nobody has spent or reserved, but for what is kept back; infinite without a limit."""
    tokens, usd = progress.budget.free_tokens, progress.budget.free_usd
    return (
        math.inf if tokens is None else tokens - kept.tokens,
        math.inf if usd is None else usd - kept.usd,
    )


def room(progress: Progress, price: Price | None, input: int, kept: Cost) -> tuple[float, float]:
    """Tokens that a reply may have by the limit of tokens, and by that of money, which needs a price."""
    tokens, usd = left(progress, kept)
    if price is None and usd < math.inf:
        return tokens - input, 0.0
    asked = of_request(price, input, 0).usd
    each = of_request(price, input, 1).usd - asked
    if usd < asked:
        return tokens - input, 0.0
    return tokens - input, (usd - asked) / each if each else math.inf


def affordable(progress: Progress, catalogue: Catalogue, spec: ToolSpec) -> int | None:
    """Attempts of a kind that the limits of tokens and money leave room for; None for as many as one likes."""
    if not spec.tokens:
        return None
    each = of_attempt(catalogue.price, spec)
    tokens, usd = left(progress, of_last_answer(progress, catalogue))
    if catalogue.price is None and usd < math.inf:
        return 0
    attempts = min(tokens / each.tokens, usd / each.usd if each.usd else math.inf)
    return None if attempts == math.inf else max(0, int(attempts))
