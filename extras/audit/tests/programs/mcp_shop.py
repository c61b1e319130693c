"""The MCP server of mcp_agent.py: `mcp_shop.py SHOP_URL`."""

import os
import sys

import httpx2
from mcp.server import MCPServer

SHOP = sys.argv[1]
server = MCPServer("shop")


@server.tool()
async def get_price(sku: str) -> str:
    """Look up a price."""
    async with httpx2.AsyncClient() as http:
        return (await http.get(f"{SHOP}/price")).raise_for_status().text


@server.tool()
async def charge(account: str, amount: int) -> str:
    """Charge an account."""
    async with httpx2.AsyncClient(timeout=60) as http:
        try:
            reply = await http.post(f"{SHOP}/charge", json={"account": account, "amount": amount})
        except httpx2.TransportError:
            os._exit(1)  # the server dies with the answer
        return reply.raise_for_status().text


server.run()
