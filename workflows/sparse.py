"""Models that are written without what they say by default: history keeps every byte, and reading puts it back."""

from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer


class Sparse(BaseModel):
    """A model whose JSON has only the fields that are required, differ from their default, or tell its type."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write(self))


def without_defaults(model: BaseModel, written: dict[str, Any]) -> dict[str, Any]:
    """Those of the `written` fields of a model from which the model can be read again."""
    return {name: value for name, value in written.items() if _says(model, name)}


def _says(model: BaseModel, name: str) -> bool:
    field = type(model).model_fields[name]
    tells_type = get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    return field.is_required() or tells_type or getattr(model, name) != field.get_default(call_default_factory=True)
