//! A store that is away for a while: said once when it goes, and once when it is back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leaseward::{
    Error, ErrorKind, EventKind, Locks,
    clock::{Clock as _, SystemClock},
};

use crate::{failure::Failure, looking::Need, printer::Printer};

/// Between two attempts to reach a store that is away.
pub(crate) const AGAIN: Duration = Duration::from_millis(500);

/// Whether a failure may pass by itself. What the store refuses, or the command line got wrong, does not.
pub(crate) fn may_pass(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
}

/// The outages of a store, one after the other.
#[derive(Debug)]
pub(crate) struct Outage {
    printer: Printer,
    /// When the present one was noticed, in microseconds since the epoch.
    since_us: Option<u64>,
}

impl Outage {
    pub(crate) fn none_yet(printer: Printer) -> Self {
        Self { printer, since_us: None }
    }

    /// When the present one was noticed.
    pub(crate) fn since_us(&self) -> Option<u64> {
        self.since_us
    }

    /// The store did not answer: said once.
    ///
    /// # Errors
    /// The failure itself if it does not pass.
    pub(crate) fn failed(&mut self, error: Error) -> Result<(), Failure> {
        if !may_pass(&error) {
            return Err(error.into());
        }
        if self.since_us.is_none() {
            self.since_us = Some(SystemClock.wall_us());
            let failure = Failure::from(error);
            said_away(&failure.message, self.printer);
            if let Some(hint) = &failure.hint {
                self.printer.hint(hint);
            }
        }
        Ok(())
    }

    /// The store answered; whether that ends an outage.
    pub(crate) fn answered(&mut self) -> bool {
        let ends = self.since_us.take().is_some();
        if ends {
            said_back(self.printer);
        }
        ends
    }
}

/// Connects to a store. A service tries until the store is there; other commands try once.
///
/// # Errors
/// The failure of the only try, or one that does not pass by itself.
pub(crate) async fn connect<T>(
    need: Need,
    printer: Printer,
    open: impl AsyncFn() -> Result<T, Error>,
) -> Result<T, Failure> {
    if need != Need::Service {
        return Ok(open().await?);
    }
    let mut outage = Outage::none_yet(printer);
    loop {
        match open().await {
            Ok(opened) => {
                outage.answered();
                return Ok(opened);
            }
            Err(error) => outage.failed(error)?,
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// What [`announce`] goes on with until this is dropped.
#[must_use]
pub(crate) struct Announcing(Arc<AtomicBool>);

impl Drop for Announcing {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Says when the store of a client goes away, and when it is back.
pub(crate) fn announce(locks: &Locks, printer: Printer) -> Announcing {
    let goes_on = Arc::new(AtomicBool::new(true));
    let announcing = Announcing(goes_on.clone());
    locks.on_event(move |event| match event.kind {
        _ if !goes_on.load(Ordering::Relaxed) => {}
        EventKind::BreakerOpened => {
            said_away(event.message.as_deref().unwrap_or_default(), printer)
        }
        EventKind::BreakerClosed => said_back(printer),
        _ => {}
    });
    announcing
}

fn said_away(why: &str, printer: Printer) {
    printer.warning(&format!("the store is away, and asked again until it is back: {why}"));
}

fn said_back(printer: Printer) {
    printer.warning("the store is back");
}
