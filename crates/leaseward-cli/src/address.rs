//! Where the store is: the URL to open, and the same without its secrets to show.

use std::{fmt, path::Path};

/// How settings of a URL end whose values are secret, or are URLs that may have a password.
const SECRET_SETTINGS: &[&str] = &["password", "pass", "secret", "token", "listen"];

/// A store's URL. What it shows, prints and hands to children never holds a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    url: String,
    shown: String,
}

impl Address {
    /// An address from a URL and a password that was given apart from it.
    pub(crate) fn new(url: &str, password: Option<&str>) -> Self {
        let url = absolute(url);
        let shown = redacted(&url);
        let url = match password {
            Some(password) => with_password(&url, password),
            None => url,
        };
        Self { url, shown }
    }

    /// The embedded store that is used where none is named, and the file it is in.
    #[cfg(feature = "sqlite")]
    pub(crate) fn embedded(path: &Path) -> Self {
        Self { url: "sqlite:".to_owned(), shown: format!("sqlite:{}", path.display()) }
    }

    /// The whole URL, to open the store with. Never print it.
    pub(crate) fn reveal(&self) -> &str {
        &self.url
    }

    /// The URL without secrets.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.shown)
    }
}

/// A relative file path made absolute: the child may run in another folder and still means the same store.
fn absolute(url: &str) -> String {
    let Some(rest) = url.strip_prefix("sqlite:") else { return url.to_owned() };
    let (path, settings) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    if path.is_empty() || path.starts_with('/') {
        return url.to_owned();
    }
    match std::path::absolute(Path::new(path)) {
        Ok(whole) => format!("sqlite:{}{settings}", whole.display()),
        Err(_) => url.to_owned(),
    }
}

/// What stands between `//` and the settings, split into one piece for each host.
///
/// A comma only separates hosts if all pieces agree on having credentials; otherwise it may be part of a password, and
/// showing too little is better than showing that.
fn hosts(rest: &str) -> Vec<&str> {
    let pieces: Vec<&str> = rest.split(',').collect();
    let with = pieces.iter().filter(|piece| piece.contains('@')).count();
    if with == 0 || with == pieces.len() { pieces } else { vec![rest] }
}

fn parts(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (rest, settings) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    Some((scheme, rest, settings))
}

fn redacted(url: &str) -> String {
    let Some((scheme, rest, settings)) = parts(url) else { return without_settings(url) };
    let hosts = hosts(rest).into_iter().map(|piece| match piece.rsplit_once('@') {
        None => piece.to_owned(),
        Some((credentials, host)) => match credentials.split(':').next() {
            Some(user) if !user.is_empty() => format!("{user}@{host}"),
            _ => host.to_owned(),
        },
    });
    without_settings(&format!("{scheme}://{}{settings}", hosts.collect::<Vec<_>>().join(",")))
}

fn without_settings(url: &str) -> String {
    let Some((place, settings)) = url.split_once('?') else { return url.to_owned() };
    let kept: Vec<&str> = settings
        .split('&')
        .filter(|setting| {
            let key = setting.split('=').next().unwrap_or_default().to_ascii_lowercase();
            !SECRET_SETTINGS.iter().any(|secret| key.ends_with(secret))
        })
        .collect();
    if kept.is_empty() { place.to_owned() } else { format!("{place}?{}", kept.join("&")) }
}

/// Several hosts share one password, which stands before the first of them.
fn with_password(url: &str, password: &str) -> String {
    // A store without hosts, such as a file, has nobody to show a password to.
    let Some((scheme, rest, settings)) = parts(url).filter(|(scheme, ..)| *scheme != "sqlite")
    else {
        return url.to_owned();
    };
    let password = encoded(password);
    let place = match rest.rsplit_once('@').filter(|(login, _)| !login.starts_with('/')) {
        None => format!(":{password}@{rest}"),
        Some((user, place)) if !user.contains(':') => format!("{user}:{password}@{place}"),
        Some(_) => rest.to_owned(),
    };
    format!("{scheme}://{place}{settings}")
}

fn encoded(password: &str) -> String {
    let mut text = String::with_capacity(password.len());
    for byte in password.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_shows_a_password() {
        let table = [
            ("redis://user:hunter2@host:6379/0", "redis://user@host:6379/0"),
            ("redis://:hunter2@host", "redis://host"),
            ("redis://u:hunter2/@x@host", "redis://u@host"),
            ("redis://u:hunter2,hunter2@host", "redis://u@host"),
            ("redlock://a:hunter2@h1,b:hunter2@h2", "redlock://a@h1,b@h2"),
            ("postgres://h/db?password=hunter2&tls=on", "postgres://h/db?tls=on"),
            (
                "postgres://h/db?listen=postgres%3A%2F%2Fu%3Ahunter2%40h&lanes=2",
                "postgres://h/db?lanes=2",
            ),
            ("redis+sentinel://h/m?sentinel_password=hunter2", "redis+sentinel://h/m"),
            ("postgres://u:hunter2@h1,h2/db", "postgres://u@h1,h2/db"),
            (
                "sqlite:/var/lib/locks.db?durability=full",
                "sqlite:/var/lib/locks.db?durability=full",
            ),
        ];
        for (url, shown) in table {
            let address = Address::new(url, None);
            assert_eq!(address.shown(), shown);
            assert_eq!(address.reveal(), url);
            assert!(!format!("{address:?}").contains("hunter2"));
        }
    }

    #[test]
    fn takes_a_password_from_elsewhere() {
        let table = [
            ("redis://host", "redis://:p%40ss@host"),
            ("redis://me@host/1?x=y", "redis://me:p%40ss@host/1?x=y"),
            ("redlock://h1,h2", "redlock://:p%40ss@h1,h2"),
            ("redis+sentinel://me@h1,h2/main", "redis+sentinel://me:p%40ss@h1,h2/main"),
            ("redis+unix:///run/a@b.sock?db=1", "redis+unix://:p%40ss@/run/a@b.sock?db=1"),
            ("redis://me:own@host", "redis://me:own@host"),
            ("sqlite:/x.db", "sqlite:/x.db"),
            ("sqlite:///x.db", "sqlite:///x.db"),
        ];
        for (url, whole) in table {
            let address = Address::new(url, Some("p@ss"));
            assert_eq!(address.reveal(), whole);
            assert!(!address.shown().contains("ss"), "{}", address.shown());
        }
    }

    #[test]
    fn a_relative_file_means_the_same_for_a_child_elsewhere() {
        let here = std::env::current_dir().expect("a folder");
        let address = Address::new("sqlite:x.db?durability=full", None);
        assert_eq!(address.shown(), format!("sqlite:{}/x.db?durability=full", here.display()));
    }
}
