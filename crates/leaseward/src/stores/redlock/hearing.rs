//! A call that was sent to several nodes, and who has answered. It needs no task: whoever reads an answer puts it here,
//! and the one who waits reads himself.

use std::{
    io,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::future::poll_fn;
use parking_lot::Mutex;
use redis::{RedisError, Value};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::{
    client::Client,
    votes::Reply,
    wire::{By, Call},
};
use crate::{
    Error, ErrorKind,
    stores::redis::{
        connection::Hear,
        error::{self, Reaction},
        node::Link,
    },
};

/// Nodes are few.
const FEW: usize = 5;

/// What nodes said, each with its number.
pub(super) type Answers = SmallVec<[(usize, Result<Reply, Error>); FEW]>;

/// A call under way.
pub(super) struct Hearing {
    client: Weak<Client>,
    call: Arc<Call>,
    begun: Instant,
    state: Mutex<State>,
}

/// A node that has yet to answer.
#[derive(Clone)]
struct Asked {
    at: usize,
    /// Not the connection itself: that waits for the answer, and would never end.
    link: Weak<Link>,
    floor_us: u64,
    by: By,
}

#[derive(Default)]
struct State {
    asked: SmallVec<[Asked; FEW]>,
    answers: Answers,
    /// Who waits, and for how many answers.
    waker: Option<Waker>,
    enough: usize,
    is_overdue: bool,
    /// Nobody waits any more. Which of the call's steps are renewals that a majority agreed to.
    late: Option<Arc<[usize]>>,
}

impl State {
    /// Whether those who have answered are as many as somebody waits for, or will be no more.
    fn is_enough(&self) -> bool {
        self.answers.len() >= self.enough || self.asked.is_empty() || self.is_overdue
    }
}

impl Hearing {
    /// Of a call that nobody has been sent yet.
    pub(super) fn new(client: &Arc<Client>, call: Arc<Call>) -> Arc<Self> {
        let (client, begun) = (Arc::downgrade(client), Instant::now());
        Arc::new(Self { client, call, begun, state: Mutex::default() })
    }

    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// Sends the call to a node before this returns: so what is taken back later never overtakes what was asked.
    pub(super) fn send(self: &Arc<Self>, at: usize, link: Arc<Link>, packed: &[u8], floor_us: u64) {
        let asked = Asked { at, link: Arc::downgrade(&link), floor_us, by: By::Hash };
        self.state.lock().asked.push(asked);
        self.post(at, &link, packed);
    }

    fn post(self: &Arc<Self>, at: usize, link: &Link, packed: &[u8]) {
        if let Err(failure) = link.connection.post(packed, self.clone(), at) {
            self.clone().hear(at, Err(failure));
        }
    }

    /// Somebody waits for answers, and reads them.
    pub(super) fn listen(self: &Arc<Self>) -> Listener {
        let links =
            self.state.lock().asked.iter().filter_map(|asked| asked.link.upgrade()).collect();
        Listener { hearing: self.clone(), links, waker: None }
    }

    /// From now on nobody waits. Says whether somebody has not been heard.
    pub(super) fn hear_late(&self, renewed: Vec<usize>) -> bool {
        let renewed: Arc<[usize]> = renewed.into();
        let mut state = self.state.lock();
        let (unheard, missing) = (std::mem::take(&mut state.answers), !state.asked.is_empty());
        state.late = Some(renewed.clone());
        state.waker = None;
        drop(state);
        let in_doubt = missing || !unheard.is_empty();
        for (at, answer) in unheard {
            self.act_on(&renewed, at, answer);
        }
        in_doubt
    }

    /// What an answer calls for that nobody waited for.
    fn act_on(&self, renewed: &[usize], at: usize, answer: Result<Reply, Error>) {
        let Some(client) = self.client.upgrade() else { return };
        match answer {
            Ok(reply) if !renewed.is_empty() => client.heal_late(&self.call, renewed, at, reply),
            Ok(_) => {}
            Err(error) if error.kind() != ErrorKind::Indeterminate => {
                client.give_back_again(&self.call, at);
            }
            Err(_) => client.pay_later(at),
        }
    }

    /// Looks whether somebody has waited for too long, or a node been silent; when to look again, if it is worth it.
    pub(super) fn look_over(
        self: &Arc<Self>,
        timeout: Duration,
        dead_after: Duration,
    ) -> Option<Instant> {
        let (now, over, dead) =
            (Instant::now(), self.begun + timeout, self.begun + dead_after.max(timeout));
        let mut state = self.state.lock();
        if state.asked.is_empty() {
            return None;
        }
        if now < over {
            return Some(if state.late.is_none() { over } else { dead });
        }
        state.is_overdue = true;
        let (asked, waker) = (state.asked.clone(), state.waker.take());
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        // Whoever reads may be somebody who does not look after it.
        for link in asked.iter().filter_map(|asked| asked.link.upgrade()) {
            link.connection.leave_reading(None);
        }
        if now < dead {
            return Some(dead);
        }
        for asked in asked {
            self.clone().hear(asked.at, Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        }
        None
    }

    /// Sends the script itself, if a node does not know it.
    fn is_sent_again(self: &Arc<Self>, asked: &Asked, failure: &RedisError) -> bool {
        let reaction = error::code_of(failure).map(error::Code::reaction);
        if asked.by != By::Hash || reaction != Some(Reaction::SendScript) {
            return false;
        }
        let Some(link) = asked.link.upgrade() else { return false };
        let mut state = self.state.lock();
        if let Some(asked) = state.asked.iter_mut().find(|other| other.at == asked.at) {
            asked.by = By::Text;
        }
        drop(state);
        let packed = self.call.command(By::Text, asked.floor_us).get_packed_command();
        self.post(asked.at, &link, &packed);
        true
    }
}

impl Hear for Hearing {
    fn hear(self: Arc<Self>, at: usize, outcome: Result<Value, RedisError>) {
        let Some(client) = self.client.upgrade() else { return };
        let asked = self.state.lock().asked.iter().find(|asked| asked.at == at).cloned();
        // It is not waited for any longer.
        let Some(asked) = asked else { return };
        if outcome.as_ref().is_err_and(|failure| self.is_sent_again(&asked, failure)) {
            return;
        }
        let answer =
            client.members[at].answer(asked.link.upgrade().as_deref(), outcome, &self.call);
        let mut state = self.state.lock();
        let Some(place) = state.asked.iter().position(|asked| asked.at == at) else { return };
        state.asked.swap_remove(place);
        if let Some(renewed) = state.late.clone() {
            drop(state);
            return self.act_on(&renewed, at, answer);
        }
        state.answers.push((at, answer));
        let waker = if state.is_enough() { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_awaited(&self) -> bool {
        self.state.lock().late.is_none()
    }
}

/// One who waits for answers. Whoever is not heard before this is dropped is heard late.
pub(super) struct Listener {
    hearing: Arc<Hearing>,
    links: SmallVec<[Arc<Link>; FEW]>,
    waker: Option<Waker>,
}

impl Listener {
    /// Waits until so many have answered, or all, or the time is over; then there may be none.
    ///
    /// # Cancel safety
    /// Cancel safe: answers that were not taken are taken by the next call.
    pub(super) async fn answers(&mut self, enough: usize) -> Answers {
        poll_fn(|cx| self.poll_answers(enough, cx)).await
    }

    fn poll_answers(&mut self, enough: usize, cx: &mut Context<'_>) -> Poll<Answers> {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
        {
            let mut state = self.hearing.state.lock();
            // Nobody needs to be woken by what he reads himself.
            (state.enough, state.waker) = (enough, None);
        }
        for link in &self.links {
            link.connection.read(&*self.hearing, cx.waker());
        }
        let mut state = self.hearing.state.lock();
        if state.is_enough() {
            return Poll::Ready(std::mem::take(&mut state.answers));
        }
        state.waker.clone_from(&self.waker);
        Poll::Pending
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(waker) = &self.waker {
            self.links.iter().for_each(|link| link.connection.leave_reading(Some(waker)));
        }
        if self.hearing.state.lock().late.is_none() {
            self.hearing.hear_late(Vec::new());
        }
    }
}
