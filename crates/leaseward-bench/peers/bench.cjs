// node-redlock in the experiments of the benchmark. Says `ready`, waits for a line, works, and prints one line of figures.
'use strict';

const fs = require('node:fs');
const readline = require('node:readline');
const Redis = require('ioredis');
const Redlock = require('redlock').default;

const TTL_MS = 10_000;
const [experiment, url, ...rest] = process.argv.slice(2);
// One server, or several that vote.
const all = url.split(',').map((one) => new Redis(one));
const redis = all[0];
// For ever, as the others do; the rest is its default.
const redlock = new Redlock(all, { retryCount: -1 });
redlock.on('error', () => {});

const nanos = () => Number(process.hrtime.bigint());
const cpuSeconds = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};
const quantile = (sorted, share) =>
  sorted[Math.min(Math.floor(share * sorted.length), sorted.length - 1)] ?? NaN;
const sleep = (millis) => new Promise((done) => setTimeout(done, millis));

function ready() {
  console.log('ready');
  return new Promise((go) => readline.createInterface({ input: process.stdin }).once('line', go));
}

// So long each contender works before anything is measured.
const WARM_UP_MS = 200;

// Tasks that each take and give back a name of their own; the microseconds of each pair, and how many failed.
async function drive(tasks, millis) {
  const micros = [];
  let errors = 0;
  const begin = nanos();
  const end = begin + millis * 1e6;
  const work = async (name) => {
    for (let start = begin; start < end; ) {
      try {
        const lock = await redlock.acquire([name], TTL_MS);
        await lock.release();
        const now = nanos();
        micros.push((now - start) / 1e3);
        start = now;
      } catch {
        errors += 1;
        start = nanos();
      }
    }
  };
  await Promise.all(Array.from({ length: tasks }, (_, task) => work(`pair:${task}`)));
  return { micros, errors, seconds: (nanos() - begin) / 1e9 };
}

async function pairs(tasks, millis) {
  await drive(tasks, WARM_UP_MS);
  await ready();
  const cpu = cpuSeconds();
  const { micros, errors, seconds } = await drive(tasks, millis);
  const spent = cpuSeconds() - cpu;
  micros.sort((a, b) => a - b);
  return [micros.length, seconds, quantile(micros, 0.5), quantile(micros, 0.99), spent, errors];
}

async function turns(tasks, millis, first, log) {
  await redis.ping();
  await ready();
  const lines = [];
  const waiting = new Map();
  let errors = 0;
  let end = Infinity;
  const work = async (task) => {
    while (end === Infinity) {
      const asked = nanos();
      waiting.set(task, asked);
      try {
        const lock = await redlock.acquire(['one'], TTL_MS);
        const came = nanos();
        const left = nanos();
        await lock.release();
        if (came <= end) lines.push(`${task} ${asked} ${came} ${left}`);
      } catch {
        errors += 1;
      }
    }
  };
  for (let task = first; task < first + tasks; task += 1) work(task);
  await sleep(millis);
  end = nanos();
  for (const [task, asked] of waiting) lines.push(`${task} ${asked}`);
  fs.writeFileSync(log, `end ${end}\n${lines.join('\n')}\n`);
  return [errors];
}

// Leases that renew themselves: bytes each, processor seconds, lost.
async function hold(leases, millis) {
  await redlock.acquire(['warm'], TTL_MS).then((lock) => lock.release());
  global.gc?.();
  const before = process.memoryUsage.rss();
  let lost = 0;
  let over = () => {};
  const until = new Promise((done) => { over = done; });
  const taken = [];
  for (let lease = 0; lease < leases; lease += 1) {
    taken.push(new Promise((done) => {
      redlock.using([`lease:${lease}`], TTL_MS, async (signal) => {
        done();
        await until;
        if (signal.aborted) lost += 1;
      }).catch(() => { lost += 1; done(); });
    }));
    // So many at once, as any program would be wise to.
    if (lease % 512 === 511) await Promise.all(taken.splice(0));
  }
  await Promise.all(taken);
  const after = process.memoryUsage.rss();
  await ready();
  const cpu = cpuSeconds();
  await sleep(millis);
  const spent = cpuSeconds() - cpu;
  const bytes = (Math.max(after, process.memoryUsage.rss()) - before) / leases;
  over();
  await new Promise(setImmediate);
  return [bytes, spent, lost];
}

const numbers = rest.map((word) => (Number.isNaN(Number(word)) ? word : Number(word)));
({ pairs, turns, hold })[experiment](...numbers)
  .then((figures) => {
    fs.writeSync(1, `${figures.join(' ')}\n`);
    process.exit(0);
  })
  .catch((error) => {
    console.error(`error: ${error.message}`);
    process.exit(1);
  });
