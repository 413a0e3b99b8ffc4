//! Processes killed with SIGKILL.

use leaseward_queue::{JobState, NewJob, Worker};

use crate::{
    child::{Process, Step},
    help::{Background, Place, SOON, cases, done, until},
};

cases![
    killed_at_any_step_each_effect_happens_once,
    killed_again_and_again_each_effect_happens_once,
    a_poison_job_ends_in_the_dead_letters_and_takes_nobody_along,
];

/// A worker of this process that has the same effects.
fn helper(place: &Place, queue: &leaseward_queue::Queue, name: &str) -> Background {
    let again = place.again();
    Background::start(Worker::new(queue, name).backoff(SOON), move |_, context| {
        let place = again.clone();
        async move {
            let driver = place.drivers()[0];
            driver.complete(&place, &context, true).await.map_err(leaseward_queue::Failure::new)
        }
    })
}

async fn killed_at_any_step_each_effect_happens_once(place: &Place) {
    let queue = place.mortal().await;
    place.make_effects().await;
    for step in [Step::Begun, Step::Completed, Step::Committed, Step::Ended] {
        let name = format!("kill {step:?}");
        let jobs =
            (0..5).map(|number| NewJob::new(name.clone(), &number).unique(number.to_string()));
        let ids: Vec<_> =
            queue.push_many(jobs).await.expect("pushed").iter().map(|job| job.id()).collect();
        let mut process = Process::start(place, &name, step);
        while process.says().await.expect("it stops at its step") != format!("at {step:?}") {}
        process.kill().await;
        let worker = helper(place, &queue, &name);
        done(&queue, &name, 5).await;
        worker.end().await;
        for id in ids {
            assert_eq!(place.effects(id).await, 1, "{step:?}: {id}");
            assert!(queue.job(id).await.expect("asked").is_none(), "{step:?}: {id}");
        }
    }
}

async fn killed_again_and_again_each_effect_happens_once(place: &Place) {
    let queue = place.mortal().await;
    place.make_effects().await;
    let jobs = (0..200).map(|number| NewJob::new("storm", &number));
    let ids: Vec<_> =
        queue.push_many(jobs).await.expect("pushed").iter().map(|job| job.id()).collect();
    let mut effects = 0;
    for _ in 0..4 {
        let mut process = Process::start(place, "storm", Step::Never);
        process.says().await.expect("it is ready");
        // In the middle of whatever it is at, once it has done something.
        effects = until("it has done something", || async {
            let now: u64 =
                place.sql("SELECT count(*) FROM effects").await.parse().expect("a number");
            (now > effects || now == 200).then_some(now)
        })
        .await;
        process.kill().await;
    }
    let worker = helper(place, &queue, "storm");
    done(&queue, "storm", 200).await;
    worker.end().await;
    for id in ids {
        assert_eq!(place.effects(id).await, 1, "{id}");
    }
    let stats = &queue.stats().await.expect("asked")[0];
    assert_eq!((stats.ready, stats.later, stats.running, stats.dead), (0, 0, 0, 0), "{stats:?}");
}

async fn a_poison_job_ends_in_the_dead_letters_and_takes_nobody_along(place: &Place) {
    let queue = place.mortal().await;
    place.make_effects().await;
    let good = |number: u32| NewJob::new("poison", &number).max_attempts(3);
    let jobs = (0..20)
        .map(good)
        .chain([NewJob::new("poison", "poison").max_attempts(3)])
        .chain((20..40).map(good));
    let ids: Vec<_> =
        queue.push_many(jobs).await.expect("pushed").iter().map(|job| job.id()).collect();
    let poison = ids[20];
    for _ in 0..3 {
        let mut process = Process::start(place, "poison", Step::Never);
        while process.says().await.expect("it is poisoned") != "poisoned" {}
        process.ended().await;
    }
    // Whoever is left declares it dead.
    let worker = helper(place, &queue, "poison");
    let view = until("it is dead", || async {
        let view = queue.job(poison).await.expect("asked").expect("it is there");
        (view.state == JobState::Dead).then_some(view)
    })
    .await;
    assert_eq!(view.history.len(), 3);
    assert!(
        view.history.iter().all(|failed| failed.error.contains("vanished")),
        "{:?}",
        view.history
    );
    done(&queue, "poison", 40).await;
    worker.end().await;
    for id in ids.into_iter().filter(|id| *id != poison) {
        assert_eq!(place.effects(id).await, 1, "{id}");
    }
}
