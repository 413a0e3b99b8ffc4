//! What an idle queue asks of its server.

use leaseward_queue::NewJob;
use std::time::Duration;

use crate::help::Place;

/// Whoever looks for what is due asks again after the pause it is told; none at all means: not before somebody says so, or a
/// second has passed. A pause of zero would have it ask without end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_for_later_is_no_reason_to_ask_again() {
    let place = Place::postgres();
    let queue = place.client().await;
    let ask = "SELECT coalesce(max(pause), -1) FROM leaseward_queue.promote(1, 10)";
    assert_eq!(place.sql(ask).await, "-1");
    let later = NewJob::new("quiet", &1).after(Duration::from_secs(3_600));
    queue.push(later).await.expect("pushed");
    let pause: i64 = place.sql(ask).await.parse().expect("a number");
    assert!(pause > 3_000_000_000, "{pause}");
}
