//! Counts the commands in what a Redis client sends.

/// A length line is short; of anything longer only the beginning matters.
const LINE: usize = 32;

/// Where in the stream of one connection we are.
#[derive(Debug, Default)]
pub(super) struct Requests {
    line: Vec<u8>,
    /// Arguments of the present command that have not ended.
    arguments: u64,
    /// Bytes of the present argument, with its line end, that have not come.
    bytes: usize,
}

impl Requests {
    /// How many commands end within these bytes.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> u64 {
        let mut ended = 0;
        while !bytes.is_empty() {
            if self.bytes > 0 {
                let skipped = self.bytes.min(bytes.len());
                self.bytes -= skipped;
                bytes = &bytes[skipped..];
                if self.bytes == 0 {
                    self.arguments -= 1;
                    ended += u64::from(self.arguments == 0);
                }
            } else if bytes[0] == b'\n' {
                bytes = &bytes[1..];
                let line = std::mem::take(&mut self.line);
                ended += u64::from(self.line(&line));
            } else {
                if self.line.len() < LINE {
                    self.line.push(bytes[0]);
                }
                bytes = &bytes[1..];
            }
        }
        ended
    }

    /// Takes a line outside of an argument; says whether it is a command by itself.
    fn line(&mut self, line: &[u8]) -> bool {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        if self.arguments > 0 {
            let length = text.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
            self.bytes = length.unwrap_or(0) + 2;
            return false;
        }
        if let Some(count) = text.strip_prefix('*') {
            self.arguments = count.parse().unwrap_or(0);
            return false;
        }
        !text.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_commands_however_they_are_cut() {
        let stream = b"*2\r\n$3\r\nGET\r\n$5\r\na\r\n*b\r\nPING\r\n*1\r\n$0\r\n\r\n";
        assert_eq!(Requests::default().feed(stream), 3);
        let mut bytewise = Requests::default();
        let each: Vec<_> = stream.iter().map(|byte| bytewise.feed(&[*byte])).collect();
        assert_eq!(each.iter().sum::<u64>(), 3);
        assert_eq!(each[each.len() - 1], 1);
    }
}
