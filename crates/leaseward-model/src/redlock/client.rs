//! A client's part: what it sends, and when.

use leaseward::stores::redlock::ballot;

use super::{
    bounds::clock_us,
    state::{
        Answer, Attempt, Block, Client, Doing, Firsts, Operation, Phase, Request, Slot, State,
        Token, Wire,
    },
    world::World,
};

/// Tokens of a client are numbered from here.
pub(crate) fn first_token(client: usize) -> Token {
    u8::try_from(client * 16).unwrap_or(u8::MAX)
}

impl World {
    /// A ballot above a number, and above the floors of all nodes that vote.
    fn propose(&self, state: &mut State, at: usize, above: u64) -> Block {
        let bounds = &self.bounds.clients[at];
        let floors = state.columns.iter().filter_map(|column| self.right(state, column.begun));
        let above = floors.filter(|_| bounds.knows_floors).max().unwrap_or(0).max(above);
        let clock = clock_us(state.now).saturating_add_signed(bounds.offset_us);
        let nodes_ahead = bounds.knows_clocks.then_some(-bounds.offset_us);
        // Between two attempts of a client its clock goes on, if only by a microsecond.
        let by_clock = ballot::propose(clock, nodes_ahead, state.clients[at].proposed);
        state.clients[at].proposed = by_clock;
        let first = by_clock.max(above + 1);
        Block { first, last: first + bounds.block - 1 }
    }

    /// A new token, and its first ask.
    pub(crate) fn begin(&self, state: &mut State, at: usize) {
        let bounds = &self.bounds.clients[at];
        let above = state.complete.iter().map(|(block, _)| block.last).max().unwrap_or(0);
        let client = &mut state.clients[at];
        *client = Client {
            token: client.token + 1,
            above,
            acquisitions: client.acquisitions - 1,
            asks: bounds.asks,
            renewals: bounds.renewals,
            repeats: bounds.repeats,
            ..client.clone()
        };
        self.ask(state, at, 0, Firsts::new(), state.now);
    }

    /// Puts an ask to the vote: the first of a token, or one more.
    pub(crate) fn ask(&self, state: &mut State, at: usize, above: u64, undo: Firsts, sent: u8) {
        let block = self.propose(state, at, above);
        state.clients[at].asks -= 1;
        state.clients[at].phase = Phase::Asking(Attempt { block, sent });
        let undo = if self.ends_at_any_time() { Firsts::new() } else { undo };
        self.round(state, at, &Operation::Ask { block, undo });
    }

    /// Asks for what is held, as a request that is repeated for nobody does: whatever is answered, nobody hears it.
    pub(crate) fn ask_again(&self, state: &mut State, at: usize) {
        let block = self.propose(state, at, 0);
        let attempt = Attempt { block, sent: state.now };
        state.clients[at].repeats -= 1;
        self.hold_and(state, at, Doing::Asking(attempt));
        self.round(state, at, &Operation::Ask { block, undo: Firsts::new() });
        for request in state.columns.iter_mut().flat_map(|column| &mut column.wires[at].requests) {
            request.is_awaited = false;
        }
    }

    pub(crate) fn renew(&self, state: &mut State, at: usize) {
        state.clients[at].renewals -= 1;
        self.hold_and(state, at, Doing::Renewing(state.now));
        self.round(state, at, &Operation::Renew);
    }

    /// Puts a lease to all nodes. Its holder puts it only to those that were free when a majority renewed it; more is put
    /// here, so as not to ask who that is where leases end at any time.
    pub(crate) fn put(&self, state: &mut State, at: usize) {
        let token = state.clients[at].token;
        let Some(block) = state.block_of(token) else { return };
        state.clients[at].renewals -= 1;
        let operation = Operation::Heal(block);
        for column in &mut state.columns {
            let request = Request { token, operation: operation.clone(), is_awaited: false };
            self.send(&mut column.wires[at], request);
        }
    }

    /// The token is dead from here on.
    pub(crate) fn release(&self, state: &mut State, at: usize) {
        if self.ends_at_any_time() {
            state.clients[at].phase = Phase::Idle;
            return self.end_round(state, at);
        }
        state.clients[at].phase = Phase::Releasing;
        self.round(state, at, &Operation::Release);
        if !self.bounds.hears_releases {
            self.end_round(state, at);
            state.clients[at].phase = Phase::Idle;
        }
    }

    pub(crate) fn hold_and(&self, state: &mut State, at: usize, now_doing: Doing) {
        if let Phase::Holding { doing, .. } = &mut state.clients[at].phase {
            *doing = now_doing;
        }
    }

    /// Sends to every node that may vote; the others are absent.
    fn round(&self, state: &mut State, at: usize, operation: &Operation) {
        self.end_round(state, at);
        let (now, token) = (state.now, state.clients[at].token);
        for column in &mut state.columns {
            let right = self.rights.at(column.begun, now);
            let wire = &mut column.wires[at];
            if right.is_none() {
                wire.slot = Slot::Answered(Answer::Absent);
                continue;
            }
            wire.slot = Slot::Open;
            self.send(wire, Request { token, operation: operation.clone(), is_awaited: true });
        }
    }

    /// Sends something whose answer nobody waits for to the nodes that take part in the present round.
    pub(crate) fn tell(&self, state: &mut State, at: usize, operation: &Operation) {
        if self.ends_at_any_time() {
            return;
        }
        let token = state.clients[at].token;
        for column in &mut state.columns {
            let wire = &mut column.wires[at];
            if !matches!(wire.slot, Slot::Idle | Slot::Answered(Answer::Absent)) {
                self.send(wire, Request { token, operation: operation.clone(), is_awaited: false });
            }
        }
    }

    fn send(&self, wire: &mut Wire, request: Request) {
        if wire.requests.len() >= self.bounds.in_flight {
            if self.is_in_order() {
                // Nothing has come through for too long: another connection, and the old one is ended.
                wire.requests.clear();
            } else {
                wire.requests.remove(0);
            }
        }
        wire.requests.push(request);
        if !self.is_in_order() {
            // Where order means nothing, states that differ in it alone are the same.
            wire.requests.sort_unstable();
        }
    }

    /// Nobody waits for answers any longer.
    pub(crate) fn end_round(&self, state: &mut State, at: usize) {
        for column in &mut state.columns {
            let wire = &mut column.wires[at];
            wire.slot = Slot::Idle;
            for request in &mut wire.requests {
                request.is_awaited = false;
            }
            if !self.is_in_order() {
                wire.requests.sort_unstable();
            }
        }
    }
}
