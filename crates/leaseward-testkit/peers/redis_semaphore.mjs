// The mutex of redis-semaphore. It puts `mutex:` before the name, so the keys that it is given here begin with that.
// It renews by itself at 0.8 of the TTL if the second argument is `renew`.

import { connect, require, serve } from "./protocol.mjs";

const [url, mode] = process.argv.slice(2);
const { Mutex } = require("redis-semaphore");
const client = connect(url);
const PREFIX = "mutex:";
const lasting = (ttl_ms) => ({ lockTimeout: ttl_ms, ...(mode === "renew" ? {} : { refreshInterval: 0 }) });

function name(key) {
  if (!key.startsWith(PREFIX)) {
    throw new Error(`the key must begin with ${PREFIX}`);
  }
  return key.slice(PREFIX.length);
}

await serve(url, {
  retry_ms: 10,
  async acquire(key, ttl_ms, retries, retry_ms) {
    const mutex = new Mutex(client, name(key), {
      ...lasting(ttl_ms),
      acquireTimeout: Infinity,
      acquireAttemptsLimit: retries + 1,
      ...(retry_ms === undefined ? {} : { retryInterval: retry_ms }),
      // By default it throws where nobody can catch it.
      onLockLost: () => {},
    });
    await mutex.acquire();
    return { key, mutex };
  },
  // Its way to lengthen by hand is a second handle on the same identifier.
  async extend({ key, mutex }, ttl_ms) {
    const identifier = mutex.identifier;
    const again = new Mutex(client, name(key), { ...lasting(ttl_ms), identifier, acquiredExternally: true });
    if (!(await again.tryAcquire())) {
      throw new Error("not held any more");
    }
    mutex.stopRefresh();
    return { key, mutex: again };
  },
  release: ({ mutex }) => mutex.release(),
});
