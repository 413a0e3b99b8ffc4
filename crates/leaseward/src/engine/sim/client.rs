//! A process: the engine's own table of tokens, with nothing else around it.
//!
//! What the engine does with tasks, locks and channels is done here with numbers: a caller is an entry in a queue, a
//! guard is a [`Holder`], a timer is a moment. Effects are carried out later than decided, in their order, as the engine
//! does it outside of its lock: what another thread does meanwhile happens in between.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{check::Check, dice::Dice, plan::Plan};
use crate::{
    Fence, LostReason, Mode, Name, Token,
    clock::Moment,
    engine::{
        acquisition::{Caller, CallerId, Event, Send, Setting},
        cell::TokenCell,
        names::{Around, Effect, Names, Tell, Visit},
        spec::{Extras, Spec},
    },
    store::{Answer, Grant, IfBusy},
};

/// Callers of one client that wait at a time: more only make histories longer.
const CALLERS_MAX: usize = 4;

/// A caller of this process that wants the lease.
#[derive(Clone)]
pub(super) struct SimCaller {
    id: CallerId,
    since: Moment,
    gives_up: Moment,
    spec: Arc<Spec>,
}

impl Caller for SimCaller {
    type Holder = ();
    type Pending = ();
    type Releaser = ();

    fn id(&self) -> CallerId {
        self.id
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn holder(&mut self) -> Option<()> {
        None
    }

    fn begins_to_wait(&mut self) -> Option<()> {
        None
    }
}

/// A caller of this process that has the lease.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) fence: Fence,
    /// Which hold of the history it is.
    pub(super) start: u64,
    /// It could not be relied on any more at some moment.
    pub(super) lapsed: bool,
    leaves: Moment,
}

/// What a client takes and gives.
pub(super) struct Turn<'a> {
    pub(super) now: Moment,
    pub(super) dice: &'a mut Dice,
    pub(super) plan: &'a Plan,
    pub(super) check: &'a mut Check,
}

pub(super) struct Client {
    /// Another one after a crash: what is on its way to the old one vanishes.
    pub(super) id: u32,
    pub(super) names: Names<SimCaller>,
    pub(super) holders: HashMap<u64, Holder>,
    pub(super) outbox: VecDeque<Effect<SimCaller>>,
    /// Tokens that ended without a word from the store, or whose lease has moved.
    pub(super) given_up: Vec<Token>,
    pub(super) paused_until: Moment,
    /// When it is woken next.
    pub(super) planned: Moment,
    pub(super) is_closing: bool,
    pub(super) name: Name,
    pub(super) who: Arc<str>,
    pub(super) ttl: Duration,
    setting: Setting,
    wakes: HashMap<u64, Moment>,
    next_id: u64,
}

/// What surrounds a client's tokens.
struct Surroundings<'a> {
    now: Moment,
    dice: &'a mut Dice,
    id: u32,
    who: &'a Arc<str>,
    setting: Setting,
    is_closing: bool,
    wakes: &'a mut HashMap<u64, Moment>,
    next_id: &'a mut u64,
}

impl Around for Surroundings<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn random(&mut self) -> f64 {
        self.dice.below(1_000) as f64 / 1_000.0
    }

    fn new_token(&mut self) -> Token {
        let random = (u128::from(self.id) << 64) | u128::from(self.new_id());
        Token::new(random, self.who.clone())
    }

    fn new_id(&mut self) -> u64 {
        *self.next_id += 1;
        *self.next_id
    }

    fn setting(&self) -> Setting {
        self.setting
    }

    fn is_closing(&self) -> bool {
        self.is_closing
    }

    fn owes(&mut self, _tokens: isize) {}

    fn wake_at(&mut self, cell: &Arc<TokenCell>, at: Moment) {
        self.wakes.remove(&cell.id);
        if at != Moment::NEVER {
            self.wakes.insert(cell.id, at);
        }
    }
}

impl Client {
    pub(super) fn new(id: u32, name: Name, ttl: Duration, setting: Setting) -> Self {
        Self {
            id,
            names: Names::default(),
            holders: HashMap::new(),
            outbox: VecDeque::new(),
            given_up: Vec::new(),
            paused_until: Moment::from_nanos(0),
            planned: Moment::NEVER,
            is_closing: false,
            name,
            who: Arc::from(format!("client-{id}")),
            ttl,
            setting,
            wakes: HashMap::new(),
            next_id: 0,
        }
    }

