//! Faults one after the other while work goes on: no update is lost, and the work comes through.

use std::time::Duration;

use leaseward_testkit::{Fsync, Proxy, RedisServer};

use crate::work::Works;

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_lose_no_update() {
    let server = RedisServer::start();
    let proxies = [Proxy::start(&server.address()), Proxy::start(&server.address())];
    let urls = proxies.each_ref().map(|at| format!("redis://{}?timeout=150ms", at.address()));
    let works = Works::start(&urls).await;
    for round in 0..24 {
        let proxy = &proxies[round % 2];
        match round % 6 {
            0 => proxy.cut(),
            1 => proxy.cut_after_reply_bytes(round * 7),
            2 => proxy.cut_at_request(3),
            3 => proxy.cut_at_reply_chunk(2),
            4 => proxy.strand(),
            _ => proxy.delay(Duration::from_millis(20)),
        }
        works.go_on().await;
        proxy.pass();
    }
    works.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_lose_no_update() {
    let server = RedisServer::builder().appendonly(Fsync::Always).start();
    let works = Works::start(&[server.url(), server.url()]).await;
    for _ in 0..3 {
        server.restart();
        works.go_on().await;
        server.cli(&["script", "flush"]);
        server.cli(&["client", "kill", "type", "normal"]);
        works.go_on().await;
    }
    works.finish().await;
}
