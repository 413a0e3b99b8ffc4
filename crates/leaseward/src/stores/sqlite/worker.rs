//! A thread that does one job after the other, started when there is a first one.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{Error, ErrorKind, clock::BoxFuture};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone, Debug)]
pub(super) struct Worker {
    name: &'static str,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
enum State {
    Idle,
    Running(Sender<Job>),
    Closed,
}

impl Worker {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, state: Arc::new(Mutex::new(State::Idle)) }
    }

    /// Whether the thread takes jobs; starts it, if it has not been.
    ///
    /// # Errors
    /// If it was closed, or no thread could be started.
    pub(super) fn ready(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        if matches!(*state, State::Idle) {
            *state = State::Running(start(self.name).map_err(no_thread)?);
        }
        if matches!(*state, State::Closed) { Err(closed()) } else { Ok(()) }
    }

    /// Gives the thread a job.
    ///
    /// # Errors
    /// As [`ready`](Self::ready). The job is dropped then.
    pub(super) fn post(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        self.ready()?;
        let state = self.state.lock();
        match &*state {
            State::Running(sender) => sender.send(Box::new(job)).map_err(|_| closed()),
            State::Idle | State::Closed => Err(closed()),
        }
    }

    /// Has the thread compute something.
    pub(super) fn call<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        let (sender, receiver) = oneshot::channel();
        // The caller may have gone; then nobody wants the result.
        let posted = self.post(move || drop(sender.send(compute())));
        Box::pin(async move {
            posted?;
            receiver.await.unwrap_or_else(|_| Err(vanished()))
        })
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(*self.state.lock(), State::Running(_))
    }

    /// Takes no more jobs; the thread ends after those it has.
    pub(super) fn close(&self) {
        *self.state.lock() = State::Closed;
    }
}

fn start(name: &str) -> io::Result<Sender<Job>> {
    let (sender, receiver) = mpsc::channel::<Job>();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        for job in receiver {
            job();
        }
    })?;
    Ok(sender)
}

fn no_thread(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "no thread could be started for the store's file")
        .hint("the process or its container is at its limit of threads")
        .caused_by(error)
}

/// The store was closed before it was asked.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the store was closed")
}

/// The thread ended in the middle of the work.
pub(super) fn vanished() -> Error {
    Error::new(ErrorKind::Indeterminate, "the store's thread ended before it answered")
}
