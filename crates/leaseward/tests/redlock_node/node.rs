//! Random operations on one node, beside the reference.
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
    reference::{Name, Operation},
    script::{Node, Put, TOKENS},
};

const NAMES: usize = 3;
const STEPS_MAX: usize = 60;
/// The last one is longer than ballots are remembered for after their lease.
const TTLS_MS: [u64; 4] = [10_000, 50_000, 400_000, 2_000_000];
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
    Ask { ttl_ms: u64, beginning: Beginning, block: u64, is_plain: bool },
    Renew(u64),
    Release,
    Undo(Beginning),
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

fn what() -> impl Strategy<Value = What> {
    let ttl = || prop::sample::select(TTLS_MS.to_vec());
    let ask = (ttl(), a_beginning(), 1_u64..5, any::<bool>()).prop_map(
        |(ttl_ms, beginning, block, is_plain)| What::Ask { ttl_ms, beginning, block, is_plain },
    );
    prop_oneof![
        6 => ask,
        2 => ttl().prop_map(What::Renew),
        2 => Just(What::Release),
        2 => a_beginning().prop_map(What::Undo),
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
        let (carefully, plainly): (Vec<_>, Vec<_>) = puts
            .into_iter()
            .partition(|put| matches!(put.operation, Operation::Ask { is_plain: false, .. }));
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
    match what {
        What::Ask { ttl_ms, beginning, block, is_plain } => {
            let mut first = begins(beginning);
            let oldest = now_us - ALLOWANCE.as_micros() as u64;
            if is_plain && first > name.bar(now_us, floor) && first <= oldest {
                // A store has heard the node's clock when it connected, and asks for nothing that old: by the script for
                // what is usual its record would be forgotten with its lock.
                first = oldest + 5_000_000;
            }
            Operation::Ask { ttl_ms, first, last: first + block - 1, is_plain }
        }
        What::Renew(ttl_ms) => Operation::Renew { ttl_ms },
        What::Release => Operation::Release,
        What::Undo(beginning) => Operation::Undo { first: begins(beginning) },
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
