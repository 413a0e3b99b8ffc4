//! What is held and who waits, for people.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use redis::Value;

use super::{
    answers::{self, Answers},
    client::Client,
    keys::Slot,
    node::Link,
    script::LETTERS,
    wire::Call,
};
use crate::{
    Error, Fence, Mode, Name, Token,
    store::{Break, Broken, HeldView, LockView, Query, WaiterView, timing::HANDED_MAX},
};

/// How many keys a SCAN is to look at in one go.
pub(super) const SCAN_COUNT: usize = 1_000;

/// How many names are looked at in one call.
const LOOK_MAX: usize = 64;

impl Client {
    pub(super) async fn inspect(&self, query: &Query) -> Result<Vec<LockView>, Error> {
        let (names, misused) = match query {
            Query::Name(name) => {
                self.keys.reserved().check(name)?;
                (vec![name.clone()], Misused::Fail)
            }
            Query::Prefix { prefix, after, .. } => {
                let mut names = self.scan(prefix).await?;
                names.retain(|name| after.as_ref().is_none_or(|after| name > after));
                (names, Misused::Show)
            }
        };
        let mut views = Vec::new();
        for some in names.chunks(LOOK_MAX) {
            views.extend(self.look(some, misused).await?);
            if let Query::Prefix { limit, .. } = query
                && views.len() >= *limit
            {
                views.truncate(*limit);
                break;
            }
        }
        Ok(views)
    }

    /// Names that begin with something and have a key, sorted.
    async fn scan(&self, prefix: &str) -> Result<Vec<Name>, Error> {
        let wanted = format!("{}{}*", glob(self.keys.prefix()), glob(prefix));
        let side = self.keys.any_side();
        let patterns = [format!("{side}h:{wanted}"), format!("{side}q:{wanted}"), wanted];
        // With no prefix at all, keys of any kind may be data: locks of ours are strings.
        let is_bare = self.keys.prefix().is_empty();
        let mut names = Vec::new();
        for node in self.servers().primaries() {
            let link = node.link()?;
            for pattern in &patterns {
                let is_lock_key = pattern == &patterns[2];
                let mut scan = Scan::new(pattern).strings_only(is_bare && is_lock_key);
                while let Some(found) = scan.next(&link).await? {
                    names.extend(found.iter().filter_map(|key| self.keys.name_of_any(key)));
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    async fn look(&self, names: &[Name], misused: Misused) -> Result<Vec<LockView>, Error> {
        let mut slots: BTreeMap<Slot, Vec<&Name>> = BTreeMap::new();
        for name in names {
            slots.entry(self.keys.slot(name)).or_default().push(name);
        }
        let mut views = Vec::new();
        for (slot, names) in slots {
            let mut call = Call::new(&self.keys, slot);
            for name in &names {
                call.look(name);
            }
            let mut answers = Answers::new(self.call(slot, &call).await?)?;
            for name in names {
                if misused == Misused::Show && answers.skip_misused() {
                    views.push(unreadable(name));
                    continue;
                }
                let view = room(&mut answers, name, Ended::Hide);
                let mut view = view.map_err(|error| about(name, &error))?;
                if misused == Misused::Show && self.keys.prefix().is_empty() {
                    // With no prefix at all, locks of other libraries cannot be told from data: only ours are listed.
                    view.holders.retain(|holder| holder.fence != Fence::ZERO);
                }
                if !view.holders.is_empty() || !view.waiters.is_empty() {
                    views.push(view);
                }
            }
        }
        views.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(views)
    }

    pub(super) async fn break_lease(&self, order: &Break) -> Result<Broken, Error> {
        self.keys.reserved().check(&order.name)?;
        let slot = self.keys.slot(&order.name);
        let mut call = Call::new(&self.keys, slot);
        call.break_lease(&order.name, order.now);
        let mut answers = Answers::new(self.call(slot, &call).await?)?;
        let before = room(&mut answers, &order.name, Ended::Show)?;
        Ok(Broken { holders: before.holders })
    }
}

/// What to do with leases that have ended but block their name yet, for the delay that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Show,
    Hide,
}

/// What to do about a name of which a side key holds something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Misused {
    Fail,
    /// Among many names it must not hide the others.
    Show,
}

/// Goes through the keys of one server that match a pattern.
pub(in crate::stores) struct Scan<'a> {
    pattern: &'a str,
    strings_only: bool,
    /// `None` once all were seen.
    cursor: Option<Vec<u8>>,
}

impl<'a> Scan<'a> {
    pub(in crate::stores) fn new(pattern: &'a str) -> Self {
        Self { pattern, strings_only: false, cursor: Some(b"0".to_vec()) }
    }

    /// Leaves out keys of any other kind.
    fn strings_only(self, strings_only: bool) -> Self {
        Self { strings_only, ..self }
    }

    pub(super) fn is_over(&self) -> bool {
        self.cursor.is_none()
    }

