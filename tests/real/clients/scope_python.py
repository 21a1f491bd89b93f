"""The Python SDK as a worker of `agent-bridge scope run`. Arguments: MODE. Prints one JSON document."""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

mode = sys.argv[1]
url = os.environ["AGENT_BRIDGE_SCOPE_URL"]
seen = {"errors": [], "statuses": []}


async def noted(response):
    seen["statuses"].append(f"{response.request.method} {response.status_code}")


def http(token):
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(headers=headers, event_hooks={"response": [noted]})


async def main():
    async def heard(message):
        if isinstance(message, Exception):
            seen["errors"].append(repr(message))

    async with http(os.environ["AGENT_BRIDGE_SCOPE_TOKEN"]) as client_of_http:
        transport = streamable_http_client(url, http_client=client_of_http)
        async with Client(transport, mode=mode, message_handler=heard) as client:
            seen["protocol"] = client.protocol_version
            seen["server"] = client.server_info.model_dump(mode="json", by_alias=True, exclude_none=True)
            seen["tools"] = [tool.name for tool in (await client.list_tools()).tools]

            async def call(name, arguments):
                try:
                    return (await client.call_tool(name, arguments)).content[0].text
                except MCPError as error:
                    return {"code": error.code, "message": str(error)}

            seen["noted"] = await call("note", {"key": "plan", "text": "é 😀"})
            seen["recalled"] = await call("recall", {"key": "plan"})
            seen["hidden"] = await call("run_check", {"name": "test"})
            seen["unknown"] = await call("no_such_tool", {})
            seen["foreign"] = await call("recall", {"key": "plan", "session_id": "other"})
            many = [call("recall", {"key": "plan"}) for _ in range(6)]
            seen["many"] = len(await asyncio.gather(*many))
    try:
        async with http("0" * 64) as client_of_http:
            async with Client(streamable_http_client(url, http_client=client_of_http), mode=mode):
                seen["wrong"] = "let in"
    except BaseException:
        seen["wrong"] = "kept out"
    print(json.dumps(seen))


asyncio.run(main())
