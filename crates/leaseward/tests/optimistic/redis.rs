//! Values in Redis.

use std::time::Duration;

use leaseward::optimistic::{
    Conflict, Failure, Retry, Versioned, Why,
    redis::{create, delete, load, save, update},
};
use leaseward_testkit::RedisServer;
use redis::{Client, aio::MultiplexedConnection};

async fn connect(server: &RedisServer) -> MultiplexedConnection {
    let client = Client::open(server.url()).expect("a good url");
    client.get_multiplexed_async_connection().await.expect("a server")
}

#[tokio::test]
async fn saves_what_is_still_as_it_was_read_and_nothing_else() {
    let server = RedisServer::start();
    let mut redis = connect(&server).await;
    let first = create(&mut redis, "a", 10).await.expect("nothing was there");
    let taken = create(&mut redis, "a", 10).await.expect_err("it is there");
    assert_eq!(taken.conflict(), Some(Conflict::Changed { current: first }));
    let read: Versioned<i64> = load(&mut redis, "a").await.expect("ok").expect("a value");
    assert_eq!(read, Versioned::new(10, first));
    let mine = Versioned::new(11, first);
    let second = save(&mut redis, "a", &mine).await.expect("saved");
    assert!(second > first);
    let late = save(&mut redis, "a", &Versioned::new(99, first)).await.expect_err("late");
    assert_eq!(late.conflict(), Some(Conflict::Changed { current: second }));
    let late = delete(&mut redis, "a", &mine).await.expect_err("late");
    assert_eq!(late.conflict(), Some(Conflict::Changed { current: second }));
    delete(&mut redis, "a", &Versioned::new(11, second)).await.expect("deleted");
    let late = save(&mut redis, "a", &Versioned::new(99, second)).await.expect_err("late");
    assert_eq!(late.conflict(), Some(Conflict::Gone));
    // Made again, it is not taken for the old one.
    let again = create(&mut redis, "a", 10).await.expect("nothing is there");
    assert!(again > second, "{again} after {second}");
    assert_eq!(load::<_, i64>(&mut redis, "nothing").await.expect("ok"), None);
}

#[tokio::test]
async fn tasks_that_count_together_lose_nothing() {
    let server = RedisServer::start();
    let mut redis = connect(&server).await;
    create(&mut redis, "a", 0).await.expect("nothing was there");
    let mut running = Vec::new();
    for _ in 0..8 {
        let mut own = connect(&server).await;
        running.push(tokio::spawn(async move {
            let retry = Retry::new().attempts(1_000).budget(Duration::from_secs(60));
            for _ in 0..25 {
                update(&mut own, "a", &retry, |n: i64| Ok(n + 1)).await.expect("in the end");
            }
        }));
    }
    for one in running {
        one.await.expect("no panic");
    }
    assert_eq!(load(&mut redis, "a").await.expect("ok").map(Versioned::into_value), Some(200));
}

#[tokio::test]
async fn what_is_not_there_and_what_is_refused_ends_it() {
    let server = RedisServer::start();
    let mut redis = connect(&server).await;
    let none = update(&mut redis, "a", &Retry::new(), |n: i64| Ok(n + 1)).await;
    let none = none.expect_err("there is nothing");
    assert!(matches!(none.last(), Failure::Conflict(Conflict::Gone)), "{none:?}");
    assert_eq!((none.why(), none.tries()), (Why::Final, 1));
    create(&mut redis, "a", 0).await.expect("nothing was there");
    let own = update(&mut redis, "a", &Retry::new(), |_: i64| Err(Failure::other("no"))).await;
    assert_eq!(own.expect_err("refused").why(), Why::Final);
}
