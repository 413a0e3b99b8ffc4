//! How a server is set up, and how it does: memory, disk, replicas.

use std::collections::HashMap;

use redis::Pipeline;

use super::{
    super::{
        config::{Address, Strong},
        probe::{self, Persistence, Probe},
    },
    finding,
};
use crate::store::{Finding, Severity};

/// Above this share of its memory a server is about to refuse new leases, or to evict old ones.
const MEMORY_SHARE_MAX: f64 = 0.9;

/// A replica acknowledges once a second; one that is silent for longer than a few of them is cut off.
const SILENT_MAX_S: u64 = 5;

/// About what a busy server writes in a few milliseconds: one that is further behind does not keep up.
const BEHIND_MAX_BYTES: u64 = 1 << 20;

/// What [`Facts`] are made of.
pub(in crate::stores) fn questions() -> Pipeline {
    let mut questions = redis::pipe();
    for section in ["memory", "persistence", "replication"] {
        questions.cmd("INFO").arg(section);
    }
    questions.cmd("CONFIG").arg("GET").arg("min-replicas-to-write");
    questions
}

/// What is known about a server; what it does not say is `None`.
#[derive(Debug)]
pub(in crate::stores) struct Facts {
    memory: Option<Memory>,
    persistence: Persistence,
    /// What it last failed to write to its disk.
    failed_write: Option<&'static str>,
    pub(super) replicas: Vec<Replica>,
    knows_replicas: bool,
    replicas_min: Option<u32>,
}

#[derive(Debug)]
struct Memory {
    /// What counts against the limit.
    used: u64,
    /// Zero for no limit.
    max: u64,
    policy: String,
}

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) address: Address,
    is_online: bool,
    behind_bytes: u64,
    silent_s: u64,
}

impl Replica {
    fn keeps_up(&self) -> bool {
        self.is_online && self.behind_bytes <= BEHIND_MAX_BYTES && self.silent_s <= SILENT_MAX_S
    }
}

impl Facts {
    pub(in crate::stores) fn read(answers: &[redis::Value], probe: &Probe) -> Self {
        let [memory, disk, replication, settings] = answers else {
            unreachable!("BUG: a server answers every question");
        };
        let (disk, replication) = (probe::fields(disk), probe::fields(replication));
        let is_bad = |key: &str| disk.get(key).is_some_and(|status| status == "err");
        let failed_write = if is_bad("aof_last_write_status") {
            Some("its append-only file")
        } else if is_bad("rdb_last_bgsave_status") {
            Some("its last snapshot")
        } else {
            None
        };
        Self {
            memory: memory_of(&probe::fields(memory)),
            persistence: probe.persistence,
            failed_write,
            replicas: replicas(&replication),
            knows_replicas: !replication.is_empty(),
            replicas_min: probe::pairs(settings)
                .get("min-replicas-to-write")
                .and_then(|text| text.parse().ok()),
        }
    }
}

fn memory_of(info: &HashMap<String, String>) -> Option<Memory> {
    let number = |key: &str| info.get(key)?.parse::<u64>().ok();
    let policy = info.get("maxmemory_policy")?.clone();
    let (used, max) = (number("used_memory")?, number("maxmemory")?);
    // What waits for replicas and for the append-only file does not count; older servers do not tell it.
    let uncounted = number("mem_not_counted_for_evict").unwrap_or(0);
    Some(Memory { used: used.saturating_sub(uncounted), max, policy })
}

/// The lines `slave0:ip=…,port=…,state=online,offset=…,lag=…`.
fn replicas(info: &HashMap<String, String>) -> Vec<Replica> {
    let offset: u64 =
        info.get("master_repl_offset").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut found: Vec<_> = info
        .iter()
        .filter(|(key, value)| key.starts_with("slave") && value.contains("ip="))
        .filter_map(|(_, line)| {
            let pairs: HashMap<_, _> =
                line.split(',').filter_map(|pair| pair.split_once('=')).collect();
            let number = |key: &str| pairs.get(key).and_then(|text| text.parse::<u64>().ok());
            let port = u16::try_from(number("port")?).ok()?;
            Some(Replica {
                address: Address::Tcp((*pairs.get("ip")?).to_owned(), port),
                is_online: pairs.get("state") == Some(&"online"),
                behind_bytes: offset.saturating_sub(number("offset").unwrap_or(0)),
                silent_s: number("lag").unwrap_or(0),
            })
        })
        .collect();
    found.sort_by(|a, b| a.address.cmp(&b.address));
    found
}

