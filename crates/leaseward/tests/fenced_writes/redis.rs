//! Values in Redis: check and write in one script.

use leaseward::fenced::redis::{delete, fence_key, get, set};
use leaseward_testkit::{Cluster, RedisServer};
use redis::{Client, aio::MultiplexedConnection};

use crate::help::{assert_stale, fence};

async fn connect(server: &RedisServer) -> MultiplexedConnection {
    let client = Client::open(server.url()).expect("a good url");
    client.get_multiplexed_async_connection().await.expect("a server")
}

#[tokio::test]
async fn refuses_who_comes_late() {
    let server = RedisServer::start();
    let mut connection = connect(&server).await;
    for (number, value) in [(5, "five"), (5, "five again"), (10, "ten")] {
        set(&mut connection, "a", value, fence(number)).await.expect("not smaller");
    }
    // As text `9` is above `10`.
    assert_stale(set(&mut connection, "a", "nine", fence(9)).await, 9, 10);
    assert_stale(delete(&mut connection, "a", fence(9)).await, 9, 10);
    assert_eq!(server.cli(&["get", "a"]), "ten");
    delete(&mut connection, "a", fence(11)).await.expect("larger");
    assert_eq!(server.cli(&["exists", "a"]), "0");
    assert_stale(set(&mut connection, "a", "ten", fence(10)).await, 10, 11);
    assert_eq!(server.cli(&["get", &fence_key("a")]), "11");
}

#[tokio::test]
async fn fences_are_compared_exactly() {
    let server = RedisServer::start();
    let mut connection = connect(&server).await;
    // Lua's numbers cannot tell these apart.
    let large = (1 << 53) + 1;
    set(&mut connection, "a", "x", fence(large)).await.expect("the first");
    assert_stale(set(&mut connection, "a", "y", fence(large - 1)).await, large - 1, large);
    assert_eq!(server.cli(&["get", "a"]), "x");
}

#[tokio::test]
async fn who_reads_under_a_fence_is_not_overwritten_by_the_holder_before() {
    let server = RedisServer::start();
    let mut connection = connect(&server).await;
    let nothing: Option<String> = get(&mut connection, "a", fence(3)).await.expect("the first");
    assert_eq!(nothing, None);
    assert_stale(set(&mut connection, "a", "late", fence(2)).await, 2, 3);
    set(&mut connection, "a", "x", fence(3)).await.expect("the same holder");
    let read: Option<String> = get(&mut connection, "a", fence(4)).await.expect("larger");
    assert_eq!(read.as_deref(), Some("x"));
    assert_stale(get::<_, String>(&mut connection, "a", fence(3)).await.map(drop), 3, 4);
}

/// Keys with tags, with braces that are no tags, and without any.
#[test]
fn a_value_and_its_fence_share_a_slot() {
    let cluster = Cluster::start_without_replicas();
    for key in ["plain", "{tag}rest", "a{b}c", "{}x", "open{", "shut}", "}{", "{{a}}", "a}b{c}d"] {
        let beside = fence_key(key);
        assert_eq!(cluster.slot_of(key), cluster.slot_of(&beside), "`{key}` and `{beside}`");
    }
}
