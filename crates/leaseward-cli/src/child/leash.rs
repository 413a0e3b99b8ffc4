//! The pipes between wrapper, launcher and watchdog: what is said on them, and how it is read.
//!
//! Lines of text, each far below the size up to which the system keeps writes whole, so that the wrapper and the
//! launcher can write to the same pipe.

use leaseward::clock::Moment;
use rustix::process::Pid;

/// Which lease a command runs under: any number that no other lease of the wrapper has.
pub(super) type LeaseId = u64;

/// Something the watchdog has to know, or tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The lease lasts until then.
    Deadline(LeaseId, Moment),
    /// This group runs under it.
    Group(LeaseId, Pid),
    /// The launcher of this group came too late to start the command.
    Late(Pid),
    /// Nothing is left of this group.
    Left(Pid),
    /// The wrapper sent SIGTERM to its command at that moment.
    Asked(Moment),
    /// The group is gone; there is nothing left to watch.
    Done,
    /// The only word of the watchdog's own: it is about to send a signal to this group.
    Acted(Pid),
}

impl Word {
    pub(super) fn line(self) -> String {
        match self {
            Self::Deadline(lease, at) => format!("deadline {lease} {}\n", at.as_nanos()),
            Self::Group(lease, pid) => format!("group {lease} {}\n", pid.as_raw_nonzero()),
            Self::Late(pid) => format!("late {}\n", pid.as_raw_nonzero()),
            Self::Left(pid) => format!("left {}\n", pid.as_raw_nonzero()),
            Self::Asked(at) => format!("asked {}\n", at.as_nanos()),
            Self::Done => "done\n".to_owned(),
            Self::Acted(pid) => format!("acted {}\n", pid.as_raw_nonzero()),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(' ');
        let verb = parts.next()?;
        let moment = |text: &str| text.parse().ok().map(Moment::from_nanos);
        let leader = |text: &str| text.parse().ok().and_then(Pid::from_raw);
        match (verb, parts.next(), parts.next(), parts.next()) {
            ("deadline", Some(lease), Some(at), None) => {
                Some(Self::Deadline(lease.parse().ok()?, moment(at)?))
            }
            ("group", Some(lease), Some(pid), None) => {
                Some(Self::Group(lease.parse().ok()?, leader(pid)?))
            }
            ("late", Some(pid), None, None) => leader(pid).map(Self::Late),
            ("left", Some(pid), None, None) => leader(pid).map(Self::Left),
            ("asked", Some(at), None, None) => moment(at).map(Self::Asked),
            ("done", None, None, None) => Some(Self::Done),
            ("acted", Some(pid), None, None) => leader(pid).map(Self::Acted),
            _ => None,
        }
    }
}

/// Puts words together from what the pipe happens to deliver.
#[derive(Debug, Default)]
pub(super) struct Reader {
    rest: Vec<u8>,
}

impl Reader {
    /// Adds what was read and answers the words that are complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Word> {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else {
            return Vec::new();
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        String::from_utf8_lossy(&whole).lines().filter_map(Word::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_being_cut_anywhere() {
        let group = Pid::from_raw(4121).expect("not zero");
        let said = [
            Word::Deadline(LeaseId::MAX, Moment::from_nanos(123_456_789)),
            Word::Group(9, group),
            Word::Late(group),
            Word::Left(group),
            Word::Asked(Moment::from_nanos(7)),
            Word::Done,
            Word::Acted(group),
        ];
        let text: String = said.iter().map(|word| word.line()).collect();
        for cut in 0..=text.len() {
            let mut reader = Reader::default();
            let mut heard = reader.take(&text.as_bytes()[..cut]);
            heard.extend(reader.take(&text.as_bytes()[cut..]));
            assert_eq!(heard, said);
        }
    }

    #[test]
    fn noise_is_skipped() {
        assert_eq!(
            Reader::default().take(b"group 1 0\ngroup 7\ngroup 1 -x\nwhat\ndone 1\ndone\n"),
            [Word::Done]
        );
    }
}