pub(in crate::stores) fn judge(facts: &Facts, strong: Option<Strong>) -> Vec<Finding> {
    let findings = [
        eviction(facts),
        memory(facts),
        disk(facts),
        persistence(facts, strong),
        too_few(facts, strong),
        lag(facts, strong),
        writes_alone(facts, strong),
        silence(facts),
    ];
    findings.into_iter().flatten().collect()
}

/// Of a server whose neighbours do not depend on it alone: what it keeps over a restart is not asked.
pub(in crate::stores) fn judge_one_of_several(facts: &Facts) -> Vec<Finding> {
    let findings = [eviction(facts), memory(facts), disk(facts), silence(facts)];
    findings.into_iter().flatten().collect()
}

fn eviction(facts: &Facts) -> Option<Finding> {
    let memory = facts.memory.as_ref().filter(|memory| memory.policy != "noeviction")?;
    let what = format!("`maxmemory-policy` is `{}`", memory.policy);
    Some(if memory.max == 0 {
        finding(
            Severity::Note,
            what,
            "it does nothing while there is no `maxmemory`; with one, locks could be thrown away while they are held",
            "set `maxmemory-policy noeviction` before somebody sets `maxmemory`",
        )
    } else {
        finding(
            Severity::Danger,
            format!("{what} with a `maxmemory` of {} MiB", memory.max >> 20),
            "when memory runs out the server throws keys away, locks that are held among them (every lock has an \
             expiry, so `volatile-…` takes them too): a second holder then gets the lock",
            "set `maxmemory-policy noeviction`, or keep locks on a server that is no cache",
        )
    })
}

fn memory(facts: &Facts) -> Option<Finding> {
    let memory = facts.memory.as_ref().filter(|memory| memory.max > 0)?;
    #[expect(clippy::cast_precision_loss, reason = "a share in per cent")]
    let share = memory.used as f64 / memory.max as f64;
    let advice = "raise `maxmemory`, or find out what fills it: `redis-cli --bigkeys`";
    if share >= 1.0 {
        let meaning = if memory.policy == "noeviction" {
            "no lease can be taken until memory is freed: the server refuses it"
        } else {
            "the server throws keys away to make room, locks that are held among them; where it finds none to throw \
             away, it refuses new leases"
        };
        let what = format!("`maxmemory` is used up: {} of {}", size(memory.used), size(memory.max));
        return Some(finding(Severity::Danger, what, meaning, advice));
    }
    (share > MEMORY_SHARE_MAX).then(|| {
        finding(
            Severity::Warning,
            // Rounded down: all of it is used only once it is.
            format!("{:.0} % of `maxmemory` are in use", (share * 100.0).floor()),
            "at the limit the server refuses new leases, or throws keys away, by its `maxmemory-policy`",
            advice,
        )
    })
}

