"""What the converter costs: the SDK asks for one several times in each activity."""

from temporalio.converter import ActivitySerializationContext, WorkflowSerializationContext

from runtime.payloads import PayloadConverter

WORKFLOW = WorkflowSerializationContext("default", "a-task")
ACTIVITY = ActivitySerializationContext("default", "a", "echo", "replan", "a-task", "AgentWorkflow", False)


def test_a_converter_for_activities_is_the_same_for_each_activity() -> None:
    """Another object would let the SDK copy the whole data converter."""
    converter = PayloadConverter()

    assert converter.with_context(ACTIVITY) is converter


def test_all_converters_share_the_types_that_one_has_read() -> None:
    one, other = PayloadConverter(), PayloadConverter()

    assert one.converters == other.converters == one.with_context(WORKFLOW).converters
