//! How a handler ends.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

/// How an attempt ends that did not fail. `()` is [`Ending::Done`].
#[non_exhaustive]
#[derive(Clone, Debug, Default)]
pub enum Ending {
    /// The job is done.
    #[default]
    Done,
    /// The job is done, and this came of it: JSON, kept if the worker [keeps](crate::Worker::keep) ended jobs.
    Result(Box<RawValue>),
    /// Not now: again after this time. Does not count as an attempt.
    Snooze(Duration),
    /// Broken off by something that is not the job's doing, such as a database that is away: again after a random time that
    /// grows with each interruption of the job. Does not count as an attempt.
    Interrupted,
    /// The job is not wanted any more.
    Cancel,
}

impl Ending {
    /// Done with a result.
    ///
    /// # Errors
    /// A [`Failure`] if the result cannot be written as JSON.
    pub fn result<T: Serialize + ?Sized>(result: &T) -> Result<Self, Failure> {
        Ok(Self::Result(serde_json::value::to_raw_value(result)?))
    }
}

impl From<()> for Ending {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// Whether a failed job is tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Again {
    /// As the worker's policy says.
    #[default]
    ByPolicy,
    After(Duration),
    Never,
}

/// Why an attempt failed. Every error converts into one, so `?` works in handlers.
#[derive(Clone, Debug)]
pub struct Failure {
    pub(crate) message: String,
    pub(crate) again: Again,
}

impl Failure {
    /// A failure in words.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: Again::ByPolicy }
    }

    /// Tries again after this time, such as a `Retry-After` says, if any attempts are left.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.again = Again::After(delay);
        self
    }

    /// Never tries again: the job is dead.
    #[must_use]
    pub fn fatal(mut self) -> Self {
        self.again = Again::Never;
        self
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Self::new(message)
    }
}
