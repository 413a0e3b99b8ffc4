// What all peers written in JavaScript share: a JSON object a line on standard input, one on standard output for each.
//
// A library is an object with `retry_ms` (its own pause between attempts), `acquire(key, ttl_ms, retries, retry_ms)`, which
// gives a lock or throws, `extend(lock, ttl_ms)`, which gives a lock, and `release(lock)`. `retries` may be infinite;
// `retry_ms` is undefined to have the library's own.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

// Finds packages through NODE_PATH, which `import` does not look at.
export const require = createRequire(import.meta.url);
const { Redis } = require("ioredis");

export function connect(url) {
  const client = new Redis(url);
  // Without a listener it writes them out; commands fail by themselves.
  client.on("error", () => {});
  return client;
}

// Serves until standard input ends.
export async function serve(url, library) {
  const client = connect(url);
  await client.ping();
  answer({ ok: true });
  let lock;
  const commands = {
    async acquire({ key, ttl_ms, retries = 0, retry_ms }) {
      lock = await library.acquire(key, ttl_ms, retries < 0 ? Infinity : retries, retry_ms);
    },
    async extend({ ttl_ms }) {
      lock = await library.extend(lock, ttl_ms);
    },
    async release() {
      await library.release(lock);
    },
    loop: (command) => loop(client, library, command),
  };
  for await (const line of createInterface({ input: process.stdin })) {
    try {
      const command = JSON.parse(line);
      answer({ ok: true, ...(await commands[command.do](command)) });
    } catch (error) {
      answer({ ok: false, error: `${error.name}: ${error.message}` });
    }
  }
  process.exit();
}

function answer(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

// Locks again and again, and adds one to a counter under the lock by reading and writing: two holders lose an addition.
async function loop(client, library, { key, ttl_ms, count, for_ms, hold_ms = 0, counter_key, retries = -1, retry_ms }) {
  const end = performance.now() + (for_ms ?? Infinity);
  const waits_ms = [];
  let [failed, lost, max_wait_ms] = [0, 0, 0];
  while (waits_ms.length < (count ?? Infinity) && performance.now() < end) {
    const begin = performance.now();
    const patience = retries < 0 ? Math.ceil((end - begin) / (retry_ms ?? library.retry_ms)) : retries;
    const lock = await library.acquire(key, ttl_ms, patience, retry_ms).catch(() => undefined);
    const wait_ms = performance.now() - begin;
    max_wait_ms = Math.max(max_wait_ms, wait_ms);
    if (lock === undefined) {
      failed += 1;
      continue;
    }
    waits_ms.push(wait_ms);
    if (counter_key !== undefined) {
      const before = Number(await client.get(counter_key));
      await sleep(hold_ms);
      await client.set(counter_key, before + 1);
    } else {
      await sleep(hold_ms);
    }
    await library.release(lock).catch(() => (lost += 1));
  }
  return { acquired: waits_ms.length, failed, lost, max_wait_ms, waits_ms };
}
