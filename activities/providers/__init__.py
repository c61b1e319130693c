"""Models behind their providers' SDKs. A new provider is an adapter such as `openai.py` and a row of `PROVIDERS`."""
