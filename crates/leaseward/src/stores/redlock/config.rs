//! Which nodes, as whom, and within which bounds.

use std::{ops::RangeInclusive, time::Duration};

use crate::{
    Error, TTL_MIN,
    store::{StoreUrl, timing},
    stores::redis::config::{
        self as redis, Address, Config as NodeConfig, Topology, addresses, invalid,
    },
};

/// The port of Redis.
const PORT: u16 = 6379;

/// How long one node may take before the others decide without it: far above what a healthy one needs, far below a TTL.
const TIMEOUT: Duration = Duration::from_millis(100);

/// How long a node may be silent before its connection counts as dead; longer if it may take longer.
const DEAD_AFTER: Duration = Duration::from_secs(1);

/// The longest lease, which is how long a node that lost its memory does not vote.
const MAX_TTL: Duration = Duration::from_secs(60);

/// By how much the clocks of clients and nodes may differ, for a node that lost its memory.
const SKEW: Duration = Duration::from_secs(1);

/// The unit of the random wait after a vote that nobody won.
const RETRY: Duration = Duration::from_millis(2);

const SETTINGS: &[&str] = &[
    "prefix",
    "drift",
    "timeout",
    "retry",
    "max_ttl",
    "amnesia",
    "skew",
    "db",
    "ca",
    "cert",
    "key",
    "danger_accept_any_certificate",
];

/// What is done about nodes that may have lost their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amnesia {
    /// They do not vote for the longest TTL.
    Wait,
    /// They vote at once: the user knows that they have kept it, or never had any.
    Trust,
}

/// What is taken off a lease's time for clocks that run at different rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Drift {
    share: f64,
    constant: Duration,
}

impl Drift {
    /// How long a lease may count for its holder, given that the margin of every lease is taken off that again.
    pub(super) fn validity(self, ttl: Duration) -> Duration {
        let drift = ttl.mul_f64(self.share) + self.constant;
        // The margin is a hundredth of what is answered here, and a constant.
        let before_margin = (ttl.saturating_sub(drift) + timing::margin(Duration::ZERO)) * 100 / 99;
        before_margin.min(ttl)
    }

    /// The shortest TTL of which half is left: leases are renewed after a third, so less would end before that, or soon
    /// after. `None` if there is none.
    fn shortest_ttl(self) -> Option<Duration> {
        if self.constant.is_zero() {
            return Some(Duration::ZERO);
        }
        let left = (0.5 - self.share).max(0.0);
        // In whole milliseconds, up from anything but what is lost in calculating.
        let ms = (self.constant.as_secs_f64() / left * 1e3 - 1e-6).ceil();
        Duration::try_from_secs_f64(ms / 1e3).ok()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) nodes: Vec<Address>,
    pub(super) prefix: String,
    pub(super) drift: Drift,
    pub(super) timeout: Duration,
    pub(super) retry: Duration,
    pub(super) min_ttl: Duration,
    pub(super) max_ttl: Duration,
    pub(super) amnesia: Amnesia,
    pub(super) skew: Duration,
    /// How each node is connected to.
    pub(super) node: NodeConfig,
}

impl Config {
    pub(super) fn from_url(url: &StoreUrl) -> Result<Self, Error> {
        url.only(SETTINGS)?;
        let site = url.site()?;
        let nodes = addresses(&site, PORT)?;
        if let Some(twice) = nodes.iter().enumerate().find(|(at, node)| nodes[..*at].contains(node))
        {
            return Err(invalid(format!("the node {} is named twice", twice.1))
                .hint("each node has one vote; give each server once"));
        }
        let tls_base = if url.scheme == "redlocks" { "rediss" } else { "redis" };
        let db = url.setting("db").unwrap_or(site.path);
        let prefix = url.setting("prefix").unwrap_or("lock:").to_owned();
        let timeout = url.duration("timeout")?.unwrap_or(TIMEOUT);
        let node = NodeConfig {
            scheme: url.scheme.clone(),
            topology: Topology::One(nodes[0].clone()),
            credentials: redis::Credentials::of(&site),
            sentinel_credentials: redis::Credentials::default(),
            db: redis::db(db)?,
            tls: redis::tls(url, tls_base)?,
            prefix: prefix.clone(),
            handover: "auto",
            // What an attempt that took too long was granted is taken back over the same connection.
            timeout: DEAD_AFTER.max(timeout * 2),
            strong: None,
        };
        let (max_ttl, skew) = max_ttl_and_skew(url)?;
        let (drift, min_ttl) = drift_and_min_ttl(url, max_ttl)?;
        Ok(Self {
            nodes,
            prefix,
            drift,
            min_ttl,
            timeout,
            retry: url.duration("retry")?.unwrap_or(RETRY),
            max_ttl,
            amnesia: amnesia(url)?,
            skew,
            node,
        })
    }

