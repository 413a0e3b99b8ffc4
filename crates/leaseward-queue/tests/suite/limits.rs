//! How many run at once; pausing.

use std::{collections::HashMap, sync::Arc, time::Duration};

use leaseward_queue::{Failure, NewJob, Queue, Worker};
use parking_lot::Mutex;

use crate::help::{Background, Elsewhere, Place, SOON, Seen, cases, done, until};

cases![
    of_one_key_one_runs_at_a_time,
    a_blocked_key_does_not_hold_up_others,
    of_a_limited_queue_so_many_run_at_a_time,
    a_vanished_workers_places_come_free,
    nothing_of_a_paused_queue_begins,
    a_larger_limit_lets_more_in,
];

/// Counts how many of each key run at once, and the most that ever did.
#[derive(Clone, Default)]
struct Gauge(Arc<Mutex<HashMap<String, (u32, u32)>>>);

impl Gauge {
    async fn run(&self, key: String) {
        {
            let mut all = self.0.lock();
            let (now, most) = all.entry(key.clone()).or_default();
            *now += 1;
            *most = (*most).max(*now);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.0.lock().entry(key).or_default().0 -= 1;
    }

    fn most(&self) -> HashMap<String, u32> {
        self.0.lock().iter().map(|(key, (_, most))| (key.clone(), *most)).collect()
    }
}

fn gauged(queue: &Queue, name: &str, gauge: &Gauge) -> Background {
    let gauge = gauge.clone();
    Background::start(Worker::new(queue, name).concurrency(16), move |key, _| {
        let gauge = gauge.clone();
        async move {
            gauge.run(key.as_str().unwrap_or_default().to_owned()).await;
            Ok::<(), Failure>(())
        }
    })
}

async fn of_one_key_one_runs_at_a_time(place: &Place) {
    let (one, two) = (place.client().await, place.client().await);
    let keys = ["a", "b", "c"];
    let job = |number: usize| NewJob::new("keys", keys[number % 3]).key(keys[number % 3]);
    one.push_many((0..150).map(job)).await.expect("pushed");
    let gauge = Gauge::default();
    let workers = [gauged(&one, "keys", &gauge), gauged(&two, "keys", &gauge)];
    done(&one, "keys", 150).await;
    for worker in workers {
        worker.end().await;
    }
    let most = gauge.most();
    assert!(most.values().all(|most| *most == 1), "{most:?}");
    let stats = &one.stats().await.expect("asked")[0];
    assert_eq!((stats.ready, stats.blocked, stats.running), (0, 0, 0), "{stats:?}");
}

async fn a_blocked_key_does_not_hold_up_others(place: &Place) {
    let queue = place.client().await;
    let job = |key: &str| NewJob::new("head", key).key(key);
    queue.push_many((0..40).map(|_| job("slow")).chain([job("quick")])).await.expect("pushed");
    let seen = Seen::new();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let worker = Background::start(Worker::new(&queue, "head").concurrency(2), {
        let (seen, gate) = (seen.clone(), gate.clone());
        move |key, _| {
            let (seen, gate) = (seen.clone(), gate.clone());
            async move {
                if key == "slow" {
                    gate.acquire().await?.forget();
                }
                seen.add(key);
                Ok::<(), Failure>(())
            }
        }
    });
    let first = seen.wait_for(1).await;
    assert_eq!(first, ["quick"], "though forty others came before it");
    gate.add_permits(40);
    seen.wait_for(41).await;
    worker.end().await;
}

async fn of_a_limited_queue_so_many_run_at_a_time(place: &Place) {
    let (one, two) = (place.client().await, place.client().await);
    one.set_limit("few", Some(3)).await.expect("set");
    one.push_many((0..120).map(|_| NewJob::new("few", "x"))).await.expect("pushed");
    let gauge = Gauge::default();
    let workers = [gauged(&one, "few", &gauge), gauged(&two, "few", &gauge)];
    done(&one, "few", 120).await;
    for worker in workers {
        worker.end().await;
    }
    assert_eq!(gauge.most()["x"], 3);
    one.set_limit("few", None).await.expect("set");
    let stats = &one.stats().await.expect("asked")[0];
    assert_eq!((stats.limit, stats.running), (None, 0));
}

async fn a_vanished_workers_places_come_free(place: &Place) {
    let queue = place.mortal().await;
    queue.set_limit("places", Some(2)).await.expect("set");
    queue
        .push_many((0..6).map(|number| NewJob::new("places", &number).key("one")))
        .await
        .expect("pushed");
    let begun = Seen::new();
    let elsewhere = Elsewhere::start(place, "places", {
        let begun = begun.clone();
        move |number, _| {
            begun.add(number);
            std::future::pending::<Result<(), Failure>>()
        }
    });
    begun.wait_for(1).await;
    elsewhere.vanish();
    let worker = Background::start(Worker::new(&queue, "places").backoff(SOON), |_, _| async {
        Ok::<(), Failure>(())
    });
    done(&queue, "places", 6).await;
    worker.end().await;
}

async fn nothing_of_a_paused_queue_begins(place: &Place) {
    let queue = place.client().await;
    queue.pause("still").await.expect("paused");
    let seen = Seen::new();
    let worker = Background::start(Worker::new(&queue, "still"), {
        let seen = seen.clone();
        move |what, _| {
            seen.add(what);
            async { Ok::<(), Failure>(()) }
        }
    });
    let flows =
        Background::start(Worker::new(&queue, "flows"), |_, _| async { Ok::<(), Failure>(()) });
    queue.push(NewJob::new("still", &1)).await.expect("pushed");
    // Another queue goes on meanwhile.
    for _ in 0..5 {
        queue.push(NewJob::new("flows", &1)).await.expect("pushed");
    }
    done(&queue, "flows", 5).await;
    assert_eq!(seen.count(), 0);
    assert!(
        queue.stats().await.expect("asked").iter().any(|queue| queue.paused && queue.ready == 1)
    );
    queue.resume("still").await.expect("resumed");
    seen.wait_for(1).await;
    worker.end().await;
    flows.end().await;
}

async fn a_larger_limit_lets_more_in(place: &Place) {
    let queue = place.client().await;
    queue
        .push_many((0..4).map(|number| NewJob::new("more", &number).key("one")))
        .await
        .expect("pushed");
    let seen = Seen::new();
    let worker = Background::start(Worker::new(&queue, "more").grace(Duration::ZERO), {
        let seen = seen.clone();
        move |number, _| {
            seen.add(number);
            std::future::pending::<Result<(), Failure>>()
        }
    });
    seen.wait_for(1).await;
    until("the others are put aside", || async {
        (queue.stats().await.expect("asked")[0].blocked == 3).then_some(())
    })
    .await;
    queue.set_key_limit("more", 3).await.expect("set");
    seen.wait_for(3).await;
    until("the last is put aside again", || async {
        (queue.stats().await.expect("asked")[0].blocked == 1).then_some(())
    })
    .await;
    worker.end().await;
}
