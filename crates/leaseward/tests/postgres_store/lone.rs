//! What comes alone goes a short way through the database: it does what it would do among others.

use std::sync::mpsc;

use leaseward::{
    Mode,
    store::{IfBusy, Operation, Push, Reply, Store},
};
use leaseward_testkit::{PATIENCE, Postgres};

use crate::help::{
    LONG, ask, granted, holding_fence, listen, one, open, queueing, releasing, server, taking,
    try_open,
};

/// How a name stands before its first holder, 1, gives it back, or before somebody asks for it.
pub(crate) struct Before {
    pub(crate) what: &'static str,
    pub(crate) mode: Mode,
    /// How those who wait want it.
    pub(crate) wanted: Mode,
    /// Who waits, of the client that gives back and then of another.
    pub(crate) own: &'static [u128],
    pub(crate) others: &'static [u128],
    /// What happened to the rows of the name `{}`.
    pub(crate) sql: &'static str,
    /// Who is told in the end.
    pub(crate) told: Option<u128>,
}

pub(crate) const PLAIN: Before = Before {
    what: "nobody",
    mode: Mode::Exclusive,
    wanted: Mode::Exclusive,
    own: &[],
    others: &[],
    sql: "",
    told: None,
};

const CASES: [Before; 12] = [
    PLAIN,
    Before { what: "another", others: &[2], told: Some(2), ..PLAIN },
    Before { what: "two", others: &[2, 3], told: Some(2), ..PLAIN },
    Before { what: "own", own: &[2], told: Some(2), ..PLAIN },
    Before { what: "own-first", own: &[2], others: &[3], told: Some(2), ..PLAIN },
    Before {
        what: "dead-first",
        others: &[2, 3],
        sql: "UPDATE leaseward.places SET expires_us = 1 WHERE name = '{}' AND seq = 1",
        told: Some(3),
        ..PLAIN
    },
    Before {
        what: "expired",
        others: &[2],
        sql: "UPDATE leaseward.leases SET expires_us = 1, delay_us = 1e16 WHERE name = '{}'",
        told: Some(2),
        ..PLAIN
    },
    Before {
        what: "broken",
        others: &[2],
        sql: "UPDATE leaseward.leases SET condition = 1 WHERE name = '{}'",
        told: Some(2),
        ..PLAIN
    },
    Before { what: "reader", wanted: Mode::Shared, others: &[2], told: Some(2), ..PLAIN },
    Before {
        what: "permits",
        wanted: Mode::Permit { capacity: 3 },
        others: &[2],
        told: Some(2),
        ..PLAIN
    },
    Before { what: "shared", mode: Mode::Shared, others: &[2], told: Some(2), ..PLAIN },
    Before {
        what: "permit",
        mode: Mode::Permit { capacity: 1 },
        own: &[2],
        told: Some(2),
        ..PLAIN
    },
];

impl Before {
    pub(crate) async fn arrange(
        &self,
        server: &Postgres,
        store: &dyn Store,
        other: &dyn Store,
        name: &str,
    ) {
        let mut first = ask(name, 1, IfBusy::Tell, LONG);
        first.mode = self.mode;
        granted(one(store, Operation::Ask(first)).await);
        for (client, waiting) in [(store, self.own), (other, self.others)] {
            for who in waiting {
                let mut next = ask(name, *who, IfBusy::Queue, LONG);
                next.mode = self.wanted;
                let answer = one(client, Operation::Ask(next)).await;
                assert!(matches!(answer, Ok(Reply::Queued(_))), "{name}: {answer:?}");
            }
        }
        if !self.sql.is_empty() {
            server.sql(&self.sql.replace("{}", name));
        }
    }
}

/// All that is known of a name but the time.
pub(crate) fn standing(server: &Postgres, name: &str) -> String {
    server.sql(&format!(
        "SELECT l.token, l.who, l.len, l.condition, l.ttl_us, l.delay_us, round((l.expires_us - l.since_us) / 1e6), l.value,
            l.sharers, l.waiters, l.seq, l.last = f.last, l.token IS NULL OR l.first = f.first,
            ARRAY(SELECT p.token FROM leaseward.places p WHERE p.name = l.name ORDER BY p.seq),
            ARRAY(SELECT s.token FROM leaseward.shares s WHERE s.name = l.name)
         FROM leaseward.leases l JOIN leaseward.fences f USING (name) WHERE l.name = '{name}'"
    ))
}

