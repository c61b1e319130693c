"""What the web brings: the command that serves an HTTP API, a page and the codec endpoint; and the page of a store."""

from extras import Command, Plugin

PLUGIN = Plugin(
    commands={
        "serve": Command(
            "Operate",
            "Serve an HTTP API for programs, and a page for the people who answer.",
            "serve --port 8300",
            "extras.web.command",
        )
    },
    parts={"store_page": "extras.web.page.store"},
)
