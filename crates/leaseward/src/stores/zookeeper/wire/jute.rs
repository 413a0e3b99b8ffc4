//! Numbers, strings and buffers as they are written.

/// What came is not what the protocol says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Malformed;

/// Writes one message, with its length before it.
#[derive(Debug)]
pub(in super::super) struct Writer(Vec<u8>);

impl Writer {
    pub(in super::super) fn new() -> Self {
        Self(vec![0; 4])
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.0.push(value.into());
    }

    pub(super) fn int(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn long(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn len(&mut self, len: usize) {
        // Nothing that is sent comes near: names and values have their limits.
        self.int(i32::try_from(len).unwrap_or(i32::MAX));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// The message.
    pub(super) fn done(mut self) -> Vec<u8> {
        let len = u32::try_from(self.0.len() - 4).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&len.to_be_bytes());
        self.0
    }
}

/// Reads one message.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(in super::super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(super) fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.take(1)?[0] != 0)
    }

    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A length; an absent buffer has minus one.
    pub(super) fn len(&mut self) -> Result<usize, Malformed> {
        match self.int()? {
            -1 => Ok(0),
            len => usize::try_from(len).map_err(|_| Malformed),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.len()?;
        self.take(len)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed)
    }

    /// How many there are of something that takes at least four bytes each.
    pub(super) fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.len()?;
        if count > self.0.len() / 4 { Err(Malformed) } else { Ok(count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let mut writer = Writer::new();
        writer.int(-7);
        writer.long(1 << 40);
        writer.bool(true);
        writer.text("früh");
        writer.bytes(&[]);
        let message = writer.done();
        let (len, rest) = message.split_at(4);
        assert_eq!(len, u32::try_from(rest.len()).expect("small").to_be_bytes());
        let mut reader = Reader::new(rest);
        assert_eq!((reader.int(), reader.long(), reader.bool()), (Ok(-7), Ok(1 << 40), Ok(true)));
        assert_eq!((reader.text().as_deref(), reader.bytes()), (Ok("früh"), Ok(&[][..])));
        assert_eq!(reader.int(), Err(Malformed));
    }

    #[test]
    fn believes_no_length_beyond_the_message() {
        for bytes in [[0x7f, 0xff, 0xff, 0xff], [0xff, 0xff, 0xff, 0xfe], [0, 0, 0, 1]] {
            assert_eq!(Reader::new(&bytes).bytes(), Err(Malformed));
            assert_eq!(Reader::new(&bytes).count(), Err(Malformed));
        }
    }
}
