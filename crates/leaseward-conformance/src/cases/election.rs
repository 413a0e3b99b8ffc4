//! One leader at a time, known to all.

use leaseward::{ErrorKind, Fence, LeaderView, Locks, LostReason, Release};

use crate::{
    Case, Fixture, Need,
    case::case,
    support::{LONG, SHORT, cancel, eventually, queue_of},
};

pub(super) const CASES: &[Case] = &[
    case!(one_leader_and_the_next_after_it, Need::Value, Need::Queue),
    case!(followers_see_every_leader, Need::Value).timed(),
    case!(a_lost_leader_steps_down, Need::Value).timed(),
    case!(a_withdrawn_candidate_never_leads, Need::Value, Need::Queue),
];

fn shown(view: &Option<LeaderView>) -> Option<(String, Fence)> {
    let view = view.as_ref()?;
    Some((view.value.as_ref()?.to_text(), view.fence))
}

async fn leader_seen_by(locks: &Locks) -> Option<(String, Fence)> {
    shown(&locks.election("scheduler").leader().await.expect("the store answers"))
}

async fn one_leader_and_the_next_after_it(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    assert_eq!(leader_seen_by(&other).await, None);
    let first = one.election("scheduler").ttl(LONG).campaign("10.0.0.1").await.expect("elected");
    let candidate = other.election("scheduler").ttl(LONG);
    let campaign = tokio::spawn(async move { candidate.campaign("10.0.0.2").await });
    queue_of(&one, "scheduler", 1).await;
    assert!(first.is_leader() && !campaign.is_finished());
    assert_eq!(leader_seen_by(&other).await, Some(("10.0.0.1".into(), first.fence())));
    let fence = first.fence();
    assert_eq!(first.resign().await.expect("stepped down"), Release::Released);
    let second = campaign.await.expect("no panic").expect("elected");
    assert!(second.is_leader() && second.fence() > fence);
    assert_eq!(leader_seen_by(&one).await, Some(("10.0.0.2".into(), second.fence())));
}

async fn followers_see_every_leader(fixture: &Fixture) {
    let (one, follower) = (fixture.client().await, fixture.client().await);
    let mut followed = follower.election("scheduler").observe();
    assert_eq!(followed.next().await.expect("answered"), None);
    let first = one.election("scheduler").ttl(LONG).campaign("first").await.expect("elected");
    let seen = followed.next().await.expect("answered");
    assert_eq!(shown(&seen), Some(("first".into(), first.fence())));
    first.resign().await.expect("stepped down");
    assert_eq!(followed.next().await.expect("answered"), None);
    let second = one.election("scheduler").ttl(LONG).campaign("second").await.expect("elected");
    let seen = followed.next().await.expect("answered");
    assert_eq!(shown(&seen), Some(("second".into(), second.fence())));
}

async fn a_lost_leader_steps_down(fixture: &Fixture) {
    let (gone, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let leader = gone.election("scheduler").ttl(SHORT).campaign("first").await.expect("elected");
    line.cut();
    let campaign = other.election("scheduler");
    let error = leader.run(|_| std::future::pending::<()>()).await.expect_err("it is lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let next = campaign.campaign("second").await.expect("elected in the end");
    assert!(!leader.is_leader(), "two lead");
    assert_eq!(leader.lost().await, LostReason::Expired);
    assert!(next.fence() > leader.fence());
}

async fn a_withdrawn_candidate_never_leads(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let leader = one.election("scheduler").ttl(LONG).campaign("first").await.expect("elected");
    let candidate = other.election("scheduler").ttl(LONG);
    let campaign = tokio::spawn(async move { candidate.campaign("second").await.map(drop) });
    queue_of(&one, "scheduler", 1).await;
    cancel(campaign).await;
    queue_of(&one, "scheduler", 0).await;
    drop(leader);
    eventually("nobody leads", || async { leader_seen_by(&one).await.is_none() }).await;
}
