//! Where names are, what nodes are called, and what follows from who stands in the line. Pure.
//!
//! A name is a container node `<root>/<escaped name>`; each place in its line is an ephemeral child with a number that the
//! server gives: `<token>__lock__<number>` for one who wants it alone, `<token>__rlock__<number>` for a reader (kazoo's
//! names for both, so each excludes the other), `<token>-<capacity>__lock__<number>` for a permit. Who holds a permit also
//! has `slot-<n>`. The mode is in the name, so the list of children tells all there is to decide.

use crate::{Mode, Name, Token};

/// The node that says what fences are counted from. No escaped name begins with a full stop.
pub(super) const FENCES: &str = ".leaseward";

/// The node that a session writes to in transactions, whose numbers it learns so.
pub(super) fn witness(session: i64) -> String {
    format!("{FENCES}-{session:x}")
}

const EXCLUSIVE: &str = "__lock__";
const SHARED: &str = "__rlock__";
/// Curator's readers.
const CURATORS_READER: &str = "__READ__";
const SLOT: &str = "slot-";

/// The name of a name's node.
pub(super) fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for (at, c) in name.char_indices() {
        let is_plain = match c {
            '%' | '/' => false,
            '.' => at > 0,
            // `/zookeeper` is the server's own.
            'z' => at > 0 || name != "zookeeper",
            // What the server allows in paths; outside the basic plane it sees halves of characters, which it refuses.
            ' '..='~' | '\u{a0}'..='\u{d7ff}' => true,
            _ => false,
        };
        if is_plain {
            escaped.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    escaped
}

/// The name of which this is the node, if it is one of ours.
pub(super) fn unescape(node: &str) -> Option<Name> {
    let url = crate::store::StoreUrl {
        scheme: String::new(),
        rest: node.to_owned(),
        settings: Vec::new(),
    };
    Name::new(url.path()).ok().filter(|name| escape(name) == node)
}

/// The beginning of the name of a token's node.
pub(super) fn stem(token: &Token, mode: Mode) -> String {
    let digits = format!("{:032x}", token.random());
    match mode {
        Mode::Exclusive => format!("{digits}{EXCLUSIVE}"),
        Mode::Shared => format!("{digits}{SHARED}"),
        Mode::Permit { capacity } => format!("{digits}-{capacity}{EXCLUSIVE}"),
    }
}

pub(super) fn slot_node(slot: u32) -> String {
    format!("{SLOT}{slot}")
}

/// A place in the line, read from the name of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    pub(super) node: String,
    pub(super) number: i32,
    pub(super) mode: Mode,
    /// The token's random part; `None` of a node that is not ours.
    pub(super) random: Option<u128>,
}

fn contender(node: &str) -> Option<Contender> {
    // The server writes ten digits, and after two thousand million a sign before them.
    let (stem, digits) = node.split_at_checked(node.len().checked_sub(10)?)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (stem, number) = match stem.strip_suffix("_-").filter(|_| stem.contains("__")) {
        Some(_) => (&stem[..stem.len() - 1], format!("-{digits}")),
        None => (stem, digits.to_owned()),
    };
    let number = number.parse().ok()?;
    let of = |mode, random| Some(Contender { node: node.to_owned(), number, mode, random });
    if let Some(digits) = stem.strip_suffix(SHARED) {
        return of(Mode::Shared, random(digits));
    }
    if stem.contains(CURATORS_READER) {
        return of(Mode::Shared, None);
    }
    let Some(own) = stem.strip_suffix(EXCLUSIVE) else { return of(Mode::Exclusive, None) };
    match own.split_once('-').map(|(digits, capacity)| (random(digits), capacity.parse())) {
        Some((Some(random), Ok(capacity))) => of(Mode::Permit { capacity }, Some(random)),
        _ => of(Mode::Exclusive, random(own)),
    }
}

fn random(digits: &str) -> Option<u128> {
    let is_plain = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_plain.then(|| u128::from_str_radix(digits, 16).ok()).flatten()
}

/// Who stands in a name's line.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// In the order in which they came.
    line: Vec<Contender>,
    /// The slots that are taken.
    slots: Vec<u32>,
}

/// How one who stands in the line stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// It has the name.
    Holds,
    Waits(Blocked),
    /// The name is held as a semaphore of another size.
    OtherCapacity(u32),
    /// It does not stand in the line.
    Missing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    /// What to watch.
    pub(super) watch: Watch,
    /// The node of one who has the name.
    pub(super) holder: String,
    /// How many wait before.
    pub(super) ahead: u32,
    pub(super) holder_mode: Mode,
}

/// What has to change before it can be our turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// This node has to go; if it is the last one in the way, it is our turn then.
    Node { node: String, is_last: bool },
    /// Any holder of a permit has to go.
    Any,
}

impl Queue {
    pub(super) fn read(children: &[String]) -> Self {
        let mut line: Vec<Contender> = children.iter().filter_map(|node| contender(node)).collect();
        // Numbers turn negative after two thousand million; those in one line are near each other.
        line.sort_by(|a, b| a.number.wrapping_sub(b.number).cmp(&0));
        let slots = children.iter().filter_map(|node| node.strip_prefix(SLOT)?.parse().ok());
        Self { line, slots: slots.collect() }
    }

