//! Beside a queue of ours that is never empty, the pollers of other libraries come in too.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leaseward::Locks;
use leaseward_testkit::peers::{Library, Peer};
use serde_json::json;
use tokio::task::JoinSet;

use super::help::{PATIENCE, Server};

/// Clients of ours with tasks that always wait for one name.
struct Crowd {
    book: Arc<Book>,
    tasks: JoinSet<()>,
}

/// What they are told, and what came of it.
#[derive(Default)]
struct Book {
    stop: AtomicBool,
    entries: AtomicU64,
    max_wait_ms: AtomicU64,
}

impl Crowd {
    async fn start(server: &Server, setting: &Setting) -> Self {
        let book = Arc::<Book>::default();
        let mut tasks = JoinSet::new();
        for _ in 0..setting.clients {
            let url = format!("{}&handover={}", server.our_url(), setting.handover);
            let locks = leaseward::connect(&url).await.expect("the server is there");
            for _ in 0..setting.tasks {
                tasks.spawn(work(locks.clone(), setting.hold, book.clone()));
            }
        }
        Self { book, tasks }
    }

    /// Ours, who have seen the other client hold the name.
    async fn behind(peer: &mut Peer, server: &Server, setting: &Setting) -> Self {
        let acquire = json!({ "do": "acquire", "key": "a", "ttl_ms": 60_000 });
        assert_eq!(peer.call(acquire, PATIENCE).await["ok"], true);
        let this = Self::start(server, setting).await;
        server.until_waiting("a", setting.clients.try_into().expect("a few")).await;
        peer.call(json!({ "do": "release" }), PATIENCE).await;
        this
    }

    /// How often they come in within a second.
    async fn rate(&self, during: impl Future<Output = ()>) -> f64 {
        let (before, begin) = (self.book.entries.load(Ordering::Relaxed), Instant::now());
        during.await;
        let entries = self.book.entries.load(Ordering::Relaxed) - before;
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
        let entries = entries as f64;
        entries / begin.elapsed().as_secs_f64()
    }

    async fn end(mut self) {
        self.book.stop.store(true, Ordering::Relaxed);
        while let Some(outcome) = self.tasks.join_next().await {
            outcome.expect("nobody panicked");
        }
    }
}

async fn work(locks: Locks, hold: Duration, book: Arc<Book>) {
    let lock = locks.lock("a");
    while !book.stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let guard = lock.acquire().await.expect("it comes free");
        let wait_ms = begin.elapsed().as_millis().try_into().expect("not that long");
        book.max_wait_ms.fetch_max(wait_ms, Ordering::Relaxed);
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
        }
        book.entries.fetch_add(1, Ordering::Relaxed);
        guard.release().await.expect("the server is there");
    }
}

struct Setting {
    library: Library,
    handover: &'static str,
    clients: usize,
    tasks: usize,
    hold: Duration,
}

/// One line of the table.
async fn measure(setting: &Setting, run: Duration) {
    let server = Server::start().await;
    let mut peer = Peer::start(setting.library, &server.url()).await;
    let crowd = Crowd::behind(&mut peer, &server, setting).await;
    let (for_ms, hold_ms) = (run.as_millis(), setting.hold.as_millis());
    let order = json!({
        "do": "loop", "key": "a", "ttl_ms": 60_000, "for_ms": for_ms, "hold_ms": hold_ms,
    });
    let mut report = json!(null);
    let rate = crowd.rate(async { report = peer.call(order, run + PATIENCE).await }).await;
    let max_wait_ms = crowd.book.max_wait_ms.load(Ordering::Relaxed);
    crowd.end().await;
    // The same without anybody else, on another server.
    let server = Server::start().await;
    let crowd = Crowd::start(&server, setting).await;
    let alone = crowd.rate(tokio::time::sleep(run / 10)).await;
    crowd.end().await;
    let first = report["waits_ms"][0].as_f64();
    println!(
        "{:<12} {:<7} {} x {}, {hold_ms} ms | {:>5} entries, first after {} ms, longest wait {:.0} ms \
         | ours {rate:.0}/s (alone {alone:.0}/s), longest wait {max_wait_ms} ms",
        format!("{:?}", setting.library),
        setting.handover,
        setting.clients,
        setting.tasks,
        report["acquired"],
        first.map_or("-".to_owned(), |first| format!("{first:.0}")),
        report["max_wait_ms"].as_f64().unwrap_or(f64::NAN),
    );
}

/// Having been in once, they come in again and again.
async fn comes_in(library: Library, clients: usize) {
    let hold = Duration::from_millis(1);
    let setting = Setting { library, handover: "auto", clients, tasks: 3, hold };
    let server = Server::start().await;
    let mut peer = Peer::start(library, &server.url()).await;
    let crowd = Crowd::behind(&mut peer, &server, &setting).await;
    let order = json!({ "do": "loop", "key": "a", "ttl_ms": 60_000, "count": 5 });
    let report = peer.call(order, PATIENCE).await;
    assert_eq!((&report["acquired"], &report["lost"]), (&json!(5), &json!(0)));
    crowd.end().await;
}

#[tokio::test]
async fn node_redlock_comes_in() {
    comes_in(Library::NodeRedlock, 2).await;
}

#[tokio::test]
async fn node_redlock_comes_in_beside_one_process() {
    comes_in(Library::NodeRedlock, 1).await;
}

#[tokio::test]
async fn redis_py_comes_in() {
    comes_in(Library::RedisPy, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, for minutes"]
async fn how_others_fare_beside_a_queue_that_is_never_empty() {
    let run = Duration::from_secs(10);
    for clients in [2, 1] {
        for library in [Library::NodeRedlock, Library::RedisPy] {
            for handover in ["auto", "always", "never"] {
                for hold in [Duration::ZERO, Duration::from_millis(5)] {
                    let setting = Setting { library, handover, clients, tasks: 4, hold };
                    measure(&setting, run).await;
                }
            }
        }
    }
}
