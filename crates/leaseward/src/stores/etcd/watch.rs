//! Waiting: each place in a queue watches what is in its way, all over one stream, and looks again when that has gone.
//!
//! That something went proves nothing. Only a look that finds our own key there, with nobody before it, is a grant: a key
//! can go with its lease while we wait.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{
    client::Client,
    conn::{Answers, Conn, WATCH},
    proto::{NO_PUT, WatchCancel, WatchCreate, WatchOrder, WatchRequest, WatchResponse},
    queue::Until,
    requests::end_of,
};

/// Between attempts to get a stream, or an answer.
const PAUSE: Duration = Duration::from_millis(50);

/// Places looked at in one transaction: two ranges each, and etcd takes 128 operations.
const TOGETHER: usize = 60;

/// What the stream is to do.
pub(super) enum Order {
    /// Have a place looked at once something has gone.
    Watch {
        /// Whose place.
        own: Vec<u8>,
        /// All keys of its name begin with this.
        room: Vec<u8>,
        until: Until,
        /// Revisions from this one on are news.
        from: i64,
    },
    Forget(Vec<u8>),
}

/// A place that is to be looked at.
pub(super) struct Doubt {
    pub(super) key: Vec<u8>,
    /// The revision at which something went: whatever knows of it knows enough. `None` if it is not known what happened.
    pub(super) since: Option<i64>,
}

/// Looks at places that are in doubt, many at a time.
pub(super) async fn look(client: Arc<Client>, mut doubtful: mpsc::UnboundedReceiver<Doubt>) {
    while let Some(first) = doubtful.recv().await {
        let (mut keys, mut since) = (vec![first.key], first.since);
        while keys.len() < TOGETHER
            && let Ok(next) = doubtful.try_recv()
        {
            since = since.zip(next.since).map(|(one, other)| one.max(other));
            if !keys.contains(&next.key) {
                keys.push(next.key);
            }
        }
        if client.look_again(&keys, since).await.is_err() {
            if client.link.is_closed() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
            keys.into_iter().for_each(|key| client.doubt(Doubt { key, since: None }));
        }
    }
}

/// Watches, on whichever connection there is.
pub(super) async fn run(client: Arc<Client>, mut orders: mpsc::UnboundedReceiver<Order>) {
    // What was ordered before there was a stream.
    let mut waiting = None;
    loop {
        if waiting.is_none() {
            waiting = orders.recv().await;
        }
        match client.link.conn().await {
            Ok(conn) => Stream::open(&client, conn).run(&mut orders, waiting.take()).await,
            Err(_) if client.link.is_closed() => return,
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        }
        // Whatever happened meanwhile was not heard.
        let places = client.table.lock().waiting();
        places.into_iter().for_each(|key| client.doubt(Doubt { key, since: None }));
    }
}

struct Watched {
    own: Vec<u8>,
    until: Until,
}

/// One stream on one connection.
struct Stream<'a> {
    client: &'a Arc<Client>,
    conn: Arc<Conn>,
    messages: mpsc::UnboundedSender<WatchRequest>,
    answers: Answers<WatchResponse>,
    watched: HashMap<i64, Watched>,
    ids: HashMap<Vec<u8>, i64>,
    last_id: i64,
}

impl<'a> Stream<'a> {
    fn open(client: &'a Arc<Client>, conn: Arc<Conn>) -> Self {
        let (messages, to_send) = mpsc::unbounded_channel();
        let answers = conn.stream(WATCH, to_send);
        let (watched, ids) = (HashMap::new(), HashMap::new());
        Self { client, conn, messages, answers, watched, ids, last_id: 0 }
    }

    /// Runs until the connection is of no use.
    async fn run(mut self, orders: &mut mpsc::UnboundedReceiver<Order>, first: Option<Order>) {
        first.into_iter().for_each(|order| self.obey(order));
        loop {
            let conn = self.conn.clone();
            tokio::select! {
                biased;
                () = conn.ended() => return,
                order = orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                answer = self.answers.next() => match answer {
                    Ok(answer) => self.take(answer),
                    Err(_) => return self.client.link.leave(&conn),
                },
            }
        }
    }

    fn send(&self, order: WatchOrder) {
        let _ = self.messages.send(WatchRequest { order: Some(order) });
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Forget(own) => self.forget(&own),
            Order::Watch { own, room, until, from } => {
                // An older watch of the same has missed nothing.
                let watched = self.ids.get(&own).and_then(|id| self.watched.get(id));
                if watched.is_some_and(|watched| watched.until == until) {
                    return;
                }
                self.forget(&own);
                self.last_id += 1;
                let (key, range_end) = match &until {
                    Until::Gone(key) => (key.clone(), Vec::new()),
                    Until::FewerOf(..) => (room.clone(), end_of(&room)),
                };
                self.send(WatchOrder::Create(WatchCreate {
                    key,
                    range_end,
                    start_revision: from,
                    filters: vec![NO_PUT],
                    watch_id: self.last_id,
                }));
                self.ids.insert(own.clone(), self.last_id);
                self.watched.insert(self.last_id, Watched { own, until });
            }
        }
    }

    fn forget(&mut self, own: &[u8]) {
        if let Some(watch_id) = self.ids.remove(own) {
            self.watched.remove(&watch_id);
            self.send(WatchOrder::Cancel(WatchCancel { watch_id }));
        }
    }

    fn take(&mut self, answer: WatchResponse) {
        let Some(watched) = self.watched.get_mut(&answer.watch_id) else { return };
        let mut since = None;
        let is_time = answer.canceled
            || answer.events.into_iter().filter_map(|event| event.kv).any(|gone| {
                since = Some(gone.mod_revision);
                match &mut watched.until {
                    Until::Gone(_) => true,
                    Until::FewerOf(keys, still) => {
                        let before = keys.len();
                        keys.retain(|key| *key != gone.key);
                        *still = still.saturating_sub(before - keys.len());
                        *still == 0
                    }
                }
            });
        if is_time {
            let own = watched.own.clone();
            self.forget(&own);
            self.client.doubt(Doubt { key: own, since });
        }
    }
}
