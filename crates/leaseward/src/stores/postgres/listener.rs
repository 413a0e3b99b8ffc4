//! Hearing of leases that were handed over: one connection that listens, from the first wait on.
//!
//! Whether it really hears is tried out: through a pooler in transaction mode `LISTEN` succeeds and nothing ever comes.
//! Until it hears, and whenever it does not, whoever waits asks again every quarter of a second.

use std::{
    future::poll_fn,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::mpsc, task::AbortHandle, time};
use tokio_postgres::{AsyncMessage, Client as Driver, types::Type};

use super::{
    answers,
    client::Client,
    dial::{Carrier, Dialler},
    error::Stage,
    lines::Lines,
};
use crate::{Error, ErrorKind};

/// How long the notification that is sent for a trial may take.
const TRIAL: Duration = Duration::from_secs(2);

/// Between attempts to listen: random up to this, doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(30);

/// How often who waits asks again while nothing is heard.
pub(super) const POLL: Duration = Duration::from_millis(250);

/// What is sent for a trial: no push looks like it.
const HELLO: &str = "hello";

#[derive(Debug, Default)]
pub(super) struct Listener {
    /// The task, once somebody has waited.
    task: Mutex<Option<AbortHandle>>,
    hears: AtomicBool,
}

impl Listener {
    /// Whether pushes are heard now.
    pub(super) fn hears(&self) -> bool {
        self.hears.load(Ordering::Acquire)
    }

    /// Whether somebody has waited.
    pub(super) fn was_started(&self) -> bool {
        self.task.lock().is_some()
    }

    pub(super) fn start(&self, client: &Arc<Client>) {
        let mut task = self.task.lock();
        if task.is_none() {
            let listening = client.runtime.spawn(keep_listening(Arc::downgrade(client)));
            *task = Some(listening.abort_handle());
        }
    }

    pub(super) fn close(&self) {
        if let Some(task) = self.task.lock().as_ref() {
            task.abort();
        }
        self.hears.store(false, Ordering::Release);
    }
}

/// The channel on which a client hears.
fn channel(me: i64) -> String {
    format!("leaseward_{me:x}")
}

async fn keep_listening(client: Weak<Client>) {
    let mut bound = RETRY_FIRST;
    loop {
        let Some(this) = client.upgrade() else { return };
        match begin(&this).await {
            Ok((driver, messages)) => {
                bound = RETRY_FIRST;
                this.listener.hears.store(true, Ordering::Release);
                // What was pushed before is lost.
                this.wake_all();
                let weak = Arc::downgrade(&this);
                drop(this);
                hear(&weak, driver, messages).await;
                if let Some(this) = weak.upgrade() {
                    this.listener.hears.store(false, Ordering::Release);
                    // Who waits learns by its next ask that it has to ask more often.
                    this.wake_all();
                }
            }
            Err(error) => {
                tracing::warn!(error = %error, "notifications of postgresql are not heard");
                drop(this);
            }
        }
        time::sleep(bound.mul_f64(rand::random())).await;
        bound = (bound * 2).min(RETRY_LAST);
    }
}

/// What is heard, until the connection ends.
pub(super) type Messages = mpsc::UnboundedReceiver<String>;

/// Listens on the client's own channel.
async fn begin(client: &Arc<Client>) -> Result<(Driver, Messages), Error> {
    let way = Way {
        dialler: &client.dialler,
        server: client.listens_at(),
        lines: &client.lines,
        runtime: &client.runtime,
    };
    way.listen(&channel(client.me)).await
}

/// What it takes to listen.
pub(super) struct Way<'a> {
    pub(super) dialler: &'a Dialler,
    pub(super) server: &'a tokio_postgres::Config,
    pub(super) lines: &'a Lines,
    pub(super) runtime: &'a Handle,
}

impl Way<'_> {
    /// Connects, listens, and tries whether it hears.
    pub(super) async fn listen(&self, channel: &str) -> Result<(Driver, Messages), Error> {
        let at = &self.lines.at;
        let (driver, carrier) = self.dialler.dial(self.server, at).await?;
        let mut messages = carry(self.runtime, carrier);
        let listen = format!("LISTEN \"{channel}\"");
        driver
            .batch_execute(&listen)
            .await
            .map_err(|error| super::error::translate(&error, Stage::Connecting, at))?;
        // Over another connection: in a transaction of its own it would be heard through a pooler too.
        let sql = "SELECT pg_notify($1, $2)";
        self.lines.query(sql, &[(&channel, Type::TEXT), (&HELLO, Type::TEXT)]).await?;
        match time::timeout(TRIAL, messages.recv()).await {
            Ok(Some(_)) => Ok((driver, messages)),
            Ok(None) | Err(_) => {
                let message = "notifications do not arrive";
                Err(Error::new(ErrorKind::Unsupported, message).hint(
                    "is there a pooler in transaction mode? `listen=URL` names a direct connection",
                ))
            }
        }
    }
}

/// Carries a connection's messages in a task that ends with the connection: at the latest when its driver is dropped.
fn carry(runtime: &Handle, mut carrier: Carrier) -> Messages {
    let (tell, messages) = mpsc::unbounded_channel();
    runtime.spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| carrier.poll_message(context)).await {
            if let AsyncMessage::Notification(said) = message {
                // Nobody receives it any more if the driver has just been dropped.
                let _ = tell.send(said.payload().to_owned());
            }
        }
    });
    messages
}

/// Passes on what is heard, until the connection ends or the client does.
async fn hear(client: &Weak<Client>, driver: Driver, mut messages: Messages) {
    while let Some(payload) = messages.recv().await {
        let Some(client) = client.upgrade() else { return };
        if let Some(push) = answers::heard(&payload) {
            client.hear(push);
        }
    }
    drop(driver);
}
