//! Unique keys.

use std::time::Duration;

use leaseward_queue::{Failure, NewJob, Pushed, Worker};

use crate::help::{Background, Place, Seen, cases, done, until};

cases![
    of_jobs_with_one_key_one_is_pushed,
    a_key_is_free_again_once_its_job_has_ended,
    a_window_outlasts_its_job,
    many_at_once_push_one,
];

async fn of_jobs_with_one_key_one_is_pushed(place: &Place) {
    let queue = place.client().await;
    let job = |key: &str| NewJob::new("unique", &1).unique(key);
    let first = queue.push(job("a")).await.expect("pushed");
    assert!(first.is_new());
    assert_eq!(queue.push(job("a")).await.expect("asked"), Pushed::Duplicate(first.id()));
    let both = queue
        .push_many([job("b"), job("a"), job("b"), NewJob::new("unique", &2)])
        .await
        .expect("asked");
    assert_eq!(both[1], Pushed::Duplicate(first.id()));
    assert_eq!(both[2], Pushed::Duplicate(both[0].id()));
    assert!(both[0].is_new() && both[3].is_new());
    let other = queue.push(NewJob::new("other", &1).unique("a")).await.expect("pushed");
    assert!(other.is_new(), "keys are those of a queue");
    let stats = queue.stats().await.expect("asked");
    let counts: Vec<_> = stats.iter().map(|queue| (queue.name.as_str(), queue.ready)).collect();
    assert_eq!(counts, [("other", 1), ("unique", 3)]);
}

async fn a_key_is_free_again_once_its_job_has_ended(place: &Place) {
    let queue = place.client().await;
    let job = || NewJob::new("again", &1).unique("a").max_attempts(1);
    for is_done in [true, false] {
        assert!(queue.push(job()).await.expect("pushed").is_new());
        assert!(!queue.push(job()).await.expect("pushed").is_new());
        Worker::new(&queue, "again")
            .drain(std::future::pending(), move |_: u32, _| async move {
                if is_done { Ok(()) } else { Err(Failure::new("dead")) }
            })
            .await
            .expect("a worker begins");
    }
    let pushed = queue.push(job()).await.expect("pushed");
    assert!(pushed.is_new(), "the dead do not block the living");
    queue.cancel(pushed.id()).await.expect("cancelled");
    assert!(queue.push(job()).await.expect("pushed").is_new());
}

async fn a_window_outlasts_its_job(place: &Place) {
    let queue = place.client().await;
    let job = |window| NewJob::new("window", &1).unique_for("a", window);
    let hour = Duration::from_secs(3_600);
    let first = queue.push(job(hour)).await.expect("pushed");
    let worker =
        Background::start(Worker::new(&queue, "window"), |_, _| async { Ok::<(), Failure>(()) });
    done(&queue, "window", 1).await;
    assert_eq!(queue.push(job(hour)).await.expect("asked"), Pushed::Duplicate(first.id()));
    let short = || NewJob::new("window", &1).unique_for("b", Duration::from_millis(50));
    assert!(queue.push(short()).await.expect("pushed").is_new());
    until("the window is over", || async {
        queue.push(short()).await.expect("asked").is_new().then_some(())
    })
    .await;
    worker.end().await;
}

async fn many_at_once_push_one(place: &Place) {
    let queues = [place.client().await, place.client().await];
    let fresh = Seen::new();
    let tasks: Vec<_> = (0..60_usize)
        .map(|number| {
            let (queue, fresh) = (queues[number % 2].clone(), fresh.clone());
            tokio::spawn(async move {
                let keys = if number % 3 == 0 { ["a", "b"] } else { ["b", "a"] };
                let jobs = keys.map(|key| NewJob::new("race", &1).unique(key));
                for pushed in queue.push_many(jobs).await.expect("pushed") {
                    if pushed.is_new() {
                        fresh.add(pushed.id());
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(fresh.count(), 2);
    assert_eq!(queues[0].stats().await.expect("asked")[0].ready, 2);
}
