// pg-boss and graphile-worker in the experiments of the benchmark, tuned as their users tune them. Says `ready`, waits for
// a line, works, and prints one line of figures.
'use strict';

const readline = require('node:readline');

const [library, experiment, url, ...numbers] = process.argv.slice(2);
const [first, second] = numbers.map(Number);
const BATCH = 1_000;
const IDLE_PAUSE_MS = 20;

const nanos = () => Number(process.hrtime.bigint());
const sleep = (millis) => new Promise((done) => setTimeout(done, millis));
const quantile = (sorted, share) =>
  sorted[Math.min(Math.floor(share * sorted.length), sorted.length - 1)] ?? NaN;
const ready = () => {
  console.log('ready');
  return new Promise((go) => readline.createInterface({ input: process.stdin }).once('line', go));
};

/** Resolves when something has happened so many times. */
function countdown(times) {
  let done;
  const all = new Promise((resolve) => (done = resolve));
  return { all, one: () => --times === 0 && done() };
}

async function pgBoss() {
  const PgBoss = require('pg-boss');
  const boss = new PgBoss({ connectionString: url, max: 32, supervise: false, schedule: false });
  boss.on('error', () => {});
  await boss.start();
  await boss.createQueue('bench');
  return {
    pushMany: (jobs) => boss.insert(jobs.map((data) => ({ name: 'bench', data }))),
    push: (data) => boss.send('bench', data),
    async drain(workers) {
      const work = async () => {
        for (;;) {
          const jobs = await boss.fetch('bench', { batchSize: 100 });
          if (jobs.length === 0) return;
          await boss.complete('bench', jobs.map((job) => job.id));
        }
      };
      await Promise.all(Array.from({ length: workers }, work));
    },
    listen: (handler) =>
      boss.work('bench', { pollingIntervalSeconds: 0.5 }, (jobs) => jobs.forEach((job) => handler(job.data))),
  };
}

async function graphile() {
  const { Logger, makeWorkerUtils, run } = require('graphile-worker');
  const logger = new Logger(() => () => {});
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  await utils.migrate();
  const start = (workers, handler, tuning) =>
    run({
      preset: { worker: { connectionString: url, concurrentJobs: workers, maxPoolSize: 20, ...tuning } },
      logger,
      noHandleSignals: true,
      taskList: { bench: handler },
    });
  const tuned = { localQueue: { size: 100 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
  return {
    pushMany: (jobs) =>
      utils.withPgClient((client) =>
        client.query(
          `select count(*) from graphile_worker.add_jobs(array(select json_populate_record(
             null::graphile_worker.job_spec, json_build_object('identifier', 'bench', 'payload', one))
           from json_array_elements($1::json) one))`,
          [JSON.stringify(jobs)],
        ),
      ),
    push: (data) => utils.addJob('bench', data),
    async drain(workers, jobs) {
      const left = countdown(jobs);
      const runner = await start(workers, async () => left.one(), tuned);
      await left.all;
      return () => runner.stop();
    },
    listen: (handler) => start(8, async (data) => handler(data), {}),
  };
}

async function pushAll(peer, jobs) {
  for (let left = jobs; left > 0; left -= BATCH) {
    await peer.pushMany(Array.from({ length: Math.min(left, BATCH) }, () => ({ at: 1 })));
  }
}

async function main() {
  const peer = await (library === 'pg-boss' ? pgBoss() : graphile());
  const seconds = (begin) => (nanos() - begin) / 1e9;
  if (experiment === 'drain') {
    await pushAll(peer, second);
    await ready();
    const begin = nanos();
    await peer.drain(first, second);
    return [second / seconds(begin)];
  }
  if (experiment === 'life') {
    await ready();
    const begin = nanos();
    await pushAll(peer, second);
    const stop = await peer.drain(first, second);
    // What is done last is written down last.
    if (stop) await stop();
    return [second / seconds(begin)];
  }
  if (experiment === 'batch') {
    await pushAll(peer, BATCH);
    await ready();
    const begin = nanos();
    await pushAll(peer, first);
    return [first / seconds(begin)];
  }
  if (experiment === 'single') {
    await peer.push({ at: 1 });
    await ready();
    const begin = nanos();
    const each = Math.floor(second / first);
    const caller = async () => {
      for (let at = 0; at < each; at += 1) await peer.push({ at: 1 });
    };
    await Promise.all(Array.from({ length: first }, caller));
    return [(each * first) / seconds(begin)];
  }
  const waits = [];
  const left = countdown(first);
  await peer.listen(({ at }) => {
    waits.push((nanos() - at) / 1e6);
    left.one();
  });
  await sleep(1_000);
  await ready();
  for (let at = 0; at < first; at += 1) {
    await peer.push({ at: nanos() });
    await sleep(IDLE_PAUSE_MS);
  }
  await left.all;
  waits.sort((a, b) => a - b);
  return [quantile(waits, 0.5), quantile(waits, 0.99)];
}

main().then(
  (figures) => {
    console.log(figures.join(' '));
    process.exit(0);
  },
  (error) => {
    console.error(String(error.message ?? error).split('\n')[0]);
    process.exit(1);
  },
);
