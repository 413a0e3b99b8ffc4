//! What a case is.

use leaseward::clock::BoxFuture;

use crate::{Fixture, Need};

/// One promise, shown.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name within its group.
    pub name: &'static str,
    /// What a store must have for the promise to apply to it.
    pub needs: &'static [Need],
    /// How time passes while it runs.
    pub pace: Pace,
    /// Shows it, or panics.
    pub run: for<'a> fn(&'a Fixture) -> BoxFuture<'a, ()>,
}

/// How time passes in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// By itself, on several threads.
    Real,
    /// On one thread, and virtually where the store can: the case is about what time does, not about who is faster.
    Timed,
}

/// Cases about one thing.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What they are about.
    pub name: &'static str,
    /// The cases.
    pub cases: &'static [Case],
}

impl Case {
    /// The same case at another pace.
    #[must_use]
    pub const fn timed(mut self) -> Self {
        self.pace = Pace::Timed;
        self
    }
}

/// A case from the function of the same name, and what it needs.
macro_rules! case {
    ($name:ident $(, $need:expr)*) => {
        $crate::Case {
            name: stringify!($name),
            needs: &[$($need),*],
            pace: $crate::Pace::Real,
            run: |fixture| Box::pin($name(fixture)),
        }
    };
}
pub(crate) use case;
