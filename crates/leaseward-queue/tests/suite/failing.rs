//! Attempts that fail, and jobs that are dead.

use std::time::Duration;

use leaseward_queue::{Backoff, Ending, Failure, JobState, NewJob, Worker};

use crate::help::{Background, Place, SOON, Seen, cases, done, until};

cases![
    a_failed_job_is_tried_again_and_dies_after_its_last_attempt,
    a_dead_letter_can_be_replayed,
    a_panic_a_timeout_and_a_strange_payload_are_failures,
    a_fatal_failure_is_the_last,
    a_snoozed_job_comes_back_and_has_lost_no_attempt,
    the_next_attempt_waits_as_it_was_told,
    a_checkpoint_survives_a_failure,
];

async fn a_failed_job_is_tried_again_and_dies_after_its_last_attempt(place: &Place) {
    let queue = place.client().await;
    let id = queue.push(NewJob::new("fail", &1).max_attempts(3)).await.expect("pushed").id();
    let seen = Seen::new();
    let worker = Background::start(Worker::new(&queue, "fail").backoff(SOON).max_attempts(1), {
        let seen = seen.clone();
        move |_, context| {
            seen.add((context.attempt(), context.fence()));
            let attempt = context.attempt();
            async move { Err::<(), _>(Failure::new(format!("no {attempt}"))) }
        }
    });
    let view = until("it is dead", || async {
        let view = queue.job(id).await.expect("asked").expect("it is there");
        (view.state == JobState::Dead).then_some(view)
    })
    .await;
    let summary = worker.end().await;
    assert_eq!((summary.failed, summary.dead), (3, 1));
    let attempts = seen.all();
    assert_eq!(attempts.iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(attempts.is_sorted_by(|a, b| a.1 < b.1), "fences grow: {attempts:?}");
    let errors: Vec<_> = view.history.iter().map(|failed| failed.error.as_str()).collect();
    assert_eq!(errors, ["no 1", "no 2", "no 3"]);
    assert_eq!(view.history[2].fence, attempts[2].1);
    let stats = &queue.stats().await.expect("asked")[0];
    assert_eq!((stats.dead, stats.failed, stats.ready, stats.later), (1, 3, 0, 0), "{stats:?}");
}

async fn a_dead_letter_can_be_replayed(place: &Place) {
    let queue = place.client().await;
    for number in 0..3 {
        queue.push(NewJob::new("dead", &number).max_attempts(1)).await.expect("pushed");
    }
    Worker::new(&queue, "dead")
        .drain(std::future::pending(), |_: u32, _| async { Err::<(), _>(Failure::new("no")) })
        .await
        .expect("a worker begins");
    let dead = queue.jobs("dead", JobState::Dead, None, 10).await.expect("asked");
    assert_eq!(dead.len(), 3);
    assert!(queue.replay(dead[0].id).await.expect("asked"));
    assert!(!queue.replay(dead[0].id).await.expect("asked"), "it is a dead letter no more");
    assert_eq!(queue.replay_all("dead").await.expect("asked"), 2);
    let seen = Seen::new();
    let run = seen.clone();
    Worker::new(&queue, "dead")
        .drain(std::future::pending(), move |number: u32, context| {
            run.add((number, context.attempt()));
            async { Ok::<(), Failure>(()) }
        })
        .await
        .expect("a worker begins");
    let mut all = seen.all();
    all.sort_unstable();
    assert_eq!(all, [(0, 1), (1, 1), (2, 1)], "with all their attempts before them");
    let stats = &queue.stats().await.expect("asked")[0];
    assert_eq!((stats.dead, stats.done, stats.ready), (0, 3, 0), "{stats:?}");
}

async fn a_panic_a_timeout_and_a_strange_payload_are_failures(place: &Place) {
    let queue = place.client().await;
    let job = |payload: serde_json::Value| NewJob::new("odd", &payload).max_attempts(1);
    let jobs =
        [job("panic".into()), job("slow".into()).timeout(Duration::from_millis(20)), job(7.into())];
    let ids: Vec<_> =
        queue.push_many(jobs).await.expect("pushed").iter().map(|pushed| pushed.id()).collect();
    Worker::new(&queue, "odd")
        .drain(std::future::pending(), |what: String, _| async move {
            assert_ne!(what, "panic", "as asked");
            std::future::pending::<Result<(), Failure>>().await
        })
        .await
        .expect("a worker begins");
    let mut errors = Vec::new();
    for id in ids {
        let view = queue.job(id).await.expect("asked").expect("it is there");
        assert_eq!(view.state, JobState::Dead);
        errors.push(view.history[0].error.clone());
    }
    assert!(errors[0].contains("panicked") && errors[0].contains("as asked"), "{errors:?}");
    assert!(errors[1].contains("not done after 20ms"), "{errors:?}");
    assert!(errors[2].contains("of another type"), "{errors:?}");
}

async fn a_fatal_failure_is_the_last(place: &Place) {
    let queue = place.client().await;
    let id = queue.push(NewJob::new("fatal", &1)).await.expect("pushed").id();
    Worker::new(&queue, "fatal")
        .drain(std::future::pending(), |_: u32, _| async {
            Err::<(), _>(Failure::new("never").fatal())
        })
        .await
        .expect("a worker begins");
    let view = queue.job(id).await.expect("asked").expect("it is there");
    assert_eq!((view.state, view.failures), (JobState::Dead, 1));
}

async fn a_snoozed_job_comes_back_and_has_lost_no_attempt(place: &Place) {
    let queue = place.client().await;
    queue.push(NewJob::new("snooze", &1)).await.expect("pushed");
    let seen = Seen::new();
    let worker = Background::start(Worker::new(&queue, "snooze"), {
        let seen = seen.clone();
        move |_, context| {
            seen.add((context.attempt(), context.fence()));
            let ending = if seen.count() < 3 {
                Ending::Snooze(Duration::from_millis(5))
            } else {
                Ending::Done
            };
            async { Ok::<_, Failure>(ending) }
        }
    });
    let all = seen.wait_for(3).await;
    worker.end().await;
    assert!(all.iter().all(|(attempt, _)| *attempt == 1), "{all:?}");
    assert!(all.is_sorted_by(|a, b| a.1 < b.1), "fences grow: {all:?}");
    let stats = &queue.stats().await.expect("asked")[0];
    assert_eq!((stats.done, stats.failed, stats.later), (1, 0, 0), "{stats:?}");
}

async fn the_next_attempt_waits_as_it_was_told(place: &Place) {
    let queue = place.client().await;
    let id = queue.push(NewJob::new("wait", &1)).await.expect("pushed").id();
    let an_hour = Duration::from_secs(3_600);
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(1));
    let worker =
        Background::start(Worker::new(&queue, "wait").backoff(backoff), move |_, _| async move {
            Err::<(), _>(Failure::new("busy").retry_after(an_hour))
        });
    let view = until("it is later", || async {
        let view = queue.job(id).await.expect("asked").expect("it is there");
        (view.state == JobState::Later).then_some(view)
    })
    .await;
    worker.end().await;
    let due = u64::try_from(view.at_us.expect("it is due some time")).expect("after the epoch");
    let in_us = due.saturating_sub(view.history[0].at_us);
    assert!(in_us > 3_500_000_000 && in_us < 3_700_000_000, "{in_us}");
}

async fn a_checkpoint_survives_a_failure(place: &Place) {
    let queue = place.client().await;
    let id = queue.push(NewJob::new("steps", &1)).await.expect("pushed").id();
    let seen = Seen::new();
    let worker = Background::start(Worker::new(&queue, "steps").backoff(SOON), {
        let seen = seen.clone();
        move |_, context| {
            let seen = seen.clone();
            async move {
                let last: Option<u32> = context.last_checkpoint().await?;
                context.checkpoint(&(last.unwrap_or(0) + 1)).await?;
                let view = context.id();
                seen.add((last, view));
                if context.attempt() < 3 { Err(Failure::new("again")) } else { Ok(()) }
            }
        }
    });
    let all = seen.wait_for(3).await;
    done(&queue, "steps", 1).await;
    worker.end().await;
    assert_eq!(all.iter().map(|(last, _)| *last).collect::<Vec<_>>(), [None, Some(1), Some(2)]);
    assert!(queue.job(id).await.expect("asked").is_none());
}
