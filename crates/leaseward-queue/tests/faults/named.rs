//! What the server parses once, and what it does not behind a pooler.

use leaseward_queue::{NewJob, Queue, Worker};
use leaseward_testkit::{PgBouncer, Postgres};

use crate::help::{Background, Place, done, until};

fn talkative() -> Postgres {
    Postgres::builder().in_memory().conf("log_statement", "all").start()
}

/// How often jobs were pushed and claimed: by name, and without.
fn calls(log: &str) -> [(usize, usize); 2] {
    ["leaseward_queue.push(", "leaseward_queue.claim("].map(|call| {
        let of = |line: &&str| line.contains("execute ") && line.contains(call);
        let (unnamed, named): (Vec<_>, Vec<_>) =
            log.lines().filter(of).partition(|line| line.contains("execute <unnamed>"));
        (named.len(), unnamed.len())
    })
}

/// Pushes jobs, one after the other.
async fn push(queue: &Queue, count: u32) {
    for number in 0..count {
        queue.push(NewJob::new("named", &number)).await.expect("pushed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_and_claims_are_parsed_once() {
    let server = talkative();
    let queue = Place::at(server.database("named")).client().await;
    let worker = Background::start(Worker::new(&queue, "named"), |_, _| async { Ok(()) });
    until("both have a name", || async {
        push(&queue, 1).await;
        calls(&server.log()).iter().all(|(named, _)| *named > 0).then_some(())
    })
    .await;
    worker.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_nothing_is() {
    let server = talkative();
    drop(server.database("named"));
    let bouncer = PgBouncer::before(&server, 3);
    let queue = Place::at(bouncer.url_of("named")).client().await;
    let worker = Background::start(Worker::new(&queue, "named"), |_, _| async { Ok(()) });
    push(&queue, 20).await;
    done(&queue, "named", 20).await;
    worker.end().await;
    for (named, unnamed) in calls(&server.log()) {
        assert!(named == 0 && unnamed > 2, "{named} by name, {unnamed} without");
    }
}
