//! Random operations on one node, beside the reference: asks for an exclusive or a shared lease, with and without a lock
//! delay, renewals, releases with and without a minimum hold, attempts taken back, leases put where they were not, leases
//! broken at once and later.
//!
//! Not covered: locks of other libraries, what is shown of a lease, who is said to be in
//! the way of a shared name and for how long, and why a lease is not the token's, as long as it is not free for it.
//!
//! The server's clock is moved by whole tens of seconds and a little, a few times, and leases last whole tens: so the real
//! time that passes decides nothing.

use std::cell::RefCell;

use leaseward::stores::redlock::ballot::ALLOWANCE;
use leaseward_testkit::{RedisServer, Skew};
use proptest::{
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};

use crate::{
    reference::{Ask, Name, Operation},
    script::{Node, Put, TOKENS},
};

const NAMES: usize = 3;
const STEPS_MAX: usize = 60;
/// The last one is longer than ballots are remembered for after their lease.
const TTLS_MS: [u64; 4] = [10_000, 50_000, 400_000, 2_000_000];
/// Both may outlast what is remembered of a lease that is given back.
const DELAYS_MS: [u64; 3] = [0, 30_000, 1_000_000];
const KEEPS_MS: [u64; 4] = [0, 0, 20_000, 2_000_000];
const ADVANCES_MS: [i64; 4] = [200, 10_200, 100_200, 620_200];
/// With more, what is odd in them would come near ten seconds.
const ADVANCES_MAX: usize = 20;

/// Where a ballot begins: near what decides.
#[derive(Clone, Copy, Debug)]
enum Beginning {
    /// So far from the end of what the node refuses.
    Bar(i64),
    /// So many microseconds from its clock.
    Clock(i64),
    /// Where the lock's does.
    Held,
}

/// How much a node that lost its memory would refuse.
#[derive(Clone, Copy, Debug)]
enum Floor {
    None,
    /// Up to so many seconds from its clock.
    Clock(i64),
}

#[derive(Clone, Copy, Debug)]
enum What {
    Ask(Terms, Manner),
    Heal(Terms),
    Renew(u64),
    Release { keep_ms: u64 },
    Undo(Beginning),
    Break { now: bool },
}

#[derive(Clone, Copy, Debug)]
struct Terms {
    ttl_ms: u64,
    beginning: Beginning,
    block: u64,
    is_shared: bool,
    delay_ms: u64,
}

/// How an ask is put: what is usual, to both scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Plain,
    Careful,
}

#[derive(Clone, Copy, Debug)]
struct Deed {
    name: usize,
    token: usize,
    what: What,
}

#[derive(Clone, Debug)]
enum Step {
    /// In one call, each on a name of its own.
    Do(Vec<Deed>, Floor),
    Advance(i64),
}

fn a_beginning() -> impl Strategy<Value = Beginning> {
    let allowance_us = ALLOWANCE.as_micros() as i64;
    let far =
        [-2 * allowance_us, -allowance_us - 5_000_000, 5_000_000 - allowance_us, 0, 7_000_000];
    prop_oneof![
        4 => (-3_i64..4).prop_map(Beginning::Bar),
        3 => prop::sample::select(far.to_vec()).prop_map(Beginning::Clock),
        2 => Just(Beginning::Held),
    ]
}

fn terms() -> impl Strategy<Value = Terms> {
    let ttl = prop::sample::select(TTLS_MS.to_vec());
    let delay = prop_oneof![2 => Just(0), 1 => prop::sample::select(DELAYS_MS.to_vec())];
    let is_shared = prop::bool::weighted(0.3);
    (ttl, a_beginning(), 1_u64..5, is_shared, delay).prop_map(
        |(ttl_ms, beginning, block, is_shared, delay_ms)| Terms {
            ttl_ms,
            beginning,
            block,
            is_shared,
            delay_ms,
        },
    )
}

fn what() -> impl Strategy<Value = What> {
    let ttl = prop::sample::select(TTLS_MS.to_vec());
    let usual = terms().prop_map(|terms| {
        What::Ask(Terms { is_shared: false, delay_ms: 0, ..terms }, Manner::Plain)
    });
    let keep = prop::sample::select(KEEPS_MS.to_vec());
    prop_oneof![
        5 => usual,
        4 => terms().prop_map(|terms| What::Ask(terms, Manner::Careful)),
        2 => terms().prop_map(What::Heal),
        4 => ttl.prop_map(What::Renew),
        2 => keep.prop_map(|keep_ms| What::Release { keep_ms }),
        2 => a_beginning().prop_map(What::Undo),
        1 => any::<bool>().prop_map(|now| What::Break { now }),
    ]
}

fn a_step() -> impl Strategy<Value = Step> {
    let token = || 0..TOKENS.len();
    let one = (0..NAMES, token(), what())
        .prop_map(|(name, token, what)| vec![Deed { name, token, what }]);
    let all = prop::collection::vec((token(), what()), NAMES).prop_map(|all| {
        let deed = |(name, (token, what))| Deed { name, token, what };
        all.into_iter().enumerate().map(deed).collect()
    });
    let alike = (prop::collection::vec(token(), 2..=NAMES), what()).prop_map(|(tokens, what)| {
        let deed = |(name, token)| Deed { name, token, what };
        tokens.into_iter().enumerate().map(deed).collect()
    });
    let floor = prop_oneof![
        3 => Just(Floor::None),
        1 => prop::sample::select(vec![-3_600, -5, 5]).prop_map(Floor::Clock),
    ];
    let deeds = prop_oneof![3 => one, 2 => all, 3 => alike];
    prop_oneof![
        8 => (deeds, floor).prop_map(|(deeds, floor)| Step::Do(deeds, floor)),
        1 => prop::sample::select(ADVANCES_MS.to_vec()).prop_map(Step::Advance),
    ]
}