/// Who is told next that the name is theirs, and for how many who wait behind them.
pub(crate) fn told(heard: &mpsc::Receiver<Push>, name: &str) -> (u128, u32) {
    let push = heard.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{name}: nobody was told"));
    let Push::Granted { name: told, token, grant } = push else { panic!("{name}: {push:?}") };
    assert_eq!(told.as_str(), name);
    (token.random() & 0xff, grant.waiters)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_release_does_what_one_among_others_does() {
    let server = server();
    let (store, other) = (open(&server.url()).await, open(&server.url()).await);
    let (heard, heard_there) = (listen(&*store), listen(&*other));
    for case in CASES {
        let (alone, among) = (format!("{}-alone", case.what), format!("{}-among", case.what));
        let mut seen = Vec::new();
        for name in [&alone, &among] {
            case.arrange(&server, &*store, &*other, name).await;
            let answer = if *name == alone {
                one(&*store, releasing(name, 1)).await
            } else {
                let filler = taking(&format!("{name}-filler"), 1);
                store.carry_out(vec![releasing(name, 1), filler]).await.swap_remove(0)
            };
            let told = case.told.map(|who| {
                let is_own = case.own.contains(&who);
                let (told, waiters) = told(if is_own { &heard } else { &heard_there }, name);
                assert_eq!(told, who, "{name}");
                waiters
            });
            seen.push((format!("{answer:?}"), told, standing(&server, name)));
        }
        assert_eq!(seen[0], seen[1], "{}", case.what);
        assert!(!seen[0].2.is_empty(), "{} has no row", case.what);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hears_nothing_tells_its_own_waiters_itself() {
    let server = server();
    let store = try_open(&format!("{}?listen=no", server.url())).await.expect("it can be reached");
    let heard = listen(&*store);
    granted(one(&*store, taking("a", 1)).await);
    let answer = one(&*store, queueing("a", 2)).await;
    assert!(matches!(answer, Ok(Reply::Queued(_))), "{answer:?}");
    let answer = one(&*store, releasing("a", 1)).await;
    assert!(matches!(answer, Ok(Reply::Released)), "{answer:?}");
    assert_eq!(told(&heard, "a"), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_release_under_a_held_fence_hands_the_lease_to_nobody() {
    let server = server();
    let (store, other) = (open(&server.url()).await, open(&server.url()).await);
    let heard = listen(&*other);
    PLAIN.arrange(&server, &*store, &*other, "a").await;
    let answer = one(&*other, queueing("a", 2)).await;
    assert!(matches!(answer, Ok(Reply::Queued(_))), "{answer:?}");
    let holding = holding_fence(&server.url(), "a").await;
    let answer = one(&*store, releasing("a", 1)).await;
    assert!(matches!(answer, Ok(Reply::Released)), "{answer:?}");
    let push = heard.recv_timeout(PATIENCE).expect("who waits is woken");
    assert!(matches!(push, Push::Woken { .. }), "{push:?}");
    let answer = one(&*other, queueing("a", 2)).await;
    assert!(matches!(answer, Ok(Reply::Queued(_))), "{answer:?}");
    holding.batch_execute("COMMIT").await.expect("ended");
    granted(one(&*other, queueing("a", 2)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_too_long_a_name_for_a_notification_is_told_to_ask() {
    let server = server();
    let (store, other) = (open(&server.url()).await, open(&server.url()).await);
    let heard = listen(&*other);
    PLAIN.arrange(&server, &*store, &*other, "a").await;
    let answer = one(&*other, queueing("a", 2)).await;
    assert!(matches!(answer, Ok(Reply::Queued(_))), "{answer:?}");
    server.sql("UPDATE leaseward.places SET who = repeat('w', 8000)");
    let answer = one(&*store, releasing("a", 1)).await;
    assert!(matches!(answer, Ok(Reply::Released)), "{answer:?}");
    let push = heard.recv_timeout(PATIENCE).expect("who waits is told");
    assert!(matches!(push, Push::Woken { .. }), "{push:?}");
    granted(one(&*other, queueing("a", 2)).await);
}
