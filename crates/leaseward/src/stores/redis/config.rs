//! Which servers, as whom, and how.

use std::{fmt, path::PathBuf, time::Duration};

use crate::{
    Error, ErrorKind,
    store::{Site, StoreUrl},
    stores::tls::Tls,
};

/// The port of Redis, and of Sentinel.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

/// How long an answer may take before the connection counts as dead. Well below the TTLs people use, well above what a
/// healthy server needs.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How long replicas get to acknowledge, where none is set.
const REPLICA_TIMEOUT: Duration = Duration::from_millis(50);

/// The settings of a URL.
const SETTINGS: &[&str] = &[
    "prefix",
    "handover",
    "timeout",
    "replicas",
    "replica_timeout",
    "ca",
    "cert",
    "key",
    "db",
    "sentinel_user",
    "sentinel_password",
    "danger_accept_any_certificate",
];

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::stores) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// How the servers belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::stores) enum Topology {
    One(Address),
    Sentinel { sentinels: Vec<Address>, master: String },
    Cluster { seeds: Vec<Address> },
}

/// As whom to connect.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::stores) struct Credentials {
    pub(in crate::stores) user: Option<String>,
    pub(in crate::stores) password: Option<String>,
}

impl Credentials {
    pub(in crate::stores) fn of(site: &Site<'_>) -> Self {
        let (user, password) = site.user_and_password();
        Self { user, password }
    }

