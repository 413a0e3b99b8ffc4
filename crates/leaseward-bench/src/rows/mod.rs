//! The rows of the table, one file a store or theme. A new one adds its file, a line to [`GROUPS`], and a line to
//! [`PARTS`] for each child process its experiments need.

mod advisory;
pub(crate) mod contention;
mod etcd;
mod leases;
mod memory;
mod postgres;
pub(crate) mod queue;
mod redis;
mod redlock;
mod sqlite;
mod tool;
mod zookeeper;

use crate::{child::Part, row::Row};

/// Rows that are asked for together.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) rows: fn() -> Vec<Row>,
}

pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "memory",
        what: "tasks of one process, beside tokio's mutex",
        rows: memory::rows,
    },
    Group { name: "leases", what: "holding 100,000 renewed leases", rows: leases::rows },
    Group {
        name: "sqlite",
        what: "the embedded store, beside raw transactions and file locks",
        rows: sqlite::rows,
    },
    Group {
        name: "redis",
        what: "the Redis store, beside raw requests and the lock libraries people run",
        rows: redis::rows,
    },
    Group {
        name: "redlock",
        what: "a majority of five Redis, beside raw requests and the Redlock libraries people run",
        rows: redlock::rows,
    },
    Group {
        name: "postgres",
        what: "the PostgreSQL store, beside pgbench with the same statements",
        rows: postgres::rows,
    },
    Group {
        name: "contention",
        what: "versions, row locks, advisory locks and leases on PostgreSQL, from free to hot rows",
        rows: contention::rows,
    },
    Group {
        name: "advisory",
        what: "PostgreSQL's advisory locks, beside pgbench with the same statements",
        rows: advisory::rows,
    },
    Group {
        name: "etcd",
        what: "the etcd store, beside the same transactions and etcd's own lock API",
        rows: etcd::rows,
    },
    Group {
        name: "zookeeper",
        what: "ZooKeeper, beside a bare connection with the same requests and kazoo",
        rows: zookeeper::rows,
    },
    Group {
        name: "queue",
        what: "the job queue, beside raw SQL of the same layout and the queues people run",
        rows: queue::rows,
    },
    Group { name: "tool", what: "the command line, beside flock(1)", rows: tool::rows },
];

pub(crate) const PARTS: &[Part] = &[
    contention::TASKS,
    etcd::CONTEST,
    leases::HOLDER,
    leases::SLEEPERS,
    queue::OURS,
    queue::RAW,
    redis::HOLD,
    redis::NOW,
    redis::PAIRS,
    redis::TURNS,
    redlock::RIVALS,
    sqlite::TURNS,
    sqlite::FLOCK_TURNS,
    sqlite::BUSY,
    sqlite::RAW_BUSY,
];
