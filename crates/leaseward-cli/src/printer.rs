//! The one place that writes: data to stdout, everything else to stderr.

use std::{
    env,
    io::{self, IsTerminal, Write},
};

use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};
use rustix::{process::getpgrp, termios::tcgetpgrp};
use serde::Serialize;

use crate::{exit::Exit, failure::Failure};

/// Knows what the two streams are and writes to them accordingly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    out_terminal: bool,
    err_terminal: bool,
    colour: bool,
}

/// What a word on the terminal means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tone {
    Bad,
    Good,
    Careful,
    Accent,
    Faint,
    Strong,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Bad => "1;31",
            Self::Good => "32",
            Self::Careful => "33",
            Self::Accent => "36",
            Self::Faint => "2",
            Self::Strong => "1",
        }
    }
}

impl Printer {
    /// Looks at the streams and at `NO_COLOR`.
    pub(crate) fn new() -> Self {
        let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            out_terminal: io::stdout().is_terminal(),
            err_terminal: io::stderr().is_terminal(),
            colour: !no_colour,
        }
    }

    /// Whether somebody watches stderr and it is ours to draw on: a job in the background would draw over the work of
    /// another.
    pub(crate) fn watched(self) -> bool {
        self.err_terminal && tcgetpgrp(io::stderr()).is_ok_and(|foreground| foreground == getpgrp())
    }

    /// Whether somebody can be asked: both question and answer go through a terminal.
    pub(crate) fn can_ask(self) -> bool {
        self.err_terminal && io::stdin().is_terminal()
    }

    /// A word in its tone, for stderr.
    pub(crate) fn tone(self, tone: Tone, text: &str) -> String {
        painted(self.colour && self.err_terminal, tone, text)
    }

    /// A word in its tone, for stdout.
    pub(crate) fn out_tone(self, tone: Tone, text: &str) -> String {
        painted(self.colour && self.out_terminal, tone, text)
    }

    /// Says why a command ended without doing what was asked.
    pub(crate) fn failure(self, failure: &Failure) {
        if failure.message.is_empty() {
            return;
        }
        self.say(&format!("{}: {}", self.tone(Tone::Bad, "error"), failure.message));
        if let Some(hint) = &failure.hint {
            self.hint(hint);
        }
    }

    /// Says something that may need attention.
    pub(crate) fn warning(self, text: &str) {
        self.say(&format!("{}: {text}", self.tone(Tone::Careful, "warning")));
    }

    /// Says what to do next.
    pub(crate) fn hint(self, text: &str) {
        self.say(&format!("{}: {text}", self.tone(Tone::Accent, "hint")));
    }

    /// One line to stderr. Nobody reading it is not a reason to fail.
    pub(crate) fn say(self, line: &str) {
        let _ = writeln!(io::stderr().lock(), "{line}");
    }

    /// One line of data to stdout.
    pub(crate) fn line(self, line: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| unwritten(&error))
    }

    /// Data for programs: one line of JSON.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(value)
            .map_err(|error| Failure::system("cannot write JSON", &error))?;
        self.line(&line)
    }

    /// A table for people; off a terminal plain columns, never cut or wrapped.
    pub(crate) fn table(self, head: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
        let mut table = self.columns();
        table.set_header(head.iter().map(|text| Cell::new(text).add_attribute(Attribute::Bold)));
        table.add_rows(rows);
        self.drawn(table)
    }

    /// Labels and what belongs to each, for people; a label may be empty where the one above goes on.
    pub(crate) fn pairs(self, rows: &[(&str, String)]) -> Result<(), Failure> {
        let mut table = self.columns();
        for (label, text) in rows {
            table.add_row([Cell::new(label).add_attribute(Attribute::Dim), Cell::new(text)]);
        }
        self.drawn(table)
    }

    fn columns(self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        // A terminal that says it has no columns, as those of `script` and `docker exec -t` do, does not know.
        let has_width = self.out_terminal && table.width().is_some_and(|width| width > 0);
        table.set_content_arrangement(match has_width {
            true => ContentArrangement::Dynamic,
            false => ContentArrangement::Disabled,
        });
        if !self.out_terminal {
            table.force_no_tty();
        }
        if !self.colour {
            // Without colour it is still a terminal, with a width.
            if let Some(width) = table.width() {
                table.set_width(width);
            }
            table.force_no_tty();
        }
        table
    }

    fn drawn(self, mut table: Table) -> Result<(), Failure> {
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let text: Vec<String> =
            table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
        self.line(&text.join("\n"))
    }
}

fn painted(colour: bool, tone: Tone, text: &str) -> String {
    if colour { format!("\x1b[{}m{text}\x1b[0m", tone.code()) } else { text.to_owned() }
}

/// A reader that went away, as in `leaseward ls | head -1`, is no news to anybody.
fn unwritten(error: &io::Error) -> Failure {
    const SIGPIPE: u8 = 13;
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(Exit::Signal(SIGPIPE), ""),
        _ => Failure::system("cannot write to stdout", error),
    }
}