    /// As whom, and with which password; nothing for whoever is anybody. A user without a password is nobody else either:
    /// some have none, and the server refuses the others.
    pub(in crate::stores) fn login(&self) -> Option<(&str, &str)> {
        match (&self.user, &self.password) {
            (None, None) => None,
            (user, password) => Some((
                user.as_deref().unwrap_or("default"),
                password.as_deref().unwrap_or_default(),
            )),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// What counts only once replicas have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stores) struct Strong {
    pub(in crate::stores) replicas: u32,
    pub(in crate::stores) timeout: Duration,
}

#[derive(Clone, Debug)]
pub(in crate::stores) struct Config {
    /// The scheme as it was written, for showing.
    pub(in crate::stores) scheme: String,
    pub(in crate::stores) topology: Topology,
    pub(in crate::stores) credentials: Credentials,
    pub(in crate::stores) sentinel_credentials: Credentials,
    pub(in crate::stores) db: i64,
    pub(in crate::stores) tls: Option<Tls>,
    pub(in crate::stores) prefix: String,
    pub(in crate::stores) handover: &'static str,
    pub(in crate::stores) timeout: Duration,
    pub(in crate::stores) strong: Option<Strong>,
}

impl Config {
    pub(in crate::stores) fn from_url(url: &StoreUrl) -> Result<Self, Error> {
        url.only(SETTINGS)?;
        let (base, kind) = match url.scheme.split_once('+') {
            Some((base, kind)) => (base, kind),
            None => (url.scheme.as_str(), ""),
        };
        let site = url.site()?;
        let setting = |key: &str| url.setting(key).map(str::to_owned);
        only_for(
            url,
            &["db"],
            kind == "unix",
            "the database stands behind the host: `redis://host/2`",
        )?;
        let sentinels = &["sentinel_user", "sentinel_password"];
        only_for(url, sentinels, kind == "sentinel", "Sentinels are asked with `redis+sentinel:`")?;
        let mut config = Self {
            scheme: url.scheme.clone(),
            topology: Topology::One(Address::Unix(StoreUrl::decoded(site.file).into())),
            credentials: Credentials::of(&site),
            sentinel_credentials: Credentials {
                user: setting("sentinel_user"),
                password: setting("sentinel_password"),
            },
            db: 0,
            tls: tls(url, base)?,
            prefix: url.setting("prefix").unwrap_or("lock:").to_owned(),
            handover: handover(url)?,
            timeout: url.duration("timeout")?.unwrap_or(TIMEOUT),
            strong: strong(url)?,
        };
        match kind {
            "unix" => config.db = db(url.setting("db").unwrap_or_default())?,
            "sentinel" => {
                let (master, number) = site.path.split_once('/').unwrap_or((site.path, ""));
                config.topology = sentinel(&site, &StoreUrl::decoded(master))?;
                config.db = db(number)?;
            }
            "cluster" => {
                config.topology = Topology::Cluster { seeds: addresses(&site, PORT)? };
                if !site.path.is_empty() && site.path != "0" {
                    return Err(invalid("a redis cluster has only database 0".into()));
                }
            }
            _ => {
                let mut hosts = addresses(&site, PORT)?;
                if hosts.len() > 1 {
                    return Err(invalid("one redis has one address".into()).hint(
                        "several servers are `redis+sentinel://h1,h2/master` or `redis+cluster://h1,h2`",
                    ));
                }
                config.topology = Topology::One(hosts.remove(0));
                config.db = db(site.path)?;
            }
        }
        Ok(config)
    }

    /// Where it is, without secrets.
    pub(in crate::stores) fn location(&self) -> String {
        let list = |addresses: &[Address]| {
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        let place = match &self.topology {
            Topology::One(address @ Address::Tcp(..)) => format!("//{address}"),
            Topology::One(address) => address.to_string(),
            Topology::Sentinel { sentinels, master } => format!("//{}/{master}", list(sentinels)),
            Topology::Cluster { seeds } => format!("//{}", list(seeds)),
        };
        let db = if self.db == 0 { String::new() } else { format!("/{}", self.db) };
        format!("{}:{place}{db}", self.scheme)
    }
}

pub(in crate::stores) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// Refuses settings that would mean nothing here, instead of ignoring them.
fn only_for(url: &StoreUrl, keys: &[&str], applies: bool, hint: &str) -> Result<(), Error> {
    match keys.iter().find(|key| !applies && url.setting(key).is_some()) {
        None => Ok(()),
        Some(key) => {
            Err(invalid(format!("`{key}` means nothing for `{}:`", url.scheme)).hint(hint))
        }
    }
}

pub(in crate::stores) fn addresses(site: &Site<'_>, port: u16) -> Result<Vec<Address>, Error> {
    let addresses = site.addresses(port)?;
    Ok(addresses.into_iter().map(|(host, port)| Address::Tcp(host, port)).collect())
}

fn sentinel(site: &Site<'_>, master: &str) -> Result<Topology, Error> {
    if master.is_empty() {
        return Err(invalid("which primary? Sentinel knows them by name".into())
            .hint("written `redis+sentinel://h1,h2,h3/NAME`; `redis-cli -p 26379 sentinel masters` lists them"));
    }
    let sentinels = addresses(site, SENTINEL_PORT)?;
    Ok(Topology::Sentinel { sentinels, master: master.to_owned() })
}

pub(in crate::stores) fn db(text: &str) -> Result<i64, Error> {
    match text.trim_end_matches('/') {
        "" => Ok(0),
        number => number.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
            // Not repeated: it is a piece of a password if the host behind it was forgotten.
            invalid("a database of Redis is a number".into()).hint("written `redis://host/2`")
        }),
    }
}

fn handover(url: &StoreUrl) -> Result<&'static str, Error> {
    match url.setting("handover") {
        None | Some("auto") => Ok("auto"),
        Some("always") => Ok("always"),
        Some("never") => Ok("never"),
        Some(other) => Err(invalid(format!("`{other}` is no way to hand over"))
            .hint("it is `auto`, `always` or `never`")),
    }
}

fn strong(url: &StoreUrl) -> Result<Option<Strong>, Error> {
    let timeout = url.duration("replica_timeout")?;
    let Some(text) = url.setting("replicas") else {
        return match timeout {
            None => Ok(None),
            Some(_) => Err(invalid("`replica_timeout` needs `replicas`".into())
                .hint("such as `?replicas=1&replica_timeout=50ms`")),
        };
    };
    let replicas = text
        .parse()
        .map_err(|_| invalid(format!("`{text}` is no number of replicas")).hint("such as `1`"))?;
    let timeout = timeout.unwrap_or(REPLICA_TIMEOUT);
    Ok((replicas > 0).then_some(Strong { replicas, timeout }))
}

