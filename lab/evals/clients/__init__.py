"""Clients of MCP as others wrote them, killed behind the gateway."""
