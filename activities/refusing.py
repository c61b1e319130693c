"""Why a worker cannot take a task at all, each in one sentence with a remedy."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from activities.llm.exchange import Past
from activities.llm.offline import OfflinePlanner
from activities.planner import Planner
from activities.toolbox.errors import NeedsPerson
from activities.toolbox.injection import folder
from activities.toolbox.json_schema import BadSchema, JsonSchema
from activities.toolbox.kind import Kind
from workflows.catalogue import Price
from workflows.plan import nearest


def refusal(
    wanted: Mapping[str, JsonValue],
    planner: Planner,
    kinds: Mapping[str, Kind],
    prices: Mapping[str, Price | None],
    documents: Path | None,
    carried: Sequence[Past] | None,
) -> str | None:
    """Say why a task could not be done here; None where it can.

    `wanted` is what the task asks of a worker, `prices` what each model costs that it may use, `documents` the worker's
    root, and `carried` the conversation that the task carries on, where it does.
    """
    return (
        _kinds(wanted.get("allow"), kinds)
        or _unpriced(wanted, prices)
        or _schema(wanted.get("result_schema"))
        or _offline(wanted, planner)
        or _silent(carried)
        or _folder(wanted.get("documents"), documents)
    )


def _kinds(allow: JsonValue, kinds: Mapping[str, Kind]) -> str | None:
    for kind in allow if isinstance(allow, list) else ():
        if kind not in kinds:
            there = nearest(str(kind), kinds) or f": there are {', '.join(sorted(kinds))}."
            return f"--allow names {str(kind)[:80]!r}, which this worker does not have{there}"
    return None


def _unpriced(wanted: Mapping[str, JsonValue], prices: Mapping[str, Price | None]) -> str | None:
    """Nobody could hold the limit of money that is wanted."""
    missing = next((name for name, price in prices.items() if price is None), None)
    if wanted.get("usd") is None or missing is None:
        return None
    remedy = f'give it in the settings file of the worker ([models.prices."{missing}"]), or leave out --usd'
    return f"--usd needs the price of {missing}, which is not known: {remedy}."


def _schema(schema: JsonValue) -> str | None:
    if not isinstance(schema, dict):
        return None
    try:
        JsonSchema(schema)
    except BadSchema as bad:
        return f"--result-schema cannot be used, since {bad}: change the schema."
    return None


def _offline(wanted: Mapping[str, JsonValue], planner: Planner) -> str | None:
    """What needs a model."""
    if planner.name != OfflinePlanner.name:
        return None
    options = {"--result-schema": "result_schema", "--continue": "continues"}
    needs = [option for option, name in options.items() if wanted.get(name)]
    needs += ["--strategy react"] if wanted.get("strategy") == "react" else []
    if not needs:
        return None
    remedy = "give the worker a model (a key in its environment), or leave it out"
    return f"{needs[0]} is for models, and {planner.name} plans here: {remedy}."


def _silent(carried: Sequence[Past] | None) -> str | None:
    if carried is None or carried:
        return None
    remedy = "start a worker on the store that has it, or leave out --continue"
    return f"The task to be carried on has no conversation in this worker's store: {remedy}."


def _folder(name: JsonValue, documents: Path | None) -> str | None:
    if not isinstance(name, str):
        return None
    try:
        folder(documents, name)
    except NeedsPerson as missing:
        return str(missing)
    return None
