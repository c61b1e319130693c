"""Counts what activities do, where it happens."""

from temporalio import activity

from workflows.account import metrics
from workflows.account.metrics import Sample


def count(*samples: Sample) -> None:
    """Add samples to the metrics of the worker that runs the current activity; outside of one, do nothing."""
    if activity.in_activity():
        metrics.add(activity.metric_meter(), samples)
