"""The codec endpoint of Temporal's web UI: decodes what the workers have encrypted, for the people who may see it here.

The endpoint only decodes. Its address in the settings of the web UI is the address of `serve`, with `/codec`.
"""

from collections.abc import Mapping
from contextlib import suppress

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from temporalio.api.common.v1 import Payload, Payloads

from client.problem import Problem, ProblemKind
from extras.web.bodies import JsonRoute

PATH = "/codec/"

router = APIRouter(include_in_schema=False, route_class=JsonRoute)


@router.post("/codec/decode")
async def decode(request: Request) -> Response:
    """Decode payloads from the web UI; a payload that cannot be decoded here is returned unchanged."""
    client = request.app.state.client.temporal
    if request.headers.get("x-namespace", client.namespace) != client.namespace:
        reason = f"This server is for the namespace {client.namespace!r} alone"
        raise Problem("misconfigured", reason, "start one for the other namespace", ProblemKind.FAILED)
    try:
        sent = ParseDict({"payloads": (await request.json())["payloads"]}, Payloads())
    except RecursionError as error:
        raise HTTPException(400, "The body is nested too deeply") from error
    # Protobuf raises a SystemError for a name with a lone surrogate.
    except (ParseError, ValueError, LookupError, TypeError, SystemError) as error:
        raise HTTPException(422, "The body is no list of payloads") from error
    codec = client.data_converter.payload_codec
    found = Payloads()
    for payload in sent.payloads:
        clear: list[Payload] = [payload]
        if codec is not None:
            with suppress(Exception):  # codecs may raise anything
                clear = await codec.decode([payload])
        found.payloads.extend(clear)
    return JSONResponse(MessageToDict(found))


def cors(origin: str) -> Mapping[str, str]:
    """The headers that let a browser show a response to pages of `origin`, and to no others."""
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-credentials": "true",
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "authorization, content-type, x-namespace",
        "access-control-max-age": "600",
        "vary": "origin",
    }
