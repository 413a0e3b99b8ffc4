//! The tokens of a shard by name, and what happens to them: each event goes to the token's [`Acquisition`], and its actions
//! are put where they belong. Nothing is sent, told or reported here; that is done once the shard's lock is free.

use std::{collections::VecDeque, sync::Arc};

use hashbrown::{HashTable, hash_table::Entry as Slot};
use smallvec::SmallVec;
use tokio::sync::Notify;

use super::{
    acquisition::{
        Acquisition, Action, Actions, At, Caller, CallerId, Event, Held, Outcome, Report, Send,
        Setting, evidence,
    },
    cell::TokenCell,
    spec::Spec,
};
use crate::{
    Error, Fence, Name, Release, Token,
    clock::Moment,
    store::{Answer, Grant},
};

/// A token in use.
pub(crate) struct Entry<C: Caller> {
    pub(crate) cell: Arc<TokenCell>,
    pub(crate) acquisition: Acquisition<C>,
    /// Where its present holder comes from.
    pub(crate) holder: Option<C::Holder>,
}

impl<C: Caller> Entry<C> {
    pub(crate) fn has_caller(&self, id: CallerId) -> bool {
        self.acquisition.callers().iter().any(|caller| caller.id() == id)
    }
}

/// Tokens by name. The names themselves are in the cells.
pub(crate) struct Names<C: Caller>(HashTable<Tokens<C>>);

/// The tokens on one name, in the order in which they came; never empty.
type Tokens<C> = SmallVec<[Box<Entry<C>>; 1]>;

impl<C: Caller> Default for Names<C> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

fn name_of<C: Caller>(tokens: &Tokens<C>) -> &Name {
    &tokens[0].cell.name
}

impl<C: Caller> Names<C> {
    /// The tokens on a name.
    pub(crate) fn on(&self, hash: u64, name: &Name) -> &[Box<Entry<C>>] {
        self.0.find(hash, |tokens| name_of(tokens) == name).map_or(&[], |tokens| tokens)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<C>> {
        self.0.iter().flat_map(|tokens| tokens.iter().map(|entry| &**entry))
    }

    pub(crate) fn find(&mut self, cell: &Arc<TokenCell>) -> Option<&mut Entry<C>> {
        let tokens = self.0.find_mut(cell.hash, |tokens| *name_of(tokens) == cell.name)?;
        tokens.iter_mut().map(|entry| &mut **entry).find(|entry| Arc::ptr_eq(&entry.cell, cell))
    }

    fn insert(&mut self, entry: Box<Entry<C>>) {
        let cell = entry.cell.clone();
        let hash_of = |tokens: &Tokens<C>| tokens[0].cell.hash;
        match self.0.entry(cell.hash, |tokens| *name_of(tokens) == cell.name, hash_of) {
            Slot::Occupied(mut tokens) => tokens.get_mut().push(entry),
            Slot::Vacant(free) => drop(free.insert(SmallVec::from_buf([entry]))),
        }
    }

    fn remove(&mut self, cell: &Arc<TokenCell>) -> Option<Box<Entry<C>>> {
        let found = self.0.find_entry(cell.hash, |tokens| *name_of(tokens) == cell.name);
        let mut tokens = found.ok()?;
        let at = tokens.get().iter().position(|entry| Arc::ptr_eq(&entry.cell, cell))?;
        let entry = tokens.get_mut().remove(at);
        if tokens.get().is_empty() {
            tokens.remove();
        }
        Some(entry)
    }
}

/// The surroundings of the tokens: time, chance, the timer.
pub(crate) trait Around {
    fn now(&self) -> Moment;
    /// Between 0 and 1.
    fn random(&mut self) -> f64;
    fn new_token(&mut self) -> Token;
    fn new_id(&mut self) -> u64;
    fn setting(&self) -> Setting;
    fn is_closing(&self) -> bool;
    /// So many tokens more, or fewer, have to be given back: the client lives on until there is none.
    fn owes(&mut self, tokens: isize);
    /// Sets the timer for a token, instead of the moment it was set for before.
    fn wake_at(&mut self, cell: &Arc<TokenCell>, at: Moment);
}

/// An effect of a decision in a shard. Effects are carried out in the order of the decisions, once the lock is free.
pub(crate) enum Effect<C: Caller> {
    Send(Arc<TokenCell>, Send),
    /// Releases a token that is not known, for a grant that came after its end.
    ReleaseUnknown(Name, Token),
    Withdraw(Arc<TokenCell>),
    Report(Arc<TokenCell>, Report, Option<C::Holder>),
}

/// News for a caller. They are told in any order.
pub(crate) enum Tell<C: Caller> {
    /// It holds the lease of this token, with this fence.
    Granted(C, Arc<TokenCell>, Fence),
    Busy(C, crate::store::Standing),
    Failed(C, Error),
    /// The name is not free: it has to wait.
    NotFree(C::Pending),
    Released(C::Releaser, Result<Release, Error>),
    /// The lease is over: its listeners are notified.
    Over(Arc<Notify>),
    /// A caller that stopped waiting is dropped.
    LetGo(C),
    /// A token that is forgotten is dropped, with what is kept of its holder.
    Forgotten(Box<Entry<C>>),
}

/// One visit to a shard: what happens, and what follows from it.
pub(crate) struct Visit<'a, C: Caller> {
    pub(crate) names: &'a mut Names<C>,
    pub(crate) around: &'a mut dyn Around,
    pub(crate) effects: SmallVec<[Effect<C>; 2]>,
    pub(crate) tells: SmallVec<[Tell<C>; 1]>,
}

