"""OpenAI's SDK (`openai`): the Fault of each exception, by what the server answered before its class.

The SDK raises RateLimitError for a used-up quota, too, and BadRequestError for a conversation that is too long: the
class alone does not say whether waiting helps.
"""

import functools

from activities.borders import model_api
from activities.borders.model_errors import Meaning
from activities.borders.table import Table, named

PROVIDER = "OpenAI's API"

_always = functools.partial(model_api.always, PROVIDER)

TABLE: Table = named(
    (_always(Meaning.MISUSED), "openai.OpenAIError openai.LengthFinishReasonError"),
    (_always(Meaning.MISUSED), "openai.ContentFilterFinishReasonError openai.InvalidWebhookSignatureError"),
    (_always(Meaning.MISUSED), "openai.WebSocketQueueFullError openai._response.MissingStreamClassError"),
    (_always(Meaning.MISUSED), "openai._legacy_response.MissingStreamClassError"),
    # The first one is of an event of a stream, which has no status.
    (model_api.by_answer(PROVIDER), "openai.APIError openai.APIStatusError"),
    (_always(Meaning.KEY), "openai.OAuthError openai._exceptions.SubjectTokenProviderError"),
    (_always(Meaning.CUT), "openai.APIConnectionError openai.WebSocketConnectionClosedError"),
    (_always(Meaning.SILENT), "openai.APITimeoutError"),
    (_always(Meaning.GARBLED), "openai.APIResponseValidationError"),
)
"""Entries by class of exception; every class with an HTTP status is a subclass of APIStatusError."""
