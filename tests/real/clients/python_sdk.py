"""The Python SDK. It checks structured content against the output schemas by itself.

Arguments: SERVER FOLDER MODE (legacy, auto, 2026-07-28). Prints one JSON document.
"""

import asyncio
import json
import os
import pathlib
import sys

from mcp import Client, MCPError, StdioServerParameters

server, cwd, mode = sys.argv[1:]


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main():
    seen = {"errors": [], "progress": [], "invalid": []}

    async def progress(value, total, message):
        seen["progress"].append({"progress": value, "message": message})
        # The worker waits for this file: without progress there is no result.
        pathlib.Path(cwd, "go").touch()

    async def heard(message):
        if isinstance(message, Exception):
            seen["errors"].append(repr(message))

    parameters = StdioServerParameters(command=server, args=["serve"], env=dict(os.environ))
    async with Client(parameters, mode=mode, message_handler=heard) as client:
        seen["protocol"] = client.protocol_version
        seen["server"] = plain(client.server_info)
        seen["instructions"] = client.instructions
        seen["tools"] = [plain(tool) for tool in (await client.list_tools()).tools]

        async def call(name, arguments, **options):
            return plain(await client.call_tool(name, arguments, **options))

        seen["agents"] = await call("list_agents", {})
        task = {"agent": "mock", "prompt": "wait for the client", "cwd": cwd}
        seen["delegated"] = await call("delegate_task", task, progress_callback=progress)
        session = seen["delegated"]["structuredContent"]["bridge_session_id"]
        seen["page"] = await call("get_turn_output", {"session_id": session, "turn": 0})
        seen["failed"] = await call("delegate_task", {"agent": "mock", "prompt": "fail", "cwd": cwd})
        seen["refused"] = await call("delegate_task", {"agent": "nobody", "prompt": "x", "cwd": cwd})
        try:
            seen["unknown"] = await call("no_such_tool", {})
        except MCPError as error:
            seen["unknown"] = {"code": error.code}
    print(json.dumps(seen))


asyncio.run(main())
