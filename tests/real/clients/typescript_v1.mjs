// The TypeScript SDK, first line, which most hosts embed. It checks structured content against the output
// schemas by itself. Arguments: SERVER FOLDER. Prints one JSON document.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js';

const [server, cwd] = process.argv.slice(2);
const seen = { errors: [], progress: [], invalid: [] };
const client = new Client({ name: 'typescript-v1', version: '1.0.0' });
client.onerror = (error) => seen.errors.push(String(error));
const transport = new StdioClientTransport({ command: server, args: ['serve'], env: process.env, stderr: 'inherit' });
transport.setProtocolVersion = (version) => (seen.protocol = version);
await client.connect(transport);
const call = async (name, args, options) => {
  const result = await client.callTool({ name, arguments: args }, CallToolResultSchema, options);
  if (!CallToolResultSchema.safeParse(result).success) seen.invalid.push(name);
  return result;
};
seen.server = client.getServerVersion();
seen.instructions = client.getInstructions();
seen.tools = (await client.listTools()).tools;
seen.agents = await call('list_agents', {});
seen.delegated = await call(
  'delegate_task',
  { agent: 'mock', prompt: 'wait for the client', cwd },
  {
    onprogress: (progress) => {
      seen.progress.push(progress);
      // The worker waits for this file: without progress there is no result.
      writeFileSync(join(cwd, 'go'), '');
    },
  },
);
const session = seen.delegated.structuredContent?.bridge_session_id;
seen.page = await call('get_turn_output', { session_id: session, turn: 0 });
seen.failed = await call('delegate_task', { agent: 'mock', prompt: 'fail', cwd });
seen.refused = await call('delegate_task', { agent: 'nobody', prompt: 'x', cwd });
seen.unknown = await client.callTool({ name: 'no_such_tool', arguments: {} }).catch((error) => ({ code: error.code }));
await client.close();
console.log(JSON.stringify(seen));
