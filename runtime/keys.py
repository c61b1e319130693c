"""The keys of model providers: whether this process has them, never what they are."""

import os

NAMES = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
"""The environment variables that the providers' own clients read."""


def given() -> dict[str, bool]:
    """Which keys the environment has, by name; an empty one is none."""
    return {name: bool(os.environ.get(name, "").strip()) for name in NAMES}
