//! Cancelling.

use leaseward_queue::{Cancelled, Failure, JobState, NewJob, Worker};
use std::time::Duration;

use crate::help::{Background, Place, Seen, cases, until};

cases![
    a_job_that_has_not_begun_is_taken_out,
    a_running_job_is_stopped,
    cancelled_jobs_are_remembered_if_they_are_kept,
];

async fn a_job_that_has_not_begun_is_taken_out(place: &Place) {
    let queue = place.client().await;
    let ready = queue.push(NewJob::new("out", &1)).await.expect("pushed").id();
    let later = queue
        .push(NewJob::new("out", &2).after(Duration::from_secs(60)))
        .await
        .expect("pushed")
        .id();
    for id in [ready, later] {
        assert_eq!(queue.cancel(id).await.expect("asked"), Cancelled::TakenOut);
        assert_eq!(queue.cancel(id).await.expect("asked"), Cancelled::NoSuchJob);
    }
    let stats = &queue.stats().await.expect("asked")[0];
    assert_eq!((stats.ready, stats.later, stats.cancelled), (0, 0, 2), "{stats:?}");
}

async fn a_running_job_is_stopped(place: &Place) {
    let (queue, other) = (place.client().await, place.client().await);
    let id = queue.push(NewJob::new("stop", &1)).await.expect("pushed").id();
    let (begun, stopped) = (Seen::new(), Seen::new());
    let worker = Background::start(Worker::new(&queue, "stop"), {
        let (begun, stopped) = (begun.clone(), stopped.clone());
        move |_, context| {
            begun.add(());
            let watched = context.clone();
            let stopped = stopped.clone();
            tokio::spawn(async move {
                watched.stopped().await;
                stopped.add(watched.is_stopped());
            });
            std::future::pending::<Result<(), Failure>>()
        }
    });
    begun.wait_for(1).await;
    assert_eq!(queue.job(id).await.expect("asked").expect("it is there").state, JobState::Running);
    assert_eq!(other.cancel(id).await.expect("asked"), Cancelled::Told);
    stopped.wait_for(1).await;
    until("it is gone", || async { queue.job(id).await.expect("asked").is_none().then_some(()) })
        .await;
    worker.end().await;
    let stats = &queue.stats().await.expect("asked")[0];
    assert_eq!((stats.cancelled, stats.running, stats.ready), (1, 0, 0), "{stats:?}");
}

async fn cancelled_jobs_are_remembered_if_they_are_kept(place: &Place) {
    let queue = place.client().await;
    let id = queue.push(NewJob::new("kept", &1)).await.expect("pushed").id();
    Worker::new(&queue, "kept")
        .keep(Duration::from_secs(60))
        .drain(std::future::pending(), |_: u32, _| async {
            Ok::<_, Failure>(leaseward_queue::Ending::Cancel)
        })
        .await
        .expect("a worker begins");
    assert_eq!(queue.job(id).await.expect("asked").expect("it is kept").state, JobState::Cancelled);
}
