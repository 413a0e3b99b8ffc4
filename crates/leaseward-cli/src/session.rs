//! One invocation of the tool: its settings, its connection, its streams, its signals.

use leaseward::{AuditLog, Locks};

use crate::{
    child::Signals,
    config::Settings,
    exit::Exit,
    failure::Failure,
    looking::{Looked, Need},
    outage,
    printer::Printer,
};

/// What commands work with.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) settings: Settings,
    pub(crate) locks: Locks,
    pub(crate) printer: Printer,
    pub(crate) signals: Signals,
    /// The store at hand, if it is a temporary one that goes with this.
    _looked: Looked,
}

impl Session {
    /// Opens the store that the settings name. What becomes of its leases is written to the audit log, if there is one.
    pub(crate) async fn open(
        settings: Settings,
        need: Need,
        audit: Option<AuditLog>,
        printer: Printer,
    ) -> Result<Self, Failure> {
        let mut signals = Signals::listen()
            .map_err(|error| Failure::system("cannot listen to signals", &error))?;
        let opened = async {
            let looked = Looked::at(&settings.store, need, printer).await?;
            let connect = async || leaseward::connect(&looked.url).await;
            Ok::<_, Failure>((outage::connect(need, printer, connect).await?, looked))
        };
        let (locks, looked) = tokio::select! {
            opened = opened => opened?,
            signal = signals.ending() => return Err(interrupted(signal)),
        };
        if let Some(audit) = audit {
            audit.follow(&locks);
        }
        Ok(Self { settings, locks, printer, signals, _looked: looked })
    }

    /// Waits for a store's answer, or for a signal that ends the tool: one that is caught would otherwise be lost on a
    /// store that hangs.
    pub(crate) async fn answer<T>(
        &mut self,
        request: impl Future<Output = Result<T, leaseward::Error>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            answer = request => Ok(answer?),
            signal = self.signals.ending() => Err(interrupted(signal)),
        }
    }

    /// Gives back everything still held.
    pub(crate) async fn close(self) {
        self.locks.shutdown().await;
    }
}

/// The end of a command by a signal, without a word: whoever sent it knows.
pub(crate) fn interrupted(signal: rustix::process::Signal) -> Failure {
    Failure::new(Exit::Signal(u8::try_from(signal.as_raw()).unwrap_or(u8::MAX)), "")
}
