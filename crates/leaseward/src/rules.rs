//! The rules of the protocols, by number, so that each can be taken out to see what it prevents.
//!
//! In a build they are constants. Under test a thread may switch one off; the simulation (`engine::sim`) must then
//! find the counter-example. `docs/protocols.md` says what each rule is. R12 is the protected resource's, R13 is the
//! size of blocks (`engine::acquisition::cohort`), R14 to R16 are Redlock's.

/// A rule that a line of code implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A pushed grant counts only with a fence above an answered ask's, from that ask's sending.
    R1,
    /// An unanswered ask gives no deadline.
    R2,
    /// A start too late to be useful asks; it is not forgotten.
    R3,
    /// An ask by the live owner sets a fresh expiry.
    R4,
    /// A reply after the deadline revives nothing.
    R5,
    /// Sending a release kills the token at once.
    R6,
    /// A token is never used again.
    R7,
    /// A release compares the token.
    R8,
    /// The store records the end of a block.
    R9,
    /// No hand-over past the end of the block.
    R10,
    /// The deadline is checked, and inherited, at each local hand-over.
    R11,
    /// A release waits for the answer to its own token's ask.
    R17,
    /// An unsent ask is withdrawn without a release only if nothing of its token was sent.
    R18,
}

#[cfg(not(test))]
pub(crate) const fn on(_rule: Rule) -> bool {
    true
}

#[cfg(test)]
pub(crate) use switch::{on, without};

#[cfg(test)]
mod switch {
    use std::cell::Cell;

    use super::Rule;

    thread_local!(static OFF: Cell<Option<Rule>> = const { Cell::new(None) });

    pub(crate) fn on(rule: Rule) -> bool {
        OFF.get() != Some(rule)
    }

    /// Runs something on this thread with a rule taken out.
    pub(crate) fn without<T>(rule: Rule, act: impl FnOnce() -> T) -> T {
        struct BackOn;
        impl Drop for BackOn {
            fn drop(&mut self) {
                OFF.set(None);
            }
        }
        OFF.set(Some(rule));
        let _back_on = BackOn;
        act()
    }
}
