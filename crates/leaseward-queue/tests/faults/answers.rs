//! Answers that are lost on the way.

use std::time::Duration;

use leaseward_queue::{Failure, NewJob, Queue, Worker};
use leaseward_testkit::{PATIENCE, Postgres, Proxy, eventually};

use crate::help::{Background, Place, Seen, done, until};

/// A server, and a queue behind a proxy; nobody listens through it.
async fn behind_a_proxy(name: &str) -> (Postgres, Proxy, Queue, Place) {
    let server = Postgres::builder().in_memory().start();
    let place = Place::at(server.database(name));
    let proxy = Proxy::start(&server.address());
    let url = format!(
        "{}?listen=no&lanes=1&timeout=1s",
        place.url.replace(&server.address(), &proxy.address())
    );
    let queue = Queue::builder().ttl(Duration::from_secs(30)).connect(&url).await.expect("reached");
    (server, proxy, queue, place)
}

/// Waits until the server has carried something out whose answer is held back.
fn carried_out(server: &Postgres, database: &str, sql: &str, expected: &str) {
    eventually("it was carried out", PATIENCE, || {
        (server.sql_in(database, sql) == expected).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_claimed_by_a_statement_whose_answer_was_lost_are_run_by_whoever_claimed_them() {
    let (server, proxy, queue, place) = behind_a_proxy("strays").await;
    let direct = place.client().await;
    let seen = Seen::new();
    // It looks when it is woken, and never by itself.
    let worker =
        Background::start(Worker::new(&queue, "stray").poll(Duration::from_secs(3_600)), {
            let seen = seen.clone();
            move |number, context| {
                seen.add((number, context.attempt()));
                async { Ok::<(), Failure>(()) }
            }
        });
    queue.push(NewJob::new("stray", &0)).await.expect("pushed");
    done(&direct, "stray", 1).await;
    // A claim that is stuck on its way: the client gives it up, and others find that the queue is paused.
    direct.pause("stray").await.expect("paused");
    proxy.strand();
    queue.wake("stray");
    let claims = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%.claim(%' AND state = 'idle' AND datname = 'strays'";
    carried_out(&server, "strays", claims, "2");
    // Nobody tells that one: it is the stuck claim that finds it.
    direct.push(NewJob::new("stray", &1)).await.expect("pushed");
    direct.resume("stray").await.expect("resumed");
    proxy.release();
    // Long before the session ends, and as its first attempt: it was given back.
    let all = seen.wait_for(2).await;
    assert_eq!(all, [(0.into(), 1), (1.into(), 1)]);
    done(&direct, "stray", 2).await;
    worker.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_whose_answer_was_lost_is_not_done_twice() {
    let (server, proxy, queue, place) = behind_a_proxy("twice").await;
    let direct = place.client().await;
    direct.push(NewJob::new("twice", &1)).await.expect("pushed");
    let (begun, gate) = (Seen::new(), std::sync::Arc::new(tokio::sync::Semaphore::new(0)));
    let worker = Background::start(
        Worker::new(&queue, "twice").poll(Duration::from_millis(200)),
        {
            let (begun, gate) = (begun.clone(), gate.clone());
            move |_, _| {
                begun.add(());
                let gate = gate.clone();
                async move { gate.acquire().await.map(|permit| permit.forget()).map_err(Failure::from) }
            }
        },
    );
    begun.wait_for(1).await;
    // It has said that it sleeps, looked once more, and sleeps.
    let sleeps = "SELECT count(*) FROM leaseward_queue.session, pg_stat_activity \
                  WHERE idle AND query LIKE '%.claim(%' AND state = 'idle' AND datname = 'twice'";
    carried_out(&server, "twice", sleeps, "1");
    // From here on nothing is heard: the completion is carried out, and its answer lost.
    proxy.hold_to_client();
    gate.add_permits(9);
    carried_out(&server, "twice", "SELECT count(*) FROM leaseward_queue.lease", "0");
    proxy.cut();
    proxy.pass();
    direct.push(NewJob::new("twice", &2)).await.expect("pushed");
    until("it is woken once it is connected again", || async {
        queue.wake("twice");
        (begun.count() == 2).then_some(())
    })
    .await;
    done(&direct, "twice", 2).await;
    let summary = worker.end().await;
    assert_eq!((begun.count(), summary.done, summary.lost), (2, 2, 0), "{summary:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_between_claim_and_completion_delays_it() {
    let (_server, proxy, queue, place) = behind_a_proxy("cut").await;
    let direct = place.client().await;
    direct.push_many((0..50).map(|number| NewJob::new("cut", &number))).await.expect("pushed");
    let (begun, gate) = (Seen::new(), std::sync::Arc::new(tokio::sync::Semaphore::new(0)));
    let worker = Background::start(Worker::new(&queue, "cut").poll(Duration::from_millis(200)), {
        let (begun, gate) = (begun.clone(), gate.clone());
        move |number, _| {
            begun.add(number);
            let gate = gate.clone();
            async move { gate.acquire().await.map(|permit| permit.forget()).map_err(Failure::from) }
        }
    });
    begun.wait_for(8).await;
    proxy.refuse();
    proxy.cut();
    gate.add_permits(50);
    // Only those that were claimed can go on.
    proxy.pass();
    done(&direct, "cut", 50).await;
    let summary = worker.end().await;
    assert_eq!((begun.count(), summary.done, summary.lost), (50, 50, 0), "{summary:?}");
}
