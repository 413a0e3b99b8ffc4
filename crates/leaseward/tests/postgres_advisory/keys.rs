//! Other programs meet us at the same keys.

use leaseward::{Mode, postgres::AdvisoryKey, store::Query};
use leaseward_testkit::Postgres;

use crate::help::{LONG, advisory, connect, is_busy, name, server, session, take};

/// The snippet of the manual, as people copy it.
fn snippet() -> String {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores/postgres-advisory.md");
    let manual = std::fs::read_to_string(manual).expect("the manual is there");
    let begin = manual.find("```sql key\n").expect("it has the snippet") + "```sql key\n".len();
    let end = manual[begin..].find("```").expect("it ends");
    manual[begin..begin + end].trim().to_owned()
}

/// What the manual's SQL says is the key of a name.
fn key_of(server: &Postgres, what: &str) -> i64 {
    let quoted = what.replace('\'', "''");
    let sql = snippet().replace("orders", &quoted);
    server.sql(&sql).parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_computes_the_same_keys() {
    let server = server();
    let client = session(&server.url()).await;
    for what in
        ["orders", "table:42", "it's", "ä1", "\u{10ffff}z", "日本", "x".repeat(512).as_str()]
    {
        let key = key_of(&server, what);
        let ours = AdvisoryKey::in_namespace("leaseward", &name(what)).expect("good");
        assert_eq!(ours, AdvisoryKey::I64(key), "{what}");
        let locks = connect(&server).await;
        let held = take(&locks.lock(what).ttl(LONG)).await;
        let theirs: bool = client
            .query_one("SELECT pg_try_advisory_lock($1)", &[&key])
            .await
            .expect("answered")
            .get(0);
        assert!(!theirs, "`{what}` is held by us, but not under the key of the manual");
        held.release().await.expect("given back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_program_keeps_us_out_and_is_kept_out() {
    let server = server();
    let (locks, client) = (connect(&server).await, session(&server.url()).await);
    let key = key_of(&server, "orders");
    let run = async |function: &str| -> bool {
        let sql = format!("SELECT {function}($1)");
        client.query_one(&sql, &[&key]).await.expect("answered").get(0)
    };
    assert!(run("pg_try_advisory_lock").await);
    assert!(is_busy(&locks.lock("orders").ttl(LONG)).await);
    assert!(run("pg_advisory_unlock").await);
    let held = take(&locks.lock("orders").ttl(LONG)).await;
    assert!(!run("pg_try_advisory_lock_shared").await);
    held.release().await.expect("given back");
    let reader = take(&locks.lock("orders").shared().ttl(LONG)).await;
    assert!(!run("pg_try_advisory_lock").await);
    assert!(run("pg_try_advisory_lock_shared").await, "readers hold it together");
    reader.release().await.expect("given back");
    assert!(is_busy(&locks.lock("orders").ttl(LONG)).await, "the other reader is still there");
    assert!(take(&locks.lock("orders").shared().ttl(LONG)).await.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_keys_where_that_was_asked_for() {
    let server = server();
    let url = format!("{}?keys=raw", advisory(&server.url()));
    let locks = leaseward::connect(&url).await.expect("it can be reached");
    let client = session(&server.url()).await;
    let is_free = async |arguments: &str| -> bool {
        let sql = format!("SELECT pg_try_advisory_xact_lock({arguments})");
        client.query_one(&sql, &[]).await.expect("answered").get(0)
    };
    for (what, arguments) in [
        ("42", "42"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("1,2", "1, 2"),
        ("-2147483648,-1", "-2147483648, -1"),
    ] {
        assert!(is_free(arguments).await, "{what}");
        let held = take(&locks.lock(what).ttl(LONG)).await;
        assert!(!is_free(arguments).await, "{what}");
        let shown = locks.inspect(Query::all()).await.expect("answered");
        assert_eq!(shown.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(), [what]);
        held.release().await.expect("given back");
        assert!(is_free(arguments).await, "{what}");
    }
    // One number and two that look the same are different locks.
    let _one = take(&locks.lock("4294967298").ttl(LONG)).await;
    let _two = take(&locks.lock("1,2").ttl(LONG)).await;
    let error = locks.lock("orders").try_acquire().await.expect_err("no number");
    assert_eq!(error.kind(), leaseward::ErrorKind::InvalidInput, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_have_nothing_to_do_with_each_other() {
    let server = server();
    let url = format!("{}?namespace=billing", advisory(&server.url()));
    let (one, other) =
        (connect(&server).await, leaseward::connect(&url).await.expect("it can be reached"));
    let _one = take(&one.lock("orders").ttl(LONG)).await;
    let _other = take(&other.lock("orders").ttl(LONG)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_hold_is_shown_as_far_as_it_can_be_known() {
    let server = server();
    let holder = leaseward::Locks::builder().who("web-3:4121");
    let holder = holder.connect(&advisory(&server.url())).await.expect("it can be reached");
    let looker = connect(&server).await;
    let held = take(&holder.lock("orders").ttl(LONG)).await;
    let seen = looker.inspect(Query::Name(name("orders"))).await.expect("answered");
    assert_eq!(
        (&*seen[0].holders[0].who, seen[0].holders[0].mode),
        ("web-3:4121", Mode::Exclusive)
    );
    let all = looker.inspect(Query::all()).await.expect("answered");
    let key = key_of(&server, "orders");
    assert_eq!(
        all[0].name.as_str(),
        format!("advisory key {key}"),
        "names are not known to others"
    );
    let own = holder.inspect(Query::all()).await.expect("answered");
    assert_eq!((own[0].name.as_str(), own[0].holders[0].fence), ("orders", held.fence()));
    let leaseward::Attempt::Busy(busy) =
        looker.lock("orders").try_acquire().await.expect("answered")
    else {
        panic!("it is held")
    };
    assert_eq!(busy.holder.map(|holder| holder.who.to_string()).as_deref(), Some("web-3:4121"));
    let error = looker.break_lease("orders", true).await.expect_err("only its session can");
    assert!(format!("{error:?}").contains("pg_terminate_backend"), "{error:?}");
    assert!(held.is_held());
}
