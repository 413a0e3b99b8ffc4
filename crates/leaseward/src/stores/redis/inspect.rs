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
        let mut patterns = vec![format!("{side}h:{wanted}"), format!("{side}q:{wanted}")];
        // With no prefix at all, locks of other libraries cannot be told from data: then only ours are listed.
        if !self.keys.prefix().is_empty() {
            patterns.push(wanted);
        }
        let mut names = Vec::new();
        for node in self.servers().primaries() {
            let link = node.link()?;
            for pattern in &patterns {
                let mut scan = Scan::new(pattern);
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
                let view = view.map_err(|error| about(name, &error))?;
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
    /// `None` once all were seen.
    cursor: Option<Vec<u8>>,
}

impl<'a> Scan<'a> {
    pub(in crate::stores) fn new(pattern: &'a str) -> Self {
        Self { pattern, cursor: Some(b"0".to_vec()) }
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
            let record = records.get(1).and_then(|record| exclusive(record, left, now_us));
            let ours = record.filter(|(token, _)| token.as_bytes() == value);
            vec![ours.map_or_else(|| foreign(&kind, &value, left), |(_, view)| view)]
        }
        "none" if records.first().is_some_and(Vec::is_empty) => {
            let record = exclusive(&records[1], 0, now_us).filter(|_| ended == Ended::Show);
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

/// An exclusive lease by its record, and whose it is.
fn exclusive(record: &[u8], left: i64, now_us: u64) -> Option<(String, HeldView)> {
    let end = record.iter().position(|b| *b == b'\n')?;
    let head = std::str::from_utf8(&record[..end]).ok()?;
    let mut parts = head.splitn(6, ' ');
    let (first, fence, count) = (parts.next()?, parts.next()?, parts.next()?);
    let fence = fence_of(fence, count.parse().ok()?)?;
    let (letter, ttl) = first.split_at_checked(1)?;
    let since: u64 = parts.nth(1)?.parse().ok()?;
    let owner = parts.next()?;
    let token: Token = owner.parse().ok()?;
    let view = HeldView {
        who: token.who().clone(),
        token_prefix: token.prefix(),
        mode: Mode::Exclusive,
        fence,
        slot: None,
        ttl: Duration::from_millis(ttl.parse().unwrap_or(0)),
        remaining: answers::time_left(left),
        held: Duration::from_micros(now_us.saturating_sub(since)),
        value: answers::value_from(&record[end + 1..]),
        ending: !matches!(letter, "s" | "d"),
    };
    Some((owner.to_owned(), view))
}

/// A fence as it stands in a record: digits, and for one of a run two letters that say how many are before it.
fn fence_of(text: &str, count: u64) -> Option<Fence> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let first: u64 = digits.parse().ok()?;
    let letter = |letter: u8| u64::from(letter).checked_sub(u64::from(b'@'));
    let before = match text.as_bytes()[digits.len()..] {
        [] => 0,
        [high, low] => letter(high)? * LETTERS + letter(low)?,
        _ => return None,
    };
    Some(Fence::new(first + before * count))
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
