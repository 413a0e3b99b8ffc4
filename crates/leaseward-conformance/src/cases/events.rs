//! What a client says about itself.

use leaseward::{ErrorKind, Event, EventKind, Fence, LostReason, Release};

use crate::{
    Case, Fixture, Kind,
    case::case,
    support::{Heard, KEPT, LONG, Logs, SHORT, asking, busy, eventually, granted, take},
};

pub(super) const CASES: &[Case] = &[
    case!(a_lease_is_told_from_beginning_to_end),
    case!(waits_are_told).timed(),
    case!(asking_is_not_waiting),
    case!(renewals_are_told).timed(),
    case!(losses_are_told).timed(),
    case!(events_are_logged_in_the_callers_span).timed(),
    case!(no_token_is_ever_shown).timed(),
    case!(a_listener_that_panics_costs_no_lease).timed(),
];

fn is_about(event: &Event, name: &str, fence: Fence) {
    assert_eq!(event.name.as_ref().map(|name| name.as_str()), Some(name), "{event:?}");
    assert_eq!(event.fence, Some(fence), "{event:?}");
}

async fn a_lease_is_told_from_beginning_to_end(fixture: &Fixture) {
    let locks = fixture.client().await;
    let heard = Heard::of(&locks);
    let guard = take(&locks.lock("x").ttl(LONG)).await;
    let fence = guard.fence();
    let acquired = heard.first(EventKind::Acquired).await;
    is_about(&acquired, "x", fence);
    assert_eq!(acquired.ttl_ms, Some(3_600_000));
    assert!(acquired.wait_us.is_some() && acquired.token_prefix.is_some());
    guard.release().await.expect("given back");
    let released = heard.first(EventKind::Released).await;
    is_about(&released, "x", fence);
    assert!(released.hold_us.is_some());
    assert_eq!(released.token_prefix, acquired.token_prefix);
    drop(take(&locks.lock("y").ttl(LONG)).await);
    let dropped = heard.nth(EventKind::Released, 2).await;
    assert_eq!(dropped.name.as_ref().map(|name| name.as_str()), Some("y"));
}

async fn waits_are_told(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let heard = Heard::of(&other);
    let held = take(&one.lock("x").ttl(LONG)).await;
    busy(&other.lock("x")).await;
    heard.first(EventKind::Refused).await;
    let error = other.lock("x").wait(SHORT).acquire().await.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(heard.first(EventKind::TimedOut).await.wait_us.is_some());
    // On a slow machine the time was over before the store had said that it is held.
    let before = heard.all().iter().filter(|event| event.kind == EventKind::Waiting).count();
    let waiting = asking(other.lock("x").ttl(LONG));
    heard.nth(EventKind::Waiting, before + 1).await;
    held.release().await.expect("given back");
    let guard = granted(waiting).await;
    is_about(&heard.first(EventKind::Acquired).await, "x", guard.fence());
}

/// Those who ask at the same time go out together, and the share of those who waited is what people are woken up for.
async fn asking_is_not_waiting(fixture: &Fixture) {
    const MANY: usize = 32;
    let locks = fixture.client().await;
    let heard = Heard::of(&locks);
    let all: Vec<_> = (0..MANY).map(|at| asking(locks.lock(format!("x{at}")).ttl(LONG))).collect();
    for one in all {
        granted(one).await.release().await.expect("given back");
    }
    heard.nth(EventKind::Acquired, MANY).await;
    let waited = heard.all().iter().filter(|event| event.kind == EventKind::Waiting).count();
    assert_eq!(waited, 0, "nobody held what they asked for");
}

async fn renewals_are_told(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    let heard = Heard::of(&locks);
    let _guard = take(&locks.lock("x").ttl(SHORT * 5)).await;
    heard.first(EventKind::Renewed).await;
    line.cut();
    let failed = heard.first(EventKind::RenewalFailed).await;
    assert!(failed.message.is_some(), "it says why");
    line.heal();
    let renewed = heard.all().iter().filter(|event| event.kind == EventKind::Renewed).count();
    heard.nth(EventKind::Renewed, renewed + 1).await;
}

async fn losses_are_told(fixture: &Fixture) {
    let locks = fixture.client().await;
    let heard = Heard::of(&locks);
    let guard = take(&locks.lock("x").ttl(SHORT).no_renewal()).await;
    guard.lost().await;
    let lost = heard.first(EventKind::Lost).await;
    is_about(&lost, "x", guard.fence());
    assert_eq!(lost.reason, Some(LostReason::Expired));
    let fence = guard.fence();
    guard.release().await.expect("answered");
    let late = heard.first(EventKind::ExpiredBeforeRelease).await;
    is_about(&late, "x", fence);
    assert!(late.hold_us.is_some());
    assert!(late.message.is_some_and(|hint| hint.contains("TTL")), "it says what to do");
}

async fn events_are_logged_in_the_callers_span(fixture: &Fixture) {
    use tracing::Instrument;
    let logs = Logs::keep();
    let locks = fixture.client().await;
    let lock = locks.lock("x").ttl(SHORT).no_renewal();
    let work = async {
        let guard = take(&lock).await;
        guard.lost().await;
    };
    work.instrument(tracing::info_span!("request", trace_id = "4bf92f35")).await;
    eventually("the loss is logged", || async { logs.text().contains("lost") }).await;
    for line in logs.text().lines().filter(|line| line.contains("leaseward:")) {
        let matters = line.contains("acquired") || line.contains(" lost");
        assert!(!matters || line.contains("4bf92f35"), "outside of the caller's span: {line}");
    }
}

/// Everything a program might print, and nothing of it holds more of a token than its beginning.
async fn no_token_is_ever_shown(fixture: &Fixture) {
    let logs = Logs::keep();
    let (locks, line) = fixture.faulty().await;
    let heard = Heard::of(&locks);
    let other = fixture.client().await;
    let mut shown = String::new();
    let lock = locks.lock("x").ttl(SHORT * 5);
    let handle = take(&lock).await.detach();
    let guard = locks.attach(&handle).await.expect("held");
    shown += &format!("{locks:?} {lock:?} {guard:?} {:?} {handle:?}", guard.lease());
    let error = other.lock("x").wait(SHORT).acquire().await.expect_err("it is held");
    shown += &format!("{error} {error:?} {:?}", busy(&other.lock("x")).await);
    line.cut();
    let error = guard.renew().await.expect_err("the line is cut");
    shown += &format!("{error} {error:?}");
    guard.lost().await;
    fixture.until(guard.deadline() + SHORT).await;
    line.heal();
    let error = other.attach(&handle).await.expect_err("it is lost");
    shown +=
        &format!("{error} {error:?} {:?}", other.inspect(leaseward::store::Query::all()).await);
    shown += &serde_json::to_string(&heard.all()).expect("events can be written");
    shown += &logs.text();
    let json = serde_json::to_value(&handle).expect("a handle can be written");
    let token = json["token"].as_str().expect("the secret itself");
    assert!(shown.contains(&token[..8]), "its beginning is there, so the rest was looked for");
    assert!(!shown.contains(&token[..9]), "a token was shown");
}

async fn a_listener_that_panics_costs_no_lease(fixture: &Fixture) {
    let (locks, line) = fixture.faulty().await;
    locks.on_event(|event| {
        if event.kind == EventKind::Renewed {
            // A panic without a word: this one is meant.
            std::panic::resume_unwind(Box::new("it does not like renewals"));
        }
    });
    let guard = take(&locks.lock("x").ttl(KEPT)).await;
    line.sent(Kind::Renew, 3).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.expect("answered"), Release::Released);
}
