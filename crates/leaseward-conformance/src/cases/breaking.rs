//! Leases ended by an operator.

use leaseward::{EventKind, LostReason, Release};

use crate::{
    Case, Fixture, Need,
    case::case,
    support::{Heard, LONG, SHORT, asking, granted, queue_of, take, view},
};

pub(super) const CASES: &[Case] = &[
    case!(a_broken_lease_is_told_to_its_holder, Need::Records).timed(),
    case!(a_broken_lease_comes_free_when_it_ends, Need::Records).timed(),
    case!(breaking_now_frees_at_once, Need::Records),
    case!(breaking_now_hands_over, Need::Queue),
    case!(breaking_is_audited, Need::Records),
    case!(breaking_what_is_free_does_nothing),
];

async fn a_broken_lease_is_told_to_its_holder(fixture: &Fixture) {
    let (one, operator) = (fixture.client().await, fixture.client().await);
    let guard = take(&one.lock("x").ttl(SHORT * 4)).await;
    let broken = operator.break_lease("x", false).await.expect("broken");
    assert_eq!(broken.holders.len(), 1);
    assert_eq!(broken.holders[0].fence, guard.fence());
    assert_eq!(guard.lost().await, LostReason::Broken);
    assert!(!guard.is_held());
    assert_eq!(guard.release().await.expect("answered"), Release::AlreadyExpired);
}

/// The holder hears nothing, but its deadline still holds.
async fn a_broken_lease_comes_free_when_it_ends(fixture: &Fixture) {
    let (gone, line) = fixture.faulty().await;
    let operator = fixture.client().await;
    let guard = take(&gone.lock("x").ttl(SHORT)).await;
    line.cut();
    operator.break_lease("x", false).await.expect("broken");
    let next = operator.lock("x").acquire().await.expect("in the end");
    assert!(!guard.is_held(), "two hold it");
    assert!(next.fence() > guard.fence());
}

async fn breaking_now_frees_at_once(fixture: &Fixture) {
    let (one, operator) = (fixture.client().await, fixture.client().await);
    let guard = take(&one.lock("x").ttl(LONG)).await;
    operator.break_lease("x", true).await.expect("broken");
    let next = take(&operator.lock("x").ttl(LONG)).await;
    assert!(next.fence() > guard.fence(), "only the fence protects now");
    let error = guard.renew().await.expect_err("it is lost");
    assert_eq!(error.kind(), leaseward::ErrorKind::Lost, "{error}");
    let reason = guard.lost().await;
    assert!(matches!(reason, LostReason::Broken | LostReason::NotOurs), "{reason}");
    guard.release().await.expect("answered");
    assert_eq!(view(&operator, "x").await.holders[0].fence, next.fence());
}

async fn breaking_now_hands_over(fixture: &Fixture) {
    let (one, operator) = (fixture.client().await, fixture.client().await);
    let guard = take(&one.lock("x").ttl(LONG)).await;
    let waiting = asking(operator.lock("x").ttl(LONG));
    queue_of(&one, "x", 1).await;
    operator.break_lease("x", true).await.expect("broken");
    assert!(granted(waiting).await.fence() > guard.fence());
}

async fn breaking_is_audited(fixture: &Fixture) {
    let one = fixture.client_with(|builder| builder.who("web-3:4121")).await;
    let operator = fixture.client().await;
    let heard = Heard::of(&operator);
    let guard = take(&one.lock("x").ttl(LONG)).await;
    operator.break_lease("x", true).await.expect("broken");
    let event = heard.first(EventKind::Broken).await;
    assert_eq!(event.name.as_ref().map(|name| name.as_str()), Some("x"));
    assert_eq!(event.fence, Some(guard.fence()));
    assert!(event.message.is_some_and(|message| message.contains("web-3:4121")));
}

async fn breaking_what_is_free_does_nothing(fixture: &Fixture) {
    let locks = fixture.client().await;
    for now in [false, true] {
        let broken = locks.break_lease("x", now).await.expect("answered");
        assert!(broken.holders.is_empty());
    }
    assert!(take(&locks.lock("x")).await.is_held());
}