/// A server beside the reference.
struct Pair {
    node: Node,
    skew: Skew,
    skewed_ms: i64,
}

impl Pair {
    fn compare(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        self.node.clear();
        let mut names: [Name; NAMES] = Default::default();
        let mut advances = 0;
        for step in steps {
            match step {
                Step::Advance(by_ms) => {
                    advances += 1;
                    if advances <= ADVANCES_MAX {
                        self.skewed_ms += by_ms;
                        self.skew.set_ms(self.skewed_ms);
                    }
                }
                Step::Do(deeds, floor) => self.compare_call(&mut names, deeds, *floor)?,
            }
        }
        Ok(())
    }

    fn compare_call(
        &mut self,
        names: &mut [Name; NAMES],
        deeds: &[Deed],
        floor: Floor,
    ) -> Result<(), TestCaseError> {
        let about_us = self.node.clock_us();
        let floor = match floor {
            Floor::None => 0,
            Floor::Clock(seconds) => about_us.saturating_add_signed(seconds * 1_000_000),
        };
        let mut puts = Vec::new();
        for Deed { name, token, what } in deeds {
            let (name, token) = (*name, *token);
            names[name].settle(about_us, self.node.remembers(name));
            let operation = operation(*what, &names[name], about_us, floor);
            puts.push(Put { name, token, operation });
        }
        let (carefully, plainly): (Vec<_>, Vec<_>) =
            puts.into_iter().partition(|put| is_for_the_careful(put.operation, &names[put.name]));
        let mut found = self.node.call_plainly(&plainly, floor);
        found.extend(carefully.into_iter().map(|put| (put, None)));
        for (put, plainly) in found {
            let Put { name, token, operation } = put;
            let (now_us, found) = plainly.unwrap_or_else(|| {
                // The one that found it odd has changed nothing, but may have forgotten what may be forgotten.
                names[name].settle(about_us, self.node.remembers(name));
                let (now_us, found) = self.node.call_carefully(put, floor);
                (Some(now_us), found)
            });
            let before = names[name].clone();
            let expected =
                names[name].carry_out(token, operation, now_us.unwrap_or(about_us), floor);
            prop_assert_eq!(found, expected, "{:?} on {:?}", operation, before);
        }
        Ok(())
    }
}

fn operation(what: What, name: &Name, now_us: u64, floor: u64) -> Operation {
    let begins = |beginning: Beginning| match beginning {
        Beginning::Bar(by) => name.bar(now_us, floor).saturating_add_signed(by),
        Beginning::Clock(by) => now_us.saturating_add_signed(by),
        Beginning::Held => name.held().unwrap_or(now_us),
    };
    let ask = |terms: Terms, is_plain| {
        let mut first = begins(terms.beginning);
        let oldest = now_us - ALLOWANCE.as_micros() as u64;
        if is_plain && first > name.bar(now_us, floor) && first <= oldest {
            // A store has heard the node's clock when it connected, and asks for nothing that old: by the script for
            // what is usual its record would be forgotten with its lock.
            first = oldest + 5_000_000;
        }
        let Terms { ttl_ms, block, is_shared, delay_ms, .. } = terms;
        Ask { ttl_ms, first, last: first + block - 1, is_shared, delay_ms, is_plain }
    };
    match what {
        What::Ask(terms, manner) => Operation::Ask(ask(terms, manner == Manner::Plain)),
        What::Heal(terms) => Operation::Heal(ask(terms, false)),
        What::Renew(ttl_ms) => Operation::Renew { ttl_ms },
        What::Release { keep_ms } => Operation::Release { keep_ms },
        What::Undo(beginning) => Operation::Undo { first: begins(beginning) },
        What::Break { now } => Operation::Break { now },
    }
}

/// As the store has it: an attempt to share a name is taken back by the script that was asked for it.
fn is_for_the_careful(operation: Operation, name: &Name) -> bool {
    match operation {
        Operation::Ask(ask) => !ask.is_plain,
        Operation::Release { keep_ms } => keep_ms > 0,
        Operation::Undo { .. } => name.is_shared(),
        Operation::Heal(_) | Operation::Break { .. } => true,
        Operation::Renew { .. } => false,
    }
}

#[test]
fn the_scripts_decide_as_the_rules_do() {
    let skew = Skew::new();
    let server = RedisServer::builder().skew(&skew).arg("slowlog-log-slower-than", "0").start();
    let pair = RefCell::new(Pair { node: Node::new(&server), skew, skewed_ms: 0 });
    let cases = if std::env::var_os("LEASEWARD_FULL").is_some() { 2_048 } else { 128 };
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    let steps = prop::collection::vec(a_step(), 1..STEPS_MAX);
    let outcome = TestRunner::new(config).run(&steps, |steps| pair.borrow_mut().compare(&steps));
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let node = &pair.borrow().node;
    assert!(node.decided_plainly > 0, "everything was odd");
    assert!(node.as_usual > 0, "nothing was usual");
    assert!(node.longest_run == NAMES, "no run was longer than {}", node.longest_run);
}
