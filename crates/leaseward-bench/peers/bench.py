"""redis-py's lock in the experiments of the benchmark.

Says `ready`, waits for a line, works, and prints one line of figures.
"""

import asyncio
import sys
import time

import redis
import redis.asyncio

TTL_S = 10
# So long each contender works before anything is measured.
WARM_UP_S = 0.2


def ready():
    print("ready", flush=True)
    sys.stdin.readline()


def quantile(values, share):
    return values[min(int(share * len(values)), len(values) - 1)] if values else float("nan")


def told(micros, seconds, cpu, errors):
    micros.sort()
    return [len(micros), seconds, quantile(micros, 0.5), quantile(micros, 0.99), cpu, errors]


def alone(url, millis):
    """One task: the synchronous lock, which is the faster one then."""
    client = redis.Redis.from_url(url)

    def drive(seconds):
        micros, errors = [], 0
        start = begin = time.monotonic()
        while start < begin + seconds:
            try:
                lock = client.lock("pair:0", timeout=TTL_S)
                lock.acquire()
                lock.release()
                now = time.monotonic()
                micros.append((now - start) * 1e6)
            except redis.RedisError:
                errors += 1
                now = time.monotonic()
            start = now
        return micros, time.monotonic() - begin, errors

    drive(WARM_UP_S)
    ready()
    cpu = time.process_time()
    micros, seconds, errors = drive(millis / 1e3)
    return told(micros, seconds, time.process_time() - cpu, errors)


async def pairs(url, tasks, millis):
    client = redis.asyncio.Redis.from_url(url, max_connections=tasks)

    async def drive(seconds):
        micros, errors = [], 0
        begin = time.monotonic()

        async def work(name):
            nonlocal errors
            start = begin
            while start < begin + seconds:
                try:
                    lock = client.lock(name, timeout=TTL_S)
                    await lock.acquire()
                    await lock.release()
                    now = time.monotonic()
                    micros.append((now - start) * 1e6)
                except redis.RedisError:
                    errors += 1
                    now = time.monotonic()
                start = now

        await asyncio.gather(*(work(f"pair:{task}") for task in range(tasks)))
        return micros, time.monotonic() - begin, errors

    await drive(WARM_UP_S)
    ready()
    cpu = time.process_time()
    micros, seconds, errors = await drive(millis / 1e3)
    return told(micros, seconds, time.process_time() - cpu, errors)


async def turns(url, tasks, millis, first, log):
    client = redis.asyncio.Redis.from_url(url, max_connections=tasks)
    await asyncio.gather(*(client.ping() for _ in range(tasks)))
    ready()
    visits, waiting, errors = [], {}, 0

    async def work(task):
        nonlocal errors
        while True:
            asked = time.monotonic_ns()
            waiting[task] = asked
            try:
                lock = client.lock("one", timeout=TTL_S)
                await lock.acquire()
                came = time.monotonic_ns()
                left = time.monotonic_ns()
                await lock.release()
                visits.append((task, asked, came, left))
            except redis.RedisError:
                errors += 1

    running = [asyncio.create_task(work(task)) for task in range(first, first + tasks)]
    await asyncio.sleep(millis / 1e3)
    end = time.monotonic_ns()
    with open(log, "w") as file:
        print("end", end, file=file)
        for visit in visits:
            if visit[2] <= end:
                print(*visit, file=file)
        for task, asked in waiting.items():
            print(task, asked, file=file)
    for task in running:
        task.cancel()
    return [errors]


def main():
    experiment, url, *rest = sys.argv[1:]
    if experiment == "pairs":
        tasks, millis = map(int, rest)
        figures = alone(url, millis) if tasks == 1 else asyncio.run(pairs(url, tasks, millis))
    else:
        tasks, millis, first = map(int, rest[:3])
        figures = asyncio.run(turns(url, tasks, millis, first, rest[3]))
    print(*figures, flush=True)


main()
