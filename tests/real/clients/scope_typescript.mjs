// The TypeScript SDK, either line, as a worker of `agent-bridge scope run`. Arguments: PACKAGE MODE. Prints one JSON
// document.
const [line, mode] = process.argv.slice(2);
const load = async () => {
  if (line === '@modelcontextprotocol/client') return import('@modelcontextprotocol/client');
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  return { Client, ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')) };
};
const { Client, StreamableHTTPClientTransport } = await load();
const url = new URL(process.env.AGENT_BRIDGE_SCOPE_URL);
const seen = { errors: [], statuses: [] };
const connect = async (token) => {
  const client = new Client({ name: 'worker', version: '1.0.0' }, { versionNegotiation: { mode } });
  client.onerror = (error) => seen.errors.push(String(error));
  const transport = new StreamableHTTPClientTransport(url, {
    requestInit: { headers: { Authorization: `Bearer ${token}` } },
    fetch: async (target, init) => {
      const response = await fetch(target, init);
      seen.statuses.push(`${init?.method ?? 'GET'} ${response.status}`);
      return response;
    },
  });
  await client.connect(transport);
  seen.protocol = client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion;
  return client;
};
const client = await connect(process.env.AGENT_BRIDGE_SCOPE_TOKEN);
seen.server = client.getServerVersion();
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
const call = (name, args) =>
  client.callTool({ name, arguments: args }).then(
    (result) => result.content[0].text,
    (error) => ({ code: error.code, message: error.message }),
  );
seen.noted = await call('note', { key: 'plan', text: 'é 😀' });
seen.recalled = await call('recall', { key: 'plan' });
seen.hidden = await call('run_check', { name: 'test' });
seen.unknown = await call('no_such_tool', {});
seen.foreign = await call('recall', { key: 'plan', session_id: 'other' });
seen.many = (await Promise.all(Array.from({ length: 6 }, () => call('recall', { key: 'plan' })))).length;
await client.close();
const before = seen.errors.length;
seen.wrong = await connect('0'.repeat(64)).then(
  () => 'let in',
  () => 'kept out',
);
seen.errors.length = before;
console.log(JSON.stringify(seen));
