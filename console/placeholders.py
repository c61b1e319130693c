"""Placeholders for values: equal ones for equal values, whatever they are."""

import json
import re

from pydantic import JsonValue

PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]{0,63}|[0-9]{1,4}")
"""A key that is a name, which stays; an address or a sentence is a value."""
LONG = 256
"""Bytes from which a placeholder in a tool's data is as long as its value: the size of data decides, too."""


class Placeholders:
    """Gives each string and each number a placeholder, and remembers it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._texts = dict[str, int]()
        self._numbers = dict[float, int]()

    def text(self, value: str, *, sized: bool = False) -> str:
        """`<text-7>`; `sized` makes that of a long one as long as the value is when written as JSON."""
        if not value:
            return value
        label = f"<text-{self._texts.setdefault(value, len(self._texts) + 1)}>"
        size = len(json.dumps(value, ensure_ascii=False).encode(errors="replace")) - 2
        return label if not sized or size < LONG else f"{label[:-1]} {'.' * (size - len(label) - 1)}>"

    def number(self, value: float) -> float:
        """A number of the same type that stands for this one, in whichever type it comes: 1.0 is 1."""
        if value != value:
            return value
        other = 1000 + self._numbers.setdefault(value, len(self._numbers) + 1)
        if isinstance(value, int):
            return other
        return float(other) if value.is_integer() else other + 0.5

    def data(self, value: JsonValue, *, references: bool = False) -> JsonValue:
        """Data of tools and planners: its shape and its keys stay; `references` to other steps, too, where asked."""
        match value:
            case {"$from": str(step), **more} if references and set(more) <= {"path"}:
                path = ".".join(map(self.key, str(more.get("path", "")).split(".")))
                return {"$from": step, **({"path": path} if more else {})}
            case dict():
                return {self.key(key): self.data(item, references=references) for key, item in value.items()}
            case list():
                return [self.data(item, references=references) for item in value]
            case str():
                return self.text(value, sized=True)
            case bool() | None:
                return value
        return self.number(value)

    def key(self, key: str) -> str:
        """A key of an object, or a part of a path through keys."""
        return key if PLAIN_KEY.fullmatch(key) else self.text(key)
