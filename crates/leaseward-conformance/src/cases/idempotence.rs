//! Requests and replies are lost and repeated, and it makes no difference.

use std::{sync::Arc, time::Duration};

use leaseward::{
    Attempt, ErrorKind, Locks, Name, Release,
    store::{IfBusy, Operation, Push, Reply},
};

use crate::{
    Case, Fate, Fixture, Kind, Need,
    case::case,
    support::{
        Bare, LONG, SHORT, Witness, asking, eventually, granted, held_with, queue_of, take, view,
    },
};

pub(super) const CASES: &[Case] = &[
    case!(asking_again_is_granted_again).timed(),
    case!(asking_again_keeps_the_place, Need::Queue),
    case!(an_expired_grant_is_never_revived).timed(),
    case!(a_lost_grant_ends_in_mine),
    case!(a_lost_request_is_sent_again),
    case!(a_try_with_a_lost_reply_ends_in_mine),
    case!(a_refused_request_is_an_error_at_once),
    case!(lost_replies_keep_the_place, Need::Queue).timed(),
    case!(a_store_that_never_answers_is_an_error),
    case!(a_lost_renewal_is_sent_again).timed(),
    case!(a_lost_release_means_released),
    case!(a_release_in_doubt_after_the_deadline_is_indeterminate).timed(),
    case!(everything_may_arrive_twice),
    case!(a_grant_for_an_unknown_token_is_given_back, Need::Records),
    case!(a_bad_line_never_makes_two_holders),
];

/// So many rounds are tried, each with twice the TTL of the one before.
const SLOW_ROUNDS: u32 = 4;

/// Rule R4. A round for which the machine was too slow shows nothing, and there is another with more time.
async fn asking_again_is_granted_again(fixture: &Fixture) {
    let (bare, other) = (fixture.bare().await, fixture.client().await);
    for round in 0..SLOW_ROUNDS {
        let ttl = SHORT * 4 * 2_u32.pow(round);
        if is_granted_again(fixture, &bare, &other, &format!("x{round}"), ttl).await {
            return;
        }
    }
    panic!("this machine is too slow for leases of seconds");
}

/// `false` if it took so long that the lease may have ended by itself.
async fn is_granted_again(
    fixture: &Fixture,
    bare: &Bare,
    other: &Locks,
    name: &str,
    ttl: Duration,
) -> bool {
    let token = bare.token();
    let ask = || bare.asks_for(name, &token, ttl, IfBusy::Queue);
    let begun = fixture.now();
    let first = bare.granted(ask()).await;
    let answered = fixture.now();
    fixture.until(answered + ttl / 2).await;
    let asked_again = fixture.now();
    let again = bare.send(Operation::Ask(ask())).await.expect("the store answers");
    if fixture.now() >= begun + ttl {
        return false;
    }
    let Reply::Granted(again) = again else { panic!("not granted again: {again:?}") };
    assert_eq!(again.block, first.block, "the same fence");
    assert_eq!(again.ttl, ttl);
    // What the first ask gave is over by then.
    fixture.until(answered + ttl + ttl / 8).await;
    let tried = other.lock(name).try_acquire().await.expect("the store answers");
    let released = bare.release(name, &token).await;
    if fixture.now() >= asked_again + ttl {
        return false;
    }
    assert!(matches!(tried, Attempt::Busy(_)), "{tried:?}");
    released.expect("the expiry was set anew");
    true
}

async fn asking_again_keeps_the_place(fixture: &Fixture) {
    let (bare, other) = (fixture.bare().await, fixture.client().await);
    let [holder, first, second] = [bare.token(), bare.token(), bare.token()];
    assert!(matches!(bare.ask("x", &holder, LONG).await, Reply::Granted(_)));
    for token in [&first, &second, &first, &second, &first] {
        let reply = bare.ask("x", token, LONG).await;
        let Reply::Queued(place) = reply else { panic!("a place was expected, not {reply:?}") };
        assert_eq!(place.standing.ahead, u32::from(*token == second));
    }
    assert_eq!(view(&other, "x").await.waiters.len(), 2);
    bare.release("x", &holder).await.expect("given back");
    assert!(matches!(bare.ask("x", &first, LONG).await, Reply::Granted(_)));
    assert!(matches!(bare.ask("x", &second, LONG).await, Reply::Queued(_)));
}

