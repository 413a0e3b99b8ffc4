//! Jobs in the user's own transactions, and stale attempts.

use leaseward_queue::{Context, Failure, JobState, NewJob, Worker};

use crate::help::{Background, Drivers, Elsewhere, Place, SOON, Seen, cases, done, until};

cases![
    a_job_is_pushed_with_its_transaction,
    an_effect_and_the_end_of_its_job_are_one_commit,
    a_failure_after_the_commit_changes_nothing,
    a_rolled_back_completion_is_none,
    a_stale_attempt_changes_nothing,
    a_job_of_a_vanished_worker_that_was_completed_is_done,
];

async fn a_job_is_pushed_with_its_transaction(place: &Place) {
    let queue = place.client().await;
    for driver in place.drivers() {
        let before = pushed(&queue).await;
        driver.push(place, &queue, false).await;
        assert_eq!(pushed(&queue).await, before, "{driver:?}: rolled back");
        driver.push(place, &queue, true).await;
        assert_eq!(pushed(&queue).await, before + 1, "{driver:?}: committed");
    }
    let seen = Seen::new();
    let worker = Background::start(Worker::new(&queue, "tx"), {
        let seen = seen.clone();
        move |what, _| {
            seen.add(what);
            async { Ok::<(), Failure>(()) }
        }
    });
    seen.wait_for(place.drivers().len()).await;
    // A worker that sleeps hears of a commit.
    driver_of(place).push(place, &queue, true).await;
    seen.wait_for(place.drivers().len() + 1).await;
    worker.end().await;
}

fn driver_of(place: &Place) -> Drivers {
    place.drivers()[0]
}

async fn pushed(queue: &leaseward_queue::Queue) -> u64 {
    let stats = queue.stats().await.expect("asked");
    stats.iter().find(|queue| queue.name == "tx").map_or(0, |queue| queue.pushed)
}

/// Has a job make its effect and complete itself in one transaction, then do what is asked.
async fn effect(
    place: &Place,
    driver: Drivers,
    context: &Context,
    commit: bool,
) -> Result<(), Failure> {
    driver.complete(place, context, commit).await.map_err(Failure::new)
}

async fn an_effect_and_the_end_of_its_job_are_one_commit(place: &Place) {
    let queue = place.client().await;
    place.make_effects().await;
    for driver in place.drivers() {
        let name = format!("effect {driver:?}");
        let id = queue.push(NewJob::new(name.clone(), &1)).await.expect("pushed").id();
        let again = place.again();
        Worker::new(&queue, name.clone())
            .drain(std::future::pending(), move |_: u32, context| {
                let place = again.clone();
                async move { effect(&place, driver, &context, true).await }
            })
            .await
            .expect("a worker begins");
        assert_eq!(place.effects(id).await, 1);
        assert!(queue.job(id).await.expect("asked").is_none(), "{driver:?}");
    }
    for stats in queue.stats().await.expect("asked") {
        assert_eq!((stats.pushed, stats.done, stats.running), (1, 1, 0), "{stats:?}");
    }
}

async fn a_failure_after_the_commit_changes_nothing(place: &Place) {
    let queue = place.client().await;
    place.make_effects().await;
    let id = queue.push(NewJob::new("after", &1)).await.expect("pushed").id();
    let again = place.again();
    Worker::new(&queue, "after")
        .backoff(SOON)
        .drain(std::future::pending(), move |_: u32, context| {
            let place = again.clone();
            async move {
                effect(&place, driver_of(&place), &context, true).await?;
                Err::<(), _>(Failure::new("too late"))
            }
        })
        .await
        .expect("a worker begins");
    assert!(queue.job(id).await.expect("asked").is_none(), "it is done");
    assert_eq!(place.effects(id).await, 1);
}

async fn a_rolled_back_completion_is_none(place: &Place) {
    let queue = place.client().await;
    place.make_effects().await;
    let id = queue.push(NewJob::new("back", &1)).await.expect("pushed").id();
    let again = place.again();
    let worker = Background::start(Worker::new(&queue, "back").backoff(SOON), move |_, context| {
        let place = again.clone();
        async move {
            let is_second = context.attempt() == 2;
            effect(&place, driver_of(&place), &context, is_second).await?;
            if is_second { Ok(()) } else { Err(Failure::new("rolled back")) }
        }
    });
    done(&queue, "back", 1).await;
    worker.end().await;
    assert_eq!(place.effects(id).await, 1);
}

