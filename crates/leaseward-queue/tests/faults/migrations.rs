//! Tables of earlier versions, and of later ones.

use leaseward_queue::{ErrorKind, Failure, Queue, Worker, migrate_to};

use crate::help::{Background, Place, Seen, cases, done};

cases![jobs_of_every_earlier_version_are_done, a_later_version_is_refused];

/// The version before the newest: raise it with each new one.
const EARLIER: usize = 4;

/// A job as that version wrote it, in its queue 1 named `old`.
async fn write_old_job(place: &Place) {
    let prefix = place.prefix();
    let body = r#"{"p":"kept","i":1700000000000000}"#;
    let body = if prefix == "lq_" {
        format!("CAST('{body}' AS BLOB)")
    } else {
        format!("convert_to('{body}', 'UTF8')")
    };
    place.sql(&format!("INSERT INTO {prefix}queues (no, name) VALUES (1, 'old')")).await;
    let (ready, later) = ((1_i64 << 48) + (8_i64 << 44) + 5, (1_i64 << 48) + (8_i64 << 44) + 6);
    place.sql(&format!("INSERT INTO {prefix}ready (id, body) VALUES ({ready}, {body})")).await;
    let is_alone = if prefix == "lq_" { "0" } else { "false" };
    let sql = format!(
        "INSERT INTO {prefix}later (id, due, alone, body) VALUES ({later}, 1, {is_alone}, {body})"
    );
    place.sql(&sql).await;
    let shard = if prefix == "lq_" { ("", "") } else { (", shard", ", 0") };
    let sql = format!(
        "INSERT INTO {prefix}tally (queue{}, pushed, later) VALUES (1{}, 2, 1)",
        shard.0, shard.1
    );
    place.sql(&sql).await;
}

async fn jobs_of_every_earlier_version_are_done(place: &Place) {
    for version in 1..=EARLIER {
        let place = &place.another();
        migrate_to(&place.url, version).await.expect("made");
        write_old_job(place).await;
        let queue = place.client().await;
        let seen = Seen::new();
        let worker = Background::start(Worker::new(&queue, "old"), {
            let seen = seen.clone();
            move |what, _| {
                seen.add(what);
                async { Ok::<(), Failure>(()) }
            }
        });
        done(&queue, "old", 2).await;
        worker.end().await;
        assert_eq!(seen.all(), ["kept", "kept"]);
        // Once more changes nothing.
        leaseward_queue::migrate(&place.url).await.expect("there is nothing to do");
        assert_eq!(place.client().await.stats().await.expect("asked")[0].done, 2);
    }
}

async fn a_later_version_is_refused(place: &Place) {
    drop(place.client().await);
    place.sql(&format!("UPDATE {}meta SET version = 99", place.prefix())).await;
    let error = Queue::open(&place.url).await.expect_err("it cannot know what it would do to them");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.message().contains("newer version"), "{error}");
}
