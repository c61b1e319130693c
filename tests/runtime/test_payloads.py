"""What the converter costs: the SDK asks for one several times in each activity."""

from temporalio.converter import ActivitySerializationContext, WorkflowSerializationContext

from runtime.payloads import PayloadConverter

WORKFLOW = WorkflowSerializationContext("default", "a-task")
ACTIVITY = ActivitySerializationContext("default", "a", "echo", "replan", "a-task", "AgentWorkflow", False)


def test_converters_share_the_types_that_one_has_read_and_one_is_enough_for_all_activities() -> None:
    """Another object would let the SDK copy the whole data converter; to make the reader of a type takes long, too."""
    one, other = PayloadConverter(), PayloadConverter()

    assert one.with_context(ACTIVITY) is one
    assert one.converters == other.converters == one.with_context(WORKFLOW).converters
