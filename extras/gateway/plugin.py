"""What the gateway brings: the command that stands between an agent and its tools, and its bridge."""

from extras import Command, Plugin

PLUGIN = Plugin(
    commands={
        "mcp": Command(
            "Operate",
            "Stand between an agent and MCP servers: each effect is done once.",
            "mcp --session shop -- npx -y @modelcontextprotocol/server-filesystem /data",
            "extras.gateway.command",
        )
    },
    parts={"bridge": "extras.gateway.bridge"},
)
