"""What each agent does at last."""

from datetime import timedelta

from temporalio.common import WorkflowIDConflictPolicy


async def to_the_end(client, run, id):
    """Start the workflow, or find it running, and say how it ended."""
    handle = await client.start_workflow(
        run,
        "Charge ann for A-17.",
        id=id,
        task_queue=id,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        execution_timeout=timedelta(seconds=60),
    )
    try:
        print(await handle.result())
    except Exception as error:
        print(f"failed: {error!r}")