pub(in crate::stores) fn tls(url: &StoreUrl, base: &str) -> Result<Option<Tls>, Error> {
    let file = |key: &str| url.setting(key).map(PathBuf::from);
    let cert_and_key = match (file("cert"), file("key")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(invalid("`cert` and `key` go together".into())),
    };
    let any_certificate = match url.setting("danger_accept_any_certificate") {
        None | Some("no") => false,
        Some("yes") => true,
        Some(_) => {
            return Err(invalid("`danger_accept_any_certificate` is `yes` or `no`".into()));
        }
    };
    let tls = Tls { ca: file("ca"), cert_and_key, any_certificate };
    match base {
        "rediss" | "valkeys" => Ok(Some(tls)),
        _ if tls != Tls::default() => Err(invalid("settings for TLS without TLS".into())
            .hint("the schemes for TLS end in `s`: `rediss:`, `valkeys:`, `redlocks:`")),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::written;

    fn config(url: &str) -> Result<Config, Error> {
        Config::from_url(&StoreUrl::parse(url)?)
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(host.into(), port)
    }

    #[test]
    fn reads_what_people_write() {
        let plain = config("redis://").expect("good");
        assert_eq!(plain.topology, Topology::One(tcp("localhost", 6379)));
        assert_eq!((plain.prefix.as_str(), plain.db), ("lock:", 0));
        let full = config("rediss://u:p%40ss%2F@h:7000/3?prefix=&ca=/ca.pem").expect("good");
        assert_eq!(full.topology, Topology::One(tcp("h", 7000)));
        assert_eq!(full.credentials.password.as_deref(), Some("p@ss/"));
        assert_eq!((full.prefix.as_str(), full.db), ("", 3));
        assert!(full.tls.is_some_and(|tls| tls.ca.is_some()));
        let six = config("redis://[::1]:7").expect("good");
        assert_eq!(six.topology, Topology::One(tcp("::1", 7)));
        let unix = config("redis+unix:///run/redis.sock?db=2").expect("good");
        assert_eq!(unix.topology, Topology::One(Address::Unix("/run/redis.sock".into())));
        assert_eq!((unix.db, unix.credentials.login()), (2, None));
        let unix = config("redis+unix://u:p@/run/redis.sock").expect("good");
        assert_eq!(unix.topology, Topology::One(Address::Unix("/run/redis.sock".into())));
        assert_eq!(unix.credentials.login(), Some(("u", "p")));
    }

    #[test]
    fn whoever_names_a_user_is_that_user() {
        let login = |url| config(url).expect("good").credentials;
        assert_eq!(login("redis://h").login(), None);
        assert_eq!(login("redis://:p@h").login(), Some(("default", "p")));
        assert_eq!(login("redis://u:p@h").login(), Some(("u", "p")));
        assert_eq!(login("redis://u@h").login(), Some(("u", "")));
    }

    #[test]
    fn reads_several_servers() {
        let sentinel = config("redis+sentinel://a,b:7/main/1").expect("good");
        let sentinels = vec![tcp("a", 26_379), tcp("b", 7)];
        assert_eq!(sentinel.topology, Topology::Sentinel { sentinels, master: "main".into() });
        assert_eq!(sentinel.db, 1);
        let cluster = config("redis+cluster://a,b:7").expect("good");
        assert_eq!(
            cluster.topology,
            Topology::Cluster { seeds: vec![tcp("a", 6379), tcp("b", 7)] }
        );
    }

    #[test]
    fn reads_strong_mode() {
        let strong = config("redis://?replicas=2&replica_timeout=80ms").expect("good").strong;
        let expected = Strong { replicas: 2, timeout: Duration::from_millis(80) };
        assert_eq!(strong, Some(expected));
        assert_eq!(config("redis://?replicas=0").expect("good").strong, None);
    }

    #[test]
    fn refuses_what_it_cannot_mean() {
        for bad in [
            "redis://h:port",
            "redis://h/x",
            "redis://a,b",
            "redis://?handover=maybe",
            "redis://?prefx=a",
            "redis://?ca=/x",
            "redis://?replica_timeout=1s",
            "redis://?timeout=0s",
            "redis://?timeout=5",
            "rediss://?cert=/x",
            "redis+sentinel://a",
            "redis+cluster://a/3",
            "redis://h?db=3",
            "redis+cluster://a?db=3",
            "redis://h?sentinel_password=x",
        ] {
            let error = config(bad).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn shows_no_password() {
        let url = "redis+sentinel://u:hunter2@h:1/main/1?sentinel_password=hunter2";
        let config = config(url).expect("good");
        assert_eq!(config.location(), "redis+sentinel://h:1/main/1");
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn nothing_that_can_be_written_panics_or_shows_a_password() {
        written::assert_read_well(super::super::SCHEME.names, |url| {
            let config = Config::from_url(url)?;
            Ok(format!("{config:?} {}", config.location()))
        });
    }
}
