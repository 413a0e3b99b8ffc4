//! A server that is not next door: every round trip that is not needed shows.

use std::time::{Duration, Instant};

use leaseward_testkit::Proxy;

use super::pairs::{self, Pairs};
use crate::{
    redis::{raw::RawRedis, server::Server},
    row::{Row, Size, Target::AtMost, Unit},
    stats::quantile,
};

const EACH_WAY: Duration = Duration::from_micros(500);
const TASKS: u32 = 64;
const SPAN: Duration = Duration::from_millis(600);
const PINGS: usize = 50;
const ROUNDS: usize = 3;

pub(super) fn rows(server: &Server) -> Vec<Row> {
    let run = |who: &'static str| {
        let server = server.clone();
        move |size: Size| far(&server, who, size)
    };
    let name = "redis: 1 ms away, 64 tasks";
    vec![
        Row::new(name, Unit::Count, &[AtMost(1.3)])
            .figure("p50 of an operation, in round trips")
            .and("p99 of a pair, in round trips", Unit::Count, &[])
            .and("round trip", Unit::Micros, &[])
            .and("errors", Unit::Count, &[AtMost(0.0)])
            .rounds_max(ROUNDS)
            .ours("leaseward", run("ours"))
            .raw("bare socket, same work", run("raw-same"))
            .peer("rslock", run("rslock")),
    ]
}

fn far(server: &Server, who: &str, size: Size) -> Result<Vec<f64>, String> {
    let proxy = Proxy::start(&server.address());
    proxy.delay(EACH_WAY);
    let round_trip_us = round_trip_us(&proxy)?;
    let span = size.span(SPAN);
    let url = format!("redis://{}", proxy.address());
    let outcome = server.run(vec![pairs::command(who, &url, TASKS, span)?], span)?;
    let pairs = Pairs::read(&outcome.told[0], outcome.spent.cpu_seconds)?;
    let trips = |us: f64| us / round_trip_us;
    // A pair is two operations.
    Ok(vec![trips(pairs.p50_us) / 2.0, trips(pairs.p99_us), round_trip_us, pairs.errors])
}

/// What a round trip takes in truth: the delay, and what it is to wake up for it.
fn round_trip_us(proxy: &Proxy) -> Result<f64, String> {
    let mut raw = RawRedis::connect(&proxy.address())?;
    let mut micros = Vec::new();
    for _ in 0..PINGS {
        let begin = Instant::now();
        raw.ask(&["PING"])?;
        micros.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);
    Ok(quantile(&micros, 0.5))
}
