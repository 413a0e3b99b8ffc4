//! A job to be pushed.

use std::time::{Duration, SystemTime};

use leaseward::{Error, ErrorKind};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    JobId, Priority,
    backend::Row,
    body::{Draft, Terms},
    id::slot,
};

/// The longest name of a queue, and the longest key.
pub const NAME_MAX_BYTES: usize = 512;

/// The largest payload: more belongs into a table or a file of its own, and its place into the payload.
pub const PAYLOAD_MAX_BYTES: usize = 1 << 20;

/// When a job may begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum When {
    #[default]
    Now,
    After(Duration),
    At(SystemTime),
}

/// A job to be pushed: its queue, its payload, and how it is to be treated.
///
/// What is wrong with it is told when it is pushed.
///
/// ```
/// use leaseward_queue::{NewJob, Priority};
/// use std::time::Duration;
///
/// #[derive(serde::Serialize)]
/// struct Welcome { to: String }
///
/// let job = NewJob::new("mail", &Welcome { to: "a@example.org".into() })
///     .after(Duration::from_secs(60))
///     .priority(Priority::FIRST)
///     .unique("welcome:a@example.org")
///     .max_attempts(8);
/// # drop(job);
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens until it is pushed"]
pub struct NewJob {
    queue: String,
    payload: Result<Draft, String>,
    priority: Priority,
    when: When,
    key: Option<Box<str>>,
    unique: Option<(Box<str>, Option<Duration>)>,
    max_attempts: Option<u32>,
    timeout: Option<Duration>,
    trace: Option<Box<str>>,
}

impl NewJob {
    /// A job of a queue. The queue is made when it is first named.
    pub fn new<T: Serialize + ?Sized>(queue: impl Into<String>, payload: &T) -> Self {
        let payload = Draft::of(payload).map_err(|error| error.to_string());
        Self {
            queue: queue.into(),
            payload,
            priority: Priority::NORMAL,
            when: When::Now,
            key: None,
            unique: None,
            max_attempts: None,
            timeout: None,
            trace: None,
        }
    }

    /// A job whose payload is JSON already.
    pub fn raw(queue: impl Into<String>, payload: Box<RawValue>) -> Self {
        Self::new(queue, &payload)
    }

    /// How urgent it is.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Not before this much time has passed, by the database's clock.
    pub fn after(mut self, delay: Duration) -> Self {
        self.when = When::After(delay);
        self
    }

    /// Not before this time, by the database's clock.
    pub fn at(mut self, time: SystemTime) -> Self {
        self.when = When::At(time);
        self
    }

    /// Jobs of one key, such as one customer, do not all run at once: one at a time, unless the queue is
    /// [set up](crate::Queue::set_key_limit) otherwise.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into().into_boxed_str());
        self
    }

    /// Not pushed while another job with this unique key, in the same queue, has not ended. A dead job has ended.
    pub fn unique(mut self, key: impl Into<String>) -> Self {
        self.unique = Some((key.into().into_boxed_str(), None));
        self
    }

    /// Not pushed within this time after another job with this unique key, in the same queue, whether that has ended or not.
    pub fn unique_for(mut self, key: impl Into<String>, window: Duration) -> Self {
        self.unique = Some((key.into().into_boxed_str(), Some(window)));
        self
    }

    /// After how many failed attempts it is dead; the worker decides if not set.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// How long an attempt may take; the worker decides if not set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The trace it continues, as a W3C `traceparent`; see also [`Builder::trace_with`](crate::Builder::trace_with).
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into().into_boxed_str());
        self
    }

    pub(crate) fn queue(&self) -> &str {
        &self.queue
    }

    /// Whether it can be pushed. Pushing it asks the same, of all jobs before anything is asked of the database.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a name, key, payload or number of attempts that cannot be.
    pub fn check(&self) -> Result<(), Error> {
        check(&self.queue, "the name of a queue")?;
        let draft = self
            .payload
            .as_ref()
            .map_err(|error| invalid(format!("the payload cannot be written as JSON: {error}")))?;
        if draft.payload().len() > PAYLOAD_MAX_BYTES {
            return Err(invalid(format!("the payload has more than {PAYLOAD_MAX_BYTES} bytes"))
                .hint("keep what is large elsewhere, and its place in the payload"));
        }
        for text in self.key.iter().chain(self.unique.iter().map(|(key, _)| key)) {
            check(text, "a key")?;
        }
        if self.max_attempts == Some(0) {
            return Err(invalid("a job has at least one attempt".into()));
        }
        Ok(())
    }

    /// The row of a job that was checked.
    pub(crate) fn row(self, queue: i32, now_us: u64, trace: Option<String>) -> Row {
        let draft = self.payload.expect("BUG: a job becomes a row unchecked");
        let (due_us, unique) = (due(self.when), self.unique);
        let until_ended = unique.iter().find(|(_, window)| window.is_none());
        let body = draft.finish(&Terms {
            pushed_us: now_us,
            max_attempts: self.max_attempts,
            timeout_ms: self
                .timeout
                .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            unique: until_ended.map(|(key, _)| &**key),
            trace: self.trace.as_deref().or(trace.as_deref()),
        });
        Row {
            slot: slot(queue, self.priority),
            due_us,
            key: self.key,
            // A window of no time at all would be taken for one without an end.
            unique: unique
                .map(|(key, window)| (key, window.map_or(0, |window| micros(window).max(1)))),
            body,
        }
    }
}

fn due(when: When) -> i64 {
    match when {
        When::Now => 0,
        When::After(delay) => -micros(delay),
        When::At(time) => time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, micros),
    }
}

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// Whether a text can be a name or a key.
pub(crate) fn check(text: &str, what: &str) -> Result<(), Error> {
    if text.is_empty() || text.len() > NAME_MAX_BYTES || text.chars().any(char::is_control) {
        return Err(invalid(format!(
            "{what} has 1 to {NAME_MAX_BYTES} bytes and no control characters"
        )));
    }
    Ok(())
}

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The job is in its queue.
    New(JobId),
    /// There is another one with its unique key: nothing was pushed. (A windowed key may be that of a job that has ended.)
    Duplicate(JobId),
}

impl Pushed {
    /// The job that was pushed, or the one that was there.
    pub fn id(self) -> JobId {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }

    /// Whether it was pushed.
    pub fn is_new(self) -> bool {
        matches!(self, Self::New(_))
    }

    pub(crate) fn of((id, is_new): (JobId, bool)) -> Self {
        if is_new { Self::New(id) } else { Self::Duplicate(id) }
    }
}
