"""`python -m replan.ready [URL]`: exit code 0 if `replan serve` is ready, else 1; the container's health check."""

import sys
from urllib.request import urlopen

URL = "http://127.0.0.1:8300/health/ready"
PATIENCE_SECONDS = 5.0


def main(url: str = URL) -> int:
    """Return the exit code, and write what is wrong to stderr, in one sentence."""
    try:
        with urlopen(url, timeout=PATIENCE_SECONDS):  # noqa: S310  # whoever runs it chooses the URL
            return 0
    except (OSError, ValueError) as problem:
        sys.stderr.write(f"{url} does not say that it is ready ({problem}): look into the log of `replan serve`.\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