impl<'a, C: Caller> Visit<'a, C> {
    pub(crate) fn new(names: &'a mut Names<C>, around: &'a mut dyn Around) -> Self {
        Self { names, around, effects: SmallVec::new(), tells: SmallVec::new() }
    }

    /// Asks with a new token for these callers. `after`: a token before this one that they waited with, and whether they
    /// have stood in line.
    pub(crate) fn enter(
        &mut self,
        (hash, name): (u64, &Name),
        spec: Spec,
        callers: VecDeque<C>,
        after: Option<(&Token, bool)>,
    ) {
        let fresh = self.around.new_token();
        let token = after.map_or(fresh.clone(), |(dead, _)| evidence::token_after(dead, fresh));
        let cell = TokenCell::new(self.around.new_id(), hash, name.clone(), token, spec);
        let in_line = after.is_some_and(|(_, in_line)| in_line);
        self.begin(Arc::new(cell), |at| Acquisition::new(callers, in_line, at));
    }

    /// Takes in a lease that is held already, from a handle.
    pub(crate) fn attach(&mut self, cell: Arc<TokenCell>, caller: C, grant: &Grant, sent: Moment) {
        self.begin(cell, |at| Acquisition::attached(caller, grant, sent, at));
    }

    fn begin(&mut self, cell: Arc<TokenCell>, make: impl FnOnce(&mut At<'_, C>) -> Acquisition<C>) {
        let mut actions = Actions::new();
        let acquisition = make(&mut at(self.around, &cell.spec, &mut actions));
        self.names.insert(Box::new(Entry { cell: cell.clone(), acquisition, holder: None }));
        self.apply(&cell, actions);
    }

    /// Something happened to a token. Nothing follows if it is not known any more.
    pub(crate) fn on(&mut self, cell: &Arc<TokenCell>, event: Event<C>) {
        let Some(entry) = self.names.find(cell) else { return };
        let mut actions = Actions::new();
        let owed = entry.acquisition.is_releasing();
        entry.acquisition.on(event, &mut at(self.around, &cell.spec, &mut actions));
        match (owed, entry.acquisition.is_releasing()) {
            (false, true) => self.around.owes(1),
            (true, false) => self.around.owes(-1),
            _ => {}
        }
        self.apply(cell, actions);
    }

    /// The store answered an operation of a token.
    pub(crate) fn answered(
        &mut self,
        cell: &Arc<TokenCell>,
        send: Send,
        sent: Moment,
        answer: Answer,
    ) {
        let is_known = self.names.find(cell).is_some();
        match send {
            Send::Renew => self.on(cell, Event::Renewed { sent, answer }),
            Send::Ask { .. } | Send::Release { .. } if is_known => {
                self.on(cell, Event::Answered { sent, answer });
            }
            // What is granted to a token that is not known any more goes back.
            Send::Ask { .. } if answer.is_ok() => self.release_unknown(&cell.name, &cell.token),
            Send::Ask { .. } | Send::Release { .. } => {}
        }
    }

    /// The store pushed a grant.
    pub(crate) fn pushed(&mut self, (hash, name): (u64, &Name), token: &Token, grant: Grant) {
        let known = self.names.on(hash, name).iter().rev().find(|entry| entry.cell.token == *token);
        match known.map(|entry| entry.cell.clone()) {
            Some(cell) => self.on(&cell, Event::Pushed(grant)),
            None => self.release_unknown(name, token),
        }
    }

    fn release_unknown(&mut self, name: &Name, token: &Token) {
        self.effects.push(Effect::ReleaseUnknown(name.clone(), token.clone()));
    }

    fn apply(&mut self, cell: &Arc<TokenCell>, actions: Actions<C>) {
        let mut wakes_at = None;
        for action in actions {
            match action {
                Action::Send(send) => self.effects.push(Effect::Send(cell.clone(), send)),
                Action::Withdraw => self.effects.push(Effect::Withdraw(cell.clone())),
                Action::Report(report) => self.report(cell, report),
                Action::WakeAt(at) => wakes_at = Some(at),
                Action::Tell(caller, outcome) => self.tell(cell, caller, outcome),
                Action::TellReleaser(releaser, outcome) => {
                    self.tells.push(Tell::Released(releaser, outcome));
                }
                Action::LetGo(caller) => self.tells.push(Tell::LetGo(caller)),
                Action::NotFree => self.not_free(cell),
                Action::Extend(deadline) => cell.set_deadline(deadline),
                Action::End(reason) => self.tells.extend(cell.end(reason).map(Tell::Over)),
                Action::Succeed { callers, in_line } => self.succeed(cell, callers, in_line),
                Action::Forget => {
                    self.tells.extend(self.names.remove(cell).map(Tell::Forgotten));
                    wakes_at = Some(Moment::NEVER);
                }
            }
        }
        if let Some(at) = wakes_at {
            self.around.wake_at(cell, at);
        }
    }

    fn tell(&mut self, cell: &Arc<TokenCell>, mut caller: C, outcome: Outcome) {
        self.tells.push(match outcome {
            Outcome::Granted(fence) => {
                if let Some(entry) = self.names.find(cell) {
                    entry.holder = caller.holder();
                    let slot = entry.acquisition.held().and_then(Held::slot);
                    cell.set_holder(fence, slot, self.around.now());
                }
                Tell::Granted(caller, cell.clone(), fence)
            }
            Outcome::Busy(standing) => Tell::Busy(caller, standing),
            Outcome::Failed(error) => Tell::Failed(caller, error),
        });
    }

    fn not_free(&mut self, cell: &Arc<TokenCell>) {
        let Some(entry) = self.names.find(cell) else { return };
        let callers = entry.acquisition.callers_mut().iter_mut();
        self.tells.extend(callers.filter_map(Caller::begins_to_wait).map(Tell::NotFree));
    }

    fn report(&mut self, cell: &Arc<TokenCell>, report: Report) {
        let holder = self.names.find(cell).and_then(|entry| entry.holder.clone());
        self.effects.push(Effect::Report(cell.clone(), report, holder));
    }

    /// The callers that are left ask with a new token, as the first of them wants to hold the lease.
    fn succeed(&mut self, old: &Arc<TokenCell>, callers: VecDeque<C>, in_line: bool) {
        let spec =
            callers.front().expect("BUG: a token without callers has no successor").spec().clone();
        self.enter((old.hash, &old.name), spec, callers, Some((&old.token, in_line)));
    }

    /// Adds a caller to a token that this process has on the name, if there is one to be joined.
    pub(crate) fn join(&mut self, (hash, name): (u64, &Name), caller: C) -> Result<(), C> {
        let setting = self.around.setting();
        let mut tokens = self.names.on(hash, name).iter();
        let open = tokens.find(|entry| entry.acquisition.is_open(&entry.cell.spec, setting));
        let Some(cell) = open.map(|entry| entry.cell.clone()) else { return Err(caller) };
        self.on(&cell, Event::Joined(caller));
        Ok(())
    }
}

fn at<'a, C: Caller>(
    around: &'a mut dyn Around,
    spec: &'a Spec,
    actions: &'a mut Actions<C>,
) -> At<'a, C> {
    let (now, setting, is_closing) = (around.now(), around.setting(), around.is_closing());
    At { now, spec, setting, is_closing, around, actions }
}
