//! What an operator sees of locks of other libraries, and can do about them.

use std::time::Duration;

use leaseward::{ErrorKind, Fence, store::Query};

use super::help::{Server, name, served, wait_for};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn shows_theirs_beside_ours() {
    let server = Server::start().await;
    let url = format!("{}?prefix=app:", server.url());
    let locks = leaseward::connect(&url).await.expect("the server is there");
    let _ours = locks.lock("ours").acquire().await.expect("it is free");
    server.do_it(&["SET", "app:timed", SECRET, "PX", "600000"]).await;
    server.do_it(&["SET", "app:for-ever", SECRET]).await;
    server.do_it(&["HSET", "app:redisson", SECRET, "1"]).await;
    server.do_it(&["SET", "elsewhere", SECRET]).await;
    let waiting = wait_for(&locks, "for-ever");
    server.until_waiting("app:for-ever", 1).await;

    let views = locks.inspect(Query::all()).await.expect("the server is there");
    let seen: Vec<_> = views.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(seen, ["for-ever", "ours", "redisson", "timed"]);
    let [for_ever, ours, redisson, timed] = [0, 1, 2, 3].map(|at| &views[at].holders[0]);
    assert!(ours.fence > Fence::ZERO);
    assert_eq!((&*for_ever.who, for_ever.remaining), ("a client of another library", None));
    assert_eq!((&*redisson.who, redisson.remaining), ("a Redisson-style lock", None));
    let left = timed.remaining.expect("it has an expiry");
    assert!(left <= Duration::from_secs(600) && left > Duration::from_secs(500), "{left:?}");
    for theirs in [for_ever, redisson, timed] {
        assert_eq!((theirs.fence, theirs.token_prefix.as_str()), (Fence::ZERO, "01234567"));
    }
    assert_eq!(views[0].waiters.len(), 1);
    assert!(!format!("{views:?}").contains(SECRET));

    let one = locks.inspect(Query::Name(name("timed"))).await.expect("the server is there");
    assert_eq!(one.len(), 1);
    server.do_it(&["DEL", "app:for-ever"]).await;
    drop(served(waiting).await);
}

#[tokio::test]
async fn without_a_prefix_data_is_not_listed_as_locks() {
    let server = Server::start().await;
    let locks = server.locks().await;
    server.do_it(&["SET", "data", "1"]).await;
    server.do_it(&["SET", "theirs", SECRET]).await;
    let _ours = locks.lock("ours").acquire().await.expect("it is free");
    let waiting = wait_for(&locks, "theirs");
    server.until_waiting("theirs", 1).await;
    let views = locks.inspect(Query::all()).await.expect("the server is there");
    let seen: Vec<_> = views.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(seen, ["ours", "theirs"], "theirs because one of ours waits for it");
    let named = locks.inspect(Query::Name(name("data"))).await.expect("the server is there");
    assert_eq!(named.len(), 1, "by its name it can be looked at");
    server.do_it(&["DEL", "theirs"]).await;
    drop(served(waiting).await);
}

#[tokio::test]
async fn a_lock_of_theirs_cannot_be_told_to_end_but_deleted() {
    for make in [&["SET", "a", SECRET][..], &["HSET", "a", SECRET, "1"]] {
        let server = Server::start().await;
        server.do_it(make).await;
        let locks = server.locks().await;
        let waiting = wait_for(&locks, "a");
        server.until_waiting("a", 1).await;
        let refusal = locks.break_lease("a", false).await.expect_err("nobody there listens");
        assert_eq!(refusal.kind(), ErrorKind::Unsupported);
        assert!(refusal.to_string().contains("another library"), "{refusal}");
        assert_eq!(server.ask::<u64>(&["EXISTS", "a"]).await, 1);
        assert!(!waiting.is_finished());
        let broken = locks.break_lease("a", true).await.expect("the server is there");
        assert_eq!(broken.holders.len(), 1);
        drop(served(waiting).await);
    }
}

#[tokio::test]
async fn breaking_a_name_nobody_holds_does_nothing() {
    let server = Server::start().await;
    let locks = server.locks().await;
    for now in [false, true] {
        let broken = locks.break_lease("a", now).await.expect("the server is there");
        assert!(broken.holders.is_empty());
    }
    let guard = locks.lock("a").acquire().await.expect("it is free");
    locks.break_lease("a", false).await.expect("ours can be told");
    assert_eq!(guard.renew().await.expect_err("broken").kind(), ErrorKind::Lost);
}
