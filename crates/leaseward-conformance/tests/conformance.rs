//! Every case on every store: one test each, named `store::group::case`.
//!
//! A case that does not apply to a store is reported as ignored, with what the store has not.

use leaseward_conformance::{
    Verdict, cases,
    fixture::{FIXTURES, Helpers},
    run,
};
use libtest_mimic::{Arguments, Completion, Trial};

/// Cases at once, if not told otherwise. Most of them wait most of the time; more would make short leases end by
/// scheduling noise on a small machine.
const AT_ONCE: usize = 4;

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let helpers = Helpers { lock_taker: env!("CARGO_BIN_EXE_lock-taker").into() };
    let mut trials = Vec::new();
    for fixture in FIXTURES {
        for (group, case) in cases::all() {
            let helpers = helpers.clone();
            let name = format!("{}::{}::{}", fixture.scheme, group, case.name);
            trials.push(Trial::ignorable_test(name, move || {
                Ok(match run(fixture, case, &helpers) {
                    Verdict::Shown => Completion::Completed,
                    Verdict::NotApplicable(why) => Completion::ignored_with(why),
                })
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
