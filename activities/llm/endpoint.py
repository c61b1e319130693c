"""Where a provider's server is and what key it takes; the key is never shown."""

from typing import Any
from urllib.parse import urlsplit


class Endpoint:
    """A server that speaks a provider's protocol."""

    __slots__ = ("_key", "url")

    def __init__(self, key: str, url: str | None = None) -> None:
        """Use the key at `url`, or at the provider's own address."""
        self._key = key
        self.url = url

    def __repr__(self) -> str:
        """The host alone."""
        return f"Endpoint({self.host!r})"

    @property
    def host(self) -> str:
        """The host of an address of its own, with its port and without credentials."""
        return urlsplit(self.url or "").netloc.rpartition("@")[2]

    def name(self, provider: str, model: str) -> str:
        """How people call a model here; the host stands in it where it is not the provider's own."""
        return f"{provider}:{model}@{self.host}" if self.url else f"{provider}:{model}"

    def client(self, patience: float) -> dict[str, Any]:
        """What the client of either SDK takes: `patience` in seconds, and no retries of its own."""
        return {"api_key": self._key, "base_url": self.url, "timeout": patience, "max_retries": 0}
