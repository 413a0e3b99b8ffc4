//! Everything that may happen next.

use leaseward::stores::redlock::quorum::Quorum;
use smallvec::smallvec;
use stateright::{Model, Property};

use super::{
    bounds::{Bounds, Lease, Network, TICK_US, clock_us},
    client::first_token,
    node::Circumstances,
    rules::{Rights, Rules, Without},
    state::{Client, Column, Doing, Phase, Slot, State, Wire, Wrong},
};

/// The model, within bounds, perhaps without one of the checks.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) bounds: Bounds,
    pub(crate) rules: Rules,
    pub(crate) rights: Rights,
}

/// Something that happens. Nodes and clients go by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time goes on.
    Tick,
    /// A client asks with a new token.
    Begin(usize),
    /// A client asks again with the token that was refused.
    Again(usize),
    /// A client gives a lease back, or the attempts to get one.
    Release(usize),
    /// A holder stops without a word.
    Stop(usize),
    /// A holder renews.
    Renew(usize),
    /// A holder asks for what it holds.
    Repeat(usize),
    /// A holder puts its lease to all nodes.
    Put(usize),
    /// A request, by its place in the line, is carried out.
    Deliver {
        /// At which node.
        node: usize,
        /// Whose.
        client: usize,
        /// Which.
        place: usize,
        /// What else happens to it.
        fate: Fate,
    },
    /// A client decides by the answers it has.
    Decide(usize),
    /// A connection breaks, and what was sent over it is lost.
    Cut {
        /// To which node.
        node: usize,
        /// Of which client.
        client: usize,
    },
    /// A lock ends at a node.
    Expire(usize),
    /// A record has been kept for long enough.
    Forget(usize),
    /// A node restarts without its memory.
    Restart(usize),
}

/// What happens to a request besides being carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It is answered.
    Answered,
    /// The answer is lost.
    Lost,
    /// It is answered, and comes again.
    Again,
}

impl World {
    /// All checks in place.
    pub fn new(bounds: Bounds) -> Self {
        let rules = Rules { without: None, quorum: Quorum::of(bounds.nodes) };
        let rights = Rights::new(rules, &bounds);
        Self { bounds, rules, rights }
    }

    /// The same without one of them.
    #[must_use]
    pub fn without(mut self, check: Without) -> Self {
        self.rules.without = Some(check);
        self.rights = Rights::new(self.rules, &self.bounds);
        self
    }

    pub(crate) fn is_in_order(&self) -> bool {
        self.bounds.network == Network::Connections && self.rules.without != Some(Without::InOrder)
    }

    /// Whether leases end at any moment, so that whatever else ends them adds nothing.
    pub(crate) fn ends_at_any_time(&self) -> bool {
        self.bounds.lease == Lease::AnyTime
    }

    pub(crate) fn right(&self, state: &State, begun: Option<u8>) -> Option<u64> {
        self.rights.at(begun, state.now)
    }

    fn of_client(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let client = &state.clients[at];
        if self.ends_at_any_time() && client.renewals > 0 && state.block_of(client.token).is_some()
        {
            actions.push(Action::Put(at));
        }
        match client.phase {
            Phase::Idle if client.acquisitions > 0 => actions.push(Action::Begin(at)),
            Phase::Idle => {}
            Phase::Refused(_) => {
                if client.asks > 0 {
                    actions.push(Action::Again(at));
                }
                actions.push(Action::Release(at));
            }
            Phase::Holding { doing: Doing::Nothing, .. } => {
                actions.push(Action::Release(at));
                actions.push(Action::Stop(at));
                if client.renewals > 0 {
                    actions.push(Action::Renew(at));
                }
                if client.repeats > 0 {
                    actions.push(Action::Repeat(at));
                }
            }
            Phase::Asking(_) | Phase::Holding { .. } | Phase::Releasing => {
                actions.push(Action::Decide(at));
            }
        }
    }

    fn of_wire(
        &self,
        state: &State,
        (node, client): (usize, usize),
        wire: &Wire,
        actions: &mut Vec<Action>,
    ) {
        let places = if self.is_in_order() { 0..1 } else { 0..wire.requests.len() };
        for (place, request) in wire.requests.iter().enumerate().take(places.end) {
            let mut deliver = |fate| actions.push(Action::Deliver { node, client, place, fate });
            deliver(Fate::Answered);
            if request.is_awaited {
                deliver(Fate::Lost);
            }
            if state.twice > 0 {
                deliver(Fate::Again);
            }
        }
        if state.cuts > 0 && !wire.requests.is_empty() {
            actions.push(Action::Cut { node, client });
        }
    }

    fn of_node(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        let column = &state.columns[node];
        if column.lock.is_some() && self.bounds.lease == Lease::AnyTime {
            actions.push(Action::Expire(node));
        }
        // The script keeps it until the clock has passed it by the allowance, and longer than the lock.
        if column.lock.is_none()
            && column.record.is_some_and(|end| clock_us(state.now) >= end + TICK_US)
        {
            actions.push(Action::Forget(node));
        }
        if state.restarts > 0 {
            actions.push(Action::Restart(node));
        }
    }

