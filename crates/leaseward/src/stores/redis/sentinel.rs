//! Finding the primary through Sentinels, and following it.
//!
//! Clients that ask only when something fails went on locking at a deposed primary for eight to ten seconds. Here one
//! Sentinel is listened to all the time: at `+switch-master` the connection is given up at once.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use redis::{PushInfo, PushKind, RedisError, Value};
use tokio::sync::mpsc;

use super::{config::Address, connection::Connection, dial::Dialler, node::Node, probe};
use crate::{Error, ErrorKind};

/// How long to wait before the next Sentinel is listened to, at most.
const RETRY: Duration = Duration::from_millis(500);

/// How often a Sentinel that says nothing is asked, should its message have been lost.
const ASK_EVERY: Duration = Duration::from_secs(2);

pub(super) struct Sentinel {
    dialler: Dialler,
    /// The one that answered last comes first.
    sentinels: Mutex<Vec<Address>>,
    master: String,
}

impl Sentinel {
    pub(super) fn new(dialler: Dialler, sentinels: Vec<Address>, master: String) -> Arc<Self> {
        Arc::new(Self { dialler, sentinels: Mutex::new(sentinels), master })
    }

    /// Asks for the primary, one Sentinel after the other.
    pub(super) async fn find(&self) -> Result<Address, Error> {
        let sentinels = self.sentinels.lock().clone();
        let mut why = None;
        for address in sentinels {
            match self.ask_at(&address).await {
                Ok(primary) => {
                    self.prefer(&address);
                    return Ok(primary);
                }
                Err(error) => why = Some(error),
            }
        }
        Err(why.unwrap_or_else(|| Error::new(ErrorKind::InvalidInput, "no Sentinel was named")))
    }

    async fn ask_at(&self, address: &Address) -> Result<Address, Error> {
        let connection = self.dialler.dial(address, Box::new(|_| {})).await?;
        self.ask(&connection, address).await
    }

    async fn ask(&self, connection: &Connection, at: &Address) -> Result<Address, Error> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("get-master-addr-by-name").arg(&self.master);
        match connection.command(&question).await {
            Ok(Value::Array(parts)) => match parts.as_slice() {
                [host, port] => probe::text(host)
                    .zip(probe::text(port).and_then(|port| port.parse().ok()))
                    .map(|(host, port)| Address::Tcp(host, port))
                    .ok_or_else(|| self.unknown(at)),
                _ => Err(self.unknown(at)),
            },
            Ok(_) => Err(self.unknown(at)),
            Err(error) if is_unknown_command(&error) => Err(no_sentinel(at)),
            Err(error) => Err(super::error::of_connecting(&error, self.dialler.peer(at))),
        }
    }

    fn unknown(&self, at: &Address) -> Error {
        Error::new(
            ErrorKind::Unavailable,
            format!("Sentinel at {at} knows no primary named `{}`", self.master),
        )
        .hint("`redis-cli -p 26379 sentinel masters` lists the names it knows")
    }

    fn prefer(&self, address: &Address) {
        let mut sentinels = self.sentinels.lock();
        if let Some(at) = sentinels.iter().position(|other| other == address) {
            sentinels[..=at].rotate_right(1);
        }
    }

    /// Puts the one that failed at the end.
    fn distrust(&self) {
        self.sentinels.lock().rotate_left(1);
    }
}

fn is_unknown_command(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| text.contains("unknown command"))
}

fn no_sentinel(at: &Address) -> Error {
    Error::new(ErrorKind::Unavailable, format!("redis at {at} is no Sentinel")).hint(format!(
        "Sentinels listen on port 26379 by default; a single server is `redis://{at}`"
    ))
}

/// Listens to a Sentinel for as long as the node lives.
pub(super) async fn follow(sentinel: Arc<Sentinel>, node: Weak<Node>) {
    while node.strong_count() > 0 {
        let address = sentinel.sentinels.lock()[0].clone();
        if listen(&sentinel, &address, &node).await.is_err() {
            sentinel.distrust();
        }
        tokio::time::sleep(RETRY.mul_f64(rand::random())).await;
    }
}

/// Listens to one Sentinel until it fails.
async fn listen(sentinel: &Sentinel, address: &Address, node: &Weak<Node>) -> Result<(), Error> {
    let (sender, mut heard) = mpsc::unbounded_channel::<PushInfo>();
    // Whoever listens has gone: so has the connection, in a moment.
    let tell = Box::new(move |info| drop(sender.send(info)));
    let connection = sentinel.dialler.dial(address, tell).await?;
    let mut subscribe = redis::cmd("SUBSCRIBE");
    subscribe.arg("+switch-master");
    let subscribed = connection.command(&subscribe).await;
    let peer = sentinel.dialler.peer(address);
    subscribed.map_err(|error| super::error::of_connecting(&error, peer))?;
    loop {
        // Asked once the subscription stands, and now and then: whatever was missed is noticed.
        let primary = sentinel.ask(&connection, address).await?;
        let Some(node) = node.upgrade() else { return Ok(()) };
        follow_to(&node, &primary);
        drop(node);
        match tokio::time::timeout(ASK_EVERY, heard.recv()).await {
            Ok(Some(info)) if info.kind != PushKind::Disconnection => {}
            Ok(_) => return Ok(()),
            Err(_) => {}
        }
    }
}

fn follow_to(node: &Arc<Node>, primary: &Address) {
    let Ok(link) = node.link() else { return };
    if link.address != *primary {
        let why = Error::new(
            ErrorKind::Unavailable,
            format!("Sentinel says that the primary is now {primary}, no longer {}", link.address),
        );
        node.moved(why);
    }
}
