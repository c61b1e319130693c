"""Placeholders for the values of an exported document: an equal value gets an equal one.

Used while a history, or calls of a store of `replan.effects`, are exported with `--redact`.
"""

import json
import re

from pydantic import JsonValue

from workflows.plans.addresses import holds_address, is_address_name
from workflows.plans.references import PRUNED

INDEX = re.compile(r"[0-9]{1,4}")
"""A part of a dotted path that may be the index of a list. An object's key that looks like an index is kept, too."""
PLACEHOLDER = re.compile(r"<text-[0-9]+(://)?( \.*)?>")
# Some decisions depend on the size of a result.
LONG = 256
"""Bytes; from this size on, the placeholder of a text in a tool's data is as long as the text."""


class Placeholders:
    """Gives each string and each number a placeholder; an equal value gets the same placeholder again."""

    def __init__(self) -> None:
        self._texts = dict[str, int]()
        self._numbers = dict[float, int]()
        self._bounds = set[float]()
        """Bounds of contracts, which stay; see `number`."""
        self.known_keys = {"$from", "path", PRUNED}
        """The keys of objects that are kept; any other key gets a placeholder, as a value does."""

    def text(self, value: str, *, sized: bool = False) -> str:
        """The placeholder of a string: `<text-7>`; with `sized`, a long string gets a placeholder of its own length.

        That of a string with an address has one, too (`<text-7://>`), since a decision depends on that.
        """
        if not value:
            return value
        number = self._texts.setdefault(value, len(self._texts) + 1)
        label = f"<text-{number}://>" if holds_address(value) else f"<text-{number}>"
        size = len(json.dumps(value, ensure_ascii=False).encode(errors="replace")) - 2
        return label if not sized or size < LONG else f"{label[:-1]} {'.' * (size - len(label) - 1)}>"

    def number(self, value: float) -> float:
        """The placeholder of a number, of the same type; 1 and 1.0 count as one number.

        A number stays if its placeholder would be on the other side of a bound, since a decision depends on that.
        """
        if value != value:  # NaN
            return value
        other = 1000 + self._numbers.setdefault(value, len(self._numbers) + 1)
        if any((value <= bound) != (other <= bound) or (value >= bound) != (other >= bound) for bound in self._bounds):
            return value
        if isinstance(value, int):
            return other
        return float(other) if value.is_integer() else other + 0.5

    def data(self, value: JsonValue, *, references: bool = False) -> JsonValue:
        """Data with placeholders for values and unknown keys; with `references`, references to steps' results stay."""
        match value:
            case {"$from": str(step), **more} if references and set(more) <= {"path"}:
                return {"$from": step, **({"path": self.path(str(more.get("path", "")))} if more else {})}
            case dict():
                return {self.key(key): self.data(item, references=references) for key, item in value.items()}
            case list():
                return [self.data(item, references=references) for item in value]
            case str():
                return self.text(value, sized=True)
            case bool() | None:
                return value
        return self.number(value)

    def path(self, path: str) -> str:
        """A dotted path with placeholders for the keys that are not kept."""
        return ".".join(map(self.key, path.split(".")))

    def key(self, key: str) -> str:
        """The key itself if it is in `known_keys` or looks like an index, else its placeholder.

        That of the name of an address is one, too: `<text-7>_url`.
        """
        if key in self.known_keys or INDEX.fullmatch(key):
            return key
        return f"{self.text(key)}_url" if is_address_name(key) else self.text(key)


def is_placeholder(text: str) -> bool:
    """Whether a text that was exported is the placeholder of another one."""
    return PLACEHOLDER.fullmatch(text) is not None
