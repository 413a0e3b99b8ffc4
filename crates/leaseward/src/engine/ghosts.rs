//! Tokens that were released because something arrived for them after their end.
//!
//! A push or an answer that comes late, while the release of the same token is under way, is answered with another
//! release: nothing may stay behind. If the store carries out that one first, the release somebody waits for is told
//! that the token owns nothing. It is remembered here why, so that its caller hears what is true: it was given back.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::Token;

/// How many are remembered: far more than arrive while one release is under way.
const KEPT: usize = 256;

#[derive(Default)]
pub(crate) struct Ghosts(Mutex<VecDeque<Token>>);

impl Ghosts {
    /// A token is being released for something that arrived late.
    pub(super) fn note(&self, token: &Token) {
        let mut tokens = self.0.lock();
        if tokens.len() == KEPT {
            tokens.pop_front();
        }
        tokens.push_back(token.clone());
    }

    /// Whether one was, of late.
    pub(super) fn have(&self, token: &Token) -> bool {
        self.0.lock().contains(token)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_latest_are_remembered() {
        let ghosts = Ghosts::default();
        let token = |at: usize| Token::new(at as u128, Arc::from("who"));
        (0..=KEPT).for_each(|at| ghosts.note(&token(at)));
        assert!(!ghosts.have(&token(0)) && ghosts.have(&token(1)) && ghosts.have(&token(KEPT)));
    }
}