/// Rule R5: nothing is answered from a record of past grants.
async fn an_expired_grant_is_never_revived(fixture: &Fixture) {
    let (bare, other) = (fixture.bare().await, fixture.bare().await);
    let (old, new) = (bare.token(), other.token());
    let before = fixture.now();
    let first = bare.granted(bare.asks_for("x", &old, SHORT, IfBusy::Tell)).await;
    fixture.until(before + SHORT * 2).await;
    let next = other.granted(other.asks_for("x", &new, LONG, IfBusy::Tell)).await;
    assert!(next.fence() > first.fence());
    bare.renew("x", &old, LONG).await.expect_err("it has ended");
    let reply = bare.ask("x", &old, LONG).await;
    assert!(!matches!(reply, Reply::Granted(_)), "{reply:?}");
    other.release("x", &new).await.expect("given back");
    if let Reply::Granted(again) = bare.ask("x", &old, LONG).await {
        assert!(again.fence() > next.fence(), "a new hold has a new fence");
    }
}

async fn a_lost_grant_ends_in_mine(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    line.next(Kind::Ask, [Fate::LoseReply, Fate::LoseReply]);
    let guard = one.lock("x").ttl(LONG).acquire().await.expect("mine, in the end");
    assert!(view(&other, "x").await.waiters.is_empty(), "it waits behind its own ghost");
    // With the fence of the first grant.
    held_with(&other, "x", guard.fence()).await;
    assert_eq!(guard.release().await.expect("given back"), Release::Released);
    assert!(take(&other.lock("x")).await.is_held());
}

async fn a_lost_request_is_sent_again(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    line.next(Kind::Ask, [Fate::LoseRequest, Fate::LoseRequest]);
    let guard = one.lock("x").ttl(LONG).acquire().await.expect("in the end");
    assert!(guard.is_held());
    assert_eq!(line.seen(Kind::Ask), 3);
}

async fn a_try_with_a_lost_reply_ends_in_mine(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    line.next(Kind::Ask, [Fate::LoseReply]);
    let guard = take(&one.lock("x").ttl(LONG)).await;
    held_with(&other, "x", guard.fence()).await;
}

async fn a_refused_request_is_an_error_at_once(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    line.next(Kind::Ask, [Fate::Refuse]);
    let error = one.lock("x").acquire().await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(take(&one.lock("x")).await.is_held(), "nothing was left behind");
}

async fn lost_replies_keep_the_place(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    let held = take(&other.lock("x").ttl(LONG)).await;
    line.next(Kind::Ask, [Fate::LoseReply, Fate::Through, Fate::LoseReply, Fate::LoseRequest]);
    let first = asking(one.lock("x").ttl(SHORT * 4));
    line.sent(Kind::Ask, 2).await;
    let second = asking(other.lock("x").ttl(LONG));
    line.sent(Kind::Ask, 5).await;
    held.release().await.expect("given back");
    let first = granted(first).await;
    let fence = first.fence();
    first.release().await.expect("given back");
    assert!(granted(second).await.fence() > fence);
}

async fn a_store_that_never_answers_is_an_error(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    line.always(Fate::LoseReply);
    let error = one.lock("x").ttl(LONG).acquire().await.expect_err("nobody knows");
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    line.heal();
    assert!(other.lock("x").acquire().await.expect("it comes free").is_held());
}

async fn a_lost_renewal_is_sent_again(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let guard = take(&one.lock("x").ttl(SHORT * 10)).await;
    line.next(Kind::Renew, [Fate::LoseReply]);
    let error = guard.renew().await.expect_err("nobody knows");
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(guard.is_held(), "until its deadline");
    line.sent(Kind::Renew, 2).await;
    guard.renew().await.expect("it is ours");
    assert_eq!(guard.release().await.expect("given back"), Release::Released);
}

