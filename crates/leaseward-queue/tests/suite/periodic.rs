//! Periodic jobs.

use leaseward_queue::{Cron, Failure, Missed, NewJob, Worker};

use crate::help::{Background, Place, cases, until};

cases![a_missed_time_is_pushed_once_by_however_many_schedulers, a_schedule_begins_in_the_future];

/// Makes it look as if a schedule had last been pushed an hour ago.
async fn an_hour_ago(place: &Place, name: &str) {
    place
        .sql(&format!(
            "UPDATE {}cron SET last = last - 3600000000 WHERE name = '{name}'",
            place.prefix()
        ))
        .await;
}

async fn a_missed_time_is_pushed_once_by_however_many_schedulers(place: &Place) {
    let cron: Cron = "* * * * *".parse().expect("good");
    let queues = [place.client().await, place.client().await, place.client().await];
    let mut schedules = Vec::new();
    for queue in &queues {
        let job = NewJob::new("cron", "tick");
        schedules.push(
            queue.schedule("each minute", cron.clone(), Missed::Once, job).await.expect("noted"),
        );
    }
    // Sixty times were missed, and one job is pushed for them; a minute may begin meanwhile.
    an_hour_ago(place, "each minute").await;
    let stats = until("it is pushed", || async {
        let stats = queues[0].stats().await.expect("asked");
        stats.into_iter().find(|queue| queue.name == "cron" && queue.pushed > 0)
    })
    .await;
    assert!((1..=2).contains(&stats.pushed), "{stats:?}");
    // A worker gets it.
    let worker =
        Background::start(Worker::new(&queues[1], "cron"), |_, _| async { Ok::<(), Failure>(()) });
    until("it is done", || async {
        let stats = queues[0].stats().await.expect("asked");
        stats.into_iter().find(|queue| queue.name == "cron" && queue.done > 0)
    })
    .await;
    worker.end().await;
    let stats = queues[0].stats().await.expect("asked");
    assert!(stats.iter().all(|queue| queue.pushed <= 2), "{stats:?}");
    drop(schedules);
}

async fn a_schedule_begins_in_the_future(place: &Place) {
    let queue = place.client().await;
    let cron: Cron = "0 0 1 1 *".parse().expect("good");
    let schedule = queue
        .schedule("yearly", cron.clone(), Missed::Once, NewJob::new("year", &1))
        .await
        .expect("noted");
    let every = "* * * * *".parse().expect("good");
    let other =
        queue.schedule("skips", every, Missed::Skip, NewJob::new("skip", &1)).await.expect("noted");
    an_hour_ago(place, "skips").await;
    let bad = NewJob::new("", &1);
    assert!(
        queue.schedule("bad", cron, Missed::Once, bad).await.is_err(),
        "told now, and not at new year"
    );
    // A job for the time that has just come may be pushed, but none for those long before.
    let prefix = place.prefix();
    until("it was looked at", || async {
        let sql = format!("SELECT count(*) FROM {prefix}cron WHERE name = 'skips' AND last < (SELECT last FROM {prefix}cron WHERE name = 'yearly') - 120000000");
        (place.sql(&sql).await == "0").then_some(())
    })
    .await;
    let stats = queue.stats().await.expect("asked");
    assert!(stats.iter().all(|queue| queue.pushed <= 1), "{stats:?}");
    assert!(stats.iter().all(|queue| queue.name != "year" || queue.pushed == 0), "{stats:?}");
    drop((schedule, other));
}
