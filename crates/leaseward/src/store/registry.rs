//! From a URL to a store.

use std::{fmt, sync::Arc, time::Duration};

use super::{Site, Store, site::misplaced};
use crate::{
    Error, ErrorKind,
    clock::{BoxFuture, Clock},
    stores,
};

/// What a store is opened with beside its URL.
#[derive(Clone, Debug)]
pub struct OpenContext {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// This process, readable: `host:pid`.
    pub who: Arc<str>,
}

/// A store URL taken apart: `scheme:rest?key=value&key=value`.
#[derive(Clone)]
pub struct StoreUrl {
    /// What stands before the first colon.
    pub scheme: String,
    /// What stands between it and the question mark, a leading `//` included, as it was written: an encoded `@` or `/`
    /// belongs to what it stands in.
    pub rest: String,
    /// The settings behind the question mark, percent-decoded.
    pub settings: Vec<(String, String)>,
}

impl fmt::Debug for StoreUrl {
    // Whatever stands in it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({}:…)", self.scheme)
    }
}

/// The longest time that a setting may be.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The schemes of stores that are a file or a name in this process: nobody logs in there, and `@` is a letter.
const LOCAL: &[&str] = &["memory", "sqlite"];

/// Opens a store.
type Open = fn(StoreUrl, OpenContext) -> BoxFuture<'static, Result<Arc<dyn Store>, Error>>;

/// A kind of store in the registry.
#[derive(Debug)]
pub struct Scheme {
    /// The schemes it answers to.
    pub names: &'static [&'static str],
    /// What it is, in a few words.
    pub what: &'static str,
    /// A URL to copy.
    pub example: &'static str,
    /// How it is opened.
    pub open: Open,
}

/// The kinds of store this build knows.
pub fn schemes() -> &'static [&'static Scheme] {
    stores::REGISTRY
}

impl StoreUrl {
    /// Takes a URL apart, and checks what all URLs of servers have in common: where credentials may stand, and that hosts
    /// can be hosts. No error repeats what may be a piece of a password.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it has no scheme that this build knows, a setting that is not `key=value`, or does not come apart cleanly.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let invalid = |message: String| {
            Error::new(ErrorKind::InvalidInput, message)
                .hint(format!("for instance {}", examples()))
        };
        let (scheme, rest) = url
            .split_once(':')
            .filter(|(scheme, _)| {
                !scheme.is_empty()
                    && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
            })
            .ok_or_else(|| invalid("a store's URL begins with its scheme and a colon".into()))?;
        let scheme = scheme.to_ascii_lowercase();
        if kind_of(&scheme).is_none() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("this build knows no store of the scheme `{scheme}`"),
            )
            .hint(format!("it knows {}; others are features of the crate", examples())));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self { scheme, rest: rest.to_owned(), settings: Vec::new() };
        if !url.is_local() {
            url.check_servers(query)?;
        }
        url.settings = query
            .split('&')
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (key, value) = part.split_once('=').ok_or_else(|| {
                    invalid("a setting in a store's URL is written `key=value`".to_owned())
                })?;
                Ok((decode(key), decode(value)))
            })
            .collect::<Result<_, Error>>()?;
        Ok(url)
    }

    /// Whether the store is a file or a name in this process, so that no login stands in its URL.
    pub fn is_local(&self) -> bool {
        LOCAL.contains(&self.scheme.as_str())
    }

    fn check_servers(&mut self, query: &str) -> Result<(), Error> {
        let is_socket = self.scheme.ends_with("+unix");
        // `redis+unix:/run/x.sock` is how such a place is shown.
        if is_socket && self.rest.starts_with('/') && !self.rest.starts_with("//") {
            self.rest.insert_str(0, "//");
        }
        let site = self.site()?;
        if query.contains('@') {
            return Err(misplaced());
        }
        match is_socket {
            true if !site.hosts.is_empty() => Err(Error::new(
                ErrorKind::InvalidInput,
                "the path of a socket begins with `/`".to_owned(),
            )
            .hint(format!("written `{}:///run/redis.sock`", self.scheme))),
            true => Ok(()),
            // The folder of a socket stands among the settings, and the port alone before them.
            false if site.hosts.starts_with(':') && names_folder(query) => {
                Site { hosts: &format!("localhost{}", site.hosts), ..site }.addresses(0).map(drop)
            }
            false => site.addresses(0).map(drop),
        }
    }

    /// Fails for the first setting the store does not know, so that a misspelt one is never ignored.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] naming the setting and those that exist.
    pub fn only(&self, known: &[&str]) -> Result<(), Error> {
        match self.settings.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("the `{}` store has no setting `{key}`", self.scheme),
            )
            .hint(match known {
                [] => "it has none".to_owned(),
                known => format!("it has: {}", known.join(", ")),
            })),
        }
    }

    /// A part of a URL, percent-decoded.
    pub fn decoded(part: &str) -> String {
        decode(part)
    }

    /// The rest taken apart: who logs in, at which hosts, and what stands behind them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it does not come apart cleanly.
    pub fn site(&self) -> Result<Site<'_>, Error> {
        Site::of(&self.rest)
    }

    /// The rest as a path or plain name, percent-decoded.
    pub fn path(&self) -> String {
        decode(self.rest.strip_prefix("//").unwrap_or(&self.rest))
    }

    /// The value of a setting that is a time: a number with `ms`, `s` or `m`, above zero and at most a year.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is none.
    pub fn duration(&self, key: &str) -> Result<Option<Duration>, Error> {
        let Some(text) = self.setting(key) else { return Ok(None) };
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: u64 = digits.parse().unwrap_or(0);
        let duration = match &text[digits.len()..] {
            "ms" => Some(Duration::from_millis(number)),
            "s" => Some(Duration::from_secs(number)),
            "m" => Some(Duration::from_secs(number.saturating_mul(60))),
            _ => None,
        };
        // What is longer is a slip of the hand, and no sum of it fits anywhere.
        let is_sane = |duration: &Duration| !duration.is_zero() && *duration <= LONGEST;
        duration.filter(is_sane).map(Some).ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("`{text}` is no time for `{key}`"))
                .hint("such as `50ms` or `2s`")
        })
    }

    /// The value of a setting.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }
}

