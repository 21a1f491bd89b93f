// The TypeScript SDK, second line. It checks structured content against the output schemas by itself.
// Arguments: SERVER FOLDER MODE (legacy, auto). Prints one JSON document.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Client, isSpecType } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [server, cwd, mode] = process.argv.slice(2);
const seen = { errors: [], progress: [], invalid: [] };
const client = new Client({ name: 'typescript-v2', version: '1.0.0' }, { versionNegotiation: { mode } });
client.onerror = (error) => seen.errors.push(String(error));
await client.connect(
  new StdioClientTransport({ command: server, args: ['serve'], env: process.env, stderr: 'inherit' }),
);
const call = async (name, args, options) => {
  const result = await client.callTool({ name, arguments: args }, options);
  if (!isSpecType.CallToolResult(result)) seen.invalid.push(name);
  return result;
};
seen.server = client.getServerVersion();
seen.instructions = client.getInstructions();
seen.protocol = client.getNegotiatedProtocolVersion?.();
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
