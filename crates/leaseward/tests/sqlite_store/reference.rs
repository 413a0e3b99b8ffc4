//! Whatever is asked of it, the file answers as the memory store does.

use std::{collections::HashSet, sync::mpsc::Receiver, time::Duration};

use leaseward::{
    Mode, Value,
    store::{Ask, Break, IfBusy, Names, Operation, Push, Query, Release, Renew, Store},
    stores::{memory::Memory, sqlite::Sqlite},
};
use proptest::prelude::*;

use crate::help::{HandClock, all, listen, name, open, run, token};

const NAMES: [&str; 3] = ["a", "ab", "b"];
const TOKENS: u128 = 6;

/// Below the number of commits after which the file is swept, which ends leases earlier than the reference does.
const STEPS_MAX: usize = 56;

#[derive(Clone, Debug)]
enum Step {
    Submit { client: usize, batch: Vec<Operation> },
    Break(Break),
    Advance(Duration),
    SetWallBack(Duration),
}

fn a_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        4 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        3 => (1_u32..4).prop_map(|capacity| Mode::Permit { capacity }),
    ]
}

fn millis(choices: &'static [u64]) -> impl Strategy<Value = Duration> {
    prop::sample::select(choices).prop_map(Duration::from_millis)
}

fn an_ask() -> impl Strategy<Value = Operation> {
    let names = prop_oneof![
        6 => (0..NAMES.len()).prop_map(|at| Names::from_iter([name(NAMES[at])])),
        1 => Just(Names::from_iter([name("a"), name("b")])),
        1 => Just(NAMES.iter().map(|text| name(text)).collect()),
    ];
    let value = prop::option::of(Just(Value::new("label").expect("short")));
    let ttl = millis(&[100, 1_000, 30_000, 86_400_000]);
    let delay = millis(&[0, 0, 0, 5_000]);
    (names, 0..TOKENS, a_mode(), ttl, any::<bool>(), 1_u32..5, delay, value).prop_map(
        |(names, who, mode, ttl, queue, block, lock_delay, value)| {
            let may_queue = queue && names.len() == 1;
            let if_busy = if may_queue { IfBusy::Queue } else { IfBusy::Tell };
            let token = token(who + 1);
            Operation::Ask(Ask { names, token, mode, ttl, if_busy, block, lock_delay, value })
        },
    )
}

fn an_operation() -> impl Strategy<Value = Operation> {
    let whose = (0..NAMES.len(), 0..TOKENS);
    let renewal =
        (whose.clone(), millis(&[100, 30_000]), 0_u32..3).prop_map(|((at, who), ttl, block)| {
            Operation::Renew(Renew { name: name(NAMES[at]), token: token(who + 1), ttl, block })
        });
    let release = (whose, millis(&[0, 0, 0, 2_000])).prop_map(|((at, who), keep)| {
        Operation::Release(Release { name: name(NAMES[at]), token: token(who + 1), keep })
    });
    prop_oneof![5 => an_ask(), 2 => renewal, 4 => release]
}

fn a_step() -> impl Strategy<Value = Step> {
    let batch = prop::collection::vec(an_operation(), 1..4);
    let order = (0..NAMES.len(), any::<bool>());
    prop_oneof![
        12 => (0_usize..2, batch).prop_map(|(client, batch)| Step::Submit { client, batch }),
        1 => order.prop_map(|(at, now)| Step::Break(Break { name: name(NAMES[at]), now })),
        3 => millis(&[1, 99, 100, 1_000, 2_000, 9_999, 10_000, 30_000]).prop_map(Step::Advance),
        1 => millis(&[1, 60_000]).prop_map(Step::SetWallBack),
    ]
}

/// A push without what the reader of a file learns a little later: how many wait.
fn gist(push: Push) -> String {
    match push {
        Push::Granted { name, token, grant } => {
            format!(
                "{name} {token} {:?} {:?} {:?} {:?}",
                grant.blocks, grant.slot, grant.ttl, grant.evidence
            )
        }
        other => panic!("neither store sends {other:?}"),
    }
}

fn apply(store: &[&dyn Store; 2], step: &Step, clock: &HandClock) -> String {
    match step {
        Step::Submit { client, batch } => {
            format!("{:?}", run(store[*client].submit(batch.clone())))
        }
        Step::Break(order) => format!("{:?}", run(store[0].break_lease(order.clone()))),
        Step::Advance(by) => {
            clock.advance(*by);
            String::new()
        }
        Step::SetWallBack(by) => {
            clock.set_wall_back(*by);
            String::new()
        }
    }
}

fn view(store: &dyn Store) -> String {
    let page = Query::Prefix { prefix: "a".into(), after: Some(name("a")), limit: 1 };
    let page = run(store.inspect(page)).expect("a good file");
    let single = run(store.inspect(Query::Name(name("a")))).expect("a good file");
    format!("{:?} {page:?} {single:?}", all(store))
}

fn pushed(pushes: &Receiver<Push>) -> Vec<String> {
    pushes.try_iter().map(gist).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn answers_as_the_memory_store_does(steps in prop::collection::vec(a_step(), 1..STEPS_MAX)) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("leases.db");
        // Each has its own clock, moved alike: the stores must not see each other's steps.
        let (ours, theirs) = (HandClock::new(), HandClock::new());
        let memory = Memory::new(theirs.clone());
        let memory: [Memory; 2] = [memory.another(), memory];
        let sqlite: [Sqlite; 2] = std::array::from_fn(|_| open(&path, ours.clone()).expect("a file"));
        let memory_pushes = memory.each_ref().map(|store| listen(store));
        let sqlite_pushes = sqlite.each_ref().map(|store| listen(store));
        let memory = memory.each_ref().map(|store| store as &dyn Store);
        let sqlite = sqlite.each_ref().map(|store| store as &dyn Store);
        let mut told = [HashSet::new(), HashSet::new()];
        for step in &steps {
            let expected = apply(&memory, step, &theirs);
            prop_assert_eq!(apply(&sqlite, step, &ours), expected, "at {:?}", step);
            prop_assert_eq!(view(sqlite[1]), view(memory[0]), "after {:?}", step);
            for client in 0..2 {
                told[client].extend(pushed(&memory_pushes[client]));
                // What another client was handed may be gone before it was read: then it is not told.
                for push in pushed(&sqlite_pushes[client]) {
                    prop_assert!(told[client].contains(&push), "{} was pushed out of nothing", push);
                }
            }
        }
    }

    #[test]
    fn tells_its_own_waiters_at_once(steps in prop::collection::vec(a_step(), 1..STEPS_MAX)) {
        let folder = tempfile::tempdir().expect("a folder");
        let (ours, theirs) = (HandClock::new(), HandClock::new());
        let memory = Memory::new(theirs.clone());
        let sqlite = open(&folder.path().join("leases.db"), ours.clone()).expect("a file");
        let (memory_pushes, sqlite_pushes) = (listen(&memory), listen(&sqlite));
        for step in &steps {
            let expected = apply(&[&memory, &memory], step, &theirs);
            prop_assert_eq!(apply(&[&sqlite, &sqlite], step, &ours), expected, "at {:?}", step);
            prop_assert_eq!(pushed(&sqlite_pushes), pushed(&memory_pushes), "after {:?}", step);
        }
    }
}
