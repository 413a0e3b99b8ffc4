//! The pipe between wrapper, launcher and watchdog: what is said on it, and how it is read.
//!
//! Lines of text, each far below the size up to which the system keeps writes whole, so that the wrapper and the
//! launcher can write to the same pipe.

use leaseward::clock::Moment;
use rustix::process::Pid;

/// Something the watchdog has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The lease lasts until then.
    Deadline(Moment),
    /// This group runs under it.
    Group(Pid),
    /// Nothing is left of this group.
    Left(Pid),
    /// The wrapper sent SIGTERM at that moment.
    Asked(Moment),
    /// The command itself has ended; what is ended from now on is what it left behind.
    Ended,
    /// The group is gone; there is nothing left to watch.
    Done,
}

impl Word {
    pub(super) fn line(self) -> String {
        match self {
            Self::Deadline(at) => format!("deadline {}\n", at.as_nanos()),
            Self::Group(pid) => format!("group {}\n", pid.as_raw_nonzero()),
            Self::Left(pid) => format!("left {}\n", pid.as_raw_nonzero()),
            Self::Asked(at) => format!("asked {}\n", at.as_nanos()),
            Self::Ended => "ended\n".to_owned(),
            Self::Done => "done\n".to_owned(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        match line {
            "ended" => return Some(Self::Ended),
            "done" => return Some(Self::Done),
            _ => {}
        }
        let (verb, number) = line.split_once(' ')?;
        let moment = || number.parse().ok().map(Moment::from_nanos);
        let leader = || number.parse().ok().and_then(Pid::from_raw);
        match verb {
            "deadline" => moment().map(Self::Deadline),
            "asked" => moment().map(Self::Asked),
            "group" => leader().map(Self::Group),
            "left" => leader().map(Self::Left),
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
            Word::Deadline(Moment::from_nanos(123_456_789)),
            Word::Group(group),
            Word::Left(group),
            Word::Asked(Moment::from_nanos(7)),
            Word::Ended,
            Word::Done,
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
        assert_eq!(Reader::default().take(b"group 0\ngroup -x\nwhat\ndone\n"), [Word::Done]);
    }
}
