//! What cannot be meant is refused, and nothing changes.

use std::time::Duration;

use leaseward::{ErrorKind, Lock, TTL_MAX, TTL_MIN, VALUE_MAX_BYTES, store::Query};

use crate::{
    Case, Fixture,
    case::case,
    support::{LONG, take},
};

pub(super) const CASES: &[Case] =
    &[case!(durations_out_of_range_are_refused), case!(an_over_long_value_is_refused)];

const YEARS: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

async fn durations_out_of_range_are_refused(fixture: &Fixture) {
    let locks = fixture.client().await;
    let lock = || locks.lock("x");
    let bad: [(&str, Lock); 10] = [
        ("no TTL", lock().ttl(Duration::ZERO)),
        ("a TTL too short", lock().ttl(TTL_MIN - Duration::from_millis(1))),
        ("a TTL too long", lock().ttl(TTL_MAX + Duration::from_millis(1))),
        ("a TTL without end", lock().ttl(Duration::MAX)),
        ("an absurd wait", lock().wait(YEARS)),
        ("a wait without end", lock().wait(Duration::MAX)),
        ("no renewal interval", lock().renew_every(Duration::ZERO)),
        ("a renewal after the end", lock().ttl(LONG).renew_every(LONG)),
        ("an absurd hold", lock().max_hold(YEARS)),
        ("an absurd minimum hold", lock().min_hold(YEARS)),
    ];
    for (what, lock) in &bad {
        let error = lock.acquire().await.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{what}: {error}");
        assert!(error.hint_text().is_some(), "{what}: {error}");
    }
    let guard = take(&lock().ttl(LONG)).await;
    let error = guard.extend(YEARS).await.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    guard.release().await.expect("given back");
    assert!(locks.inspect(Query::all()).await.expect("answered").is_empty(), "nothing changed");
}

async fn an_over_long_value_is_refused(fixture: &Fixture) {
    let locks = fixture.client().await;
    let lock = locks.lock("x").value(vec![0; VALUE_MAX_BYTES + 1]);
    let error = lock.acquire().await.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(locks.inspect(Query::all()).await.expect("answered").is_empty(), "nothing changed");
}
