//! Workers that vanish, stall, end, or are dropped.

use std::{future::pending, time::Duration};

use leaseward_queue::{Failure, JobState, NewJob, Worker};

use crate::help::{Background, Elsewhere, Place, Seen, cases, done, until};

cases![
    jobs_of_a_vanished_worker_run_elsewhere,
    a_dropped_worker_gives_its_jobs_back,
    a_worker_that_ends_finishes_what_runs_and_gives_the_rest_back,
    a_worker_that_ends_gives_back_what_takes_too_long,
    a_process_that_was_stopped_loses_its_jobs_and_goes_on,
];

async fn jobs_of_a_vanished_worker_run_elsewhere(place: &Place) {
    let queue = place.mortal().await;
    queue.push_many((0..20).map(|number| NewJob::new("crash", &number))).await.expect("pushed");
    let begun = Seen::new();
    let elsewhere = Elsewhere::start(place, "crash", {
        let begun = begun.clone();
        move |number, context| {
            begun.add((number, context.fence()));
            pending::<Result<(), Failure>>()
        }
    });
    let first = begun.wait_for(8).await;
    elsewhere.vanish();
    let done = Seen::new();
    let worker = Background::start(Worker::new(&queue, "crash").backoff(crate::help::SOON), {
        let done = done.clone();
        move |number, context| {
            done.add((number, context.fence(), context.attempt()));
            async { Ok::<(), Failure>(()) }
        }
    });
    let all = done.wait_for(20).await;
    worker.end().await;
    for (number, fence) in first {
        let (_, later, attempt) =
            *all.iter().find(|(other, ..)| *other == number).expect("it ran again");
        assert!(later > fence && attempt == 2, "{number}: {fence} then {later}, attempt {attempt}");
    }
    assert!(queue.is_drained("crash").await.expect("asked"));
    assert_eq!(done.count(), 20, "each once");
}

async fn a_dropped_worker_gives_its_jobs_back(place: &Place) {
    let queue = place.client().await;
    let id = queue.push(NewJob::new("dropped", &1)).await.expect("pushed").id();
    // Keeps the session alive.
    let other =
        Background::start(Worker::new(&queue, "other"), |_, _| async { Ok::<(), Failure>(()) });
    let begun = Seen::new();
    let worker = Background::start(Worker::new(&queue, "dropped"), {
        let begun = begun.clone();
        move |_, _| {
            begun.add(());
            pending::<Result<(), Failure>>()
        }
    });
    begun.wait_for(1).await;
    worker.drop_now().await;
    until("it is ready again", || async {
        let view = queue.job(id).await.expect("asked").expect("it is there");
        (view.state == JobState::Ready && view.failures == 0).then_some(())
    })
    .await;
    other.end().await;
}

async fn a_worker_that_ends_finishes_what_runs_and_gives_the_rest_back(place: &Place) {
    let queue = place.client().await;
    // The first are done faster than the database answers, so others are claimed ahead of need; and those wait.
    let quick = 2_000;
    queue.push_many((0..3_000).map(|number| NewJob::new("end", &number))).await.expect("pushed");
    let (begun, gate) = (Seen::new(), std::sync::Arc::new(tokio::sync::Semaphore::new(0)));
    let worker = Background::start(Worker::new(&queue, "end").concurrency(3), {
        let (begun, gate) = (begun.clone(), gate.clone());
        move |number, _| {
            let (begun, gate) = (begun.clone(), gate.clone());
            async move {
                if number.as_u64() < Some(quick) {
                    return Ok::<(), Failure>(());
                }
                begun.add(());
                gate.acquire().await?.forget();
                Ok(())
            }
        }
    });
    begun.wait_for(3).await;
    let running = queue.stats().await.expect("asked")[0].running;
    assert!(running > 3, "some are claimed ahead of need: {running}");
    let ending = tokio::spawn(worker.end());
    until("what had not begun is given back", || async {
        (queue.stats().await.expect("asked")[0].running == 3).then_some(())
    })
    .await;
    gate.add_permits(3_000);
    let summary = ending.await.expect("it ends");
    let stats = &queue.stats().await.expect("asked")[0];
    assert_eq!(
        (stats.done, stats.ready, stats.running),
        (quick + 3, 3_000 - quick - 3, 0),
        "{stats:?}"
    );
    assert_eq!(summary.done, quick + 3);
}

async fn a_worker_that_ends_gives_back_what_takes_too_long(place: &Place) {
    let queue = place.client().await;
    let id = queue.push(NewJob::new("slow", &1)).await.expect("pushed").id();
    let begun = Seen::new();
    let worker = Background::start(Worker::new(&queue, "slow").grace(Duration::from_millis(50)), {
        let begun = begun.clone();
        move |_, _| {
            begun.add(());
            pending::<Result<(), Failure>>()
        }
    });
    begun.wait_for(1).await;
    worker.end().await;
    let view = queue.job(id).await.expect("asked").expect("it is there");
    assert_eq!((view.state, view.failures), (JobState::Ready, 0));
    assert!(view.fence.is_some(), "its next fence must be larger than the one it had");
}

async fn a_process_that_was_stopped_loses_its_jobs_and_goes_on(place: &Place) {
    let queue = place.mortal().await;
    let (attempts, lost) = (Seen::new(), Seen::new());
    let elsewhere = Elsewhere::start(place, "stopped", {
        let (attempts, lost) = (attempts.clone(), lost.clone());
        move |_, context| {
            attempts.add((context.attempt(), context.fence()));
            let (lost, is_first) = (lost.clone(), context.attempt() == 1);
            let watched = context.clone();
            tokio::spawn(async move {
                watched.lost().await;
                lost.add(watched.fence());
            });
            async move {
                if is_first {
                    std::future::pending::<()>().await;
                }
                Ok::<(), Failure>(())
            }
        }
    });
    queue.push(NewJob::new("stopped", &1)).await.expect("pushed");
    let (_, first) = attempts.wait_for(1).await[0];
    // Somebody else keeps the queues going, and takes it for dead.
    let other =
        Background::start(Worker::new(&queue, "other"), |_, _| async { Ok::<(), Failure>(()) });
    let sessions = format!("SELECT count(*) FROM {}session", place.prefix());
    until("both are there", || async { (place.sql(&sessions).await == "2").then_some(()) }).await;
    let frozen = elsewhere.freeze();
    until("it is taken for dead", || async { (place.sql(&sessions).await == "1").then_some(()) })
        .await;
    drop(frozen);
    assert_eq!(lost.wait_for(1).await, [first]);
    // It begins anew, and gets the job again.
    let (attempt, second) = attempts.wait_for(2).await[1];
    assert!(attempt == 2 && second > first, "{attempt}: {first} then {second}");
    done(&queue, "stopped", 1).await;
    other.end().await;
    elsewhere.vanish();
}
