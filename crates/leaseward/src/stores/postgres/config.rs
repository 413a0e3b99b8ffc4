//! Which database, as whom, and how.

use std::{fmt, path::PathBuf, str::FromStr as _, time::Duration};

use tokio_postgres::config::{Host, TargetSessionAttrs};

use crate::{Error, ErrorKind, store::StoreUrl, stores::tls::Tls};

/// How many connections a client has at most for its batches.
const LANES: usize = 4;
/// More would be more than any server gives to one client.
const LANES_MAX: usize = 64;

/// How long an answer may take before the connection counts as dead. Well below the TTLs people use, well above what a
/// healthy server needs.
const TIMEOUT: Duration = Duration::from_secs(3);

const SCHEMA: &str = "leaseward";

/// The settings of a URL.
const SETTINGS: &[&str] = &[
    "lanes",
    "listen",
    "schema",
    "timeout",
    "host",
    "target_session_attrs",
    "sslmode",
    "ca",
    "cert",
    "key",
    "danger_accept_any_certificate",
];

/// Where notifications are listened for.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Listen {
    /// At the same address.
    Here,
    /// At an address of its own, because there is a pooler at the other one.
    At(Box<tokio_postgres::Config>),
    Never,
}

#[derive(Clone)]
pub(super) struct Config {
    pub(super) server: tokio_postgres::Config,
    pub(super) listen: Listen,
    pub(super) schema: String,
    pub(super) lanes: usize,
    pub(super) timeout: Duration,
    pub(super) tls: Option<Tls>,
}

impl fmt::Debug for Config {
    // Not the driver's own: it has the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("at", &self.location())
            .field("schema", &self.schema)
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}

