//! What is to be done with bytes that arrive.

use std::time::Duration;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    ToServer,
    ToClient,
}

/// When a connection is to be cut. Each cuts once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    /// Before this request, counted from 1.
    Request(u64),
    /// Before this chunk from the server, counted from 1.
    ReplyChunk(u64),
    /// After so many bytes from the server.
    ReplyBytes(usize),
}

/// How much of a chunk goes on, and whether the connection is cut behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) pass: usize,
    pub(super) cut: bool,
}

/// The rules in force, for all connections together.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) delay: Duration,
    /// For connections to come.
    pub(super) hold_to_server: bool,
    pub(super) hold_to_client: bool,
    /// How many requests pass before the server's words are discarded.
    pub(super) deaf_after: Option<u64>,
    pub(super) cut: Option<Cut>,
    pub(super) requests: u64,
}

impl Rules {
    /// Judges a chunk, in which so many requests end.
    pub(super) fn judge(&mut self, way: Way, length: usize, requests: u64) -> Verdict {
        match way {
            Way::ToServer => self.judge_requests(length, requests),
            Way::ToClient => self.judge_replies(length),
        }
    }

    fn judge_requests(&mut self, length: usize, requests: u64) -> Verdict {
        if let Some(Cut::Request(left)) = &mut self.cut {
            if requests >= *left {
                self.cut = None;
                return Verdict { pass: 0, cut: true };
            }
            *left -= requests;
        }
        self.requests += requests;
        if let Some(left) = &mut self.deaf_after {
            *left = left.saturating_sub(requests);
        }
        Verdict { pass: length, cut: false }
    }

    fn judge_replies(&mut self, length: usize) -> Verdict {
        if self.deaf_after == Some(0) {
            return Verdict { pass: 0, cut: false };
        }
        let pass = match &mut self.cut {
            Some(Cut::ReplyChunk(1)) => 0,
            Some(Cut::ReplyBytes(left)) if *left <= length => *left,
            Some(Cut::ReplyChunk(left)) => {
                *left -= 1;
                return Verdict { pass: length, cut: false };
            }
            Some(Cut::ReplyBytes(left)) => {
                *left -= length;
                return Verdict { pass: length, cut: false };
            }
            Some(Cut::Request(_)) | None => return Verdict { pass: length, cut: false },
        };
        self.cut = None;
        Verdict { pass, cut: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Verdict = Verdict { pass: 10, cut: false };

    #[test]
    fn cuts_once_and_where_it_should() {
        let mut rules = Rules { cut: Some(Cut::ReplyBytes(13)), ..Rules::default() };
        assert_eq!(rules.judge(Way::ToClient, 10, 0), WHOLE);
        assert_eq!(rules.judge(Way::ToClient, 10, 0), Verdict { pass: 3, cut: true });
        assert_eq!(rules.judge(Way::ToClient, 10, 0), WHOLE);
        rules.cut = Some(Cut::ReplyChunk(2));
        assert_eq!(rules.judge(Way::ToClient, 10, 0), WHOLE);
        assert_eq!(rules.judge(Way::ToClient, 10, 0), Verdict { pass: 0, cut: true });
        rules.cut = Some(Cut::Request(2));
        assert_eq!(rules.judge(Way::ToServer, 10, 1), WHOLE);
        assert_eq!(rules.judge(Way::ToServer, 10, 1), Verdict { pass: 0, cut: true });
        assert_eq!(rules.requests, 1, "what was not passed on does not count");
    }

    #[test]
    fn discards_replies_once_the_requests_have_passed() {
        let mut rules = Rules { deaf_after: Some(2), ..Rules::default() };
        assert_eq!(rules.judge(Way::ToServer, 10, 1), WHOLE);
        assert_eq!(rules.judge(Way::ToClient, 10, 0), WHOLE);
        assert_eq!(rules.judge(Way::ToServer, 10, 1), WHOLE);
        assert_eq!(rules.judge(Way::ToClient, 10, 0), Verdict { pass: 0, cut: false });
        assert_eq!(rules.judge(Way::ToServer, 10, 1), WHOLE);
    }
}
