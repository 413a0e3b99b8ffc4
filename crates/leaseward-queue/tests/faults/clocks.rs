//! Clocks that go back.

use leaseward_queue::{Failure, NewJob, Queue, Worker};
use leaseward_testkit::{Postgres, Skew};

use crate::help::{Background, Place, SOON, Seen};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_of_a_job_grow_though_the_servers_clock_goes_back() {
    let skew = Skew::new();
    let server = Postgres::builder().in_memory().skew(&skew).start();
    let place = Place::at(server.database("skew"));
    let queue = Queue::open(&place.url).await.expect("reached");
    queue.push(NewJob::new("skew", &1).max_attempts(4)).await.expect("pushed");
    let fences = Seen::new();
    for ahead_ms in [0, -3_600_000, -7_200_000] {
        skew.set_ms(ahead_ms);
        // Another process, that knows of no fence before.
        let queue = Queue::open(&place.url).await.expect("reached");
        let before = fences.count();
        let worker = Background::start(Worker::new(&queue, "skew").backoff(SOON), {
            let fences = fences.clone();
            move |_, context| {
                fences.add(context.fence());
                // Given back, so that it is not waited for by a clock that went back.
                std::future::pending::<Result<(), Failure>>()
            }
        });
        fences.wait_for(before + 1).await;
        worker.drop_now().await;
    }
    let all = fences.all();
    assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
}
