//! The cases, by group.

mod breaking;
mod cancellation;
mod cohort;
mod crash;
mod deadlock;
mod election;
mod events;
mod exclusion;
mod expiry;
mod facade;
mod fencing;
mod handles;
mod idempotence;
mod input;
mod inspection;
mod naming;
mod observation;
mod order;
mod outage;
mod permits;
mod release;
mod renewal;
mod several;
mod shared;
mod shutdown;
mod waiting;

use crate::{Case, Group};

/// All groups.
pub static GROUPS: &[Group] = &[
    Group { name: "exclusion", cases: exclusion::CASES },
    Group { name: "shared", cases: shared::CASES },
    Group { name: "permits", cases: permits::CASES },
    Group { name: "several", cases: several::CASES },
    Group { name: "fencing", cases: fencing::CASES },
    Group { name: "expiry", cases: expiry::CASES },
    Group { name: "renewal", cases: renewal::CASES },
    Group { name: "release", cases: release::CASES },
    Group { name: "waiting", cases: waiting::CASES },
    Group { name: "cancellation", cases: cancellation::CASES },
    Group { name: "idempotence", cases: idempotence::CASES },
    Group { name: "cohort", cases: cohort::CASES },
    Group { name: "crash", cases: crash::CASES },
    Group { name: "outage", cases: outage::CASES },
    Group { name: "naming", cases: naming::CASES },
    Group { name: "input", cases: input::CASES },
    Group { name: "inspection", cases: inspection::CASES },
    Group { name: "breaking", cases: breaking::CASES },
    Group { name: "observation", cases: observation::CASES },
    Group { name: "events", cases: events::CASES },
    Group { name: "deadlock", cases: deadlock::CASES },
    Group { name: "order", cases: order::CASES },
    Group { name: "election", cases: election::CASES },
    Group { name: "handles", cases: handles::CASES },
    Group { name: "facade", cases: facade::CASES },
    Group { name: "shutdown", cases: shutdown::CASES },
];

/// All cases, each with the name of its group.
pub fn all() -> impl Iterator<Item = (&'static str, &'static Case)> {
    GROUPS.iter().flat_map(|group| group.cases.iter().map(|case| (group.name, case)))
}
