//! Answers that are lost on the way.

use std::time::Duration;

use leaseward_queue::{Failure, NewJob, Queue, Worker};
use leaseward_testkit::{Postgres, Proxy};

use crate::help::{Background, Place, Seen, done, until};

/// A server, and a queue behind a proxy; nobody listens through it.
async fn behind_a_proxy(name: &str) -> (Postgres, Proxy, Queue, Place) {
    let server = Postgres::builder().in_memory().start();
    let place = Place::at(server.database(name));
    let proxy = Proxy::start(&server.address());
    let url = format!(
        "{}?listen=no&lanes=1&timeout=10s",
        place.url.replace(&server.address(), &proxy.address())
    );
    let queue = Queue::builder().ttl(Duration::from_secs(30)).connect(&url).await.expect("reached");
    (server, proxy, queue, place)
}

/// How often it is tried to lose an answer: the statement may not have been sent when nothing is heard any more.
const ROUNDS: usize = 20;

/// Whether there are so many leases soon, although nobody hears of it.
async fn leases(server: &Postgres, database: &str, expected: &str) -> bool {
    for _ in 0..30 {
        if server.sql_in(database, "SELECT count(*) FROM leaseward_queue.lease") == expected {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

/// Makes it likely that nothing else is on its way; should something be, there is another round.
async fn quiet() {
    tokio::time::sleep(Duration::from_millis(150)).await;
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
    let mut lost = 0;
    for round in 1..=ROUNDS {
        quiet().await;
        proxy.hold_to_client();
        direct.push(NewJob::new("stray", &round)).await.expect("pushed");
        queue.wake("stray");
        if leases(&server, "strays", "1").await {
            // Claimed, and nobody knows.
            assert_eq!(seen.count(), round - 1);
            proxy.cut();
            lost += 1;
        }
        proxy.pass();
        // Long before the session ends.
        seen.wait_for(round).await;
        done(&direct, "stray", u64::try_from(round).expect("few")).await;
        if lost == 3 {
            break;
        }
    }
    worker.end().await;
    assert!(lost > 0, "no answer was lost in {ROUNDS} rounds");
    assert!(seen.all().iter().all(|(_, attempt)| *attempt == 1), "{:?}", seen.all());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_whose_answer_was_lost_is_not_done_twice() {
    let (server, proxy, queue, place) = behind_a_proxy("twice").await;
    let direct = place.client().await;
    let (begun, gate) = (Seen::new(), std::sync::Arc::new(tokio::sync::Semaphore::new(0)));
    let worker = Background::start(
        Worker::new(&queue, "twice").poll(Duration::from_secs(3_600)),
        {
            let (begun, gate) = (begun.clone(), gate.clone());
            move |_, _| {
                begun.add(());
                let gate = gate.clone();
                async move { gate.acquire().await.map(|permit| permit.forget()).map_err(Failure::from) }
            }
        },
    );
    let (mut lost, mut round) = (0, 0);
    while lost < 3 && round < ROUNDS {
        round += 1;
        direct.push(NewJob::new("twice", &round)).await.expect("pushed");
        queue.wake("twice");
        begun.wait_for(round).await;
        quiet().await;
        // From here on nothing is heard: the completion is carried out, and its answer lost.
        proxy.hold_to_client();
        gate.add_permits(1);
        if leases(&server, "twice", "0").await {
            proxy.cut();
            lost += 1;
        }
        proxy.pass();
        done(&direct, "twice", u64::try_from(round).expect("few")).await;
    }
    let summary = worker.end().await;
    assert!(lost > 0, "no answer was lost in {ROUNDS} rounds");
    let rounds = u64::try_from(round).expect("few");
    assert_eq!((begun.count(), summary.done, summary.lost), (round, rounds, 0), "{summary:?}");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_sent_again_while_the_first_is_at_work_counts_once() {
    let place = Place::postgres();
    let queue = place.client().await;
    queue.push(NewJob::new("again", &1)).await.expect("pushed");
    place
        .sql(
            "INSERT INTO leaseward_queue.lease (token, session, queue, since, ids, bodies) \
              VALUES (5, 7, 1, 0, '{11,12}', '{\"\",\"\"}')",
        )
        .await;
    let finish = "SELECT * FROM leaseward_queue.finish(7, '{}', '{}', '{5}', '{11}')";
    let first = place.tokio_postgres().await;
    first.batch_execute(&format!("BEGIN; {finish}")).await.expect("carried out");
    let second = tokio::spawn({
        let client = place.tokio_postgres().await;
        async move { client.batch_execute(finish).await }
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND wait_event_type = 'Lock'";
    until("the second waits for the first", || async {
        (place.sql(waiting).await != "0").then_some(())
    })
    .await;
    first.batch_execute("COMMIT").await.expect("committed");
    second.await.expect("no panic").expect("carried out");
    let counted = "SELECT sum(done)::bigint FROM leaseward_queue.tally";
    assert_eq!(place.sql(counted).await, "1");
    let noted = "SELECT cardinality(done)::bigint FROM leaseward_queue.lease";
    assert_eq!(place.sql(noted).await, "1");
}
