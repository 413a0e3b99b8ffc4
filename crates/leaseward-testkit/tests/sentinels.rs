//! Sentinel notices that the primary is gone.

use leaseward_testkit::{RedisServer, Sentinels};

#[test]
fn another_primary_after_a_kill_and_a_lost_write() {
    let set = Sentinels::start(2);
    let old = set.primary();
    assert_eq!(set.current_primary_address(), old.address());
    assert_eq!(set.replicas().len(), 2);
    assert_eq!(set.sentinel_addresses().len(), 3);
    old.cli(&["set", "a", "1"]);
    set.replicas().iter().for_each(|replica| replica.wait_for_copy(old));

    // The way to lose a write for certain.
    set.isolate_replicas();
    old.cli(&["set", "b", "1"]);
    set.kill_primary();
    set.resume_replicas();
    let new = set.wait_for_new_primary();
    assert_ne!(new.port(), old.port());
    assert_eq!(new.cli(&["get", "a"]), "1");
    assert_eq!(new.cli(&["get", "b"]), "");
}

#[test]
fn a_failover_without_a_fault_among_servers_with_a_password() {
    let set = Sentinels::start_with(1, &RedisServer::builder().requirepass("secret"));
    set.failover();
    let new = set.wait_for_new_primary();
    assert_eq!(new.cli(&["set", "a", "1"]), "OK");
    assert_eq!(set.current_primary_address(), new.address());
}
