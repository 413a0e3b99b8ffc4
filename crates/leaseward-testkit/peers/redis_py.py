"""The lock of redis-py, spoken to as in `protocol.mjs`. A `ttl_ms` of null, or none, is a lock without expiry."""

import json
import math
import sys
import time

import redis

# Its own default.
SLEEP_MS = 100

client = redis.Redis.from_url(sys.argv[1])


def seconds(ms):
    return None if ms is None else ms / 1000


def acquire(key, ttl_ms, retries, retry_ms):
    pause = SLEEP_MS if retry_ms is None else retry_ms
    lock = client.lock(key, timeout=seconds(ttl_ms), sleep=seconds(pause))
    if retries == 0:
        taken = lock.acquire(blocking=False)
    else:
        forever = math.isinf(retries)
        taken = lock.acquire(blocking_timeout=None if forever else seconds(retries * pause))
    return lock if taken else None


def loop(key, ttl_ms=None, count=math.inf, for_ms=math.inf, hold_ms=0, counter_key=None, retries=-1, retry_ms=None):
    now_ms = lambda: time.monotonic() * 1000
    end = now_ms() + for_ms
    waits_ms, failed, lost, max_wait_ms = [], 0, 0, 0
    while len(waits_ms) < count and now_ms() < end:
        begin = now_ms()
        patience = (end - begin) / (SLEEP_MS if retry_ms is None else retry_ms) if retries < 0 else retries
        lock = acquire(key, ttl_ms, patience, retry_ms)
        wait_ms = now_ms() - begin
        max_wait_ms = max(max_wait_ms, wait_ms)
        if lock is None:
            failed += 1
            continue
        waits_ms.append(wait_ms)
        before = int(client.get(counter_key) or 0) if counter_key else None
        time.sleep(seconds(hold_ms))
        if counter_key:
            client.set(counter_key, before + 1)
        try:
            lock.release()
        except redis.exceptions.LockError:
            lost += 1
    return {"acquired": len(waits_ms), "failed": failed, "lost": lost, "max_wait_ms": max_wait_ms, "waits_ms": waits_ms}


def obey(held, do, **args):
    """Carries out a command; gives the lock that is held after it, and what there is to report."""
    if do == "loop":
        return held, loop(**args)
    if do == "acquire":
        retries = args.get("retries", 0)
        retries = math.inf if retries < 0 else retries
        lock = acquire(args["key"], args.get("ttl_ms"), retries, args.get("retry_ms"))
        if lock is None:
            raise redis.exceptions.LockError("held by another")
        return lock, {}
    if do == "extend":
        held.extend(seconds(args["ttl_ms"]), replace_ttl=True)
        return held, {}
    if do == "release":
        held.release()
        return held, {}
    raise ValueError(f"no command `{do}`")


def answer(value):
    print(json.dumps(value), flush=True)


client.ping()
answer({"ok": True})
held = None
for line in sys.stdin:
    try:
        held, report = obey(held, **json.loads(line))
        answer({"ok": True, **report})
    except Exception as error:
        answer({"ok": False, "error": f"{type(error).__name__}: {error}"})
