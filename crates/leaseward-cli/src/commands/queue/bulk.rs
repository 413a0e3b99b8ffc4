//! How far something is that is done to many jobs: a bar on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::printer::Printer;

/// Drawn on stderr if somebody watches; leaves no trace.
pub(super) struct Bar(Option<ProgressBar>);

impl Bar {
    /// Of a known number of jobs.
    pub(super) fn of(total: u64, what: &'static str, printer: Printer) -> Self {
        let template = "{msg} {wide_bar:.cyan} {human_pos}/{human_len} {per_sec:.dim} {eta:.dim}";
        Self::new(Some(total), what, template, printer)
    }

    /// Of as many as there will be.
    pub(super) fn counting(what: &'static str, printer: Printer) -> Self {
        Self::new(None, what, "{spinner:.cyan} {human_pos} {msg} {per_sec:.dim}", printer)
    }

    fn new(total: Option<u64>, what: &'static str, template: &str, printer: Printer) -> Self {
        if !printer.watched() {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Self(Some(bar))
    }

    pub(super) fn at(&self, position: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(position);
        }
    }

    pub(super) fn step(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
