//! What a person sees while a claim waits: who holds the name, for how long, and who is ahead.

use std::{convert::Infallible, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leaseward::{
    Locks,
    store::{LockView, Query},
};

use crate::{claim::Claim, known, printer::Printer, units};

/// A wait shorter than this is not worth drawing.
const BEFORE_SPINNER: Duration = Duration::from_millis(300);
/// A wait shorter than this is not worth a line in a log.
const BEFORE_LINE: Duration = Duration::from_secs(1);
/// How often the holder is looked up again.
const REFRESH: Duration = Duration::from_secs(1);
/// How often the spinner turns.
const TURN: Duration = Duration::from_millis(100);

/// Shows the wait until it is dropped.
pub(crate) async fn shown(claim: &Claim, locks: &Locks, printer: Printer) -> Infallible {
    if !printer.watched() {
        tokio::time::sleep(BEFORE_LINE).await;
        printer.say(&sentence(claim, locks).await);
        return std::future::pending().await;
    }
    tokio::time::sleep(BEFORE_SPINNER).await;
    let spinner = Spinner::new();
    loop {
        spinner.0.set_message(sentence(claim, locks).await);
        tokio::time::sleep(REFRESH).await;
    }
}

/// A spinner that leaves no trace.
struct Spinner(ProgressBar);

impl Spinner {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner:.cyan} {wide_msg} {elapsed:.dim}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(TURN);
        Self(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Whom we wait for, if the store can tell.
async fn sentence(claim: &Claim, locks: &Locks) -> String {
    for name in &claim.names {
        let view = locks.inspect(Query::Name(name.clone())).await;
        if let Ok(views) = view
            && let Some(text) = views.first().and_then(described)
        {
            return text;
        }
    }
    format!("waiting for {}", claim.shown())
}

fn described(view: &LockView) -> Option<String> {
    let holder = view.holders.first()?;
    let others = match view.holders.len() {
        1 => String::new(),
        more => format!(" and {} more", more - 1),
    };
    let since = known::held_for(holder).map(|long| format!(" for {}", units::shown(long)));
    let since = since.unwrap_or_default();
    let ending = if holder.ending { ", renewals refused" } else { "" };
    let queue = match view.waiters.len() {
        0 | 1 => String::new(),
        waiting => format!(", {waiting} waiting"),
    };
    Some(format!(
        "waiting for `{}`: held by {}{others}{since}{ending}{queue}",
        view.name, holder.who
    ))
}
