//! Looking at jobs, keeping those that ended, events.

use std::time::Duration;

use leaseward_queue::{Ending, ErrorKind, EventKind, Failure, JobState, NewJob, Queue, Worker};

use crate::help::{Background, Place, Seen, cases, until};

cases![
    results_are_kept_for_a_while,
    jobs_are_listed_by_state_and_page,
    the_trace_of_whoever_pushed_travels_with_the_job,
    events_tell_what_happens,
    what_cannot_be_is_refused,
];

async fn results_are_kept_for_a_while(place: &Place) {
    let queue = place.client().await;
    let id = queue.push(NewJob::new("sum", &[1, 2, 3])).await.expect("pushed").id();
    let run = |queue: Queue, keep| async move {
        let worker = Worker::new(&queue, "sum").keep(keep);
        worker
            .drain(std::future::pending(), |numbers: Vec<u32>, _| async move {
                Ending::result(&numbers.iter().sum::<u32>())
            })
            .await
            .expect("a worker begins")
    };
    run(queue.clone(), Duration::from_secs(600)).await;
    let view = queue.job(id).await.expect("asked").expect("it is kept");
    assert_eq!((view.state, view.result.expect("a result").get()), (JobState::Done, "6"));
    let short = queue.push(NewJob::new("sum", &[1])).await.expect("pushed").id();
    run(queue.clone(), Duration::from_millis(1)).await;
    // Whoever keeps a queue going forgets it.
    let worker =
        Background::start(Worker::new(&queue, "sum"), |_, _| async { Ok::<(), Failure>(()) });
    until("it is forgotten", || async {
        queue.job(short).await.expect("asked").is_none().then_some(())
    })
    .await;
    assert!(queue.job(id).await.expect("asked").is_some());
    worker.end().await;
}

async fn jobs_are_listed_by_state_and_page(place: &Place) {
    let queue = place.client().await;
    queue.push_many((0..5).map(|number| NewJob::new("list", &number))).await.expect("pushed");
    queue.push(NewJob::new("list", &9).after(Duration::from_secs(60))).await.expect("pushed");
    queue.push(NewJob::new("list2", &9)).await.expect("pushed");
    let first = queue.jobs("list", JobState::Ready, None, 3).await.expect("asked");
    let rest = queue.jobs("list", JobState::Ready, Some(first[2].id), 3).await.expect("asked");
    let payloads: Vec<_> =
        first.iter().chain(&rest).map(|view| view.payload.get().to_owned()).collect();
    assert_eq!(payloads, ["0", "1", "2", "3", "4"]);
    assert_eq!(queue.jobs("list", JobState::Later, None, 9).await.expect("asked").len(), 1);
    for state in
        [JobState::Running, JobState::Blocked, JobState::Dead, JobState::Done, JobState::Cancelled]
    {
        assert!(queue.jobs("list", state, None, 9).await.expect("asked").is_empty(), "{state:?}");
    }
    let shown = serde_json::to_value(&first[0]).expect("a view is JSON");
    assert_eq!((shown["state"].as_str(), shown["payload"].as_u64()), (Some("ready"), Some(0)));
    let id: leaseward_queue::JobId = shown["id"].as_str().expect("text").parse().expect("an id");
    assert_eq!(id, first[0].id);
}

async fn the_trace_of_whoever_pushed_travels_with_the_job(place: &Place) {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let builder = Queue::builder().trace_with(move || Some(parent.to_owned()));
    let queue = builder.connect(&place.url).await.expect("the database can be reached");
    let told = Seen::new();
    let events = told.clone();
    queue.on_event(move |event| events.add(event.trace.clone()));
    queue.push(NewJob::new("trace", &1)).await.expect("pushed");
    queue.push(NewJob::new("trace", &2).trace("its own")).await.expect("pushed");
    let seen = Seen::new();
    let run = seen.clone();
    Worker::new(&queue, "trace")
        .concurrency(1)
        .drain(std::future::pending(), move |_: u32, context| {
            run.add(context.trace().map(str::to_owned));
            async { Ok::<(), Failure>(()) }
        })
        .await
        .expect("a worker begins");
    let both = [Some(parent.to_owned()), Some("its own".to_owned())];
    assert_eq!(seen.all(), both);
    let told = told.all();
    assert!(both.iter().all(|trace| told.contains(trace)), "on events too: {told:?}");
}

async fn events_tell_what_happens(place: &Place) {
    let queue = place.client().await;
    let seen = Seen::new();
    let told = seen.clone();
    queue.on_event(move |event| told.add((event.kind, event.attempt)));
    queue
        .push_many([NewJob::new("told", &0), NewJob::new("told", &1).max_attempts(1)])
        .await
        .expect("pushed");
    Worker::new(&queue, "told")
        .concurrency(1)
        .drain(std::future::pending(), |number: u32, _| async move {
            if number == 0 { Ok(()) } else { Err(Failure::new("no")) }
        })
        .await
        .expect("a worker begins");
    let expected = [EventKind::Started, EventKind::Done, EventKind::Started, EventKind::Dead];
    assert_eq!(seen.all(), expected.map(|kind| (kind, Some(1))));
}

async fn what_cannot_be_is_refused(place: &Place) {
    let queue = place.client().await;
    let long = "x".repeat(513);
    for job in [
        NewJob::new("", &1),
        NewJob::new("a\nb", &1),
        NewJob::new(long.clone(), &1),
        NewJob::new("q", &1).key(""),
        NewJob::new("q", &1).unique(long),
        NewJob::new("q", &1).max_attempts(0),
        NewJob::new("q", &"x".repeat(leaseward_queue::PAYLOAD_MAX_BYTES)),
    ] {
        let error = queue.push(job).await.expect_err("it cannot be");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    }
    // One that could be changes nothing.
    let both = [NewJob::new("q", &1), NewJob::new("q", &1).key("")];
    assert!(queue.push_many(both).await.is_err());
    assert!(queue.stats().await.expect("asked").is_empty(), "no queue was made");
    let error = queue.set_key_limit("q", 0).await.expect_err("none could run");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