async fn a_lost_release_means_released(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    for fates in [
        &[Fate::LoseReply][..],
        &[Fate::LoseRequest],
        &[Fate::Refuse],
        &[Fate::LoseReply, Fate::LoseRequest, Fate::Refuse, Fate::LoseReply],
    ] {
        let guard = take(&one.lock("x").ttl(LONG)).await;
        line.next(Kind::Release, fates.iter().copied());
        let released = guard.release().await.expect("known in the end");
        assert_eq!(released, Release::Released, "{fates:?}");
        take(&other.lock("x")).await.release().await.expect("given back");
    }
}

async fn a_release_in_doubt_after_the_deadline_is_indeterminate(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let guard = take(&one.lock("x").ttl(SHORT * 4).no_renewal()).await;
    let deadline = guard.deadline();
    line.next(Kind::Release, [Fate::LoseReply, Fate::HoldRequest]);
    let releasing = tokio::spawn(guard.release());
    line.held_back(1).await;
    fixture.until(deadline).await;
    line.let_go();
    let error = releasing.await.expect("no panic").expect_err("nobody can know");
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
}

async fn everything_may_arrive_twice(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let other = fixture.client().await;
    line.always(Fate::Repeat);
    let guard = take(&one.lock("x").ttl(LONG)).await;
    assert_eq!(view(&other, "x").await.holders.len(), 1);
    guard.renew().await.expect("it is ours");
    let waiting = asking(other.lock("x").ttl(LONG));
    queue_of(&other, "x", 1).await;
    let fence = guard.fence();
    // The second release finds nothing of ours: it must not touch the next holder's lease.
    guard.release().await.expect("answered");
    let next = granted(waiting).await;
    assert!(next.fence() > fence && next.is_held());
    let waiting = asking(one.lock("x").ttl(LONG));
    queue_of(&other, "x", 1).await;
    next.release().await.expect("given back");
    assert!(granted(waiting).await.is_held());
}

async fn a_grant_for_an_unknown_token_is_given_back(fixture: &Fixture) {
    let (one, line) = fixture.faulty().await;
    let (bare, other) = (fixture.bare().await, fixture.client().await);
    let token = bare.token();
    let grant = bare.granted(bare.asks_for("x", &token, LONG, IfBusy::Tell)).await;
    line.push(Push::Granted { name: Name::new("x").expect("a good name"), token, grant });
    assert!(other.lock("x").acquire().await.expect("it comes free").is_held());
    drop(one);
}

/// Any seed must do; it is fixed so that a failure can be repeated, and `LEASEWARD_SEED` tries another.
const SEED: u64 = 20_241_115;

fn seed() -> u64 {
    let asked = std::env::var("LEASEWARD_SEED").ok();
    asked.map_or(SEED, |seed| seed.parse().expect("`LEASEWARD_SEED` is a whole number"))
}

const CLIENTS: u64 = 3;
const ROUNDS: usize = 12;

async fn a_bad_line_never_makes_two_holders(fixture: &Fixture) {
    let seed = seed();
    let witness = Arc::new(Witness::default());
    let mut tasks = Vec::new();
    for at in 0..CLIENTS {
        let (locks, line) = fixture.faulty_with(|builder| builder.seed(seed + at)).await;
        fixture.watch(&locks);
        line.chaos(seed + at);
        for _ in 0..2 {
            let (lock, witness) = (locks.lock("x").ttl(SHORT * 10), witness.clone());
            tasks.push(tokio::spawn(async move {
                let mut rounds = 0;
                while rounds < ROUNDS {
                    let Ok(guard) = lock.acquire().await else {
                        // Refused or never answered: nothing is held, try again. Not at once: the server needs the
                        // machine more than a loop that is refused by the breaker.
                        tokio::time::sleep(SHORT / 30).await;
                        continue;
                    };
                    let inside = witness.enter(guard.fence());
                    tokio::task::yield_now().await;
                    let held = guard.is_held();
                    drop(inside);
                    assert!(held, "the lease ended within its TTL");
                    // Not always known, never wrong.
                    let _ = guard.release().await;
                    rounds += 1;
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    // What arrived late was found, too: nobody would ever get the lock behind it.
    let other = fixture.client().await;
    eventually("nothing is left behind", || async {
        let seen = view(&other, "x").await;
        seen.holders.is_empty() && seen.waiters.is_empty()
    })
    .await;
}
