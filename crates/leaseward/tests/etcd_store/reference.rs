//! Whatever is asked of it, etcd gives the name to whom the memory store gives it.

use leaseward_testkit::Etcd;

const CASES: u32 = 48;

#[test]
fn decides_as_the_memory_store_does() {
    let etcd = Etcd::start();
    crate::alike::check(CASES, |case| format!("{}?prefix=case-{case}/", etcd.url()));
}
