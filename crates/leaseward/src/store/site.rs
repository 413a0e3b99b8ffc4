//! Where a store is, as its URL says.

use std::{fmt, net::Ipv6Addr};

use super::StoreUrl;
use crate::{Error, ErrorKind};

/// What stands between the scheme of a URL and its settings, taken apart: `//login@hosts/path`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Site<'a> {
    /// What stands before the `@`, as it was written.
    pub login: Option<&'a str>,
    /// What stands between that and the first `/`, as it was written.
    pub hosts: &'a str,
    /// What stands behind it, as it was written.
    pub path: &'a str,
    /// All that stands behind the login: for what is a file rather than a host.
    pub file: &'a str,
}

impl fmt::Debug for Site<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site")
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl<'a> Site<'a> {
    /// Takes it apart: the one check of where credentials stand, for each store and for what is shown of a URL. An `@`
    /// ends the login, which stands behind `//`; anything else that may be a piece of a password is refused and not
    /// repeated. Guessed wrongly, it could also be one host where three were meant.
    pub(super) fn of(rest: &'a str) -> Result<Self, Error> {
        let Some(rest) = rest.strip_prefix("//").or(rest.is_empty().then_some(rest)) else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the URL has no `//` behind its scheme".to_owned(),
            )
            .hint("written `scheme://user:password@host`"));
        };
        let (login, file) = match rest.split_once('@') {
            Some((login, file)) => (Some(login), file),
            None => (None, rest),
        };
        let (hosts, path) = file.split_once('/').unwrap_or((file, ""));
        if login.is_some_and(|login| login.contains('/'))
            || file.contains('@')
            || path.contains(':')
        {
            return Err(misplaced());
        }
        Ok(Self { login, hosts, path, file })
    }

    /// User and password, decoded; what is empty is not there.
    pub fn user_and_password(&self) -> (Option<String>, Option<String>) {
        let Some(login) = self.login else { return (None, None) };
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(StoreUrl::decoded(password))),
            None => (login, None),
        };
        (Some(StoreUrl::decoded(user)).filter(|user| !user.is_empty()), password)
    }

    /// Hosts and their ports; `localhost` if there are none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if one is no host, or what stands behind it is no port.
    pub fn addresses(&self, port: u16) -> Result<Vec<(String, u16)>, Error> {
        let hosts = if self.hosts.is_empty() { "localhost" } else { self.hosts };
        hosts.split(',').map(|host| address(host.trim(), port)).collect()
    }
}

/// A special character where it may be a piece of a password.
pub(super) fn misplaced() -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        "the URL has an `@`, `/` or `:` where none belongs".to_owned(),
    )
    .hint(
        "user and password stand once, before the first host; special characters in them, and in what stands behind the \
         hosts, are percent-encoded: `@` is %40, `/` is %2F, `:` is %3A",
    )
}

fn address(text: &str, port: u16) -> Result<(String, u16), Error> {
    let invalid = |message: String| {
        Error::new(ErrorKind::InvalidInput, message).hint(
            "written `host:port`, or `[address]:port`; with a password, `user:password@host:port`",
        )
    };
    let (host, number) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        // An IPv6 address in brackets.
        Some((host, "")) => (host, None),
        Some((host, after)) => (host, Some(after.strip_prefix(':').unwrap_or(after))),
        None => match text.rsplit_once(':') {
            Some((host, number)) => (host, Some(number)),
            None => (text, None),
        },
    };
    let host = StoreUrl::decoded(host);
    if host.is_empty() {
        return Err(invalid("a host without a name".to_owned()));
    }
    if host.contains(':') && !text.starts_with('[') {
        return Err(invalid("an address with colons stands in brackets".to_owned()));
    }
    // Not repeated, as it may be a piece of a password.
    if !(if text.starts_with('[') { is_address(&host) } else { is_name(&host) }) {
        return Err(invalid("a host in the URL is neither a name nor an address".to_owned()));
    }
    let port = match number.map(str::parse) {
        None => port,
        Some(Ok(port)) => port,
        // Not repeated: it is a password if the host behind it was forgotten.
        Some(Err(_)) => {
            return Err(invalid(format!("what stands behind `{host}:` is no port")));
        }
    };
    Ok((host, port))
}

