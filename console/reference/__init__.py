"""The pages on commands and errors: `python -m console.reference errors > docs/errors.md`, and so for `console`."""