    /// Its tokens, in the order in which they came.
    pub(super) fn cells(&self) -> Vec<Arc<TokenCell>> {
        let mut cells: Vec<_> = self.names.iter().map(|entry| entry.cell.clone()).collect();
        cells.sort_by_key(|cell| cell.id);
        cells
    }

    pub(super) fn has_callers(&self) -> bool {
        self.names.iter().any(|entry| !entry.acquisition.callers().is_empty())
    }

    pub(super) fn knows(&self, token: &Token) -> bool {
        self.names.iter().any(|entry| entry.cell.token == *token)
    }

    /// The holder that relies on the lease now.
    pub(super) fn holder(&self, now: Moment) -> Option<&Holder> {
        let mut relied_on = self
            .names
            .iter()
            .filter(|entry| entry.acquisition.held().is_some_and(|held| now < held.deadline()));
        self.holders.get(&relied_on.next()?.cell.id)
    }

    /// When it wants to be woken.
    pub(super) fn next_due(&self) -> Moment {
        let callers = self.names.iter().flat_map(|entry| entry.acquisition.callers());
        let gives_up = callers.map(|caller| caller.gives_up);
        let leaves = self.holders.values().map(|holder| holder.leaves);
        self.wakes.values().copied().chain(gives_up).chain(leaves).min().unwrap_or(Moment::NEVER)
    }

