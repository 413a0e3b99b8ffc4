//! Whether it stays fast: a long stream of jobs through tables that began with many old ones.

use super::{OURS, Server, child_run};
use crate::row::{Row, Size, Target::AtLeast, Unit};

/// The name of the row, by which its picture finds it.
pub(super) const NAME: &str = "queue: a long stream through a table of old jobs";

/// Names of its figures after the first.
const TENTHS: [&str; 10] = [
    "tenth 1", "tenth 2", "tenth 3", "tenth 4", "tenth 5", "tenth 6", "tenth 7", "tenth 8",
    "tenth 9", "tenth 10",
];

pub(super) fn rows(server: &Server) -> Vec<Row> {
    let server = server.clone();
    let mut row = Row::new(NAME, Unit::Count, &[AtLeast(0.8)]).figure("last tenth to first");
    for name in TENTHS {
        row = row.and(name, Unit::PerSecond, &[]);
    }
    let row = row.rounds_max(1).ours("leaseward-queue", move |size| {
        let jobs = jobs(size);
        let tenths = child_run(OURS.name, "bloat", &server.fresh().1, &[jobs, jobs])?;
        Ok(std::iter::once(tenths[9] / tenths[0]).chain(tenths).collect())
    });
    vec![row]
}

/// A million old ones and a million new ones, if there is time.
fn jobs(size: Size) -> u32 {
    if size.is_full { 1_000_000 } else { size.times(200_000) }
}
