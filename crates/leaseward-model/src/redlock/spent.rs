//! Drops requests that can have no effect any longer, so that states that differ in them alone are the same.
//!
//! Nobody waits for their answers. An ask is spent once the node would refuse its ballot: within one life its bar only
//! rises, and requests do not survive the connection to a node that restarts. Whatever else acts on a token's lock is spent
//! if there is none, and none can come before it.

use super::{
    rules::Rules,
    state::{Column, Operation, Request, State, Token},
    world::World,
};

impl World {
    pub(crate) fn drop_spent(&self, state: &mut State) {
        if self.rules.lowers_bars() {
            return;
        }
        let now = state.now;
        let floors: Vec<_> =
            state.columns.iter().map(|column| self.right(state, column.begun)).collect();
        for (column, floor) in state.columns.iter_mut().zip(floors) {
            let bar = self.rules.bar(column.record, now, floor.unwrap_or(0));
            for at in 0..column.wires.len() {
                if self.ends_at_any_time() {
                    let requests = &mut column.wires[at].requests;
                    requests.retain(|request| !is_refused(request, bar, self.rules));
                } else if self.is_in_order() {
                    drop_in_order(column, at, bar, self.rules);
                }
            }
        }
    }
}

/// Whether it is an ask for which nobody waits and that will not be granted.
fn is_refused(request: &Request, bar: u64, rules: Rules) -> bool {
    match request.operation {
        Operation::Ask { block, .. } => !request.is_awaited && !rules.may_grant(block.first, bar),
        _ => false,
    }
}

fn drop_in_order(column: &mut Column, at: usize, bar: u64, rules: Rules) {
    let has = |token: Token| column.lock.is_some_and(|lock| lock.token == token);
    // The tokens that the lock may be of when a request's turn has come.
    let mut may_have: Vec<Token> = Vec::new();
    let requests = std::mem::take(&mut column.wires[at].requests);
    let kept = requests.into_iter().filter(|request| {
        if request.is_awaited || has(request.token) || may_have.contains(&request.token) {
            if matches!(request.operation, Operation::Ask { .. } | Operation::Heal(_)) {
                may_have.push(request.token);
            }
            return true;
        }
        match &request.operation {
            Operation::Heal(_) => {
                may_have.push(request.token);
                true
            }
            Operation::Ask { block, .. } => {
                let is_kept = rules.may_grant(block.first, bar);
                if is_kept {
                    may_have.push(request.token);
                }
                is_kept
            }
            Operation::Undo(_) | Operation::Renew | Operation::Release => false,
        }
    });
    column.wires[at].requests = kept.collect();
}
