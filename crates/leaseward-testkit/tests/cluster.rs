//! A cluster moves slots, and replaces a node that is gone.

use leaseward_testkit::{Cluster, RedisServer};

#[test]
fn a_slot_moves_by_ask_then_by_moved() {
    let cluster = Cluster::start_with(0, &RedisServer::builder().requirepass("secret"));
    let slot = cluster.slot_of("{a}");
    let from = cluster.primary_of("{a}");
    let primaries = cluster.primaries();
    let to = *primaries.iter().find(|node| node.port() != from.port()).expect("three primaries");
    from.cli(&["set", "{a}", "1"]);

    let migration = cluster.begin_migration(slot, &to.address());
    assert_eq!(from.cli(&["get", "{a}"]), "1", "it has not moved yet");
    let refused = from.try_cli(&["get", "{a}b"]).expect_err("it is not here");
    assert_eq!(refused, format!("ASK {slot} {}", to.address()));
    migration.move_keys();
    let refused = from.try_cli(&["get", "{a}"]).expect_err("it has moved");
    assert_eq!(refused, format!("ASK {slot} {}", to.address()));
    migration.finish();
    let refused = from.try_cli(&["get", "{a}"]).expect_err("the slot has moved");
    assert_eq!(refused, format!("MOVED {slot} {}", to.address()));
    assert_eq!(cluster.primary_of("{a}").cli(&["get", "{a}"]), "1");

    cluster.migrate_slot(slot, &from.address());
    assert_eq!(from.cli(&["get", "{a}"]), "1");
}

#[test]
fn a_replica_replaces_its_primary() {
    let cluster = Cluster::start();
    assert_eq!(cluster.addresses().len(), 6);
    let old = cluster.primary_of("a");
    let replicas = cluster.replicas_of(&old.address());
    assert_eq!(replicas.len(), 1);
    old.cli(&["set", "a", "1"]);
    replicas[0].wait_for_copy(old);
    old.kill();
    let new = cluster.wait_for_new_primary_of("a", &old.address());
    assert_eq!(new.port(), replicas[0].port());
    assert_eq!(new.cli(&["get", "a"]), "1");
    old.restart();
    cluster.wait_until_whole();
    assert_eq!(cluster.replicas_of(&new.address())[0].port(), old.port());
}
