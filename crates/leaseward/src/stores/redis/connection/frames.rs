//! Where one answer ends and the next begins.

/// Bytes that are no answer of a Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonsense;

/// Answers may have parts: no server nests what we ask for deeper or longer than this by far.
const PARTS_MAX: usize = 1 << 24;

/// How far the bytes of the first answer were looked at, so that a long one that comes in many pieces is not looked at anew
/// with each.
#[derive(Debug)]
pub(super) struct Frames {
    seen: usize,
    /// How many parts have yet to come.
    missing: usize,
}

impl Frames {
    pub(super) fn new() -> Self {
        Self { seen: 0, missing: 1 }
    }

    /// The length of the first answer, once all of it is there. The next call is about the one behind it.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<Option<usize>, Nonsense> {
        while self.missing > 0 {
            let Some(rest) = bytes.get(self.seen..) else { return Ok(None) };
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                // A line is short: what is not one by now never will be.
                return if rest.len() > LINE_MAX { Err(Nonsense) } else { Ok(None) };
            };
            let line = rest[..end].strip_suffix(b"\r").ok_or(Nonsense)?;
            let (kind, text) = line.split_first().ok_or(Nonsense)?;
            let behind = self.seen + end + 1;
            let (skips, parts) = match kind {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => (0, 0),
                b'$' | b'=' | b'!' => (number(text)?.map_or(0, |len| len + 2), 0),
                b'*' | b'~' | b'>' => (0, number(text)?.unwrap_or(0)),
                b'%' => (0, number(text)?.unwrap_or(0) * 2),
                // It stands before the answer it is about.
                b'|' => (0, number(text)?.unwrap_or(0) * 2 + 1),
                _ => return Err(Nonsense),
            };
            if bytes.len() < behind + skips {
                return Ok(None);
            }
            self.seen = behind + skips;
            self.missing = self.missing - 1 + parts;
            if self.missing > PARTS_MAX {
                return Err(Nonsense);
            }
        }
        let len = self.seen;
        *self = Self::new();
        Ok(Some(len))
    }
}

/// Errors are the longest of lines.
const LINE_MAX: usize = 1 << 16;

/// A length; none if there is nothing, not even something empty.
fn number(text: &[u8]) -> Result<Option<usize>, Nonsense> {
    if text == b"-1" {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).map_err(|_| Nonsense)?;
    // The longest value of a Redis has 512 MB.
    text.parse().ok().filter(|len| *len <= 1 << 29).map(Some).ok_or(Nonsense)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One after the other, each followed by another.
    const ANSWERS: &[&[u8]] = &[
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-12\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"(123456789012345678901234567890\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$7\r\na\r\nb\n\r\n\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"!5\r\nERR x\r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n+x\r\n",
        b"~1\r\n:1\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
        b"|1\r\n+ttl\r\n:5\r\n*1\r\n:2\r\n",
    ];

    #[test]
    fn an_answer_ends_where_it_ends_however_it_comes() {
        let all: Vec<u8> = ANSWERS.concat();
        for step in 1..=all.len() {
            let (mut frames, mut found) = (Frames::new(), Vec::new());
            let (mut from, mut upto) = (0, 0);
            while upto < all.len() {
                upto = (upto + step).min(all.len());
                while let Some(len) = frames.next(&all[from..upto]).expect("answers") {
                    found.push(&all[from..from + len]);
                    from += len;
                }
            }
            assert_eq!(found, ANSWERS, "in pieces of {step}");
        }
    }

    #[test]
    fn what_is_no_answer_is_told() {
        let long = [b'+'; LINE_MAX + 1];
        let all: [&[u8]; 8] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b"\x15\x03\x03\x00\x02\x02\n",
            b"\r\n",
            b"+OK\n",
            b"$x\r\n",
            b"$-2\r\n",
            b"*99999999999999999999\r\n",
            &long,
        ];
        for bytes in all {
            assert_eq!(Frames::new().next(bytes), Err(Nonsense), "{}", bytes.escape_ascii());
        }
    }
}
