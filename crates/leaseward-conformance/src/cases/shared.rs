//! Readers and writers.

use crate::{
    Case, Fixture, Need,
    case::case,
    support::{LONG, asking, busy, granted, queue_of, take, view},
};

pub(super) const CASES: &[Case] = &[
    case!(readers_hold_together, Need::Shared),
    case!(a_writer_is_kept_out_by_a_reader, Need::Shared),
    case!(a_reader_is_kept_out_by_a_writer, Need::Shared),
    case!(a_writer_waits_for_the_last_reader, Need::Shared, Need::Queue),
    case!(a_waiting_writer_is_not_starved, Need::Shared, Need::Queue),
    case!(readers_behind_a_writer_come_in_together, Need::Shared, Need::Queue),
];

async fn readers_hold_together(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let first = take(&one.lock("doc").shared().ttl(LONG)).await;
    let second = take(&one.lock("doc").shared().ttl(LONG)).await;
    let third = take(&other.lock("doc").shared().ttl(LONG)).await;
    assert!(first.is_held() && second.is_held() && third.is_held());
    // Without records readers of one client may show as one.
    let shown = view(&other, "doc").await.holders.len();
    assert!(shown == 3 || shown == 2 && !other.capability().records, "{shown}");
}

async fn a_writer_is_kept_out_by_a_reader(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let reader = take(&one.lock("doc").shared().ttl(LONG)).await;
    busy(&other.lock("doc")).await;
    busy(&one.lock("doc")).await;
    reader.release().await.expect("given back");
    take(&other.lock("doc")).await.release().await.expect("given back");
}

async fn a_reader_is_kept_out_by_a_writer(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let writer = take(&one.lock("doc").ttl(LONG)).await;
    busy(&other.lock("doc").shared()).await;
    busy(&one.lock("doc").shared()).await;
    writer.release().await.expect("given back");
    take(&other.lock("doc").shared()).await.release().await.expect("given back");
}

async fn a_writer_waits_for_the_last_reader(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let first = take(&one.lock("doc").shared().ttl(LONG)).await;
    let last = take(&other.lock("doc").shared().ttl(LONG)).await;
    let writer = asking(other.lock("doc").ttl(LONG));
    queue_of(&one, "doc", 1).await;
    first.release().await.expect("given back");
    assert_eq!(view(&one, "doc").await.waiters.len(), 1, "one reader is left");
    let fence = last.fence();
    last.release().await.expect("given back");
    assert!(granted(writer).await.fence() > fence);
}

async fn a_waiting_writer_is_not_starved(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let reader = take(&one.lock("doc").shared().ttl(LONG)).await;
    let writer = asking(other.lock("doc").ttl(LONG));
    queue_of(&one, "doc", 1).await;
    busy(&one.lock("doc").shared()).await;
    let late = asking(one.lock("doc").shared().ttl(LONG));
    queue_of(&one, "doc", 2).await;
    reader.release().await.expect("given back");
    let writer = granted(writer).await;
    assert!(!late.is_finished(), "a reader that came later waits for the writer");
    let fence = writer.fence();
    writer.release().await.expect("given back");
    assert!(granted(late).await.fence() > fence);
}

async fn readers_behind_a_writer_come_in_together(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let writer = take(&one.lock("doc").ttl(LONG)).await;
    let first = asking(other.lock("doc").shared().ttl(LONG));
    queue_of(&one, "doc", 1).await;
    let second = asking(one.lock("doc").shared().ttl(LONG));
    queue_of(&one, "doc", 2).await;
    writer.release().await.expect("given back");
    let (first, second) = (granted(first).await, granted(second).await);
    assert!(first.is_held() && second.is_held());
}
