//! etcd comes up, goes down, and comes back.

use leaseward_testkit::{Etcd, PATIENCE, certificates, eventually};

#[test]
fn what_was_put_outlasts_a_kill_and_not_a_rebuild() {
    let etcd = Etcd::start();
    etcd.cli(&["put", "a", "1"]);
    etcd.kill(0);
    etcd.restart(0);
    etcd.wait_until_healthy();
    assert_eq!(etcd.cli(&["get", "a", "--print-value-only"]), "1");
    etcd.rebuild();
    assert_eq!(etcd.cli(&["get", "a", "--print-value-only"]), "");
}

#[test]
fn another_member_leads_when_the_leader_is_killed() {
    let etcd = Etcd::builder().members(3).start();
    let first = etcd.leader();
    etcd.kill(first);
    assert_ne!(etcd.leader(), first);
    etcd.restart(first);
    etcd.wait_until_healthy();
    assert_eq!(etcd.addresses().len(), 3);
}

#[test]
fn it_asks_for_passwords_and_speaks_tls() {
    let made = certificates();
    let etcd = Etcd::builder().tls(made.server()).auth("hunter2").start();
    assert_eq!(etcd.cli(&["put", "a", "1"]), "OK");
    assert!(etcd.url().starts_with("etcds://root:hunter2@127.0.0.1:"));
}

#[test]
fn its_counters_can_be_read() {
    let etcd = Etcd::start();
    let puts = || etcd.metric(0, "etcd_debugging_mvcc_put_total");
    let before = puts();
    etcd.cli(&["put", "a", "1"]);
    eventually("it is counted", PATIENCE, || (puts() == before + 1.0).then_some(()));
}