fn names_folder(query: &str) -> bool {
    query.split('&').any(|setting| setting.starts_with("host="))
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = |b: u8| char::from(b).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (first, after) {
            (b'%', [high, low, tail @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push(hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0));
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn kind_of(scheme: &str) -> Option<&'static Scheme> {
    schemes().iter().copied().find(|kind| kind.names.contains(&scheme))
}

/// URLs to copy. The store of a single process is named only where there is no other: it excludes no other process.
fn examples() -> String {
    let shown = |scheme: &&Scheme| format!("`{}`", scheme.example);
    let others = schemes().iter().filter(|scheme| scheme.names != stores::memory::SCHEME.names);
    let others: Vec<String> = others.map(shown).collect();
    if others.is_empty() { shown(&&stores::memory::SCHEME) } else { others.join(", ") }
}

/// Opens the store a URL names.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for an unknown scheme or setting; else what the store says.
///
/// # Cancel safety
/// Cancel safe: what was opened so far is closed.
pub async fn open(url: &str, context: OpenContext) -> Result<Arc<dyn Store>, Error> {
    let url = StoreUrl::parse(url)?;
    let scheme = kind_of(&url.scheme).expect("BUG: a URL that was taken apart has a known scheme");
    (scheme.open)(url, context).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_urls_apart() {
        let url = StoreUrl::parse("MEMORY:/tmp/a%20b.db?durability=full&x=1%2B1").expect("good");
        assert_eq!((url.scheme.as_str(), url.path().as_str()), ("memory", "/tmp/a b.db"));
        assert_eq!(url.setting("durability"), Some("full"));
        assert_eq!(url.setting("x"), Some("1+1"));
        assert!(url.only(&["durability"]).is_err());
        assert!(url.only(&["durability", "x"]).is_ok());
    }

    #[test]
    fn reads_times_that_make_sense() {
        let of =
            |text: &str| StoreUrl::parse(&format!("memory:?t={text}")).expect("good").duration("t");
        assert_eq!(of("50ms").expect("good"), Some(Duration::from_millis(50)));
        assert_eq!(of("2m").expect("good"), Some(Duration::from_secs(120)));
        for bad in ["", "0s", "5", "s", "5h", "-1s", "18446744073709551615s", "600000m"] {
            assert_eq!(of(bad).expect_err(bad).kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn refuses_what_is_no_url() {
        for bad in ["", "nothing", ":x", "a b:c", "memory:?x", "nonsense:x"] {
            assert!(StoreUrl::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn the_path_of_a_socket_stands_behind_two_slashes() {
        let rest = |url| StoreUrl::parse(url).map(|url| url.rest);
        for good in ["redis+unix:/run/x.sock", "redis+unix:///run/x.sock"] {
            assert_eq!(rest(good).expect(good), "///run/x.sock");
        }
        assert!(rest("redis+unix://run/x.sock").is_err());
    }

    #[cfg(feature = "redis")]
    #[test]
    fn shows_no_secret() {
        let url = StoreUrl::parse("redis://user:hunter2@host").expect("good");
        assert!(!format!("{url:?}").contains("hunter2"));
    }
}
