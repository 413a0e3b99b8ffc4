//! What is shown about locks.

use std::cmp::Reverse;

use leaseward::{
    Mode, Name,
    store::{LockView, Query, Severity, Waiting},
};

use crate::{
    Case, Fixture, Need,
    case::case,
    support::{LONG, asking, granted, held_with, queue_of, take, view},
};

pub(super) const CASES: &[Case] = &[
    case!(shows_who_holds_what, Need::Records),
    case!(shows_the_value, Need::Value),
    case!(shows_every_permit, Need::Permits),
    case!(shows_waiters_in_order, Need::Queue, Need::Shared),
    case!(shows_nothing_of_free_names),
    case!(pages_by_prefix, Need::Records),
    case!(a_prefix_is_no_pattern, Need::Records),
    case!(shows_no_secret, Need::Records),
    case!(says_what_the_store_promises),
    case!(a_healthy_store_has_no_danger),
];

async fn shows_who_holds_what(fixture: &Fixture) {
    let one = fixture.client_with(|builder| builder.who("web-3:4121")).await;
    let other = fixture.client().await;
    let guard = take(&one.lock("table:42").ttl(LONG)).await;
    let seen = view(&other, "table:42").await;
    let [holder] = seen.holders.as_slice() else { panic!("one holder, not {seen:?}") };
    assert_eq!((&*holder.who, holder.mode), ("web-3:4121", Mode::Exclusive));
    assert_eq!((holder.fence, holder.ttl, holder.slot), (guard.fence(), LONG, None));
    let remaining = holder.remaining.expect("it has an end");
    assert!(remaining > LONG / 2 && remaining <= LONG, "{remaining:?}");
    assert!(holder.held < LONG / 2 && !holder.ending && holder.value.is_none());
    assert!(seen.waiters.is_empty());
}

async fn shows_the_value(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let value: Vec<u8> = (0..=255).cycle().take(leaseward::VALUE_MAX_BYTES).collect();
    let _guard = take(&one.lock("x").value(&value)).await;
    let seen = view(&other, "x").await;
    assert_eq!(seen.holders[0].value.as_ref().map(leaseward::Value::as_bytes), Some(&value[..]));
}

async fn shows_every_permit(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let first = take(&one.semaphore("gpu", 3).ttl(LONG)).await;
    let second = take(&other.semaphore("gpu", 3).ttl(LONG)).await;
    let seen = view(&one, "gpu").await;
    let shown: Vec<_> = seen.holders.iter().map(|h| (h.slot, h.fence, h.mode)).collect();
    let mode = Mode::Permit { capacity: 3 };
    assert_eq!(
        shown,
        [(first.slot(), first.fence(), mode), (second.slot(), second.fence(), mode)],
        "oldest first"
    );
}

async fn shows_waiters_in_order(fixture: &Fixture) {
    let holder = fixture.client().await;
    let one = fixture.client_with(|builder| builder.who("first")).await;
    let other = fixture.client_with(|builder| builder.who("second")).await;
    let guard = take(&holder.lock("x").ttl(LONG)).await;
    let first = asking(one.lock("x").ttl(LONG));
    queue_of(&holder, "x", 1).await;
    let second = asking(other.lock("x").shared().ttl(LONG));
    queue_of(&holder, "x", 2).await;
    let seen = view(&holder, "x").await;
    let shown: Vec<_> = seen.waiters.iter().map(|waiter| (&*waiter.who, waiter.mode)).collect();
    assert_eq!(shown, [("first", Mode::Exclusive), ("second", Mode::Shared)]);
    guard.release().await.expect("given back");
    granted(first).await.release().await.expect("given back");
    granted(second).await.release().await.expect("given back");
}

async fn shows_nothing_of_free_names(fixture: &Fixture) {
    let locks = fixture.client().await;
    assert!(locks.inspect(Query::all()).await.expect("answered").is_empty());
    take(&locks.lock("x").ttl(LONG)).await.release().await.expect("given back");
    assert!(locks.inspect(Query::all()).await.expect("answered").is_empty());
}

