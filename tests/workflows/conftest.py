"""Settings of the property tests."""

from hypothesis import settings

settings.register_profile("replan", deadline=None, print_blob=True)  # two shared cores: an example may be slow once
settings.load_profile("replan")
