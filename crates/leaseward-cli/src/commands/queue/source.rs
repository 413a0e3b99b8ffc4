//! Lines of stdin, read on a thread of their own: a terminal or a pipe cannot be waited for in any other way.

use std::io::{self, BufRead};

use tokio::sync::mpsc;

use crate::failure::Failure;

/// How many lines are taken together at most.
pub(super) const BATCH: usize = 1_000;

/// Lines as they come in; empty ones are skipped.
pub(super) fn lines() -> mpsc::Receiver<Result<String, Failure>> {
    let (sender, receiver) = mpsc::channel(4 * BATCH);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let line = line.map_err(|error| Failure::system("cannot read stdin", &error));
            let is_empty = line.as_ref().is_ok_and(|line| line.trim().is_empty());
            if !is_empty && sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
