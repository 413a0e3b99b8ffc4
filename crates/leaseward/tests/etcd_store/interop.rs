//! `etcdctl lock` and ours exclude each other, both ways, waiting both ways.

use std::{
    io::{BufRead, BufReader, Write},
    process::Child,
};

use leaseward::{
    ErrorKind,
    etcd::{Ownership, ownership},
};
use leaseward_testkit::Etcd;

use crate::help::{LONG, asking, busy, connect, granted, queue_of, take, until, view};

/// An `etcdctl lock`, and the key it says it has once it has it.
struct Theirs {
    child: Child,
    key: tokio::sync::oneshot::Receiver<String>,
}

impl Theirs {
    fn lock(etcd: &Etcd, name: &str) -> Self {
        let mut child = etcd.spawn_cli(&["lock", name]);
        let output = child.stdout.take().expect("piped");
        let (tell, key) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            if BufReader::new(output).read_line(&mut line).is_ok_and(|read| read > 0) {
                let _ = tell.send(line.trim().to_owned());
            }
        });
        Self { child, key }
    }

    async fn has_it(&mut self) -> String {
        (&mut self.key).await.expect("it says its key")
    }

    fn has_it_already(&mut self) -> bool {
        self.key.try_recv().is_ok()
    }

    /// SIGINT: it gives the lock back and ends.
    fn end(&mut self) {
        let parent = self.child.id();
        // `timeout` passes it on.
        let status =
            std::process::Command::new("kill").args(["-INT", &parent.to_string()]).status();
        assert!(status.expect("kill can be run").success());
        self.child.wait().expect("it ends");
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn theirs_keeps_ours_out_and_ours_follows_it() {
    let etcd = Etcd::start();
    let locks = connect(&etcd.url()).await;
    let mut theirs = Theirs::lock(&etcd, "leaseward/deploy");
    let key = theirs.has_it().await;
    assert!(key.starts_with("leaseward/deploy/"), "{key}");
    let refused = busy(locks.lock("deploy")).await;
    let holder = refused.holder.expect("somebody has it");
    assert!(holder.who.contains("another program"), "{holder}");
    let seen = view(&locks, "deploy").await;
    assert!(seen.holders[0].who.contains("another program"), "{seen:?}");
    // It keeps its lease alive: neither of the two knows of an end.
    assert_eq!((seen.holders[0].remaining, holder.remaining), (None, None));
    let waiting = asking(locks.lock("deploy").ttl(LONG));
    queue_of(&locks, "deploy", 1).await;
    theirs.end();
    assert!(granted(waiting).await.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_keeps_theirs_out_and_theirs_follows_it() {
    let etcd = Etcd::start();
    let locks = connect(&etcd.url()).await;
    let guard = take(locks.lock("deploy").ttl(LONG)).await;
    let mut theirs = Theirs::lock(&etcd, "leaseward/deploy");
    queue_of(&locks, "deploy", 1).await;
    let last = asking(locks.lock("deploy").ttl(LONG).shared());
    queue_of(&locks, "deploy", 2).await;
    assert!(!theirs.has_it_already(), "two hold it");
    guard.release().await.expect("given back");
    theirs.has_it().await;
    assert!(!last.is_finished(), "two hold it");
    theirs.end();
    assert!(granted(last).await.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn theirs_that_is_killed_is_followed_after_its_time() {
    let etcd = Etcd::start();
    let locks = connect(&etcd.url()).await;
    let mut child = etcd.spawn_cli(&["lock", "--ttl", "2", "leaseward/x"]);
    until("theirs has it", || async {
        (!view(&locks, "x").await.holders.is_empty()).then_some(())
    })
    .await;
    let waiting = asking(locks.lock("x"));
    queue_of(&locks, "x", 1).await;
    child.kill().expect("it was alive");
    child.wait().expect("it ends");
    assert!(granted(waiting).await.is_held());
}

/// It does not know what a mark in a record means, so only its key can go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn theirs_is_broken_only_at_once() {
    let etcd = Etcd::start();
    let locks = connect(&etcd.url()).await;
    let mut theirs = Theirs::lock(&etcd, "leaseward/x");
    theirs.has_it().await;
    let error = locks.break_lease("x", false).await.expect_err("it reads nothing of ours");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("--now")), "{error:?}");
    assert_eq!(locks.break_lease("x", true).await.expect("broken").holders.len(), 1);
    assert!(take(locks.lock("x")).await.is_held());
}

#[tokio::test]
async fn what_stands_there_is_readable() {
    let etcd = Etcd::start();
    let locks = connect(&format!("{}?prefix=locks/", etcd.url())).await;
    let _guard = take(locks.lock("table:42").ttl(LONG).value("hello")).await;
    let _other = take(locks.lock("a/b%").ttl(LONG)).await;
    let keys = etcd.cli(&["get", "--prefix", "locks/", "--keys-only"]);
    let keys: Vec<_> = keys.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    assert_eq!(keys[0], "locks/%scale");
    assert!(keys[1].starts_with("locks/a%2Fb%25/"), "{keys:?}");
    assert!(keys[2].starts_with("locks/table:42/"), "{keys:?}");
    let record = etcd.cli(&["get", "--prefix", "locks/table:42/", "--print-value-only"]);
    let record: serde_json::Value = serde_json::from_str(&record).expect("readable");
    assert_eq!((&record["mode"], &record["value"]), (&"exclusive".into(), &"hello".into()));
    assert_eq!(record["ttl_ms"], 600_000);
}

/// A transaction of the caller's own that etcd carries out only for the present holder.
fn guarded_put(etcd: &Etcd, owned: &Ownership, value: &str) -> bool {
    let key = String::from_utf8(owned.key.clone()).expect("text");
    let revision = owned.create_revision;
    let mut txn = etcd.spawn_cli(&["txn"]);
    let order = format!("create(\"{key}\") = \"{revision}\"\n\nput data {value}\n\n\n\n");
    txn.stdin.take().expect("piped").write_all(order.as_bytes()).expect("it reads");
    let said = txn.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&said.stdout).contains("SUCCESS")
}

#[tokio::test]
async fn a_guard_offers_the_comparison_for_ones_own_transactions() {
    let etcd = Etcd::start();
    let locks = connect(&etcd.url()).await;
    let first = take(locks.lock("x").ttl(LONG)).await;
    let owned = ownership(&first).expect("held in etcd");
    assert!(guarded_put(&etcd, &owned, "first"));
    locks.break_lease("x", true).await.expect("broken");
    let second = take(connect(&etcd.url()).await.lock("x").ttl(LONG)).await;
    // It was not told yet, and nothing of it gets through all the same.
    assert!(!guarded_put(&etcd, &owned, "late"));
    assert!(guarded_put(&etcd, &ownership(&second).expect("held"), "second"));
    assert_eq!(etcd.cli(&["get", "data", "--print-value-only"]), "second");
    let elsewhere = take(connect("memory:").await.lock("x")).await;
    let error = ownership(&elsewhere).expect_err("not in etcd");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
