//! The stage: tells what happens, remembers when, and draws the timeline at the end.

use std::time::{Duration, Instant};

use crate::{
    failure::Failure,
    printer::{Printer, Tone},
};

/// The width of a timeline, in characters: fits a terminal of 80 columns with the actors' names.
const WIDTH: usize = 60;

/// What an actor does over a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Nothing,
    Waiting,
    Holding,
    /// Believes to hold, but the lease has ended.
    Deluded,
    /// Gone.
    Dead,
}

impl Doing {
    const fn mark(self) -> char {
        match self {
            Self::Nothing => ' ',
            Self::Waiting => '·',
            Self::Holding => '█',
            Self::Deluded => '░',
            Self::Dead => '✗',
        }
    }
}

/// One scene being played.
#[derive(Debug)]
pub(super) struct Stage {
    printer: Printer,
    start: Instant,
    lanes: Vec<Lane>,
    holds: bool,
}

#[derive(Debug)]
struct Lane {
    actor: &'static str,
    changes: Vec<(Duration, Doing)>,
}

impl Stage {
    /// Opens a scene.
    pub(super) fn open(title: &str, about: &str, printer: Printer) -> Result<Self, Failure> {
        let line = "─".repeat((WIDTH + 12).saturating_sub(title.chars().count() + 4));
        printer.line("")?;
        printer.line(&printer.out_tone(Tone::Strong, &format!("── {title} {line}")))?;
        for text in about.lines() {
            printer.line(&printer.out_tone(Tone::Faint, &format!("   {text}")))?;
        }
        printer.line("")?;
        Ok(Self { printer, start: Instant::now(), lanes: Vec::new(), holds: true })
    }

    /// Tells what an actor does or sees.
    pub(super) fn tell(&self, actor: &str, text: &str) -> Result<(), Failure> {
        let at = format!("{:>6.2}s", self.start.elapsed().as_secs_f64());
        let at = self.printer.out_tone(Tone::Faint, &at);
        let actor = self.printer.out_tone(Tone::Accent, &format!("{actor:<6}"));
        self.printer.line(&format!("  {at}  {actor}  {text}"))
    }

    /// From now on an actor does something else, and this is said.
    pub(super) fn turn(
        &mut self,
        actor: &'static str,
        doing: Doing,
        text: &str,
    ) -> Result<(), Failure> {
        self.mark(actor, doing);
        self.tell(actor, text)
    }

    /// From now on an actor does something else.
    pub(super) fn mark(&mut self, actor: &'static str, doing: Doing) {
        let at = self.start.elapsed();
        match self.lanes.iter_mut().find(|lane| lane.actor == actor) {
            Some(lane) => lane.changes.push((at, doing)),
            None => self.lanes.push(Lane { actor, changes: vec![(at, doing)] }),
        }
    }

    /// Checks a claim and says whether it holds.
    pub(super) fn claim(&mut self, claim: &str, holds: bool) -> Result<(), Failure> {
        self.holds &= holds;
        let (sign, tone) = if holds { ("✓", Tone::Good) } else { ("✗", Tone::Bad) };
        self.printer.line(&format!("   {}  {claim}", self.printer.out_tone(tone, sign)))
    }

    /// Draws the timeline; answers whether every claim held.
    pub(super) fn close(self) -> Result<bool, Failure> {
        let length = self.start.elapsed();
        self.printer.line("")?;
        for lane in &self.lanes {
            let drawn = lane.drawn(length);
            let actor = self.printer.out_tone(Tone::Accent, &format!("{:<6}", lane.actor));
            self.printer.line(format!("   {actor} ▏{drawn}").trim_end())?;
        }
        let legend = "█ holds   · waits   ░ believes to hold   ✗ dead";
        let scale = format!("          0s{:>width$.1}s", length.as_secs_f64(), width = WIDTH - 3);
        self.printer.line(&self.printer.out_tone(Tone::Faint, &scale))?;
        self.printer.line(&self.printer.out_tone(Tone::Faint, &format!("          {legend}")))?;
        Ok(self.holds)
    }
}

impl Lane {
    /// The lane as characters: each shows the last thing begun before its stretch of time ends.
    fn drawn(&self, length: Duration) -> String {
        let step = length / u32::try_from(WIDTH).unwrap_or(u32::MAX);
        let mut died = false;
        let cells = (1..=u32::try_from(WIDTH).unwrap_or(0)).map(|cell| {
            let doing = self
                .changes
                .iter()
                .take_while(|(at, _)| *at < step * cell)
                .last()
                .map_or(Doing::Nothing, |(_, doing)| *doing);
            // Death is a moment; what follows is nothing.
            let dead = doing == Doing::Dead;
            let shown = if dead && died { Doing::Nothing } else { doing };
            died = dead;
            shown.mark()
        });
        cells.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_shows_what_was_done_when() {
        let at = Duration::from_millis;
        let lane = Lane {
            actor: "a",
            changes: vec![
                (at(0), Doing::Waiting),
                (at(200), Doing::Holding),
                (at(400), Doing::Dead),
            ],
        };
        let drawn: String = lane.drawn(at(600));
        assert_eq!(drawn.chars().filter(|mark| *mark == '·').count(), 20);
        assert_eq!(drawn.chars().filter(|mark| *mark == '█').count(), 20);
        assert_eq!(drawn.chars().filter(|mark| *mark == '✗').count(), 1);
        assert_eq!(drawn.chars().count(), WIDTH);
    }
}
