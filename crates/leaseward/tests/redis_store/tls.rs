//! Ways to reach a server: TLS, a unix socket, a database, as a user who may do no more than needed.

use std::{collections::HashMap, future::poll_fn, task::Poll};

use leaseward::{ErrorKind, store::Reply};
use leaseward_testkit::{RedisServer, certificates};

use crate::help::{
    connect, granted, listen, one, open, queueing, releasing, renewing, take, taking, try_open,
};

/// The least that a user needs, as for `ACL SETUSER`; `docs/stores/redis.md` has the same line.
const LEAST: &str = "locker on >sesame resetkeys ~lock:* ~leaseward:* resetchannels &leaseward:c:* -@all \
    +hello +auth +ping +select +client|id +client|setname +client|kill +script|load +evalsha +eval +info +role \
    +subscribe +publish +time +exists +type +get +set +mget +getrange +setrange +del +pexpire +pttl +scan \
    +hset +hdel +hmget +hgetall +hkeys +rpush +lpush +lpop +llen +lrange +lpos +lindex +lset +lrem";

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_an_authority_of_ones_own() {
    let files = certificates();
    let server = RedisServer::builder().tls(files.server()).start();
    let (url, ca) = (server.url(), files.ca());
    let store = open(&format!("{url}?ca={}", ca.display())).await;
    granted(one(&*store, taking("a", 1)).await);
    for (bad, advice) in [
        (url.clone(), "`?ca=FILE`"),
        (format!("{url}?ca={}", files.other_ca().display()), "`?ca=FILE`"),
        (url.replace("rediss", "redis"), "`rediss:`"),
    ] {
        let failure = try_open(&bad).await.expect_err(&bad);
        assert_eq!(failure.kind(), ErrorKind::Unavailable, "{bad}: {failure:?}");
        assert_advises(&failure, advice);
    }
    let anybody = format!("{url}?danger_accept_any_certificate=yes");
    open(&anybody).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_right_is_refused() {
    let files = certificates();
    for bad in [files.expired(), files.wrong_host()] {
        // `redis-cli` would refuse it too, so it is started with a good one.
        let server = RedisServer::builder().tls(files.server()).start();
        let (cert, key) = (bad.cert.display().to_string(), bad.key.display().to_string());
        server.cli(&["config", "set", "tls-cert-file", &cert, "tls-key-file", &key]);
        let url = format!("{}?ca={}", server.url(), files.ca().display());
        let failure = try_open(&url).await.expect_err("it must not be trusted");
        assert_eq!(failure.kind(), ErrorKind::Unavailable, "{failure:?}");
        assert_advises(&failure, "in date");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_ask_for_a_certificate() {
    let files = certificates();
    // In TLS 1.3 it says so when the client believes to be in.
    for version in ["TLSv1.2", "TLSv1.3"] {
        let asking = leaseward_testkit::TlsFiles { ask_clients: true, ..files.server() };
        let server = RedisServer::builder().tls(asking).arg("tls-protocols", version).start();
        let url = format!("{}?ca={}", server.url(), files.ca().display());
        let failure = try_open(&url).await.expect_err("no certificate was shown");
        assert_eq!(failure.kind(), ErrorKind::Unavailable, "{failure:?}");
        assert_advises(&failure, "`?cert=FILE&key=FILE`");
        let client = files.client();
        let (cert, key) = (client.cert.display(), client.key.display());
        let store = open(&format!("{url}&cert={cert}&key={key}")).await;
        granted(one(&*store, taking("a", 1)).await);

        let late = files.expired();
        let (cert, key) = (late.cert.display(), late.key.display());
        let failure = try_open(&format!("{url}&cert={cert}&key={key}")).await;
        assert_advises(&failure.expect_err("its time is over"), "does not take the certificate");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_and_the_key_of_another_are_told_apart() {
    let files = certificates();
    let server = RedisServer::builder().tls(files.server()).start();
    let (cert, key) = (files.client().cert, files.server().key);
    let url = format!("{}?ca={}", server.url(), files.ca().display());
    let failure = try_open(&format!("{url}&cert={}&key={}", cert.display(), key.display())).await;
    let failure = failure.expect_err("they do not belong together");
    assert_eq!(failure.kind(), ErrorKind::InvalidInput, "{failure:?}");
    assert!(failure.message().ends_with("do not match"), "{failure}");
    for file in [cert, key] {
        assert!(failure.message().contains(&file.display().to_string()), "{failure}");
    }
}

/// That an error says what to do about it.
fn assert_advises(failure: &leaseward::Error, advice: &str) {
    let hint = failure.hint_text().unwrap_or_default();
    assert!(hint.contains(advice), "{advice}: {failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_has_no_time_for_is_sent_on_later() {
    let files = certificates();
    let (plain, safe) = (RedisServer::start(), RedisServer::builder().tls(files.server()).start());
    let ca = files.ca().display().to_string();
    for (server, more) in [(&plain, String::new()), (&safe, format!("&ca={ca}"))] {
        let store = open(&format!("{}?timeout=60s{more}", server.url())).await;
        server.pause();
        // More than the kernel keeps for a server that does not read.
        let name = |batch: usize, at: usize| format!("{batch}.{at}.{}", "n".repeat(400));
        let batch = |batch| (0..256).map(|at| taking(&name(batch, at), 1)).collect();
        let mut sent: Vec<_> = (0..100).map(|at| store.carry_out(batch(at))).collect();
        poll_fn(|context| {
            let is_pending = sent.iter_mut().all(|sent| sent.as_mut().poll(context).is_pending());
            assert!(is_pending, "nobody answers");
            Poll::Ready(())
        })
        .await;
        server.resume();
        for answers in sent {
            answers.await.into_iter().for_each(|answer| _ = granted(answer));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_a_database_and_a_name() {
    let server = RedisServer::builder().unix_socket().start();
    let store = open(&format!("redis+unix://{}?db=3", server.socket().display())).await;
    granted(one(&*store, taking("a", 1)).await);
    assert_eq!(server.cli(&["-n", "3", "exists", "lock:a"]), "1");
    assert_eq!(server.cli(&["exists", "lock:a"]), "0");
    // The same database by its address; another is another place.
    let same = open(&format!("valkey://{}/3", server.address())).await;
    assert!(matches!(one(&*same, taking("a", 2)).await, Ok(Reply::Busy(_))));
    let other = open(&format!("redis://{}/4", server.address())).await;
    granted(one(&*other, taking("a", 2)).await);
    let clients = server.client_list();
    assert_eq!(clients.iter().filter(|client| client["name"] == "leaseward:test:1").count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_asks_who_we_are_too() {
    let server = RedisServer::builder().unix_socket().acl("locker on >ses@me ~* &* +@all").start();
    let socket = server.socket().display().to_string();
    let store = open(&format!("redis+unix://locker:ses%40me@{socket}")).await;
    granted(one(&*store, taking("a", 1)).await);
    let named = |client: &&HashMap<String, String>| client["name"] == "leaseward:test:1";
    let clients = server.client_list();
    assert!(clients.iter().filter(named).all(|client| client["user"] == "locker"), "{clients:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_least_rights_can_do_everything() {
    let server = RedisServer::builder().acl(LEAST).start();
    let url = format!("redis://locker:sesame@{}", server.address());
    let store = open(&url).await;
    let _pushes = listen(&*store);
    let (mine, queued) = (taking("a", 1), queueing("a", 2));
    for step in [mine, queued, renewing("a", 1), releasing("a", 1), releasing("a", 2)] {
        one(&*store, step).await.expect("it is allowed");
    }
    let locks = connect(&url).await;
    let reader = take(locks.lock("b").shared()).await;
    let permit = take(locks.semaphore("c", 2)).await;
    let both = locks.all(["d", "e"]).acquire().await.expect("it is allowed");
    assert_eq!(locks.inspect(leaseward::store::Query::all()).await.expect("allowed").len(), 4);
    locks.break_lease("b", true).await.expect("it is allowed");
    drop(reader);
    permit.release().await.expect("it is allowed");
    both.release().await.expect("it is allowed");
    for forbidden in [vec!["flushall"], vec!["get", "other"], vec!["keys", "*"]] {
        let login = ["--user", "locker", "--pass", "sesame", "--no-auth-warning"];
        let said = server.try_cli(&[&login[..], &forbidden].concat());
        assert!(said.as_ref().is_err_and(|why| why.contains("NOPERM")), "{forbidden:?}: {said:?}");
    }
}
