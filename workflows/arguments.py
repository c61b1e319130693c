"""Reads the argument of a workflow or a Signal, which any program may have sent, in any form.

Runs when a workflow starts, and when a Signal or an Update arrives.
"""

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from inspect import Parameter, Signature
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from workflows.account.outcome import REFUSED
from workflows.plans.references import ENCRYPTED_ENCODING, PRUNED_ENCODING
from workflows.seal import NOT_SEALED, NotSealed, Seal
from workflows.text import few

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=BaseModel)

MAX_NAMED = 3
MAX_NAME = 80
"""The most characters of a field's name, or of an encoding, that the message of a MalformedArgument shows."""


class MalformedArgument(ValueError):
    """A program sent a workflow an input or a Signal in a form that the workflow cannot read; the message says why."""


def undecoded(method: F) -> F:
    """Decorate a method of a workflow, declared with `*arguments`, so that the SDK passes undecoded arguments to it.

    Otherwise the workflow task would fail for ever if an argument cannot be decoded, or if there is not exactly one.
    """
    # The SDK decodes by the parameters that it sees, and hands a RawValue over undecoded.
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("self", "arguments")]
    method.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what `inspect.signature` returns
    method.__annotations__["arguments"] = RawValue
    return method


def read_argument(arguments: Sequence[object], *models: type[BaseModel]) -> Any:
    """The only argument that was sent, as an instance of one of `models`.

    Raises:
        MalformedArgument: something else was sent.
        RuntimeError: the argument is encrypted, and this worker has no keys; the workflow task fails.
    """
    if len(arguments) != 1:
        raise MalformedArgument(f"it has {len(arguments) or 'no'} arguments, and takes one")
    [value] = arguments
    try:
        if isinstance(value, RawValue):
            value = workflow.payload_converter().from_payload(value.payload, reduce(operator.or_, models))
    except Exception as error:  # the converters raise whatever they like
        encoding = _encoding(value)
        if encoding == PRUNED_ENCODING:
            raise  # of a closed task, so it could be read
        if encoding == ENCRYPTED_ENCODING:
            # This worker has no keys: the workflow task fails, and waits for a worker that has them.
            raise RuntimeError("The values are encrypted, and this worker has no `--keys`.") from error
        raise MalformedArgument(_why_malformed(error, arguments[0], models[0])) from error
    if not isinstance(value, models):
        raise MalformedArgument(_why_no_json(arguments[0]))
    return value


def require_argument(name: str, arguments: Sequence[object], model: type[M], type: str = REFUSED) -> M:
    """The only argument of a workflow, which the message of the error calls `name`, as an instance of `model`.

    Raises:
        ApplicationError: with this `type`, if something else was sent: the workflow has to fail.
        NotSealed: the argument was not encrypted for the start of this workflow.
    """
    if refusal := Seal(name, arguments).refusal:
        raise NotSealed(refusal, type=NOT_SEALED, non_retryable=True)
    try:
        read: M = read_argument(arguments, model)
    except MalformedArgument as malformed:
        raise ApplicationError(f"The {name} cannot be read: {malformed}.", type=type, non_retryable=True) from None
    return read


def read_signal(name: str, arguments: Sequence[object], model: type[M], seal: Seal) -> M | None:
    """The only argument of the Signal `name` as a `model`; None, and a log line, if something else was sent."""
    if not is_sealed(name, arguments, seal):
        return None
    try:
        read: M = read_argument(arguments, model)
    except MalformedArgument as malformed:
        log_dropped(name, str(malformed))
        return None
    return read


def is_sealed(signal: str, arguments: Sequence[object], seal: Seal) -> bool:
    """Whether the workflow takes the arguments of a Signal, by `seal`; if not, this is logged."""
    if reason := seal.why_signal_refused(signal, arguments):
        log_dropped(signal, reason)
    return not reason


def log_dropped(signal: str, reason: str) -> None:
    workflow.logger.warning("signal_dropped", extra={"signal": signal, "reason": reason})


def _why_malformed(error: Exception, argument: object, model: type[BaseModel]) -> str:
    if not isinstance(error, ValidationError) or not isinstance(argument, RawValue):
        return _why_no_json(argument)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return f"its argument is no JSON ({found[0]['msg'].removeprefix('Invalid JSON: ')})"
    if not argument.payload.data.strip().startswith(b"{"):
        return "its argument is no JSON object"
    # The errors of a union begin with the name of each of its models.
    own = [(item["loc"][1:], item["msg"]) for item in found if item["loc"][:1] == (model.__name__,)]
    wrong = own or [(item["loc"], item["msg"]) for item in found]
    return few([f"{'.'.join(map(str, loc))[:MAX_NAME]!r}: {message}" for loc, message in wrong], MAX_NAMED, "; ")


def _why_no_json(argument: object) -> str:
    encoding = _encoding(argument).decode(errors="replace")[:MAX_NAME]
    how = "it was encrypted, or sent with another data converter"
    return f"its argument has the encoding {encoding!r} instead of 'json/plain', so probably {how}"


def _encoding(argument: object) -> bytes:
    return argument.payload.metadata.get("encoding", b"") if isinstance(argument, RawValue) else b""
