//! What it refuses, and how it says so.

use leaseward::{Error, ErrorKind};
use leaseward_testkit::{PgBouncer, Postgres};

use crate::help::{LONG, advisory, is_busy, locks_in, server, take};

async fn refused(url: &str) -> Error {
    leaseward::connect(url).await.expect_err("it must be refused")
}

fn assert_says(error: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.hint_text().is_some(), "{error:?} has no hint");
    for part in parts {
        assert!(format!("{error:?}").contains(part), "{error:?} does not say {part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_in_transaction_mode_is_refused() {
    let server = server();
    for connections in [1, 2, 8] {
        let bouncer = PgBouncer::before(&server, connections);
        // Also with connections that others have used before.
        for _ in 0..3 {
            let error = refused(&format!("{}?timeout=1s", advisory(&bouncer.url()))).await;
            assert_says(&error, ErrorKind::Unsupported, &["pooler", "postgres://"]);
        }
    }
    assert_eq!(locks_in(&server), 0, "nothing was left on its connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_make_the_sequence_uses_the_one_that_another_made() {
    let server = server();
    let poor = advisory(&server.user("poor"));
    assert_says(
        &refused(&poor).await,
        ErrorKind::Refused,
        &["leaseward migrate", "advisory_fences"],
    );
    let url = advisory(&server.url());
    let made = leaseward::postgres::migrate(&url).await.expect("made");
    assert_eq!(made, leaseward::postgres::Migrated::Made);
    let again = leaseward::postgres::migrate(&url).await.expect("nothing to do");
    assert_eq!(again, leaseward::postgres::Migrated::NothingToDo);
    assert_says(&refused(&poor).await, ErrorKind::Refused, &["docs/stores/postgres-advisory.md"]);
    server.sql("GRANT USAGE ON SCHEMA leaseward TO poor");
    server.sql("GRANT USAGE, UPDATE ON SEQUENCE leaseward.advisory_fences TO poor");
    let locks = leaseward::connect(&poor).await.expect("it may now");
    let _held = take(&locks.lock("a").ttl(LONG)).await;
    assert!(is_busy(&crate::help::connect(&server).await.lock("a").ttl(LONG)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn standbys_and_wrong_passwords_are_refused() {
    let server = Postgres::start();
    let standby = Postgres::builder().in_memory().standby_of(&server).start();
    assert_says(&refused(&advisory(&standby.url())).await, ErrorKind::Refused, &["standby"]);
    let wrong = advisory(&server.url_of("app", "not-the-secret", "postgres"));
    assert_says(&refused(&wrong).await, ErrorKind::Refused, &["password authentication failed"]);
    assert!(!format!("{:?}", refused(&wrong).await).contains("not-the-secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_are_refused_with_the_reason() {
    let server = server();
    let locks = crate::help::connect(&server).await;
    let error = locks.semaphore("gpu", 3).try_acquire().await.expect_err("it does not count");
    assert_says(&error, ErrorKind::Unsupported, &["lease rows"]);
}
