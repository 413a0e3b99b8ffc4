//! What this user may not do, or the server has not.

use redis::Value;

use super::{
    super::{
        client::Client,
        config::{Config, Topology},
        error,
        keys::{Keys, channel},
        node::Link,
    },
    finding,
};
use crate::{
    Error, Name,
    store::{Finding, Severity},
};

/// Asks the server itself, which knows its users' rules: needs Redis 7.0, and no right beyond that to run scripts.
const CHECK: &str = include_str!("rights.lua");

/// What a right is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Leases,
    Hearing,
    Watching,
    Ending,
    Listing,
    Checking,
}

impl For {
    const ALL: [Self; 6] =
        [Self::Leases, Self::Hearing, Self::Watching, Self::Ending, Self::Listing, Self::Checking];

    fn meaning(self) -> (Severity, &'static str) {
        match self {
            Self::Leases => {
                (Severity::Danger, "leases cannot be taken, renewed, handed over or given back")
            }
            Self::Hearing => (
                Severity::Warning,
                "who waits is not told that it is its turn, and finds out by asking again some seconds later",
            ),
            Self::Watching => (
                Severity::Warning,
                "who waits for a client of another library is not told of its release, and finds out by asking again",
            ),
            Self::Ending => (
                Severity::Warning,
                "after a broken connection a request that was under way may still be carried out, and hold a name \
                 until its TTL",
            ),
            Self::Listing => (Severity::Warning, "`leaseward ls` and `show` do not work"),
            Self::Checking => {
                (Severity::Note, "the server cannot say what it promises, and less is checked here")
            }
        }
    }
}

/// A command as this store sends it, or its script does.
struct Wanted {
    purpose: For,
    words: Vec<String>,
}

impl Wanted {
    /// What rules for users call it.
    fn name(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|word| word.to_lowercase()).collect();
        match words[0].as_str() {
            container @ ("client" | "config" | "script" | "command") => {
                format!("{container}|{}", words[1])
            }
            command => command.to_owned(),
        }
    }
}

impl Client {
    /// One finding for each purpose that something is missing for.
    pub(super) async fn rights(&self, link: &Link) -> Result<Vec<Finding>, Error> {
        let wanted = wanted(&self.keys, &self.config);
        let mut check = redis::cmd("EVAL");
        check.arg(CHECK).arg(0);
        for Wanted { words, .. } in &wanted {
            check.arg(words.join("\n"));
        }
        let refused = match link.command(&check).await {
            Ok(Value::Array(numbers)) => numbers,
            Ok(_) => return Ok(vec![not_checked("before Redis 7.0 the server cannot tell")]),
            Err(why) if error::code_of(&why) == Some(error::Code::NoPerm) => {
                return Ok(vec![not_checked("`EVAL` is forbidden")]);
            }
            Err(why) => return Err(error::of_call(&why, &link.address.to_string())),
        };
        let refused: Vec<&Wanted> = refused
            .iter()
            .filter_map(|number| match number {
                Value::Int(number) => wanted.get(usize::try_from(number - 1).ok()?),
                _ => None,
            })
            .collect();
        Ok(For::ALL.into_iter().filter_map(|purpose| judge(purpose, &refused)).collect())
    }
}

