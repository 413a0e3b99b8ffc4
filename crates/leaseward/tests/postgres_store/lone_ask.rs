//! An ask that comes alone, beside the same ask among others.

use std::time::Duration;

use leaseward::{
    Mode,
    store::{Answer, IfBusy, Operation, Reply, Standing},
};

use crate::{
    help::{LONG, ask, granted, holding_fence, listen, one, open, releasing, server, taking},
    lone::{Before, PLAIN, standing, told},
};

/// Who asks, how, and how the name stands before.
struct Case {
    before: Before,
    who: u128,
    if_busy: IfBusy,
}

/// Of one who has nothing yet.
const fn stranger(before: Before, if_busy: IfBusy) -> Case {
    Case { before, who: 9, if_busy }
}

const FREE: &str = "UPDATE leaseward.leases SET token = NULL, who = NULL, first = NULL, len = NULL, condition = NULL,
    ttl_us = NULL, delay_us = NULL, since_us = NULL, expires_us = NULL WHERE name = '{}'";
const EXPIRED: &str = "UPDATE leaseward.leases SET expires_us = 1 WHERE name = '{}'";
const DELAYED: &str = "UPDATE leaseward.leases SET delay_us = 3600000000 - expires_us
    + (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, expires_us = expires_us - 7200000000 WHERE name = '{}'";
const BROKEN: &str = "UPDATE leaseward.leases SET condition = 1 WHERE name = '{}'";
const KEPT: &str =
    "UPDATE leaseward.leases SET condition = 2, delay_us = 3600000000 WHERE name = '{}'";
const FIRST_DEAD: &str = "UPDATE leaseward.places SET expires_us = 1 WHERE name = '{}' AND seq = 1";
const SECOND_DEAD: &str =
    "UPDATE leaseward.places SET expires_us = 1 WHERE name = '{}' AND seq = 2";

/// Each for one who waits if need be and for one who does not.
fn cases() -> Vec<Case> {
    use IfBusy::{Queue, Tell};
    let mut cases = Vec::new();
    for if_busy in [Queue, Tell] {
        let strangers = [
            Before { what: "free", sql: FREE, ..PLAIN },
            Before { what: "held", ..PLAIN },
            Before { what: "line", others: &[2, 3], ..PLAIN },
            Before { what: "own-line", own: &[2], ..PLAIN },
            Before { what: "first-dead", others: &[2, 3], sql: FIRST_DEAD, ..PLAIN },
            Before { what: "second-dead", others: &[2, 3], sql: SECOND_DEAD, ..PLAIN },
            Before { what: "only-dead", others: &[2], sql: FIRST_DEAD, ..PLAIN },
            Before { what: "expired", sql: EXPIRED, ..PLAIN },
            Before { what: "delayed", sql: DELAYED, ..PLAIN },
            Before { what: "broken", sql: BROKEN, ..PLAIN },
            Before { what: "kept", sql: KEPT, ..PLAIN },
            Before { what: "ready", others: &[2], sql: FREE, told: Some(2), ..PLAIN },
            Before { what: "overdue", others: &[2], sql: EXPIRED, told: Some(2), ..PLAIN },
            Before { what: "readers", mode: Mode::Shared, ..PLAIN },
            Before { what: "permits", mode: Mode::Permit { capacity: 2 }, ..PLAIN },
        ];
        cases.extend(strangers.map(|before| stranger(before, if_busy)));
        let holders = [
            Before { what: "again", ..PLAIN },
            Before { what: "again-line", others: &[2], ..PLAIN },
            Before { what: "again-expired", sql: EXPIRED, ..PLAIN },
            Before { what: "again-broken", sql: BROKEN, ..PLAIN },
        ];
        cases.extend(holders.map(|before| Case { before, who: 1, if_busy }));
        let waiting = [
            Before { what: "place", own: &[2], ..PLAIN },
            Before { what: "second-place", others: &[3], own: &[2], ..PLAIN },
        ];
        cases.extend(waiting.map(|before| Case { before, who: 2, if_busy }));
    }
    cases
}

/// What was answered, but for the time and the fences, which differ.
fn gist(answer: &Answer) -> String {
    let minutes = |span: Duration| (span.as_secs_f64() / 60.0).round();
    let standing = |standing: &Standing| {
        let holder = standing.holder.as_ref();
        let held = holder.map(|held| (held.who.clone(), held.mode, held.remaining.map(minutes)));
        format!("{held:?} {:?} {}", standing.free_in.map(minutes), standing.ahead)
    };
    match answer {
        Ok(Reply::Granted(grant)) => {
            let (len, evidence) = (grant.block.len, grant.evidence);
            format!("granted {len} {:?} {:?} {evidence:?} {}", grant.slot, grant.ttl, grant.waiters)
        }
        Ok(Reply::Queued(place)) => format!("queued {}", standing(&place.standing)),
        Ok(Reply::Busy(busy)) => format!("busy {}", standing(busy)),
        other => format!("{other:?}"),
    }
}

/// The newest fence that an answer tells of.
fn newest(answer: &Answer) -> Option<u64> {
    match answer {
        Ok(Reply::Granted(grant)) => Some(grant.fence().get() + u64::from(grant.block.len) - 1),
        Ok(Reply::Queued(place)) => Some(place.last_fence.get()),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_ask_does_what_one_among_others_does() {
    let server = server();
    let (store, other) = (open(&server.url()).await, open(&server.url()).await);
    let heard = listen(&*other);
    for Case { before, who, if_busy } in cases() {
        let what = format!("{}-{who}-{if_busy:?}", before.what);
        let mut seen = Vec::new();
        for name in [format!("{what}-alone"), format!("{what}-among")] {
            before.arrange(&server, &*store, &*other, &name).await;
            let mut wish = ask(&name, who, if_busy, LONG);
            wish.block = 3;
            let answer = if name.ends_with("alone") {
                one(&*store, Operation::Ask(wish)).await
            } else {
                let filler = taking(&format!("{name}-filler"), 1);
                store.carry_out(vec![Operation::Ask(wish), filler]).await.swap_remove(0)
            };
            let told = before.told.map(|first| {
                let (told, waiters) = told(&heard, &name);
                assert_eq!(told, first, "{name}");
                waiters
            });
            let last =
                server.sql(&format!("SELECT last FROM leaseward.leases WHERE name = '{name}'"));
            if let Some(newest) = newest(&answer).filter(|_| told.is_none()) {
                assert_eq!(newest.to_string(), last, "{name}: {answer:?}");
            }
            seen.push((gist(&answer), told, standing(&server, &name)));
        }
        assert_eq!(seen[0], seen[1], "{what}");
        assert!(!seen[0].2.is_empty(), "{what} has no row");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_ask_under_a_held_fence_does_not_wait_for_it() {
    let server = server();
    let store = open(&server.url()).await;
    granted(one(&*store, taking("a", 1)).await);
    one(&*store, releasing("a", 1)).await.expect("given back");
    let holding = holding_fence(&server.url(), "a").await;
    let answer = one(&*store, taking("a", 2)).await;
    assert!(matches!(&answer, Ok(Reply::Busy(busy)) if busy.holder.is_some()), "{answer:?}");
    holding.batch_execute("COMMIT").await.expect("ended");
    granted(one(&*store, taking("a", 2)).await);
    // Whoever waited for the row was told to stop.
    assert!(!server.log().contains("lock timeout"), "{}", server.log());
}
