//! Names are bytes: what differs is another lock, and nothing in a name means anything.

use std::collections::BTreeSet;

use leaseward::{ErrorKind, NAME_MAX_BYTES, store::Query};

use crate::{
    Case, Fixture,
    case::case,
    support::{LONG, busy, take},
};

pub(super) const CASES: &[Case] =
    &[case!(odd_names_never_collide), case!(bad_names_are_refused), case!(the_longest_name_works)];

/// What somebody somewhere treats as a wildcard, a separator, a quote, an escape, a tag or the same letter.
const ODD: &[&str] = &[
    "a",
    "A",
    "a ",
    " a",
    "a/b",
    "a/",
    "/a",
    "a//b",
    "a:b",
    "a.b",
    "a,b",
    "a;b",
    "a|b",
    "a'b",
    "a''b",
    "a\"b",
    "a`b",
    "a\\b",
    "a\\\\b",
    "a%",
    "a%b",
    "a%25",
    "a_",
    "ab",
    "a*",
    "a?",
    "[a]",
    "{a}",
    "{a}b",
    "a{b}",
    "(a)",
    "$a",
    "#a",
    "@a",
    "a=b",
    "a&b",
    "a+b",
    "a--b",
    "a-- ",
    "..",
    "../a",
    "~",
    "NULL",
    "0",
    "00",
    "-1",
    "1e3",
    "ä",
    "a\u{308}",
    "ß",
    "ss",
    "İ",
    "i",
    "日本",
    "👩‍👩‍👧",
    "\u{200b}a",
    "\u{feff}a",
    "a\u{a0}b",
    "a b",
    "select 1; drop table leases",
    "${x}",
    "%s",
    "%00",
];

async fn odd_names_never_collide(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let mut guards = Vec::new();
    for name in ODD {
        guards.push(take(&one.lock(name).ttl(LONG)).await);
    }
    for name in ODD {
        busy(&other.lock(name)).await;
    }
    let seen = other.inspect(Query::all()).await.expect("answered");
    let seen: BTreeSet<_> = seen.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(seen.len(), ODD.len());
    if other.capability().records {
        assert_eq!(seen, ODD.iter().copied().collect());
    }
    for guard in guards {
        let name = guard.name().clone();
        guard.release().await.expect("given back");
        take(&other.lock(&*name)).await.release().await.expect("given back");
    }
    assert!(other.inspect(Query::all()).await.expect("answered").is_empty());
}

async fn bad_names_are_refused(fixture: &Fixture) {
    let locks = fixture.client().await;
    let long = "x".repeat(NAME_MAX_BYTES + 1);
    // Two bytes a letter: counted in bytes, not in letters.
    let wide = "ä".repeat(NAME_MAX_BYTES / 2 + 1);
    for bad in ["", "a\nb", "a\0", "\u{7f}", "\u{85}", long.as_str(), wide.as_str()] {
        for error in [
            locks.lock(bad).acquire().await.err(),
            locks.lock(bad).try_acquire().await.err(),
            locks.semaphore(bad, 2).acquire().await.err(),
            locks.all(["good", bad]).acquire().await.err(),
            locks.election(bad).campaign("me").await.err(),
            locks.break_lease(bad, true).await.err(),
        ] {
            let error = error.unwrap_or_else(|| panic!("{bad:?} was taken"));
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad:?}: {error}");
            assert!(error.hint_text().is_some(), "{error}");
        }
    }
    assert!(locks.inspect(Query::all()).await.expect("answered").is_empty(), "nothing changed");
}

async fn the_longest_name_works(fixture: &Fixture) {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let longest = "ä".repeat(NAME_MAX_BYTES / 2);
    let prefix = &longest[..NAME_MAX_BYTES - 2];
    let guard = take(&one.lock(&longest).ttl(LONG)).await;
    take(&other.lock(prefix)).await.release().await.expect("given back");
    busy(&other.lock(&longest)).await;
    guard.release().await.expect("given back");
    take(&other.lock(&longest)).await.release().await.expect("given back");
}
