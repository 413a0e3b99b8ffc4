//! Answers of the kinds that come all the time, read in one go: the common parser can be fed in pieces, and takes longer for
//! that than everything else that is done with an answer.

use redis::{PushKind, Value};

/// Reads an answer, which is there from its first byte to its last. Nothing if it is of another kind, or nonsense: then it is
/// for the common parser.
pub(super) fn read(bytes: &[u8]) -> Option<Value> {
    let mut rest = Rest(bytes);
    let value = match bytes.first()? {
        b'*' => Value::Array(rest.parts()?),
        b'>' => {
            let mut parts = rest.parts()?.into_iter();
            match parts.next()? {
                Value::BulkString(kind) if kind == b"message" => {
                    Value::Push { kind: PushKind::Message, data: parts.collect() }
                }
                _ => return None,
            }
        }
        b'_' if bytes == b"_\r\n" => return Some(Value::Nil),
        _ => rest.part()?,
    };
    rest.0.is_empty().then_some(value)
}

/// What has not been read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    /// The number in the next line, behind its kind.
    fn number(&mut self) -> Option<i64> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let line = self.0[..end].strip_suffix(b"\r")?;
        let number = std::str::from_utf8(line.get(1..)?).ok()?.parse().ok()?;
        self.0 = &self.0[end + 1..];
        Some(number)
    }

    /// Parts that have no parts themselves.
    fn parts(&mut self) -> Option<Vec<Value>> {
        let count = usize::try_from(self.number()?).ok()?;
        // Each has four bytes or more.
        let mut parts = Vec::with_capacity(count.min(self.0.len() / 4));
        for _ in 0..count {
            parts.push(self.part()?);
        }
        Some(parts)
    }

    fn part(&mut self) -> Option<Value> {
        match self.0.first()? {
            b':' => self.number().map(Value::Int),
            b'$' => {
                let len = usize::try_from(self.number()?).ok()?;
                let (text, rest) = self.0.split_at_checked(len)?;
                self.0 = rest.strip_prefix(b"\r\n")?;
                Some(Value::BulkString(text.to_vec()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_the_common_parser_reads() {
        let all: [&[u8]; 9] = [
            b"_\r\n",
            b":12\r\n",
            b":-9223372036854775808\r\n",
            b"$0\r\n\r\n",
            b"$7\r\na\r\nb\n\r\n\r\n",
            b"*0\r\n",
            b"*4\r\n:2\r\n:3\r\n$9\r\nhost:1234\r\n:1794813737088715\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
            b">1\r\n$7\r\nmessage\r\n",
        ];
        for bytes in all {
            let common = redis::parse_redis_value(bytes).expect("an answer");
            assert_eq!(read(bytes), Some(common), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn the_rest_is_left_to_it() {
        let all: [&[u8]; 13] = [
            b"",
            b"+OK\r\n",
            b"-ERR no\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*1\r\n*1\r\n:1\r\n",
            b"*2\r\n:1\r\n$-1\r\n",
            b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
            b">0\r\n",
            b"*999999999999\r\n",
            b"$9223372036854775807\r\n\r\n",
            b":1\r\n:2\r\n",
            b":x\r\n",
        ];
        for bytes in all {
            assert_eq!(read(bytes), None, "{}", bytes.escape_ascii());
        }
    }
}
