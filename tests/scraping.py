"""Reads what a worker tells Prometheus."""

import re
import urllib.request
from collections import defaultdict

LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", flags=re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
OF_SDK = {"namespace", "task_queue", "workflow_type", "activity_type"}
"""Labels that the SDK gives to each metric of a workflow or an activity."""

Scraped = defaultdict[tuple[str, tuple[str, ...]], float]
"""By name and labels, which are in the order of their names and without those of the SDK, the sum of the values."""


def read(address: str) -> str:
    """All metrics at an address, as Prometheus reads them."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
        return str(page.read().decode())


def scrape(address: str) -> Scraped:
    """The metrics of Replan at an address, of histograms only the number of values."""
    text = read(address)
    found: Scraped = defaultdict(float)
    for name, labels, value in LINE.findall(text):
        own = tuple(label for name, label in sorted(LABEL.findall(labels)) if name not in OF_SDK)
        if name.startswith("replan_") and not name.endswith(("_bucket", "_sum")):
            found[name, own] += float(value)
    return found
