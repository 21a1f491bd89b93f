// The smallest server that the TypeScript SDK allows, with one echo tool.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import path from "node:path";
const modules = process.argv[2];
const load = (file) => import(pathToFileURL(path.join(modules, "@modelcontextprotocol/sdk/dist/esm", file)).href);
const { McpServer } = await load("server/mcp.js");
const { StdioServerTransport } = await load("server/stdio.js");
const { z } = createRequire(path.join(modules, "index.js"))("zod");
const server = new McpServer({ name: "minimal", version: "1.0.0" });
server.registerTool("echo", { description: "Echoes", inputSchema: { text: z.string() } }, async ({ text }) => ({
  content: [{ type: "text", text }],
}));
await server.connect(new StdioServerTransport());
