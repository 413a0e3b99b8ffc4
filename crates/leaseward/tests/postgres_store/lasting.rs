//! What has to be on disk, and at the standby, before anybody is told of it.

use leaseward::store::Reply;
use leaseward_testkit::{PATIENCE, Postgres};

use crate::help::{granted, one, open, queueing, releasing, server, taking, until};

/// Makes every commit that has to last wait for a standby that never answers, or no more.
async fn never_lasting(server: &Postgres, is_on: bool) {
    let (set, shown) = if is_on {
        ("SET synchronous_standby_names = 'nobody'", "nobody")
    } else {
        ("RESET synchronous_standby_names", "")
    };
    server.sql(&format!("ALTER SYSTEM {set}"));
    server.sql("SELECT pg_reload_conf()");
    until("the setting is there", PATIENCE, || async {
        (server.sql("SHOW synchronous_standby_names") == shown).then_some(())
    })
    .await;
}

/// Waits until somebody waits for the standby.
async fn waiting_to_last(server: &Postgres) {
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until("it waits for the standby", PATIENCE, || async {
        (server.sql(waits) == "1").then_some(())
    })
    .await;
}

/// With a standby that never answers, whoever waits for a commit to last waits for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_not_waited_for_and_a_lease_is() {
    let server = server();
    let (one_client, other) = (open(&server.url()).await, open(&server.url()).await);
    granted(one(&*one_client, taking("a", 1)).await);
    never_lasting(&server, true).await;
    let queued = one(&*other, queueing("a", 2)).await;
    assert!(matches!(queued, Ok(Reply::Queued(_))), "{queued:?}");
    let busy = one(&*other, taking("a", 3)).await;
    assert!(matches!(busy, Ok(Reply::Busy(_))), "{busy:?}");
    let lasting = tokio::spawn(async move { one(&*other, taking("b", 2)).await });
    waiting_to_last(&server).await;
    assert!(!lasting.is_finished(), "told before it was safe");
    never_lasting(&server, false).await;
    granted(lasting.await.expect("no panic"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lasts_where_the_databases_own_commits_need_not() {
    let server = Postgres::builder().in_memory().conf("synchronous_commit", "off").start();
    let store = open(&server.url()).await;
    for what in ["free", "held"] {
        granted(one(&*store, taking(what, 1)).await);
    }
    one(&*store, releasing("free", 1)).await.expect("given back");
    let batches = [
        vec![taking("free", 2)],
        vec![releasing("held", 1)],
        vec![taking("one", 1), taking("other", 1)],
    ];
    for batch in batches {
        never_lasting(&server, true).await;
        let store = store.clone();
        let submitted = tokio::spawn(async move { store.carry_out(batch).await });
        waiting_to_last(&server).await;
        never_lasting(&server, false).await;
        for answer in submitted.await.expect("no panic") {
            answer.expect("carried out");
        }
    }
}