impl Config {
    pub(super) fn from_url(url: &StoreUrl) -> Result<Self, Error> {
        url.only(SETTINGS)?;
        let mut server = server(&url.rest, url.setting("host"))?;
        let timeout = url.duration("timeout")?.unwrap_or(TIMEOUT);
        if let Some(wanted) = url.setting("target_session_attrs") {
            server.target_session_attrs(match wanted {
                "any" => TargetSessionAttrs::Any,
                "read-write" => TargetSessionAttrs::ReadWrite,
                other => {
                    return Err(invalid(format!("`{other}` is no `target_session_attrs`"))
                        .hint("it is `read-write` or `any`"));
                }
            });
        } else if server.get_hosts().len() > 1 {
            // Of several servers the one that takes writes is meant.
            server.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let listen = match url.setting("listen") {
            None => Listen::Here,
            Some("no") => Listen::Never,
            Some(other) => Listen::At(Box::new(listen(other)?)),
        };
        Ok(Self {
            server,
            listen,
            schema: schema(url)?,
            lanes: lanes(url)?,
            timeout,
            tls: tls(url)?,
        })
    }

    /// Where it is, without secrets.
    pub(super) fn location(&self) -> String {
        let ports = self.server.get_ports();
        let hosts = self.server.get_hosts().iter().enumerate().map(|(at, host)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => path.display().to_string(),
            }
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let database = self.server.get_dbname().or(self.server.get_user()).unwrap_or_default();
        let schema = if self.schema == SCHEMA { "" } else { &*format!("?schema={}", self.schema) };
        format!("postgres://{hosts}/{database}{schema}")
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// The part of a URL that says where and as whom, as the driver understands it.
fn server(rest: &str, socket: Option<&str>) -> Result<tokio_postgres::Config, Error> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    // The driver's own error may repeat the password.
    let mut server =
        tokio_postgres::Config::from_str(&format!("postgres://{rest}")).map_err(|_| {
            invalid("this is no address of a PostgreSQL server".to_owned()).hint(EXAMPLE)
        })?;
    if let Some(folder) = socket {
        server.host(folder);
    }
    if server.get_hosts().is_empty() {
        server.host("localhost");
    }
    if server.get_user().is_none() {
        let user = std::env::var("USER").unwrap_or_else(|_| "postgres".to_owned());
        server.user(user);
    }
    Ok(server)
}

const EXAMPLE: &str = "it is written `postgres://user:password@host:5432/database`, with `%` and two digits for `@`, \
                       `/` and the like in a password";

fn listen(text: &str) -> Result<tokio_postgres::Config, Error> {
    let url = StoreUrl::parse(text)?;
    if !super::SCHEME.names.contains(&url.scheme.as_str()) {
        return Err(invalid("`listen` is the URL of a direct connection, or `no`".into())
            .hint("such as `listen=postgres%3A%2F%2Fuser%3Apassword%40host%2Fdatabase`"));
    }
    url.only(&["host"])?;
    server(&url.rest, url.setting("host"))
}

fn schema(url: &StoreUrl) -> Result<String, Error> {
    let schema = url.setting("schema").unwrap_or(SCHEMA);
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let starts = schema.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    if starts && schema.len() <= 63 && schema.bytes().all(is_plain) {
        return Ok(schema.to_owned());
    }
    Err(invalid(format!("`{schema}` cannot be the name of the schema"))
        .hint("lower-case letters, digits and `_`, at most 63 of them"))
}

fn lanes(url: &StoreUrl) -> Result<usize, Error> {
    let Some(text) = url.setting("lanes") else { return Ok(LANES) };
    text.parse().ok().filter(|lanes| (1..=LANES_MAX).contains(lanes)).ok_or_else(|| {
        invalid(format!("`{text}` is no number of lanes"))
            .hint(format!("how many connections there are at most, 1 to {LANES_MAX}"))
    })
}

fn tls(url: &StoreUrl) -> Result<Option<Tls>, Error> {
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
    match url.setting("sslmode") {
        Some("require" | "verify-full") => Ok(Some(tls)),
        None | Some("disable") if tls == Tls::default() => Ok(None),
        None | Some("disable") => {
            Err(invalid("settings for TLS without TLS".into()).hint("add `sslmode=verify-full`"))
        }
        Some(other) => Err(invalid(format!("`{other}` is no `sslmode` here")).hint(
            "it is `disable` (the default) or `verify-full`; a connection that is encrypted only if the server likes is none",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::written;

    fn config(url: &str) -> Result<Config, Error> {
        Config::from_url(&StoreUrl::parse(url)?)
    }

    #[test]
    fn reads_what_people_write() {
        let plain = config("postgres://u@/db").expect("good");
        assert_eq!(plain.location(), "postgres://localhost:5432/db");
        assert_eq!((plain.lanes, plain.schema.as_str()), (4, "leaseward"));
        let full = config("postgresql://u:p%40ss@h:7000/d?lanes=2&schema=l2&timeout=500ms&sslmode=verify-full&ca=/c")
            .expect("good");
        assert_eq!(full.server.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(full.location(), "postgres://h:7000/d?schema=l2");
        assert_eq!((full.lanes, full.timeout), (2, Duration::from_millis(500)));
        assert!(full.tls.is_some_and(|tls| tls.ca.is_some()));
        let socket = config("postgres://u@/d?host=/run/postgresql").expect("good");
        assert_eq!(socket.location(), "postgres:///run/postgresql/d");
        config("postgres://u:p@:5433/d?host=/run/postgresql").expect("a port of a socket");
        config("postgres://u:p@:5433/d").expect_err("of what?");
        let two = config("postgres://u@a,b:7/d").expect("good");
        assert_eq!(two.server.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        let listens = config("postgres://u@a/d?listen=postgres%3A%2F%2Fu%40b%2Fd").expect("good");
        assert!(
            matches!(listens.listen, Listen::At(at) if at.get_hosts() == [Host::Tcp("b".into())])
        );
    }

    #[test]
    fn refuses_what_it_cannot_mean() {
        for bad in [
            "postgres://u@h:port/d",
            "postgres://app:p@ss@h/d",
            "postgres:app:pass@h/d",
            "postgres://%zz",
            "postgres://a b",
            "postgres://u@h/d?listen=postgres%3A%2F%2Fapp%3Ap%40ss%40h",
            "postgres://u@h/d?lanes=0",
            "postgres://u@h/d?lanes=many",
            "postgres://u@h/d?schema=Robert'); --",
            "postgres://u@h/d?timeout=0s",
            "postgres://u@h/d?sslmode=prefer",
            "postgres://u@h/d?ca=/x",
            "postgres://u@h/d?sslmode=verify-full&cert=/x",
            "postgres://u@h/d?listen=redis://x",
            "postgres://u@h/d?lane=4",
            "postgres://u@h/d?target_session_attrs=primary",
        ] {
            let error = config(bad).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn shows_no_password() {
        let shown = config("postgres://u:hunter2@h/d?listen=postgres%3A%2F%2Fu%3Ahunter2%40h")
            .expect("good");
        assert!(!format!("{shown:?} {}", shown.location()).contains("hunter2"));
        let error = config("postgres://u:hunter2@h:port/d").expect_err("no port");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }

    #[test]
    fn nothing_that_can_be_written_panics_or_shows_a_password() {
        written::assert_read_well(super::super::SCHEME.names, |url| {
            let config = Config::from_url(url)?;
            Ok(format!("{config:?} {}", config.location()))
        });
    }
}
