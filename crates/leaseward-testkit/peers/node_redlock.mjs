// node-redlock, version 5, or 4 if that is the second argument; over several servers if there are several URLs.

import { connect, require, serve } from "./protocol.mjs";

const [urls, version = "5"] = process.argv.slice(2);
const [url] = urls.split(",");
const clients = urls.split(",").map(connect);
const pause = (retry_ms) => (retry_ms === undefined ? {} : { retryDelay: retry_ms, retryJitter: 0 });
const attempts = (retries) => (retries === Infinity ? -1 : retries);

function version5() {
  const Redlock = require("redlock").default;
  const redlock = new Redlock(clients);
  // It reports each refusal, and without a listener that would end the process.
  redlock.on("error", () => {});
  return {
    retry_ms: redlock.settings.retryDelay,
    acquire: (key, ttl_ms, retries, retry_ms) =>
      redlock.acquire([key], ttl_ms, { retryCount: attempts(retries), ...pause(retry_ms) }),
    extend: (lock, ttl_ms) => lock.extend(ttl_ms),
    release: (lock) => lock.release(),
  };
}

function version4() {
  const Redlock = require("redlock4");
  return {
    retry_ms: Redlock.defaults?.retryDelay ?? 200,
    acquire(key, ttl_ms, retries, retry_ms) {
      const redlock = new Redlock(clients, { retryCount: attempts(retries), ...pause(retry_ms) });
      redlock.on("clientError", () => {});
      return redlock.lock(key, ttl_ms);
    },
    extend: (lock, ttl_ms) => lock.extend(ttl_ms),
    release: (lock) => lock.unlock(),
  };
}

await serve(url, version === "4" ? version4() : version5());
