//! Tokens: who owns a lease.

use std::{fmt, hash, str::FromStr, sync::Arc};

use crate::{Error, ErrorKind};

/// How many characters of a token may be shown: enough to tell holders apart, useless to impersonate one.
const SHOWN: usize = 8;

/// Random hexadecimal digits at the front of a token: 128 bits.
const DIGITS: usize = 32;

/// The unforgeable owner id of one acquisition. **A secret**: whoever knows it can release the lease.
///
/// Its text is 32 random hexadecimal digits, a colon and a readable `host:pid`. The random part comes first and has
/// a fixed length, so no token is a prefix of another. `Debug` and `Display` show the first eight digits only; the
/// whole text is had by [`Token::reveal`].
#[derive(Clone)]
pub struct Token {
    // In halves: a `u128` would make everything that holds a token a multiple of 16 bytes.
    random: [u64; 2],
    who: Arc<str>,
}

impl Token {
    /// A token from 128 random bits and the readable identity of its owner.
    pub fn new(random: u128, who: Arc<str>) -> Self {
        Self { random: halves(random), who }
    }

    /// The whole secret, to be stored or sent. Never log it.
    pub fn reveal(&self) -> String {
        let mut text = String::new();
        self.reveal_into(&mut text);
        text
    }

    /// The same, at the end of a text.
    pub(crate) fn reveal_into(&self, text: &mut String) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        text.reserve(DIGITS + 1 + self.who.len());
        // By hand: formatting the number takes longer than all the rest of sending a token.
        for byte in self.random().to_be_bytes() {
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
        text.push(':');
        text.push_str(&self.who);
    }

    /// The random part alone; two tokens are equal exactly if it is.
    pub fn random(&self) -> u128 {
        let [high, low] = self.random;
        u128::from(high) << 64 | u128::from(low)
    }

    /// The readable part: `host:pid`.
    pub fn who(&self) -> &Arc<str> {
        &self.who
    }

    /// The first characters, safe to show.
    pub fn prefix(&self) -> String {
        let mut digits = format!("{:032x}", self.random());
        digits.truncate(SHOWN);
        digits
    }
}

fn halves(random: u128) -> [u64; 2] {
    let half = |bits: u128| u64::try_from(bits).expect("BUG: half of 128 bits");
    [half(random >> 64), half(random & u128::from(u64::MAX))]
}

impl FromStr for Token {
    type Err = Error;

    /// Reads what [`Token::reveal`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is anything else. The error does not repeat the text.
    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let (digits, rest) = text.split_at_checked(DIGITS)?;
            let who = rest.strip_prefix(':')?;
            let plain = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            let random = u128::from_str_radix(digits, 16).ok()?;
            (plain && !who.chars().any(char::is_control)).then(|| Self::new(random, Arc::from(who)))
        };
        parse().ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, "this is not a token")
                .hint("a token is 32 hexadecimal digits, a colon and `host:pid`")
        })
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.random == other.random
    }
}

impl Eq for Token {}

impl hash::Hash for Token {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.random.hash(state);
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", self.prefix())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", self.prefix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_being_written_down() {
        let token = Token::new(7, Arc::from("web-3:4121"));
        let back: Token = token.reveal().parse().expect("its own text");
        assert_eq!(back, token);
        assert_eq!(&**back.who(), "web-3:4121");
    }

    #[test]
    fn shows_only_its_beginning() {
        let token = Token::new(u128::MAX / 3, Arc::from("h:1"));
        for shown in [format!("{token:?}"), format!("{token}")] {
            assert!(!shown.contains(&token.reveal()[..=SHOWN]), "{shown} shows too much");
        }
    }

    #[test]
    fn refuses_other_text_without_repeating_it() {
        for bad in ["", "abc", "00000000000000000000000000000007", &"ß".repeat(40), &"+".repeat(34)]
        {
            let error = bad.parse::<Token>().expect_err("not a token");
            assert!(bad.is_empty() || !error.to_string().contains(bad));
        }
    }
}
