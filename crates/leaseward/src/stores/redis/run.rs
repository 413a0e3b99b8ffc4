//! How long a server has been running, as far as one client can tell.
//!
//! A server counts that by its wall clock: one that started while its clock was behind looks old as soon as that is set
//! right. So it is believed once, when there is nothing else to go by. A run that began while this client knew the server
//! counts from when it was first seen, on a clock that nobody sets.

use std::time::{Duration, Instant};

use super::probe::Probe;

/// One run of a server.
#[derive(Clone, Copy, Debug)]
pub(in crate::stores) struct Run {
    /// When this client first saw it.
    pub(in crate::stores) seen: Instant,
    /// How long it had been going on then, at the least; `None` if it does not say or is not believed.
    pub(in crate::stores) uptime: Option<Duration>,
    /// The server's clock then, in microseconds since the epoch, if it said so.
    pub(in crate::stores) clock_us: Option<u64>,
}

impl Run {
    /// The run that a new connection has found, given what the connection before had.
    pub(in crate::stores) fn found(probe: &Probe, before: Option<(&Probe, &Self)>) -> Self {
        let (seen, clock_us) = (probe.asked, probe.clock_us);
        match before {
            None => Self { seen, uptime: probe.uptime, clock_us },
            Some((known, run)) if probe.is_same_run(known) => *run,
            Some(_) => Self { seen, uptime: None, clock_us },
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn probe(run_id: &str, uptime: &str) -> Probe {
        let server = format!("run_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\n");
        let nothing = || Value::Nil;
        let server = Value::BulkString(server.into());
        Probe::read(&[nothing(), server, nothing(), nothing(), nothing()])
    }

    #[test]
    fn a_server_is_believed_when_nothing_else_is_known() {
        assert_eq!(Run::found(&probe("a", "3600"), None).uptime, Some(HOUR));
        assert_eq!(Run::found(&probe("a", "-3600"), None).uptime, None, "its clock was set back");
    }

    #[test]
    fn a_run_that_began_meanwhile_counts_from_when_it_was_seen() {
        let first = probe("a", "3600");
        let run = Run::found(&first, None);
        let second = probe("b", "3600");
        let next = Run::found(&second, Some((&first, &run)));
        assert_eq!((next.uptime, next.seen), (None, second.asked));
        let again = Run::found(&probe("b", "7200"), Some((&second, &next)));
        assert_eq!((again.uptime, again.seen), (None, second.asked), "over any connection");
    }

    #[test]
    fn a_run_that_goes_on_counts_from_its_first_connection() {
        let first = probe("a", "1");
        let run = Run::found(&first, None);
        let again = Run::found(&probe("a", "3600"), Some((&first, &run)));
        assert_eq!((again.uptime, again.seen), (Some(Duration::from_secs(1)), first.asked));
    }

    #[test]
    fn a_server_that_does_not_say_which_run_it_is_counts_from_each_connection() {
        let first = probe("", "3600");
        let run = Run::found(&first, None);
        let second = probe("", "3600");
        let next = Run::found(&second, Some((&first, &run)));
        assert_eq!((next.uptime, next.seen), (None, second.asked));
    }
}
