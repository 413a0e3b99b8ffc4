//! Pushing, claiming, completing.

use std::time::Duration;

use leaseward_queue::{Failure, JobState, NewJob, Priority, Worker};

use crate::help::{Background, Place, Seen, cases, until};

cases![
    a_job_is_done_once,
    many_jobs_are_done_once_each,
    urgent_jobs_come_first_then_old_ones,
    a_later_job_waits,
    a_sleeping_worker_is_woken_by_another_client,
];

async fn a_job_is_done_once(place: &Place) {
    let queue = place.client().await;
    let id = queue.push(NewJob::new("mail", "hello")).await.expect("pushed").id();
    let view = queue.job(id).await.expect("found").expect("it is there");
    assert_eq!((view.state, view.payload.get()), (JobState::Ready, "\"hello\""));
    let seen = Seen::new();
    let worker = Background::start(Worker::new(&queue, "mail"), {
        let seen = seen.clone();
        move |payload, context| {
            seen.add((payload, context.id(), context.attempt()));
            async { Ok::<(), Failure>(()) }
        }
    });
    seen.wait_for(1).await;
    let summary = worker.end().await;
    assert_eq!(seen.all(), [("hello".into(), id, 1)]);
    assert_eq!(summary.done, 1);
    assert!(queue.job(id).await.expect("asked").is_none());
    let stats = &queue.stats().await.expect("asked")[0];
    assert_eq!((stats.pushed, stats.done, stats.ready, stats.running), (1, 1, 0, 0));
}

async fn many_jobs_are_done_once_each(place: &Place) {
    let queue = place.client().await;
    let jobs = (0..3_000).map(|number: u32| NewJob::new("many", &number));
    queue.push_many(jobs).await.expect("pushed");
    let seen = Seen::new();
    let run = |queue: leaseward_queue::Queue| {
        let seen = seen.clone();
        async move {
            let worker = Worker::new(&queue, "many").concurrency(16);
            worker
                .drain(std::future::pending(), move |number: u32, _| {
                    seen.add(number);
                    async { Ok::<(), Failure>(()) }
                })
                .await
                .expect("a worker begins")
        }
    };
    let (one, two) = tokio::join!(run(queue.clone()), run(place.client().await));
    assert_eq!(one.done + two.done, 3_000, "{one:?} {two:?}");
    let mut all = seen.all();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..3_000));
    assert!(queue.is_drained("many").await.expect("asked"));
}

async fn urgent_jobs_come_first_then_old_ones(place: &Place) {
    let queue = place.client().await;
    let job = |what: &str, priority| {
        NewJob::new("order", what).priority(Priority::new(priority).expect("one"))
    };
    queue
        .push_many([job("c", 8), job("e", 15), job("a", 0), job("d", 8), job("b", 3)])
        .await
        .expect("pushed");
    let seen = Seen::new();
    let run = seen.clone();
    Worker::new(&queue, "order")
        .concurrency(1)
        .drain(std::future::pending(), move |what: String, _| {
            run.add(what);
            async { Ok::<(), Failure>(()) }
        })
        .await
        .expect("a worker begins");
    assert_eq!(seen.all(), ["a", "b", "c", "d", "e"]);
}

async fn a_later_job_waits(place: &Place) {
    let queue = place.client().await;
    let later = NewJob::new("later", &1).after(Duration::from_millis(300));
    let id = queue.push(later).await.expect("pushed").id();
    assert_eq!(queue.job(id).await.expect("found").expect("it is there").state, JobState::Later);
    assert!(queue.is_drained("later").await.expect("asked"), "what is later does not count");
    let pushed = std::time::Instant::now();
    let seen = Seen::new();
    let worker = Background::start(Worker::new(&queue, "later"), {
        let seen = seen.clone();
        move |_, _| {
            seen.add(pushed.elapsed());
            async { Ok::<(), Failure>(()) }
        }
    });
    let waited = seen.wait_for(1).await[0];
    assert!(waited > Duration::from_millis(250), "{waited:?}");
    worker.end().await;
}

async fn a_sleeping_worker_is_woken_by_another_client(place: &Place) {
    let pusher = place.client().await;
    // It never looks by itself, and says that it sleeps when it begins to.
    let hour = Duration::from_secs(3_600);
    let sleeper =
        leaseward_queue::Queue::builder().ttl(hour).connect(&place.url).await.expect("reached");
    let seen = Seen::new();
    let worker = Worker::new(&sleeper, "bell").poll(hour);
    let worker = Background::start(worker, {
        let seen = seen.clone();
        move |what, _| {
            seen.add(what);
            async { Ok::<(), Failure>(()) }
        }
    });
    // Pushed until the first was heard of: it may not sleep yet.
    until("it is woken", || async {
        pusher.push(NewJob::new("bell", &1)).await.expect("pushed");
        (seen.count() > 0).then_some(())
    })
    .await;
    let before = until("all are done", || async {
        let all = pusher.stats().await.expect("asked")[0].pushed;
        (u64::try_from(seen.count()).expect("few") == all).then_some(seen.count())
    })
    .await;
    pusher.push(NewJob::new("bell", &2)).await.expect("pushed");
    seen.wait_for(before + 1).await;
    worker.end().await;
}