    pub(super) fn line(&self) -> &[Contender] {
        &self.line
    }

    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// The node of a token.
    pub(super) fn find(&self, token: &Token) -> Option<&Contender> {
        self.line.iter().find(|contender| contender.random == Some(token.random()))
    }

    /// How many at the beginning of the line have the name.
    pub(super) fn holders(&self) -> usize {
        let Some(first) = self.line.first() else { return 0 };
        let most = match first.mode {
            Mode::Exclusive => 1,
            Mode::Shared => usize::MAX,
            Mode::Permit { capacity } => usize::try_from(capacity).unwrap_or(usize::MAX),
        };
        self.line.iter().take(most).take_while(|next| next.mode == first.mode).count()
    }

    /// How many wait.
    pub(super) fn waiters(&self) -> u32 {
        u32::try_from(self.line.len() - self.holders()).unwrap_or(u32::MAX)
    }

    /// Why somebody who does not stand in the line yet could not have the name; `None` if it could.
    pub(super) fn refuses(&self, mode: Mode) -> Option<Stand> {
        let mut with = self.line.clone();
        let number = self.line.last().map_or(0, |last| last.number.wrapping_add(1));
        with.push(Contender { node: String::new(), number, mode, random: None });
        // Those before it have their slots, or will.
        let slots = (0..).take(self.line.len()).collect();
        let with = Self { line: with, slots };
        Some(with.stand("")).filter(|stand| *stand != Stand::Holds)
    }

    /// The smallest slot that nobody has and that was not tried.
    pub(super) fn free_slot(&self, capacity: u32, tried: &[u32]) -> Option<u32> {
        let mut taken: Vec<u32> = self.slots.iter().chain(tried).copied().collect();
        taken.sort_unstable();
        taken.dedup();
        let free = taken.iter().zip(0..).find(|(slot, at)| **slot != *at).map(|(_, at)| at);
        free.or_else(|| u32::try_from(taken.len()).ok()).filter(|slot| *slot < capacity)
    }

    /// How a node stands.
    pub(super) fn stand(&self, node: &str) -> Stand {
        let Some(at) = self.line.iter().position(|contender| contender.node == node) else {
            return Stand::Missing;
        };
        let holders = self.holders();
        if at < holders && !self.is_early(at) {
            return Stand::Holds;
        }
        let (own, first) = (self.line[at].mode, &self.line[0]);
        if let (Mode::Permit { capacity: asked }, Mode::Permit { capacity }) = (own, first.mode)
            && asked != capacity
        {
            return Stand::OtherCapacity(capacity);
        }
        Stand::Waits(Blocked {
            watch: self.watch(at),
            holder: first.node.clone(),
            holder_mode: first.mode,
            ahead: u32::try_from(at.saturating_sub(holders)).unwrap_or(u32::MAX),
        })
    }

    /// Whether somebody before it has a permit and no slot yet. Slots are taken in the order of the line, so that the fences
    /// of those who have a slot one after the other grow: who has one are the first of the line, and as many as slots.
    fn is_early(&self, at: usize) -> bool {
        matches!(self.line[at].mode, Mode::Permit { .. }) && at > self.slots.len()
    }