/// Whether it is an IPv6 address, perhaps with a zone.
fn is_address(host: &str) -> bool {
    let (address, zone) = host.split_once('%').unwrap_or((host, "lo"));
    address.parse::<Ipv6Addr>().is_ok() && is_name(zone)
}

/// Whether it can be the name of a host, or an IPv4 address: letters of any language, for resolvers that know them.
fn is_name(host: &str) -> bool {
    !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-._".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_sites_apart() {
        let of = |rest| {
            let site = Site::of(rest).expect("good");
            (site.login, site.hosts, site.path)
        };
        assert_eq!(of("//h:1/2"), (None, "h:1", "2"));
        assert_eq!(of("//u:p@a,b:7/x/y"), (Some("u:p"), "a,b:7", "x/y"));
        assert_eq!(of("//u:p@/run/a.sock"), (Some("u:p"), "", "run/a.sock"));
        assert_eq!(of("///run/a.sock"), (None, "", "run/a.sock"));
        assert_eq!(of(""), (None, "", ""));
        assert_eq!(Site::of("//u:p@run/x.sock").expect("good").file, "run/x.sock");
    }

    #[test]
    fn a_piece_of_a_password_is_neither_a_host_nor_repeated() {
        for rest in [
            "//u:hunter2/@x@h",
            "//u:hunter2@x@h",
            "//u:123/hunter2@h",
            "//a:hunter2@h1,b:hunter2@h2",
            "//u:hunter2",
            "//:hunter2",
            "u:hunter2@h",
            "/u:hunter2@h",
            "u:hunter2",
            "///u:hunter2@h",
            "///u:hunter2",
            "//u:p@h/hunter2@h",
            "//u%3Ahunter2%40h",
            "//u%3Ahunter2%40h:x",
            "//u%3Ahunter2:7",
        ] {
            let error = Site::of(rest).and_then(|site| site.addresses(1)).expect_err(rest);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{rest}");
            assert!(!format!("{error:?} {error}").contains("hunter2"), "{error:?}");
        }
        let site = Site::of("//u:hunter2@h").expect("good");
        assert!(!format!("{site:?}").contains("hunter2"));
    }

    #[test]
    fn reads_hosts_and_who_we_are() {
        let site = Site::of("//u%40:p%2F@a, [::1]:7,b:8").expect("good");
        assert_eq!(site.user_and_password(), (Some("u@".into()), Some("p/".into())));
        let expected = [("a", 1), ("::1", 7), ("b", 8)].map(|(host, port)| (host.into(), port));
        assert_eq!(site.addresses(1).expect("good"), expected);
        assert_eq!(
            Site::of("").expect("good").addresses(5).expect("good"),
            [("localhost".into(), 5)]
        );
        let user_only = Site::of("//u@h").expect("good").user_and_password();
        assert_eq!(user_only, (Some("u".into()), None));
        let zone = Site::of("//[fe80::1%25eth0]").expect("good").addresses(1).expect("good");
        assert_eq!(zone, [("fe80::1%eth0".into(), 1)]);
        let unusual = Site::of("//a_b.c-d,höst,10.0.0.1").expect("good").addresses(1);
        assert_eq!(unusual.expect("good").len(), 3);
        for bad in [
            "//a,,b",
            "//a:x",
            "//a:70000",
            "//[::1]x",
            "//[]:1",
            "//::1",
            "//[::1",
            "//[a]",
            "//%00",
            "//a b",
            "//%zz",
            "//a%2Fb",
            "//[::1%25]",
        ] {
            let read = Site::of(bad).expect("comes apart").addresses(1);
            assert!(read.is_err(), "{bad}: {read:?}");
        }
    }
}
