"""The names of the task queues beside that of the tools, for clients and workers alike.

Used when a worker begins, and when a task or a client schedules something for them.
"""

CONTROL = "-control"
"""The suffix of the names of control queues."""


def control_queue(queue: str) -> str:
    """The name of the control queue of `queue`, for Replan's own activities and the inquiries of the console."""
    # Each queue has slots and a backlog of its own: tasks are planned and inspected however many calls of tools run,
    # and an inquiry does not wait behind the workflow tasks of many new tasks. An inquiry runs on the control queue.
    return queue if queue.endswith(CONTROL) else f"{queue}{CONTROL}"


def notification_queue(queue: str) -> str:
    """The name of the queue beside `queue` for notifications, which only workers with `--notify` serve."""
    return f"{queue.removesuffix(CONTROL)}-notify{CONTROL}"
