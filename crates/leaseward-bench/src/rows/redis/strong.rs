//! Grants that two replicas must have: what that adds.

use std::time::Duration;

use super::pairs::{self, Pairs};
use crate::{
    redis::server::Server,
    row::{Row, Size, Target::AtMost, Unit},
};

const SPAN: Duration = Duration::from_millis(800);
const REPLICAS: usize = 2;
const ROUNDS: usize = 3;

pub(super) fn rows() -> Vec<Row> {
    let server = Server::with_replicas(REPLICAS);
    vec![
        row(&server, "redis: acquire + release on 2 replicas, 1 task", 1),
        row(&server, "redis: acquire + release on 2 replicas, 64 tasks", 64),
    ]
}

fn row(server: &Server, name: &'static str, tasks: u32) -> Row {
    let run = |who: &'static str, query: &'static str| {
        let server = server.clone();
        move |size: Size| strong(&server, who, query, tasks, size)
    };
    Row::new(name, Unit::Micros, &[])
        .figure("p50")
        .and("p99", Unit::Micros, &[])
        .and("pairs", Unit::PerSecond, &[])
        .and("WAITs", Unit::PerSecond, &[])
        .and("errors", Unit::Count, &[AtMost(0.0)])
        .rounds_max(ROUNDS)
        .ours("leaseward, strong", run("ours", "?replicas=2"))
        .raw("same work + WAIT, a connection each", run("waited", ""))
        .peer("leaseward, plain", run("ours", ""))
}

fn strong(
    server: &Server,
    who: &str,
    query: &str,
    tasks: u32,
    size: Size,
) -> Result<Vec<f64>, String> {
    let span = size.span(SPAN);
    let url = server.url() + query;
    let outcome = server.run(vec![pairs::command(who, &url, tasks, span)?], span)?;
    let pairs = Pairs::read(&outcome.told[0], outcome.spent.cpu_seconds)?;
    let waits = outcome.spent.calls(&["wait"]) / span.as_secs_f64();
    if !query.is_empty() && waits == 0.0 {
        return Err("it was to wait for replicas, and never did".into());
    }
    Ok(vec![pairs.p50_us, pairs.p99_us, pairs.per_second, waits, pairs.errors])
}
