//! ZooKeeper: one server and three, their end and their return.

use std::time::Duration;

use leaseward_testkit::{
    ZooKeeper,
    peers::{Library, Peer},
};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn kazoo_locks_and_the_disk_is_kept() {
    let server = ZooKeeper::start();
    let mut kazoo = Peer::start(Library::Kazoo, &server.hosts()).await;
    let acquire = json!({"do": "acquire", "key": "/a", "retries": 0});
    assert_eq!(kazoo.call(acquire.clone(), PATIENCE).await["ok"], true);
    let mut other = Peer::start(Library::Kazoo, &server.hosts()).await;
    assert_eq!(other.call(acquire, PATIENCE).await["ok"], false, "it is held");
    assert_eq!(kazoo.call(json!({"do": "release"}), PATIENCE).await["ok"], true);
    drop((kazoo, other));
    let port = server.port(0);
    server.restart(0);
    assert_eq!(server.port(0), port);
    let copy = server.from_its_disk();
    assert_ne!(copy.port(0), port);
    for server in [&server, &copy] {
        let dump = server.command(0, "wchs").expect("it answers");
        assert!(dump.contains("watch"), "{dump}");
    }
    server.kill(0);
    assert_eq!(server.command(0, "ruok"), None);
}

#[test]
fn three_servers_have_one_leader_and_elect_another() {
    let servers = ZooKeeper::builder().servers(3).tick(Duration::from_millis(100)).start();
    let first = servers.leader();
    assert_ne!(servers.follower(), first);
    servers.kill(first);
    let second = servers.leader();
    assert_ne!(second, first);
    servers.restart(first);
    servers.pause(first);
    assert_eq!(servers.command(first, "ruok"), None, "it is stopped");
    servers.resume(first);
    assert_eq!(servers.leader(), second);
}