fn names(views: &[LockView]) -> Vec<&str> {
    views.iter().map(|view| view.name.as_str()).collect()
}

async fn pages_by_prefix(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let mut guards = Vec::new();
    for name in ["b:2", "a:3", "a:1", "a:2", "c", "a", "ba:1"] {
        guards.push(take(&one.lock(name).ttl(LONG)).await);
    }
    let page = |after: Option<&str>| Query::Prefix {
        prefix: "a:".into(),
        after: after.map(|name| Name::new(name).expect("a good name")),
        limit: 2,
    };
    let first = other.inspect(page(None)).await.expect("answered");
    assert_eq!(names(&first), ["a:1", "a:2"]);
    let second = other.inspect(page(Some("a:2"))).await.expect("answered");
    assert_eq!(names(&second), ["a:3"]);
    assert!(other.inspect(page(Some("a:3"))).await.expect("answered").is_empty());
    let all = other.inspect(Query::all()).await.expect("answered");
    assert_eq!(names(&all), ["a", "a:1", "a:2", "a:3", "b:2", "ba:1", "c"]);
}

async fn a_prefix_is_no_pattern(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let mut guards = Vec::new();
    for name in ["a%b", "a_b", "axb", "A%b", "a*b", "[a]b", "ä1", "\u{10ffff}z"] {
        guards.push(take(&one.lock(name).ttl(LONG)).await);
    }
    for (prefix, found) in [
        ("a%", &["a%b"][..]),
        ("a_", &["a_b"]),
        ("a*", &["a*b"]),
        ("[a]", &["[a]b"]),
        ("A", &["A%b"]),
        ("ä", &["ä1"]),
        ("\u{10ffff}", &["\u{10ffff}z"]),
        ("'", &[]),
    ] {
        let query = Query::Prefix { prefix: prefix.into(), after: None, limit: 100 };
        let seen = other.inspect(query).await.expect("answered");
        assert_eq!(names(&seen), found, "{prefix:?}");
    }
}

async fn shows_no_secret(fixture: &Fixture) {
    let locks = fixture.client().await;
    let bare = fixture.bare().await;
    let token = bare.token();
    bare.ask("x", &token, LONG).await;
    bare.ask("x", &bare.token(), LONG).await;
    let seen = view(&locks, "x").await;
    assert_eq!(seen.holders[0].token_prefix, token.prefix());
    assert!(!format!("{seen:?}").contains(&token.reveal()[..=token.prefix().len()]));
    let has_queue = locks.capability().waiting != Waiting::AskAgain;
    assert_eq!(seen.waiters.len(), usize::from(has_queue));
}

async fn says_what_the_store_promises(fixture: &Fixture) {
    let locks = fixture.client().await;
    let promised = locks.guarantee();
    locks.require(&promised).expect("it promises what it promises");
    assert_eq!(promised.reach, locks.capability().reach);
    let mut more = promised.clone();
    more.reach = leaseward::store::Reach::Network;
    if promised.reach < more.reach {
        let error = locks.require(&more).expect_err("it reaches less far");
        assert_eq!(error.kind(), leaseward::ErrorKind::Unsupported, "{error}");
    }
}

async fn a_healthy_store_has_no_danger(fixture: &Fixture) {
    let holding = fixture.client().await;
    let guard = take(&holding.lock("x").ttl(LONG)).await;
    // One that has asked for nothing yet has to find out all the same.
    let locks = fixture.client().await;
    let health = locks.health().await;
    assert!(health.is_good(), "{health:?}");
    let findings = locks.diagnose().await.expect("answered");
    for finding in &findings {
        assert!(finding.severity < Severity::Danger, "{finding:?}");
        for text in [&finding.what, &finding.meaning, &finding.advice] {
            assert!(!text.is_empty() && !text.ends_with('.'), "{finding:?}");
        }
    }
    assert!(findings.is_sorted_by_key(|finding| Reverse(finding.severity)), "{findings:?}");
    let seen = locks.inspect(Query::all()).await.expect("answered");
    assert_eq!(seen.len(), 1, "a check leaves nothing behind: {seen:?}");
    held_with(&locks, "x", guard.fence()).await;
}
