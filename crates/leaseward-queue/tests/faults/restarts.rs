//! A server that restarts while workers are at it.

use leaseward_queue::{NewJob, Queue, Worker};
use leaseward_testkit::Postgres;

use crate::help::{Background, Place, SOON, Seen, done};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_and_started_again_loses_no_job() {
    let server = Postgres::builder().in_memory().start();
    let place = Place::at(server.database("restart"));
    let queue = Queue::open(&place.url).await.expect("reached");
    place.make_effects().await;
    let jobs = (0..200).map(|number| NewJob::new("restart", &number));
    let ids: Vec<_> =
        queue.push_many(jobs).await.expect("pushed").iter().map(|job| job.id()).collect();
    let seen = Seen::new();
    let again = place.again();
    let worker = Background::start(Worker::new(&queue, "restart").backoff(SOON).concurrency(4), {
        let seen = seen.clone();
        move |_, context| {
            let (place, seen) = (again.clone(), seen.clone());
            async move {
                let driver = place.drivers()[0];
                let outcome = driver.complete(&place, &context, true).await;
                seen.add(outcome.is_ok());
                outcome.map_err(leaseward_queue::Failure::new)
            }
        }
    });
    for round in 1..=2 {
        seen.wait_for(round * 30).await;
        server.restart();
    }
    done(&queue, "restart", 200).await;
    worker.end().await;
    for id in ids {
        assert_eq!(place.effects(id).await, 1, "{id}");
    }
    let stats = &queue.stats().await.expect("asked")[0];
    assert_eq!((stats.ready, stats.later, stats.running, stats.dead), (0, 0, 0, 0), "{stats:?}");
}
