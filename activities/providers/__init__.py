"""Models behind their providers' SDKs. `PROVIDERS` in `registry.py` says how to add a provider."""
