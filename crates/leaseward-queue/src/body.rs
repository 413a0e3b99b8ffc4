//! What a job is, as the database keeps it: JSON that the database never looks into.

use std::{fmt, time::Duration};

use leaseward::{Error, ErrorKind, Fence};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// How many of a job's failures are kept: the last ones.
const FAILURES_MAX: usize = 10;

/// What an ordinary body has besides its payload: names, and a time.
const USUAL_BYTES: usize = 32;

/// A message longer than this is cut.
const MESSAGE_MAX_BYTES: usize = 2_000;

/// One attempt that failed.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Which attempt, from 1.
    #[serde(rename = "a")]
    pub attempt: u32,
    /// When, in microseconds since the epoch, by the worker's clock.
    #[serde(rename = "t")]
    pub at_us: u64,
    /// Its fence.
    #[serde(rename = "f")]
    pub fence: Fence,
    /// What it said.
    #[serde(rename = "e")]
    pub error: String,
}

/// Short names, and nothing that is as usual: this is written for each job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Body {
    #[serde(rename = "p")]
    pub(crate) payload: Box<RawValue>,
    /// When it was pushed, in microseconds since the epoch.
    #[serde(rename = "i")]
    pub(crate) pushed_us: u64,
    /// Attempts that have failed.
    #[serde(rename = "a", default, skip_serializing_if = "is_zero")]
    pub(crate) failures: u32,
    /// Attempts that were interrupted.
    #[serde(rename = "n", default, skip_serializing_if = "is_zero")]
    pub(crate) interruptions: u32,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_attempts: Option<u32>,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
    /// The key that is free again when the job ends.
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    pub(crate) unique: Option<Box<str>>,
    /// The trace of whoever pushed it.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<Box<str>>,
    #[serde(rename = "e", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<Failed>,
}

/// The body of a job that has no past, while it is written: its payload is written where it stays.
#[derive(Clone)]
pub(crate) struct Draft(Vec<u8>);

/// What a new body has besides its payload.
#[derive(Serialize)]
pub(crate) struct Terms<'a> {
    #[serde(rename = "i")]
    pub(crate) pushed_us: u64,
    #[serde(rename = "m", skip_serializing_if = "Option::is_none")]
    pub(crate) max_attempts: Option<u32>,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
    #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
    pub(crate) unique: Option<&'a str>,
    #[serde(rename = "x", skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<&'a str>,
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(self.payload()))
    }
}

impl Draft {
    const BEGIN: &[u8] = br#"{"p":"#;

    pub(crate) fn of<T: Serialize + ?Sized>(payload: &T) -> Result<Self, serde_json::Error> {
        let mut out = Vec::with_capacity(Self::USUAL_BYTES);
        out.extend_from_slice(Self::BEGIN);
        serde_json::to_writer(&mut out, payload)?;
        Ok(Self(out))
    }

    /// A small payload, names, and a time: nothing that has to grow.
    const USUAL_BYTES: usize = 96;

    pub(crate) fn payload(&self) -> &[u8] {
        &self.0[Self::BEGIN.len()..]
    }

    pub(crate) fn finish(self, terms: &Terms<'_>) -> Vec<u8> {
        let Self(mut out) = self;
        let end = out.len();
        serde_json::to_writer(&mut out, terms).expect("BUG: terms can always be written");
        // They are an object of their own; now they are the rest of this one.
        out[end] = b',';
        out
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature serde asks for
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Body {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.payload.get().len() + USUAL_BYTES);
        serde_json::to_writer(&mut out, self).expect("BUG: a body can always be written");
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(|error| {
            Error::new(
                ErrorKind::Refused,
                "the database holds a job that was not written by a queue",
            )
            .hint("was it changed by hand?")
            .caused_by(error)
        })
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }

    /// Notes a failed attempt.
    pub(crate) fn failed(&mut self, at_us: u64, fence: Fence, error: &str) {
        self.failures += 1;
        let mut end = error.len().min(MESSAGE_MAX_BYTES);
        while !error.is_char_boundary(end) {
            end -= 1;
        }
        let error = error[..end].to_owned();
        self.history.push(Failed { attempt: self.failures, at_us, fence, error });
        let surplus = self.history.len().saturating_sub(FAILURES_MAX);
        self.history.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Body {
        Body {
            payload: RawValue::from_string(r#"{"to":"x"}"#.into()).expect("json"),
            pushed_us: 7,
            failures: 0,
            interruptions: 0,
            max_attempts: None,
            timeout_ms: None,
            unique: None,
            trace: None,
            history: Vec::new(),
        }
    }

    #[test]
    fn an_ordinary_job_is_little_more_than_its_payload() {
        assert_eq!(body().encode(), br#"{"p":{"to":"x"},"i":7}"#);
    }

    #[test]
    fn a_new_body_is_written_as_any_other() {
        let mut body = body();
        let terms =
            Terms { pushed_us: 7, max_attempts: None, timeout_ms: None, unique: None, trace: None };
        let draft = Draft::of(&body.payload).expect("json");
        assert_eq!(draft.payload(), br#"{"to":"x"}"#);
        assert_eq!(draft.clone().finish(&terms), body.encode());
        body.max_attempts = Some(3);
        body.timeout_ms = Some(4);
        body.unique = Some("\"u\"".into());
        body.trace = Some("x".into());
        let terms = Terms {
            max_attempts: Some(3),
            timeout_ms: Some(4),
            unique: Some("\"u\""),
            trace: Some("x"),
            ..terms
        };
        assert_eq!(draft.finish(&terms), body.encode());
    }

    #[test]
    fn the_last_failures_are_kept_and_cut() {
        let mut body = body();
        for _ in 0..12 {
            body.failed(1, Fence::new(2), &"ä".repeat(1_500));
        }
        let read = Body::decode(&body.encode()).expect("its own");
        assert_eq!((read.failures, read.history.len()), (12, FAILURES_MAX));
        assert_eq!((read.history[0].attempt, read.history[0].error.len()), (3, 2_000));
    }
}
