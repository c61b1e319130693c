"""Models that are written without default values, so that a history stays small.

Used whenever such a model becomes an input, a result or the header of an activity, or the state of a task.
"""

from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer


class Sparse(BaseModel):
    """A model that is serialised without default values, to keep history small.

    A `Literal` field with a single value is always kept, because it tells the type.
    """

    @model_serializer(mode="wrap")
    def _drop_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write(self))


def without_defaults(model: BaseModel, written: dict[str, Any]) -> dict[str, Any]:
    """Return `written`, the serialised fields of `model`, without those that `Sparse` leaves out."""
    fields = {field.alias or name: name for name, field in type(model).model_fields.items()}
    return {key: value for key, value in written.items() if _is_needed(model, fields[key])}


def _is_needed(model: BaseModel, name: str) -> bool:
    field = type(model).model_fields[name]
    tells_type = get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    return field.is_required() or tells_type or getattr(model, name) != field.get_default(call_default_factory=True)
