//! How a queue is set up.

use std::{fmt, sync::Arc, time::Duration};

use leaseward::Error;

use crate::{Queue, backend, job::check, queue::Inner};

/// How long a process that says nothing is taken for alive.
pub const TTL_DEFAULT: Duration = Duration::from_secs(15);

/// Shorter, and a busy machine would lose its jobs.
pub const TTL_MIN: Duration = Duration::from_millis(200);

/// How long dead letters are kept if not told otherwise.
const KEEP_DEAD: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The trace of whoever pushes, as a W3C `traceparent`.
pub(crate) type TraceSource = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// How a [`Queue`] is set up.
#[must_use = "nothing happens until it connects"]
pub struct Builder {
    pub(crate) ttl: Duration,
    pub(crate) who: Option<String>,
    pub(crate) keep_dead: Duration,
    pub(crate) trace: Option<TraceSource>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("ttl", &self.ttl)
            .field("who", &self.who)
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self { ttl: TTL_DEFAULT, who: None, keep_dead: KEEP_DEAD, trace: None }
    }

    /// How long a process that says nothing is taken for alive, and so the longest time until the jobs of one that was
    /// killed run elsewhere, but for a second: 15 s if not set, at least 200 ms. Signs of life are sent three times as often.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.max(TTL_MIN);
        self
    }

    /// How this process is shown to others; `host:pid` if not set.
    pub fn who(mut self, who: impl Into<String>) -> Self {
        self.who = Some(who.into());
        self
    }

    /// How long dead letters are kept: 30 days if not set.
    pub fn keep_dead(mut self, time: Duration) -> Self {
        self.keep_dead = time;
        self
    }

    /// Where the trace of whoever pushes a job is found, as a W3C `traceparent`: the job continues it
    /// ([`Context::trace`](crate::Context::trace)).
    pub fn trace_with(
        mut self,
        source: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.trace = Some(Arc::new(source));
        self
    }

    /// Opens the database a URL names, and makes the tables that are missing.
    ///
    /// # Errors
    /// As [`Queue::open`].
    ///
    /// # Cancel safety
    /// Cancel safe: tables may have been made.
    pub async fn connect(self, url: &str) -> Result<Queue, Error> {
        let who = self.who.clone().unwrap_or_else(who);
        check(&who, "an identity")?;
        let backend = backend::open(url, &who).await?;
        Ok(Queue { inner: Inner::new(self, backend, who) })
    }
}

/// `host:pid`.
fn who() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".to_owned()),
        host => host.to_owned(),
    };
    format!("{host}:{}", std::process::id())
}