    /// The TTLs that leases may have.
    pub(super) fn ttl(&self) -> RangeInclusive<Duration> {
        self.min_ttl..=self.max_ttl
    }

    /// How long nodes may take to be connected once it is clear whether a majority is there.
    pub(super) fn opening(&self) -> Duration {
        self.timeout.min(DEAD_AFTER)
    }

    /// Where it is, without secrets.
    pub(super) fn location(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(ToString::to_string).collect();
        let db = if self.node.db == 0 { String::new() } else { format!("/{}", self.node.db) };
        format!("{}://{}{db}", self.node.scheme, nodes.join(","))
    }

    /// What is odd about the number of nodes, if anything.
    pub(super) fn odd_number(&self) -> Option<&'static str> {
        match self.nodes.len() {
            1 | 2 => Some("fewer than three nodes: when one is lost, no lock can be had"),
            count if count % 2 == 0 => {
                Some("an even number of nodes: one fewer would survive as many losses")
            }
            _ => None,
        }
    }
}

/// The longest TTL, and by how much clocks may differ.
fn max_ttl_and_skew(url: &StoreUrl) -> Result<(Duration, Duration), Error> {
    let max_ttl = url.duration("max_ttl")?.unwrap_or(MAX_TTL);
    let skew = url.duration("skew")?.unwrap_or(SKEW);
    if max_ttl < Duration::from_secs(1) {
        return Err(invalid(format!("a longest TTL of {max_ttl:?} is out of range"))
            .hint("at least 1 s: servers tell in whole seconds how long they have been running"));
    }
    // A ballot that is ahead by the skew must be below the floor of a node that has waited for the longest TTL.
    if skew > max_ttl {
        return Err(invalid(format!("a skew of {skew:?} is longer than `max_ttl`, {max_ttl:?}"))
            .hint("raise `max_ttl`, or keep clocks closer together"));
    }
    Ok((max_ttl, skew))
}

/// What is taken off leases, and the shortest TTL that leaves enough of one.
fn drift_and_min_ttl(url: &StoreUrl, max_ttl: Duration) -> Result<(Drift, Duration), Error> {
    let drift = drift(url)?;
    match drift.shortest_ttl().filter(|shortest| *shortest <= max_ttl) {
        Some(shortest) => Ok((drift, shortest.max(TTL_MIN))),
        None => Err(invalid(format!(
            "the drift leaves less than half of the longest TTL, {max_ttl:?}, to its holder"
        ))
        .hint("lower `drift`, or raise `max_ttl`")),
    }
}

fn amnesia(url: &StoreUrl) -> Result<Amnesia, Error> {
    match url.setting("amnesia") {
        None | Some("wait") => Ok(Amnesia::Wait),
        Some("trust") => Ok(Amnesia::Trust),
        Some(other) => Err(invalid(format!("`{other}` is no way to treat forgetful nodes"))
            .hint("it is `wait` or `trust`")),
    }
}

