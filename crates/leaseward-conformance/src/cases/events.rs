//! What a client says about itself.

use std::{thread, time::Duration};

use leaseward::{ErrorKind, Event, EventKind, Fence, LostReason, MultiAttempt, Release};

use crate::{
    Case, Fate, Fixture, Kind,
    case::case,
    support::{
        Heard, KEPT, LONG, Logs, SHORT, asking, busy, eventually, granted, join, on_own_runtime,
        take,
    },
};

pub(super) const CASES: &[Case] = &[
    case!(a_lease_is_told_from_beginning_to_end),
    case!(waits_are_told).timed(),
    case!(retries_are_told_as_one_wait).timed(),
    case!(several_names_are_told).timed(),
    case!(asking_is_not_waiting),
    case!(renewals_are_told).timed(),
    case!(losses_are_told).timed(),
    case!(a_loss_found_at_the_release_is_told_once),
    case!(a_trace_stands_with_all_that_happens).timed(),
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

/// How often events of each of these kinds were heard.
fn count<const N: usize>(heard: &Heard, kinds: [EventKind; N]) -> [usize; N] {
    let all = heard.all();
    kinds.map(|kind| all.iter().filter(|event| event.kind == kind).count())
}

async fn retries_are_told_as_one_wait(fixture: &Fixture) {
    use EventKind::{Refused, TimedOut, Waiting};
    let (one, other) = (fixture.client().await, fixture.client().await);
    let heard = Heard::of(&other);
    let held = take(&one.lock("x").ttl(LONG)).await;
    let pause = Duration::from_millis(1);
    let error = other.lock("x").retry(pause, pause, 3).acquire().await.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(heard.first(TimedOut).await.wait_us.is_some());
    assert_eq!(count(&heard, [Waiting, Refused, TimedOut]), [1, 0, 1]);
    let waiting = asking(other.lock("x").ttl(LONG).retry(SHORT / 30, SHORT / 30, u32::MAX));
    let began = heard.nth(Waiting, 2).await;
    held.release().await.expect("given back");
    granted(waiting).await.release().await.expect("given back");
    let acquired = heard.first(EventKind::Acquired).await;
    assert!(acquired.wait_us.is_some_and(|wait| wait > 0), "from the first try: {acquired:?}");
    assert!(acquired.at_us >= began.at_us);
    assert_eq!(count(&heard, [Waiting, Refused, TimedOut]), [2, 0, 1]);
}

async fn several_names_are_told(fixture: &Fixture) {
    use EventKind::{Acquired, Refused, Released, TimedOut, Waiting};
    let (one, other) = (fixture.client().await, fixture.client().await);
    let heard = Heard::of(&other);
    let both = other.all(["a", "b"]).ttl(LONG);
    both.acquire().await.expect("granted").release().await.expect("given back");
    heard.nth(Released, 2).await;
    assert_eq!(count(&heard, [Acquired, Refused, TimedOut]), [2, 0, 0]);
    let _held = take(&one.lock("a").ttl(LONG)).await;
    assert!(matches!(both.try_acquire().await.expect("answered"), MultiAttempt::Busy(_)));
    heard.first(Refused).await;
    let error = both.clone().wait(SHORT).acquire().await.expect_err("one of them is held");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(heard.first(TimedOut).await.wait_us.is_some());
    let [refused, timed_out, waiting] = count(&heard, [Refused, TimedOut, Waiting]);
    // On a slow machine the time was over before the store had said that it is held.
    assert!((refused, timed_out) == (1, 1) && waiting <= 1, "{:?}", heard.all());
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
    line.sent(Kind::Renew, line.seen(Kind::Renew) + 3).await;
    line.heal();
    let [renewed] = count(&heard, [EventKind::Renewed]);
    heard.nth(EventKind::Renewed, renewed + 1).await;
    assert_eq!(count(&heard, [EventKind::RenewalFailed]), [1], "one for all in a row");
    line.next(Kind::Renew, [Fate::Refuse]);
    heard.nth(EventKind::RenewalFailed, 2).await;
}

async fn losses_are_told(fixture: &Fixture) {
    let locks = fixture.client().await;
    let heard = Heard::of(&locks);
    let guard = take(&locks.lock("x").ttl(SHORT).no_renewal()).await;
    guard.lost().await;
    let lost = heard.first(EventKind::Lost).await;
    is_about(&lost, "x", guard.fence());
    assert_eq!(lost.reason, Some(LostReason::Expired));
    assert!(lost.hold_us.is_some());
    assert!(lost.message.is_some_and(|hint| hint.contains("TTL")), "it says what to do");
    assert_eq!(guard.release().await.expect("answered"), Release::AlreadyExpired);
    assert_eq!(count(&heard, LOSSES), [1, 0], "once");
}

const LOSSES: [EventKind; 2] = [EventKind::Lost, EventKind::ExpiredBeforeRelease];

async fn a_loss_found_at_the_release_is_told_once(fixture: &Fixture) {
    let thread = on_own_runtime(fixture, |fixture| async move {
        let locks = fixture.client().await;
        let heard = Heard::of(&locks);
        for way in ["released", "dropped"] {
            let guard = take(&locks.lock(way).ttl(SHORT).no_renewal()).await;
            let fence = guard.fence();
            // What minds leases runs on this thread, and learns nothing before the guard is done.
            while guard.is_held() {
                thread::sleep(Duration::from_millis(1));
            }
            match way {
                "dropped" => drop(guard),
                _ => assert_eq!(guard.release().await.expect("told"), Release::AlreadyExpired),
            }
            let told: Vec<_> = heard.all();
            let losses: Vec<_> = told.iter().filter(|event| LOSSES.contains(&event.kind)).collect();
            let about =
                |event: &&&Event| event.name.as_ref().is_some_and(|name| name.as_str() == way);
            assert_eq!(losses.iter().filter(about).count(), 1, "{way}: {losses:?}");
            let late = losses.last().expect("one");
            is_about(late, way, fence);
            assert!(late.message.as_ref().is_some_and(|hint| hint.contains("TTL")), "{late:?}");
        }
        assert_eq!(count(&heard, [EventKind::Released]), [0]);
    });
    join(thread).await;
}

async fn a_trace_stands_with_all_that_happens(fixture: &Fixture) {
    let locks = fixture.client().await;
    let heard = Heard::of(&locks);
    let traced = locks.lock("x").ttl(SHORT * 5).trace_id("4bf92f35");
    let guard = take(&traced).await;
    busy(&traced).await;
    let waiting = asking(traced.clone().trace_id("a3ce929d"));
    heard.first(EventKind::Waiting).await;
    heard.first(EventKind::Renewed).await;
    guard.release().await.expect("given back");
    drop(granted(waiting).await);
    heard.nth(EventKind::Released, 2).await;
    take(&locks.lock("y")).await.release().await.expect("given back");
    for event in heard.all() {
        let of_y = event.name.as_ref().is_some_and(|name| name.as_str() == "y");
        assert_eq!(event.trace_id.is_some(), !of_y, "{event:?}");
    }
    let last = heard.nth(EventKind::Released, 2).await;
    assert_eq!(last.trace_id.as_deref(), Some("a3ce929d"), "each caller's own");
}

async fn events_are_logged_in_the_callers_span(fixture: &Fixture) {
    use tracing::Instrument;
    let logs = Logs::keep();
    let locks = fixture.client().await;
    let work = async {
        let guard = take(&locks.lock("x").ttl(SHORT).no_renewal()).await;
        guard.lost().await;
        (guard, take(&locks.lock("y").ttl(SHORT * 5)).await)
    };
    let guards = work.instrument(tracing::info_span!("request", trace_id = "4bf92f35")).await;
    eventually("the loss is logged", || async { logs.text().contains(" lost ") }).await;
    eventually("the renewal is logged", || async { logs.text().contains(" renewed ") }).await;
    // Somewhere else.
    drop(guards);
    for what in [" acquired ", " lost ", " renewed ", " released "] {
        let text = logs.text();
        let lines = text.lines().filter(|line| line.contains("leaseward:") && line.contains(what));
        let outside: Vec<_> = lines.clone().filter(|line| !line.contains("4bf92f35")).collect();
        assert!(outside.is_empty() && lines.count() > 0, "{what}: {outside:?}\n{text}");
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
