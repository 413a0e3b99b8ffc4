//! One suite of promises, run over every store.
