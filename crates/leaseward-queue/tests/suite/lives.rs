//! Workers that vanish, stall, end, or are dropped.

use std::{future::pending, time::Duration};

use leaseward_queue::{Failure, JobState, NewJob, Worker};

use crate::help::{Background, Elsewhere, MORTAL, Place, Seen, cases, done, until};

cases![
    jobs_of_a_vanished_worker_run_elsewhere,
    a_dropped_worker_gives_its_jobs_back,
    a_worker_that_ends_finishes_what_runs_and_gives_the_rest_back,
    a_worker_that_ends_gives_back_what_takes_too_long,
    a_process_that_was_stopped_loses_its_jobs_and_goes_on,
    what_a_process_breaks_off_because_it_was_away_loses_no_attempt,
    of_processes_that_were_away_together_each_says_what_became_of_its_jobs,
    what_is_due_or_a_vanished_workers_is_not_drained,
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

/// A worker whose first attempt at each job has no end. What that has started lasts a little longer than it.
fn broken_off(
    place: &Place,
    ttl: Duration,
    queue: &'static str,
    seen: &Seen<(u64, u32, bool)>,
) -> Elsewhere {
    let (seen, over) = (seen.clone(), Seen::new());
    Elsewhere::living(place, ttl, queue, move |number, context| {
        let (over, job) = (over.clone(), number.as_u64().expect("a number"));
        let is_over = over.all().contains(&job);
        seen.add((job, context.attempt(), is_over));
        tokio::spawn(async move {
            context.lost().await;
            tokio::time::sleep(MORTAL / 4).await;
            over.add(job);
            drop(context);
        });
        async move {
            if !is_over {
                pending::<()>().await;
            }
            Ok::<(), Failure>(())
        }
    })
}

async fn what_a_process_breaks_off_because_it_was_away_loses_no_attempt(place: &Place) {
    let queue = place.client().await;
    let seen = Seen::new();
    let elsewhere = broken_off(place, MORTAL, "away", &seen);
    let id = queue.push(NewJob::new("away", &7).max_attempts(1)).await.expect("pushed").id();
    seen.wait_for(1).await;
    let job = || async { queue.job(id).await.expect("asked").expect("it is there") };
    assert!(!job().await.worker_vanished);
    let frozen = elsewhere.freeze();
    until("its session ends", || async { job().await.worker_vanished.then_some(()) }).await;
    drop(frozen);
    done(&queue, "away", 1).await;
    // The same attempt as before, begun once the one before had ended in every respect.
    assert_eq!(seen.all(), [(7, 1, false), (7, 1, true)]);
    let stats = &queue.stats().await.expect("asked")[0];
    assert_eq!((stats.interrupted, stats.failed, stats.dead), (1, 0, 0), "{stats:?}");
    elsewhere.vanish();
}

async fn of_processes_that_were_away_together_each_says_what_became_of_its_jobs(place: &Place) {
    let queue = place.client().await;
    let seen = Seen::new();
    let ttl = MORTAL * 3;
    let crowd = [broken_off(place, ttl, "one", &seen), broken_off(place, ttl, "two", &seen)];
    for name in ["one", "two"] {
        queue.push(NewJob::new(name, &1).max_attempts(1)).await.expect("pushed");
    }
    seen.wait_for(2).await;
    let (first, second) = (crowd[0].freeze(), crowd[1].freeze());
    for name in ["one", "two"] {
        until("its session ends", || async {
            let running = queue.jobs(name, JobState::Running, None, 1).await.expect("asked");
            running[0].worker_vanished.then_some(())
        })
        .await;
    }
    drop(first);
    until("the first has said what became of its job", || async {
        (queue.stats().await.expect("asked")[0].interrupted == 1).then_some(())
    })
    .await;
    drop(second);
    for name in ["one", "two"] {
        done(&queue, name, 1).await;
    }
    for stats in queue.stats().await.expect("asked") {
        assert_eq!((stats.interrupted, stats.failed, stats.dead), (1, 0, 0), "{stats:?}");
    }
    crowd.into_iter().for_each(Elsewhere::vanish);
}

async fn what_is_due_or_a_vanished_workers_is_not_drained(place: &Place) {
    let queue = place.client().await;
    // There is no worker, so nothing is moved that is due.
    let later = NewJob::new("due", &1).after(Duration::from_millis(1));
    queue.push(later).await.expect("pushed");
    until("it is due", || async { (!queue.is_drained("due").await.expect("asked")).then_some(()) })
        .await;
    queue.push(NewJob::new("vanished", &1)).await.expect("pushed");
    let begun = Seen::new();
    let elsewhere = Elsewhere::start(place, "vanished", {
        let begun = begun.clone();
        move |_, _| {
            begun.add(());
            pending::<Result<(), Failure>>()
        }
    });
    begun.wait_for(1).await;
    elsewhere.vanish();
    let summary = Worker::new(&queue, "vanished")
        .drain(pending(), |_: u32, _| async { Ok::<(), Failure>(()) })
        .await
        .expect("a worker begins");
    assert_eq!(summary.done, 1);
}
