"""procrastinate in the experiments of the benchmark. Says `ready`, waits for a line, works, prints one line of figures."""

import asyncio
import logging
import sys
import time

from procrastinate import App, PsycopgConnector

EXPERIMENT, URL, *NUMBERS = sys.argv[1:]
NUMBERS = [int(number) for number in NUMBERS]
BATCH = 1_000
IDLE_PAUSE = 0.02

logging.disable(logging.CRITICAL)


async def ready():
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def quantile(values, share):
    return values[min(int(share * len(values)), len(values) - 1)]


async def push_all(task, jobs):
    for first in range(0, jobs, BATCH):
        await task.batch_defer_async(*[{"at": 1} for _ in range(min(BATCH, jobs - first))])


async def drain(app, task, workers, jobs):
    await push_all(task, jobs)
    await ready()
    begin = time.monotonic()
    await app.run_worker_async(wait=False, concurrency=workers, install_signal_handlers=False)
    return [jobs / (time.monotonic() - begin)]


async def batch(task, jobs):
    await push_all(task, BATCH)
    await ready()
    begin = time.monotonic()
    await push_all(task, jobs)
    return [jobs / (time.monotonic() - begin)]


async def single(task, callers, jobs):
    await task.defer_async(at=1)
    await ready()
    begin, each = time.monotonic(), jobs // callers

    async def caller():
        for _ in range(each):
            await task.defer_async(at=1)

    await asyncio.gather(*[caller() for _ in range(callers)])
    return [each * callers / (time.monotonic() - begin)]


async def latency(app, task, waits, times):
    worker = asyncio.create_task(app.run_worker_async(concurrency=8, install_signal_handlers=False))
    await asyncio.sleep(1)
    await ready()
    for _ in range(times):
        await task.defer_async(at=time.monotonic())
        await asyncio.sleep(IDLE_PAUSE)
    while len(waits) < times:
        await asyncio.sleep(IDLE_PAUSE)
    worker.cancel()
    waits.sort()
    return [quantile(waits, 0.5), quantile(waits, 0.99)]


async def main():
    waits = []
    app = App(connector=PsycopgConnector(conninfo=URL, min_size=1, max_size=40))

    @app.task(name="bench")
    async def bench(at):
        waits.append((time.monotonic() - at) * 1_000)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        if EXPERIMENT == "drain":
            return await drain(app, bench, *NUMBERS)
        if EXPERIMENT == "batch":
            return await batch(bench, *NUMBERS)
        if EXPERIMENT == "single":
            return await single(bench, *NUMBERS)
        return await latency(app, bench, waits, *NUMBERS)


print(*asyncio.run(main()), flush=True)
