//! Whatever is asked of it, the file answers as the memory store does.

use std::{collections::HashSet, sync::mpsc::Receiver};

use leaseward::{
    store::{Push, Query, Store},
    stores::{memory::Memory, sqlite::Sqlite},
};
use proptest::prelude::*;

use crate::{
    hand_clock::HandClock,
    help::{all, listen, open, run},
    names::name,
    steps::{Step, Times, a_step},
};

/// Below the number of commits after which the file is swept, which ends leases earlier than the reference does.
const STEPS_MAX: usize = 56;

static TIMES: Times = Times {
    ttls: &[100, 1_000, 30_000, 86_400_000],
    renewals: &[100, 30_000],
    keeps: &[0, 0, 0, 2_000],
    advances: &[1, 99, 100, 1_000, 2_000, 9_999, 10_000, 30_000],
    set_backs: &[1, 60_000],
};

/// A push without what the reader of a file learns a little later: how many wait.
fn gist(push: Push) -> String {
    match push {
        Push::Granted { name, token, grant } => {
            format!(
                "{name} {token} {:?} {:?} {:?} {:?}",
                grant.block, grant.slot, grant.ttl, grant.evidence
            )
        }
        other => panic!("neither store sends {other:?}"),
    }
}

fn apply(store: &[&dyn Store; 2], step: &Step, clock: &HandClock) -> String {
    match step {
        Step::Submit { client, batch } => {
            format!("{:?}", run(store[*client].carry_out(batch.clone())))
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
    fn answers_as_the_memory_store_does(steps in prop::collection::vec(a_step(&TIMES), 1..STEPS_MAX)) {
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
    fn tells_its_own_waiters_at_once(steps in prop::collection::vec(a_step(&TIMES), 1..STEPS_MAX)) {
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