    /// The next keys, perhaps none of them; `None` at the end.
    pub(in crate::stores) async fn next(
        &mut self,
        link: &Link,
    ) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let Some(cursor) = self.cursor.take() else { return Ok(None) };
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(self.pattern).arg("COUNT").arg(SCAN_COUNT);
        if self.strings_only {
            scan.arg("TYPE").arg("string");
        }
        let answer = link.command(&scan).await;
        let answer =
            answer.map_err(|error| super::error::of_call(&error, &link.address.to_string()))?;
        let Value::Array(parts) = answer else { return Ok(None) };
        let mut parts = parts.into_iter();
        let (Some(Value::BulkString(next)), Some(Value::Array(found))) =
            (parts.next(), parts.next())
        else {
            return Ok(None);
        };
        self.cursor = Some(next).filter(|next| next != b"0");
        let keys = found.into_iter().filter_map(|key| match key {
            Value::BulkString(key) => Some(key),
            _ => None,
        });
        Ok(Some(keys.collect()))
    }
}

/// A text as a pattern that matches only itself.
pub(in crate::stores) fn glob(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// A name that nobody gets while one of its side keys is in the way: a list without it would pass it off as free.
fn unreadable(name: &Name) -> LockView {
    let who = Arc::from("unreadable: one of its `leaseward:` keys holds something else");
    let holder = HeldView { who, ..foreign("", b"", -1) };
    LockView { name: name.clone(), holders: vec![holder], waiters: Vec::new() }
}

/// Says which of many names cannot be read.
fn about(name: &Name, error: &Error) -> Error {
    let named = Error::new(error.kind(), format!("`{name}` cannot be read: {}", error.message()));
    match error.hint_text() {
        Some(hint) => named.hint(hint),
        None => named,
    }
}

fn room(answers: &mut Answers, name: &Name, ended: Ended) -> Result<LockView, Error> {
    answers.done()?;
    let now_us = answers.number()?.unsigned_abs();
    let kind = String::from_utf8_lossy(&answers.bytes()?).into_owned();
    let left = answers.number()?;
    let (value, owner) = (answers.bytes()?, answers.bytes()?);
    let (records, places) = (answers.list()?, answers.list()?);
    let mut holders: Vec<_> = match kind.as_str() {
        "string" => {
            let lease = lease(&value, left, now_us);
            let record = records.get(1).and_then(|record| recorded(record, left, now_us));
            // What has become of it since, if it is the same lease.
            let is_same =
                |(token, _): &(Token, _)| lease.as_ref().is_some_and(|(own, _)| own == token);
            let ours = record.filter(is_same).or(lease.clone());
            vec![ours.map_or_else(|| foreign(&kind, &value, left), |(_, view)| view)]
        }
        "none" if records.first().is_some_and(Vec::is_empty) => {
            let record = recorded(&records[1], 0, now_us).filter(|_| ended == Ended::Show);
            record.into_iter().map(|(_, view)| view).collect()
        }
        // Without the key their time is over, whatever their records say.
        "none" | "several" => records
            .chunks_exact(2)
            .filter_map(|pair| shared(&pair[0], &pair[1], now_us))
            .map(|view| match kind.as_str() {
                "none" => HeldView { remaining: Some(Duration::ZERO), ..view },
                _ => view,
            })
            .filter(|view| ended == Ended::Show || view.remaining != Some(Duration::ZERO))
            .collect(),
        _ => vec![foreign(&kind, &owner, left)],
    };
    holders.sort_by_key(|holder| holder.fence);
    let waiters = places.chunks_exact(2).filter_map(|place| waiter(&place[0], &place[1], now_us));
    Ok(LockView { name: name.clone(), holders, waiters: waiters.collect() })
}

/// The fields of a record, and the value behind them.
fn fields(record: &[u8]) -> Option<(Vec<&str>, &[u8])> {
    let end = record.iter().position(|b| *b == b'\n')?;
    let head = std::str::from_utf8(&record[..end]).ok()?;
    Some((head.split(' ').collect(), &record[end + 1..]))
}

/// An exclusive lease by what its lock key holds, and whose it is.
fn lease(held: &[u8], left: i64, now_us: u64) -> Option<(Token, HeldView)> {
    let end = held.iter().position(|b| *b == b'\n')?;
    let token: Token = std::str::from_utf8(&held[..end]).ok()?.parse().ok()?;
    let (fields, value) = fields(&held[end + 1..])?;
    let [first, fence, count, since] = *fields.as_slice() else { return None };
    let (_letter, ttl) = first.split_at_checked(1)?;
    let fence = fence_of(fence, count.parse().ok()?)?;
    let (ttl_ms, since_us) = (ttl.parse().ok()?, since.parse().ok()?);
    let held = Duration::from_micros(now_us.saturating_sub(since_us));
    let view = exclusive(&token, fence, ttl_ms, answers::time_left(left), held, value);
    Some((token, view))
}

/// The same by the record beside it.
fn recorded(record: &[u8], left: i64, now_us: u64) -> Option<(Token, HeldView)> {
    let end = record.iter().position(|b| *b == b'\n')?;
    let head = std::str::from_utf8(&record[..end]).ok()?;
    // The identity in a token may have spaces.
    let parts: Vec<_> = head.splitn(6, ' ').collect();
    let [first, fence, _, _, since, token] = *parts.as_slice() else { return None };
    let (letter, ttl) = first.split_at_checked(1)?;
    let token: Token = token.parse().ok()?;
    let (ttl_ms, since_us) = (ttl.parse().ok()?, since.parse().ok()?);
    let held = Duration::from_micros(now_us.saturating_sub(since_us));
    let fence = Fence::new(fence.parse().ok()?);
    let left = answers::time_left(left);
    let view = exclusive(&token, fence, ttl_ms, left, held, &record[end + 1..]);
    Some((token, HeldView { ending: !matches!(letter, "s" | "d"), ..view }))
}

fn exclusive(
    token: &Token,
    fence: Fence,
    ttl_ms: u64,
    remaining: Option<Duration>,
    held: Duration,
    value: &[u8],
) -> HeldView {
    HeldView {
        who: token.who().clone(),
        token_prefix: token.prefix(),
        mode: Mode::Exclusive,
        fence,
        slot: None,
        ttl: Duration::from_millis(ttl_ms),
        remaining,
        held,
        value: answers::value_from(value),
        ending: false,
    }
}

/// A fence as a lock key has it: digits, and for one of a run two letters that say how many are before it.
fn fence_of(text: &str, count: u64) -> Option<Fence> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let first: u64 = digits.parse().ok()?;
    let letter = |letter: u8| u64::from(letter).checked_sub(u64::from(b'@'));
    let before = match text.as_bytes()[digits.len()..] {
        [] => 0,
        [high, low] => letter(high)? * LETTERS + letter(low)?,
        _ => return None,
    };
    before.checked_mul(count).and_then(|before| first.checked_add(before)).map(Fence::new)
}