async fn a_stale_attempt_changes_nothing(place: &Place) {
    let queue = place.mortal().await;
    place.make_effects().await;
    let id = queue.push(NewJob::new("stale", &1)).await.expect("pushed").id();
    // One whose process is stopped in the middle of its work: its context outlives it here.
    let (contexts, first) = (Seen::new(), Seen::new());
    let elsewhere = Elsewhere::start(place, "stale", {
        let (contexts, first) = (contexts.clone(), first.clone());
        move |_, context| {
            contexts.add(context);
            first.add(());
            std::future::pending::<Result<(), Failure>>()
        }
    });
    first.wait_for(1).await;
    let frozen = elsewhere.freeze();
    let stale = contexts.all().remove(0);
    let again = place.again();
    let (fences, gate) = (Seen::new(), std::sync::Arc::new(tokio::sync::Semaphore::new(0)));
    let worker = Background::start(Worker::new(&queue, "stale").backoff(SOON), {
        let (fences, gate) = (fences.clone(), gate.clone());
        move |_, context| {
            let (place, fences, gate) = (again.clone(), fences.clone(), gate.clone());
            async move {
                fences.add(context.fence());
                gate.acquire().await?.forget();
                effect(&place, driver_of(&place), &context, true).await
            }
        }
    });
    let fence = fences.wait_for(1).await[0];
    assert!(fence > stale.fence());
    // While the other one runs.
    for driver in place.drivers() {
        let refused =
            driver.complete(place, &stale, true).await.expect_err("it was given to another");
        assert!(refused.contains("given to another"), "{refused}");
    }
    drop(frozen);
    until("its checkpoint is refused", || async {
        let error = elsewhere.checkpoint(stale.clone()).await.expect_err("it was given to another");
        // Its connection may have been given up meanwhile.
        (error.kind() == leaseward_queue::ErrorKind::Lost).then_some(())
    })
    .await;
    assert_eq!(place.effects(id).await, 0, "what a stale transaction did is undone");
    gate.add_permits(1);
    done(&queue, "stale", 1).await;
    assert!(
        driver_of(place).complete(place, &stale, true).await.is_err(),
        "and after it has ended"
    );
    assert_eq!(place.effects(id).await, 1);
    worker.end().await;
    elsewhere.vanish();
}

async fn a_job_of_a_vanished_worker_that_was_completed_is_done(place: &Place) {
    let queue = place.mortal().await;
    place.make_effects().await;
    let job = NewJob::new("gone", &1).unique("one").key("k");
    let id = queue.push(job.clone()).await.expect("pushed").id();
    let committed = Seen::new();
    let elsewhere = Elsewhere::start(place, "gone", {
        let (committed, again) = (committed.clone(), place.again());
        move |_, context| {
            let (committed, place) = (committed.clone(), again.clone());
            async move {
                effect(&place, driver_of(&place), &context, true).await?;
                committed.add(());
                std::future::pending::<Result<(), Failure>>().await
            }
        }
    });
    committed.wait_for(1).await;
    elsewhere.vanish();
    let worker = Background::start(Worker::new(&queue, "gone").backoff(SOON), |_, _| async {
        Err::<(), _>(Failure::new("it must not run again"))
    });
    done(&queue, "gone", 1).await;
    assert_eq!(place.effects(id).await, 1);
    worker.end().await;
    let stats = &queue.stats().await.expect("asked")[0];
    assert_eq!((stats.failed, stats.later, stats.ready, stats.running), (0, 0, 0, 0), "{stats:?}");
    assert!(queue.push(job).await.expect("pushed").is_new(), "its unique key is free again");
    until("its place is free again", || async {
        let view = queue.jobs("gone", JobState::Ready, None, 9).await.expect("asked");
        (view.len() == 1).then_some(())
    })
    .await;
}
