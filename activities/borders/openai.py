"""OpenAI's SDK (`openai`): the Fault of each exception, by `code` and `type` before class and status.

The SDK raises RateLimitError for a used-up quota, too, and BadRequestError for a conversation that is too long: the
class alone does not say whether waiting helps.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any

from activities.borders import model_api
from activities.borders.model_api import ModelRow
from activities.borders.table import Table, Verdict, named

PROVIDER = "OpenAI's API"

BY_CODE: Mapping[str, ModelRow] = named(
    (model_api.QUOTA, "insufficient_quota billing_not_active"),
    (model_api.SPENT, "billing_hard_limit_reached"),
    (model_api.KEY, "invalid_api_key invalid_organization mismatched_organization"),
    (model_api.HOLD, "account_deactivated access_terminated"),
    (model_api.FORBIDDEN, "unsupported_country_region_territory"),
    (model_api.NO_MODEL, "model_not_found"),
    (model_api.TOO_LONG, "context_length_exceeded string_above_max_length"),
    (model_api.SLOW_DOWN, "rate_limit_exceeded"),
    (model_api.FILTERED, "content_filter content_policy_violation"),
    (model_api.BROKEN, "server_error"),
    (model_api.ENCRYPTED, "invalid_encrypted_content"),
    (model_api.RESIDENCY, "data_residency_mismatch"),
    (model_api.SPENT, "budget_exceeded"),  # LiteLLM
    (model_api.TOO_LONG, "exceed_context_size_error"),  # llama.cpp
    (model_api.LATE, "vector_store_timeout"),
    (model_api.FILTERED, "invalid_prompt bio_policy misalignment_policy_violation image_content_policy_violation"),
    (  # Replan sends no images
        model_api.OURS,
        "empty_image_file failed_to_download_image image_file_not_found image_file_too_large image_parse_error"
        " image_too_large image_too_small invalid_base64_image invalid_image invalid_image_format invalid_image_mode"
        " invalid_image_url unsupported_image_media_type",
    ),
)
"""Rows (code and reason of a Fault) by the `code` of an error, in a response with an error's status, or in a response
that reports `failed`; for any other code, BY_WORDS decides, then the error's `type`."""

BY_WORDS: Mapping[str, ModelRow] = {
    "use /v1/responses": model_api.OTHER_WIRE,
    "only supported in v1/responses": model_api.OTHER_WIRE,
    "'reasoning.effort'": model_api.NO_EFFORT,
    "'reasoning_effort'": model_api.NO_EFFORT,
}
"""Rows (code and reason of a Fault) by a part of the message, for a response with status 400 to 499, or an error in a
stream, whose `error.code` is not in BY_CODE."""
HTTP_ERROR = re.compile("[45][0-9]{2}")
INVALID_REQUEST = "invalid_request_error"
"""The type of an error for which an answer has the status 400."""


def _by_code_type_and_status(error: Any) -> Verdict:
    code, type = (str(value) if isinstance(value, str | int) else "" for value in (error.code, error.type))
    # An event of a stream that began with 200 has no status, but gateways and vLLM send it as the code.
    status = getattr(error, "status_code", None) or (int(code) if HTTP_ERROR.fullmatch(code) else 0)
    status = status or (400 if type == INVALID_REQUEST else 0)
    row = BY_CODE.get(code) or model_api.by_words(BY_WORDS, error.message, status) or BY_CODE.get(type)
    if not status:
        return model_api.verdict(PROVIDER, row or model_api.BROKEN, error)
    return model_api.by_status(PROVIDER, row, error, status)


_always = functools.partial(model_api.always, PROVIDER)
_ROWS = (*BY_CODE.values(), *model_api.STATUS.values())

TABLE: Table = named(
    (_always(model_api.MISUSED), "openai.OpenAIError openai.LengthFinishReasonError"),
    (_always(model_api.MISUSED), "openai.ContentFilterFinishReasonError openai.InvalidWebhookSignatureError"),
    (_always(model_api.MISUSED), "openai.WebSocketQueueFullError openai._response.MissingStreamClassError"),
    (_always(model_api.MISUSED), "openai._legacy_response.MissingStreamClassError"),
    (model_api.by("its code, then its type", PROVIDER, _ROWS, _by_code_type_and_status), "openai.APIError"),
    (
        model_api.by("its code, its type, then its HTTP status", PROVIDER, _ROWS, _by_code_type_and_status),
        "openai.APIStatusError",
    ),
    (_always(model_api.KEY), "openai.OAuthError openai._exceptions.SubjectTokenProviderError"),
    (_always(model_api.CUT), "openai.APIConnectionError openai.WebSocketConnectionClosedError"),
    (_always(model_api.SILENT), "openai.APITimeoutError"),
    (_always(model_api.GARBLED), "openai.APIResponseValidationError"),
)
"""Entries by class of exception; every class with an HTTP status is a subclass of APIStatusError."""
