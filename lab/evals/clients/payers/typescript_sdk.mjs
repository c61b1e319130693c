// The TypeScript SDK: `Client`, over stdio and HTTP. Arguments as in payments.py.

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [record, count, seconds, command, ...args] = process.argv.slice(2);
const done = existsSync(record) ? readFileSync(record, "utf8").split("\n").length - 1 : 0;
const client = new Client({ name: "payments", version: "1" });
const isHttp = command.startsWith("http");
const transport = isHttp
  ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args, env: process.env });

async function pay(who) {
  for (let attempt = 0; attempt < 8; attempt += 1) {
    try {
      const call = { name: "pay", arguments: { who } };
      return await client.callTool(call, undefined, { timeout: seconds * 1000 });
    } catch (error) {
      console.error(`${who}: ${error}`);
    }
  }
  return "no answer";
}

await client.connect(transport);
for (let number = done; number < Number(count); number += 1) {
  appendFileSync(record, `${JSON.stringify(await pay(`p-${number}`))}\n`);
}
await client.close();
process.exit(0);
