"""The worker's options, with their help."""

from pathlib import Path
from typing import Annotated

import typer

from runtime.telemetry import Style

Dev = Annotated[bool, typer.Option("--dev", help="Run a server and a demo world here, unless a server answers.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="With --dev: begin with an empty world.")]
Tools = Annotated[list[Path] | None, typer.Option(help="A file with tools of your own; may be repeated.")]
Check = Annotated[bool, typer.Option("--check", help="Load the tools, print the catalogue, exit.")]
Documents = Annotated[Path | None, typer.Option(help="The root of the folders that tasks may search.")]
AllowHost = Annotated[
    list[str] | None, typer.Option(help="A private host or network that fetch_page and http_request may reach.")
]
AllowRequest = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST[:PORT]", help="A host that http_request may send to; may be repeated."),
]
HttpHeader = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST=NAME:VARIABLE", help="A header that http_request sends to that host, from the environment."
    ),
]
Workspace = Annotated[Path | None, typer.Option(help="The root below which each task gets a folder to write in.")]
State = Annotated[Path, typer.Option(envvar="REPLAN_STATE", help="The folder where this worker keeps its state.")]
Store = Annotated[str | None, typer.Option(envvar="REPLAN_STORE", help="URL of the store, else SQLite in --state.")]
Payloads = Annotated[
    str | None,
    typer.Option(envvar="REPLAN_PAYLOADS", metavar="s3://BUCKET", help="Large payloads there, not in the store."),
]
Queue = Annotated[str, typer.Option(help="The task queue to serve.")]
Planner = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[,NAME]",
        help="Who plans: anthropic:MODEL, openai:MODEL, offline, several in the order to try, or scripted:FILE. Without"
        " it a model, where its provider's key is set.",
    ),
]
BaseUrl = Annotated[
    str | None, typer.Option("--base-url", metavar="URL", help="A server that speaks as OpenAI does, for openai:MODEL.")
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", envvar="REPLAN_SETTINGS", metavar="FILE", help="Prices of models; else replan.toml."),
]
Log = Annotated[Style | None, typer.Option(help="How to log; JSON where stderr is no terminal.")]
Break = Annotated[
    list[str] | None,
    typer.Option(
        "--break",
        metavar="KIND=FAULT[:N]",
        help="With --dev: break a tool on purpose, e.g. search=503:2, or pay=die@after_commit:1.",
    ),
]