/// `1%,2ms`, in either order or one of them alone.
fn drift(url: &StoreUrl) -> Result<Drift, Error> {
    let mut drift = Drift { share: 0.01, constant: Duration::from_millis(2) };
    let Some(text) = url.setting("drift") else { return Ok(drift) };
    let bad = || invalid(format!("`{text}` is no drift")).hint("such as `1%,2ms`");
    for part in text.split(',') {
        if let Some(percent) = part.strip_suffix('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| bad())?;
            if !(0.0..=50.0).contains(&percent) {
                return Err(bad());
            }
            drift.share = percent / 100.0;
        } else {
            let ms = part.trim().strip_suffix("ms").ok_or_else(bad)?;
            drift.constant = Duration::from_millis(ms.parse().map_err(|_| bad())?);
        }
    }
    Ok(drift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, store::written};

    fn config(url: &str) -> Result<Config, Error> {
        Config::from_url(&StoreUrl::parse(url)?)
    }

    #[test]
    fn reads_what_people_write() {
        let plain = config("redlock://a,b:7,c").expect("good");
        let nodes: Vec<_> = plain.nodes.iter().map(ToString::to_string).collect();
        assert_eq!(nodes, ["a:6379", "b:7", "c:6379"]);
        assert_eq!((plain.prefix.as_str(), plain.amnesia), ("lock:", Amnesia::Wait));
        assert_eq!(plain.odd_number(), None);
        let full = "redlocks://u:hunter2@a,b,c/3?prefix=&drift=5%,10ms&timeout=20ms&max_ttl=5m&amnesia=trust";
        let full = config(full).expect("good");
        assert!(full.node.tls.is_some());
        assert_eq!((full.prefix.as_str(), full.node.db), ("", 3));
        assert_eq!((full.timeout.as_millis(), full.max_ttl.as_secs()), (20, 300));
        assert_eq!(full.location(), "redlocks://a:6379,b:6379,c:6379/3");
        assert!(!format!("{full:?}").contains("hunter2"));
    }

    #[test]
    fn a_larger_drift_shortens_leases() {
        let of = |url: &str| config(url).expect("good").drift;
        let ten = Duration::from_secs(10);
        assert_eq!(of("redlock://a").validity(ten), ten);
        let wide = of("redlock://a?drift=5%,12ms").validity(ten);
        let counts = wide - timing::margin(wide);
        let taken_off = ten - counts;
        assert!(taken_off.abs_diff(Duration::from_millis(512)) < Duration::from_micros(1));
        assert_eq!(of("redlock://a?drift=0%,0ms").validity(ten), ten, "never below the margin");
    }

    #[test]
    fn half_of_the_shortest_ttl_is_left() {
        for (drift, shortest_ms) in [
            ("1%,2ms", 100),
            ("1%,100ms", 205),
            ("0%,3000ms", 6000),
            ("40%,10ms", 100),
            ("50%,0ms", 100),
        ] {
            let config = config(&format!("redlock://a?drift={drift}")).expect("good");
            let shortest = *config.ttl().start();
            assert_eq!(shortest, Duration::from_millis(shortest_ms), "{drift}");
            let counts = config.drift.validity(shortest);
            assert!(
                counts - timing::margin(counts) >= shortest.mul_f64(0.49),
                "{drift}: {counts:?}"
            );
        }
    }

    #[test]
    fn warns_of_numbers_that_are_no_better_than_fewer() {
        let odd = |url: &str| config(url).expect("good").odd_number().is_some();
        assert!(odd("redlock://a") && odd("redlock://a,b") && odd("redlock://a,b,c,d"));
        assert!(!odd("redlock://a,b,c") && !odd("redlock://a,b,c,d,e"));
    }

    #[test]
    fn refuses_what_it_cannot_mean() {
        for bad in [
            "redlock://a,a,b",
            "redlock://u:p@a,u:p@b,u:p@c",
            "redlock://a,b,c?max_ttl=5s&skew=6s",
            "redlock://a,b,c?amnesia=maybe",
            "redlock://a,b,c?drift=2",
            "redlock://a,b,c?drift=99%",
            "redlock://a,b,c?drift=50%",
            "redlock://a,b,c?drift=30001ms",
            "redlock://a,b,c?drift=18446744073709551615ms",
            "redlock://a,b,c?max_ttl=0s",
            "redlock://a,b,c?max_ttl=500ms",
            "redlock://a,b,c?ca=/x",
            "redlock://a,b,c?replicas=1",
            "redlock://a:x,b,c",
        ] {
            assert_eq!(config(bad).expect_err(bad).kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn nothing_that_can_be_written_panics_or_shows_a_password() {
        written::assert_read_well(super::super::SCHEME.names, |url| {
            let config = Config::from_url(url)?;
            Ok(format!("{config:?} {} {:?}", config.location(), config.ttl()))
        });
    }
}
