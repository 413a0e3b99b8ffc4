"""The locks of kazoo on ZooKeeper, spoken to as in `protocol.mjs`: `key` is a path, `kind` is `Lock`, `ReadLock` or `WriteLock`."""

import json
import sys
import time

from kazoo.client import KazooClient

client = KazooClient(hosts=sys.argv[1])
client.start(timeout=30)


def acquire(key, retries=0, kind="Lock", **_):
    lock = getattr(client, kind)(key, "kazoo")
    if not lock.acquire(blocking=retries != 0):
        raise RuntimeError("held by another")
    return lock


def loop(key, for_ms=None, count=None, kind="Lock", **_):
    end = time.monotonic() + (for_ms or 1e9) / 1000
    lock = getattr(client, kind)(key, "kazoo")
    acquired = 0
    while (count is None or acquired < count) and time.monotonic() < end:
        lock.acquire()
        lock.release()
        acquired += 1
    return {"acquired": acquired}


def obey(held, do, **args):
    """Carries out a command; gives the lock that is held after it, and what there is to report."""
    if do == "loop":
        return held, loop(**args)
    if do == "acquire":
        return acquire(**args), {}
    if do == "release":
        held.release()
        return None, {}
    raise ValueError(f"no command `{do}`")


def answer(value):
    print(json.dumps(value), flush=True)


answer({"ok": True})
held = None
for line in sys.stdin:
    try:
        held, report = obey(held, **json.loads(line))
        answer({"ok": True, **report})
    except Exception as error:
        answer({"ok": False, "error": f"{type(error).__name__}: {error}"})