    fn tick(&self, state: &mut State) {
        state.now += 1;
        for column in &mut state.columns {
            if column.lock.is_some_and(|lock| lock.until <= state.now) {
                column.unlock(self.rules);
            }
        }
        for at in 0..state.clients.len() {
            if matches!(state.clients[at].phase, Phase::Holding { until, .. } if until <= state.now)
            {
                self.end_round(state, at);
                state.clients[at].phase = Phase::Idle;
            }
        }
    }

    fn deliver(&self, state: &mut State, node: usize, at: usize, place: usize, fate: Fate) {
        let now = state.now;
        // A request does not survive the connection to a node that restarts: the floor is still what it was sent with.
        let floor = self.right(state, state.columns[node].begun).unwrap_or(0);
        let with = Circumstances { rules: self.rules, now, ttl: self.bounds.lease.ttl(), floor };
        let column = &mut state.columns[node];
        let request = column.wires[at].requests[place].clone();
        if fate == Fate::Again {
            state.twice -= 1;
            // The answer to the one that comes again is nobody's.
            column.wires[at].requests[place].is_awaited = false;
            column.wires[at].requests.sort_unstable();
        } else {
            column.wires[at].requests.remove(place);
        }
        let answer = column.carry_out(request.token, &request.operation, with);
        if let (Some(answer), true) = (answer, request.is_awaited && fate != Fate::Lost) {
            column.wires[at].slot = Slot::Answered(answer);
        }
    }

    fn restart(&self, state: &mut State, node: usize) {
        state.restarts -= 1;
        let column = &mut state.columns[node];
        (column.lock, column.record) = (None, self.bounds.earlier());
        column.begun = Some(state.now);
        for wire in &mut column.wires {
            wire.requests.clear();
        }
    }

    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => self.tick(state),
            Action::Begin(at) => self.begin(state, at),
            Action::Again(at) => {
                let Phase::Refused(undo) = state.clients[at].phase.clone() else { return };
                self.ask(state, at, 0, undo, state.now);
            }
            Action::Release(at) => self.release(state, at),
            Action::Stop(at) => state.clients[at].phase = Phase::Idle,
            Action::Renew(at) => self.renew(state, at),
            Action::Repeat(at) => self.ask_again(state, at),
            Action::Put(at) => self.put(state, at),
            Action::Deliver { node, client, place, fate } => {
                self.deliver(state, node, client, place, fate);
            }
            Action::Decide(at) => self.decide(state, at),
            Action::Cut { node, client } => {
                state.cuts -= 1;
                state.columns[node].wires[client].requests.clear();
            }
            Action::Expire(node) => state.columns[node].unlock(self.rules),
            Action::Forget(node) => state.columns[node].record = None,
            Action::Restart(node) => self.restart(state, node),
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let bounds = &self.bounds;
        let client = |(at, bounds): (usize, &super::ClientBounds)| Client {
            phase: Phase::Idle,
            token: first_token(at),
            above: 0,
            proposed: 0,
            acquisitions: bounds.acquisitions,
            asks: 0,
            renewals: 0,
            repeats: 0,
        };
        let wires = smallvec![Wire::default(); bounds.clients.len()];
        let column = Column { lock: None, record: bounds.earlier(), begun: None, wires };
        vec![State {
            now: 0,
            columns: smallvec![column; bounds.nodes],
            clients: bounds.clients.iter().enumerate().map(client).collect(),
            complete: Vec::new(),
            cuts: bounds.cuts,
            restarts: bounds.restarts,
            twice: match bounds.network {
                Network::Connections => 0,
                Network::Wild(twice) => twice,
            },
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let done = state.clients.iter().filter(|client| client.is_done()).count();
        if state.wrong.is_some() || (!self.ends_at_any_time() && done + 1 >= state.clients.len()) {
            // It has been seen; or whoever is left cannot meet anybody.
            return;
        }
        if state.now < self.bounds.ticks {
            actions.push(Action::Tick);
        }
        for at in 0..state.clients.len() {
            self.of_client(state, at, actions);
        }
        for (node, column) in state.columns.iter().enumerate() {
            // Nodes that are alike would do alike.
            if node > 0 && state.columns[node - 1] == *column {
                continue;
            }
            for (client, wire) in column.wires.iter().enumerate() {
                self.of_wire(state, (node, client), wire, actions);
            }
            self.of_node(state, node, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        self.act(&mut state, action);
        self.drop_spent(&mut state);
        state.columns.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        if !self.ends_at_any_time() {
            return vec![
                Property::always("one holder at a time", |_, state: &State| {
                    (0..state.clients.len()).filter(|at| state.holds(*at)).count() <= 1
                }),
                // Else the bounds leave no room for anything to go wrong.
                Property::sometimes("the first client holds", |_, state: &State| state.holds(0)),
                Property::sometimes("the last client holds", |_, state: &State| {
                    state.holds(state.clients.len() - 1)
                }),
            ];
        }
        vec![
            Property::always("no fence is given twice", |_, state: &State| {
                state.wrong != Some(Wrong::Twice)
            }),
            Property::always("a later acquisition has the larger fence", |_, state: &State| {
                state.wrong != Some(Wrong::Order)
            }),
            Property::sometimes("somebody gets a fence", |_, state: &State| {
                !state.complete.is_empty()
            }),
        ]
    }
}
