"""Adds samples of what an activity does to the metrics of its worker."""

from temporalio import activity

from workflows.account import metrics
from workflows.account.metrics import Sample


def count(*samples: Sample) -> None:
    """Add samples to the metrics of the worker that runs the current activity; outside of an activity, do nothing."""
    if activity.in_activity():
        metrics.add(activity.metric_meter(), samples)
