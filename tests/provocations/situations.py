"""What the service does to each library, what its error should become, and which are known to become something else."""

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from runtime.dev_server import free_port
from tests.provocations import clients
from tests.provocations.service import Service
from workflows.faults.fault import Code

SITUATIONS: Mapping[str, Code] = {
    "401": Code.UNAUTHORIZED,
    "404": Code.NOT_FOUND,
    "409": Code.CONFLICT,
    "429": Code.RATE_LIMITED,
    "503": Code.SERVER_ERROR,
    "refused": Code.UNREACHABLE,
    "lost": Code.UNREACHABLE,
}
"""What happens to a call, and the code that a user expects: a status, no connection, or no answer."""

CLIENTS: Mapping[str, Callable[[str], object]] = {
    name: call
    for name, call in vars(clients).items()
    if isinstance(call, FunctionType) and call.__module__ == clients.__name__ and not name.startswith("_")
}
POPULAR = (
    *("twilio", "sendgrid", "pygithub", "jira", "notion", "slack", "hubspot", "shopify", "google", "elasticsearch"),
    *("qdrant", "kubernetes", "azure"),
)
"""The thirteen libraries with classes of their own, for which no table was made."""
SHARE = 55 / 70
"""The share of the provocations of POPULAR that must be right."""
DISTRIBUTIONS: Mapping[str, str] = {
    "pygithub": "PyGithub",
    "notion": "notion-client",
    "slack": "slack_sdk",
    "hubspot": "hubspot-api-client",
    "shopify": "ShopifyAPI",
    "google": "google-api-python-client",
    "qdrant": "qdrant-client",
    "azure": "azure-core",
    "gitlab": "python-gitlab",
    "atlassian": "atlassian-python-api",
}
"""The distribution of a library, where it has another name."""

KNOWN_WRONG: Mapping[tuple[str, str], str] = {
    ("shopify", "refused"): "pyactiveresource raises a class of its own without a cause",
    ("qdrant", "429"): "the class carries no status",
    ("qdrant", "refused"): "the class keeps the exception of httpx where no table looks",
    ("qdrant", "lost"): "the class keeps the exception of httpx where no table looks",
    ("azure", "refused"): "the class keeps the exception of urllib3 where no table looks",
    ("azure", "lost"): "the class keeps the exception of urllib3 where no table looks",
}
"""Provocations that become a `bug`, for a person: safe, and not what a user expects."""


def prepare(service: Service, situation: str) -> str:
    """Have a service do this; return the address to call."""
    service.applied, service.drops = 0, situation == "lost"
    if situation == "refused":
        return f"http://127.0.0.1:{free_port()}"
    if situation != "lost":
        headers = {"Retry-After": "2"} if situation in ("429", "503") else {}
        service.fails(int(situation), _BODY, headers=headers)
    return service.url


_BODY: Mapping[str, Any] = {
    "ok": False,
    "error": {"message": "no", "type": "a_type"},
    "message": "no",
    "errors": [{"message": "no"}],
}
"""What several services answer with, in one: the clients read what they know."""
