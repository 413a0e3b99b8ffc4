//! Clients of other libraries poll: how a name is left free for them, step by step.

use std::{ops::RangeInclusive, sync::Arc};

use leaseward::store::{Operation, Push, Reply, Standing, Store};
use leaseward_testkit::{RedisServer, Skew};
use tokio::sync::mpsc::UnboundedReceiver;

use super::help::{Server, in_time, queue, release, renew, take, token};

/// Shorter than a place in the queue lasts after an ask.
const STEP_SECONDS: usize = 5;

/// Somebody who only looks.
const LOOKS: u128 = u128::MAX >> 96;

/// Ours on the name `a`: the first holds it, and as each leaves another comes.
struct Line {
    server: Server,
    store: Arc<dyn Store>,
    pushes: UnboundedReceiver<Push>,
    first: u128,
    /// How many wait behind the holder.
    waiting: u128,
}

impl Line {
    /// Begins behind a lock of another library, if `strangers`.
    async fn start(settings: &str, waiting: u128, strangers: bool) -> Self {
        Self::start_at(Server::start().await, settings, waiting, strangers).await
    }

    async fn start_at(server: Server, settings: &str, waiting: u128, strangers: bool) -> Self {
        let (store, pushes) = server.store_and_pushes(settings).await;
        let mut this = Self { server, store, pushes, first: 1, waiting };
        if strangers {
            this.server.do_it(&["SET", "a", "theirs"]).await;
        }
        for one in 1..=waiting + 1 {
            this.one(queue("a", one)).await;
        }
        if strangers {
            this.server.do_it(&["DEL", "a"]).await;
        }
        // The first is there when it asks again.
        assert!(matches!(this.one(queue("a", 1)).await, Reply::Granted(_)));
        this.hush();
        this
    }

    async fn all(&self, operations: Vec<Operation>) -> Vec<Reply> {
        let answers = self.store.carry_out(operations).await;
        answers.into_iter().map(|answer| answer.expect("the server is there")).collect()
    }

    async fn one(&self, operation: Operation) -> Reply {
        self.all(vec![operation]).await.remove(0)
    }

    /// Forgets what was pushed.
    fn hush(&mut self) {
        while self.pushes.try_recv().is_ok() {}
    }

    /// The holder leaves and comes again at the end, in one call; how things stand right after that.
    async fn turn(&mut self) -> Standing {
        let (leaves, comes) = (self.first, self.first + self.waiting + 1);
        let turn = vec![release("a", leaves), queue("a", comes), take("a", LOOKS)];
        let mut replies = self.all(turn).await;
        assert!(matches!(replies[0], Reply::Released), "{replies:?}");
        self.first += 1;
        match replies.remove(2) {
            Reply::Busy(standing) => standing,
            other => panic!("{other:?}"),
        }
    }

    /// Time passes at the server, in steps that nobody's lease or place is too short for.
    async fn stay(&self, clock: &Skew, seconds: RangeInclusive<i64>) {
        for second in seconds.step_by(STEP_SECONDS) {
            clock.set_ms(second * 1_000);
            let mut all = vec![renew("a", self.first)];
            all.extend((1..=self.waiting).map(|one| queue("a", self.first + one)));
            let replies = self.all(all).await;
            assert!(matches!(replies[0], Reply::Renewed(_)), "{replies:?}");
        }
    }

    /// Turns until the name is left free.
    async fn turn_until_open(&mut self) -> Standing {
        in_time(async {
            loop {
                let standing = self.turn().await;
                if standing.holder.is_none() {
                    return standing;
                }
            }
        })
        .await
    }

    /// Who is served when somebody asks each time that one is woken.
    async fn served_when_asking(&mut self, asks: u128) -> u128 {
        in_time(async {
            loop {
                match self.pushes.recv().await.expect("it is open") {
                    Push::Granted { token: given, .. } => {
                        let mut all = self.first..=self.first + self.waiting;
                        // Not those of earlier turns.
                        if let Some(one) = all.find(|one| token(*one) == given) {
                            return one;
                        }
                    }
                    _ => drop(self.one(queue("a", asks)).await),
                }
            }
        })
        .await
    }

    async fn until_woken(&mut self) {
        in_time(async { while !matches!(self.pushes.recv().await, Some(Push::Woken { .. })) {} })
            .await;
    }

    /// The record of the lease.
    async fn record(&self) -> String {
        self.server.ask::<Option<String>>(&["GET", "leaseward:h:a"]).await.unwrap_or_default()
    }

    /// All leave.
    async fn end(self) {
        let all = (0..=self.waiting).map(|one| release("a", self.first + one));
        self.all(all.collect()).await;
        let mut keys: Vec<String> = self.server.ask(&["KEYS", "*"]).await;
        // Says of all names that there were places, and outlasts them.
        keys.retain(|key| key != "leaseward:beside");
        assert_eq!(keys, ["leaseward:fence"], "a free name has no key");
    }
}

