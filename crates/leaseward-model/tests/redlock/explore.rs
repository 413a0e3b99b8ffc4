//! Runs the model.

use std::time::Instant;

use leaseward_model::redlock::{Action, Bounds, Without, World};
use stateright::{Checker, HasDiscoveries, Model};

/// Explores everything within bounds: nothing may be wrong, and what must be possible must have happened.
pub(crate) fn all(what: &str, bounds: Bounds) {
    let begun = Instant::now();
    let checker = World::new(bounds).checker().threads(1).spawn_bfs().join();
    println!(
        "{what}: {} states, {} transitions, {} steps deep, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        begun.elapsed().as_secs_f64()
    );
    assert!(checker.is_done(), "{what}: not everything was explored");
    checker.assert_properties();
}

/// Takes a check out: the property must be violated. Breadth first, so the counter-example is a shortest one.
pub(crate) fn violates(check: Without, property: &'static str, bounds: Bounds) {
    let world = World::new(bounds).without(check);
    let enough = HasDiscoveries::AnyFailures;
    let checker = world.checker().threads(1).finish_when(enough).spawn_bfs().join();
    let found = checker.discoveries();
    let path = found.get(property).unwrap_or_else(|| {
        panic!(
            "without {check:?}, `{property}` still holds in {} states",
            checker.unique_state_count()
        )
    });
    let actions: Vec<Action> = path.clone().into_actions();
    println!("without {check:?}, `{property}` is violated in {} steps:", actions.len());
    for action in actions {
        println!("    {action:?}");
    }
}
