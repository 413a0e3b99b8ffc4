//! Telling others, and hearing what they tell: one channel for a whole schema.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leaseward::{Error, stores::postgres::Link};
use tokio::task::AbortHandle;

use super::{Postgres, params::text};
use crate::backend::{Ear, Told};

/// Between attempts to listen: random up to this, doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(30);

/// As it is sent.
fn word(told: Told) -> String {
    match told {
        Told::Work(queue) => format!("w{queue}"),
        Told::Anything => "a".to_owned(),
        Told::Later => "l".to_owned(),
        Told::Cancel(session) => format!("c{session}"),
    }
}

/// As it was meant; `None` for a word of a later version, or of nobody.
fn meaning(word: &str) -> Option<Told> {
    let (kind, rest) = word.split_at_checked(1)?;
    match kind {
        "w" => rest.parse().ok().map(Told::Work),
        "a" => Some(Told::Anything),
        "l" => Some(Told::Later),
        "c" => rest.parse().ok().map(Told::Cancel),
        _ => None,
    }
}

impl Postgres {
    pub(super) async fn notify(&self, what: &[Told]) -> Result<(), Error> {
        let words: Vec<String> = what.iter().copied().map(word).collect();
        let words = words.join(" ");
        // Nothing is lost with it but the notification, so nobody waits for the disk.
        let sql = "SELECT pg_notify($1, w), set_config('synchronous_commit', 'off', true) \
                   FROM unnest(string_to_array($2, ' ')) w";
        self.link.query(sql, &[text(&self.schema.as_str()), text(&words.as_str())]).await.map(drop)
    }
}

/// Starts a task that listens until it is ended.
pub(super) fn start(link: &Arc<Link>, channel: String, ear: Ear) -> AbortHandle {
    tokio::spawn(keep_listening(Arc::downgrade(link), channel, ear)).abort_handle()
}

async fn keep_listening(link: Weak<Link>, channel: String, ear: Ear) {
    let mut bound = RETRY_FIRST;
    loop {
        let Some(this) = link.upgrade() else { return };
        let begun = this.listen(&channel).await;
        drop(this);
        match begun {
            Ok(mut heard) => {
                bound = RETRY_FIRST;
                // What was told before is lost.
                ear(Told::Anything);
                while let Some(word) = heard.next().await {
                    if let Some(told) = meaning(&word) {
                        ear(told);
                    }
                }
            }
            Err(error) => {
                tracing::debug!(error = %error, "notifications are not heard; workers poll")
            }
        }
        tokio::time::sleep(bound.mul_f64(rand::random())).await;
        bound = (bound * 2).min(RETRY_LAST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        for told in [Told::Work(3), Told::Anything, Told::Later, Told::Cancel(-7)] {
            assert_eq!(meaning(&word(told)), Some(told));
        }
        assert_eq!(meaning("hello"), None);
        assert_eq!(meaning(""), None);
    }
}