#[tokio::test]
async fn a_name_with_strangers_is_left_free_now_and_then() {
    // With one in line the queue is empty after each hand-over, and what was noted must outlive that.
    for waiting in [1, 2, 5] {
        let mut line = Line::start("", waiting, true).await;
        assert!(line.record().await.starts_with('f'));
        for _ in 0..2 {
            let standing = line.turn_until_open().await;
            let free = standing.free_in.expect("not for ever").as_millis();
            assert!((1..=200).contains(&free), "{free} ms");
            assert_eq!(u128::from(standing.ahead), waiting + 1, "all of them wait");
            // The first in line is woken, and whoever of them asks, the first is served.
            assert_eq!(line.served_when_asking(line.first + waiting).await, line.first);
            assert!(line.record().await.starts_with('f'));
        }
        line.end().await;
    }
}

#[tokio::test]
async fn a_name_whose_only_waiters_are_in_one_process_is_left_free_too() {
    let mut line = Line::start("", 0, true).await;
    // It is passed on inside the process until the strangers are owed their moment.
    in_time(async {
        loop {
            let Reply::Renewed(renewal) = line.one(renew("a", line.first)).await else {
                panic!("it is ours")
            };
            if renewal.waiters == 1 {
                return;
            }
        }
    })
    .await;
    let standing = line.turn().await;
    assert!(standing.holder.is_none(), "{standing:?}");
    assert!(standing.free_in.is_some(), "when to ask again");
    in_time(async { while matches!(line.one(queue("a", line.first)).await, Reply::Queued(_)) {} })
        .await;
    let Reply::Renewed(renewal) = line.one(renew("a", line.first)).await else {
        panic!("it is ours")
    };
    assert_eq!(renewal.waiters, 0, "they had their moment: {renewal:?}");
    line.end().await;
}

#[tokio::test]
async fn a_stranger_who_tries_in_such_a_moment_is_in() {
    let mut line = Line::start("", 1, true).await;
    in_time(async {
        loop {
            line.turn_until_open().await;
            let taken: Option<String> =
                line.server.ask(&["SET", "a", "theirs", "NX", "PX", "600000"]).await;
            if taken.is_some() {
                return;
            }
            // Too late, on a busy machine: the first in line has asked.
            line.until_woken().await;
            line.one(queue("a", line.first)).await;
        }
    })
    .await;
    line.until_woken().await;
    let Reply::Queued(place) = line.one(queue("a", line.first)).await else {
        panic!("a stranger has it")
    };
    assert_eq!(place.standing.ahead, 0, "and keeps its place");
    line.server.do_it(&["DEL", "a"]).await;
    in_time(async {
        while !matches!(line.one(queue("a", line.first)).await, Reply::Granted(_)) {
            line.until_woken().await;
        }
    })
    .await;
    line.end().await;
}

/// As `docs/stores/redis.md` says: a minute.
#[tokio::test]
async fn strangers_are_forgotten_after_a_minute_and_not_before() {
    let clock = Skew::new();
    let server = Server::with(RedisServer::builder().skew(&clock)).await;
    let mut line = Line::start_at(server, "", 2, true).await;
    line.stay(&clock, 5..=50).await;
    let standing = line.turn_until_open().await;
    assert!(standing.free_in.is_some(), "{standing:?}");
    assert_eq!(line.served_when_asking(line.first).await, line.first);
    assert!(line.record().await.starts_with('f'), "they are remembered");
    line.stay(&clock, 55..=65).await;
    for _ in 0..20 {
        let standing = line.turn().await;
        assert!(standing.holder.is_some(), "{standing:?}");
        assert!(!line.record().await.starts_with('f'), "they are forgotten");
    }
    line.end().await;
}

#[tokio::test]
async fn without_strangers_or_where_told_so_it_is_always_handed_over() {
    for (settings, strangers) in [("", false), ("&handover=always", true)] {
        for waiting in [0, 1, 3] {
            let mut line = Line::start(settings, waiting, strangers).await;
            // Longer than it takes until strangers are owed a moment.
            let end = std::time::Instant::now() + std::time::Duration::from_millis(100);
            while std::time::Instant::now() < end {
                let standing = line.turn().await;
                assert!(standing.holder.is_some(), "{standing:?}");
            }
            assert_eq!(line.record().await.starts_with('f'), strangers);
            let waiters = line.all(vec![renew("a", line.first)]).await;
            let Reply::Renewed(renewal) = &waiters[0] else { panic!("{waiters:?}") };
            assert_eq!(u128::from(renewal.waiters), waiting);
            line.end().await;
        }
    }
}

#[tokio::test]
async fn told_never_to_hand_over_it_is_free_after_each_release() {
    for waiting in [0, 1, 3] {
        let mut line = Line::start("&handover=never", waiting, false).await;
        for _ in 0..20 {
            let Reply::Renewed(renewal) = line.one(renew("a", line.first)).await else {
                panic!("it is ours")
            };
            assert!(renewal.waiters > 0, "{renewal:?}");
            let standing = line.turn().await;
            assert!(standing.holder.is_none(), "{standing:?}");
            line.until_woken().await;
            assert!(matches!(line.one(queue("a", line.first)).await, Reply::Granted(_)));
            line.hush();
        }
        line.end().await;
    }
}
