"""What MCP brings: tools files that turn the tools of MCP servers into kinds."""

from extras import Plugin

PLUGIN = Plugin(parts={"tools_files": "extras.mcp.loading"})