    /// Does something with the tokens, and takes down what follows. `is_unheard`: a token that is forgotten by this has
    /// not heard of its end from the store.
    fn visit(
        &mut self,
        turn: &mut Turn<'_>,
        is_unheard: bool,
        act: impl FnOnce(&mut Visit<'_, SimCaller>),
    ) {
        let before = self.cells();
        let mut around = Surroundings {
            now: turn.now,
            dice: turn.dice,
            id: self.id,
            who: &self.who,
            setting: self.setting,
            is_closing: self.is_closing,
            wakes: &mut self.wakes,
            next_id: &mut self.next_id,
        };
        let mut visit = Visit::new(&mut self.names, &mut around);
        act(&mut visit);
        let (effects, tells) = (visit.effects, visit.tells);
        self.outbox.extend(effects);
        // A holder whose lease has gone hears of it.
        for cell in &before {
            if cell.ended().is_some() || !self.knows(&cell.token) {
                self.holders.remove(&cell.id);
            }
            if is_unheard && !self.knows(&cell.token) {
                self.given_up.push(cell.token.clone());
            }
        }
        for tell in tells {
            if let Tell::Granted(caller, cell, fence) = tell {
                self.seat(&cell, &caller, fence, turn);
            }
        }
    }

    fn seat(&mut self, cell: &TokenCell, caller: &SimCaller, fence: Fence, turn: &mut Turn<'_>) {
        let waited = turn.now.since(caller.since).as_nanos();
        turn.check.waited_ns += u64::try_from(waited).expect("BUG: a history of centuries");
        let start = turn.check.started(fence);
        let leaves = turn.now + turn.dice.ms(0, turn.plan.hold_ms);
        self.holders.insert(cell.id, Holder { fence, start, lapsed: false, leaves });
    }

    /// A caller comes: it joins the token this process has, or asks with a new one.
    pub(super) fn come(&mut self, turn: &mut Turn<'_>) {
        let waiting: usize = self.names.iter().map(|entry| entry.acquisition.callers().len()).sum();
        if waiting >= CALLERS_MAX || self.is_closing {
            return;
        }
        let gives_up = if turn.dice.chance(turn.plan.impatient) {
            turn.now + turn.dice.ms(0, 2 * turn.plan.hold_ms + 500)
        } else {
            Moment::NEVER
        };
        let is_try = turn.dice.chance(turn.plan.tries);
        let spec = self.spec(if is_try { IfBusy::Tell } else { IfBusy::Queue }, turn);
        self.next_id += 1;
        let caller =
            SimCaller { id: self.next_id, since: turn.now, gives_up, spec: Arc::new(spec.clone()) };
        let name = self.name.clone();
        self.visit(turn, false, |visit| {
            let caller = match is_try {
                true => Err(caller),
                false => visit.join((0, &name), caller),
            };
            if let Err(caller) = caller {
                visit.enter((0, &name), spec, [caller].into(), None);
            }
        });
    }

    fn spec(&self, if_busy: IfBusy, turn: &mut Turn<'_>) -> Spec {
        let min_hold_ms = if turn.dice.chance(turn.plan.keep) { 300 } else { 0 };
        let rides_out = turn.dice.chance(50);
        let has_extras = min_hold_ms > 0 || rides_out;
        let extras = Extras { min_hold_ms, rides_out, ..Extras::default() };
        let millis = |time: Duration| u32::try_from(time.as_millis()).expect("BUG: a TTL of weeks");
        Spec {
            mode: Mode::Exclusive.into(),
            if_busy,
            ttl_ms: millis(self.ttl),
            renew_ms: millis(self.ttl / 3),
            extras: has_extras.then(|| Arc::new(extras)),
        }
    }

    /// Something happened to a token.
    pub(super) fn on(
        &mut self,
        cell: &Arc<TokenCell>,
        event: Event<SimCaller>,
        turn: &mut Turn<'_>,
    ) {
        if matches!(event, Event::Released(_) | Event::Unused | Event::Detached | Event::Closing) {
            self.holders.remove(&cell.id);
        }
        if matches!(event, Event::Detached) {
            // What becomes of its lease is another process's business.
            self.given_up.push(cell.token.clone());
        }
        let is_unheard = matches!(event, Event::Due);
        self.visit(turn, is_unheard, |visit| visit.on(cell, event));
    }

    /// An operation was answered.
    pub(super) fn answered(
        &mut self,
        cell: &Arc<TokenCell>,
        send: Send,
        sent: Moment,
        answer: Answer,
        turn: &mut Turn<'_>,
    ) {
        let is_unheard = answer.is_err();
        self.visit(turn, is_unheard, |visit| visit.answered(cell, send, sent, answer));
    }

    pub(super) fn pushed(&mut self, token: &Token, grant: Grant, turn: &mut Turn<'_>) {
        let name = self.name.clone();
        self.visit(turn, false, |visit| visit.pushed((0, &name), token, grant));
    }

    /// The time has come for something, perhaps long ago.
    pub(super) fn wake(&mut self, turn: &mut Turn<'_>) {
        for cell in self.cells() {
            // After a pause a holder may leave before its timer has looked at the deadline.
            let leaves_first = turn.dice.chance(50);
            for leaves in [leaves_first, !leaves_first] {
                if leaves {
                    self.leave_if_done(&cell, turn);
                } else {
                    self.look_if_due(&cell, turn);
                }
            }
            self.give_up(&cell, turn);
        }
    }

    fn leave_if_done(&mut self, cell: &Arc<TokenCell>, turn: &mut Turn<'_>) {
        let leaves = self.holders.get(&cell.id).map_or(Moment::NEVER, |holder| holder.leaves);
        if leaves <= turn.now {
            let detaches = turn.dice.chance(turn.plan.detach);
            let event = match (detaches, turn.dice.chance(5)) {
                (true, _) => Event::Detached,
                (false, true) => Event::Unused,
                (false, false) => Event::Released(Some(())),
            };
            self.on(cell, event, turn);
        }
    }

    fn look_if_due(&mut self, cell: &Arc<TokenCell>, turn: &mut Turn<'_>) {
        if self.wakes.get(&cell.id).is_some_and(|at| *at <= turn.now) {
            self.wakes.remove(&cell.id);
            self.on(cell, Event::Due, turn);
        }
    }

    fn give_up(&mut self, cell: &Arc<TokenCell>, turn: &mut Turn<'_>) {
        let Some(entry) = self.names.find(cell) else { return };
        let callers = entry.acquisition.callers().iter();
        let gone: Vec<_> =
            callers.filter(|caller| caller.gives_up <= turn.now).map(|caller| caller.id).collect();
        for caller in gone {
            self.on(cell, Event::Left(caller), turn);
        }
    }

    /// Each token hears the same.
    pub(super) fn all_hear(&mut self, event: fn() -> Event<SimCaller>, turn: &mut Turn<'_>) {
        for cell in self.cells() {
            self.on(&cell, event(), turn);
        }
    }

    pub(super) fn shut_down(&mut self, turn: &mut Turn<'_>) {
        self.is_closing = true;
        self.all_hear(|| Event::Closing, turn);
    }

    pub(super) fn lose_all(&mut self, turn: &mut Turn<'_>) {
        self.all_hear(|| Event::Lost(LostReason::SessionEnded), turn);
    }
}
