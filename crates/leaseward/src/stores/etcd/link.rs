//! The way to the cluster: one connection to one member at a time, and the next member as soon as that one is no good.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    config::Config,
    conn::{Conn, Wire},
    error::{self, Asked, Class},
};
use crate::{Error, ErrorKind};

/// Between two attempts: random up to this.
const PAUSE: Duration = Duration::from_millis(100);

/// After all members were tried in vain: random up to this, doubled each time, within which nobody tries again.
const REST_FIRST: Duration = Duration::from_millis(20);
const REST_LAST: Duration = Duration::from_secs(1);

pub(super) struct Link {
    pub(super) config: Config,
    current: Mutex<Option<Arc<Conn>>>,
    /// The member to try next.
    next: AtomicUsize,
    dialling: tokio::sync::Mutex<Dialling>,
    is_closed: AtomicBool,
}

/// A call that came to nothing.
pub(super) struct Failed {
    pub(super) class: Class,
    pub(super) error: Error,
}

impl Failed {
    fn unreached(error: Error) -> Self {
        Self { class: Class::Unreached, error }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

#[derive(Default)]
struct Dialling {
    failures: u32,
    /// A member has let us in before.
    was_up: bool,
    /// Why there is no connection, and until when that is not tried again.
    why: Option<(Error, Instant)>,
}

impl Link {
    pub(super) fn new(config: Config) -> Self {
        let first = rand::random_range(0..config.endpoints.len().max(1));
        Self {
            config,
            current: Mutex::default(),
            next: AtomicUsize::new(first),
            dialling: tokio::sync::Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// The connection, if there is one.
    pub(super) fn current(&self) -> Option<Arc<Conn>> {
        self.current.lock().clone().filter(|conn| !conn.is_over())
    }

    /// The connection, made if there is none: every member is tried once.
    pub(super) async fn conn(&self) -> Result<Arc<Conn>, Error> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(error::closed());
        }
        if let Some(conn) = self.current() {
            return Ok(conn);
        }
        let mut dialling = self.dialling.lock().await;
        if let Some(conn) = self.current() {
            return Ok(conn);
        }
        if let Some((why, until)) = &dialling.why
            && Instant::now() < *until
        {
            return Err(why.duplicate());
        }
        match self.dial().await {
            Ok(conn) => {
                *dialling = Dialling { was_up: true, ..Dialling::default() };
                *self.current.lock() = Some(conn.clone());
                Ok(conn)
            }
            Err(why) => {
                let why = if dialling.was_up { why.was_reached(None) } else { why };
                let cap = REST_FIRST * (1 << dialling.failures.min(10));
                dialling.failures += 1;
                let rest = cap.min(REST_LAST).mul_f64(rand::random());
                dialling.why = Some((why.duplicate(), Instant::now() + rest));
                Err(why)
            }
        }
    }

    async fn dial(&self) -> Result<Arc<Conn>, Error> {
        let members = &self.config.endpoints;
        let first = self.next.load(Ordering::Relaxed);
        let mut why = error::closed();
        for step in 0..members.len() {
            let member = (first + step) % members.len();
            match Conn::open(&self.config, &members[member]).await {
                Ok(conn) => {
                    self.next.store(member, Ordering::Relaxed);
                    return Ok(Arc::new(conn));
                }
                // The others would say the same of a password.
                Err(error) if error.kind() == ErrorKind::Refused && step == 0 => why = error,
                Err(error) if why.kind() != ErrorKind::Refused => why = error,
                Err(_) => {}
            }
        }
        Err(why)
    }

    /// Leaves a member for the next one.
    pub(super) fn leave(&self, conn: &Arc<Conn>) {
        let mut current = self.current.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, conn)) {
            *current = None;
            self.next.fetch_add(1, Ordering::Relaxed);
        }
        drop(current);
        conn.end();
    }

    /// One request, one answer, from whichever member gives one within the time. What may have been done already is
    /// not asked for twice.
    pub(super) async fn call<Q: Wire + Clone, A: Wire>(
        &self,
        method: &'static str,
        asked: Asked,
        message: Q,
    ) -> Result<A, Failed> {
        let until = Instant::now() + self.config.timeout;
        loop {
            let conn = self.conn().await.map_err(Failed::unreached)?;
            let answer = conn.asked::<Q, A>(method, message.clone());
            let status = match tokio::time::timeout_at(until, answer).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => {
                    self.leave(&conn);
                    let error = error::timed_out(asked, &conn.at);
                    return Err(Failed { class: Class::Broken, error });
                }
            };
            let class = Class::of(&status);
            if class.leaves_member() {
                self.leave(&conn);
            }
            let error = error::translate(&status, asked, &conn.at);
            if error.kind() != ErrorKind::Unavailable || class.is_for_the_caller() {
                return Err(Failed { class, error });
            }
            if class == Class::OldToken {
                conn.authenticate(&self.config).await.map_err(Failed::unreached)?;
            }
            let pause = PAUSE.mul_f64(rand::random());
            if Instant::now() + pause >= until {
                return Err(Failed { class, error });
            }
            tokio::time::sleep(pause).await;
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        if let Some(conn) = self.current.lock().take() {
            conn.end();
        }
    }
}