    fn watch(&self, at: usize) -> Watch {
        let before = &self.line[..at];
        let own = self.line[at].mode;
        let node =
            |contender: &Contender, is_last| Watch::Node { node: contender.node.clone(), is_last };
        match own {
            Mode::Exclusive => node(&before[at - 1], at == 1),
            Mode::Shared | Mode::Permit { .. } => {
                let mut in_the_way = before.iter().rev().filter(|other| other.mode != own);
                match (in_the_way.next(), own) {
                    // Permits before it may be as many as there are: then that is not all.
                    (Some(nearest), Mode::Shared) => node(nearest, in_the_way.next().is_none()),
                    (Some(nearest), _) => node(nearest, false),
                    // Only permits are before it. The first who waits needs any of them to go; those behind are told
                    // when the one before them has come in.
                    (None, _) if at == self.holders() => Watch::Any,
                    (None, _) => node(&before[at - 1], false),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef";

    fn queue(nodes: &[&str]) -> Queue {
        Queue::read(&nodes.iter().map(|&node| node.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_never_meet() {
        let names = [
            "a",
            "a/b",
            "a%2Fb",
            ".",
            "..",
            "%2E",
            ".leaseward",
            "zookeeper",
            "zookeeper2",
            "früh stück",
            "日本",
            "🔒",
            "a b",
            "slot-1",
        ];
        let mut seen = std::collections::HashSet::new();
        for name in names {
            let escaped = escape(name);
            assert!(!escaped.contains('/') && !escaped.starts_with('.'), "{escaped}");
            assert_ne!(escaped, "zookeeper");
            assert_eq!(unescape(&escaped).expect("ours").as_str(), name);
            assert!(seen.insert(escaped));
        }
        assert_eq!(escape("früh stück:42"), "früh stück:42");
        for foreign in [".leaseward", "%61", "zookeeper"] {
            assert_eq!(unescape(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn reads_its_own_nodes_and_others() {
        let token = Token::new(u128::from_str_radix(HEX, 16).expect("hex"), Arc::from("h:1"));
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { capacity: 3 }] {
            let node = format!("{}0000000007", stem(&token, mode));
            let read = contender(&node).expect("one of ours");
            assert_eq!((read.number, read.mode, read.random), (7, mode, Some(token.random())));
        }
        for (foreign, mode) in [
            ("x-72057594037927936-0000000003", Mode::Exclusive),
            ("_c_5f1b-lock-0000000003", Mode::Exclusive),
            ("_c_5f1b-__READ__0000000003", Mode::Shared),
            ("guess__lock__0000000003", Mode::Exclusive),
            ("guess__rlock__0000000003", Mode::Shared),
            ("lock-0000000003", Mode::Exclusive),
        ] {
            let read = contender(foreign).expect("a place");
            assert_eq!((read.number, read.mode, read.random), (3, mode, None), "{foreign}");
        }
        for other in ["slot-3", "readme", "", "12345"] {
            assert_eq!(contender(other), None, "{other}");
        }
    }

    #[test]
    fn numbers_may_wrap() {
        let last = format!("{HEX}__lock__2147483647");
        let next = format!("{HEX}__lock__-2147483648");
        assert_eq!(contender(&next).map(|next| next.number), Some(i32::MIN));
        assert_eq!(queue(&[&next, &last]).stand(&last), Stand::Holds);
    }

    #[test]
    fn one_alone_waits_for_the_one_before() {
        let line = queue(&["c__lock__0000000003", "a__lock__0000000001", "b__lock__0000000002"]);
        assert_eq!((line.holders(), line.waiters()), (1, 2));
        assert_eq!(line.stand("a__lock__0000000001"), Stand::Holds);
        let Stand::Waits(second) = line.stand("b__lock__0000000002") else { panic!("it waits") };
        let watch = Watch::Node { node: "a__lock__0000000001".into(), is_last: true };
        assert_eq!((second.watch, second.ahead), (watch, 0));
        let Stand::Waits(third) = line.stand("c__lock__0000000003") else { panic!("it waits") };
        let watch = Watch::Node { node: "b__lock__0000000002".into(), is_last: false };
        assert_eq!((third.watch, third.ahead), (watch, 1));
        assert_eq!(line.stand("d__lock__0000000004"), Stand::Missing);
    }

    #[test]
    fn readers_wait_for_writers_only() {
        let nodes = [
            "a__rlock__0000000001",
            "b__rlock__0000000002",
            "c__lock__0000000003",
            "d__rlock__0000000004",
        ];
        let line = queue(&nodes);
        assert_eq!(line.holders(), 2);
        let Stand::Waits(writer) = line.stand(nodes[2]) else { panic!("it waits") };
        assert_eq!(writer.watch, Watch::Node { node: nodes[1].into(), is_last: false });
        let Stand::Waits(reader) = line.stand(nodes[3]) else { panic!("it waits") };
        assert_eq!(reader.watch, Watch::Node { node: nodes[2].into(), is_last: true });
        assert!(line.refuses(Mode::Shared).is_some(), "a reader behind a waiting writer waits");
        assert!(queue(&nodes[..2]).refuses(Mode::Shared).is_none());
    }

    #[test]
    fn permits_go_by_their_place() {
        let nodes: Vec<String> =
            (1..6).map(|at| format!("{HEX}-2__lock__{at:010}")).chain(["slot-1".into()]).collect();
        let line = Queue::read(&nodes);
        assert_eq!((line.holders(), line.waiters()), (2, 3));
        assert_eq!(line.stand(&nodes[1]), Stand::Holds);
        let Stand::Waits(early) = Queue::read(&nodes[..5]).stand(&nodes[1]) else {
            panic!("the one before it has no slot yet")
        };
        assert_eq!(early.watch, Watch::Node { node: nodes[0].clone(), is_last: false });
        assert!(queue(&[]).refuses(Mode::Permit { capacity: 2 }).is_none());
        assert!(Queue::read(&nodes[..1]).refuses(Mode::Permit { capacity: 2 }).is_none());
        assert_eq!((line.free_slot(2, &[]), line.free_slot(2, &[0])), (Some(0), None));
        let Stand::Waits(third) = line.stand(&nodes[2]) else { panic!("it waits") };
        assert_eq!(third.watch, Watch::Any);
        let Stand::Waits(fourth) = line.stand(&nodes[3]) else { panic!("it waits") };
        assert_eq!(fourth.watch, Watch::Node { node: nodes[2].clone(), is_last: false });
        let other = line.refuses(Mode::Permit { capacity: 3 });
        assert_eq!(other, Some(Stand::OtherCapacity(2)));
    }
}
