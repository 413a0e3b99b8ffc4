//! Starting: a majority of nodes is enough, and so is a majority that is missing.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, timeout_at};

use crate::Error;

/// Waits for what comes of each until so many have succeeded, or cannot any more, and for the others for a `grace` yet: so
/// that all who are well are there, and all who are not are named. One failure that `is_final` ends it at once. Answers
/// in order; `None` for whoever was not waited for.
///
/// # Cancel safety
/// Cancel safe: all of them are given up.
pub(super) async fn enough<T>(
    all: impl IntoIterator<Item = impl Future<Output = Result<T, Error>>>,
    needed: usize,
    grace: Duration,
    is_final: impl Fn(&Error) -> bool,
) -> Vec<Option<Result<T, Error>>> {
    let mut waiting: FuturesUnordered<_> =
        all.into_iter().enumerate().map(async |(at, one)| (at, one.await)).collect();
    let mut outcomes: Vec<_> = (0..waiting.len()).map(|_| None).collect();
    let (mut succeeded, mut failed) = (0, 0);
    let mut end: Option<Instant> = None;
    loop {
        let next = match end {
            None => waiting.next().await,
            Some(end) => timeout_at(end, waiting.next()).await.unwrap_or_default(),
        };
        let Some((at, outcome)) = next else { return outcomes };
        let is_over = outcome.as_ref().is_err_and(&is_final);
        match &outcome {
            Ok(_) => succeeded += 1,
            Err(_) => failed += 1,
        }
        outcomes[at] = Some(outcome);
        if is_over {
            return outcomes;
        }
        if succeeded >= needed || outcomes.len() - failed < needed {
            end.get_or_insert_with(|| Instant::now() + grace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    const GRACE: Duration = Duration::from_secs(1);

    /// Nodes that answer after so many milliseconds with these errors; which of them were heard, and when it was over.
    async fn heard(nodes: &[(u64, Option<ErrorKind>)]) -> (Vec<usize>, u128) {
        let begun = Instant::now();
        let opening = nodes.iter().map(async |(after, error)| {
            tokio::time::sleep(Duration::from_millis(*after)).await;
            error.map_or(Ok(()), |kind| Err(Error::new(kind, "no")))
        });
        let is_final = |error: &Error| error.kind() == ErrorKind::Refused;
        let outcomes = enough(opening, nodes.len() / 2 + 1, GRACE, is_final).await;
        let heard = (0..nodes.len()).filter(|at| outcomes[*at].is_some()).collect();
        (heard, begun.elapsed().as_millis())
    }

    const HOUR: u64 = 3_600_000;
    const DOWN: Option<ErrorKind> = Some(ErrorKind::Unavailable);
    const REFUSES: Option<ErrorKind> = Some(ErrorKind::Refused);

    #[tokio::test(start_paused = true)]
    async fn who_is_well_is_waited_for_and_no_longer() {
        assert_eq!(heard(&[(2, None), (1, None), (900, None)]).await, (vec![0, 1, 2], 900));
        assert_eq!(heard(&[(2, None), (1, None), (HOUR, None)]).await, (vec![0, 1], 1002));
        let slow = [(HOUR, None), (1, DOWN), (2000, None), (1, None), (1, None)];
        assert_eq!(heard(&slow).await, (vec![1, 2, 3, 4], 2000 + 1000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_majority_that_is_missing_ends_it_too() {
        assert_eq!(heard(&[(5, DOWN), (1, DOWN), (HOUR, None)]).await, (vec![0, 1], 1005));
        assert_eq!(heard(&[(5, DOWN), (1, DOWN), (9, None)]).await, (vec![0, 1, 2], 9));
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_retry_mends_is_told_at_once() {
        assert_eq!(heard(&[(HOUR, None), (3, REFUSES), (1, None)]).await, (vec![1, 2], 3));
        assert_eq!(heard(&[(1, None), (300, REFUSES), (1, None)]).await, (vec![0, 1, 2], 300));
    }
}
