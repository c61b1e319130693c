"""What the audit brings: a command that says what any Temporal history tells about retries and effects."""

from extras import Command, Plugin

PLUGIN = Plugin(
    commands={
        "audit": Command(
            "Learn",
            "Say what any Temporal history tells about retries and effects. It changes nothing, and needs no worker.",
            "audit histories.zip --html audit.html",
            "extras.audit.command",
        )
    }
)
