//! Whatever is asked of it, ZooKeeper gives the name to whom the memory store gives it.

use leaseward_testkit::ZooKeeper;

const CASES: u32 = 48;

#[test]
fn decides_as_the_memory_store_does() {
    let server = ZooKeeper::start();
    crate::alike::check(CASES, |case| server.url(&format!("case-{case}")));
}