/// So many bytes, in a unit that a person reads.
fn size(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

fn disk(facts: &Facts) -> Option<Finding> {
    facts.failed_write.map(|what| {
        finding(
            Severity::Danger,
            format!("the server failed to write {what}"),
            "it refuses writes until it can save again, so leases are neither given nor renewed and run out; or it \
             goes on, and a restart loses them",
            "look for a full disk or missing rights; the server's log says more",
        )
    })
}

fn persistence(facts: &Facts, strong: Option<Strong>) -> Option<Finding> {
    let (what, loses) = match facts.persistence {
        Persistence::Always | Persistence::Unknown => return None,
        Persistence::Appended => {
            return Some(finding(
                Severity::Note,
                "the append-only file is not forced to disk with each write",
                "a crash of the server's process loses nothing; a crash of its machine may take back the last second, \
                 and locks taken in it can then be taken once more",
                "if that matters, set `appendfsync always` and `no-appendfsync-on-rewrite no`; it costs speed",
            ));
        }
        Persistence::Snapshots => {
            ("only snapshots are kept", "a restart loses the locks taken since the last one")
        }
        Persistence::Nothing => ("nothing is kept on disk", "a restart loses every lock"),
    };
    let again = "they can be taken again while their holders are at work";
    let advice = "set `appendonly yes`; `appendfsync always` loses none";
    Some(match strong {
        Some(_) => finding(
            Severity::Danger,
            format!("{what}, and `replicas` is set"),
            &format!(
                "{loses}, and replicas then copy the empty server: what they acknowledged is gone, and {again}"
            ),
            "set `appendonly yes`, or see to it that a primary never restarts by itself",
        ),
        None => finding(Severity::Warning, what, &format!("{loses}; {again}"), advice),
    })
}

fn too_few(facts: &Facts, strong: Option<Strong>) -> Option<Finding> {
    let online = facts.replicas.iter().filter(|replica| replica.is_online).count();
    let online = u32::try_from(online).unwrap_or(u32::MAX);
    let (setting, needed) = match (strong, facts.replicas_min) {
        (Some(strong), _) if facts.knows_replicas && online < strong.replicas => {
            ("`replicas` in the URL", strong.replicas)
        }
        (_, Some(min)) if online < min => ("`min-replicas-to-write`", min),
        _ => return None,
    };
    Some(finding(
        Severity::Danger,
        format!("{setting} is {needed}, and the primary has {online} connected"),
        "no lease can be taken or renewed until there are as many, and those that are held run out",
        "bring the replicas back, or ask for fewer",
    ))
}

fn lag(facts: &Facts, strong: Option<Strong>) -> Option<Finding> {
    let replica = facts.replicas.iter().find(|replica| !replica.keeps_up())?;
    let how = if replica.is_online {
        let Replica { behind_bytes, silent_s, .. } = replica;
        format!("is {behind_bytes} bytes behind and was last heard {silent_s} s ago")
    } else {
        "is connected but still copying".to_owned()
    };
    let meaning = match strong {
        Some(_) => "it does not acknowledge in time, so leases that need it are refused",
        None => {
            "should it take the primary's place, locks it has not heard of are lost and can be taken again"
        }
    };
    Some(finding(
        Severity::Warning,
        format!("the replica at {} {how}", replica.address),
        meaning,
        "look at its load, its disk and the network; `redis-cli INFO replication` shows it too",
    ))
}

fn writes_alone(facts: &Facts, strong: Option<Strong>) -> Option<Finding> {
    (strong.is_none() && !facts.replicas.is_empty() && facts.replicas_min == Some(0)).then(|| {
        finding(
            Severity::Note,
            "there are replicas, and neither `replicas` in the URL nor `min-replicas-to-write` is set",
            "a primary that is cut off goes on giving out leases that are lost when a replica takes its place",
            "`?replicas=N` in the URL has each lease acknowledged first; `min-replicas-to-write 1` shortens the time \
             in which such leases are given out",
        )
    })
}

fn silence(facts: &Facts) -> Option<Finding> {
    let unknown: Vec<_> = [
        (facts.memory.is_none(), "eviction"),
        (facts.persistence == Persistence::Unknown, "persistence"),
        (!facts.knows_replicas, "replicas"),
    ]
    .into_iter()
    .filter_map(|(is_unknown, what)| is_unknown.then_some(what))
    .collect();
    (!unknown.is_empty()).then(|| {
        finding(
            Severity::Note,
            format!("not checked, because the server does not tell: {}", unknown.join(", ")),
            "this user may not ask `INFO` or `CONFIG GET`; what is not known counts as the worst in what is promised",
            "permit `+info +config|get` to check it, or ask whoever runs the server",
        )
    })
}
