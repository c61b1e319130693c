"""A row as it was seen before and as it is now: what somebody else changed meanwhile must not be overwritten."""

from collections.abc import Iterable, Iterator, Mapping

from pydantic import JsonValue

from activities.llm.offers import Offer


def overwritten(args: Mapping[str, JsonValue], offer: Offer, now: JsonValue, before: Iterable[JsonValue]) -> list[str]:
    """Name the fields that the call would change and that have changed since they were seen.

    `now` holds the row that the offer is from, `before` are earlier results, of which the last that has the row counts.
    Where it was never seen before, or the call changes no fields by name, there is nothing to compare.
    """
    wanted = {field: value for part in args.values() if isinstance(part, dict) for field, value in part.items()}
    row = next((row for row in _rows(now, offer.argument) if row[offer.argument] == offer.value), {})
    if row.get("id") is None or row["id"] not in args.values():
        return []
    old = dict[str, JsonValue]()
    for result in before:
        old = next((seen for seen in _rows(result, offer.argument) if seen.get("id") == row["id"]), old)
    fields = [field for field in wanted if field in old and field in row]
    return [field for field in fields if old[field] != row[field] and row[field] != wanted[field]]


def _rows(value: JsonValue, field: str) -> Iterator[dict[str, JsonValue]]:
    """All objects with this field."""
    waiting = [value]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, dict):
            if field in one:
                yield one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
