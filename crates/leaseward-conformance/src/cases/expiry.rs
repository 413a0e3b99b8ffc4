//! Leases end when nobody renews them, and their holders know before anybody else can have the name.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use leaseward::{ErrorKind, LostReason, Release};

use crate::{
    Case, Fixture,
    case::case,
    support::{LONG, SHORT, take, view},
};

pub(super) const CASES: &[Case] = &[
    case!(an_unrenewed_lease_comes_free).timed(),
    case!(the_holder_knows_first).timed(),
    case!(run_drops_the_work_first).timed(),
    case!(run_answers_lost).timed(),
    case!(a_lost_lease_is_not_renewed).timed(),
    case!(an_expired_lease_is_not_shown).timed(),
    case!(an_ended_session_loses_the_lease),
];

async fn an_unrenewed_lease_comes_free(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let guard = take(&one.lock("x").ttl(SHORT).no_renewal()).await;
    let next = other.lock("x").acquire().await.expect("in the end");
    assert!(next.is_held() && !guard.is_held());
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert!(guard.remaining().is_zero());
    assert_eq!(guard.release().await.expect("answered"), Release::AlreadyExpired);
    assert!(next.is_held(), "a late release frees nothing");
}

/// The holder hears nothing from the store any more; its own clock must tell it in time.
async fn the_holder_knows_first(fixture: &Fixture) {
    let (gone, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let guard = take(&gone.lock("x").ttl(SHORT)).await;
    let lease = guard.lease();
    line.cut();
    let next = other.lock("x").acquire().await.expect("in the end");
    assert!(!lease.is_held(), "two hold it");
    assert_eq!(lease.lost().await, LostReason::Expired);
    assert!(next.is_held());
}

/// Says so when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

async fn run_drops_the_work_first(fixture: &Fixture) {
    let (gone, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let dropped = Arc::new(AtomicBool::new(false));
    let (started, has_started) = tokio::sync::oneshot::channel();
    let (lock, flag) = (gone.lock("x").ttl(SHORT), Flag(dropped.clone()));
    let work = tokio::spawn(async move {
        lock.run(|_lease| async move {
            let _flag = flag;
            let _ = started.send(());
            std::future::pending::<()>().await;
        })
        .await
    });
    has_started.await.expect("the work starts");
    line.cut();
    let next = other.lock("x").acquire().await.expect("in the end");
    assert!(dropped.load(Ordering::SeqCst), "the work went on while another one held the name");
    line.heal();
    let error = work.await.expect("no panic").expect_err("it was lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(next.is_held());
}

async fn run_answers_lost(fixture: &Fixture) {
    let locks = fixture.client().await;
    let lock = locks.lock("x").ttl(SHORT).no_renewal();
    let error = lock.run(|_| std::future::pending::<()>()).await.expect_err("it is lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let fence = lock.run(|lease| async move { lease.fence() }).await.expect("in time");
    assert!(take(&lock).await.fence() > fence, "given back at the end of the work");
}

async fn a_lost_lease_is_not_renewed(fixture: &Fixture) {
    let locks = fixture.client().await;
    let guard = take(&locks.lock("x").ttl(SHORT).no_renewal()).await;
    guard.lost().await;
    for error in [
        guard.renew().await.expect_err("it is lost"),
        guard.extend(LONG).await.expect_err("it is lost"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    let bare = fixture.bare().await;
    let token = bare.token();
    let ask = bare.asks_for("y", &token, SHORT, leaseward::store::IfBusy::Tell);
    let before = fixture.now();
    bare.granted(ask).await;
    fixture.until(before + SHORT * 2).await;
    bare.renew("y", &token, LONG).await.expect_err("a renewal revives nothing");
    take(&locks.lock("y")).await.release().await.expect("given back");
}

async fn an_expired_lease_is_not_shown(fixture: &Fixture) {
    let (gone, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let before = fixture.now();
    let guard = take(&gone.lock("x").ttl(SHORT)).await;
    line.cut();
    // A store may have raised its TTL.
    fixture.until(before + guard.ttl() + SHORT * 2).await;
    assert!(view(&other, "x").await.holders.is_empty());
}

async fn an_ended_session_loses_the_lease(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let guard = take(&locks.lock("x").ttl(LONG)).await;
    line.push(leaseward::store::Push::SessionLost);
    assert_eq!(guard.lost().await, LostReason::SessionEnded);
    assert!(!guard.is_held());
}