/// Every command that is ever sent, on keys as they are in use; without WAIT, which strong mode tries when it connects.
fn wanted(keys: &Keys, config: &Config) -> Vec<Wanted> {
    let name = Name::new("doctor").expect("BUG: a good name");
    let lock = keys.lock_key(&name);
    let slot = keys.slot(&name);
    let (fence, side) = (keys.fence_key(slot), keys.side(slot));
    let [h, q, p] = ["h:", "q:", "p:"].map(|kind| format!("{side}{kind}{lock}"));
    let channel = channel("doctor");
    let mut wanted = Vec::new();
    let mut want = |purpose, words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        wanted.push(Wanted { purpose, words });
    };
    for command in [
        &["EVALSHA", "0", "1", &lock][..],
        &["EVAL", "", "1", &lock],
        &["SCRIPT", "LOAD", ""],
        &["TIME"],
        &["GET", &fence],
        &["SET", &fence, "1"],
        &["SET", &lock, "1", "PX", "1"],
        &["SET", &h, "1", "PX", "1"],
        &["MGET", &lock, &h],
        &["EXISTS", &lock, &h, &q],
        &["DEL", &lock, &h],
        &["TYPE", &lock],
        &["PTTL", &lock],
        &["PEXPIRE", &lock, "1"],
        &["SETRANGE", &lock, "0", "a"],
        &["HSET", &h, "a", "b"],
        &["HDEL", &h, "a"],
        &["HGETALL", &h],
        &["RPUSH", &q, "a", "b"],
        &["LPUSH", &q, "b", "a"],
        &["LPOP", &q, "2"],
        &["LLEN", &q],
        &["LRANGE", &q, "0", "1"],
        &["LPOS", &q, "a"],
        &["LINDEX", &q, "1"],
        &["LSET", &q, "1", "b"],
        &["LREM", &q, "2", "a"],
        &["PUBLISH", &channel, "a"],
    ] {
        want(For::Leases, command);
    }
    if matches!(config.topology, Topology::Cluster { .. }) {
        want(For::Leases, &["ASKING"]);
    }
    want(For::Hearing, &["SUBSCRIBE", &channel]);
    want(For::Watching, &["CLIENT", "TRACKING", "ON"]);
    want(For::Watching, &["CLIENT", "CACHING", "YES"]);
    want(For::Ending, &["CLIENT", "ID"]);
    want(For::Ending, &["CLIENT", "KILL", "ID", "1"]);
    want(For::Listing, &["SCAN", "0"]);
    want(For::Leases, &["HMGET", &p, "a"]);
    want(For::Listing, &["HKEYS", &lock]);
    want(For::Listing, &["GETRANGE", &lock, "0", "1"]);
    want(For::Checking, &["INFO"]);
    want(For::Checking, &["ROLE"]);
    want(For::Checking, &["CONFIG", "GET", "save"]);
    want(For::Checking, &["COMMAND", "INFO"]);
    wanted
}

fn judge(purpose: For, refused: &[&Wanted]) -> Option<Finding> {
    let mut names: Vec<_> = refused
        .iter()
        .filter(|wanted| wanted.purpose == purpose)
        .map(|wanted| wanted.name())
        .collect();
    names.dedup();
    let (severity, meaning) = purpose.meaning();
    (!names.is_empty()).then(|| {
        finding(
            severity,
            format!("this user may not, or the server cannot: `{}`", names.join("`, `")),
            meaning,
            "permit it; docs/stores/redis.md has the whole line for an ACL",
        )
    })
}

fn not_checked(why: &str) -> Finding {
    finding(
        Severity::Note,
        format!("the rights of this user were not checked: {why}"),
        "a command that is forbidden to it shows only when it is needed",
        "compare them with the line in docs/stores/redis.md",
    )
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::script::{CAREFUL, PLAIN},
        *,
    };
    use crate::store::StoreUrl;

    #[test]
    fn everything_the_scripts_do_is_asked_for() {
        let url = StoreUrl::parse("redis:").expect("a URL");
        let config = Config::from_url(&url).expect("good");
        let wanted = wanted(&Keys::new("lock:".into(), false), &config);
        for (script, calls) in [(&CAREFUL, "call('"), (&PLAIN, "try('")] {
            let mut many = 0;
            for part in script.text.split(calls).skip(1) {
                let command = part.split('\'').next().unwrap_or_default();
                let is_known = wanted.iter().any(|wanted| wanted.words[0] == command);
                assert!(is_known, "`{command}` is missing here, and in docs/stores/redis.md");
                many += 1;
            }
            assert!(many > 20, "the script is not read: {many}");
        }
    }
}