fn shared(token: &[u8], record: &[u8], now_us: u64) -> Option<HeldView> {
    let token: Token = std::str::from_utf8(token).ok()?.parse().ok()?;
    let (fields, value) = fields(record)?;
    let [letter, mode, cap, slot, ttl, first, _, _, since, expires] = *fields.as_slice() else {
        return None;
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let (expires, since) = (number(expires)?, number(since)?);
    Some(HeldView {
        who: token.who().clone(),
        token_prefix: token.prefix(),
        mode: answers::mode_from(mode, cap.parse().unwrap_or(0)),
        fence: Fence::new(number(first).unwrap_or(0)),
        slot: slot.parse().ok(),
        ttl: Duration::from_millis(number(ttl).unwrap_or(0)),
        remaining: Some(Duration::from_micros(expires.saturating_sub(now_us))),
        held: Duration::from_micros(now_us.saturating_sub(since)),
        value: answers::value_from(value),
        ending: letter != "s",
    })
}

/// Somebody else's lease: no fence, no beginning, perhaps no end. Of its value, which is a secret, only a beginning is
/// shown.
fn foreign(kind: &str, owner: &[u8], left: i64) -> HeldView {
    let shown = owner.iter().take(8).map(|b| match b {
        b' '..=b'~' => char::from(*b),
        _ => '.',
    });
    HeldView {
        who: answers::stranger(kind),
        token_prefix: shown.collect(),
        mode: Mode::Exclusive,
        fence: Fence::ZERO,
        slot: None,
        ttl: answers::time_left(left).unwrap_or_default(),
        remaining: answers::time_left(left),
        held: Duration::ZERO,
        value: None,
        ending: false,
    }
}

fn waiter(token: &[u8], record: &[u8], now_us: u64) -> Option<WaiterView> {
    let token: Token = std::str::from_utf8(token).ok()?.parse().ok()?;
    let (fields, _) = fields(record)?;
    let [mode, cap, ttl, _, _, since, seen, _] = *fields.as_slice() else { return None };
    let (since, seen): (u64, u64) = (since.parse().ok()?, seen.parse().ok()?);
    let lasts = Duration::from_millis(ttl.parse().ok()?).min(HANDED_MAX);
    (Duration::from_micros(now_us.saturating_sub(seen)) < lasts).then(|| WaiterView {
        who: token.who().clone(),
        token_prefix: token.prefix(),
        mode: answers::mode_from(mode, cap.parse().unwrap_or(0)),
        waited: Duration::from_micros(now_us.saturating_sub(since)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_of_a_run_follow_each_other() {
        let fence = |text, count| fence_of(text, count).map(Fence::get);
        assert_eq!(fence("1794813737088715", 3), Some(1_794_813_737_088_715));
        assert_eq!(fence("100@@", 3), Some(100));
        assert_eq!(fence("100@A", 3), Some(103));
        assert_eq!(fence("100@~", 1), Some(100 + LETTERS - 1));
        assert_eq!(fence("100A@", 1), Some(100 + LETTERS));
        for nonsense in ["", "@@", "100@", "100@@@", "100 !", "x"] {
            assert_eq!(fence(nonsense, 1), None, "{nonsense}");
        }
    }
}
