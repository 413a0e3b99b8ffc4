//! Keeps etcd's leases alive, all of them over one stream.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{
    client::Client,
    conn::{Answers, Conn, LEASE_KEEP_ALIVE},
    leases::ClassLease,
    proto::{LeaseRequest, LeaseResponse},
};
use crate::clock::Moment;

/// A keep-alive unanswered for so long has the member left for the next one: a third of the shortest lease's time, within
/// these bounds. They come four times in it, so four tenths of it are left then; and a member that only has too much to do
/// is not left.
const PATIENCE_LEAST: Duration = Duration::from_millis(600);
const PATIENCE_MOST: Duration = Duration::from_secs(5);

/// Between attempts to get a stream.
const PAUSE: Duration = Duration::from_millis(50);

/// A lease that carries nothing and was not wanted for so long is given back.
const IDLE: Duration = Duration::from_secs(60);

/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(10);

pub(super) async fn run(client: Arc<Client>, mut orders: mpsc::UnboundedReceiver<Arc<ClassLease>>) {
    loop {
        if client.leases.all().is_empty() {
            match orders.recv().await {
                Some(_) => {}
                None => return,
            }
        }
        match client.link.conn().await {
            Ok(conn) => {
                Stream::open(&client, conn).run(&mut orders).await;
                client.leases.all().iter().for_each(|lease| lease.doubt());
            }
            Err(_) if client.link.is_closed() => return,
            Err(_) => {}
        }
        client.bury_the_dead();
        tokio::time::sleep(PAUSE).await;
    }
}

/// One stream on one connection.
struct Stream<'a> {
    client: &'a Arc<Client>,
    conn: Arc<Conn>,
    messages: mpsc::UnboundedSender<LeaseRequest>,
    answers: Answers<LeaseResponse>,
    /// What was sent and not answered, in order.
    pending: VecDeque<(Arc<ClassLease>, Moment)>,
}

impl<'a> Stream<'a> {
    fn open(client: &'a Arc<Client>, conn: Arc<Conn>) -> Self {
        let (messages, to_send) = mpsc::unbounded_channel();
        let answers = conn.stream(LEASE_KEEP_ALIVE, to_send);
        Self { client, conn, messages, answers, pending: VecDeque::new() }
    }

    /// Runs until the connection is of no use, or there is nothing to keep alive.
    async fn run(mut self, orders: &mut mpsc::UnboundedReceiver<Arc<ClassLease>>) {
        for lease in self.client.leases.all() {
            self.send(lease);
        }
        loop {
            let (conn, client) = (self.conn.clone(), self.client.clone());
            let look = self.next_look();
            tokio::select! {
                biased;
                () = conn.ended() => return,
                answer = self.answers.next() => match answer {
                    Ok(answer) => self.take(&answer),
                    Err(_) => return client.link.leave(&conn),
                },
                order = orders.recv() => match order {
                    Some(lease) => self.send(lease),
                    None => return,
                },
                () = client.clock.sleep_until(look) => {
                    if self.is_overdue() {
                        return client.link.leave(&conn);
                    }
                    self.look();
                }
            }
        }
    }

    fn send(&mut self, lease: Arc<ClassLease>) {
        if lease.is_dead() {
            return;
        }
        let sent = self.client.clock.now();
        if self.messages.send(LeaseRequest { id: lease.id }).is_ok() {
            self.pending.push_back((lease, sent));
        }
    }

    fn take(&mut self, answer: &LeaseResponse) {
        while let Some((lease, sent)) = self.pending.pop_front() {
            if lease.id != answer.id {
                continue;
            }
            if answer.ttl > 0 {
                lease.confirm(sent);
            } else {
                self.client.lease_died(&lease);
            }
            return;
        }
    }

    fn patience(&self) -> Duration {
        let shortest = self.client.leases.all().iter().map(|lease| lease.class).min();
        let third = shortest.map_or(PATIENCE_MOST, |seconds| Duration::from_secs(seconds) / 3);
        third.clamp(PATIENCE_LEAST, PATIENCE_MOST)
    }

    fn is_overdue(&self) -> bool {
        let now = self.client.clock.now();
        self.pending.front().is_some_and(|(_, sent)| now.since(*sent) >= self.patience())
    }

    fn next_look(&self) -> Moment {
        let is_asked =
            |lease: &ClassLease| self.pending.iter().any(|(asked, _)| asked.id == lease.id);
        let leases = self.client.leases.all();
        let due = leases.iter().filter(|lease| !is_asked(lease)).map(|lease| lease.due()).min();
        let overdue = self.pending.front().map(|(_, sent)| *sent + self.patience());
        let idle = self.client.clock.now() + LOOK;
        idle.min(due.unwrap_or(idle)).min(overdue.unwrap_or(idle))
    }

    /// Asks for what is due, and gives back what nobody needs.
    fn look(&mut self) {
        self.client.bury_the_dead();
        let now = self.client.clock.now();
        for lease in self.client.leases.all() {
            if self.pending.iter().any(|(asked, _)| asked.id == lease.id) {
                continue;
            }
            if lease.unused_for(now) > IDLE && !self.client.table.lock().uses(&lease) {
                self.client.leases.forget(&lease);
                lease.die();
                let client = self.client.clone();
                self.client.spawn(async move { client.leases.revoke(&client.link, &lease).await });
            } else if lease.due() <= now {
                self.send(lease);
            }
        }
    }
}
