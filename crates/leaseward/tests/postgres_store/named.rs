//! Statements that the server parses once: over connections of which it is certain that one process serves them, and
//! nowhere else. The server's log says under which name it carried out what.

use leaseward::store::{Reply, Store};
use leaseward_testkit::{PATIENCE, PgBouncer, Postgres, Proxy};

use crate::help::{connect, granted, one, queueing, releasing, take, taking, try_open, until};

/// A server that logs all that it is asked.
fn talkative() -> Postgres {
    Postgres::builder().in_memory().conf("log_statement", "all").start()
}

/// The same, over a unix socket in the server's folder.
fn over_socket(url: &str, server: &Postgres) -> String {
    format!("{}?host={}", url.replace("@127.0.0.1:", "@:"), server.folder().display())
}

/// How often the server was sent calls of a function: by name, and without.
fn calls(log: &str, function: &str) -> (usize, usize) {
    let call = format!("SELECT * FROM leaseward.{function}(");
    let of = |line: &&str| line.contains("execute ") && line.contains(&call);
    let (unnamed, named): (Vec<_>, Vec<_>) =
        log.lines().filter(of).partition(|line| line.contains("execute <unnamed>"));
    (named.len(), unnamed.len())
}

/// Takes and gives back until both have been called by name.
async fn named(server: &Postgres, store: &dyn Store, what: &str) {
    until("both calls have a name", PATIENCE, || async {
        granted(one(store, taking(what, 1)).await);
        assert!(matches!(one(store, releasing(what, 1)).await, Ok(Reply::Released)));
        let log = server.log();
        (calls(&log, "take").0 > 0 && calls(&log, "give_back").0 > 0).then_some(())
    })
    .await;
}

/// Takes and gives back often enough that a name would be used.
async fn unnamed(server: &Postgres, url: &str) {
    let locks = connect(url).await;
    // Several at once, so that there are several connections.
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    let held = take(locks.lock(format!("n{task}"))).await;
                    held.release().await.expect("given back");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    for _ in 0..10 {
        take(locks.lock("alone")).await.release().await.expect("given back");
    }
    let log = server.log();
    for function in ["take", "give_back"] {
        let (named, unnamed) = calls(&log, function);
        assert_eq!(named, 0, "{function} was called by name");
        assert!(unnamed >= 10, "{function} was called {unnamed} times");
    }
    assert!(!log.contains("ERROR"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_parses_a_call_once() {
    let server = talkative();
    let store = try_open(&server.url()).await.expect("it can be reached");
    named(&server, &*store, "a").await;
    let before = calls(&server.log(), "give_back");
    for _ in 0..5 {
        granted(one(&*store, taking("a", 1)).await);
        one(&*store, releasing("a", 1)).await.expect("given back");
    }
    assert_eq!(calls(&server.log(), "give_back"), (before.0 + 5, before.1));
}

#[tokio::test(flavor = "multi_thread")]
async fn so_does_one_behind_a_unix_socket() {
    let server = talkative();
    let url = over_socket(&server.url(), &server);
    let store = try_open(&url).await.expect("it can be reached");
    named(&server, &*store, "a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_named_behind_a_pooler() {
    let server = talkative();
    let bouncer = PgBouncer::before(&server, 2);
    unnamed(&server, &bouncer.url()).await;
    // It refused the greeting of the first connection, and was not tried again.
    let refusals = bouncer.log().matches("closing because: unsupported startup parameter").count();
    assert_eq!(refusals, 1, "{}", bouncer.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_named_behind_a_pooler_that_takes_any_greeting() {
    let server = talkative();
    let lines = "ignore_startup_parameters = options";
    let bouncer = PgBouncer::configured(&server, 2, lines);
    unnamed(&server, &bouncer.url()).await;
    assert!(!bouncer.log().contains("unsupported startup parameter"), "{}", bouncer.log());
}

/// The next server's silence is no reason to give up the one that only dislikes the greeting.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_is_used_though_the_next_server_is_down() {
    let server = talkative();
    let bouncer = PgBouncer::before(&server, 2);
    // Nobody listens there.
    unnamed(&server, &bouncer.url().replace("/postgres", ",127.0.0.1:1/postgres")).await;
}

/// Over unix sockets both ways there are no ports to compare: the process does not know our greeting.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_named_behind_a_pooler_with_a_unix_socket() {
    let server = talkative();
    let (folder, port) = (server.folder().display(), server.port());
    let lines = format!(
        "ignore_startup_parameters = options\nunix_socket_dir = {folder}\n\
         [databases]\n* = host={folder} port={port}"
    );
    let bouncer = PgBouncer::configured(&server, 2, &lines);
    unnamed(&server, &over_socket(&bouncer.url(), &server)).await;
    assert!(bouncer.log().contains("app@unix"), "{}", bouncer.log());
}

/// Whoever passes the greeting on is not the server: it sees another port than ours.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_named_behind_somebody_who_passes_the_greeting_on() {
    let server = talkative();
    let proxy = Proxy::start(&server.address());
    unnamed(&server, &server.url().replace(&server.address(), &proxy.address())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_are_made_anew_are_called_by_the_old_names() {
    let server = talkative();
    let store = try_open(&server.url()).await.expect("it can be reached");
    named(&server, &*store, "a").await;
    granted(one(&*store, taking("a", 1)).await);
    assert!(matches!(one(&*store, queueing("a", 2)).await, Ok(Reply::Queued(_))));
    server.sql("DROP FUNCTION leaseward.give_back; UPDATE leaseward.meta SET version = 1");
    drop(try_open(&server.url()).await.expect("brought up to date"));
    assert!(matches!(one(&*store, releasing("a", 1)).await, Ok(Reply::Released)));
    granted(one(&*store, queueing("a", 2)).await);
    assert!(!server.log().contains("ERROR"), "{}", server.log());
}

/// What a later version may do: another function of the same name, that answers with a column more.
const WIDER: &str = "DROP FUNCTION leaseward.give_back; \
    CREATE FUNCTION leaseward.give_back(me bigint, late_us bigint, wanted text, owner bytea) RETURNS TABLE (op int, \
        code smallint, first bigint, len int, slot int, waiters int, who text, mode int, left_us bigint, \
        free_us bigint, name text, token bytea, later int) \
    LANGUAGE sql AS $$ SELECT s.*, 7 FROM leaseward.submit(me, late_us, true, 0, '{4}', ARRAY[wanted], ARRAY[owner], \
        '{\"\"}', '{0}', '{0}', '{0}', '{0}', '{NULL}') s $$";

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_lost_its_meaning_is_forgotten_and_nobody_notices() {
    let server = talkative();
    let store = try_open(&server.url()).await.expect("it can be reached");
    named(&server, &*store, "a").await;
    server.sql(WIDER);
    granted(one(&*store, taking("a", 1)).await);
    assert!(matches!(one(&*store, releasing("a", 1)).await, Ok(Reply::Released)));
    let refusals = || server.log().matches("cached plan must not change result type").count();
    assert_eq!(refusals(), 1, "{}", server.log());
    let before = calls(&server.log(), "give_back").0;
    until("it has a name again", PATIENCE, || async {
        granted(one(&*store, taking("a", 1)).await);
        assert!(matches!(one(&*store, releasing("a", 1)).await, Ok(Reply::Released)));
        (calls(&server.log(), "give_back").0 > before).then_some(())
    })
    .await;
    assert_eq!(refusals(), 1, "{}", server.log());
}
