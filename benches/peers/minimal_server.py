"""The smallest server that the Python SDK allows, with one echo tool."""
from mcp.server import MCPServer

server = MCPServer("minimal")


@server.tool()
def echo(text: str) -> str:
    """Echoes"""
    return text


server.run("stdio")
