//! Leases that move to another process.

use leaseward::{ErrorKind, Handle, LostReason, Mode, Release};

use crate::{
    Case, Fixture, Need,
    case::case,
    support::{LONG, SHORT, asking, busy, granted, queue_of, take, view},
};

pub(super) const CASES: &[Case] = &[
    case!(a_lease_moves_to_another_client, Need::Records),
    case!(a_detached_lease_is_not_renewed).timed(),
    case!(an_attached_lease_is_renewed, Need::Records).timed(),
    case!(an_ended_lease_cannot_be_attached).timed(),
    case!(an_attached_lease_never_passes_by_cohort, Need::Queue),
    case!(what_two_have_attached_is_lost_when_one_releases, Need::Records).timed(),
    case!(every_mode_moves, Need::Shared, Need::Permits),
    case!(a_handle_survives_json_and_hides_its_token),
];

/// As it would be in another process.
fn sent(handle: &Handle) -> Handle {
    let json = serde_json::to_string(handle).expect("a handle can be written");
    serde_json::from_str(&json).expect("and read back")
}

async fn a_lease_moves_to_another_client(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let guard = take(&one.lock("x").ttl(LONG)).await;
    let fence = guard.fence();
    let handle = sent(&guard.detach());
    busy(&one.lock("x")).await;
    let guard = other.attach(&handle).await.expect("still held");
    assert!(guard.is_held() && guard.fence() == fence && guard.ttl() == LONG);
    busy(&one.lock("x")).await;
    assert_eq!(guard.release().await.expect("given back"), Release::Released);
    assert!(take(&one.lock("x")).await.fence() > fence);
}

async fn a_detached_lease_is_not_renewed(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let handle = take(&one.lock("x").ttl(SHORT)).await.detach();
    let next = other.lock("x").acquire().await.expect("in the end");
    assert!(next.fence() > handle.fence());
}

async fn an_attached_lease_is_renewed(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let ttl = SHORT * 5;
    let handle = take(&one.lock("x").ttl(ttl)).await.detach();
    let guard = other.attach(&handle).await.expect("still held");
    fixture.until(guard.deadline() + ttl / 2).await;
    assert!(guard.is_held());
    busy(&one.lock("x")).await;
}

async fn an_ended_lease_cannot_be_attached(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let before = fixture.now();
    let expired = take(&one.lock("x").ttl(SHORT)).await.detach();
    fixture.until(before + expired.ttl() + SHORT).await;
    let error = other.attach(&expired).await.expect_err("it has ended");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let released = take(&one.lock("y").ttl(LONG)).await.detach();
    one.attach(&released).await.expect("held").release().await.expect("given back");
    let error = other.attach(&released).await.expect_err("it was given back");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
}

async fn an_attached_lease_never_passes_by_cohort(fixture: &Fixture) {
    let locks = fixture.client().await;
    let handle = take(&locks.lock("x").ttl(LONG)).await.detach();
    let guard = locks.attach(&handle).await.expect("held");
    let waiting = asking(locks.lock("x").ttl(LONG));
    queue_of(&locks, "x", 1).await;
    let fence = guard.fence();
    guard.release().await.expect("given back");
    assert!(granted(waiting).await.fence() > fence);
}

async fn what_two_have_attached_is_lost_when_one_releases(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let handle = take(&one.lock("x").ttl(SHORT * 4)).await.detach();
    let first = one.attach(&handle).await.expect("held");
    let second = other.attach(&handle).await.expect("held");
    assert_eq!(second.release().await.expect("given back"), Release::Released);
    assert_eq!(first.lost().await, LostReason::NotOurs);
    assert!(!first.is_held());
}

async fn every_mode_moves(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let locks = [one.lock("doc").shared().ttl(LONG), one.semaphore("gpu", 2).ttl(LONG)];
    for lock in locks {
        let guard = take(&lock).await;
        let (mode, fence, slot) = (guard.mode(), guard.fence(), guard.slot());
        let guard = other.attach(&sent(&guard.detach())).await.expect("held");
        assert_eq!((guard.mode(), guard.fence(), guard.slot()), (mode, fence, slot));
        assert_ne!(mode, Mode::Exclusive);
        let name = guard.name().clone();
        guard.release().await.expect("given back");
        assert!(view(&one, &name).await.holders.is_empty());
    }
}

async fn a_handle_survives_json_and_hides_its_token(fixture: &Fixture) {
    let locks = fixture.client().await;
    let handle = take(&locks.lock("x").ttl(LONG)).await.detach();
    let json = serde_json::to_value(&handle).expect("a handle can be written");
    assert_eq!(json["name"], "x");
    assert_eq!(json["fence"], handle.fence().get());
    assert_eq!(json["ttl_ms"], 3_600_000);
    let token = json["token"].as_str().expect("the secret itself");
    assert!(!format!("{handle:?}").contains(&token[..9]));
    let mut wrong = json.clone();
    wrong["token"] = "hunter2".into();
    let error = serde_json::from_value::<Handle>(wrong).expect_err("refused");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}
