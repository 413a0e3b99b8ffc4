//! Answers that are lost: the token in the node's name resolves what became of the request.

use leaseward_testkit::{Proxy, ZooKeeper};

use crate::help::{LONG, client, take, until, view};

/// Cut after every so many bytes that the server sends, the answer to `create` among them.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_never_leaves_two_nodes_of_a_token() {
    let server = ZooKeeper::start();
    let proxy = Proxy::start(&format!("127.0.0.1:{}", server.port(0)));
    let url = format!("zookeeper://{}/lost?timeout=1s", proxy.address());
    let (locks, other) = (client(&url, "one").await, client(&server.url("lost"), "other").await);
    // Its node is there, and its session.
    take(&locks.lock("x").ttl(LONG)).await.release().await.expect("given back");
    for bytes in (0..320).step_by(20) {
        proxy.cut_after_reply_bytes(bytes);
        let guard =
            until("it is granted", || async { locks.lock("x").ttl(LONG).acquire().await.ok() })
                .await;
        let seen = view(&other, "x").await;
        assert_eq!(seen.holders.len(), 1, "after {bytes} bytes");
        assert_eq!(seen.holders[0].fence, guard.fence(), "after {bytes} bytes");
        assert!(seen.waiters.is_empty(), "it waits behind its own ghost, after {bytes} bytes");
        proxy.cut_after_reply_bytes(bytes / 4);
        guard.release().await.expect("known in the end");
        let next = other.lock("x").ttl(LONG).acquire().await.expect("free");
        next.release().await.expect("given back");
        proxy.pass();
    }
}
