//! ZooKeeper, with writes that reach the disk: beside a bare connection that sends the same requests, and beside kazoo.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use leaseward::Locks;
use leaseward_testkit::{
    ZooKeeper,
    peers::{Library, Peer},
};
use serde_json::json;

use super::redis::PAIRS;
use crate::{
    child, raw_zookeeper,
    row::{
        Row, Size,
        Target::{AtLeast, AtMost, RatioAtLeast, TimesAtLeast},
        Unit,
    },
    standby::StandBy,
    tasks::{self, Threads},
};

const SPAN: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;
const TTL: Duration = Duration::from_secs(10);

/// How long a peer may take beyond its work.
const SLACK: Duration = Duration::from_secs(30);

/// One server for all rows, started when the first needs it, with ZooKeeper's own settings.
#[derive(Clone, Default)]
struct Server(Arc<OnceLock<ZooKeeper>>);

impl Server {
    fn get(&self) -> &ZooKeeper {
        self.0.get_or_init(|| {
            let options = ZooKeeper::builder().fsync().tick(Duration::from_secs(2));
            let server = options.longest_session(Duration::from_secs(60)).start();
            // Makes the node that all names are under.
            let url = server.url("bench");
            tasks::in_task(Threads::One, async move { tasks::connect(&url).await.map(drop) })
                .expect("a server of our own can be reached");
            server
        })
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let server = Server::default();
    let row = |name, targets| {
        Row::new(name, Unit::PerSecond, targets)
            .figure("pairs")
            .and("errors", Unit::Count, &[AtMost(0.0)])
            .rounds_max(ROUNDS)
    };
    vec![
        row("zookeeper: acquire + release, 1 task", &[RatioAtLeast(0.8)])
            .ours("leaseward", ours(&server, 1))
            .raw("one connection, same requests", raw(&server, 1))
            .peer("kazoo", kazoo(&server, 1, "pair")),
        row("zookeeper: acquire + release, 64 tasks", &[RatioAtLeast(1.5)])
            .ours("leaseward", ours(&server, 64))
            .raw("one connection, same requests, 64 under way", raw(&server, 64)),
        row(
            "zookeeper: hand-overs between two clients",
            &[AtLeast(1.0), TimesAtLeast("kazoo", 1.0)],
        )
        .ours("leaseward", turns(&server))
        .peer("kazoo", kazoo(&server, 2, "turns")),
    ]
}

fn ours(server: &Server, tasks: u32) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| {
        let millis = size.span(SPAN).as_millis().to_string();
        let url = server.get().url("bench");
        let arguments = ["ours", &url, &tasks.to_string(), &millis];
        let mut one = StandBy::start(vec![child::command(PAIRS.name, &arguments)?])?;
        one.go()?;
        let told = one.figures()?;
        let [pairs, seconds, _, _, _, errors] = told[0][..] else {
            return Err(format!("{} figures instead of 6", told[0].len()));
        };
        Ok(vec![pairs / seconds, errors])
    }
}

fn raw(server: &Server, tasks: usize) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| {
        let port = server.get().port(0);
        let pairs = raw_zookeeper::pairs(port, tasks, size.span(SPAN));
        Ok(vec![pairs.map_err(|error| error.to_string())?, 0.0])
    }
}

/// So many processes with kazoo's lock on one path.
fn kazoo(
    server: &Server,
    processes: usize,
    name: &'static str,
) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| {
        let (hosts, span) = (server.get().hosts(), size.span(SPAN));
        tasks::in_task(Threads::One, async move {
            let mut peers = Vec::new();
            for _ in 0..processes {
                peers.push(Peer::start(Library::Kazoo, &hosts).await);
            }
            let key = format!("/kazoo/{name}");
            let begin = Instant::now();
            for peer in &mut peers {
                peer.send(&json!({"do": "loop", "key": key, "for_ms": span.as_millis() as u64}));
            }
            let mut acquired = 0.0;
            for peer in &mut peers {
                let told = peer.answer(span + SLACK).await;
                acquired += told["acquired"].as_f64().ok_or_else(|| told.to_string())?;
            }
            Ok(vec![acquired / begin.elapsed().as_secs_f64(), 0.0])
        })
    }
}

/// Two clients that want the same name all the time: each release is a hand-over to the other.
fn turns(server: &Server) -> impl FnMut(Size) -> Result<Vec<f64>, String> + 'static {
    let server = server.clone();
    move |size| {
        let (url, span) = (server.get().url("bench"), size.span(SPAN));
        tasks::in_task(Threads::Two, async move {
            let clients = [tasks::connect(&url).await?, tasks::connect(&url).await?];
            let begin = Instant::now();
            let tasks = clients.map(|locks| tokio::spawn(visits(locks, begin + span)));
            let mut acquired = 0.0;
            for task in tasks {
                acquired += task.await.map_err(|error| error.to_string())??;
            }
            Ok(vec![acquired / begin.elapsed().as_secs_f64(), 0.0])
        })
    }
}

async fn visits(locks: Locks, end: Instant) -> Result<f64, String> {
    let mut visits = 0.0;
    while Instant::now() < end {
        let guard = locks.lock("turns").ttl(TTL).acquire().await.map_err(|e| e.to_string())?;
        guard.release().await.map_err(|e| e.to_string())?;
        visits += 1.0;
    }
    Ok(visits)
}
