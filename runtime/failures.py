"""How failures are written into histories: what we raise on purpose carries its data, not a stack trace."""

from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter, DefaultFailureConverter
from temporalio.converter import PayloadConverter as AnyPayloadConverter
from temporalio.exceptions import ApplicationError

from runtime.payloads import PayloadConverter


class FailureConverter(DefaultFailureConverter):
    """Leaves the stack trace out of every ApplicationError.

    A Fault or an Outcome says everything; the trace would always be the same lines of ours, with paths of the machine,
    1.5 KB an attempt. An exception that nobody expected keeps its trace.
    """

    def to_failure(self, exception: BaseException, payload_converter: AnyPayloadConverter, failure: Failure) -> None:
        """Write `exception` into `failure`."""
        super().to_failure(exception, payload_converter, failure)
        if isinstance(exception, ApplicationError):
            failure.ClearField("stack_trace")


DATA_CONVERTER = DataConverter(payload_converter_class=PayloadConverter, failure_converter_class=FailureConverter)
"""JSON by pydantic, failures as above; every client and worker of ours uses it."""
