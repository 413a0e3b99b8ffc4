//! What the whole life of a job costs the server: log, dead rows, and what an old snapshot does to it.

use std::{thread, time::Duration};

use super::{OURS, Server, child_run, fresh, peers::Peer};
use crate::{
    row::{
        Row, Size,
        Target::{self, AtMost},
        Unit,
    },
    tasks,
};

/// Backends report what they did when they have been idle for a while, or have gone.
const REPORTED: Duration = Duration::from_millis(1_500);

const WAL: [Target; 1] = [AtMost(400.0)];
const DEAD: [Target; 1] = [AtMost(1.0)];

pub(super) fn rows(server: &Server) -> Vec<Row> {
    vec![footprint(server), pinned(server)]
}

/// Bytes of log and rows that were updated or deleted, each of which is a dead row, for each job from its push to its end.
fn footprint(server: &Server) -> Row {
    let jobs = |full: u32| move |size: Size| size.times(full);
    Row::new("queue: whole life of a job", Unit::Bytes, &WAL)
        .figure("log")
        .and("dead rows", Unit::Count, &DEAD)
        .rounds_max(2)
        .ours("leaseward-queue", {
            watched(server, jobs(50_000), |url, jobs| child_run(OURS.name, "life", url, &[jobs]))
        })
        .peer("pg-boss", {
            watched(server, jobs(20_000), |url, jobs| Peer::PgBoss.run("life", url, &[8, jobs]))
        })
        .peer("graphile-worker", {
            watched(server, jobs(20_000), |url, jobs| Peer::Graphile.run("life", url, &[8, jobs]))
        })
}

fn watched(
    server: &Server,
    jobs: impl Fn(Size) -> u32 + 'static,
    run: impl Fn(&str, u32) -> Result<Vec<f64>, String> + 'static,
) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| {
        let ((name, url), jobs) = (server.fresh(), jobs(size));
        // Tables are made before it is counted.
        run(&url, 1_000)?;
        let number = |sql: &str| server.get().sql_in(&name, sql).trim().parse::<f64>();
        let dead = "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables";
        let log = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')";
        thread::sleep(REPORTED);
        // Images of whole pages come once after a checkpoint, and say nothing of a job.
        server.get().sql("CHECKPOINT");
        let read = |sql: &str| number(sql).map_err(|error| error.to_string());
        let before = (read(log)?, read(dead)?);
        run(&url, jobs)?;
        let log = read(log)? - before.0;
        thread::sleep(REPORTED);
        let dead = read(dead)? - before.1;
        Ok(vec![log / f64::from(jobs), dead / f64::from(jobs)])
    }
}

/// How much longer it takes while a transaction of long ago keeps every dead row from being cleaned up.
fn pinned(server: &Server) -> Row {
    let target = [AtMost(1.5)];
    let server = server.clone();
    let mut free = fresh(&server, OURS.name, "drain", |size| vec![8, size.times(200_000)]);
    Row::new("queue: drain, 8 workers, beside a transaction of long ago", Unit::Count, &target)
        .figure("times as long")
        .rounds_max(2)
        .ours("leaseward-queue", move |size| {
            let unpinned = free(size)?[0];
            let (_, url) = server.fresh();
            let snapshot = Snapshot::take(&url)?;
            let pinned = child_run(OURS.name, "drain", &url, &[8, size.times(200_000)])?[0];
            drop(snapshot);
            Ok(vec![unpinned / pinned])
        })
}

/// A transaction that goes on until it is dropped, and its runtime with it.
struct Snapshot {
    _runtime: tokio::runtime::Runtime,
    _client: tokio_postgres::Client,
}

impl Snapshot {
    fn take(url: &str) -> Result<Self, String> {
        let runtime = tasks::runtime(tasks::Threads::Two);
        let taken = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
            client.batch_execute(sql).await?;
            Ok::<_, tokio_postgres::Error>(client)
        });
        let client = taken.map_err(|error| error.to_string())?;
        Ok(Self { _runtime: runtime, _client: client })
    }
}
