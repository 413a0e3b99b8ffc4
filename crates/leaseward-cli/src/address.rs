//! Where the store is: the URL to open, and the same without its secrets to show.

use std::{fmt, path::Path, time::Duration};

use leaseward::{Error, ErrorKind, store::StoreUrl};

/// How settings of a URL end whose values are secret, or are URLs that may have a password.
const SECRET_SETTINGS: &[&str] = &["password", "pass", "secret", "token", "listen"];

/// A store's URL. What it shows, prints and hands to children never holds a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    url: String,
    shown: String,
    timeout: Option<Duration>,
}

impl Address {
    /// An address from a URL and a password that was given apart from it. What may hide a password where none belongs is
    /// refused, by the check that every store makes.
    pub(crate) fn new(url: &str, password: Option<&str>) -> Result<Self, Error> {
        let url = absolute(url);
        let parsed = StoreUrl::parse(&url)?;
        if parsed.scheme == "memory" {
            return Err(of_one_process());
        }
        if parsed.is_local() {
            return Ok(Self { shown: url.clone(), url, timeout: None });
        }
        let (_, settings) = url.split_at(url.find('?').unwrap_or(url.len()));
        let site = parsed.site()?;
        let user = site.login.and_then(|login| login.split(':').next()).unwrap_or_default();
        let at = if user.is_empty() { "" } else { "@" };
        let (scheme, place) = (&parsed.scheme, site.file);
        let shown = format!("{scheme}://{user}{at}{place}{}", without_secrets(settings));
        // One that is silent may be followed by one that answers.
        let hosts = u32::try_from(site.hosts.split(',').count()).unwrap_or(u32::MAX);
        let timeout = parsed.duration("timeout")?.map(|timeout| timeout.saturating_mul(hosts));
        // Several hosts share one password, which stands before the first of them.
        let url = match password {
            Some(password) if !site.login.is_some_and(|login| login.contains(':')) => {
                format!("{scheme}://{user}:{}@{place}{settings}", encoded(password))
            }
            _ => url,
        };
        Ok(Self { url, shown, timeout })
    }

    /// The embedded store that is used where none is named, and the file it is in.
    #[cfg(feature = "sqlite")]
    pub(crate) fn embedded(path: &Path) -> Self {
        let shown = format!("sqlite:{}", path.display());
        Self { url: "sqlite:".to_owned(), shown, timeout: None }
    }

    /// The whole URL, to open the store with. Never print it.
    pub(crate) fn reveal(&self) -> &str {
        &self.url
    }

    /// How long all its hosts together may take for an answer, if the URL says so.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
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

/// Each command is a process of its own: it would be told that the name is free, whoever else is at work.
fn of_one_process() -> Error {
    let message = "locks in `memory:` exclude only tasks of one process, and each command is a process of its own";
    Error::new(ErrorKind::InvalidInput, message).hint(
        "name a file, such as `sqlite:/var/lib/locks.db`, or a server, such as `redis://host`",
    )
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

/// Settings with their question mark, without those whose values are secret.
fn without_secrets(settings: &str) -> String {
    let kept: Vec<&str> = settings
        .trim_start_matches('?')
        .split('&')
        .filter(|setting| {
            let key = StoreUrl::decoded(setting.split('=').next().unwrap_or_default());
            let key = key.to_ascii_lowercase();
            !key.is_empty() && !SECRET_SETTINGS.iter().any(|secret| key.ends_with(secret))
        })
        .collect();
    if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) }
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
            ("redis://u:hunter2,hunter2@host", "redis://u@host"),
            ("REDIS://u:hunter2@host", "redis://u@host"),
            ("redis+unix://u:hunter2@/run/x.sock", "redis+unix://u@/run/x.sock"),
            ("redis+unix:/run/x.sock?db=2", "redis+unix:///run/x.sock?db=2"),
            ("redis:?prefix=a", "redis://?prefix=a"),
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
            let address = Address::new(url, None).expect(url);
            assert_eq!(address.shown(), shown);
            assert_eq!(address.reveal(), url);
            assert!(!format!("{address:?}").contains("hunter2"));
        }
    }

    #[test]
    fn what_may_hide_a_password_is_refused_and_not_repeated() {
        for url in [
            "redis:u:hunter2@127.0.0.1:1",
            "redis://u:hunter2/@x@host",
            "redlock://a:hunter2@h1,b:hunter2@h2",
            "postgres://u:p@hunter2@host/db",
            "redis://u:hunter2",
            "redis://u:p?hunter2=x@host",
        ] {
            let error = Address::new(url, None).expect_err(url);
            assert_eq!(error.kind(), leaseward::ErrorKind::InvalidInput, "{url}");
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn takes_a_password_from_elsewhere() {
        let table = [
            ("redis://host", "redis://:p%40ss@host"),
            ("redis://me@host/1?x=y", "redis://me:p%40ss@host/1?x=y"),
            ("redlock://h1,h2", "redlock://:p%40ss@h1,h2"),
            ("redis+sentinel://me@h1,h2/main", "redis+sentinel://me:p%40ss@h1,h2/main"),
            ("redis+unix:///run/a.sock?db=1", "redis+unix://:p%40ss@/run/a.sock?db=1"),
            ("redis+unix:/run/a.sock", "redis+unix://:p%40ss@/run/a.sock"),
            ("redis:", "redis://:p%40ss@"),
            ("redis://me:own@host", "redis://me:own@host"),
            ("sqlite:/x.db", "sqlite:/x.db"),
            ("sqlite:///x.db", "sqlite:///x.db"),
        ];
        for (url, whole) in table {
            let address = Address::new(url, Some("p@ss")).expect(url);
            assert_eq!(address.reveal(), whole);
            assert!(!address.shown().contains("ss"), "{}", address.shown());
        }
    }

    #[test]
    fn a_relative_file_means_the_same_for_a_child_elsewhere() {
        let here = std::env::current_dir().expect("a folder");
        let address = Address::new("sqlite:x.db?durability=full", None).expect("a URL");
        assert_eq!(address.shown(), format!("sqlite:{}/x.db?durability=full", here.display()));
    }
}
